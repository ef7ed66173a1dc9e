"""What the parts of lesson 07's report share: who is meant by a name, test rows, means, gaps and ratios.

What is trained, and random choices, have one run per seed; their intervals are over seeds and questions. What is
searched or prompted has one run; its intervals are over questions. A value that cannot be computed, because there is
no such row, is `NOTHING`, an Interval of nan, which tables show as a dash and metrics leave out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.configuration import questions
from lib.configuration.arms import NAMED, TESTED
from lib.configuration.study import Results
from lib.params import Params
from lib.reporting import backends
from lib.reporting.words import NOTHING, number, within
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
PAPER, PLAIN, DPO, GRPO = "arc", "arc_no_sft", "arc_dpo", "grpo"  # arms
ALL = "all"  # kinds together
KINDS = tuple(kind.name for kind in questions.KINDS)
PROMPTED = ("zero_shot", "few_shot")
THOUSAND = 1e3
MONEY, TIME = "$ per 1,000 questions", "ms per question"
MEASURES = {
    "right": "accuracy", "reward": "reward", "tokens": "tokens", "mille": MONEY, "ms": TIME, "used": "tools used",
}  # fmt: skip
DIGITS = {"accuracy": 2, "reward": 2, "tokens": 1, MONEY: 2, TIME: 1, "tools used": 2}
BRIEF = ("tokens", TIME, "tools used")  # told without intervals where a table would be too wide
DRAWS = 2_000  # resamples


def generator(*name: str) -> np.random.Generator:
    """Random numbers of one interval."""
    return seeds.rng("report", "configuration", *name)


def label(arm: str, params: Params | None = None) -> str:
    """How an arm is called; with the parameters, a prompted policy that is a program is called a stand-in."""
    name = TESTED[arm] if arm in TESTED else NAMED[arm].label if arm in NAMED else arm
    if params is None or arm not in PROMPTED:
        return name
    scripted = params.llm.models[params.configuration.prompted].backend == "scripted"
    return f"{name} (scripted stand-in)" if scripted else name


def stand_ins(params: Params, prompted: bool = True) -> str:
    """Which models are scripted, for captions; empty where all are models. prompted: whether the prompted policy is
    in what is shown."""
    own = params.configuration
    names = {"agents": own.model, "larger agents": own.larger} | ({"prompted policy": own.prompted} if prompted else {})
    return backends.stand_ins(params.llm, names)


# Rows ---------------------------------------------------------------------------------------------


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


def alias(part: pd.DataFrame) -> str:
    """A constant's own name, so that one that was found in two ways has one interval; otherwise the arm's."""
    alone = part["digest"].nunique() == 1 and part["seed"].nunique() == 1
    return part["digest"].iloc[0] if alone else part["arm"].iloc[0]


def kinds_of(rows: pd.DataFrame) -> list[str]:
    """The kinds of question that are there, in the order of the lesson."""
    there_ = set(rows["kind"])
    return [kind for kind in KINDS if kind in there_]


def named(kind: str) -> str:
    """A kind of question in a sentence."""
    return "all kinds" if kind == ALL else kind


class Square:
    """Rows as tables of runs by items, without items that some run lacks. run: the column that tells runs apart."""

    def __init__(self, part: pd.DataFrame, run: str = "seed") -> None:
        self.part = part
        self._run, self.runs = pd.factorize(part[run], sort=True)
        self._item, items = pd.factorize(part["item"], sort=True)
        there_ = np.zeros((len(self.runs), len(items)), bool)
        there_[self._run, self._item] = True
        self.whole = there_.all(0)
        self.items = np.asarray(items)[self.whole]

    def __call__(self, column: str) -> np.ndarray:
        """(runs, items) of a column; (0, 0) where there is no row."""
        found = np.zeros((len(self.runs), len(self.whole)))
        found[self._run, self._item] = self.part[column].to_numpy(float)
        return found[:, self.whole]


def matrix(part: pd.DataFrame, column: str, run: str = "seed") -> np.ndarray:
    """One column as (runs, items)."""
    return Square(part, run)(column)


# Means, gaps, ratios ------------------------------------------------------------------------------


def interval(values: np.ndarray, *name: str) -> Interval:
    """The mean of (runs, items): both are sampled; of one run, items are. NOTHING for an empty table."""
    if values.size == 0:
        return NOTHING
    if len(values) > 1:
        return stats.crossed_interval(values)
    return stats.mean_interval(values[0], generator(*name))


def share(values: np.ndarray, *name: str) -> Interval:
    """`interval` of shares: no end outside [0, 1]."""
    return within(interval(values, *name))


def measured(part: pd.DataFrame, *name: str, columns: Iterable[str] = MEASURES) -> dict[str, Interval]:
    """Means of columns of MEASURES by their titles."""
    told = Square(part)
    return {MEASURES[c]: (share if c == "right" else interval)(told(c), *name, c) for c in columns}


def cell(title: str, found: Interval) -> str:
    """A mean in a wide table: a title of BRIEF stands without its interval."""
    return number(Interval(found.value, math.nan, math.nan) if title in BRIEF else found, DIGITS[title])


def gap(mine: pd.DataFrame, other: pd.DataFrame, column: str, *name: str) -> Interval:
    """Mean difference of one column on the same questions."""
    return gaps(mine, other, [column], *name)[column]


def gaps(mine: pd.DataFrame, other: pd.DataFrame, columns: Iterable[str], *name: str) -> dict[str, Interval]:
    """Mean differences on the same questions; where the numbers of runs differ, every run of the one is held against
    the mean of the other."""
    a, b = Square(mine), Square(other)
    both, left, right = np.intersect1d(a.items, b.items, assume_unique=True, return_indices=True)
    if not len(both):
        return dict.fromkeys(columns, NOTHING)
    return {c: _gap(a(c)[:, left], b(c)[:, right], generator("gap", *name, c)) for c in columns}


def _gap(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Interval:
    """Of (runs, items) and (other runs, items)."""
    if len(a) != len(b):
        a, b = (a.mean(0, keepdims=True), b) if len(a) == 1 else (a, b.mean(0, keepdims=True))
    if max(len(a), len(b)) > 1:
        return stats.crossed_interval(a - b)
    return stats.paired_difference(a[0], b[0], rng)


def apart(a: np.ndarray, b: np.ndarray, *name: str) -> Interval:
    """Mean of a (r, n) minus that of b (s, n): the same questions, but rows (configurations) that have nothing in
    common. All three are resampled; of a single row, questions alone."""
    if not a.size or not b.size:
        return NOTHING
    rng = generator("apart", *name)
    items = _weights(a.shape[1], rng)
    sums = [np.einsum("dr,ri,di->d", _weights(len(x), rng), x, items, optimize=True) for x in (a, b)]
    ends = np.quantile(sums[0] - sums[1], [0.025, 0.975])
    return Interval(*np.round([a.mean() - b.mean(), *ends], 12).tolist())  # equal rows differ by nothing


def _weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """How much each of n counts in every resample, (DRAWS, n), with deviations stretched by sqrt(n / (n - 1))."""
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n
    return 1 / n + (n / max(n - 1, 1)) ** 0.5 * (drawn - 1 / n)


def ratio(over: np.ndarray, under: np.ndarray, *name: str) -> Interval:
    """Sum of one (runs, items) over the sum of another, with the interval of its linearisation, (over - R under) / mean
    of under. NOTHING where there is nothing below the line."""
    if not under.size or not under.sum():
        return NOTHING
    value = float(over.sum() / under.sum())
    off = interval((over - value * under) / under.mean(), "ratio", *name)
    return Interval(value, value + off.lo, value + off.hi)
