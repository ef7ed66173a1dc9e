"""What choosing for every item could win over always choosing the same: whether there is a question at all."""

import numpy as np
import pandas as pd

from lib.stats.estimates import gap

# A question is open where the lower end of the headroom's interval reaches this: accuracy, or utility in [0, 1].
MIN_HEADROOM = 0.05


def is_open(estimates: pd.DataFrame) -> pd.Series:
    """Whether choosing could win enough to be worth a comparison, for each estimate of a headroom (see `headroom`)."""
    return estimates["lo"] >= MIN_HEADROOM


def headroom(dev: pd.DataFrame, test: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean of a column over test items if the arm were chosen per item, minus that of the best constant.

    The choice is made on one try of the test items and scored on another, both ways round, so that whoever merely saw
    the dice wins nothing: between equal coins the headroom is 0 or, by a choice that noise misled, below. The constant
    is the arm that is best on dev. dev, test: rows with arm, item, try and the column, every arm on every item in two
    independent tries. Returns one row: value, lo, hi over items, and what `measure.gap` tells besides. Raises
    ValueError where tries are not two or an arm lacks an item.
    """
    best = dev.groupby("arm", sort=False)[column].mean().idxmax()
    first, second = _tries(test, column)
    rows = []
    for seen, scored in ((first, second), (second, first)):
        won = scored.to_numpy()[np.arange(len(scored)), _chosen(seen, best)]
        for arm, values in (("chosen", won), ("constant", scored[best].to_numpy())):
            rows.append(
                pd.DataFrame(
                    {"arm": arm, "item": scored.index, "try": len(rows) // 2, column: values}
                )
            )
    return gap(pd.concat(rows), column, {"arm": "chosen"}, {"arm": "constant"})


def _tries(rows: pd.DataFrame, column: str) -> list[pd.DataFrame]:
    """(items, arms) of each try."""
    tries = [
        part.pivot(index="item", columns="arm", values=column) for _, part in rows.groupby("try")
    ]
    if len(tries) != 2 or any(
        table.isna().any(axis=None) or table.shape != tries[0].shape for table in tries
    ):
        raise ValueError(
            f"headroom of {column!r} needs every arm on every item in two tries, got {len(tries)} tries"
        )
    return tries


def _chosen(seen: pd.DataFrame, best: str) -> np.ndarray:
    """The place of the arm that did best on each item; the constant itself where nobody did better."""
    values, constant = seen.to_numpy(), list(seen.columns).index(best)
    chosen = values.argmax(1)
    return np.where(values.max(1) > values[:, constant], chosen, constant)
