"""The experiment: tools tried one by one, an orchestrator that speaks the protocol, every training under every seed.

First, side by side, one cell tries every tool and one teaches the protocol and lets the start try the office tasks.
Then one cell per arm and seed trains and is tested, and one tests the start. All are cells of a sweep that resumes;
a training goes on from its last checkpoint. Working files lie under data/runs/toolorchestra.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import params as parameters
from lib import seeds, store, sweep
from lib.llm.estimate import Planned, announcement
from lib.llm.opening import export, opened
from lib.models import cards, checkpoints
from lib.models.asked import MADE, fingerprint
from lib.models.dialogue import token
from lib.models.tokenizer import PAD
from lib.models.transport import LabTransport, lab
from lib.params import ROOT, LearnSettings, LLMSettings, Params, ToolSettings
from lib.routing import warm as corl_warm
from lib.routing.experts import TRIES, Pool, askers
from lib.routing.learn import Learner
from lib.routing.logs import Logs, spoken
from lib.routing.toolorchestra import arms, assignments, desk, exams, menu, prompted, warm
from lib.routing.toolorchestra.arms import ARMS, Arm
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.desk import Desk, Episode, Own, roll
from lib.routing.toolorchestra.menu import Menu, Offer, Preference, names, seen
from lib.routing.voices import Lab
from lib.study import Means, table
from lib.tasks.synthesis import Corpus, Task, load, sift

RUNS = ROOT / "data/runs/toolorchestra"
CASSETTES = ROOT / "data/cassettes"
NAME = "toolorchestra"  # of the cassette and of the purse
AGENT = "agent"  # a model of llm.models that is prompted with function schemas
START = "start"  # the orchestrator before it is trained: prompted, and no more
_NEUTRAL = {"seeds", "jobs", "save_every", "glass"}  # change no cell's result
_TRAINING = {"learn", "updates", "groups", "rollouts", "outages", "least_deviation"}  # nor that of the start
HOSTED = 50.0  # tokens per second of an endpoint, declared (decision): a stopwatch would make runs differ
_TEST_KEY = 2**40  # seeds of test episodes, apart from those of training


@dataclass(frozen=True)
class Results:
    """What a study left.

    tools: the names in the order of preference vectors; tried: every tool on its own (`desk.tried`) with split;
    episodes: test episodes (`rows`) with arm, seed and exam; rollouts: the same of training, with update and group;
    learning: what trainer and filters say of every update; corpus: statistics of the office tasks; budget: of the arm
    with CoRL's reward, dollars; own: what the orchestrator's tokens cost; offers: the menu at list prices.
    """

    tools: tuple[str, ...]
    tried: pd.DataFrame
    episodes: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    corpus: pd.DataFrame
    budget: float
    own: Own
    offers: Mapping[str, Offer]


def met(offers: Mapping[str, Offer], settings: ToolSettings) -> dict[str, Offer]:
    """Of all offers those that an orchestrator may meet before the tests, in traces as in training: no unseen tool."""
    return {name: offer for name, offer in offers.items() if name == menu.OFFICE or name in seen(settings)}


class Place:
    """Everything that one cell works with. offers: at list prices; unseen: at those of the second list."""

    def __init__(self, means: Means, desk: Desk, known: Mapping[str, Mapping[str, Any]]) -> None:
        self.params, self.desk = means.params, desk
        self.settings = self.params.tools
        self.offers = menu.offers(menu.price_list(ROOT / self.settings.prices), known)
        self.dear = menu.offers(menu.price_list(ROOT / self.settings.unseen_prices), known)
        own = cards.read(self.settings.base, means.models)
        self.own = Own(own["dollars_per_1k_tokens"] / 1000, 1 / own["tokens_per_second"])

    def voice(self, model: torch.nn.Module) -> Lab:
        return Lab(model, self.settings.turn_tokens, self.settings.response_tokens)

    def roll(self, voice: Lab, wanted: Sequence[Assignment], key: int, temperature: float) -> list[Episode]:
        return roll(voice, self.desk, wanted, self.settings.rounds, key, self.own, temperature)


@contextmanager
def opened_place(means: Means) -> Iterator[Place]:
    """The tools of the parameters at work."""
    settings, llm, transports, known = _models(means.models, means.told)
    share = sweep.at_once(settings.jobs)
    client = partial(opened, llm, NAME, means.runs, means.cassettes, share, transports)
    clock = {name: 1 / card["tokens_per_second"] for name, card in known.items()}
    asked = askers(llm, settings.models.values(), means.models)
    with Pool(client, settings.models, settings.model_temperature, askers=asked) as pool, Desk(pool, clock) as desk:
        yield Place(means, desk, known)


@cache
def _models(models: str, told: str) -> tuple[ToolSettings, LLMSettings, dict[str, LabTransport], dict[str, dict]]:
    """Settings with prices, transports, and cards by the orchestrator's words; once per process."""
    params = Params.model_validate_json(told)
    llm, transports = lab(params.llm, models)
    known = {word: _card(llm, name, models) for word, name in sorted(params.tools.models.items())}
    return params.tools, llm, transports, known


