"""The experiment: every method, every seed, the same students and rooms, one decision record.

A cell of the sweep is one method under one seed. Its episodes run at once (async, so that calls to a
model overlap), cells run in processes. Every finished episode is a file, every finished cell one
table; a killed study resumes with what is missing, and a paid episode is never paid twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import params as parameters
from lib import store, sweep
from lib.ledger import BudgetExceeded, Ledger, measured_energy
from lib.llm.client import Client
from lib.llm.estimate import Planned
from lib.llm.opening import export, finish, opened
from lib.orchestration.components import TEMPLATES, assemble, render
from lib.orchestration.controls import Always, Random
from lib.orchestration.decisions import Decider, Decision, Episode
from lib.orchestration.domains import WORLDS
from lib.orchestration.judge import judge
from lib.orchestration.methods import KINDS, Method, orchestrators
from lib.orchestration.orchestrators import Orchestrator
from lib.orchestration.world import Menu, World
from lib.params import ROOT, Environments, LLMSettings, OrchestrationSettings, Params
from lib.sources import deciding
from lib.study import Means
from lib.zoo import train
from lib.zoo.evaluate import evaluation_streams
from lib.zoo.policies import Policy
from lib.zoo.recipes import SINGLE

RUNS = ROOT / "data/runs/orchestration"
CASSETTES = ROOT / "data/cassettes"
NAME = "orchestration"  # of the cassette and of the purse
_AFTERWARDS = (  # look at decisions; train policies, whose weights are in a cell's name; keep or announce calls
    "lib.orchestration.judge", *(TEMPLATES / f"judge_{name}.md" for name in ("correction", "system", "user")),
    "lib.stats", "lib.zoo.train", "lib.llm.cassette", "lib.llm.estimate", "lib.llm.opening", "lib.llm.purse",
)  # fmt: skip
# Settings that change no decision stand in a cell with one value each.
_NEUTRAL = {"models": ["-"], "judge": "-", "episodes": 1, "jobs": None, "sparing": [], "depths": []}


def plan(params: Params, zoo: str | Path = train.ZOO) -> list[Planned]:
    """What the orchestrators may ask at the most: episodes at full length, every look-ahead used.

    Tokens per call: a quarter of the characters of a first prompt, and 60 for a reply.
    """
    out: dict[str, Planned] = {}
    for domain, method in product(WORLDS, orchestrators(params)):
        bench = Bench(cells(params, domain, [method], zoo)[0].settings, Means.of(params, zoo, RUNS, CASSETTES))
        world = bench.begin(evaluation_streams(domain, 0, 1)[0])
        orchestrator = bench.decider(bench.client())
        prompt = sum(
            len(m["content"]) for m in assemble(render(orchestrator.components, orchestrator.situation(world)))
        )
        reach = orchestrator.reach
        replies = 1 + -(-reach.limit // max(1, reach.at_once))
        calls = params.zoo.seeds * params.orchestration.episodes * world.world.horizon * replies
        before = out.get(method.model, Planned(method.model, 0, 0, 0))
        out[method.model] = Planned(
            method.model, before.calls + calls, before.tokens_in + calls * prompt // 4, before.tokens_out + calls * 60
        )
    return list(out.values())


def seconds(params: Params, domain: str, methods: Sequence[Method], runs: str | Path = RUNS) -> pd.DataFrame:
    """Core seconds that each method's episodes took, from the receipts of the sweep. Not for a report's bytes."""
    todo = cells(params, domain, methods)
    rows = [
        {"method": cell.settings["method"]["name"], **receipt["result"], "seconds": receipt["seconds"]}
        for cell in todo
        if (receipt := sweep.finished(cell, Path(runs)))
    ]
    sums = pd.DataFrame(rows).groupby("method", sort=False)[["episodes", "decisions", "seconds"]].sum()
    sums["ms per decision"] = 1000 * sums["seconds"] / sums["decisions"]
    sums["kWh per episode"] = [measured_energy(s) / n for s, n in zip(sums["seconds"], sums["episodes"], strict=True)]
    return sums.reset_index()


# The sweep --------------------------------------------------------------------------------------


def run(
    params: Params,
    domain: str,
    methods: Sequence[Method],
    runs: str | Path = RUNS,
    zoo: str | Path = train.ZOO,
    label: str = "deciding",
) -> pd.DataFrame:
    """The decision record of `methods` in a domain; what is not there yet is run.

    One row per decision: method, kind, model, backend, domain, seed, episode, step, the columns of
    `Decision.columns` and of `World.step`. Raises BudgetExceeded at llm.max_dollars (finished episodes
    stay), LLMError where no endpoint can be used.
    """
    todo = cells(params, domain, methods, zoo)
    means = Means.of(params, zoo, runs, CASSETTES)
    try:
        sweep.run(partial(decide_cell, means=means), todo, runs, params.orchestration.jobs, f"{label} in {domain}")
    except BudgetExceeded as error:
        kept = sum(len(list(cell.folder(Path(runs)).glob("episode-*.parquet"))) for cell in todo)
        done = sum(sweep.finished(cell, Path(runs)) is not None for cell in todo)
        error.add_note(
            f"llm.max_dollars is reached; {done} cells and {kept} more episodes are kept: raise it, run again"
        )
        raise
    finally:
        export(params.llm, NAME, CASSETTES)
    return pd.concat(
        [store.read_parquet(cell.folder(Path(runs)) / "record.parquet") for cell in todo], ignore_index=True
    )


def cells(params: Params, domain: str, methods: Sequence[Method], zoo: str | Path = train.ZOO) -> list[sweep.Cell]:
    """One cell per method and seed; its settings are all that decides the result."""
    common = {
        "domain": domain,
        "education": params.education.model_dump(),
        "minigrid": params.minigrid.model_dump(),
        "orchestration": params.orchestration.model_dump() | _NEUTRAL,
        "episodes": params.orchestration.episodes,
        "sources": deciding("lib.orchestration.study", "lib.llm.scripted", without=_AFTERWARDS),
        "zoo": _zoo_digest(domain, zoo),
    }
    return [
        sweep.Cell(
            f"{domain}/{method.name}/seed-{seed}",
            common | {"method": asdict(method), "model": _model(params, method), "seed": seed},
        )
        for method in methods
        for seed in range(params.zoo.seeds)
    ]


def _model(params: Params, method: Method) -> dict[str, Any] | None:
    """What of a model's settings can change a reply or its price."""
    if not method.model:
        return None
    how = ("api_key_env", "timeout", "retries", "concurrency")
    return {k: v for k, v in params.llm.models[method.model].model_dump().items() if k not in how}


