"""What experts can do and what they cost, and what a budget is worth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.params import Params, RoutingSettings
from lib.reporting import backends
from lib.reporting.routing.common import MILLION, MONEY, NO_LIMIT
from lib.routing.study import Results


def stand_ins(params: Params) -> str:
    """Experts that are scripted, for captions; empty where all are models."""
    return backends.stand_ins(params.llm, params.routing.experts)


def price_table(results: Results, settings: RoutingSettings) -> pd.DataFrame:
    """Each expert on training questions: share right by family, price of a question, budget that affords it."""
    table = results.experts[results.experts["split"] == "train"]
    rows = []
    for expert, price in results.budgets.calls.items():
        mine = table[table["strategy"] == expert]
        right = mine.groupby("kind")["right"].mean()
        rows.append(
            {"expert": expert}
            | {f"right, {name}": right.get(name, np.nan) for name in settings.questions}
            | {"$ per million": mine["dollars"].mean() * MILLION, "budget for a call": price * MILLION}
        )
    return pd.DataFrame(rows)


def budget_table(results: Results) -> pd.DataFrame:
    """What each word is worth, in calls with a question that the expert answers right."""
    calls = results.budgets.calls
    return pd.DataFrame(
        [
            {"word": word, f"B, {MONEY}": "no limit" if dollars >= NO_LIMIT else f"{dollars * MILLION:.1f}"}
            | {
                f"calls to {expert}": "-" if dollars >= NO_LIMIT or not price else f"{dollars / price:.2f}"
                for expert, price in calls.items()
            }
            for word, dollars in results.budgets.words.items()
        ]
    )