def _card(llm: LLMSettings, name: str, models: str) -> dict[str, Any]:
    """A lab model's card; of an endpoint its price, and the clock of a hosted model: what it is good at is unknown."""
    about = llm.models[name]
    if about.backend == "lab":
        return cards.read(about.model or name, models)
    dollars = 1000 * max(about.price_in or 0.0, about.price_out or 0.0)
    return {"dollars_per_1k_tokens": dollars, "tokens_per_second": HOSTED, "accuracy": []}


def run(
    params: Params,
    compared: Sequence[Arm] = ARMS,
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = RUNS,
    label: str = "training orchestrators",
) -> Results:
    """Do what is not done yet. Raises ModelError without the lab models, ParamsError for a price list that is none,
    SandboxUnavailable where no sandbox works."""
    settings, runs = params.tools, Path(runs)
    checkpoints.load(Path(models) / settings.base)  # these say what is wrong before any process starts
    told = means(params, models, runs)
    with opened_place(told) as place:
        offers, own = place.offers, place.own
    first = first_cells(params, Path(models))
    try:
        sweep.run(partial(first_work, means=told), first, runs, settings.jobs, "protocol and tools")
        told = replace(told, before={START: str(first[0].folder(runs))})
        todo = cells(params, compared, first)
        sweep.run(partial(work, means=told), todo, runs, settings.jobs, label)
    finally:
        export(params.llm, NAME, CASSETTES)
    return _collected([*first, *todo], runs, tools=names(settings), own=own, offers=offers)


def means(params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS) -> Means:
    """What carries out a study with these parameters."""
    return Means.of(params, models, runs, CASSETTES)


def choices(params: Params, n: int, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS) -> pd.DataFrame:
    """Every tool by itself on about n dev and n test questions in independent tries, columns split, arm (the tool),
    item, try, right: what `measure.headroom` asks for. A tool that cannot be asked a question is wrong. Nothing learns
    from these."""
    parts = []
    with opened_place(means(params, models, runs)) as place:
        tools = names(params.tools)
        for split, attempt in product(("dev", "test"), range(TRIES)):
            whole = Menu(tuple(place.offers[name] for name in tools))
            asked = [Assignment(work, whole, Preference(1.0, 0.0, 0.0)) for work in assignments.even(n, split, 29, ())]
            rows = pd.DataFrame(desk.tried(place.desk, asked, tools, f"{split} {attempt}"))
            right = rows.pivot(index="item", columns="tool", values="right").reindex(columns=tools).fillna(0.0)
            told = right.rename_axis(columns="arm").stack().rename("right").reset_index()
            parts.append(told.assign(split=split, **{"try": attempt}))
    return pd.concat(parts, ignore_index=True)


def plan(params: Params, compared: Sequence[Arm] = ARMS) -> str:
    """How many calls the study makes at most, and what endpoints among the tools may cost: a sentence."""
    settings = params.tools
    trained = len(compared) * settings.seeds * settings.updates * settings.groups * settings.rollouts
    tested = exams.count(settings) * (1 + len(compared) * settings.seeds)
    tries = settings.outcome_items + settings.test_items
    # any call of an orchestrator may go to the same model, and be as long as replies may be
    calls = tries + (trained + tested + settings.tries * settings.offices) * (settings.rounds - 1)
    shares = [Planned(n, calls, 64 * calls, params.llm.models[n].max_tokens * calls) for n in settings.models.values()]
    return announcement(params.llm, shares)


