"""The experiment: configurations without learning, every training under every seed, the same test questions for all.

One cell per part of the sampled set, one for the greedy climb, one per prompted policy; then one per training and
seed, which refines its policy and tests it on every kind of question and on the larger model. All are cells of a sweep
that resumes. Working files lie under data/runs/configuration.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import seeds, store, sweep
from lib.configuration import encoders, prompted, search, space
from lib.configuration.arms import ALONE, ARMS, NAMED, Arm
from lib.configuration.atoms import Atom, library, prompts
from lib.configuration.learn import Rules
from lib.configuration.prompted import Example
from lib.configuration.questions import KINDS, questions
from lib.configuration.rewards import Weights
from lib.configuration.space import AGENTS, Configuration
from lib.configuration.speakers import Hosted, Lab, Speaker
from lib.configuration.system import Job, System, table
from lib.configuration.taxonomy import classify
from lib.configuration.training import Plan, Policy, Refining, Training, prefer_better, refine
from lib.llm.client import Client
from lib.llm.loop import Loop
from lib.llm.opening import export, opened
from lib.models import checkpoints
from lib.models.asked import fingerprint
from lib.models.asking import asker
from lib.models.asking import store as remembered
from lib.models.transport import LabTransport, lab
from lib.params import ROOT, ConfigurationSettings, LLMSettings, Params, ParamsError
from lib.study import Means
from lib.study import table as left
from lib.tasks import Item, mixed
from lib.tools import Index, Sandbox, Tool, calculator, lookup, python
from lib.tools import search as searching

RUNS = ROOT / "data/runs/configuration"
POLICY = RUNS / "policy"
CASSETTES = ROOT / "data/cassettes"
NAME = "configuration"  # of the cassette and of the purse
HOSTED = 50.0  # tokens per second of an endpoint, declared
TEST_DRAW = 1_000  # tries of test questions, apart from those of training
EXAMPLES = 10  # configurations that are tried for the examples of a prompt
PARTS = 4  # cells that share the sampled set
AT_ONCE = 7  # configurations of the sampled set that are tried side by side
_ALL = ("model", "tiers", "temperature", "reward", "test_items")  # settings that decide the result of every cell


@dataclass(frozen=True)
class Results:
    """What a study left.

    searched: every sampled configuration on training questions (`split` train) and twice on test questions (test and
    again), `system.table` with columns set (grid or sampled) and number; greedy: configurations tried and reward on the
    way; climbed: where it ended; tests: `system.table` of test questions with arm, seed, model, error; rollouts: the
    same of training with update; learning: losses and entropies of every update; refined: what SFT and DPO started
    from.
    """

    searched: pd.DataFrame
    greedy: pd.DataFrame
    climbed: Configuration
    tests: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    refined: pd.DataFrame


def toolbox(sandbox: Sandbox) -> dict[str, Tool]:
    """The four tools over the world of records that questions are about."""
    tools = (calculator(), searching(Index(mixed.documents())), lookup(mixed.records()), python(sandbox))
    return {tool.name: tool for tool in tools}


class Place:
    """Everything that one cell works with: systems for the agents' model and for the larger one."""

    def __init__(
        self, means: Means, speakers: Mapping[str, Speaker], tools: Mapping[str, Tool], loop: Loop, client: Client
    ) -> None:
        self.settings, self.speakers, self.tools = means.params.configuration, speakers, tools
        self.loop, self.client = loop, client
        self.models = means.models
        self.atoms: list[Atom] = library(ROOT / self.settings.atoms)
        self.weights = Weights(**self.settings.reward.model_dump())
        self.phi = encoders.encoder(self.settings.encoder, means.models)

    def system(self, model: str) -> System:
        """The agents of a model of llm.models."""
        speaker = self.speakers[model]
        return System(speaker, self.tools, self.settings.tiers, prompts(self.atoms, speaker.backend), self.loop)

    def items(self, split: str, n: int, kinds: Sequence[str] = ()) -> list[Item]:
        """n questions of each kind, kind by kind."""
        wanted = kinds or [kind.name for kind in KINDS]
        return [item for kind in wanted for item in questions(kind, split, n)]

    def states(self, items: Sequence[Item]) -> np.ndarray:
        return encoders.states([item.prompt for item in items], self.phi)

    def told(self) -> list[list[str]]:
        """Names of base atoms that each agent may be told."""
        return [[a.name for a in self.atoms if a.role == role and a.family == "base"] for role in AGENTS]

    def play(self, model: str, jobs: Sequence[Job]) -> pd.DataFrame:
        system = self.system(model)
        outcomes = system.run(jobs)
        return table(jobs, outcomes, system.rewards(jobs, outcomes, self.weights))


