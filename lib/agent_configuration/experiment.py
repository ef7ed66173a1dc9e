"""The experiment: configurations without learning, every training under every seed, the same test questions for all.

One job per part of the sampled set, one for the greedy climb, one for the prompted policies, one per seed of random
configurations; and one per training and seed, which refines its policy and tests it on every kind of question and on
the larger model. All are jobs of a sweep that resumes. Working files lie under data/runs/configuration.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import tools
from lib.agent_configuration import (
    action_space,
    agent_models,
    agent_system,
    agent_team,
    atoms,
    encoders,
    error_taxonomy,
    policies,
    policy_updates,
    prompted_baseline,
    questions,
    rewards,
    search,
    sources,
    training,
    variants,
    workflows,
)
from lib.agent_configuration.action_space import AGENTS, Configuration
from lib.agent_configuration.agent_models import AgentModel, ChatAgentModel, LabAgentModel
from lib.agent_configuration.agent_system import (
    ConfiguredQuestion,
    System,
    drop_lost_questions,
    table,
)
from lib.agent_configuration.atoms import Atom, library, prompts, select_atoms
from lib.agent_configuration.cost_plan import GREEDY_ROUNDS, announce_experiment, announce_questions
from lib.agent_configuration.error_taxonomy import classify
from lib.agent_configuration.policy_updates import Rules
from lib.agent_configuration.prompted_baseline import Example
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.training import (
    ConfigurationPolicy,
    ConfigurationTraining,
    Refining,
    TrainingPlan,
    prefer_better,
    refine,
)
from lib.agent_configuration.variants import ALONE, NAMED, VARIANTS, ConfigurationVariant
from lib.config import ROOT, ConfigurationSettings, LLMSettings, Params, ParamsError
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import FinishedJobs, JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext, read_tables
from lib.language_models import checkpoints
from lib.language_models.cache_key import describe_models
from lib.language_models.cache_key import versions as versions_of_asking
from lib.language_models.lab_model import open_lab_model, open_shared_store
from lib.language_models.local_models import open_local
from lib.language_models.training import agent_traces as agent_traces
from lib.language_models.training import team_traces as team_traces
from lib.language_models.training.model_folders import ensure_models
from lib.llm.chat_model import ChatModel
from lib.llm.event_loop import EventLoopThread
from lib.llm.open_models import ChatModels, export_recording, open_models
from lib.rl import losses
from lib.tasks import Item
from lib.tools import Index, Sandbox, Tool, calculator, lookup, python
from lib.tools import search as search_tool

VERSION = 1  # of what each job of the study plays and tests
RUNS = ROOT / "data/runs/configuration"
POLICY = RUNS / "policy"
CASSETTES = ROOT / "data/cassettes/07_agent_configuration"
NAME = "configuration"  # of the cassette and of the purse
HOSTED = 50.0  # tokens per second of an endpoint, declared
TEST_DRAW = 1_000  # tries of test questions, apart from those of training
EXAMPLES = 10  # configurations that are tried for the examples of a prompt
PARTS = 4  # jobs that share the sampled set
AT_ONCE = 7  # configurations of the sampled set that are tried side by side

# Kinds of jobs, and the fields of the settings that each reads besides the common ones. What a training reads depends
# on its variant, see `_list_training_fields`.
SAMPLED_SET = "searched configurations"
GREEDY_SEARCH = "greedy search"
PROMPTED_POLICIES = "prompted policies"
RANDOM_CHOICES = "random choices"
TRAINING = "training"
COMMON_FIELDS = ("model", "tiers", "temperature", "reward", "test_items")
FIELDS = {
    SAMPLED_SET: ("search_items", "grid", "sampled"),
    GREEDY_SEARCH: ("search_items",),
    PROMPTED_POLICIES: ("prompted", "grid"),
    RANDOM_CHOICES: (),
}


@dataclass(frozen=True)
class AgentConfigurationResults:
    """What a study left.

    searched: every sampled configuration on training questions (`split` train) and twice on test questions (test and
    again), `agent_system.table` with columns set (grid or sampled) and number; greedy: configurations tried and reward
    on the way; climbed: where it ended; tests: `agent_system.table` of test questions with method, seed, model, error;
    rollouts: the same of training with step, scored episodes only; learning: losses and entropies of every update;
    refined: what SFT and DPO started from.
    """

    searched: pd.DataFrame
    greedy: pd.DataFrame
    climbed: Configuration
    tests: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    refined: pd.DataFrame


def toolbox(sandbox: Sandbox) -> dict[str, Tool]:
    """The four tools, over the two sources of facts that questions are about."""
    tools = (
        calculator(),
        search_tool(Index(sources.build_documents())),
        lookup(sources.build_records()),
        python(sandbox),
    )
    return {tool.name: tool for tool in tools}


class ConfigurationWorkbench:
    """Everything that one job works with: agents of any model, their tools, prompts and rewards; `close` it."""

    def __init__(
        self, settings: ConfigurationSettings, context: RunContext, tools: Mapping[str, Tool]
    ) -> None:
        """Raises ParamsError for a library of atoms that is none."""
        self.settings, self.context, self.tools = settings, context, tools
        self.models, self.atoms_file = context.models, context.inputs["atoms"]
        backend = context.llm.models[settings.model].backend
        self.atoms: list[Atom] = select_atoms(library(self.atoms_file), backend)
        self.weights = Weights(**settings.reward.model_dump())
        self.loop = EventLoopThread()
        self._opened: dict[str, ChatModels] = {}

    def open_model(self, name: str) -> ChatModel:
        """A model of llm.models; it stays open until `close`."""
        if name not in self._opened:
            context = self.context
            self._opened[name] = open_models(
                context.llm,
                [name],
                NAME,
                context.runs,
                context.cassettes,
                sweep.count_workers(context.workers),
                open_local(self.models),
            )
        return self._opened[name][name]

    def close(self) -> None:
        """Write the replies that are to be kept, and end models and event loop."""
        open_shared_store().flush()
        for models in self._opened.values():
            self.loop.run(models.aclose())
        self.loop.close()

    @cached_property
    def phi(self) -> encoders.Encoder:
        """The encoder of questions; only what has a policy reads it. Raises EncoderError for one that is not here."""
        return encoders.encoder(self.settings.encoder, self.models)

    def system(self, model: str) -> System:
        """The agents of a model of llm.models. Raises ModelError for a lab model that is not here."""
        agent_model = self._make_agent_model(model)
        return System(
            agent_model,
            self.tools,
            self.settings.select_tiers(agent_model.backend),
            prompts(self.atoms, agent_model.backend),
            self.loop,
        )

    def _make_agent_model(self, name: str) -> AgentModel:
        settings = self.context.llm.models[name]
        temperature = self.settings.temperature
        if settings.backend == "lab":
            return LabAgentModel(open_lab_model(settings.model or name, self.models), temperature)
        return ChatAgentModel(self.open_model(name), temperature, 1 / HOSTED)

    def items(self, split: str, n: int, kinds: Sequence[str] = ()) -> list[Item]:
        """n questions of each kind, kind by kind."""
        wanted = kinds or [kind.name for kind in KINDS]
        return [item for kind in wanted for item in questions.questions(kind, split, n)]

    def states(self, items: Sequence[Item]) -> np.ndarray:
        return encoders.states([item.prompt for item in items], self.phi)

    def told(self) -> list[list[str]]:
        """Names of base atoms that each agent may be told."""
        return [
            [a.name for a in self.atoms if a.role == role and a.family == "base"] for role in AGENTS
        ]

    def play(self, model: str, jobs: Sequence[ConfiguredQuestion]) -> pd.DataFrame:
        agents = self.system(model)
        outcomes = agents.run(jobs)
        return table(jobs, outcomes, agents.rewards(jobs, outcomes, self.weights))


@contextmanager
def opened_place(
    context: RunContext, settings: ConfigurationSettings
) -> Iterator[ConfigurationWorkbench]:
    """The agents of the settings, and their tools, at work.

    Args:
        context: See `make_context`.
        settings: The section `configuration`, whole or with the fields that a job was handed.
    """
    with Sandbox() as sandbox:
        place = ConfigurationWorkbench(settings, context, toolbox(sandbox))
        try:
            yield place
        finally:
            place.close()


# The whole -----------------------------------------------------------------------------------------


def run(
    params: Params,
    compared: Sequence[ConfigurationVariant] = (*VARIANTS, *ALONE),
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "configuring agents",
) -> AgentConfigurationResults:
    """Do what is not done yet. Raises ModelError for a folder without lab models, ParamsError for a library of atoms
    that is none, SandboxUnavailable where no sandbox works.

    models: folder of the lab models; None for those of lesson 03, which are made where they are missing.
    """
    settings, runs = params.configuration, Path(runs)
    models = ensure_models(params.lab, models)
    context = make_context(params, models, runs)
    _check(context, settings)
    jobs = make_jobs(params, compared, models)
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    costs = announce_experiment(params, compared, len(library(context.inputs["atoms"])))
    finished = run_stages([Stage(label, jobs, work)], context, keep_replies, costs)
    _publish(jobs, params, models, runs)
    return _collect_results(finished)


def _check(context: RunContext, settings: ConfigurationSettings) -> None:
    """Raise what is wrong with models, atoms or the encoder before any process starts."""
    with opened_place(context, settings) as place:
        place.open_model(settings.prompted)
        for model in (settings.model, settings.larger):
            place.system(model)
        encoders.encoder(settings.encoder, context.models)


def trained(
    params: Params,
    compared: Sequence[ConfigurationVariant],
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training policies",
) -> pd.DataFrame:
    """Tests some trainings alone, without searches and prompts: `AgentConfigurationResults.tests`.

    models: see `run`.
    """
    models = ensure_models(params.lab, models)
    jobs = _select_trainings(make_jobs(params, compared, models))
    context = make_context(params, models, runs)
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    costs = announce_experiment(params, compared, num_atoms=0, trainings_only=True)
    finished = run_stages([Stage(label, jobs, work)], context, keep_replies, costs)
    (tests,) = drop_lost_questions(finished.read_tables("tests", with_identity=False))
    return tests


def asked(
    params: Params,
    items: Sequence[Item],
    models: str | Path | None = None,
    runs: str | Path = RUNS,
) -> pd.DataFrame:
    """What agents make of questions of one's own when ARC's policy of each seed configures them: `system.table` with
    seed and number (of the question). Trains what is not trained yet. models: see `run`."""
    variant = NAMED["arc"]
    models = ensure_models(params.lab, models)
    trained(params, [variant], models, runs)
    training_jobs = _select_trainings(make_jobs(params, [variant], models))
    num_questions = len(training_jobs) * len(items)
    sweep.print_to_terminal(announce_questions(params, num_questions, "asking trained policies"))
    tables = []
    with opened_place(make_context(params, models, runs), params.configuration) as place:
        states = torch.from_numpy(place.states(items))
        for training_job in training_jobs:
            policy = ConfigurationPolicy(variant.kind, states.shape[1], place.atoms)
            policy.take(artifacts.read_tensors(training_job.folder(runs) / "arc.safetensors"))
            chosen = policy.decide(states).configurations
            jobs = [
                ConfiguredQuestion(item, configuration, TEST_DRAW)
                for item, configuration in zip(items, chosen, strict=True)
            ]
            played = place.play(params.configuration.model, jobs)
            tables.append(
                played.assign(seed=training_job.settings["seed"], number=range(len(items)))
            )
    return pd.concat(tables, ignore_index=True)


def choices(
    params: Params, n: int, models: str | Path | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """A dozen configurations on n dev and n test questions of each kind in independent tries: columns split, method (a
    number), item, sample, correct, reward, as `stats.headroom` asks for them. Nothing learns from these.

    models: see `run`.
    """
    parts = []
    context = make_context(params, ensure_models(params.lab, models), runs)
    with opened_place(context, params.configuration) as place:
        tried = [search.BASE, *search.sampled(11, place.told())]
        num_questions = 2 * 2 * len(tried) * len(place.items("dev", n))
        sweep.print_to_terminal(announce_questions(params, num_questions, "trying configurations"))
        for split, attempt in product(("dev", "test"), range(2)):
            items = place.items(split, n)
            jobs = [
                ConfiguredQuestion(item, one, TEST_DRAW + attempt)
                for one in tried
                for item in items
            ]
            rows = place.play(params.configuration.model, jobs)[["prompt", "correct", "reward"]]
            at = {
                "method": np.repeat(np.arange(len(tried)), len(items)),
                "item": np.tile(np.arange(len(items)), len(tried)),
            }
            parts.append(rows.assign(split=split, **{"sample": attempt}, **at))
    (rows,) = drop_lost_questions(pd.concat(parts, ignore_index=True))
    return rows.drop(columns="prompt")


def make_context(
    params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS
) -> RunContext:
    """How a study with these parameters is carried out: folders, processes, clients, and the file with the atoms."""
    settings = params.configuration
    context = RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )
    return replace(context, inputs={"atoms": str(ROOT / settings.atoms)})


def _publish(jobs: Sequence[sweep.Job], params: Params, models: Path, runs: Path) -> None:
    """Put ARC's policy of the first seed where the command line looks for it."""
    settings = params.configuration
    for job in _select_trainings(jobs):
        if job.settings["variant"]["name"] == "arc" and job.settings["seed"] == 0:
            arrays = artifacts.read_tensors(job.folder(runs) / "arc.safetensors")
            made_for = _made_for(settings.encoder, ROOT / settings.atoms, models)
            artifacts.write_tensors(runs / POLICY.name / "arc.safetensors", arrays)
            artifacts.write_json(runs / POLICY.name / "policy.json", made_for)