def _common(params: Params, models: Path) -> dict[str, Any]:
    """What every cell's result depends on: models, programs, price lists, settings of the models that are tools."""
    settings = params.tools
    prices = [store.sha256_file(ROOT / path) for path in (settings.prices, settings.unseen_prices)]
    asked = {**settings.models, AGENT: settings.agent}
    return {"prices": prices} | fingerprint(
        params.llm, asked, settings.base, models, "lib.routing.toolorchestra.study", MADE
    )


def first_cells(params: Params, models: Path) -> list[sweep.Cell]:
    """The orchestrator that speaks the protocol, and the trial of the tools."""
    told = params.tools.model_dump(exclude=_NEUTRAL | _TRAINING | {"side"})  # nobody sits the exam of that yet
    held = {"tools": told} | _common(params, models)
    return [sweep.Cell(START, held), sweep.Cell("tools", held)]


def cells(params: Params, compared: Sequence[Arm], first: Sequence[sweep.Cell]) -> list[sweep.Cell]:
    """One cell per arm and seed, and one for the start."""
    held = {"before": [cell.digest for cell in first]}
    start = held | {"tools": params.tools.model_dump(exclude=_NEUTRAL | _TRAINING), "arm": None, "seed": 0}
    trained = [
        sweep.Cell(f"{arm.name}/seed-{seed}", held | _told(params.tools, arm) | {"seed": seed})
        for arm in compared
        for seed in range(params.tools.seeds)
    ]
    return [*trained[:1], sweep.Cell("tests", start), *trained[1:]]


def _told(settings: ToolSettings, arm: Arm) -> dict[str, Any]:
    """An arm, without what tables call it, and the settings that decide what becomes of it."""
    spared = set() if "simplex" in arm.exams else {"side"}
    return {"arm": asdict(arm) | {"label": ""}, "tools": settings.model_dump(exclude=_NEUTRAL | spared)}


# First cells ---------------------------------------------------------------------------------------


def first_work(cell: sweep.Cell, folder: Path, progress, means: Means) -> None:
    """Teach the protocol and try the office tasks, or try the tools."""
    corl_warm.quiet()
    with opened_place(means) as place:
        if cell.name == START:
            _begin(place, means, folder, progress)
        else:
            _try_tools(place, folder)
            _prompt(place, folder)


def _begin(place: Place, means: Means, folder: Path, progress) -> None:
    settings = place.settings
    corpus = assignments.office_corpus("train", settings.offices, 0)
    shape, base = place.params.lab.models[settings.base], Path(means.models) / settings.base
    own, offers = settings.warm, met(place.offers, settings)
    traces = warm.corpus(own.items, offers, settings.spread, own.lean, corpus.tasks, own.seed)
    corl_warm.taught(base, shape, own, traces, folder / "model", lambda x: progress(0.9 * x))
    voice = place.voice(checkpoints.load(folder / "model"))
    kept, dropped = sift(corpus.tasks, partial(_solves, place, voice), tries=settings.tries)
    left = Corpus(corpus.sources, tuple(kept), (*corpus.dropped, *dropped))
    left.save(folder / "offices.json")
    store.write_parquet(folder / "statistics.parquet", left.statistics())
    store.write_json(folder / "begun.json", {"budget": _budget(place, voice, kept)})


def _solves(place: Place, voice: Lab, tasks: Sequence[Task], attempt: int) -> list[bool]:
    """One try of the start at office tasks, with dice."""
    rng = seeds.rng("toolorchestra", "tries", seed=attempt)
    asked = assignments.drawn(tasks, place.offers, seen(place.settings), place.settings.spread, rng)
    episodes = place.roll(voice, asked, _TEST_KEY - 1 - attempt, place.settings.temperature)
    return [e.right == 1.0 for e in episodes]


