"""Made-up tables of outcomes with a known answer."""

import numpy as np
import pandas as pd

from lib.experiment.seeds import rng
from lib.recorded_outcomes.tables import OutcomeTable


def made(n: int = 240, groups: int = 12, skilled: float = 0.95, dice: bool = False) -> OutcomeTable:
    """Three models: a cheap one that is right on the first half of its feature, a middle one on the second, and a dear
    one that is right anywhere with chance .8. dice: coins of one half for all, so that there is nothing to know."""
    draw = rng("test", "outcomes", n)
    feature = draw.normal(size=(n, 2))
    chance = np.where(feature[:, :1] > 0, [skilled, 1 - skilled, 0.8], [1 - skilled, skilled, 0.8])
    correct = (draw.random((n, 3)) < (0.5 if dice else chance)).astype(float)
    cost_usd = np.array([1.0, 2.0, 20.0]) * draw.uniform(0.5, 1.5, (n, 3))
    items = np.array([f"i{i:04d}" for i in range(n)])
    return OutcomeTable(
        "made",
        items,
        np.array([f"g{i % groups}" for i in range(n)]),
        ("cheap", "middle", "dear"),
        correct,
        cost_usd,
        feature,
        cost_measures_work=True,
    )


def long(table: OutcomeTable, numbers: bool = True) -> pd.DataFrame:
    """The table in long form, as anybody writes it."""
    n, m = table.correct.shape
    rows = pd.DataFrame(
        {
            "item": np.repeat(table.items, m),
            "group": np.repeat(table.groups, m),
            "model": np.tile(table.models, n),
            "correct": table.correct.ravel(),
            "cost_usd": table.cost_usd.ravel(),
        }
    )
    seen = (
        {f"e{i}": np.repeat(table.features[:, i], m) for i in range(table.features.shape[1])}
        if numbers
        else {}
    )
    return rows.assign(**seen)
