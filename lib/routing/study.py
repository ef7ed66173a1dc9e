"""The experiment: what experts can do, a controller that speaks the protocol, every training under every seed.

First one cell tries the experts, and one of every seed teaches a controller the protocol. Then one cell per arm and
seed trains and is tested, and one tests that seed's controller as it was before. All are cells of a sweep that
resumes; a training goes on from its last checkpoint. Working files lie under data/runs/routing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib import params as parameters
from lib import seeds, store, sweep, tasks
from lib.llm.estimate import Planned, announcement
from lib.llm.opening import export, opened
from lib.models import cards, checkpoints
from lib.models.asked import MADE, fingerprint
from lib.models.asking import asker
from lib.models.dialogue import token
from lib.models.tokenizer import EXPERTS, PAD
from lib.models.transport import LabTransport, lab
from lib.params import LearnSettings, LLMSettings, Params, ParamsError, RoutingSettings
from lib.routing import arms, outcomes, protocol, warm
from lib.routing.arms import ARMS, Arm, Budgets
from lib.routing.experts import TRIES, Pool, askers
from lib.routing.learn import Learner, Sample
from lib.routing.logs import Logs, spoken
from lib.routing.outcomes import CASSETTES, NAME, RUNS
from lib.routing.rollouts import Episode, Task, roll
from lib.routing.voices import Lab
from lib.study import Means, table
from lib.tasks import Item

START = "start"  # the controller before it is trained
_NEUTRAL = {"seeds", "other_seeds", "margin", "jobs", "save_every", "glass"}  # change no cell's result
_TRAINING = {"learn", "batch", "updates"}  # nor that of the start
GROUP = 8  # episodes of one question, for group advantages
MAIN = "corl"  # the arm that has `seeds` seeds; the others have `other_seeds`
DRAWN = (MAIN, "hard")  # arms that are tested with draws too
_TEST_KEY = 2**40  # seeds of test episodes, apart from those of training


@dataclass(frozen=True)
class Results:
    """What a study left.

    experts: on questions (`outcomes.tried`); episodes: test episodes (`episode_rows`) with arm, seed, style and
    temperature; rollouts: the same of training, with update; alone: the controller's base answering by itself what
    experts were tried on; learning: what the trainer says of every update; budgets: what the words mean; token_price:
    dollars per token of the controller itself, which no budget counts.
    """

    experts: pd.DataFrame
    episodes: pd.DataFrame
    rollouts: pd.DataFrame
    alone: pd.DataFrame
    learning: pd.DataFrame
    budgets: Budgets
    token_price: float


def run(
    params: Params,
    compared: Sequence[Arm] = ARMS,
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = RUNS,
    label: str = "training controllers",
) -> Results:
    """Do what is not done yet. Raises ModelError without the lab models, ParamsError for experts that a lab
    controller cannot name."""
    settings, runs = params.routing, Path(runs)
    _check(settings)
    checkpoints.load(Path(models) / settings.base)  # these say what is wrong before any process starts
    lab(params.llm, models)
    price = cards.read(settings.base, models)["dollars_per_1k_tokens"] / 1000
    means = Means.of(params, models, runs, CASSETTES)
    first = first_cells(params, Path(models))
    try:
        sweep.run(partial(first_work, means=means), first, runs, settings.jobs, "experts and controllers")
        means = replace(means, before={cell.name: str(cell.folder(runs)) for cell in first})
        todo = cells(params, compared, first)
        sweep.run(partial(work, means=means), todo, runs, settings.jobs, label)
    finally:
        export(params.llm, NAME, CASSETTES)
    experts, alone = (store.read_parquet(first[0].folder(runs) / f"{name}.parquet") for name in ("experts", "alone"))
    episodes, rollouts, learning = (table(todo, runs, name, START) for name in ("episodes", "rollouts", "learning"))
    return Results(experts, episodes, rollouts, alone, learning, known_budgets(experts, settings), price)


def two(params: Params) -> Params:
    """The same with two experts, the cheapest and the dearest, and with the seeds of other arms (CoRL, 4.3)."""
    names = list(params.routing.experts)
    kept = {name: params.routing.experts[name] for name in (names[0], names[-1])}
    routing = params.routing.model_copy(update={"experts": kept, "seeds": params.routing.other_seeds})
    return params.model_copy(update={"routing": routing})


def _check(settings: RoutingSettings) -> None:
    unknown = sorted(set(settings.experts) - set(EXPERTS))
    if unknown:
        raise ParamsError(f"routing.experts names {unknown}; the words of a lab controller are {list(EXPERTS)}")


def plan(params: Params, compared: Sequence[Arm] = ARMS) -> str:
    """How many calls the study makes at most, and what endpoints among the experts may cost: a sentence."""
    settings = params.routing
    times = {arm.name: _seeds(settings, arm) for arm in compared}
    trained = sum(settings.updates[arm.style] * times[arm.name] for arm in compared) * settings.batch
    numbers = len(settings.numbers)
    tested = sum(times[arm.name] * (2 * 3 + numbers * (arm.style == "number")) for arm in compared)
    start = settings.seeds * (4 * 3 + numbers)
    tries = TRIES * settings.train_items + settings.test_items
    # any call of a controller may go to the same expert, and be as long as replies may be
    calls = tries + (trained + (tested + start) * settings.test_items) * (settings.rounds - 1)
    shares = [
        Planned(name, calls, 64 * calls, params.llm.models[name].max_tokens * calls)
        for name in settings.experts.values()
    ]
    return announcement(params.llm, shares)


def _common(params: Params, models: Path) -> dict[str, Any]:
    """What every cell's result depends on: models, programs, settings of the experts."""
    routing = params.routing
    return fingerprint(params.llm, routing.experts, routing.base, models, "lib.routing.study", MADE)