def _budget(place: Place, voice: Lab, offices: Sequence[Task]) -> float:
    """Dollars that the start does not exceed in `settings.budget` of the training questions."""
    works = assignments.mixed(96, "train", 10**6, offices)
    rng = seeds.rng("toolorchestra", "budget")
    asked = assignments.drawn(works, place.offers, seen(place.settings), place.settings.spread, rng)
    episodes = place.roll(voice, asked, _TEST_KEY - 100, place.settings.temperature)
    return float(np.quantile([desk.dollars(e, place.own) for e in episodes], place.settings.budget))


def _try_tools(place: Place, folder: Path) -> None:
    """Every tool on its own on training questions, and on those of the exam."""
    settings, parts = place.settings, []
    rng = seeds.rng("toolorchestra", "outcomes")
    works = assignments.even(settings.outcome_items, "train", 11, ())
    training = assignments.drawn(works, place.offers, seen(settings), settings.spread, rng)
    for split, asked in (("train", training), ("test", exams.exam("test", place.offers, place.dear, settings))):
        rows = desk.tried(place.desk, asked, seen(settings), split)
        about = [{"kind": a.kind, "difficulty": a.difficulty, "menu": " ".join(a.menu.names)} for a in asked]
        parts.append(pd.DataFrame([{"split": split} | about[row["item"]] | row for row in rows]))
    store.write_parquet(folder / "tried.parquet", pd.concat(parts, ignore_index=True))


def _prompt(place: Place, folder: Path) -> None:
    """The pilot study: an orchestrator that is only prompted, by function schemas."""
    settings = place.settings
    asked = exams.exam("pilot", place.offers, place.dear, settings)
    heat = settings.test_temperature
    episodes = prompted.roll(place.desk, settings.agent, asked, settings.rounds, _TEST_KEY - 50, heat)
    sat = rows(episodes, names(settings), Own(0.0, 0.0)).assign(exam="pilot", arm=AGENT, seed=0)
    store.write_parquet(folder / "pilot.parquet", sat)


# Trainings -----------------------------------------------------------------------------------------


def work(cell: sweep.Cell, folder: Path, progress, means: Means) -> None:
    """Train and test one arm under one seed, or test the start."""
    corl_warm.quiet()
    with opened_place(means) as place:
        Run(cell, folder, progress, means, place).go()


class Run:
    """One cell at work."""

    def __init__(self, cell: sweep.Cell, folder: Path, progress, means: Means, place: Place) -> None:
        self.settings, self.folder, self.progress, self.place = place.settings, folder, progress, place
        self.arm = Arm(**cell.settings["arm"]) if cell.settings["arm"] else None
        self.seed, start = cell.settings["seed"], Path(means.before[START])
        self.offices = load(start / "offices.json").tasks if self.arm else ()
        self.budget = store.read_json(start / "begun.json")["budget"]
        self.model = checkpoints.load(start / "model")
        self.voice = place.voice(self.model)

    def go(self) -> None:
        """Train, sit the exams, keep the numbers and the weights."""
        if self.arm is not None:
            self._train(self.arm)
        tests = [self._exam(name) for name in (self.arm.exams if self.arm else exams.ALL)]
        sat = [each for each in tests if len(each)]  # an exam may hold nothing, and its table then has no columns
        store.write_parquet(self.folder / "episodes.parquet", pd.concat(sat, ignore_index=True))
        if self.arm is not None:
            checkpoints.save(self.model, self.folder / "model")
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)

    def _exam(self, name: str) -> pd.DataFrame:
        asked = exams.exam(name, self.place.offers, self.place.dear, self.settings)
        episodes = self.place.roll(self.voice, asked, _TEST_KEY + self.seed, self.settings.test_temperature)
        decode = self.voice.decode if name == "test" else None
        return rows(episodes, names(self.settings), self.place.own, decode).assign(exam=name)

    def _train(self, arm: Arm) -> None:
        settings = self.settings
        learn = parameters.validate(settings.learn.model_dump() | dict(arm.changes), LearnSettings, "a cell")
        learner = Learner(self.model, learn, token(PAD), settings.updates, self.seed)
        logs = Logs(self.folder, learner)
        self.voice.refresh()  # it may go on from a checkpoint
        tools = names(settings)
        groups = np.repeat(np.arange(settings.groups), settings.rollouts)
        while learner.step < settings.updates:
            step, key = learner.step, self.seed * 10**6 + learner.step
            episodes = self.place.roll(self.voice, self._asked(key), key, settings.temperature)
            told = arms.paid(arm, episodes, groups, tools, self.place.own, self.budget)
            samples, kept = arms.learned(arm, episodes, groups, told, settings.least_deviation)
            logs.add("rollouts", rows(episodes, tools, self.place.own).assign(update=step, group=groups, reward=told))
            said = learner.update(samples) if len(samples) > 1 else learner.skip()
            self.voice.refresh()
            left = {"malformed": kept.malformed, "unanswered": kept.unanswered, "agreeing": kept.agreeing}
            logs.add("learning", pd.DataFrame([{"update": learner.step, "kept": len(samples)} | left | said]))
            self.progress(0.9 * learner.step / settings.updates)
            if learner.step % settings.save_every == 0:
                logs.save()
        logs.save()

    def _asked(self, key: int) -> list[Assignment]:
        """The assignments of one update, each as often as a group has rollouts."""
        settings = self.settings
        works = assignments.mixed(settings.groups, "train", key + 10**5, self.offices)
        rng = seeds.rng("toolorchestra", "assignments", seed=key)
        spread = self.arm.spread or settings.spread
        drawn = assignments.drawn(works, self.place.offers, seen(settings), spread, rng)
        struck = assignments.struck(drawn, settings.outages, rng)
        return [one for one in struck for _ in range(settings.rollouts)]