def _made_for(encoder: str, atoms_file: str | Path, models: str | Path) -> dict[str, str]:
    """What a policy reads and chooses from: it is worth nothing with another encoder or another library."""
    return {
        "encoder": encoders.identity(encoder, models),
        "atoms": artifacts.sha256_file(atoms_file),
    }


def published(folder: str | Path, place: ConfigurationWorkbench) -> ConfigurationPolicy:
    """The policy in a folder. Raises ParamsError where there is none, or one that was made for another encoder or
    another library of atoms."""
    folder = Path(folder)
    if not (folder / "policy.json").is_file():
        raise ParamsError(
            f"there is no trained policy in {folder}; `make repro` trains one in lesson 07"
        )
    made_for = artifacts.read_json(folder / "policy.json")
    now = _made_for(place.settings.encoder, place.atoms_file, place.models)
    wrong = [name for name in now if made_for.get(name) != now[name]]
    if wrong:
        raise ParamsError(
            f"the policy in {folder} was trained with another {wrong[0]}; run `make repro` once more"
        )
    inputs = place.states(place.items("train", 1)[:1]).shape[1]
    return ConfigurationPolicy("hierarchy", inputs, place.atoms).take(
        artifacts.read_tensors(folder / "arc.safetensors")
    )


# Jobs ----------------------------------------------------------------------------------------------