def _zoo_digest(domain: str, zoo: str | Path) -> str:
    files = sorted(path for path in (Path(zoo) / domain).glob("*/*") if path.suffix in (".json", ".safetensors"))
    return store.sha256_json([[path.parent.name, path.name, store.sha256_file(path)] for path in files])


def decide_cell(cell: sweep.Cell, folder: Path, progress, means: Means) -> dict[str, int]:
    """Play one method's episodes under one seed; leaves `record.parquet` in `folder`."""
    parts = finish(Bench(cell.settings, means).play(folder, progress))
    record = pd.concat(parts, ignore_index=True)
    store.write_parquet(folder / "record.parquet", record)
    for path in folder.glob("episode-*.parquet"):
        path.unlink()
    return {"episodes": len(parts), "decisions": len(record)}


class Bench:
    """One cell at work: the zoo of its seed, its decider, its worlds."""

    def __init__(self, settings: dict[str, Any], means: Means) -> None:
        torch.set_num_threads(1)  # the matrices are small: a second thread only waits
        self.settings, self.means = settings, means
        self.domain, self.seed = settings["domain"], settings["seed"]
        self.method = Method(**settings["method"])
        rooms = {name: settings[name] for name in Environments.model_fields}
        self.params = parameters.validate(rooms, Environments, "a cell")
        self.orchestration = parameters.validate(settings["orchestration"], OrchestrationSettings, "a cell")
        self.policies = _policies(means.models, self.domain, self.seed)
        self.menu = Menu({name: self.policies[name] for name in SINGLE})

    def begin(self, stream: np.uint64) -> Episode:
        """A new episode with its account."""
        return Episode(self.world(stream), Ledger(self.method.budget))

    def world(self, stream: np.uint64) -> World:
        """The world of a new episode."""
        return WORLDS[self.domain](self.params, self.menu, stream)

    async def play(self, folder: Path, progress) -> list[pd.DataFrame]:
        """All episodes at once; those that are on disk already are read."""
        streams = evaluation_streams(self.domain, self.seed, self.settings["episodes"])
        done = 0

        async def one(number: int) -> pd.DataFrame:
            nonlocal done
            path = folder / f"episode-{number:05d}.parquet"
            if not path.exists():
                store.write_parquet(path, await self.episode(decider, number, streams[number]))
            done += 1
            progress(done / len(streams))
            return store.read_parquet(path)

        async with self.client() as client:
            decider = self.decider(client)
            return await asyncio.gather(*(one(number) for number in range(len(streams))))

    async def episode(self, decider: Decider, number: int, stream: np.uint64) -> pd.DataFrame:
        """The decision record of one episode."""
        about = {
            "method": self.method.name, "kind": self.method.kind, "model": self.method.model,
            "backend": self.settings["model"]["backend"] if self.settings["model"] else "policy",
            "domain": self.domain, "seed": self.seed, "alternatives": ";".join(self.menu.names), "episode": number,
        }  # fmt: skip
        seen = enumerate(await self.steps(decider, stream))
        return pd.DataFrame([about | {"step": t} | decision.columns() | outcome for t, (decision, outcome) in seen])

    async def steps(self, decider: Decider, stream: np.uint64) -> list[tuple[Decision, dict[str, Any]]]:
        """Every decision of an episode and the environment's columns of the record."""
        episode, seen = self.begin(stream), []
        while not episode.world.done:
            decision = await decider.decide(episode)
            seen.append((decision, episode.act(decision)))
        return seen

    def client(self) -> Client:
        """The client of this process; endpoints get cassette and purse."""
        means, share = self.means, sweep.at_once(self.means.params.orchestration.jobs)
        return make_client(means.params.llm, share, means.runs, means.cassettes)

    def decider(self, client: Client, keep: bool = False) -> Decider:
        """Who decides in this cell."""
        settings, method = self.orchestration, self.method
        if method.kind in KINDS:
            cards = [store.read_json(Path(self.means.models) / self.domain / name / "card.json") for name in SINGLE]
            topic = self.params.education.topic
            return Orchestrator(method.kind, method.model, client, settings, cards, topic, method.without, keep)
        return Random() if method.kind == "control" else Always(self.policies[method.name])


