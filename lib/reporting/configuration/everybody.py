"""Everybody who was tested on the same questions, with means and intervals, for all tables of lesson 07.

The best constant, and the best of each kind, are chosen on training questions from all configurations that were tried
there. The oracle takes, afterwards, the best of all that anybody tried or chose on each test question.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lib.configuration import baselines
from lib.configuration.arms import TESTED
from lib.configuration.search import BASE
from lib.configuration.study import Results
from lib.page.words import NOTHING
from lib.params import Params
from lib.reporting.configuration import common
from lib.reporting.configuration.common import ALL, MEASURES, PAPER
from lib.reporting.estimates import Rows, gaps, means
from lib.stats import Interval

ORACLE, CONSTANT, BY_KIND = "oracle", "best_constant", "by_kind"
BY_KINDS = {column: MEASURES[column] for column in ("right", "reward", "tokens", "mille")}  # told kind by kind
BOUND = f"{TESTED[ORACLE]}, in hindsight"


@dataclass(frozen=True)
class Everybody:
    """All arms on the test questions of the agents' model. tests: their rows with arm and seed; labels: how each arm is
    called, stand-ins as such; rows: means by arm, by kind of question or `ALL`, by measure; gaps: ARC minus each other
    arm on the same questions, by measure."""

    tests: pd.DataFrame
    labels: dict[str, str]
    rows: dict[str, Rows]
    gaps: dict[str, dict[str, Interval]]

    @property
    def arms(self) -> list[str]:
        return list(self.rows)

    def of(self, arm: str, kind: str = ALL) -> pd.DataFrame:
        """Test rows of an arm."""
        keep = self.tests["arm"] == arm
        return self.tests[keep if kind == ALL else keep & (self.tests["kind"] == kind)]

    def mean(self, arm: str, measure: str = "accuracy", kind: str = ALL) -> Interval:
        """One cell of the table; NOTHING for what was not tested."""
        return self.rows.get(arm, {}).get(kind, {}).get(measure, NOTHING)

    def minus(self, arm: str, base: str) -> dict[str, Interval]:
        """One arm minus another on the same questions, by measure."""
        return gaps(self.of(arm), self.of(base), MEASURES)


def everybody(results: Results, params: Params) -> Everybody:
    """All of `arms.TESTED` that this study has, in that order."""
    searched, parts, model = results.searched, [], params.configuration.model
    climbed = common.tests_of(results, "greedy", model)
    paid = float(results.greedy["reward"].iloc[-1]) if len(results.greedy) else float("-inf")
    base = (searched["digest"] == BASE.digest) & (searched["set"] == "sampled") & (searched["split"] == "test")
    untrained = {
        "base": lambda: searched[base], "grid": lambda: baselines.constant(searched, "grid"),
        CONSTANT: lambda: baselines.best_constant(searched, climbed, paid),
        BY_KIND: lambda: baselines.by_kind(searched),
        ORACLE: lambda: baselines.oracle(searched[searched["split"] == "test"], *parts).assign(seed=0),
    }  # fmt: skip
    for arm in TESTED:
        rows = common.prepared(untrained[arm]()) if arm in untrained else common.tests_of(results, arm, model)
        if len(rows):
            parts.append(rows.assign(arm=arm))
    tests = pd.concat(parts, ignore_index=True)
    arms = {arm: part for arm, part in tests.groupby("arm", sort=False)}
    labels = {arm: common.label(arm, params) for arm in arms} | ({ORACLE: BOUND} if ORACLE in arms else {})
    rows = {arm: _means(part) for arm, part in arms.items()}
    mine = arms.get(PAPER, tests[:0])
    less = {other: gaps(mine, part, MEASURES) for other, part in arms.items() if other != PAPER}
    return Everybody(tests, labels, rows, less)


def _means(part: pd.DataFrame) -> Rows:
    return {kind: means(some, MEASURES if kind == ALL else BY_KINDS) for kind, some in common.by_kind(part).items()}
