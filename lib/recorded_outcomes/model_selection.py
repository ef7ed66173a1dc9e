"""How anybody's decisions become numbers: parts by whole groups, a choice of the knob on dev, a score on test.

A method is a set of *plays*: what it would do at each of its knobs, item by item. On dev the plays, and each model
alone, span a hull (`stats.hull`); a mixture of two of its corners is what a method may promise for a sum of money.
Its answer at *equal quality* is the cheapest mixture that beats the best constant by a margin on dev, because the best
of many knobs on dev is not the best on test; where none does for less money, it is that constant. Test items see what
dev chose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes.tables import Table, TableError

VERSION = 1  # of choices among plays and their scores
LEVELS = (
    0.05,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
)  # of the best constant's dollars, above the cheapest's: money to promise
EQUAL, HALF = "equal quality", "half the money"


@dataclass(frozen=True)
class Fold:
    """Indices of items: what a method learns from, what knobs are chosen on, and what is scored."""

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Train and dev together: what a method that learns nothing may choose its knob on."""
        return np.concatenate([self.train, self.dev])


@dataclass(frozen=True)
class Plays:
    """What a method does at each knob: expected right and dollars of each item, (k, n); names: (k,)."""

    correct: np.ndarray
    cost_usd: np.ndarray
    names: tuple[str, ...]
    learned: bool = False  # from train, so that train may choose no knob


@dataclass(frozen=True)
class Scored:
    """A method on the items of a table, each while it was held out. right, dollars: (levels, n), at promised money;
    promised: (levels, n), dollars; equal: (2, n), right and dollars at equal quality; picked: names by fold."""

    correct: np.ndarray
    cost_usd: np.ndarray
    promised: np.ndarray
    equal: np.ndarray
    picked: tuple[str, ...]


def parts(table: Table, folds: int, seed: int) -> np.ndarray:
    """The fold of each item, (n,): whole groups, in random order, each into the smallest fold so far.

    Raises TableError for fewer groups than 3 (learn, choose, score), or folds out of range.
    """
    names, at = np.unique(table.groups, return_inverse=True)
    if len(names) < 3:
        raise TableError(
            f"{len(names)} groups cannot be parted into items to learn from, to choose on and to score; "
            "three are the least, more are better"
        )
    if folds < 3:
        raise TableError(f"folds must be at least 3, got {folds}")
    sizes, filled, out = (
        np.bincount(at),
        np.zeros(min(folds, len(names))),
        np.zeros(len(names), dtype=int),
    )
    for group in seeds.rng("outcomes", "parts", table.name, seed=seed).permutation(len(names)):
        out[group] = filled.argmin()
        filled[out[group]] += sizes[group]
    return out[at]


def rotated(of: np.ndarray) -> list[Fold]:
    """Each fold is scored once; the next one chooses knobs, the others are learned from. of: (n,) the folds."""
    many = int(of.max()) + 1
    rows = [np.flatnonzero(of == fold) for fold in range(many)]
    return [
        Fold(
            np.concatenate([rows[i] for i in range(many) if i not in (k, (k + 1) % many)]),
            rows[(k + 1) % many],
            rows[k],
        )
        for k in range(many)
    ]


def alone(table: Table) -> Plays:
    """Each model for every item: the constants, and with the hull their mixtures."""
    return Plays(table.correct.T, table.cost_usd.T, table.models)


def best(table: Table, rows: np.ndarray) -> int:
    """The best constant on `rows`: the model that is right most often, of equals the cheaper."""
    correct, cost_usd = table.correct[rows].mean(0), table.cost_usd[rows].mean(0)
    return int(np.lexsort((cost_usd, -np.round(correct, 12)))[0])


def constants(table: Table, folds: Sequence[Fold]) -> np.ndarray:
    """Right and dollars, (2, n), of the constant that was best on the items that are known of each fold."""
    out = np.full((2, len(table)), np.nan)
    for fold in folds:
        top = best(table, fold.known)
        out[:, fold.test] = table.correct[fold.test, top], table.cost_usd[fold.test, top]
    return out


