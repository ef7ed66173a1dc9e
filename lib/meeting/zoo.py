"""Students with a policy zoo: orchestrators with and without budgets, controls without a language model, single and
multi-objective policies, the oracle, on the episodes of lesson 02.

Dollars are those of tokens while it acts; what training cost is in lesson 02. Quality is the mean of the three
objectives per step.
"""

from __future__ import annotations

import pandas as pd

from lib.meeting.chains import COLUMNS, EXPERT, ORACLE, PAPER, ROUTER
from lib.orchestration import methods, results, study
from lib.params import Params

DOMAIN = "education"


def play(params: Params) -> pd.DataFrame:
    """One row per maker, point (a budget; empty without), seed and episode: kind, quality, dollars per episode."""
    model = params.ablations.model
    plain = [*methods.orchestrators(params), *methods.controls(DOMAIN)]
    limited = methods.budgeted(params, model)
    record = study.run(params, DOMAIN, [*plain, *limited], label="meeting")
    table = results.outcomes(record, DOMAIN)
    points = {method.name: f"${method.budget:g}" for method in limited}
    makers = {method.name: f"RO {model}, with a budget" for method in limited}
    kinds = {method.name: _kind(method.kind, method.name) for method in [*plain, *limited]}
    return table.assign(
        maker=table["method"].map(makers).fillna(table["method"]), point=table["method"].map(points).fillna(""),
        kind=table["method"].map(kinds), unit=table["episode"], quality=table["utility"],
    )[COLUMNS]  # fmt: skip


def _kind(kind: str, name: str) -> str:
    if kind in methods.KINDS:
        return PAPER
    if name.startswith("oracle"):
        return ORACLE
    return EXPERT if kind in ("single", "reference") else ROUTER
