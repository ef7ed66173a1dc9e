"""What a run may cost, said before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from lib.config import LLMSettings


@dataclass(frozen=True)
class Planned:
    """Calls of one model, and the tokens of all of them together."""

    model: str
    calls: int
    tokens_in: int
    tokens_out: int


def estimate(settings: LLMSettings, plan: Sequence[Planned]) -> pd.DataFrame:
    """One row per model (model, backend, calls, tokens in, tokens out, dollars), and one for what is really
    paid: the endpoints among them."""
    rows = []
    for each in plan:
        model = settings.models[each.model]
        cost_usd = each.tokens_in * (model.price_in or 0.0) + each.tokens_out * (
            model.price_out or 0.0
        )
        rows.append(
            [each.model, model.backend, each.calls, each.tokens_in, each.tokens_out, cost_usd]
        )
    table = pd.DataFrame(
        rows, columns=["model", "backend", "calls", "tokens in", "tokens out", "cost_usd"]
    )
    paid = table[table["backend"] == "endpoint"]
    sums = {name: paid[name].sum() for name in ("calls", "tokens in", "tokens out", "cost_usd")}
    return pd.concat(
        [table, pd.DataFrame([{"model": "paid to endpoints", "backend": "", **sums}])],
        ignore_index=True,
    )


def announcement(settings: LLMSettings, plan: Sequence[Planned]) -> str:
    """A sentence about the endpoints' part of a plan, and whether the hard stop may cut it short."""
    paid = estimate(settings, plan).iloc[-1]
    if not paid["calls"]:
        return "No endpoint is asked; nothing is paid."
    said = f"At most {paid['calls']:,} calls and ${paid['cost_usd']:.2f} to endpoints, recorded replies not deducted"
    limit = settings.max_usd
    if paid["cost_usd"] > limit:
        return f"{said}; the run stops at llm.max_usd = ${limit:g} and can be resumed."
    return f"{said}; llm.max_usd = ${limit:g} allows it."
