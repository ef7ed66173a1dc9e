"""What choosing a method for every item could win over always using the same one: is there a question at all?"""

import numpy as np
import pandas as pd

from lib.experiment.results_table import UNUSABLE_SHARE
from lib.stats.estimates import paired_difference

# A question is open where the lower end of the headroom's interval reaches this: accuracy, or utility in [0, 1].
MIN_HEADROOM = 0.05


def is_open(estimates: pd.DataFrame) -> pd.Series:
    """Whether choosing could win enough to be worth a comparison, for each estimate of a headroom (see `headroom`)."""
    return estimates["ci_low"] >= MIN_HEADROOM


def headroom(dev: pd.DataFrame, test: pd.DataFrame, column: str) -> pd.DataFrame:
    """Estimates the headroom: the mean of the best method per test item, minus that of the best constant method.

    The choice is made on one sample of the test items and scored on another, both ways round, so that a choice which
    merely saw the noise wins nothing: between equally good random methods the headroom is 0 or, by a choice that
    noise misled, below. The constant is the method that is best on dev.

    Args:
        dev: Rows with method, item, sample and the column.
        test: The same columns, with every method on every item in two independent samples.
        column: What is measured, higher is better.

    Returns:
        One row, as `lib.stats.paired_difference` returns it.

    Raises:
        ValueError: If there are not two samples or a method lacks an item.
    """
    best_method = dev.groupby("method", sort=False)[column].mean().idxmax()
    first_sample, second_sample = _pivot_samples(test, column)
    frames = []
    for sample, (choice_table, score_table) in enumerate(
        [(first_sample, second_sample), (second_sample, first_sample)]
    ):
        chosen_columns = _choose_column_per_item(choice_table, best_method)
        item_indices = np.arange(len(score_table))
        scores = {
            "chosen": score_table.to_numpy()[item_indices, chosen_columns],
            "constant": score_table[best_method].to_numpy(),
        }
        for method, method_scores in scores.items():
            frames.append(
                pd.DataFrame(
                    {
                        "method": method,
                        "item": score_table.index,
                        "sample": sample,
                        column: method_scores,
                    }
                )
            )
    scores = pd.concat(frames)
    if UNUSABLE_SHARE in test:  # any of the methods may have been chosen
        scores[UNUSABLE_SHARE] = test[UNUSABLE_SHARE].max()
    return paired_difference(scores, column, {"method": "chosen"}, {"method": "constant"})


def _pivot_samples(rows: pd.DataFrame, column: str) -> list[pd.DataFrame]:
    """Pivots each of two samples to a table of items by methods.

    Args:
        rows: Results with the columns item, method and sample.
        column: What was measured.

    Returns:
        Two tables (items, methods).

    Raises:
        ValueError: There are not two samples, or a method lacks an item.
    """
    tables = []
    for _, sample_rows in rows.groupby("sample"):
        tables.append(sample_rows.pivot(index="item", columns="method", values=column))
    is_complete = all(
        table.shape == tables[0].shape and not table.isna().any(axis=None) for table in tables
    )
    if len(tables) != 2 or not is_complete:
        raise ValueError(
            f"headroom of {column!r} needs every method on every item in two samples, got {len(tables)}"
        )
    return tables


def _choose_column_per_item(table: pd.DataFrame, constant_method: str) -> np.ndarray:
    """Chooses the column of the best method for each item; the constant method where none did better.

    Args:
        table: (items, methods).
        constant_method: A column of the table.

    Returns:
        (items,) column indices.
    """
    values = table.to_numpy()
    constant_column = list(table.columns).index(constant_method)
    is_better = values.max(1) > values[:, constant_column]
    return np.where(is_better, values.argmax(1), constant_column)