def make_jobs(
    params: Params, compared: Sequence[ConfigurationVariant], models: Path
) -> list[sweep.Job]:
    """The sampled set and the trainings first, for they take longest; then random choices, climb, prompted policies."""
    seed_range = range(params.configuration.seeds)

    @cache
    def decided_by(kind: str, *fields: str) -> dict[str, Any]:
        return _make_settings(params, models, kind, (*COMMON_FIELDS, *fields))

    def make_job(label: str, kind: str, **settings: Any) -> sweep.Job:
        return sweep.Job(label, decided_by(kind, *FIELDS[kind]) | settings)

    searched = [
        make_job(f"searched/{part}", SAMPLED_SET, part=part, num_parts=PARTS)
        for part in range(PARTS)
    ]
    trainings = []
    for variant in compared:
        handed = decided_by(TRAINING, *_list_training_fields(variant))
        for seed in seed_range:
            trainings.append(
                sweep.Job(
                    f"{variant.name}/seed-{seed}",
                    handed | {"variant": variant.to_job_settings(), "seed": seed},
                )
            )
    random = [make_job(f"random/seed-{seed}", RANDOM_CHOICES, seed=seed) for seed in seed_range]
    return [
        *searched,
        *trainings,
        *random,
        make_job("greedy", GREEDY_SEARCH),
        make_job("prompted", PROMPTED_POLICIES),
    ]


