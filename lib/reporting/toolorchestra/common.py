"""What the parts of lesson 06's report share: test episodes in the units of the report, and who is meant by a name.

Orchestrators that are trained have one run per seed; the start and what is only prompted have one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from lib.reporting.estimates import Rows, gaps, means
from lib.routing.toolorchestra.arms import NAMED
from lib.routing.toolorchestra.study import AGENT, START, Results

MILLION, MILLI = 1e6, 1e3
MONEY, TIME = "$ per million questions", "ms per question"
PAPER, PUBLISHED, LENIENT, CORL = "paper", "published", "lenient", "corl"
BOTH = (START, PAPER)
GAP = "after minus before"
EVEN = "an even choice"
MEASURES = {"right": "accuracy", "micro": MONEY, "ms": TIME}
LABELS = {START: "start", AGENT: "lab-agent"} | {name: arm.label for name, arm in NAMED.items()}


def arms_of(results: Results) -> list[str]:
    """The start and the arms that this study has, in the order of the report."""
    there = set(results.episodes["arm"])
    return [START, *(arm for arm in NAMED if arm in there)]


def exam(results: Results, arm: str, name: str = "test", office: bool | None = False) -> pd.DataFrame:
    """Episodes of one orchestrator on one exam, with money in dollars per million (`micro`, `own_micro`), time in `ms`
    and `wild` for a malformed turn. office: tasks of an office alone, or none, or with None all."""
    part = results.episodes
    part = part[(part["arm"] == arm) & (part["exam"] == name)]
    part = part if office is None else part[(part["kind"] == "office") == office]
    part = in_units(part).assign(wild=(part["malformed"] > 0).astype(float))
    return part.sort_values(["seed", "item"]).reset_index(drop=True)


def in_units(part: pd.DataFrame) -> pd.DataFrame:
    """Episodes with money in dollars per million and time in milliseconds."""
    more = {"micro": part["dollars"] * MILLION, "own_micro": part["own"] * MILLION, "ms": part["seconds"] * MILLI}
    return part.assign(**more)


def calls_to(part: pd.DataFrame, tools: Iterable[str]) -> pd.Series:
    """How many calls of each episode went to any of these tools."""
    wanted = set(tools)
    return part["called"].str.split().map(lambda names: sum(name in wanted for name in names)).astype(float)


def change(parts: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Rows:
    """Means of columns (column: title) before and after training, and the paired difference."""
    before, after = (parts[arm] for arm in BOTH)
    return {LABELS[arm]: means(parts[arm], columns) for arm in BOTH} | {GAP: gaps(after, before, columns)}
