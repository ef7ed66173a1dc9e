"""Everyone who decides meets the same students and rooms: the record "orchestration", and the contrasts asked of it.

A cell is a domain, a world and a seed of the zoo; in it every arm plays the same episodes with the same luck. What an
arm learns or is told of policies (cards, the bandit, the best policy) comes from students of training, apart from
those that anyone is judged on. Controls look as deep as the orchestrators, with as many copies and the query's weights.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import measure, record, seeds, store, sweep
from lib import params as parameters
from lib.orchestration.arena import Ahead, Always, Arena, Bandit, Guides, Lot, Read, Trained, Turns, cards
from lib.orchestration.readers import identity, reader
from lib.params import ROOT, OrchestrationSettings, Params
from lib.sources import deciding
from lib.zoo import train
from lib.zoo.recipes import OBJECTIVES, REFERENCES, SINGLE

RUNS = ROOT / "data/runs/orchestration"
KINDS = ("KO", "TO", "RO")
BEST, CEILING, HINDSIGHT = "best policy", "oracle look-ahead", "oracle"
_ROLES = {"SO-": "expert", "MO-": "paper", "oracle": "oracle", "KO": "router", "TO": "router", "RO": "router",
          "LinUCB": "router", "look-ahead": "router"}  # fmt: skip


def run(params: Params, places: Sequence[tuple[str, str]], zoo: str | Path = train.ZOO, runs: str | Path = RUNS):
    """The record "orchestration" of all arms in `places`, (domain, world) each: one row per arm, seed and episode, the
    arm "oracle" in hindsight among them. condition: the world; style: what its query weighs most; outcomes: what was
    reached by step. Its own columns: length, d1, d2, d3, malformed."""
    todo = [cell for domain, world in places for cell in cells(params, domain, world, zoo)]
    jobs = params.orchestration.jobs
    sweep.run(partial(play_cell, zoo=str(zoo), params=params.model_dump()), todo, runs, jobs, "deciding")
    rows = [store.read_parquet(cell.folder(Path(runs)) / "episodes.parquet") for cell in todo]
    return record.write("orchestration", hindsight(pd.concat(rows, ignore_index=True)))


def cells(params: Params, domain: str, world: str, zoo: str | Path = train.ZOO) -> list[sweep.Cell]:
    """One cell per seed; its settings are all that decides its result."""
    files = sorted(path for path in (Path(zoo) / domain).glob("*/seed-*") if path.suffix in (".json", ".safetensors"))
    settings = {
        "domain": domain, "world": world, "environment": getattr(params, domain).model_dump(),
        "orchestration": params.orchestration.model_dump() | {"jobs": None},
        "readers": {name: identity(name, params) for name in params.orchestration.readers},
        "sources": deciding("lib.orchestration.contest"), "zoo": [store.sha256_file(path) for path in files],
    }  # fmt: skip
    return [sweep.Cell(f"{domain}/{world}/seed-{s}", settings | {"seed": s}) for s in range(params.zoo.seeds)]


def play_cell(cell: sweep.Cell, folder: Path, progress, zoo: str, params: dict[str, Any]) -> dict[str, int]:
    """All arms of one cell; leaves `episodes.parquet` in `folder`."""
    torch.set_num_threads(1)
    told = parameters.validate(params, Params, "a cell")
    domain, world, seed = (cell.settings[name] for name in ("domain", "world", "seed"))
    arms, arena = contestants(told, domain, world, seed, zoo)
    tables = []
    for number, (arm, decider) in enumerate(arms.items()):
        arena.copies = 1 if arm.endswith("one copy") else told.orchestration.copies
        every = next((n for n in told.orchestration.sparing if arm.endswith(f", every {n}")), 1)
        rows = arena.play(decider, every)
        backend = decider.reader.backend if isinstance(decider, Read) else "policy"
        tables.append(rows.assign(arm=arm, backend=backend, item=np.arange(len(rows))))
        progress((number + 1) / len(arms))
    rows = pd.concat(tables, ignore_index=True)
    rows["item"] = f"{seed}-" + rows["item"].astype(str)
    rows["role"] = [next((r for start, r in _ROLES.items() if a.startswith(start)), "constant") for a in rows["arm"]]
    most = np.array(OBJECTIVES[domain])[arena.weights.argmax(1)]  # in the query of each episode
    style = np.tile(most if world == "ours" else np.full(len(most), "all"), len(arms))
    rows = rows.assign(seed=seed, group=domain, condition=world, split="test", style=style)
    store.write_parquet(folder / "episodes.parquet", rows)
    return {"episodes": len(rows)}


def arenas(params: Params, domain: str, world: str, seed: int, zoo: str | Path = train.ZOO) -> dict[str, Arena]:
    """The students or rooms of a seed, by what they are for: `test`, and three kinds of training apart from it."""
    settings = params.orchestration
    if world == "ours" and domain == "minigrid":
        menu = Guides(settings.ours.slip)
    else:
        menu = Trained({name: by_seed[seed] for name, by_seed in train.load(domain, zoo).items()})
    sizes = {"test": settings.students} | dict.fromkeys(("cards", "bandit", "dev"), settings.training)
    copies = {"cards": 1}  # a card averages over so many states that one copy of each is enough
    return {
        use: Arena(
            params, domain, world, menu, seeds.keys("contest", use, domain, seed=seed * 10**6, n=n),
            copies.get(use, settings.copies),
        )
        for use, n in sizes.items()
    }  # fmt: skip


def contestants(params: Params, domain: str, world: str, seed: int, zoo: str | Path = train.ZOO) -> tuple[dict, Arena]:
    """Every arm's decider by name, and the arena of the test."""
    settings, many = params.orchestration, arenas(params, domain, world, seed, zoo)
    test, steps = many["test"], settings.lookahead
    told = cards(many["cards"], 1 if domain == "education" else test.horizon)
    arms: dict[str, Any] = {name: Always(k) for k, name in enumerate(SINGLE)}
    worth = {k: many["dev"].play(Always(k))["reward"].mean() for k in range(len(SINGLE))}
    arms[BEST] = Always(max(worth, key=worth.get))
    if world == "paper":
        arms |= {name: Always(test.menu.names.index(name)) for name in REFERENCES[domain]}
    arms |= {"random": Lot(), "round-robin": Turns(), "LinUCB": Bandit(many["bandit"], steps), "look-ahead 1": Ahead(1)}
    arms |= {f"look-ahead {steps}{copies}": Ahead(steps) for copies in ("", ", one copy")}
    readers = [reader(name, params) for name in settings.readers]
    arms |= {f"{kind} {each.name}": Read(kind, each, told, steps) for each in readers for kind in KINDS}
    last = {kind: arms[f"{kind} {readers[-1].name}"] for kind in KINDS}
    arms[f"RO {readers[-1].name}, one copy"] = last["RO"]
    if world == "ours":  # budgets of decisions
        arms |= {f"{k} {readers[-1].name}, every {n}": last[k] for k in ("KO", "RO") for n in settings.sparing}
    elif domain == "education":
        arms |= {f"RO {readers[-1].name}, {n} steps": Read("RO", readers[-1], told, n) for n in settings.depths}
    if world == "ours" or domain == "education":  # in the paper's room 144 steps of all plans cost more than they tell
        far, then = settings.ceiling[domain].steps, settings.ceiling[domain].then
        arms[CEILING] = Ahead(min(far, test.horizon), then)
    else:
        arms[CEILING] = Ahead(2 * steps, (steps,))
    return arms, test