def _select_trainings(jobs: Sequence[sweep.Job]) -> list[sweep.Job]:
    return [job for job in jobs if job.settings["job"] == TRAINING]


def _list_training_fields(variant: ConfigurationVariant) -> list[str]:
    """The settings that a training of a variant reads, besides those that all jobs read."""
    fields = ["encoder", "train_items", "draws"]
    fields.append("alone_episodes" if variant.only else "episodes")
    fields.append("grpo" if variant.grouped else "ppo")
    if variant.refined:
        fields.append("sft")
    if variant.refined and not variant.only:
        fields.append("dpo")
    if variant.tested_with_larger_model:
        fields.append("larger")
    return fields


def _make_settings(
    params: Params, models: Path, kind: str, fields: Sequence[str]
) -> dict[str, Any]:
    """What decides the result of a job of a kind that reads these fields; files, models and encoder by content."""
    settings, llm = params.configuration, params.llm
    asks = [
        getattr(settings, field) for field in ("model", "larger", "prompted") if field in fields
    ]
    agent_names = [getattr(settings, field) for field in ("model", "larger") if field in fields]
    if any(llm.models[name].backend != "lab" for name in agent_names):
        fields = (*fields, "hosted_tiers")
    agent = llm.models[settings.model]
    base = (agent.model or settings.model) if agent.backend == "lab" else None
    decided_by = {
        "job": kind,
        "configuration": settings.to_job_settings(*fields),
        "atoms": artifacts.sha256_file(ROOT / settings.atoms),
        **describe_models(llm, {name: name for name in asks}, base, models),
        "versions": versions(kind, llm, asks),
    }
    if "encoder" in fields:
        decided_by["encoder"] = encoders.identity(settings.encoder, models)
    return decided_by


