"""Judging orchestrators after the fact: baselines without an orchestrator, and the preference benchmark.

Baselines answer the questions of the exam `test` from what every tool did on its own (`desk.tried`), at the same
menus and prices; nobody orchestrates, so they pay for no orchestrator. Office tasks are not for single tools.

    always T    one tool wherever it can be asked; elsewhere the first of the others in the order of their right answers
                on training questions, so that a tool which a menu lacks is no rival that cannot win
    best always the one with the most right answers on training questions, and then the others in that order
    one a kind  for each kind and difficulty the first tool on the menu, in the order of its share of right answers on
                training questions, the cheaper one first where they are equal
    random      one of the tools on the menu that can be asked at all, in expectation
    oracle      the cheapest tool that is right, known afterwards
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.routing.toolorchestra import rewards

ALWAYS = "always "
BEST, BY_KIND, RANDOM, ORACLE = "best always", "one a kind", "random", "oracle"
_NOTHING = {"right": 0.0, "dollars": 0.0, "seconds": 0.0, "calls": 0, "tool": ""}
COLUMNS = ("right", "dollars", "seconds", "calls", "tool")


def baselines(tried: pd.DataFrame, exam: pd.DataFrame, tools: Sequence[str]) -> dict[str, pd.DataFrame]:
    """By name one row per question of the exam: item, right, dollars, seconds, calls, tool ("" for none).

    tried: `Results.tried`; exam: rows of one orchestrator on `test`, for the questions and their menus.
    """
    questions = exam[exam["kind"] != "office"]
    train, test = (tried[tried["split"] == split] for split in ("train", "test"))
    held = {(row.item, row.tool): row for row in test.itertuples()}
    ranked = _ranked(train)

    def taken(item: int, tool: str) -> dict:
        row = held.get((item, tool))
        return dict(_NOTHING) if row is None else {name: getattr(row, name) for name in COLUMNS}

    def table(chosen) -> pd.DataFrame:
        return pd.DataFrame([{"item": q.item} | chosen(q) for q in questions.itertuples()])

    def always(item: int, tool: str) -> dict:
        return taken(item, first([tool, *order], [t for t in (tool, *order) if (item, t) in held]))

    order = ordered(train)
    out = {ALWAYS + tool: table(lambda q, t=tool: always(q.item, t)) for tool in tools if tool in set(test["tool"])}
    out[BEST] = table(lambda q: always(q.item, order[0]))
    out[BY_KIND] = table(lambda q: taken(q.item, first(ranked.get((q.kind, q.difficulty), ()), q.menu.split())))
    out[RANDOM] = table(lambda q: _mean([taken(q.item, t) for t in q.menu.split() if (q.item, t) in held]))
    out[ORACLE] = table(lambda q: _cheapest([taken(q.item, t) for t in q.menu.split() if (q.item, t) in held]))
    return out


def ordered(train: pd.DataFrame) -> list[str]:
    """Tools by how many training questions they answered right, the most first, of equals the cheaper; where a tool was
    not on the menu it has no right answer."""
    found = train.groupby("tool").agg(right=("right", "sum"), dollars=("dollars", "mean"))
    return found.sort_values(["right", "dollars"], ascending=[False, True], kind="stable").index.tolist()


def best(train: pd.DataFrame) -> str:
    """The tool with the most right answers on training questions."""
    return ordered(train)[0]


def _ranked(train: pd.DataFrame) -> dict[tuple[str, int], list[str]]:
    """Tools by kind and difficulty, best first."""
    means = train.groupby(["kind", "difficulty", "tool"])[["right", "dollars"]].mean().reset_index()
    ordered = means.sort_values(["right", "dollars"], ascending=[False, True])
    return {key: group["tool"].tolist() for key, group in ordered.groupby(["kind", "difficulty"])}


def first(order: Sequence[str], menu: Sequence[str]) -> str:
    """The first tool of an order that is on a menu; "" where none is."""
    return next((tool for tool in order if tool in menu), "")


def _mean(rows: Sequence[Mapping]) -> dict:
    if not rows:
        return dict(_NOTHING)
    return {name: float(np.mean([row[name] for row in rows])) for name in COLUMNS[:-1]} | {"tool": ""}


def _cheapest(rows: Sequence[Mapping]) -> dict:
    right = [row for row in rows if row["right"]]
    return dict(min(right, key=lambda row: row["dollars"])) if right else dict(_NOTHING)


# The preference benchmark --------------------------------------------------------------------------


def vectors(rows: pd.DataFrame, column: str = "m") -> np.ndarray:
    """M or P of episodes, (n, tools + 3)."""
    return np.array([json.loads(text) for text in rows[column]])


def scores(rows: pd.DataFrame, start: pd.DataFrame, units: tuple[float, float] | None = None) -> np.ndarray:
    """R^e of the episodes of one orchestrator on one exam, (n,), against the start's on the same; in order of items.

    units: per dollar and per second, for the cost and latency terms; None: micro-dollars and milliseconds.
    """
    mine, base = (each.sort_values("item") for each in (rows, start))
    m, m0, wanted = vectors(mine), vectors(base), vectors(mine, "p")
    return rewards.score(m, m0, wanted) if units is None else rewards.score_in(units, m, m0, wanted)


def baseline_scores(table: pd.DataFrame, start: pd.DataFrame, tools: Sequence[str]) -> np.ndarray:
    """R^e of a baseline's rows (with one tool each), (n,); start: the start's rows of the same exam."""
    base = start.set_index("item").loc[table["item"]].reset_index()
    calls = np.array([[row.calls if row.tool == name else 0 for name in tools] for row in table.itertuples()])
    right, dollars, seconds = (table[name].to_numpy(dtype=float) for name in ("right", "dollars", "seconds"))
    return rewards.score(rewards.vectors(calls, right, dollars, seconds), vectors(base), vectors(base, "p"))
