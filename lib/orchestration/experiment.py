"""The experiment of lesson 02: everybody who decides meets the same students and rooms.

A world is a domain with a kind of query:

    paper    the paper's environments; the query weighs all objectives alike
    speed    the paper's students; the query asks to raise mastery, so utility is the share of the horizon that is saved
    varied   students of hidden ability, or rooms with planned policies; every query weighs the objectives differently

A job is a world under one seed of the policy zoo. In it all methods play the same episodes with the same random
numbers. What a method knows of policies beforehand (cards, LinUCB, the best single policy) comes from training students
and rooms, apart from those that anyone is judged on. Prompted models, and models whose replies are constrained, have
jobs of their own with fewer episodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import envs
from lib.config import Environments, OrchestrationSettings, Params
from lib.experiment import artifacts, results_table, seeds
from lib.experiment.harness import FinishedJobs, JobRun, Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.experiment.sweep import Job, count_workers, read_receipt
from lib.language_models.hugging_face_folder import hash_folder
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.open_models import export_recording
from lib.orchestration import (
    baseline_models,
    contexts,
    decision_model,
    decision_models,
    domain_descriptions,
    episode_batch,
)
from lib.orchestration.baseline_models import (
    ConstantModel,
    GreedyModel,
    LinUCBModel,
    PlanModel,
    RandomModel,
    RoundRobinModel,
)
from lib.orchestration.contexts import SYSTEMS, PolicyKnowledge, ToolSignature
from lib.orchestration.decision_model import DecisionModel
from lib.orchestration.decision_models import CASSETTES, RECORDING, RUNS, open_decision_model
from lib.orchestration.episode_batch import (
    Contest,
    Menu,
    PlannedMenu,
    PlayedEpisodes,
    SystemOptions,
    TrainedMenu,
    average_by_situation,
    draw_weights,
    watch_random_policies,
)
from lib.orchestration.prompted_model import ATTEMPTS
from lib.policy_zoo import (
    networks,
    planned_policies,
    policies,
    recipes,
    train,
    zoo_folder,
)
from lib.policy_zoo.recipes import OBJECTIVES, REFERENCES, SINGLE
from lib.policy_zoo.zoo_folder import ensure_zoo

VERSION = 1  # of worlds, methods and what is recorded of them
WORLDS = ("paper", "speed", "varied")
PLACES = (
    ("education", "paper"),
    ("education", "speed"),
    ("education", "varied"),
    ("minigrid", "paper"),
    ("minigrid", "varied"),
)
BEST_POLICY = "best policy"
UPPER_BOUND = "plan ahead"
ORACLE = "oracle"
GREEDY = "greedy"
_HASH_DIGITS = 16
PROMPT_TOKENS = 2_500  # of a prompt, more than contexts of these domains need

# Fields of the settings that a job reads.
_READ_BY_ALL = ("memory", "max_calls", "lookahead", "rollout_copies", "fallback", "weights")
_READ_BY_CONTEST = ("students", "training", "summary_interval")
_READ_BY_PROMPTED = ("episodes", "training", "summary_interval")
CONSTRAINED_SEED = 0  # a model on this machine's processor is slow: one seed of the zoo,
CONSTRAINED_INTERVAL = 5  # and steps between its decisions


@dataclass(frozen=True)
class Method:
    """A row of the results tables.

    Attributes:
        name: As in tables.
        model: Who decides.
        options: The context that it gets.
        role: As in `lib.experiment.results_table`.
        num_copies: Of a look-ahead, where it differs from the settings.
    """

    name: str
    model: DecisionModel
    options: SystemOptions
    role: str
    num_copies: int | None = None


# Jobs ------------------------------------------------------------------------------------------


def run(
    params: Params,
    places: Sequence[tuple[str, str]] = PLACES,
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
    records: str | Path = results_table.RECORDS,
) -> pd.DataFrame:
    """Let every method play in every world; what is not finished yet is run.

    Args:
        params: All settings.
        places: (domain, world) each.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
        runs: Folder of the jobs.
        records: Folder of the results table.

    Returns:
        The results table "orchestration", a row per method, seed and episode, the oracle in hindsight among them.
        group: the domain; condition: the world; style: the objective that the query weighs most; outcomes: mastery,
        or the share of gold, by step. Its own columns: orchestrator, model, length, d1, d2, d3, progress, decisions,
        invalid_replies, kwh.
    """
    zoo = ensure_zoo(params, _list_trained_domains(places), zoo)
    jobs = [job for domain, world in places for job in make_jobs(params, domain, world, zoo)]
    finished = run_jobs(params, jobs, "deciding", zoo, runs, plan_contest_calls(params, places))
    episodes = finished.read_tables("episodes", with_identity=False)
    return results_table.write_results("orchestration", add_oracle(episodes), records)


def run_prompted(
    params: Params,
    domains: Sequence[str],
    models: Sequence[str] | None = None,
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
    without: Sequence[Sequence[str]] = ((),),
    label: str = "deciding with prompts",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Let prompted models decide as KO, TO and RO in the paper's worlds, on the first episodes that everybody meets.

    Args:
        params: All settings.
        domains: education, minigrid or both.
        models: Names of `llm.models`; None for those of `orchestration.prompted`.
        zoo, runs: See `run`.
        without: Components to leave out, a variant each (Table 5).
        label: What the progress line says.

    Returns:
        Episodes, as `run` returns them, and steps: a row per step, with method, seed and item.
    """
    zoo = ensure_zoo(params, domains, zoo)
    models = params.orchestration.prompted if models is None else models
    jobs = [
        job
        for domain in domains
        for model in models
        for job in make_prompted_jobs(params, domain, model, zoo, without)
    ]
    planned = plan_prompted_calls(params, domains, models, len(without))
    finished = run_jobs(params, jobs, label, zoo, runs, planned)
    episodes = finished.read_tables("episodes", with_identity=False)
    steps = finished.read_tables("steps", with_identity=False)
    return episodes, steps


