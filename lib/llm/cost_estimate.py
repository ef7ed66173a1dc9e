"""What a run may cost at the most, for the terminal before its first paid call.

    planned_calls = [PlannedCalls("claude", calls=1_000, tokens_in=1_500_000, tokens_out=400_000)]
    print(announce_costs(params.llm, planned_calls))

Left out: hidden reasoning, which some models are billed for beyond `max_tokens`; the sentence says how much that can
be. The hard stop is `lib.llm.spending_limit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from lib.config import LLMSettings
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.endpoint import Endpoint
from lib.llm.token_counts import count_bytes, estimate_tokens

_SUMS = ("calls", "tokens in", "tokens out", "cost_usd")
PAID = "paid to endpoints"  # the last row of a table of costs


@dataclass(frozen=True)
class PlannedCalls:
    """Calls of one model that a run may make.

    Attributes:
        model: Its name in llm.models.
        calls: At the most.
        tokens_in: Tokens of all prompts together.
        tokens_out: Tokens of all replies together.
        recorded: Calls among them whose replies are recorded, so that nothing is paid for them.
    """

    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    recorded: int = 0

    def without_recorded(self) -> PlannedCalls:
        """Estimates the calls that are still to be made, after those whose replies are recorded.

        Returns:
            Planned calls; tokens are reduced in proportion and rounded up, so that the estimate stays an upper bound.
        """
        if not self.recorded or not self.calls:
            return self
        # Rounded up, so that the estimate stays an upper bound.
        remaining = max(0, self.calls - self.recorded)
        tokens_in = -(-self.tokens_in * remaining // self.calls)
        tokens_out = -(-self.tokens_out * remaining // self.calls)
        return PlannedCalls(self.model, remaining, tokens_in, tokens_out)


def plan_requests(
    model: ChatModel, requests: Sequence[ChatRequest], attempts: int = 1
) -> PlannedCalls:
    """Estimates the calls and tokens of known requests, and counts those whose replies are recorded.

    Args:
        model: Who will be asked.
        requests: What it will be asked.
        attempts: How often each is asked at the most, until a reply can be used.

    Returns:
        The planned calls; prompts are estimated by their length, replies are as long as they may be.
    """
    tokens_in = tokens_out = recorded = 0
    for request in requests:
        sent = json.dumps(
            [list(map(dict, request.messages)), list(request.tools)], ensure_ascii=False
        )
        tokens_in += attempts * estimate_tokens(count_bytes(sent))
        limit = model.max_tokens if request.max_tokens is None else request.max_tokens
        tokens_out += attempts * min(limit, model.max_tokens)
        if isinstance(model, Endpoint) and model.is_recorded(request):
            recorded += 1
    return PlannedCalls(model.name, attempts * len(requests), tokens_in, tokens_out, recorded)


def asks_endpoint(settings: LLMSettings, names: Iterable[str]) -> bool:
    """Whether one of these models is behind a server, so that a call may be paid for."""
    return any(settings.models[name].backend == "endpoint" for name in names)


def estimate_costs(settings: LLMSettings, planned_calls: Sequence[PlannedCalls]) -> pd.DataFrame:
    """Estimates the cost of planned calls by the models' prices; recorded ones cost nothing.

    Args:
        settings: The models and their prices.
        planned_calls: Calls of any of the models.

    Returns:
        A row per element of the plan (model, backend, calls, tokens in, tokens out, cost_usd), and one for what is
        really paid: the endpoints among them.
    """
    rows = []
    for planned in planned_calls:
        remaining = planned.without_recorded()
        model = settings.models[planned.model]
        cost_usd = remaining.tokens_in * (model.price_in or 0.0)
        cost_usd += remaining.tokens_out * (model.price_out or 0.0)
        tokens = [remaining.tokens_in, remaining.tokens_out]
        rows.append([planned.model, model.backend, remaining.calls, *tokens, cost_usd])
    table = pd.DataFrame(rows, columns=["model", "backend", *_SUMS])
    endpoint_rows = table[table["backend"] == "endpoint"]
    sums = {name: endpoint_rows[name].sum() for name in _SUMS}
    last_row = pd.DataFrame([{"model": PAID, "backend": "", **sums}])
    return pd.concat([table, last_row], ignore_index=True)


def take_most_expensive(
    settings: LLMSettings, alternatives: Sequence[PlannedCalls]
) -> PlannedCalls:
    """Chooses the most expensive of several plans of which one can come true.

    Args:
        settings: The models and their prices.
        alternatives: Where every call goes to one of several models: all of them to each.

    Returns:
        One of the plans.
    """
    costs = estimate_costs(settings, alternatives)["cost_usd"]
    asks_endpoints = [asks_endpoint(settings, [planned.model]) for planned in alternatives]
    order = sorted(
        range(len(alternatives)), key=lambda number: (asks_endpoints[number], costs[number])
    )
    return alternatives[order[-1]]


def announce_costs(settings: LLMSettings, planned_calls: Sequence[PlannedCalls]) -> str:
    """Say what endpoints may cost, and whether the spending limit may cut the run short.

    Args:
        settings: The models, their prices and the limit.
        planned_calls: Calls of any of the models.

    Returns:
        One line for the terminal.
    """
    endpoint_sums = estimate_costs(settings, planned_calls).iloc[-1]
    to_endpoints = [
        planned for planned in planned_calls if settings.models[planned.model].backend == "endpoint"
    ]
    num_recorded = sum(min(planned.recorded, planned.calls) for planned in to_endpoints)
    if not endpoint_sums["calls"]:
        reason = (
            f"All {num_recorded:,} replies are recorded" if num_recorded else "No endpoint is asked"
        )
        return f"{reason}; nothing is paid."

    # Recorded replies are deducted, hidden reasoning is not known before; the line says both.
    cost_usd = endpoint_sums["cost_usd"]
    limit = settings.max_usd
    deducted = "recorded replies not deducted"
    if num_recorded:
        deducted = f"{num_recorded:,} recorded replies deducted"
    line = f"At most {endpoint_sums['calls']:,} calls and ${cost_usd:.2f} to endpoints, {deducted}"
    hidden = max(settings.models[planned.model].reasoning_tokens for planned in to_endpoints)
    if hidden:
        line += f", hidden reasoning (up to {hidden:,} tokens a call) not counted"
    if cost_usd > limit:
        return f"{line}; the run stops at llm.max_usd = ${limit:g} and can be resumed."
    return f"{line}; llm.max_usd = ${limit:g} allows it."
