"""What choosing for every item could win over always choosing the same: whether there is a question at all."""

import numpy as np
import pandas as pd

from lib.stats.estimates import gap

# A question is open where the lower end of the headroom's interval reaches this: accuracy, or utility in [0, 1].
MIN_HEADROOM = 0.05


def is_open(estimates: pd.DataFrame) -> pd.Series:
    """Whether choosing could win enough to be worth a comparison, for each estimate of a headroom (see `headroom`)."""
    return estimates["ci_low"] >= MIN_HEADROOM


def headroom(dev: pd.DataFrame, test: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean of a column over test items if the method were chosen per item, minus that of the best constant.

    The choice is made on one try of the test items and scored on another, both ways round, so that whoever merely saw
    the dice wins nothing: between equal coins the headroom is 0 or, by a choice that noise misled, below. The constant
    is the method that is best on dev. dev, test: rows with method, item, try and the column, every method on every item
    in two independent tries. Returns one row: value, lo, hi over items, and what `measure.gap` tells besides. Raises
    ValueError where tries are not two or a method lacks an item.
    """
    best = dev.groupby("method", sort=False)[column].mean().idxmax()
    first, second = _tries(test, column)
    rows = []
    for seen, scored in ((first, second), (second, first)):
        won = scored.to_numpy()[np.arange(len(scored)), _chosen(seen, best)]
        for method, values in (("chosen", won), ("constant", scored[best].to_numpy())):
            rows.append(
                pd.DataFrame(
                    {
                        "method": method,
                        "item": scored.index,
                        "sample": len(rows) // 2,
                        column: values,
                    }
                )
            )
    return gap(pd.concat(rows), column, {"method": "chosen"}, {"method": "constant"})


def _tries(rows: pd.DataFrame, column: str) -> list[pd.DataFrame]:
    """(items, methods) of each try."""
    tries = [
        part.pivot(index="item", columns="method", values=column)
        for _, part in rows.groupby("sample")
    ]
    if len(tries) != 2 or any(
        table.isna().any(axis=None) or table.shape != tries[0].shape for table in tries
    ):
        raise ValueError(
            f"headroom of {column!r} needs every method on every item in two samples, got {len(tries)}"
        )
    return tries


def _chosen(seen: pd.DataFrame, best: str) -> np.ndarray:
    """The place of the method that did best on each item; the constant itself where nobody did better."""
    values, constant = seen.to_numpy(), list(seen.columns).index(best)
    chosen = values.argmax(1)
    return np.where(values.max(1) > values[:, constant], chosen, constant)
