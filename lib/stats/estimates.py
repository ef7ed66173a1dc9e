"""Estimates from records: means, paired gaps, ratios, changes, distances to mixtures; one rule for all intervals.

Every function takes rows of a record (`lib.experiment.results_table`), the column that is measured and the columns
`by` which estimates are wanted, and returns a frame with that index: value, ci_low and ci_high (95 %), num_runs,
num_items, p_value (of no effect) and mde (the minimum detectable effect, with 80 % power). A unit is one seed x item x
sample; samples of one item are averaged, differences are taken inside a unit. One number has one interval wherever it
is shown: nothing is drawn at random but in `statistic`, whose stream is named by the quantity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.experiment.results_table import where
from lib.stats import random_effects
from lib.stats.cost_curves import hull
from lib.stats.intervals import DRAWS, Interval

By = str | Sequence[str]
KEYS = ["seed", "item", "sample"]
COLUMNS = ["value", "ci_low", "ci_high", "num_runs", "num_items", "p_value", "mde"]


def mean(rows: pd.DataFrame, column: str, by: By = (), pool: bool = False) -> pd.DataFrame:
    """Means of a column over seeds crossed with items, over seeds whose items are their own, or over one run's items.

    pool: take the variances of all groups for equal (methods that are alike), which few seeds profit from.
    """
    parts = [(name, _units(part, column)) for name, part in _groups(rows, by)]
    spreads = [_spread(units, column) for _, units in parts]
    if pool and len(spreads) > 1:
        spreads = random_effects.pooled(spreads)
    found = [
        _bounded(spread.row(), units) for (_, units), spread in zip(parts, spreads, strict=True)
    ]
    return _frame([name for name, _ in parts], found, by)


def gap(
    rows: pd.DataFrame, column: str, of: Mapping, against: Mapping, by: By = ()
) -> pd.DataFrame:
    """Means of (of - against) inside pairs. of, against: conditions such as {"method": "RO"}."""
    return _paired(rows, by, lambda part: _difference(part, column, of, against), column)


def change(
    rows: pd.DataFrame,
    column: str,
    before: Mapping,
    after: Mapping,
    by: By = (),
    against: Mapping | None = None,
) -> pd.DataFrame:
    """What training changed, (after - before) inside pairs; with `against` less what it changed there: a difference in
    differences, in which what the start already did is subtracted.

    before, after: conditions such as {"role": "start"}; against: of the rows to be compared with, such as
    {"method": "random"}; the others are then those that `against` does not take.
    """

    def one(part: pd.DataFrame) -> pd.Series:
        if against is None:
            return _difference(part, column, after, before)
        control = where(part, **against)
        own = _difference(part.drop(control.index), column, after, before)
        return _aligned(own, _difference(control, column, after, before), column)

    return _paired(rows, by, one, column)


def ratio(
    rows: pd.DataFrame, column: str, of: Mapping, against: Mapping, by: By = ()
) -> pd.DataFrame:
    """Ratios r = mean(of) / mean(against) of a positive column, by the delta method on logarithms:

        log r is estimated with the spread of (of / mean(of) - against / mean(against)), taken inside pairs.

    p_value is that of r = 1, mde the smallest change of log r. Raises ValueError where a mean is not above 0.
    """
    names, found = [], []
    for name, part in _groups(rows, by):
        top, bottom = (_units(where(part, **condition), column) for condition in (of, against))
        sizes = [_spread(units, column).value for units in (top, bottom)]
        if min(sizes) <= 0:
            raise ValueError(
                f"a ratio of {column!r} needs means above 0, got {sizes[0]:g} and {sizes[1]:g}"
            )
        relative = _spread(_aligned(top / sizes[0], bottom / sizes[1], column), column)
        log = replace(relative, value=float(np.log(sizes[0] / sizes[1]))).row()
        names.append(name)
        found.append(log | {end: float(np.exp(log[end])) for end in ("value", "ci_low", "ci_high")})
    return _frame(names, found, by)


def above_mixtures(
    rows: pd.DataFrame, quality: str, cost: str, of: Mapping, among: Mapping, by: By = ()
) -> pd.DataFrame:
    """How far the quality of one selection lies above what tossing coins between others buys at its cost.

    among: the rows whose methods are mixed, such as {"role": "expert"}. The hull of their means gives, at the cost of
    `of`, two neighbours a and b with weights w and 1 - w and a slope m; to first order the distance is the mean of

        (q_of - m c_of) - w (q_a - m c_a) - (1 - w) (q_b - m c_b)

    taken inside pairs. Beyond the dearest method the best stands alone. Raises ValueError where `of` is cheaper than
    all.
    """

    def one(part: pd.DataFrame) -> pd.Series:
        own, others = where(part, **of), where(part, **among)
        shares, slope = _mixture(own, others, quality, cost)
        net = _units(own.assign(net=own[quality] - slope * own[cost]), "net")
        for method, weight in shares.items():
            paid = others[others["method"] == method].assign(
                net=lambda rest: rest[quality] - slope * rest[cost]
            )
            net = _aligned(net, weight * _units(paid, "net"), quality)
        return net

    return _paired(rows, by, one, quality)


def _mixture(
    own: pd.DataFrame, others: pd.DataFrame, quality: str, cost: str
) -> tuple[dict[str, float], float]:
    """The methods of the hull between which the cost of `own` lies, with their weights, and the hull's slope there."""
    means = others.groupby("method", sort=False)[[cost, quality]].mean()
    corners = means.iloc[hull(means[cost].to_numpy(), means[quality].to_numpy())]
    at = float(own[cost].mean())
    if at < corners[cost].iloc[0]:
        raise ValueError(
            f"{cost} {at:g} is below that of every method of the mixtures ({corners[cost].iloc[0]:g})"
        )
    place = int(np.searchsorted(corners[cost].to_numpy(), at, side="right"))
    if place == len(corners):  # dearer than all: the best alone
        return {corners.index[-1]: 1.0}, 0.0
    (c_a, q_a), (c_b, q_b) = corners.iloc[place - 1], corners.iloc[place]
    weight = (c_b - at) / (c_b - c_a)
    return {corners.index[place - 1]: weight, corners.index[place]: 1 - weight}, (q_b - q_a) / (
        c_b - c_a
    )