def _seeds(settings: RoutingSettings, arm: Arm) -> int:
    return settings.seeds if arm.name == MAIN else min(settings.seeds, settings.other_seeds)


def first_cells(params: Params, models: Path) -> list[sweep.Cell]:
    """The trial of the experts, and of every seed the controller that speaks the protocol."""
    common, own = _common(params, models), params.routing.model_dump()
    shared = ("questions", "rounds", "experts")
    told = {name: own[name] for name in (*shared, "warm")} | {
        "shape": params.lab.models[params.routing.base].model_dump()
    }
    tried = {name: own[name] for name in (*shared, "expert_temperature", "train_items", "test_items")}
    seeded = ((f"controller/seed-{seed}", common | told | {"seed": seed}) for seed in range(own["seeds"]))
    return [sweep.Cell("experts", common | tried), *(sweep.Cell(*each) for each in seeded)]


def cells(params: Params, compared: Sequence[Arm], first: Sequence[sweep.Cell]) -> list[sweep.Cell]:
    """One cell per arm and seed, and one for the start of every seed: short ones last, which run side by side."""
    settings = params.routing
    experts, *controllers = (cell.digest for cell in first)

    def cell(arm: Arm | None, seed: int) -> sweep.Cell:
        held = {"before": [experts, controllers[seed]], "seed": seed}
        return sweep.Cell(f"{arm.name if arm else START}/seed-{seed}", held | _told(settings, arm))

    order = sorted(compared, key=lambda arm: -settings.updates[arm.style])
    trained = [cell(arm, seed) for arm in order for seed in range(_seeds(settings, arm))]
    return [*trained, *(cell(None, seed) for seed in range(settings.seeds))]


def _told(settings: RoutingSettings, arm: Arm | None) -> dict[str, Any]:
    """An arm (None: the start), without what tables call it, and the settings that decide what becomes of it."""
    if arm is None:
        return {"arm": None, "routing": settings.model_dump(exclude=_NEUTRAL | _TRAINING)}
    spared = {"numbers"} if arm.style != "number" else set()
    own = settings.model_dump(exclude=_NEUTRAL | spared) | {"updates": settings.updates[arm.style]}
    return {"arm": asdict(arm) | {"label": ""}, "routing": own}


def opened_pool(means: Means) -> Pool:
    """The experts of the parameters, asked through the client. Use it as a context manager."""
    settings = means.params.routing
    llm, transports = _experts(means.models, means.told)
    share = sweep.at_once(settings.jobs)
    client = partial(opened, llm, NAME, means.runs, means.cassettes, share, transports)
    asked = askers(llm, settings.experts.values(), means.models)
    return Pool(client, settings.experts, settings.expert_temperature, askers=asked)