@contextmanager
def opened_place(means: Means) -> Iterator[Place]:
    """The agents of the parameters, and their tools, at work."""
    settings, loop = means.params.configuration, Loop()
    told = _llm(means.models, means.told)
    client = opened(told[0], NAME, means.runs, means.cassettes, sweep.at_once(settings.jobs), told[1])
    try:
        with Sandbox() as sandbox:
            names = (settings.model, settings.larger)
            speakers = {name: _speaker(means.models, told[0], client, name, settings.temperature) for name in names}
            yield Place(means, speakers, toolbox(sandbox), loop, client)
    finally:
        remembered().flush()
        loop.run(client.__aexit__())
        loop.close()


@cache
def _llm(models: str, told: str) -> tuple[LLMSettings, dict[str, LabTransport]]:
    """Settings with prices, and transports; once per process."""
    return lab(Params.model_validate_json(told).llm, models)


def _speaker(models: str, llm: LLMSettings, client: Client, name: str, temperature: float) -> Speaker:
    """The model behind a name of llm.models."""
    about = llm.models[name]
    if about.backend == "lab":
        return Lab(asker(about.model or name, models), temperature)
    return Hosted(client, name, temperature, 1 / HOSTED)


# The whole -----------------------------------------------------------------------------------------


def run(
    params: Params,
    compared: Sequence[Arm] = (*ARMS, *ALONE),
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = RUNS,
    label: str = "configuring agents",
) -> Results:
    """Do what is not done yet. Raises ModelError without the lab models, ParamsError for a library of atoms that is
    none, SandboxUnavailable where no sandbox works."""
    settings, runs = params.configuration, Path(runs)
    told = means(params, models, runs)
    with opened_place(told):
        pass  # what is wrong is said before any process starts
    todo = cells(params, compared, Path(models))
    try:
        receipts = sweep.run(partial(work, means=told), todo, runs, settings.jobs, label)
    finally:
        export(params.llm, NAME, CASSETTES)
    _publish(todo, params, Path(models), runs)
    return _collected(todo, receipts, runs)


def trained(
    params: Params,
    compared: Sequence[Arm],
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = RUNS,
    label: str = "training policies",
) -> pd.DataFrame:
    """The tests of some trainings alone, with nothing that is searched or prompted: `Results.tests`."""
    todo = [cell for cell in cells(params, compared, Path(models)) if "arm" in cell.settings]
    try:
        sweep.run(partial(work, means=means(params, models, runs)), todo, Path(runs), params.configuration.jobs, label)
    finally:
        export(params.llm, NAME, CASSETTES)
    return pd.concat([store.read_parquet(cell.folder(Path(runs)) / "tests.parquet") for cell in todo])


