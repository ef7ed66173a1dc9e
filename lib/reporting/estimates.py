"""Means, paired gaps and quotients of sums of lessons 06 and 07, by `lib.measure`, each as one Interval.

Rows have item and, where there are several runs, seed. What a small study has no rows for is `NOTHING`, an Interval of
nan, which tables show as a dash and metrics leave out.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib import measure
from lib.page.words import NOTHING, within
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
MINE, OTHER = {"arm": "mine"}, {"arm": "other"}


def mean(rows: pd.DataFrame, column: str) -> Interval:
    """Over runs crossed with items; of one run, over items. The ends of a share of right and wrong stay in [0, 1]."""
    if rows.empty:
        return NOTHING
    found = _interval(measure.mean(rows, column))
    return within(found) if set(rows[column].unique()) <= {0, 1} else found


def means(rows: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, Interval]:
    """Of several columns, by their titles."""
    return {title: mean(rows, column) for column, title in columns.items()}


def gap(mine: pd.DataFrame, other: pd.DataFrame, column: str) -> Interval:
    """Mean difference on the items of both; where runs are others, each of mine is held against the others' mean."""
    shared = set(mine["item"]) & set(other["item"])
    mine, other = (rows.loc[rows["item"].isin(shared), ["seed", "item", column]] for rows in (mine, other))
    if mine.empty:
        return NOTHING
    if min(rows["seed"].nunique() for rows in (mine, other)) > 1 and set(mine["seed"]) != set(other["seed"]):
        other = other.groupby("item", as_index=False)[column].mean().assign(seed=0)
    both = pd.concat([mine.assign(**MINE), other.assign(**OTHER)])
    return _interval(measure.gap(both, column, MINE, OTHER))


def gaps(mine: pd.DataFrame, other: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, Interval]:
    """Of several columns, by their titles."""
    return {title: gap(mine, other, column) for column, title in columns.items()}


def ratio(rows: pd.DataFrame, over: str, under: str) -> Interval:
    """Sum of one column over the sum of another, R, with the spread of (over - R under) / mean(under)."""
    if rows.empty or not rows[under].sum():
        return NOTHING
    value, off = _linear(rows, over, under)
    around = mean(off, "off")
    found = Interval(value, value + around.lo, value + around.hi)
    return within(found) if (rows[over] <= rows[under]).all() else found


def ratio_gap(mine: pd.DataFrame, other: pd.DataFrame, over: str, under: str) -> Interval:
    """The difference of two such quotients, inside pairs."""
    if any(rows.empty or not rows[under].sum() for rows in (mine, other)):
        return NOTHING
    (a, mine), (b, other) = (_linear(rows, over, under) for rows in (mine, other))
    around = gap(mine, other, "off")
    return Interval(a - b, a - b + around.lo, a - b + around.hi)


def _linear(rows: pd.DataFrame, over: str, under: str) -> tuple[float, pd.DataFrame]:
    """A quotient of sums, and its rows with what each moves it by."""
    value = float(rows[over].sum() / rows[under].sum())
    return value, rows.assign(off=(rows[over] - value * rows[under]) / rows[under].mean())


def _interval(found: pd.DataFrame) -> Interval:
    return measure.intervals(found).iloc[0]
