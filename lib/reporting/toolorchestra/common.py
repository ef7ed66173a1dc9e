"""What the parts of lesson 06's report share: who is meant by a name, test episodes, means, gaps and intervals.

Orchestrators that are trained have one run per seed; the start and what is only prompted have one run. Intervals of
the former are over seeds and questions, of the latter over questions. A value that cannot be computed, because there
is no such episode, is `NOTHING`, an Interval of nan, which tables show as a dash and metrics leave out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.params import Params
from lib.reporting import backends
from lib.reporting.words import NOTHING, within
from lib.routing.toolorchestra.arms import NAMED
from lib.routing.toolorchestra.study import AGENT, START, Results
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
MILLION, MILLI = 1e6, 1e3
MONEY, TIME = "$ per million questions", "ms per question"
PAPER, PUBLISHED, LENIENT, CORL = "paper", "published", "lenient", "corl"
ARMS = (PAPER, PUBLISHED, LENIENT, CORL)
DRAWS = 1_000  # resamples of ratios and of hypervolumes


def generator(*name: str) -> np.random.Generator:
    """Random numbers of one interval."""
    return seeds.rng("report", "toolorchestra", *name)


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
    return backends.stand_ins(params.llm, params.tools.models)


# Episodes -----------------------------------------------------------------------------------------


def exam(results: Results, arm: str, name: str = "test", offices: bool = False) -> pd.DataFrame:
    """Episodes of one orchestrator on one exam, with `micro`, `own_micro` (dollars per million) and `ms`; without
    office tasks unless asked for."""
    part = results.episodes
    part = part[(part["arm"] == arm) & (part["exam"] == name)]
    part = part if offices else part[part["kind"] != "office"]
    return in_units(part).sort_values(["seed", "item"]).reset_index(drop=True)


def in_units(part: pd.DataFrame) -> pd.DataFrame:
    """Episodes with money in dollars per million and time in milliseconds."""
    more = {"micro": part["dollars"] * MILLION, "own_micro": part["own"] * MILLION, "ms": part["seconds"] * MILLI}
    return part.assign(**more)


def matrix(part: pd.DataFrame, column: str) -> np.ndarray:
    """(seeds, items); (0, 0) where there is no episode."""
    if part.empty:
        return np.zeros((0, 0))
    return part.pivot(index="seed", columns="item", values=column).to_numpy(dtype=float)


def called(part: pd.DataFrame, tools: Iterable[str]) -> pd.Series:
    """How many calls of each episode went to any of these tools."""
    wanted = set(tools)
    return part["called"].str.split().map(lambda names: sum(name in wanted for name in names)).astype(float)


# Means, gaps, ratios ------------------------------------------------------------------------------


def interval(values: np.ndarray, *name: str) -> Interval:
    """The mean of (seeds, items): both are sampled; of one run, questions are. NOTHING for an empty table."""
    if values.size == 0:
        return NOTHING
    if len(values) > 1:
        return stats.crossed_interval(values)
    return stats.mean_interval(values[0], generator(*name))


def share(values: np.ndarray, *name: str) -> Interval:
    """`interval` of shares: no end outside [0, 1]."""
    return within(interval(values, *name))


MEASURES = {"right": "accuracy", "micro": MONEY, "own_micro": "of it its own tokens", "ms": TIME, "calls": "calls"}


def measured(part: pd.DataFrame, *name: str, columns: Iterable[str] = MEASURES) -> dict[str, Interval]:
    """Means of columns of MEASURES by their titles."""
    return {MEASURES[c]: (share if c == "right" else interval)(matrix(part, c), *name, c) for c in columns}


def gap(after: pd.DataFrame, before: pd.DataFrame, column: str, *name: str) -> Interval:
    """Mean difference on the same questions, (seeds, items); one run is held against every seed."""
    a, b = matrix(after, column), matrix(before, column)
    if not a.size or not b.size:
        return NOTHING
    return interval(a - b if len(a) == len(b) else a - b.mean(0, keepdims=True), "gap", *name, column)


def _resampled(runs: int, items: int, *name: str) -> list[np.ndarray]:
    """Shares of runs, (DRAWS + 1, runs), and of items, (DRAWS + 1, items), in every resample; the first is the data."""
    rng = generator("resampled", *name)
    return [drawn_shares(n, rng) for n in (runs, items)]


def drawn_shares(n: int, rng: np.random.Generator) -> np.ndarray:
    """How much each of n counts in every resample, (DRAWS + 1, n); the first row is the data."""
    return np.vstack([np.full(n, 1 / n), rng.multinomial(n, np.full(n, 1 / n), DRAWS) / n])


def around(value: float, drawn: np.ndarray, runs: int) -> Interval:
    """An interval around a value from resamples, which may be biased, with deviations stretched for few runs."""
    drawn = drawn[np.isfinite(drawn)]
    if not math.isfinite(value) or len(drawn) < DRAWS / 2:
        return NOTHING if not math.isfinite(value) else Interval(value, math.nan, math.nan)
    drawn = value + (drawn - drawn.mean()) * (runs / (runs - 1) if runs > 1 else 1.0) ** 0.5
    return Interval(*np.round([value, *np.quantile(drawn, [0.025, 0.975])], 12).tolist())


def _quotients(over: np.ndarray, under: np.ndarray, runs: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Sums of (s, n) over sums of (s, n) in every resample; nan where nothing is below the line."""
    above, below = (np.einsum("dr,ri,di->d", runs, values, items) for values in (over, under))
    return np.divide(above, below, out=np.full(len(above), math.nan), where=below > 0)


def ratio(part: pd.DataFrame, over: str, under: str, *name: str) -> Interval:
    """Sum of one column over the sum of another, such as calls to some tool among all calls."""
    a, b = matrix(part, over), matrix(part, under)
    if not a.size or not b.sum():
        return NOTHING
    found = _quotients(a, b, *_resampled(*a.shape, "ratio", *name, over, under))
    return around(float(found[0]), found[1:], len(a))


def ratio_share(part: pd.DataFrame, over: str, under: str, *name: str) -> Interval:
    """`ratio` of a part and its whole: no end outside [0, 1]."""
    return within(ratio(part, over, under, *name))


def ratio_gap(after: pd.DataFrame, before: pd.DataFrame, over: str, under: str, *name: str) -> Interval:
    """The difference of two such ratios on the same questions, which are resampled together."""
    tables = [matrix(part, column) for part in (after, before) for column in (over, under)]
    if not all(table.size for table in tables) or not tables[1].sum() or not tables[3].sum():
        return NOTHING
    runs, items = _resampled(*tables[0].shape, "ratio gap", *name, over, under)
    theirs = runs if len(tables[2]) == len(tables[0]) else np.full((len(runs), len(tables[2])), 1 / len(tables[2]))
    found = _quotients(tables[0], tables[1], runs, items) - _quotients(tables[2], tables[3], theirs, items)
    return around(float(found[0]), found[1:], len(tables[0]))