def asked(
    params: Params, items: Sequence[Item], models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS
) -> pd.DataFrame:
    """What agents make of questions of one's own when ARC's policy of each seed configures them: `system.table` with
    seed and number (of the question). Trains what is not trained yet."""
    arm = NAMED["arc"]
    trained(params, [arm], models, runs)
    todo = [cell for cell in cells(params, [arm], Path(models)) if "arm" in cell.settings]
    parts = []
    with opened_place(means(params, models, runs)) as place:
        states = torch.from_numpy(place.states(items))
        for cell in todo:
            policy = Policy(arm.kind, states.shape[1], place.atoms)
            policy.take(store.read_tensors(cell.folder(Path(runs)) / "arc.safetensors"))
            jobs = [Job(i, c, TEST_DRAW) for i, c in zip(items, policy.decide(states).configurations, strict=True)]
            found = place.play(params.configuration.model, jobs)
            parts.append(found.assign(seed=cell.settings["seed"], number=range(len(items))))
    return pd.concat(parts, ignore_index=True)


def choices(params: Params, n: int, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS) -> pd.DataFrame:
    """A dozen configurations on n dev and n test questions of each kind in independent tries: columns split, arm (a
    number), item, try, right, reward, as `measure.headroom` asks for them. Nothing learns from these."""
    parts = []
    with opened_place(means(params, models, runs)) as place:
        tried = [search.BASE, *search.sampled(11, place.told())]
        for split, attempt in product(("dev", "test"), range(2)):
            items = place.items(split, n)
            jobs = [Job(item, one, TEST_DRAW + attempt) for one in tried for item in items]
            rows = place.play(params.configuration.model, jobs)[["right", "reward"]]
            at = {
                "arm": np.repeat(np.arange(len(tried)), len(items)),
                "item": np.tile(np.arange(len(items)), len(tried)),
            }
            parts.append(rows.assign(split=split, **{"try": attempt}, **at))
    return pd.concat(parts, ignore_index=True)


def means(params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS) -> Means:
    """What carries out a study with these parameters."""
    return Means.of(params, models, runs, CASSETTES)


def _publish(todo: Sequence[sweep.Cell], params: Params, models: Path, runs: Path) -> None:
    """Put ARC's policy of the first seed where the command line looks for it."""
    for cell in todo:
        if cell.name == "arc/seed-0":
            arrays = store.read_tensors(cell.folder(runs) / "arc.safetensors")
            store.write_tensors(runs / POLICY.name / "arc.safetensors", arrays)
            store.write_json(runs / POLICY.name / "policy.json", _made_for(params.configuration, models))


def _made_for(settings: ConfigurationSettings, models: str | Path) -> dict[str, str]:
    """What a policy reads and chooses from: it is worth nothing with another encoder or another library."""
    return {"encoder": encoders.identity(settings.encoder, models), "atoms": store.sha256_file(ROOT / settings.atoms)}


def published(folder: str | Path, place: Place) -> Policy:
    """The policy in a folder. Raises ParamsError where there is none, or one that was made for another encoder or
    another library of atoms."""
    folder, settings = Path(folder), place.settings
    if not (folder / "policy.json").is_file():
        raise ParamsError(f"there is no trained policy in {folder}; `make repro` trains one in lesson 07")
    told = store.read_json(folder / "policy.json")
    now = _made_for(settings, place.models)
    wrong = [name for name in now if told.get(name) != now[name]]
    if wrong:
        raise ParamsError(f"the policy in {folder} was trained with another {wrong[0]}; run `make repro` once more")
    inputs = place.states(place.items("train", 1)[:1]).shape[1]
    return Policy("hierarchy", inputs, place.atoms).take(store.read_tensors(folder / "arc.safetensors"))


def cells(params: Params, compared: Sequence[Arm], models: Path) -> list[sweep.Cell]:
    """Trainings first, for they take longest; then the searches and the prompted policies."""
    settings = params.configuration

    @cache
    def held(*kept: str) -> dict[str, Any]:
        return _held(params, {*_ALL, *kept}, models)

    trained = [
        sweep.Cell(
            f"{arm.name}/seed-{seed}", held(*_needed(arm)) | {"arm": asdict(arm) | {"label": ""}, "seed": seed}
        )  # the label is what tables call it
        for arm in compared
        for seed in range(settings.seeds)
    ]
    sampled = held("search_items", "grid", "sampled")
    parts = [sweep.Cell(f"searched/{part}", sampled | {"part": part}) for part in range(PARTS)]
    drawn = [sweep.Cell(f"random/seed-{seed}", held() | {"seed": seed}) for seed in range(settings.seeds)]
    searched = [sweep.Cell("greedy", held("search_items")), sweep.Cell("prompted", held("prompted", "grid"))]
    return [*parts, *trained, *drawn, *searched]