def versions(kind: str, llm: LLMSettings, asks: Iterable[str]) -> dict[str, int]:
    """The VERSIONs of the code that decides the result of a kind of job. asks: names in llm.models that it asks."""
    decided_by = versions_of_asking(llm, asks) | {
        "tools": tools.VERSION,
        "agent traces": agent_traces.VERSION,
        "team traces": team_traces.VERSION,
        "configuration space": action_space.VERSION,
        "kinds of questions": questions.VERSION,
        "prompt atoms": atoms.VERSION,
        "sources of facts": sources.VERSION,
        "turns of agents": agent_models.VERSION,
        "calls of agents": agent_team.VERSION,
        "workflows": workflows.VERSION,
        "agent system": agent_system.VERSION,
        "configuration rewards": rewards.VERSION,
        "configuration study": VERSION,
    }
    if kind in (SAMPLED_SET, GREEDY_SEARCH, PROMPTED_POLICIES):
        decided_by["configuration searches"] = search.VERSION
    if kind != SAMPLED_SET:
        decided_by["kinds of errors"] = error_taxonomy.VERSION
    if kind == PROMPTED_POLICIES:
        decided_by["prompted configuration policies"] = prompted_baseline.VERSION
    if kind == TRAINING:
        decided_by |= {
            "losses": losses.VERSION,
            "question encoders": encoders.VERSION,
            "configuration policies": policies.VERSION,
            "configuration learning": policy_updates.VERSION,
            "configuration training": training.VERSION,
            "trained variants": variants.VERSION,
        }
    return decided_by