@cache
def _experts(models: str, told: str) -> tuple[LLMSettings, dict[str, LabTransport]]:
    """Lab models are read once per process, whose threads keep them from one cell to the next."""
    return lab(Params.model_validate_json(told).llm, models)


def test_items(settings: RoutingSettings) -> list[Item]:
    """The questions that nothing learns from: as many of each family, none twice."""
    return tasks.spread(settings.questions, "test", settings.test_items, seed=7, unique=True)


@cache
def _train_items(questions: str, n: int) -> list[Item]:
    return tasks.spread(json.loads(questions), "train", n, seed=13)


def train_items(settings: RoutingSettings) -> list[Item]:
    """The questions that all arms and seeds train on, and routers too; what experts say to them is remembered."""
    return _train_items(json.dumps(settings.questions), settings.train_items)


def first_work(cell: sweep.Cell, folder: Path, progress, means: Means) -> dict[str, Any]:
    """Teach a controller the protocol; or try the experts, and the base by itself, in every try that a training may
    hear and on the test questions."""
    warm.quiet()
    settings = means.params.routing
    if cell.name != "experts":
        shape, base = means.params.lab.models[settings.base], Path(means.models) / settings.base
        warm.train(base, shape, settings, folder / "model", progress, cell.settings["seed"])
        return {"steps": settings.warm.steps}
    asked = [(train_items(settings), "train", TRIES), (test_items(settings), "test", 1)]
    with opened_pool(means) as experts:
        tried = pd.concat([outcomes.tried(experts, *each) for each in asked], ignore_index=True)
    alone = pd.concat([outcomes.alone(asker(settings.base, means.models), *each) for each in asked], ignore_index=True)
    store.write_parquet(folder / "experts.parquet", tried)
    store.write_parquet(folder / "alone.parquet", alone)
    return {"questions": settings.train_items + settings.test_items}


def known_budgets(experts: pd.DataFrame, settings: RoutingSettings) -> Budgets:
    """What the words mean, from what calls cost."""
    train = experts[experts["split"] == "train"]
    price = outcomes.prices(train, list(settings.experts), settings)
    return Budgets(outcomes.budgets(price, settings), price, settings.unit)


def work(cell: sweep.Cell, folder: Path, progress, means: Means) -> dict[str, float]:
    """Train and test one arm under one seed, or test the start."""
    warm.quiet()
    with opened_pool(means) as experts:
        return Run(cell, folder, progress, means, experts).go()