def run_constrained(
    params: Params,
    folder: str | Path,
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
    identity: str | None = None,
) -> pd.DataFrame:
    """Let a model on this machine decide as KO, TO and RO, which can name nothing but policies of the menu.

    It meets the first students of one seed in the paper's world, as many as prompted models do, and decides every few
    steps only.

    Args:
        params: All settings.
        folder: Of a Hugging Face model with a chat template.
        zoo, runs: See `run`.
        identity: What stands for the weights in the jobs' keys; None for a hash of the folder.

    Returns:
        Episodes, as `run` returns them; methods are called such as "KO SmolLM2-135M-Instruct".
    """
    zoo = ensure_zoo(params, ["education"], zoo)
    name = Path(folder).name
    identity = identity or hash_folder(Path(folder))
    jobs = make_constrained_jobs(params, name, identity, zoo)
    finished = run_jobs(params, jobs, f"{name} deciding", zoo, runs, inputs={identity: str(folder)})
    return finished.read_tables("episodes", with_identity=False)


def read_steps(
    params: Params,
    places: Sequence[tuple[str, str]],
    zoo: str | Path = train.ZOO_FOLDER,
    runs: str | Path = RUNS,
) -> pd.DataFrame:
    """The steps of the episodes of `run`, a row each, with method, seed, item, group and condition."""
    jobs = [job for domain, world in places for job in make_jobs(params, domain, world, zoo)]
    tables = [artifacts.read_parquet(job.folder(runs) / "steps.parquet") for job in jobs]
    return pd.concat(tables, ignore_index=True)


