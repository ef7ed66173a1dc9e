"""Estimates that a claim may ask of records: `gap("zoo.d1", "method=SO-d1", "method=SO-d2", "group=education") > 0`.

The first argument names a record and its column, the others the rows: `column=value`, several joined by commas, values
to choose from by |. Differences are taken inside pairs, as everywhere (`lib.stats`). A record that no run has left
makes a claim untestable here; a column or value that it does not have is a mistake in the claim.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lib import stats
from lib.experiment import results_table
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.metrics import Missing
from lib.stats import Interval


def conditions(text: str, rows: pd.DataFrame) -> dict[str, list[Any]]:
    """`method=KO|RO, seed=0` as {column: values}. Raises ClaimError for a column that is not there, or is not named."""
    out: dict[str, list[Any]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        column, equals, values = part.partition("=")
        if not equals or column.strip() not in rows:
            raise ClaimError(
                f"{part!r} is no condition; write column=value with a column of the record"
            )
        column = column.strip()
        numeric = pd.api.types.is_numeric_dtype(rows[column])
        out[column] = [float(each) if numeric else each.strip() for each in values.split("|")]
    return out


def _asked(estimate: Callable[..., pd.DataFrame], count: int) -> Callable[..., Interval]:
    """An estimator of `lib.stats` as a function of words: record.column, `count` selections, and rows for all."""

    def asked(place: str, *selections: str) -> Interval:
        system, _, column = place.partition(".")
        if len(selections) not in (count, count + 1):
            raise ClaimError(
                f"{estimate.__name__} of {place!r} takes {count} selections of rows, and one for all"
            )
        try:
            rows = results_table.read(system, results_table.RECORDS)
        except results_table.RecordError as error:
            raise Missing(f"this run left no record of {system}") from error
        chosen = [conditions(text, rows) for text in selections]
        rows = results_table.where(rows, **(chosen.pop() if len(chosen) > count else {}))
        _same_menu(rows, chosen)
        try:
            found = estimate(rows, column, *chosen).iloc[0]
        except (KeyError, ValueError) as error:
            raise ClaimError(f"{estimate.__name__} of {place!r}: {error}") from error
        ci_low, ci_high = float(found["ci_low"]), float(found["ci_high"])
        unknown = not ci_low < ci_high  # where nothing varied, nothing was tested
        return Interval(
            float(found["value"]), *((math.nan, math.nan) if unknown else (ci_low, ci_high))
        )

    return asked


def _same_menu(rows: pd.DataFrame, chosen: list[dict[str, list[Any]]]) -> None:
    """Raises Missing where two who choose were offered different things: a rival that was not on the menu. Who is
    offered one thing, or nothing that was written down, chooses nothing."""
    if "offered" not in rows or len(chosen) != 2:
        return
    menus = [
        {frozenset(each) for each in results_table.where(rows, **who)["offered"] if len(each) > 1}
        for who in chosen
    ]
    if all(menus) and menus[0] != menus[1]:
        raise Missing("one of the two had another menu")


FUNCTIONS: Mapping[str, Callable[..., Interval]] = {
    "mean": _asked(stats.mean, 0),
    "gap": _asked(stats.gap, 2),
    "ratio": _asked(stats.ratio, 2),
    "change": _asked(stats.change, 2),
}