def promises(table: Table, rows: np.ndarray) -> np.ndarray:
    """Dollars per item that are promised, (levels,): from the cheapest model's mean to the best one's on `rows`."""
    cost_usd = table.cost_usd[rows].mean(0)
    least, most = cost_usd.min(), cost_usd[best(table, rows)]
    return least + np.array(LEVELS) * (most - least)


def scored(
    table: Table, folds: Sequence[Fold], plays: Sequence[Plays], min_dev_gain: float
) -> Scored:
    """What the mixtures that dev chooses among a method's plays, and constants, do on test.

    plays: one per fold; min_dev_gain: accuracy by which the best constant must be beaten on dev, for less money, for
    another to replace it.
    """
    n, levels = len(table), len(LEVELS)
    correct, cost_usd, promised = (np.full((levels, n), np.nan) for _ in range(3))
    equal, picked, constants = np.full((2, n), np.nan), [], alone(table)
    for fold, own in zip(folds, plays, strict=True):
        rows, test = fold.dev if own.learned else fold.known, fold.test
        menu = _joined(own, constants)
        corners = _corners(menu, rows)
        for level, budget in enumerate(promises(table, fold.known)):
            promised[level, test] = budget
            correct[level, test], cost_usd[level, test] = _mixed(menu, corners.at(budget), test)
        top = best(table, fold.known)
        wanted = table.correct[rows, top].mean() + min_dev_gain
        kept = {len(menu.names) - len(table.models) + top: 1.0}  # the constant itself
        weights = corners.reaching(wanted) if corners.correct[-1] >= wanted else kept
        if _mixed(menu, weights, rows)[1].mean() > table.cost_usd[rows, top].mean():
            weights = kept
        equal[:, test] = _mixed(menu, weights, test)
        picked.append(menu.names[max(weights, key=weights.get)])
    return Scored(correct, cost_usd, promised, equal, tuple(picked))


def _joined(own: Plays, constants: Plays) -> Plays:
    stacked = (
        np.vstack([a, b])
        for a, b in ((own.correct, constants.correct), (own.cost_usd, constants.cost_usd))
    )
    return Plays(*stacked, (*own.names, *constants.names))


@dataclass(frozen=True)
class Corners:
    """The hull on dev: knobs, with their mean dollars and right, by rising dollars."""

    knobs: np.ndarray
    cost_usd: np.ndarray
    correct: np.ndarray

    def at(self, budget: float) -> dict[int, float]:
        """Weights of knobs whose mixture costs at most `budget` on dev."""
        if budget >= self.cost_usd[-1] or len(self.knobs) == 1:
            return {int(self.knobs[-1]): 1.0}
        after = max(1, int(np.searchsorted(self.cost_usd, budget, side="right")))
        share = (self.cost_usd[after] - budget) / (self.cost_usd[after] - self.cost_usd[after - 1])
        return self._two(after, min(share, 1.0))

    def reaching(self, quality: float) -> dict[int, float]:
        """Weights of the cheapest mixture that is as right as `quality` on dev."""
        after = int(np.searchsorted(self.correct, quality - 1e-12))
        if after == 0:
            return {int(self.knobs[0]): 1.0}
        return self._two(
            after, (self.correct[after] - quality) / (self.correct[after] - self.correct[after - 1])
        )

    def _two(self, after: int, share: float) -> dict[int, float]:
        weights = {int(self.knobs[after - 1]): share, int(self.knobs[after]): 1 - share}
        return {knob: weight for knob, weight in weights.items() if weight > 0}


def _corners(menu: Plays, rows: np.ndarray) -> Corners:
    cost_usd, correct = menu.cost_usd[:, rows].mean(1), menu.correct[:, rows].mean(1)
    knobs = stats.hull(cost_usd, correct)
    return Corners(knobs, cost_usd[knobs], correct[knobs])