def run_jobs(
    params: Params,
    jobs: Sequence[Job],
    label: str,
    zoo: str | Path,
    runs: str | Path,
    planned_calls: Sequence[PlannedCalls] = (),
    inputs: Mapping[str, str] | None = None,
) -> FinishedJobs:
    """Run the jobs that are not finished yet.

    Args:
        params: All settings; of them the models and the number of processes are read.
        jobs: Of `make_jobs`, `make_prompted_jobs` or `make_constrained_jobs`.
        label: What the progress line says.
        zoo: Folder of the trained policies.
        runs: Folder of the jobs.
        planned_calls: To endpoints, which are announced with their price.
        inputs: Folders that jobs read, by what stands for them in the jobs' settings.

    Returns:
        All jobs, with the tables `episodes` and `steps`.

    Raises:
        BudgetExceeded: At llm.max_usd.
        LLMError: No endpoint can be used.
    """
    context = RunContext.of(params, zoo, runs, CASSETTES, params.orchestration.jobs)
    context = replace(context, inputs=inputs or {})
    announcement = ""
    if planned_calls:
        announcement = f"{label}: {announce_costs(params.llm, planned_calls)}"
    keep_replies = partial(export_recording, params.llm, RECORDING, CASSETTES)
    stages = [Stage(label, jobs, play_job)]
    try:
        return run_stages(stages, context, on_exit=keep_replies, announcement=announcement)
    except BudgetExceeded as error:
        num_finished = sum(read_receipt(job, runs) is not None for job in jobs)
        error.add_note(
            f"llm.max_usd is reached; {num_finished} of {len(jobs)} jobs are finished and kept: "
            "raise it, and run again"
        )
        raise


def _list_trained_domains(places: Sequence[tuple[str, str]]) -> list[str]:
    return sorted({domain for domain, world in places if not _has_planned_policies(domain, world)})


def _has_planned_policies(domain: str, world: str) -> bool:
    return (domain, world) == ("minigrid", "varied")


def make_jobs(
    params: Params, domain: str, world: str, zoo: str | Path | None = train.ZOO_FOLDER
) -> list[Job]:
    """One job per seed.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        world: One of WORLDS.
        zoo: Folder of the trained policies; None describes them by what trains them, so that no file is read.

    Raises:
        PolicyError: A policy is missing.
        ValueError: `orchestration.model` names nobody.
    """
    settings = params.orchestration
    fields = [*_READ_BY_ALL, *_READ_BY_CONTEST]
    if world == "varied":
        fields.append("decision_intervals")
    elif domain == "education":
        fields.append("lookahead_depths")
    shared = _describe_world(params, domain, world, settings.model) | {
        "job": "contest",
        "orchestration": settings.to_job_settings(*fields),
        "upper_bound": settings.upper_bound[domain].model_dump(),
    }
    return [
        Job(
            f"{domain}/{world}/seed-{seed}",
            shared | {"seed": seed, "menu": describe_menu(params, domain, world, seed, zoo)},
        )
        for seed in range(params.zoo.seeds)
    ]


def make_prompted_jobs(
    params: Params,
    domain: str,
    model: str,
    zoo: str | Path | None = train.ZOO_FOLDER,
    without: Sequence[Sequence[str]] = ((),),
) -> list[Job]:
    """One job per seed, of KO, TO and RO by a prompted model in the paper's world.

    Args:
        params: All settings.
        domain: education or minigrid.
        model: A name of `llm.models`.
        zoo: See `make_jobs`.
        without: Components to leave out, a variant each.
    """
    settings = params.orchestration
    shared = _describe_world(params, domain, "paper", model) | {
        "job": "prompted model",
        "orchestration": settings.to_job_settings(*_READ_BY_ALL, *_READ_BY_PROMPTED),
        "without": [list(components) for components in without],
    }
    return [
        Job(
            f"prompted/{domain}/{model}/seed-{seed}",
            shared | {"seed": seed, "menu": describe_menu(params, domain, "paper", seed, zoo)},
        )
        for seed in range(params.zoo.seeds)
    ]


def make_constrained_jobs(
    params: Params, name: str, identity: str, zoo: str | Path | None = train.ZOO_FOLDER
) -> list[Job]:
    """One job for each of KO, TO and RO by a model whose replies are constrained, in the paper's students.

    Args:
        params: All settings; a job is handed those that it reads.
        name: Of the model.
        identity: What stands for its weights.
        zoo: See `make_jobs`.
    """
    domain = "education"
    fields = [*_READ_BY_ALL, "episodes", "training"]
    shared = {
        "job": "constrained model",
        "domain": domain,
        "world": "paper",
        "environment": recipes.describe_environment(params, domain),
        "model": name,
        "inputs": {"model": identity},
        "interval": CONSTRAINED_INTERVAL,
        "orchestration": params.orchestration.to_job_settings(*fields),
        "seed": CONSTRAINED_SEED,
        "menu": describe_menu(params, domain, "paper", CONSTRAINED_SEED, zoo),
        "versions": list_versions(domain, "paper") | decision_models.list_constrained_versions(),
    }
    return [
        Job(f"constrained/{domain}/{name}/{system}", shared | {"system": system})
        for system in SYSTEMS
    ]


