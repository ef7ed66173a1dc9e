"""What the parts of lesson 06's report share: test episodes in the units of the report, and who is meant by a name.

Orchestrators that are trained have one run per seed; the start and what is only prompted have one run.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lib.page import words
from lib.params import Params
from lib.routing.toolorchestra.arms import NAMED
from lib.routing.toolorchestra.study import AGENT, START, Results

MILLION, MILLI = 1e6, 1e3
MONEY, TIME = "$ per million questions", "ms per question"
PAPER, PUBLISHED, LENIENT, CORL = "paper", "published", "lenient", "corl"
ARMS = (PAPER, PUBLISHED, LENIENT, CORL)
BOTH = (START, PAPER)
GAP = "after minus before"
MEASURES = {"right": "accuracy", "micro": MONEY, "ms": TIME}


def label(arm: str) -> str:
    """How an orchestrator is called in figures and tables."""
    known = {START: "start", AGENT: "lab-agent"}
    return known[arm] if arm in known else NAMED[arm].label if arm in NAMED else arm


def trained(results: Results) -> list[str]:
    """The arms that this study has, in the order of the report."""
    there = set(results.episodes["arm"])
    return [arm for arm in ARMS if arm in there] + sorted(there - {*ARMS, START, AGENT})


def stand_ins(params: Params) -> str:
    """Models on the menu that are scripted, for captions; empty where all are models."""
    return words.stand_ins(params.llm, params.tools.models)


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


def called(part: pd.DataFrame, tools: Iterable[str]) -> pd.Series:
    """How many calls of each episode went to any of these tools."""
    wanted = set(tools)
    return part["called"].str.split().map(lambda names: sum(name in wanted for name in names)).astype(float)