def _needed(arm: Arm) -> list[str]:
    """The settings that decide what becomes of a training, beside those of all cells."""
    refined = ["sft"] if arm.refined else []
    refined += ["dpo"] if arm.refined and not arm.only else []
    episodes, rules = "alone_episodes" if arm.only else "episodes", "grpo" if arm.grouped else "ppo"
    larger = ["larger"] if arm.name == "arc" else []
    return ["encoder", "train_items", "draws", episodes, rules, *refined, *larger]


def _held(params: Params, kept: set[str], models: Path) -> dict[str, Any]:
    """What the result of a cell that depends on the settings `kept` depends on; of a file, a model and an encoder it
    is what they hold."""
    settings = params.configuration
    asked = {name: getattr(settings, name) for name in ("model", "larger", "prompted") if name in kept}
    base = params.llm.models[settings.model].model or settings.model
    encoder = {"encoder": encoders.identity(settings.encoder, models)} if "encoder" in kept else {}
    return {
        "configuration": settings.model_dump(include=kept),
        "atoms": store.sha256_file(ROOT / settings.atoms),
        **encoder,
        **fingerprint(params.llm, asked, base, models, "lib.configuration.study"),
    }


def work(cell: sweep.Cell, folder: Path, progress, means: Means) -> dict[str, Any]:
    """One cell, by its name."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    kind, _, _ = cell.name.partition("/")
    with opened_place(means) as place:
        if kind == "searched":
            return _search(place, folder, cell.settings["part"], progress)
        if kind == "greedy":
            return _climb(place, folder)
        if kind == "prompted":
            return _prompt(place, folder)
        if kind == "random":
            return _draw(place, folder, cell.settings["seed"])
        return _train(place, folder, Arm(**cell.settings["arm"]), cell.settings["seed"], progress)


# Without learning ----------------------------------------------------------------------------------


def candidates(settings: ConfigurationSettings, told: Sequence[Sequence[str]]) -> list[tuple[str, Configuration]]:
    """The configurations that are tried on every question: the grid, then the sampled ones."""
    out = [("grid", one) for one in search.grid(settings.grid)]
    return [*out, *(("sampled", one) for one in [search.BASE, *search.sampled(settings.sampled, told)])]


def _search(place: Place, folder: Path, part: int, progress) -> dict[str, Any]:
    """Every `PARTS`-th candidate on training questions, and twice on test questions: who picks the best of many
    tries by what they gave flatters himself, so the oracle picks by one try and is paid for the other."""
    settings, tables = place.settings, []
    every = list(enumerate(candidates(settings, place.told())))[part::PARTS]
    items = {"train": place.items("train", settings.search_items), "test": place.items("test", settings.test_items)}
    tries = [("train", 0, items["train"]), ("test", TEST_DRAW, items["test"]), ("again", TEST_DRAW + 1, items["test"])]
    for at in range(0, len(every), AT_ONCE):
        asked = [
            (Job(item, candidate, draw), {"split": split, "set": kind, "number": number})
            for number, (kind, candidate) in every[at : at + AT_ONCE]
            for split, draw, of in tries
            for item in of
        ]
        played = place.play(settings.model, [job for job, _ in asked]).drop(columns=["text"])
        tables.append(played.assign(**pd.DataFrame([about for _, about in asked]).to_dict("list")))
        progress(min(1.0, (at + AT_ONCE) / len(every)))
    store.write_parquet(folder / "searched.parquet", pd.concat(tables, ignore_index=True))
    return {}


def _climb(place: Place, folder: Path) -> dict[str, Any]:
    """The greedy search on training questions, and its end on test questions."""
    settings = place.settings
    items = place.items("train", settings.search_items)

    def score(near: Sequence[Configuration]) -> np.ndarray:
        jobs = [Job(item, one) for one in near for item in items]
        return place.play(settings.model, jobs)["reward"].to_numpy().reshape(len(near), -1).mean(1)

    best, path = search.greedy(score, rounds=2, atoms=place.told())
    store.write_parquet(folder / "greedy.parquet", pd.DataFrame(path, columns=["tried", "reward"]))
    store.write_json(folder / "greedy.json", {"structure": best.structure, "atoms": best.atoms})
    tests = _tested(place, [best] * len(place.items("test", settings.test_items)), settings.model)
    store.write_parquet(folder / "tests.parquet", tests.assign(arm="greedy", seed=0, model=settings.model))
    return {}


def _tested(place: Place, chosen: Sequence[Configuration], model: str) -> pd.DataFrame:
    """Test questions, each under the configuration chosen for it, with the kinds of error."""
    items = place.items("test", place.settings.test_items)
    system = place.system(model)
    jobs = [Job(item, one, TEST_DRAW) for item, one in zip(items, chosen, strict=True)]
    outcomes = system.run(jobs)
    errors = ["" if o.right else classify(j.item, j.configuration, o) for j, o in zip(jobs, outcomes, strict=True)]
    return table(jobs, outcomes, system.rewards(jobs, outcomes, place.weights)).assign(error=errors)


def _prompt(place: Place, folder: Path) -> dict[str, Any]:
    """Policies that are a prompted language model, with examples and without."""
    settings, tables = place.settings, []
    items = place.items("test", settings.test_items)
    shown = _examples(place)
    for name, told in (("zero_shot", ()), ("few_shot", shown)):
        chosen, failed = place.loop.run(prompted.choose(place.client, settings.prompted, items, told))
        tables.append(_tested(place, chosen, settings.model).assign(arm=name, seed=0, failed=failed))
    store.write_parquet(folder / "tests.parquet", pd.concat(tables, ignore_index=True).assign(model=settings.model))
    return {}


def _draw(place: Place, folder: Path, seed: int) -> dict[str, Any]:
    """A random configuration for every test question."""
    model, every = place.settings.model, space.structures()
    items = place.items("test", place.settings.test_items)
    rng = seeds.rng("configuration", "random", seed=seed)
    chosen = [Configuration(space.checked(every[i].tolist())) for i in rng.integers(len(every), size=len(items))]
    tests = _tested(place, chosen, model).assign(arm="random", seed=seed, failed=0.0, model=model)
    store.write_parquet(folder / "tests.parquet", tests)
    return {}


def _examples(place: Place) -> list[Example]:
    """For the few-shot prompt: of each kind's first training question, the best and the worst paid of the grid."""
    settings, out = place.settings, []
    for kind in KINDS:
        item = place.items("train", 1, (kind.name,))[0]
        tried = search.grid(settings.grid)[:: max(1, settings.grid // EXAMPLES)]
        paid = place.play(settings.model, [Job(item, one) for one in tried])["reward"].to_numpy()
        out += [Example(item.prompt, tried[i], float(paid[i])) for i in (int(paid.argmax()), int(paid.argmin()))]
    return out


# Trainings -----------------------------------------------------------------------------------------


def plan_of(settings: ConfigurationSettings, arm: Arm) -> Plan:
    """How an arm is trained: PPO by appendix F, GRPO by appendix H."""
    rules = settings.grpo if arm.grouped else settings.ppo
    episodes = settings.alone_episodes if arm.only else settings.episodes
    return Plan(
        episodes, rules.batch, (rules.structure_rate, rules.prompt_rate),
        Rules(rules.clip, rules.gamma, rules.entropy, rules.value, rules.max_grad_norm, rules.epochs, arm.grouped),
        Weights(**settings.reward.model_dump()), rules.group, settings.draws,
    )  # fmt: skip


def refining_of(settings: ConfigurationSettings, which: str) -> Refining:
    """How a trained policy is refined: `sft` or `dpo`."""
    told = getattr(settings, which).model_dump()
    return Refining(rates=(told.pop("structure_rate"), told.pop("prompt_rate")), **told)


def _train(place: Place, folder: Path, arm: Arm, seed: int, progress) -> dict[str, Any]:
    """Train one arm under one seed, refine it where it can be, and test what came of it."""
    settings = place.settings
    items = place.items("train", settings.train_items, (arm.only,) if arm.only else ())
    states = place.states(items)
    policy = Policy(arm.kind, states.shape[1], place.atoms, arm.masked, seed)
    plan, path = plan_of(settings, arm), folder / "rollouts.parquet"
    known = store.read_parquet(path) if path.exists() else None
    training = Training(policy, place.system(settings.model), items, states, plan, seed, known)

    def after(training: Training) -> None:
        progress(0.85 * training.step / plan.updates)
        if training.step % settings.save_every == 0 or training.step == plan.updates:
            store.write_parquet(path, pd.concat(training.rows, ignore_index=True))

    training.run(after)
    after, said = {arm.name: policy}, {}
    if arm.refined:
        sft, said["sft"] = refine(training, refining_of(settings, "sft"), seed)
        after = {f"{arm.name}_no_sft": policy, arm.name: sft}
        if not arm.only:
            after[f"{arm.name}_dpo"], said["dpo"] = prefer_better(training, refining_of(settings, "dpo"), seed)
    tables = [_sat(place, one, name, seed, arm, settings.model) for name, one in after.items()]
    if arm.name == "arc":
        tables.append(_sat(place, after["arc"], "arc", seed, arm, settings.larger))
    store.write_parquet(folder / "tests.parquet", pd.concat(tables, ignore_index=True))
    store.write_parquet(folder / "learning.parquet", pd.DataFrame(training.learned))
    for name, one in after.items():
        store.write_tensors(folder / f"{name}.safetensors", one.arrays())
    return said


def _sat(place: Place, policy: Policy, name: str, seed: int, arm: Arm, model: str) -> pd.DataFrame:
    """The likeliest choices of a policy on the test questions."""
    items = place.items("test", place.settings.test_items)
    chosen = policy.decide(torch.from_numpy(place.states(items))).configurations
    return _tested(place, chosen, model).assign(arm=name, seed=seed, model=model, only=arm.only)


def _collected(todo: Sequence[sweep.Cell], receipts: Sequence[Mapping[str, Any]], runs: Path) -> Results:
    trained = [cell for cell in todo if "arm" in cell.settings]
    only = {cell.settings["arm"]["name"]: cell.settings["arm"]["only"] for cell in trained}
    searched, greedy, tests = (left(todo, runs, name, whose=False) for name in ("searched", "greedy", "tests"))
    rollouts, learning = (left(trained, runs, name) for name in ("rollouts", "learning"))
    rollouts, learning = (each.assign(only=each["arm"].map(only)) for each in (rollouts, learning))
    refined = [
        {"arm": cell.settings["arm"]["name"], "seed": cell.settings["seed"], "how": how} | about
        for cell, receipt in zip(todo, receipts, strict=True)
        for how, about in (receipt["result"] or {}).items()
    ]
    (climbed,) = (cell for cell in todo if cell.name == "greedy")
    told = store.read_json(climbed.folder(runs) / "greedy.json")
    best = Configuration(tuple(told["structure"]), tuple(tuple(a) for a in told["atoms"]))
    return Results(searched, greedy, best, tests, rollouts, learning, pd.DataFrame(refined))
