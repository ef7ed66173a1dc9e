"""What agent and experts read in customer service (tau2-bench), and the tools that ask experts.

Prompts of agent and user are those of tau2-bench; that of the experts, and how a tool that asks one is described, are
ours. Left out: what the user reads (`lib.tasks.tau2_bench.user_prompt`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lib.config import LLMSettings
from lib.llm.chat_model import Message, ToolCall
from lib.tasks.tau2_bench import ServiceDomain
from lib.tool_orchestration.tool_menu import Offer, ToolMenu, UserPreference
from lib.tools import Tool, ToolError

GREETING = "Hi! How can I help you today?"
EXPERT_PREFIX = "ask_"  # of the tool that asks a model
# As in tau2-bench 0.2, whose agent asks its models through another client.
_AGENT_PROMPT = """\
<instructions>
You are a customer service agent that helps the user according to the <policy> provided below.
In each turn you can either:
- Send a message to the user.
- Make a tool call.
You cannot do both at the same time.

Try to be helpful and always follow the policy. Always make sure you generate valid JSON only.
</instructions>
<policy>
{policy}
</policy>"""
_PREFERENCE = """\

<preferences>
{sentence}
</preferences>"""
_EXPERT_PROMPT = """\
You advise a customer service agent, who has to keep to the <policy> below and shows you the conversation so far. \
Answer the agent's question: what to do or to say next, with exact arguments where a tool is to be called.
<policy>
{policy}
</policy>"""
_QUESTION = Tool("ask", "Asks a model.", {"question": {"type": "string"}}, str)


def write_agent_prompt(domain: ServiceDomain, preference: UserPreference | None = None) -> str:
    """The agent's system message, with the domain's policy, and where there is one with a preference."""
    prompt = _AGENT_PROMPT.format(policy=domain.policy)
    if preference is not None:
        prompt += _PREFERENCE.format(sentence=preference.sentence)
    return prompt


def make_menu(experts: Sequence[str]) -> ToolMenu:
    """The tools that ask these models, at the models' own prices."""
    return ToolMenu(tuple(make_expert_offer(name) for name in experts))


def make_expert_offer(
    name: str, typical_cost_usd: float = math.nan, typical_seconds: float = math.nan
) -> Offer:
    """Make the menu entry of the tool that asks a model.

    Args:
        name: Name of the model in llm.models.
        typical_cost_usd: Cost in USD of a usual call; nan where it was not measured.
        typical_seconds: Seconds of a usual call; nan where it was not measured.

    Returns:
        The entry, whose price and latency are factors on what a call costs and takes.
    """
    return Offer(
        f"{EXPERT_PREFIX}{name}",
        model=True,
        cost_usd=1.0,
        seconds=1.0,
        typical_cost_usd=typical_cost_usd,
        typical_seconds=typical_seconds,
        skills={},
        measured=False,
    )


def write_expert_schema(llm: LLMSettings, offer: Offer) -> dict[str, Any]:
    """Write the function schema of the tool that asks an expert model, with its prices and usual latency.

    Args:
        llm: The models with their prices.
        offer: The expert's entry on the menu.

    Returns:
        The schema, as OpenAI's API takes it.
    """
    name = offer.name.removeprefix(EXPERT_PREFIX)
    settings = llm.models[name]
    price_in = 1e6 * offer.cost_usd * (settings.price_in or 0)
    price_out = 1e6 * offer.cost_usd * (settings.price_out or 0)
    prices = f"reads at ${price_in:.3g}, writes at ${price_out:.3g}"
    description = (
        f"Asks the model {settings.model or name} for advice ({prices} per million tokens). It reads the policy and "
        "the conversation so far; it cannot call tools."
    )
    if not math.isnan(offer.typical_seconds):
        description += f" A call takes about {offer.typical_seconds:.2g} seconds."
    return Tool(offer.name, description, _QUESTION.parameters, str).schema


def read_question(call: ToolCall) -> str:
    """Read the question of a call to an expert; empty where the arguments do not have one."""
    try:
        return _QUESTION.check_arguments(call.arguments)["question"].strip()
    except ToolError:
        return ""


def write_expert_messages(
    domain: ServiceDomain, agent_messages: Sequence[Message], question: str
) -> list[dict[str, Any]]:
    """Write what an expert reads: the policy, the conversation so far as text, and the agent's question.

    Args:
        domain: With its policy.
        agent_messages: What the agent read so far, its system message first.
        question: Question of the agent.

    Returns:
        A system message and a user message.
    """
    lines = []
    for message in agent_messages[1:]:
        for call in message.get("tool_calls") or []:
            lines.append(f"agent calls {call['function']['name']}({call['function']['arguments']})")
        if message.get("content"):
            speaker = {"assistant": "agent", "tool": "result"}.get(message["role"], "user")
            lines.append(f"{speaker}: {message['content']}")
    conversation = "\n".join(lines)
    return [
        {"role": "system", "content": _EXPERT_PROMPT.format(policy=domain.policy)},
        {
            "role": "user",
            "content": f"Conversation:\n{conversation}\n\nThe agent asks: {question}",
        },
    ]