def rows(episodes: Sequence[Episode], tools: Sequence[str], own: Own, decode=None) -> pd.DataFrame:
    """One row per episode.

    Columns: item (number), kind, difficulty; right; dollars, seconds, with the orchestrator's own; own: dollars of
    its own tokens; calls, malformed, answered; called (tools in order, separated by blanks); m and
    p: the vectors M and P; menu, liked, good (at this, by their cards): names of tools; confidential; first:
    the tool that was called first; execution, fidelity, completeness: the criteria of office tasks; with `decode`
    also spoken (see `logs.spoken`).
    """
    m, wanted = arms.matrix(episodes, tools, own)
    out = []
    for i, e in enumerate(episodes):
        a = e.assignment
        row = {
            "item": i, "kind": a.kind, "difficulty": a.difficulty, "right": e.right, "dollars": -m[i, -2],
            "seconds": e.seconds, "own": len(e.ids) * own.dollars, "calls": len(e.calls), "called": " ".join(e.calls),
            "malformed": e.malformed, "answered": float(e.answer is not None), "menu": " ".join(a.menu.names),
            "m": m[i].tolist(), "p": wanted[i].tolist(),
            "p_cost": a.preference.cost, "p_latency": a.preference.latency, "p_accuracy": a.preference.accuracy,
            "liked": " ".join(a.preference.tools), "confidential": a.preference.confidential, "first": e.first,
            "good": " ".join(offer.name for offer in a.capable),
        } | ({} if e.verdict is None else {k: float(v) for k, v in asdict(e.verdict).items()})  # fmt: skip
        out.append(row | ({"spoken": json.dumps(spoken(e, decode))} if decode else {}))
    return pd.DataFrame(out)


def _collected(todo: Sequence[sweep.Cell], runs: Path, **known: Any) -> Results:
    start, tools = (cell.folder(runs) for cell in todo[:2])
    episodes, rollouts, learning = (table(todo[2:], runs, name, START) for name in ("episodes", "rollouts", "learning"))
    return Results(
        tried=store.read_parquet(tools / "tried.parquet"),
        episodes=pd.concat([episodes, store.read_parquet(tools / "pilot.parquet")], ignore_index=True),
        rollouts=rollouts,
        learning=learning,
        corpus=store.read_parquet(start / "statistics.parquet"),
        budget=store.read_json(start / "begun.json")["budget"],
        **known,
    )
