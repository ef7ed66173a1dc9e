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
        dollars = each.tokens_in * (model.price_in or 0.0) + each.tokens_out * (
            model.price_out or 0.0
        )
        rows.append(
            [each.model, model.backend, each.calls, each.tokens_in, each.tokens_out, dollars]
        )
    table = pd.DataFrame(
        rows, columns=["model", "backend", "calls", "tokens in", "tokens out", "dollars"]
    )
    paid = table[table["backend"] == "endpoint"]
    sums = {name: paid[name].sum() for name in ("calls", "tokens in", "tokens out", "dollars")}
    return pd.concat(
        [table, pd.DataFrame([{"model": "paid to endpoints", "backend": "", **sums}])],
        ignore_index=True,
    )


def announcement(settings: LLMSettings, plan: Sequence[Planned]) -> str:
    """A sentence about the endpoints' part of a plan, and whether the hard stop may cut it short."""
    paid = estimate(settings, plan).iloc[-1]
    if not paid["calls"]:
        return "No endpoint is asked; nothing is paid."
    said = f"At most {paid['calls']:,} calls and ${paid['dollars']:.2f} to endpoints, recorded replies not deducted"
    limit = settings.max_dollars
    if paid["dollars"] > limit:
        return f"{said}; the run stops at llm.max_dollars = ${limit:g} and can be resumed."
    return f"{said}; llm.max_dollars = ${limit:g} allows it."