def work(run: JobRun) -> dict[str, Any]:
    """Does one job, by its kind."""
    use_one_thread()
    settings = run.read_section("configuration", ConfigurationSettings)
    with opened_place(run.context, settings) as place:
        if run.kind == SAMPLED_SET:
            return _search(place, run)
        if run.kind == GREEDY_SEARCH:
            return _climb(place, run)
        if run.kind == PROMPTED_POLICIES:
            return _prompt(place, run)
        if run.kind == RANDOM_CHOICES:
            return _draw(place, run)
        return _train(place, run)


# Without learning ----------------------------------------------------------------------------------


def candidates(
    settings: ConfigurationSettings, told: Sequence[Sequence[str]]
) -> list[tuple[str, Configuration]]:
    """The configurations that are tried on every question: the grid, then the sampled ones."""
    out = [("grid", one) for one in search.grid(settings.grid)]
    return [
        *out,
        *(("sampled", one) for one in [search.BASE, *search.sampled(settings.sampled, told)]),
    ]


def _search(place: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Every `num_parts`-th candidate on training questions, and twice on test questions: who picks the best of many
    tries by what they gave flatters himself, so the oracle picks by one try and is paid for the other."""
    settings, tables = place.settings, []
    part, num_parts = run.settings["part"], run.settings["num_parts"]
    every = list(enumerate(candidates(settings, place.told())))[part::num_parts]
    items = {
        "train": place.items("train", settings.search_items),
        "test": place.items("test", settings.test_items),
    }
    tries = [
        ("train", 0, items["train"]),
        ("test", TEST_DRAW, items["test"]),
        ("again", TEST_DRAW + 1, items["test"]),
    ]
    for at in range(0, len(every), AT_ONCE):
        asked = [
            (
                ConfiguredQuestion(item, candidate, draw),
                {"split": split, "set": kind, "number": number},
            )
            for number, (kind, candidate) in every[at : at + AT_ONCE]
            for split, draw, of in tries
            for item in of
        ]
        played = place.play(settings.model, [job for job, _ in asked]).drop(columns=["text"])
        tables.append(played.assign(**pd.DataFrame([about for _, about in asked]).to_dict("list")))
        run.report_progress(min(1.0, (at + AT_ONCE) / len(every)))
    run.write_table("searched", pd.concat(tables, ignore_index=True))
    return {}


def _climb(place: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """The greedy search on training questions, and its end on test questions."""
    settings = place.settings
    items = place.items("train", settings.search_items)

    def score(near: Sequence[Configuration]) -> np.ndarray:
        jobs = [ConfiguredQuestion(item, one) for one in near for item in items]
        rewards = place.play(settings.model, jobs)["reward"].to_numpy().reshape(len(near), -1)
        is_lost = np.isnan(rewards).any(axis=0)
        if is_lost.any():  # a question of which an answer was lost compares no configurations
            rewards = rewards[:, ~is_lost]
        return rewards.mean(1) if rewards.size else np.zeros(len(near))

    best, path = search.greedy(score, rounds=GREEDY_ROUNDS, atoms=place.told())
    run.write_table("greedy", pd.DataFrame(path, columns=["tried", "reward"]))
    artifacts.write_json(
        run.folder / "greedy.json", {"structure": best.structure, "atoms": best.atoms}
    )
    tests = _tested(place, [best] * len(place.items("test", settings.test_items)), settings.model)
    run.write_table("tests", tests.assign(method="greedy", seed=0, model=settings.model))
    return {}


def _tested(
    place: ConfigurationWorkbench, chosen: Sequence[Configuration], model: str
) -> pd.DataFrame:
    """Test questions, each under the configuration chosen for it, with the kinds of error."""
    items = place.items("test", place.settings.test_items)
    agents = place.system(model)
    jobs = [
        ConfiguredQuestion(item, one, TEST_DRAW) for item, one in zip(items, chosen, strict=True)
    ]
    outcomes = agents.run(jobs)
    errors = [
        "" if o.correct or o.lost_calls else classify(j.item, j.configuration, o)
        for j, o in zip(jobs, outcomes, strict=True)
    ]
    return table(jobs, outcomes, agents.rewards(jobs, outcomes, place.weights)).assign(error=errors)


def _prompt(place: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Policies that are a prompted language model, with examples and without."""
    settings, tables = place.settings, []
    items = place.items("test", settings.test_items)
    shown = _examples(place)
    for name, told in (("zero_shot", ()), ("few_shot", shown)):
        choices = place.loop.run(
            prompted_baseline.choose(place.open_model(settings.prompted), items, told)
        )
        chosen = [choice.configuration for choice in choices]
        tests = _tested(place, chosen, settings.model).assign(
            method=name,
            seed=0,
            failed=[float(choice.is_fallback) for choice in choices],
            lost_choice=[float(choice.is_lost) for choice in choices],
        )
        # What another configuration was paid says nothing about the policy whose choice was lost.
        is_lost = tests["lost_choice"] > 0
        tests[["correct", "reward"]] = tests[["correct", "reward"]].mask(is_lost)
        tables.append(tests)
    run.write_table("tests", pd.concat(tables, ignore_index=True).assign(model=settings.model))
    return {}


def _draw(place: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """A random configuration for every test question."""
    seed = run.seed
    model, every = place.settings.model, action_space.structures()
    items = place.items("test", place.settings.test_items)
    rng = seeds.rng("configuration", "random", seed=seed)
    chosen = [
        Configuration(action_space.checked(every[i].tolist()))
        for i in rng.integers(len(every), size=len(items))
    ]
    tests = _tested(place, chosen, model).assign(
        method="random", seed=seed, failed=0.0, model=model
    )
    run.write_table("tests", tests)
    return {}


def _examples(place: ConfigurationWorkbench) -> list[Example]:
    """For the few-shot prompt: of each kind's first training question, the best and the worst paid of the grid."""
    settings, out = place.settings, []
    for kind in KINDS:
        item = place.items("train", 1, (kind.name,))[0]
        tried = search.grid(settings.grid)[:: max(1, settings.grid // EXAMPLES)]
        jobs = [ConfiguredQuestion(item, one) for one in tried]
        rewards = place.play(settings.model, jobs)["reward"].dropna()
        if len(rewards):  # none where a provider's filter stops the question
            out += [
                Example(item.prompt, tried[number], float(rewards[number]))
                for number in (int(rewards.idxmax()), int(rewards.idxmin()))
            ]
    return out


# Trainings -----------------------------------------------------------------------------------------


def plan_of(settings: ConfigurationSettings, variant: ConfigurationVariant) -> TrainingPlan:
    """How a variant is trained: PPO by appendix F, GRPO by appendix H."""
    rules = settings.grpo if variant.grouped else settings.ppo
    episodes = settings.alone_episodes if variant.only else settings.episodes
    return TrainingPlan(
        episodes,
        rules.batch,
        (rules.structure_rate, rules.prompt_rate),
        Rules(
            rules.clip,
            rules.gamma,
            rules.entropy,
            rules.value,
            rules.max_grad_norm,
            rules.epochs,
            variant.grouped,
        ),
        Weights(**settings.reward.model_dump()),
        rules.group,
        settings.draws,
    )


def refining_of(settings: ConfigurationSettings, which: str) -> Refining:
    """How a trained policy is refined: `sft` or `dpo`."""
    told = getattr(settings, which).model_dump()
    return Refining(rates=(told.pop("structure_rate"), told.pop("prompt_rate")), **told)


def _train(place: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Trains one variant under one seed, refines it where it can be, and tests what came of it."""
    settings = place.settings
    variant, seed = ConfigurationVariant.from_job_settings(run.settings["variant"]), run.seed
    items = place.items("train", settings.train_items, (variant.only,) if variant.only else ())
    states = place.states(items)
    policy = ConfigurationPolicy(variant.kind, states.shape[1], place.atoms, variant.masked, seed)
    plan, path = plan_of(settings, variant), run.folder / "rollouts.parquet"
    known = artifacts.read_parquet(path) if path.exists() else None
    training = ConfigurationTraining(
        policy, place.system(settings.model), items, states, plan, seed, known
    )

    def after(training: ConfigurationTraining) -> None:
        run.report_progress(0.85 * training.step / plan.updates)
        is_due = training.step % run.context.save_every == 0
        if is_due or training.step == plan.updates:
            artifacts.write_parquet(path, pd.concat(training.rows, ignore_index=True))

    training.run(after)
    after, said = {variant.name: policy}, {}
    if variant.refined:
        sft, said["sft"] = refine(training, refining_of(settings, "sft"), seed)
        after = {f"{variant.name}_no_sft": policy, variant.name: sft}
        if not variant.only:
            after[f"{variant.name}_dpo"], said["dpo"] = prefer_better(
                training, refining_of(settings, "dpo"), seed
            )
    tables = [_sat(place, one, name, seed, variant, settings.model) for name, one in after.items()]
    if variant.tested_with_larger_model:
        tables.append(
            _sat(place, after[variant.name], variant.name, seed, variant, settings.larger)
        )
    run.write_table("tests", pd.concat(tables, ignore_index=True))
    run.write_table("learning", pd.DataFrame(training.learned))
    for name, one in after.items():
        artifacts.write_tensors(run.folder / f"{name}.safetensors", one.arrays())
    return said


def _sat(
    place: ConfigurationWorkbench,
    policy: ConfigurationPolicy,
    name: str,
    seed: int,
    variant: ConfigurationVariant,
    model: str,
) -> pd.DataFrame:
    """The likeliest choices of a policy on the test questions."""
    items = place.items("test", place.settings.test_items)
    chosen = policy.decide(torch.from_numpy(place.states(items))).configurations
    return _tested(place, chosen, model).assign(
        method=name, seed=seed, model=model, only=variant.only
    )


def _collect_results(finished: FinishedJobs) -> AgentConfigurationResults:
    jobs, runs = finished.jobs, finished.runs
    read_as_they_are = partial(finished.read_tables, with_identity=False)
    searched, greedy, tests = (read_as_they_are(name) for name in ("searched", "greedy", "tests"))
    trainings = _select_trainings(jobs)
    only = {job.settings["variant"]["name"]: job.settings["variant"]["only"] for job in trainings}
    rollouts, learning = (read_tables(trainings, runs, name) for name in ("rollouts", "learning"))
    rollouts = rollouts[rollouts["reward"].notna()].reset_index(drop=True)
    rollouts, learning = (
        each.assign(only=each["method"].map(only)) for each in (rollouts, learning)
    )

    refined = []
    for job, receipt in finished.list_results():
        for how, about in (receipt["result"] or {}).items():
            refined.append(
                {
                    "method": job.settings["variant"]["name"],
                    "seed": job.settings["seed"],
                    "how": how,
                }
                | about
            )

    (climb,) = (job for job in jobs if job.settings["job"] == GREEDY_SEARCH)
    end = artifacts.read_json(climb.folder(runs) / "greedy.json")
    climbed = Configuration(tuple(end["structure"]), tuple(tuple(agent) for agent in end["atoms"]))
    return AgentConfigurationResults(
        searched, greedy, climbed, tests, rollouts, learning, pd.DataFrame(refined)
    )