def share(rows: pd.DataFrame, column: str, least: float, by: By = ()) -> pd.DataFrame:
    """Share of seeds whose mean of a column is at least `least`, with Clopper and Pearson's exact interval: what to
    report where results have two modes and a mean lies where no run does."""
    names, found = [], []
    for name, part in _groups(rows, by):
        means = part.groupby("seed")[column].mean()
        hits = int((means >= least).sum())
        ci_low, ci_high = random_effects.exact_share(hits, len(means))
        names.append(name)
        found.append(
            random_effects._row(
                hits / len(means),
                ci_low,
                ci_high,
                len(means),
                part["item"].nunique(),
                np.nan,
                np.nan,
            )
        )
    return _frame(names, found, by)


def statistic(
    rows: pd.DataFrame, columns: Sequence[str], function: Callable[[np.ndarray], float], by: By = ()
) -> pd.DataFrame:
    """A number that is no mean, such as a hypervolume: `function` of each seed's rows (n, k), with Student's interval
    over seeds, or of one run's with a bootstrap over its rows, from a stream named by function, columns and group."""
    names, found = [], []
    for name, part in _groups(rows, by):
        by_seed = [group[list(columns)].to_numpy(dtype=float) for _, group in part.groupby("seed")]
        values = np.array([function(points) for points in by_seed])
        row = random_effects.sample(values, "runs", len(values), part["item"].nunique()).row()
        if len(values) == 1:
            rng = seeds.rng(
                "measure", getattr(function, "__name__", "statistic"), *columns, *map(str, name)
            )
            points = by_seed[0]
            drawn = [
                function(points[rng.integers(len(points), size=len(points))])
                for _ in range(DRAWS // 4)
            ]
            row |= dict(
                zip(
                    ("ci_low", "ci_high"),
                    map(float, np.quantile(drawn, [0.025, 0.975])),
                    strict=True,
                )
            )
        names.append(name)
        found.append(row)
    return _frame(names, found, by)


def intervals(estimates: pd.DataFrame) -> pd.Series:
    """Estimates as one column of `Interval`, to stand beside others in a table."""
    held = [
        Interval(*map(float, ends))
        for ends in estimates[["value", "ci_low", "ci_high"]].itertuples(index=False)
    ]
    return pd.Series(held, index=estimates.index, dtype=object)


# From rows to numbers ------------------------------------------------------------------------------


def _groups(rows: pd.DataFrame, by: By) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """(name, rows) of each group, in the order in which they appear."""
    by = _names(by)
    if rows.empty:
        raise ValueError("there are no rows to measure; is a condition misspelled?")
    yield from rows.groupby(by, sort=False, observed=True) if by else [((), rows)]


def _names(by: By) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def _units(rows: pd.DataFrame, column: str) -> pd.Series:
    """The column by seed, item and try. Raises ValueError for a unit that stands there twice, or without a value."""
    if rows.empty:
        raise ValueError(f"no rows to measure {column!r} on; is a condition misspelled?")
    rows = rows.assign(
        **{key: 0 for key in ("seed", "sample") if key not in rows}
    )  # one run, one try
    units = rows.set_index(KEYS)[column].astype(float)
    if units.isna().any():
        raise ValueError(f"{column!r} is missing in {int(units.isna().sum())} of {len(units)} rows")
    if units.index.has_duplicates:
        twice = units.index[units.index.duplicated()][0]
        raise ValueError(
            f"{column!r}: seed, item, try {twice} stands there twice; choose a method or group by it"
        )
    return units


def _difference(rows: pd.DataFrame, column: str, of: Mapping, against: Mapping) -> pd.Series:
    return _aligned(
        *(_units(where(rows, **conditions), column) for conditions in (of, against)), column
    )


def _aligned(a: pd.Series, b: pd.Series, column: str) -> pd.Series:
    """a - b inside pairs of seed, item and try; of one run that all others share, inside item and try."""
    if a.index.equals(b.index):
        return a - b
    seeds_a, seeds_b = (x.index.get_level_values("seed").unique() for x in (a, b))
    if len(seeds_b) == 1 < len(seeds_a):
        b = b.droplevel("seed").reindex(a.index.droplevel("seed"))
        b.index = a.index
    elif len(seeds_a) == 1 < len(seeds_b):
        return -_aligned(b, a, column)
    if set(a.index) - set(b.index) or b.isna().any():
        raise ValueError(
            f"{column!r}: {len(set(a.index) - set(b.index)) or int(b.isna().sum())} units have no partner"
        )
    return a - b.reindex(a.index)


def _spread(units: pd.Series, column: str) -> random_effects.Spread:
    """The design of the units: crossed, runs with items of their own, or one run. Tries of an item are averaged."""
    of_run, of_item = (np.asarray(units.index.codes[level], dtype=np.int64) for level in (0, 1))
    runs, items = int(of_run.max()) + 1, int(of_item.max()) + 1
    counts, sums = (
        np.bincount(of_run * items + of_item, weights, runs * items).reshape(runs, items)
        for weights in (None, units.to_numpy())
    )
    held = counts > 0
    grid = np.divide(sums, counts, where=held, out=np.zeros_like(sums))
    if runs == 1:
        return random_effects.sample(grid[0], "items", 1, items)
    if held.all() and items > 1:
        return random_effects.crossed(grid)
    if items > 1 and (held.sum(0) > 1).any():
        raise ValueError(
            f"{column!r}: some runs share items, others do not; take all of them, or name items by run"
        )
    return random_effects.sample(grid.sum(1) / held.sum(1), "runs", runs, items)


def _bounded(row: dict[str, float], units: pd.Series) -> dict[str, float]:
    """A mean of one run's rights and wrongs has the exact interval of a share."""
    if (
        row["num_runs"] == 1
        and row["num_items"] == len(units)
        and set(units.unique()) <= {0.0, 1.0}
    ):
        ci_low, ci_high = random_effects.exact_share(int(units.sum()), len(units))
        return row | {"ci_low": ci_low, "ci_high": ci_high}
    return row


def _paired(
    rows: pd.DataFrame, by: By, one: Callable[[pd.DataFrame], pd.Series], column: str
) -> pd.DataFrame:
    names, found = [], []
    for name, part in _groups(rows, by):
        names.append(name)
        found.append(_spread(one(part), column).row())
    return _frame(names, found, by)


def _frame(names: Sequence[Any], found: Sequence[dict[str, float]], by: By) -> pd.DataFrame:
    by = _names(by)
    frame = pd.DataFrame(list(found), columns=COLUMNS).astype({"num_runs": int, "num_items": int})
    if not by:
        return frame
    names = [name if isinstance(name, tuple) else (name,) for name in names]
    return frame.set_axis(
        pd.MultiIndex.from_tuples(names, names=by)
        if len(by) > 1
        else pd.Index([name[0] for name in names], name=by[0])
    )