class Run:
    """One cell at work."""

    def __init__(self, cell: sweep.Cell, folder: Path, progress, means: Means, experts: Pool) -> None:
        self.settings, self.folder, self.progress, self.pool = means.params.routing, folder, progress, experts
        self.arm = Arm(**cell.settings["arm"]) if cell.settings["arm"] else None
        self.seed, self.others = cell.settings["seed"], self.settings.other_seeds
        experts = store.read_parquet(Path(means.before["experts"]) / "experts.parquet")
        self.budgets = known_budgets(experts, self.settings)
        self.model = checkpoints.load(Path(means.before[f"controller/seed-{self.seed}"]) / "model")
        self.voice = Lab(self.model, self.settings.turn_tokens, self.settings.response_tokens)

    def go(self) -> dict[str, float]:
        """Train, test, keep the numbers and, of one seed, the weights."""
        before = [arms.NAMED[name] for name in (MAIN, "hard", "number")[: None if self.seed < self.others else 1]]
        compared = [self.arm] if self.arm else before
        if self.arm is not None:
            self._train(self.arm)
        drawn = [self.settings.temperature]  # what a training saw, beside what it leads to
        tests = [
            self._test(arm, heat)
            for arm in compared
            for heat in dict.fromkeys([self.settings.test_temperature, *(drawn if arm.name in DRAWN else [])])
        ]
        store.write_parquet(self.folder / "episodes.parquet", pd.concat(tests, ignore_index=True))
        if self.arm is not None and self.seed == 0:
            checkpoints.save(self.model, self.folder / "model")
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return {}

    def _test(self, arm: Arm, temperature: float) -> pd.DataFrame:
        """Every test question under every budget of the arm."""
        items = test_items(self.settings)
        asked = arms.examined(arm, items, self.budgets, self.settings)
        episodes = roll(self.voice, self.pool, asked, self.settings.rounds, _TEST_KEY + self.seed, temperature)
        return episode_rows(episodes, self.voice.decode, len(items)).assign(temperature=temperature, style=arm.style)

    def _train(self, arm: Arm) -> None:
        settings = self.settings
        learn = parameters.validate(settings.learn.model_dump() | dict(arm.changes), LearnSettings, "a cell")
        total = settings.updates[arm.style]
        learner = Learner(self.model, learn, token(PAD), total, self.seed)
        logs = Logs(self.folder, learner)
        self.voice.refresh()  # it may go on from a checkpoint
        while learner.step < total:
            asked = self._asked(arm, learner)
            key = self.seed * 10**6 + learner.step
            episodes = roll(self.voice, self.pool, asked, settings.rounds, key, settings.temperature)
            logs.add("rollouts", episode_rows(episodes).assign(update=learner.step))
            told = learner.update(samples(episodes, self._group(learn)))
            self.voice.refresh()
            logs.add("learning", pd.DataFrame([{"update": learner.step} | told]))
            self.progress(0.9 * learner.step / total)
            if learner.step % settings.save_every == 0:
                logs.save()
        logs.save()

    def _asked(self, arm: Arm, learner: Learner) -> list[Task]:
        """The questions of one update; with group advantages every one stands there several times."""
        settings, seed = self.settings, self.seed * 10**6 + learner.step
        group = self._group(learner.settings)
        pool = train_items(settings)
        drawn = seeds.rng("routing", "questions", seed=seed).choice(len(pool), -(-settings.batch // group))
        items = [pool[i] for i in drawn]
        asked = arms.drawn(arm, items, self.budgets, seeds.rng("routing", "budgets", seed=seed))
        return [task for task in asked for _ in range(group)][: settings.batch]

    @staticmethod
    def _group(learn: LearnSettings) -> int:
        return GROUP if learn.advantages == "group" else 1


def samples(episodes: Sequence[Episode], group: int = 1) -> list[Sample]:
    """Episodes as the trainer takes them; `group` in a row answer the same question. One whose question leaves no
    room for a turn teaches nothing and is left out. Advantages are whitened under each budget word by itself: where
    little can be won, little is learned from otherwise."""
    told = ((i, e, protocol.WORDS.index(e.task.label) if e.task.label in protocol.WORDS else 0)
            for i, e in enumerate(episodes))  # fmt: skip
    return [Sample(e.ids, e.mask, e.reward, i // group, stratum) for i, e, stratum in told if any(e.mask)]


def episode_rows(
    episodes: Sequence[Episode], decode: Callable[[Sequence[int]], str] | None = None, questions: int | None = None
) -> pd.DataFrame:
    """One row per episode.

    questions: how many there are, each under every budget in turn; None: no two are equal. Columns: item (number of
    the question), kind (its family), difficulty; label, budget: as the prompt names it, and in dollars; right, within,
    reward: r_p, r_c and r of eq. 5 to 7; dollars; calls, called (experts in order, separated by blanks); malformed
    turns; failures of experts; turns; written (tokens of the controller), tokens (all); with `decode` also spoken.
    """
    return pd.DataFrame(
        [
            {
                "item": i % (questions or len(episodes)),
                "kind": e.task.item.category,
                "difficulty": e.task.item.difficulty,
                "label": e.task.label,
                "budget": e.task.budget,
                "right": e.right,
                "within": e.within,
                "reward": e.reward,
                "dollars": e.dollars,
                "calls": len(e.calls),
                "called": " ".join(e.calls),
                "malformed": sum(bool(x.malformed) for x in e.exchanges),
                "failures": sum(bool(x.heard and x.heard.failure) for x in e.exchanges),
                "turns": len(e.exchanges),
                "written": e.written,
                "tokens": len(e.ids),
            }
            | ({"spoken": json.dumps(spoken(e, decode))} if decode else {})
            for i, e in enumerate(episodes)
        ]
    )