def _describe_world(params: Params, domain: str, world: str, model: str) -> dict[str, Any]:
    environments = make_environments(params, world)
    return {
        "domain": domain,
        "world": world,
        "environment": recipes.describe_environment(environments, domain),
        "model": model,
        "model_description": decision_models.describe_decision_model(model, params.lab, params.llm),
        "versions": list_versions(domain, world) | decision_models.versions(model, params.llm),
    }


def list_versions(domain: str, world: str) -> dict[str, int]:
    """The VERSIONs of the code that decides the episodes of a job, whoever decides in it."""
    decided_by = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "contexts": contexts.VERSION,
        "decisions": decision_model.VERSION,
        "domains": domain_descriptions.VERSION,
        "episodes": episode_batch.VERSION,
        "baselines": baseline_models.VERSION,
        "experiment": VERSION,
    }
    if domain == "minigrid":  # where a room is described by its distances, whoever acts in it
        decided_by["planned policies"] = planned_policies.VERSION
    if not _has_planned_policies(domain, world):
        decided_by["networks"] = networks.VERSION
        decided_by["policies"] = policies.VERSION
    return decided_by


def make_environments(params: Params, world: str) -> Environments:
    """The environments of a world: the paper's, or those with what `orchestration.varied` changes."""
    if world != "varied":
        return params
    changes = params.orchestration.varied
    return Environments.model_construct(
        education=params.education.model_copy(update=changes.education),
        minigrid=params.minigrid.model_copy(update=changes.minigrid),
    )


def describe_menu(
    params: Params, domain: str, world: str, seed: int, zoo: str | Path | None
) -> dict[str, Any]:
    """What a job holds of its policies and their cards.

    Args:
        params: All settings.
        domain, world: Where they act.
        seed: Of the zoo.
        zoo: Folder of the trained policies; None for those that these settings train, wherever they lie.

    Returns:
        The slip of planned policies, or what stands for the trained ones and their cards by name: hashes of the files,
        or of the settings that they are made from.

    Raises:
        PolicyError: A file is missing.
    """
    if _has_planned_policies(domain, world):
        return {"slip": params.orchestration.varied.slip}
    names = SINGLE if world == "varied" else (*SINGLE, *REFERENCES[domain])
    if zoo is None:
        training_hashes = _hash_training_settings(params, domain, seed)
        cards_hash = _hash_card_settings(params, domain)
        return {"policies": {name: training_hashes[name] for name in names}, "cards": cards_hash}
    hashes = {name: policies.hash_policy(_policy_path(zoo, domain, name, seed)) for name in names}
    cards = {name: artifacts.sha256_file(_card_path(zoo, domain, name)) for name in SINGLE}
    return {"policies": hashes, "cards": cards}


def _hash_training_settings(params: Params, domain: str, seed: int) -> dict[str, str]:
    """By policy, a hash of all that decides its training: the same under every root seed."""
    hashes = {}
    for job in train.make_jobs(params, domain):
        shared = {name: value for name, value in job.settings.items() if name != "policies"}
        for policy in job.settings["policies"]:
            if policy["seed"] == seed:
                name = policy["recipe"]["name"]
                hashes[name] = artifacts.sha256_json(shared | policy)[:_HASH_DIGITS]
    return hashes


def _hash_card_settings(params: Params, domain: str) -> str:
    """A hash of what decides the cards, beside the policies."""
    settings = zoo_folder.make_playing_job(params, domain).settings
    settings = {name: value for name, value in settings.items() if name != "policies"}
    return artifacts.sha256_json(settings)[:_HASH_DIGITS]