def watch(
    params: Params, domain: str, method: Method, seed: int = 0, number: int = 0, zoo: str | Path = train.ZOO
) -> list[tuple[Decision, dict[str, Any]]]:
    """One episode for a reader: every decision with its prompts and replies, and its row of the record."""
    cell = next(each for each in cells(params, domain, [method], zoo) if each.settings["seed"] == seed)
    bench = Bench(cell.settings, Means.of(params, zoo, RUNS, CASSETTES))
    stream = evaluation_streams(domain, seed, number + 1)[number]

    async def play() -> list[tuple[Decision, dict[str, Any]]]:
        async with bench.client() as client:
            return await bench.steps(bench.decider(client, keep=True), stream)

    return finish(play())


def try_out(params: Params, domain: str, decider: Decider, zoo: str | Path = train.ZOO) -> float:
    """Mean length of the episodes of all seeds with a decider of one's own."""
    lengths = []
    for cell in cells(params, domain, [Method("own", "control")], zoo):
        bench = Bench(cell.settings, Means.of(params, zoo, RUNS, CASSETTES))
        streams = evaluation_streams(domain, cell.settings["seed"], cell.settings["episodes"])
        lengths += [len(finish(bench.steps(decider, stream))) for stream in streams]
    return float(np.mean(lengths))


@cache
def _policies(zoo: str, domain: str, seed: int) -> dict[str, Policy]:
    return {name: by_seed[seed] for name, by_seed in train.load(domain, zoo).items()}


def make_client(
    settings: LLMSettings, share: int = 1, runs: str | Path = RUNS, cassettes: str | Path = CASSETTES
) -> Client:
    """The client with its in-process transports; where an endpoint is named, with cassette and purse too."""
    return opened(settings, NAME, runs, cassettes, share)


def judged(params: Params, record: pd.DataFrame) -> pd.DataFrame:
    """What the judge of the parameters makes of every episode of a decision record in education (4.2.3)."""

    async def ask() -> pd.DataFrame:
        async with make_client(params.llm) as client:
            return await judge(client, params.orchestration.judge, record, params.education)

    try:
        return finish(ask())
    finally:
        export(params.llm, NAME, CASSETTES)
