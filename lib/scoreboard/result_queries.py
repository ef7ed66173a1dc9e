"""Estimates that a claim may ask of records.

    paired_difference("zoo.d1", "method=SO-d1", "method=SO-d2", "group=education") > 0

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
from lib.scoreboard.metrics import MissingMetric
from lib.stats import Interval

# Who writes the results tables that claims query.
LESSON_BY_SYSTEM = {"zoo": "lesson 01"}


def parse_conditions(text: str, rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Reads conditions on rows, such as `method=KO|RO, seed=0`.

    Args:
        text: `column=value`, several joined by commas, values to choose from by |.
        rows: The record that the conditions are for.

    Returns:
        {column: values}, with numbers where the column is numeric.

    Raises:
        ClaimError: A condition names no column, or one that the record does not have.
    """
    values_by_column: dict[str, list[Any]] = {}
    for condition in text.split(","):
        condition = condition.strip()
        if not condition:
            continue
        column, equals, values = condition.partition("=")
        column = column.strip()
        if not equals or column not in rows:
            raise ClaimError(
                f"{condition!r} is no condition; write column=value with a column of the record"
            )
        is_numeric = pd.api.types.is_numeric_dtype(rows[column])
        convert = float if is_numeric else str.strip
        values_by_column[column] = [convert(value) for value in values.split("|")]
    return values_by_column


def _make_query(
    estimator: Callable[..., pd.DataFrame], num_selections: int
) -> Callable[..., Interval]:
    """Makes an estimator of `lib.stats` callable from the file of claims.

    Args:
        estimator: Takes rows, a column and selections of rows, and returns a frame with one estimate.
        num_selections: How many selections of rows it takes.

    Returns:
        A function of texts: `record.column`, the selections, and perhaps a condition on the rows of all of them.
    """

    def query(record_column: str, *selections: str) -> Interval:
        system, _, column = record_column.partition(".")
        description = f"{estimator.__name__} of {record_column!r}"
        if len(selections) not in (num_selections, num_selections + 1):
            raise ClaimError(
                f"{description} takes {num_selections} selections of rows, and one for all"
            )
        try:
            rows = results_table.read_results(system, results_table.RECORDS)
        except results_table.ResultsError as error:
            lesson = LESSON_BY_SYSTEM.get(system, "the lesson that writes them")
            raise MissingMetric(f"no rows of {system!r} are here: run {lesson}") from error
        conditions = [parse_conditions(text, rows) for text in selections]
        conditions_on_all = conditions.pop() if len(conditions) > num_selections else {}
        rows = results_table.select(rows, **conditions_on_all)
        check_same_offer(rows, conditions)
        try:
            estimate = estimator(rows, column, *conditions).iloc[0]
        except (KeyError, ValueError) as error:
            raise ClaimError(f"{description}: {error}") from error
        value = float(estimate["value"])
        ci_low = float(estimate["ci_low"])
        ci_high = float(estimate["ci_high"])
        # An interval of no width has tested nothing, because nothing varied.
        if not ci_low < ci_high:
            return Interval(value, math.nan, math.nan)
        return Interval(value, ci_low, ci_high)

    return query


def check_same_offer(rows: pd.DataFrame, selections: list[dict[str, list[Any]]]) -> None:
    """Checks that a baseline could choose from what the treatment could choose from.

    Episodes with one offer, or none that was written down, leave nothing to choose and are not compared.

    Args:
        rows: The record; its column `offered`, if it has one, lists what an episode could choose from.
        selections: Conditions on the rows of the treatment and of the baseline.

    Raises:
        MissingMetric: The two were offered different things.
    """
    if "offered" not in rows or len(selections) != 2:
        return
    offers = []
    for selection in selections:
        lists = results_table.select(rows, **selection)["offered"]
        offers.append({frozenset(offered) for offered in lists if len(offered) > 1})
    treatment_offers, baseline_offers = offers
    if treatment_offers and baseline_offers and treatment_offers != baseline_offers:
        raise MissingMetric("one of the two had another menu")


FUNCTIONS: Mapping[str, Callable[..., Interval]] = {
    "mean": _make_query(stats.mean, 0),
    "paired_difference": _make_query(stats.paired_difference, 2),
    "ratio": _make_query(stats.ratio, 2),
    "diff_in_diff": _make_query(stats.diff_in_diff, 2),
}