def make_menu(description: Mapping[str, Any], domain: str, seed: int, zoo: str | Path) -> Menu:
    """The menu of a job, from what `describe_menu` returned."""
    if "slip" in description:
        return PlannedMenu(description["slip"])
    loaded = {
        name: policies.load(_policy_path(zoo, domain, name, seed))
        for name in description["policies"]
    }
    return TrainedMenu(loaded)


def read_cards(
    description: Mapping[str, Any], domain: str, zoo: str | Path
) -> dict[str, Mapping[str, Any]]:
    """The policy cards of a menu, by name; planned policies have a short one."""
    if "slip" in description:
        return {
            name: {
                "name": name,
                "optimized_objective": objective,
                "behavior_hint": "walks the shortest way that avoids lava, and slips at times",
            }
            for name, objective in zip(SINGLE, OBJECTIVES[domain], strict=True)
        }
    return {name: artifacts.read_json(_card_path(zoo, domain, name)) for name in SINGLE}


def _policy_path(zoo: str | Path, domain: str, name: str, seed: int) -> Path:
    return Path(zoo) / domain / name / f"seed-{seed}.json"


def _card_path(zoo: str | Path, domain: str, name: str) -> Path:
    path = Path(zoo) / domain / name / "card.json"
    if not path.is_file():
        raise policies.PolicyError(f"{path} is missing; train the zoo with `make repro`")
    return path


# Work of a job -----------------------------------------------------------------------------------


def play_job(run: JobRun) -> dict[str, int]:
    """Plays the episodes of all methods of one job; leaves the tables `episodes` and `steps`."""
    torch.set_num_threads(1)  # the matrices are small: a second thread only waits
    setting = World.of_job(run)
    methods = setting.list_methods_of_job(run)
    keeps_steps = setting.name != "varied"

    episode_tables = []
    step_tables = []
    for number, method in enumerate(methods):
        contest = setting.test
        contest.num_copies = method.num_copies or setting.settings.rollout_copies
        played = setting.play(contest, method.model, method.options)
        identity = {
            "method": method.name,
            "orchestrator": method.options.system,
            "model": method.model.name if method.options.system else "",
            "backend": method.model.backend,
            "role": method.role,
        }
        episode_tables.append(
            played.episodes.assign(item=np.arange(len(played.episodes)), **identity)
        )
        if keeps_steps:
            step_tables.append(played.steps.assign(**identity))
        run.report_progress((number + 1) / len(methods))

    shared = {"seed": run.seed, "group": setting.domain, "condition": setting.name}
    episodes = pd.concat(episode_tables, ignore_index=True).assign(split="test", **shared)
    episodes["style"] = np.array(setting.name_query_styles())[episodes["item"]]
    episodes["item"] = f"{run.seed}-" + episodes["item"].astype(str)
    run.write_table("episodes", episodes)
    if step_tables:
        steps = pd.concat(step_tables, ignore_index=True).assign(**shared)
        steps["item"] = f"{run.seed}-" + steps["episode"].astype(str)
        run.write_table("steps", steps)
    return {"episodes": len(episodes)}


