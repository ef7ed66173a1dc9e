"""What the parts of lesson 07's report share: test rows in the units of the report, and who is meant by a name.

What is trained, and random choices, have one run per seed; what is searched or prompted has one.
"""

from __future__ import annotations

import math

import pandas as pd

from lib.configuration import questions
from lib.configuration.arms import NAMED, TESTED
from lib.configuration.study import Results
from lib.params import Params
from lib.reporting import words
from lib.stats import Interval

PAPER, PLAIN, DPO, GRPO = "arc", "arc_no_sft", "arc_dpo", "grpo"  # arms
ALL = "all"  # kinds together
KINDS = tuple(kind.name for kind in questions.KINDS)
PROMPTED = ("zero_shot", "few_shot")
THOUSAND = 1e3
MONEY, TIME = "$ per 1,000 questions", "ms per question"
MEASURES = {
    "right": "accuracy", "reward": "reward", "tokens": "tokens", "mille": MONEY, "ms": TIME, "used": "tools used",
}  # fmt: skip
BRIEF = ("tokens", TIME, "tools used")  # told without intervals where a table would be too wide


def label(arm: str, params: Params) -> str:
    """How an arm is called; a prompted policy that is a program is called a stand-in."""
    name = TESTED[arm] if arm in TESTED else NAMED[arm].label if arm in NAMED else arm
    scripted = arm in PROMPTED and params.llm.models[params.configuration.prompted].backend == "scripted"
    return f"{name} (scripted stand-in)" if scripted else name


def stand_ins(params: Params, prompted: bool = True) -> str:
    """Which models are scripted, for captions; empty where all are models. prompted: whether the prompted policy is
    in what is shown."""
    own = params.configuration
    names = {"agents": own.model, "larger agents": own.larger} | ({"prompted policy": own.prompted} if prompted else {})
    return words.stand_ins(params.llm, names)


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `system.table` with `item` (the question), `seed`, `mille` (dollars per 1,000 questions) and `ms`."""
    more = {
        "item": rows["kind"].astype(str) + "/" + rows["prompt"].astype(str),
        "mille": rows["dollars"] * THOUSAND,
        "ms": rows["seconds"] * THOUSAND,
    }
    return rows.assign(**more, **({} if "seed" in rows else {"seed": 0})).reset_index(drop=True)


def tests_of(results: Results, arm: str, model: str) -> pd.DataFrame:
    """Test rows of an arm with the agents of one model."""
    tests = results.tests
    return prepared(tests[(tests["arm"] == arm) & (tests["model"] == model)])


def by_kind(rows: pd.DataFrame, together: bool = True) -> dict[str, pd.DataFrame]:
    """Rows by kind of question in the order of the lesson, and all of them as `ALL`."""
    there = set(rows["kind"])
    return {kind: rows[rows["kind"] == kind] for kind in KINDS if kind in there} | ({ALL: rows} if together else {})


def named(kind: str) -> str:
    """A kind of question in a sentence."""
    return "all kinds" if kind == ALL else kind


def brief(row: dict[str, Interval]) -> dict[str, Interval]:
    """Means in a wide table: those of BRIEF stand without their interval."""
    return {title: Interval(x.value, math.nan, math.nan) if title in BRIEF else x for title, x in row.items()}
