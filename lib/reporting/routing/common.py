"""What the parts of lesson 05's report share: who is meant by a name, test episodes, means and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.page import tables
from lib.reporting.words import within
from lib.routing import baselines
from lib.routing.arms import NAMED
from lib.routing.baselines import Tried
from lib.routing.study import Results
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
MILLION = 1e6
NO_LIMIT = 1.0  # dollars a question; a budget of as much or more is called no limit
DRAWS = 2_000  # resamples
MONEY = "$ per million questions"
MEASURES = {
    "right": "accuracy", "reward": "reward", "dollars": MONEY, "violations": "above budget", "calls": "calls",
    "dear calls": "calls to the dearest expert",
}  # fmt: skip


def generator(*name: str) -> np.random.Generator:
    """Random numbers of one interval."""
    return seeds.rng("report", "routing", *name)


def label(arm: str) -> str:
    """How an arm is called in figures and tables."""
    return NAMED[arm].label if arm in NAMED else arm


listed = partial(tables.listed, nothing="none of the budgets")  # budgets in a sentence


def clear(gaps: Mapping[str, Interval], above: bool = True) -> list[str]:
    """Where a difference is clearly above 0, or clearly below."""
    return [name for name, gap in gaps.items() if gap.excludes(0) and (gap.value > 0) == above]


def counted(frame: pd.DataFrame, experts: Sequence[str]) -> pd.DataFrame:
    """Calls to each expert, and whether there was any, as columns."""
    names = frame["called"].str.split()
    counts = {expert: names.map(lambda called, e=expert: called.count(e)).astype(float) for expert in experts}
    return frame.assign(**counts, **{"any": (frame["calls"] > 0).astype(float)})


def tests_of(results: Results, arm: str, style: str | None = None, drawn: bool = False) -> pd.DataFrame:
    """Test episodes at the temperature of tests, or (`drawn`) of training: the lower one, or the higher."""
    part = results.episodes[results.episodes["arm"] == arm]
    heats = part["temperature"]
    part = part[heats == (heats.max() if drawn else heats.min())]
    return part if style is None else part[part["style"] == style]


def matrix(part: pd.DataFrame, column: str) -> np.ndarray:
    """(seeds, items)."""
    return part.pivot(index="seed", columns="item", values=column).to_numpy(dtype=float)


def measured(part: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Episodes with the columns of MEASURES, dollars per million."""
    dearest = list(results.budgets.calls)[-1]
    return part.assign(
        **{
            "violations": 1 - part["within"],
            "dollars": part["dollars"] * MILLION,
            "dear calls": part["called"].str.split().map(lambda called: called.count(dearest)).astype(float),
        }
    )


def by_budget(results: Results, arm: str, style: str | None = None, drawn: bool = False) -> Rows:
    """Every measure of test episodes by budget, with intervals over seeds and questions (or questions, for one run)."""
    part = measured(tests_of(results, arm, style, drawn), results)
    rows: Rows = {}
    for word, mine in part.groupby("label", sort=False):
        kinds = {c: share if c in ("right", "reward", "violations") else interval for c in MEASURES}
        rows[word] = {c: kinds[c](matrix(mine, c), arm, str(style), word, c) for c in MEASURES}
    return rows


def interval(values: np.ndarray, *name: str) -> Interval:
    """Of (seeds, items): both are sampled; of one run, questions are."""
    if len(values) > 1:
        return stats.crossed_interval(values)
    return stats.mean_interval(values[0], generator(*name))


def share(values: np.ndarray, *name: str) -> Interval:
    """`interval` of shares: no end outside [0, 1]."""
    return within(interval(values, *name))


def known(results: Results, split: str) -> Tried:
    """What strategies made of one part of the questions."""
    return baselines.tried_on(results.experts, results.alone, split, list(results.budgets.calls))


def gap_to_mixtures(
    right: np.ndarray, dollars: np.ndarray, others_right: np.ndarray, others_dollars: np.ndarray, *name: str
) -> Interval:
    """Mean of right (s, n) minus the best blind mixture of others (n, m) at the mean of dollars (s, n).

    The interval is over seeds and questions, the mixtures resampled along. Where even the cheapest of them costs
    more, it is that one.
    """
    (s, n), rng = right.shape, generator("gap", *name)

    def gaps(runs: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Of resamples (k, s) and (k, n), given as shares of each run and question: a matrix is quicker than a loop."""
        costs, qualities = items @ others_dollars, items @ others_right
        cost = np.maximum(((runs @ dollars) * items).sum(1), costs.min(1))
        return ((runs @ right) * items).sum(1) - stats.mixtures_at(costs, qualities, cost)

    value = float(gaps(np.full((1, s), 1 / s), np.full((1, n), 1 / n))[0])
    shares = (rng.multinomial(size, np.full(size, 1 / size), DRAWS) / size for size in (s, n))
    drawn = gaps(*shares)
    # around the value, for the best of resampled mixtures is too good; and all deviations stretched as those of the
    # seeds have to be (Rao and Wu 1988), which is more than the questions ask for
    drawn = value + (drawn - drawn.mean()) * (s / (s - 1) if s > 1 else 1.0) ** 0.5
    ends = np.quantile(drawn, [0.025, 0.975])
    return Interval(*np.round([value, *ends], 12).tolist())  # sums in another order are no difference