@dataclass
class World:
    """A world under one seed: its episodes, and what methods know of its policies beforehand.

    Attributes:
        name: One of WORLDS.
        domain: education or minigrid.
        settings: Of the orchestrators, those that the job was handed.
        upper_bound: Steps and handovers of the plans that measure headroom; empty for prompted jobs.
        contests: By use: `test`, and `cards`, `linucb` and `dev`, which hold training students or rooms.
        cards: Policy cards by name.
        model: Who decides as KO, TO and RO.
        without: Components to leave out, a variant each.
    """

    name: str
    domain: str
    settings: OrchestrationSettings
    upper_bound: Mapping[str, Any]
    contests: Mapping[str, Contest]
    cards: Mapping[str, Mapping[str, Any]]
    model: DecisionModel
    without: Sequence[Sequence[str]] = ((),)

    @classmethod
    def of_job(cls, run: JobRun) -> "World":
        """The world that a job's settings describe."""
        job = run.settings
        context = run.context
        domain = job["domain"]
        name = job["world"]
        settings = run.read_section("orchestration", OrchestrationSettings)
        environments = recipes.restore_environment(job["environment"], domain)
        menu = make_menu(job["menu"], domain, run.seed, context.models)
        num_test = settings.students if run.kind == "contest" else settings.episodes
        if run.kind == "constrained model":
            model = decision_models.open_constrained_model(run.input_folder("model"), job["model"])
        else:
            model = open_decision_model(
                job["model"],
                job["model_description"],
                context.llm,
                settings,
                count_workers(context.workers),
                context.runs,
                context.cassettes,
            )
        return cls(
            name=name,
            domain=domain,
            settings=settings,
            upper_bound=job.get("upper_bound", {}),
            contests=make_contests(environments, settings, domain, name, run.seed, menu, num_test),
            cards=read_cards(job["menu"], domain, context.models),
            model=model,
            without=job.get("without", ((),)),
        )

    @property
    def test(self) -> Contest:
        """The episodes that methods are judged on."""
        return self.contests["test"]

    def name_query_styles(self) -> list[str]:
        """The objective that each test query weighs most; "all" where all queries are alike."""
        if self.name != "varied":
            return [self.name] * len(self.test.streams)
        return [OBJECTIVES[self.domain][index] for index in self.test.weights.argmax(axis=1)]

    def play(
        self, contest: Contest, model: DecisionModel, options: SystemOptions
    ) -> PlayedEpisodes:
        """Play all episodes of a contest; `reward` is the utility of this world's queries."""
        played = contest.play(model, options)
        if self.name == "speed":
            # Whoever gains most per step is done first; what counts is the share of the horizon that is saved.
            length = played.episodes["length"]
            played.episodes["reward"] = 1 - length / contest.describer.horizon
        return played

    def make_options(self, system: str = "", **changes) -> SystemOptions:
        """The context of a system in this world."""
        settings = self.settings
        known = {
            "rollout_steps": settings.lookahead,
            "max_calls": settings.max_calls,
            "memory": settings.memory,
            "fallback": settings.fallback,
        }
        if system == "KO":
            known["knowledge"] = self._knowledge
        elif system:
            known["tools"] = self._tools
        return SystemOptions(system, **known | changes)

    @property
    def _knowledge(self) -> dict[str, PolicyKnowledge]:
        """Policy cards with results of training episodes."""
        # A card says what a policy comes to: in the next set of questions, or at the end of a room.
        if not hasattr(self, "_known"):
            steps = 1 if self.domain == "education" else self.test.describer.horizon
            averages = average_by_situation(self.contests["cards"], steps)
            self._known = {
                name: PolicyKnowledge(self.cards[name], results)
                for name, results in averages.items()
            }
        return self._known

    @property
    def _tools(self) -> dict[str, ToolSignature]:
        return {
            name: ToolSignature(name, card["optimized_objective"], card["behavior_hint"])
            for name, card in self.cards.items()
        }

    def list_methods_of_job(self, run: JobRun) -> list[Method]:
        """The methods that play in a job, by its kind."""
        if run.kind == "contest":
            return self.make_methods()
        if run.kind == "prompted model":
            return self.make_prompted_methods()
        system = run.settings["system"]
        options = self.make_options(system, interval=run.settings["interval"])
        return [Method(f"{system} {self.model.name}", self.model, options, "router")]

    def make_methods(self) -> list[Method]:
        """Every method that is compared in this world."""
        settings = self.settings
        model = self.model
        plain = self.make_options()
        methods = [Method(name, ConstantModel(name), plain, "expert") for name in SINGLE]

        # The best single policy on training students, and the references of the paper.
        dev = self.contests["dev"]
        utilities = {}
        for name in SINGLE:
            played = self.play(dev, ConstantModel(name), plain)
            utilities[name] = played.episodes["reward"].mean()
        best = max(utilities, key=utilities.get)
        methods.append(Method(BEST_POLICY, ConstantModel(best), plain, "constant"))
        if self.name != "varied":
            for name in REFERENCES[self.domain]:
                menu_of_one = replace(plain, policies=(name,), fallback=name)
                methods.append(Method(name, ConstantModel(name), menu_of_one, "paper"))

        # Baselines that read nothing, and LinUCB.
        methods.append(Method("random", RandomModel(), plain, "constant"))
        methods.append(Method("round-robin", RoundRobinModel(), plain, "constant"))
        watched = watch_random_policies(self.contests["linucb"], settings.lookahead)
        methods.append(Method("LinUCB", LinUCBModel(watched), plain, "router"))

        # The same contexts: arithmetic, and the model.
        for decider in (GreedyModel(), model):
            for system in SYSTEMS:
                options = self.make_options(system)
                methods.append(Method(f"{system} {decider.name}", decider, options, "router"))
            one_copy = f"RO {decider.name}, one copy"
            methods.append(Method(one_copy, decider, self.make_options("RO"), "router", 1))

        # Memory, depth of the look-ahead, and how often it is decided.
        if self.name == "paper":
            for system in SYSTEMS:
                options = self.make_options(system, without=("mem_s",))
                name = f"{system} {model.name}{NAMES_OF_VARIANTS['mem_s',]}"
                methods.append(Method(name, model, options, "router"))
        if self.name != "varied" and self.domain == "education":
            for decider in (GreedyModel(), model):
                for depth in settings.lookahead_depths:
                    options = self.make_options("RO", rollout_steps=depth)
                    name = f"RO {decider.name}, {depth} steps"
                    methods.append(Method(name, decider, options, "router"))
        if self.name == "varied":
            for system in ("KO", "RO"):
                for interval in settings.decision_intervals:
                    options = self.make_options(system, interval=interval)
                    name = f"{system} {model.name}, every {interval}"
                    methods.append(Method(name, model, options, "router"))

        methods.append(Method(UPPER_BOUND, self._make_upper_bound(), plain, "oracle"))
        return methods

    def _make_upper_bound(self) -> PlanModel:
        """Plans that look further than any system; in the paper's room all plans to its end would cost too much."""
        steps = self.upper_bound["steps"]
        handovers = self.upper_bound["handovers"]
        if (self.domain, self.name) == ("minigrid", "paper"):
            steps = 2 * self.settings.lookahead
            handovers = [self.settings.lookahead]
        steps = min(steps, self.test.describer.horizon)
        return PlanModel(steps, handovers, len(SINGLE))

    def make_prompted_methods(self) -> list[Method]:
        """KO, TO and RO by the prompted model, in every variant."""
        methods = []
        for components in self.without:
            for system in SYSTEMS:
                missing = tuple(components)
                options = self.make_options(system, without=missing)
                name = f"{system} {self.model.name}{NAMES_OF_VARIANTS[missing]}"
                methods.append(Method(name, self.model, options, "router"))
        return methods