def _mixed(
    menu: Plays, weights: dict[int, float], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Expected right and dollars of a mixture on `rows`, (k,) each: the coin is averaged over."""
    return tuple(
        sum(weight * values[knob, rows] for knob, weight in weights.items())
        for values in (menu.correct, menu.cost_usd)
    )


def frame(table: Table, found: Scored, method: str, role: str) -> pd.DataFrame:
    """Rows for `lib.experiment.results_table`: at equal quality, and at half of the best constant's money. right may
    be a share, that of a coin's outcomes."""
    half = LEVELS.index(0.5)
    made = {EQUAL: found.equal, HALF: np.stack([found.correct[half], found.cost_usd[half]])}
    common = {
        "method": method,
        "role": role,
        "backend": "replay",
        "split": "test",
        "item": table.items,
        "group": table.name,
        "context": table.groups,
    }
    return pd.concat(
        [
            pd.DataFrame(common | {"condition": name, "correct": correct, "cost_usd": cost_usd})
            for name, (correct, cost_usd) in made.items()
        ],
        ignore_index=True,
    )


def over_partings(found: stats.Interval, values: Sequence[float] | np.ndarray) -> stats.Interval:
    """An interval over items, with what it adds that items are parted by lot. values: (R,), the estimate of each
    parting; their mean varies by their variance / R beside the items, and half-widths of independent parts add as
    squares. One parting, of which that is not known, leaves the interval as it is."""
    if len(values) < 2 or not found.known:
        return found
    lot = stats.t_interval(np.asarray(values, dtype=float))
    lot = (lot.ci_high - lot.ci_low) / 2
    return stats.Interval(
        found.value,
        found.value - float(np.hypot(found.value - found.ci_low, lot)),
        found.value + float(np.hypot(found.ci_high - found.value, lot)),
    )


def curve_height(correct: np.ndarray, cost_usd: np.ndarray, low: float, high: float) -> np.ndarray:
    """AIQ of curves as they are (RouterBench, section 3, without a new hull, which would choose on test): the mean
    height between two sums of money, of means (levels,) or of many resamples (draws, levels)."""
    correct, cost_usd = np.atleast_2d(correct), np.atleast_2d(cost_usd)
    if not high > low:  # one price for all: the curve is a point
        return correct.max(1)
    grid = np.linspace(low, high, 101)
    heights = []
    for y, x in zip(correct, cost_usd, strict=True):
        order = np.argsort(x, kind="stable")
        heights.append(np.trapezoid(np.interp(grid, x[order], y[order]), grid) / (high - low))
    return np.array(heights)


def aiq_gap(
    table: Table, ours: Sequence[Scored], theirs: Sequence[Scored], draws: int
) -> stats.Interval:
    """AIQ of a method less that of another, both between the dollars of the cheapest and of the best constant, with an
    interval over groups of items (bootstrap of whole groups) and partings, which are averaged inside an item."""
    means = [
        [
            np.mean([getattr(each, name) for each in side], axis=0)
            for name in ("correct", "cost_usd")
        ]
        for side in (ours, theirs)
    ]
    n, every = len(table), np.arange(len(table))
    low, high = promises(table, every)[0], promises(table, every)[-1]
    names, at = np.unique(table.groups, return_inverse=True)
    rng, count = seeds.rng("outcomes", "aiq", table.name), len(names)
    weights = np.vstack(
        [np.ones(n), rng.multinomial(count, np.full(count, 1 / count), size=draws)[:, at]]
    )
    weights = weights / weights.sum(1, keepdims=True)
    own, other = (curve_height(weights @ q.T, weights @ c.T, low, high) for q, c in means)
    gaps = own - other
    found = stats.Interval(float(gaps[0]), *map(float, np.quantile(gaps[1:], [0.025, 0.975])))
    heights = (
        [curve_height(e.correct.mean(1), e.cost_usd.mean(1), low, high)[0] for e in side]
        for side in (ours, theirs)
    )
    return over_partings(found, np.subtract(*heights))