def hindsight(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` and the arm "oracle": of each episode the best that any arm made of it. An upper bound by construction,
    and no method: it has seen the dice."""
    best = rows.loc[rows.groupby(["group", "condition", "seed", "item"])["reward"].idxmax()]
    return pd.concat([rows, best.assign(arm=HINDSIGHT, role="oracle", backend="policy")], ignore_index=True)


# What is asked of the record ------------------------------------------------------------------------


def headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """By domain and world: utility of looking far ahead on fresh copies, less that of the best policy on dev students.
    Whoever looks ahead there sees no dice that fall: what it wins could be earned."""
    return measure.gap(rows, "reward", {"arm": CEILING}, {"arm": BEST}, ["group", "condition"])


def contrasts(rows: pd.DataFrame, settings: OrchestrationSettings) -> pd.DataFrame:
    """The questions of `orchestration.contrasts` in our worlds, with verdicts: index domain and name, such as RO_TO.

    Paired by student; variances over students within seeds, since the students are the pairs. KO, TO and RO are those
    of the last reader.
    """
    found = {}
    for domain in rows["group"].unique():
        mine = record.where(rows, group=domain, condition="ours")
        for a, b in settings.contrasts:
            pair = mine.assign(seed=0)  # pairs are students; what the seeds share is named beside the table
            one = measure.gap(pair, "reward", {"arm": _arm(a, settings)}, {"arm": _arm(b, settings)})
            found[domain, f"{a}_{b.replace(' ', '-')}"] = one.iloc[0].astype(float)
    frame = pd.DataFrame(found).T.rename_axis(["domain", "contrast"]).astype({"runs": int, "items": int})
    return frame.assign(verdict=measure.verdict(frame, settings.margin))


def _arm(name: str, settings: OrchestrationSettings) -> str:
    kind, _, who = name.partition(" ")
    if kind in KINDS:
        return f"{kind} {who or settings.readers[-1]}"
    return f"look-ahead {settings.lookahead}" if name == "look-ahead" else name