# What is appended to a method's name, by the components that its context lacks.
NAMES_OF_VARIANTS = {
    (): "",
    ("mem_s",): ", no short-term",
    ("mem_l",): ", no long-term",
    ("mem_s", "mem_l"): ", no memory",
}


def make_contests(
    environments: Environments,
    settings: OrchestrationSettings,
    domain: str,
    world: str,
    seed: int,
    menu: Menu,
    num_test: int,
) -> dict[str, Contest]:
    """The students or rooms of a seed, by what they are for.

    Args:
        environments: Of this world.
        settings: Of the orchestrators.
        domain, world: Which they are.
        seed: Of the zoo.
        menu: The policies.
        num_test: Students or rooms that methods are judged on.

    Returns:
        `test`, and three sets of training students apart from it: `cards`, `linucb`, `dev`.
    """
    describer = domain_descriptions.DESCRIBERS[domain]
    criteria = describer.domain.criteria
    num_objectives = len(describer.domain.objectives)
    contests = {}
    for use in ("test", "cards", "linucb", "dev"):
        size = num_test if use == "test" else settings.training
        streams = seeds.keys("contest", use, domain, seed=seed * 10**6, n=size)
        if world == "varied":
            weights = draw_weights(streams, num_objectives, len(criteria))
        elif world == "speed":
            weights = np.array([float(name == "progress") for name in criteria])
        else:
            shares = np.array(settings.weights) / sum(settings.weights)
            weights = np.array([*shares, *[0.0] * (len(criteria) - num_objectives)])
        # A card averages over so many states that one copy of each is enough.
        num_copies = 1 if use == "cards" else settings.rollout_copies
        contests[use] = Contest(environments, domain, menu, streams, weights, num_copies)
    return contests


