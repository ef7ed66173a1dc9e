"""What every expert makes of questions on its own: its price, the budgets that follow, what routers learn from.

A strategy is a constant way to answer: give the whole question to one expert, or two operations at a time to
the same expert, or all but the last two operations, which the untrained controller works out itself. The second
and the third are what a controller that takes questions apart has to be compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib import seeds, tasks
from lib.params import RoutingSettings
from lib.routing import protocol
from lib.routing.experts import Heard, Pool, Query
from lib.routing.rollouts import Task, roll
from lib.routing.voices import Voice
from lib.routing.warm import SKILL
from lib.tasks import Item

PIECE = 2  # operations at a time
IN_PIECES = " in pieces"
THEN_ITSELF = " then itself"


def tried(pool: Pool, items: Sequence[Item], split: str) -> pd.DataFrame:
    """Every strategy on every item: columns split, item (number), difficulty, prompt, strategy, right (0 or 1),
    dollars, calls, reply (the last one's text)."""
    tables = []
    for expert in pool.experts:
        tables += [_whole(pool, items, expert, split), _pieces(pool, items, expert, split)]
    return pd.concat(tables, ignore_index=True)


def _frame(items: Sequence[Item], split: str, strategy: str, rows: list[dict]) -> pd.DataFrame:
    about = [
        {"split": split, "item": i, "difficulty": item.difficulty, "prompt": item.prompt, "strategy": strategy}
        for i, item in enumerate(items)
    ]
    return pd.DataFrame([told | row for told, row in zip(about, rows, strict=True)])


def _key(split: str, expert: str, i: int, part: int) -> int:
    return int(seeds.key("routing", "outcomes", split, expert, i, seed=part) >> 1)


def _whole(pool: Pool, items: Sequence[Item], expert: str, split: str) -> pd.DataFrame:
    replies = pool.ask([Query(expert, item.prompt, _key(split, expert, i, 0)) for i, item in enumerate(items)])
    rows = [
        {"right": tasks.score(item, heard.text), "dollars": heard.dollars, "calls": 1, "reply": heard.text}
        for item, heard in zip(items, replies, strict=True)
    ]
    return _frame(items, split, expert, rows)


def _pieces(pool: Pool, items: Sequence[Item], expert: str, split: str) -> pd.DataFrame:
    """Pieces of a question one after another, each beginning with what the expert said to the last."""
    chains = [item.prompt.removesuffix(" = ?").split() for item in items]
    rows = [{"right": 0.0, "dollars": 0.0, "calls": 0, "reply": ""} for _ in items]
    part = 1
    while open_ := [i for i, chain in enumerate(chains) if len(chain) > 1]:
        asked = [
            Query(expert, " ".join(chains[i][: 2 * PIECE + 1]) + " = ?", _key(split, expert, i, part)) for i in open_
        ]
        for i, heard in zip(open_, pool.ask(asked), strict=True):
            _take(rows[i], heard)
            said = protocol.heard(heard.text)
            rest = chains[i][2 * PIECE + 1 :]
            chains[i] = [said, *rest] if said.isdigit() and len(said) == 1 else ["?"]  # no digit: it ends here
        part += 1
    for item, row, chain in zip(items, rows, chains, strict=True):
        row["right"] = tasks.score(item, tasks.reply(chain[0]))
    return _frame(items, split, expert + IN_PIECES, rows)


def shared(
    voice: Voice, pool: Pool, items: Sequence[Item], split: str, rounds: int, temperature: float
) -> pd.DataFrame:
    """All but the last two operations to one expert, the rest to the controller, told never to call; every expert in
    turn. The same columns as `tried`."""
    tables = []
    for expert in pool.experts:
        chains = [item.prompt.removesuffix(" = ?").split() for item in items]
        rows = [{"right": 0.0, "dollars": 0.0, "calls": 0, "reply": ""} for _ in items]
        asked = [i for i, chain in enumerate(chains) if len(chain) // 2 > SKILL]
        cut = [len(chain) - 2 * SKILL for chain in chains]
        queries = [Query(expert, " ".join(chains[i][: cut[i]]) + " = ?", _key(split, expert, i, 1_000)) for i in asked]
        for i, heard in zip(asked, pool.ask(queries), strict=True):
            _take(rows[i], heard)
            chains[i] = [protocol.heard(heard.text), *chains[i][cut[i] :]]
        rest = [replace(item, prompt=" ".join(c) + " = ?") for item, c in zip(items, chains, strict=True)]
        ends = [Task(item, "hard", protocol.WORDS[0], 0.0) for item in rest]
        episodes = roll(voice, pool, ends, rounds, _key(split, expert, 0, 2), temperature)
        for row, episode in zip(rows, episodes, strict=True):
            row["right"] = episode.right
            row["dollars"] += episode.dollars
        tables.append(_frame(items, split, expert + THEN_ITSELF, rows))
    return pd.concat(tables, ignore_index=True)


def _take(row: dict, heard: Heard) -> None:
    row["dollars"] += heard.dollars
    row["calls"] += 1
    row["reply"] = heard.text


def prices(table: pd.DataFrame, experts: Sequence[str], settings: RoutingSettings) -> dict[str, float]:
    """Dollars that one call with a whole question costs at most, by expert: `settings.quantile` of its price for
    questions of the hardest kind in the training part."""
    hardest = table[(table["split"] == "train") & (table["difficulty"] == table["difficulty"].max())]
    return {
        expert: float(np.quantile(hardest.loc[hardest["strategy"] == expert, "dollars"], settings.quantile))
        for expert in experts
    }


def budgets(price: dict[str, float], settings: RoutingSettings) -> dict[str, float]:
    """B in dollars for each word: low affords one call to the cheapest expert, medium one to the middle one,
    high anything."""
    experts = sorted(price, key=price.__getitem__)
    middle = experts[len(experts) // 2]
    return dict(zip(protocol.WORDS, (price[experts[0]], price[middle], settings.high), strict=True))