# Costs beforehand -----------------------------------------------------------------------------------


def plan_contest_calls(params: Params, places: Sequence[tuple[str, str]]) -> list[PlannedCalls]:
    """What `orchestration.model` may be asked at most, where it is an endpoint: whole episodes, every call used.

    Args:
        params: All settings.
        places: (domain, world) each.
    """
    settings = params.orchestration
    if settings.model not in params.llm.models or not asks_endpoint(params.llm, [settings.model]):
        return []
    calls = 0
    for domain, world in places:
        horizon = getattr(make_environments(params, world), domain).horizon
        for system, interval in _list_model_contexts(domain, world, settings):
            calls += _count_calls(system, horizon, settings, interval)
    calls *= params.zoo.seeds * settings.students
    return [_plan(params, settings.model, calls)]


def _list_model_contexts(
    domain: str, world: str, settings: OrchestrationSettings
) -> list[tuple[str, int]]:
    """System and interval of each method of `World.make_methods` in which the model decides."""
    systems = [*SYSTEMS, "RO"]  # and RO with one copy
    if world == "paper":
        systems += SYSTEMS  # without short-term memory
    if world != "varied" and domain == "education":
        systems += ["RO"] * len(settings.lookahead_depths)
    asked = [(system, 1) for system in systems]
    if world == "varied":
        for system in ("KO", "RO"):
            asked += [(system, interval) for interval in settings.decision_intervals]
    return asked


def plan_prompted_calls(
    params: Params, domains: Sequence[str], models: Sequence[str], num_variants: int = 1
) -> list[PlannedCalls]:
    """What the endpoints among prompted models may be asked at most.

    Args:
        params: All settings.
        domains: Those that are played.
        models: Names of `llm.models`.
        num_variants: Variants of each system.
    """
    settings = params.orchestration
    planned = []
    for model in models:
        if not asks_endpoint(params.llm, [model]):
            continue
        calls = 0
        for domain in domains:
            horizon = getattr(params, domain).horizon
            calls += sum(_count_calls(system, horizon, settings) for system in SYSTEMS)
        calls *= num_variants * params.zoo.seeds * settings.episodes
        planned.append(_plan(params, model, calls))
    return planned


def _count_calls(
    system: str, horizon: int, settings: OrchestrationSettings, interval: int = 1
) -> int:
    """Calls of an episode at most: of full length, policies tried one by one, every reply sent back, all summaries."""
    num_tries = 0 if system == "KO" else min(settings.max_calls, len(SINGLE))
    calls = math.ceil(horizon / interval) * (num_tries + 1) * ATTEMPTS
    if settings.summary_interval:
        calls += horizon // settings.summary_interval
    return calls


def _plan(params: Params, model: str, calls: int) -> PlannedCalls:
    max_tokens = params.llm.models[model].max_tokens
    # A reply that is sent back is part of the next prompt.
    tokens_in = calls * PROMPT_TOKENS + calls // 2 * max_tokens
    return PlannedCalls(model, calls, tokens_in, calls * max_tokens)


def add_oracle(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the oracle: of each episode the best that any method made of it.

    It is an upper bound by construction, and no method: it knows how everything went.

    Args:
        rows: Episodes of all methods.
    """
    episodes = rows.groupby(["group", "condition", "seed", "item"])
    best = rows.loc[episodes["reward"].idxmax()]
    oracle = best.assign(method=ORACLE, role="oracle", backend="policy", orchestrator="", model="")
    return pd.concat([rows, oracle], ignore_index=True)
