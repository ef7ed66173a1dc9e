"""A language model as policy (ARC's baselines LAP and LAP-FS): it reads what there is to choose from, and chooses.

Zero-shot it sees the space and the question, few-shot also configurations that were tried on training questions and
what they were paid. Whoever is asked may be any model of `llm.models`; a scripted one is a stand-in and is labelled.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import (
    AGENTS,
    TIERS,
    TOOLS,
    WORKFLOWS,
    Configuration,
    SpaceError,
    repair_structure,
)
from lib.agent_configuration.search import BASE
from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.failure_policy import require_reply
from lib.llm.json_replies import InvalidReply, read_object
from lib.tasks import Item

VERSION = 1  # of what prompted policies are asked, and how replies are read
ASKED = "Choose a configuration of the agent system for the question."
ABOUT = {
    "direct": "one agent answers at once", "reason": "one reasons, another answers",
    "verify": "one reasons, another checks, a third answers", "routing": "a router picks one of two reasoners",
    "sectioning": "two parts at once, then put together", "voting": "three attempts, then a vote",
    "orchestrator": "a plan, then two workers one after the other", "evaluator": "drafts are evaluated and refined",
    "autonomous": "one agent goes on from its own notes",
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A configuration that was tried on a training question, and its reward."""

    question: str
    configuration: Configuration
    reward: float


class _ReplyFields(BaseModel):
    model_config = ConfigDict(extra="ignore")
    workflow: str
    tools1: list[str] = []
    tools2: list[str] = []
    budgets: list[str] = []


def write_messages(question: str, examples: Sequence[Example]) -> list[dict[str, str]]:
    """Write the prompt that asks a model to choose a configuration.

    Args:
        question: What the agents are to answer.
        examples: Examples of the few-shot prompt; none for zero-shot.

    Returns:
        A system message with the space and the examples, and a user message with the question.
    """
    lines = [
        ASKED,
        "Workflows: " + "; ".join(f"{name}: {ABOUT[name]}" for name in WORKFLOWS) + ".",
        f"Tools of the first and of the second agent: any of {', '.join(TOOLS)}.",
        f"Budgets of the three agents ({', '.join(AGENTS)}): each of {', '.join(TIERS)}.",
        "A right answer is paid 5; calls, tokens and tools that nobody uses cost a little.",
        'Reply with one JSON object: {"workflow": ..., "tools1": [...], "tools2": [...], "budgets": [..., ..., ...]}.',
    ]
    for example in examples:
        configuration = json.dumps(to_reply_fields(example.configuration))
        lines.append(f"Example. Question: {example.question}")
        lines.append(f"Configuration: {configuration} Reward: {example.reward:.2f}")
    return [
        {"role": "system", "content": "\n".join(lines)},
        {"role": "user", "content": f"Question: {question}"},
    ]


def to_reply_fields(configuration: Configuration) -> dict[str, object]:
    """Write a configuration as the fields of a reply that chooses it.

    Args:
        configuration: The configuration.

    Returns:
        Names in place of numbers.
    """
    return {
        "workflow": configuration.workflow,
        "tools1": list(configuration.tools(0)),
        "tools2": list(configuration.tools(1)),
        "budgets": [TIERS[configuration.tier(agent)] for agent in range(3)],
    }


def parse_reply(text: str) -> Configuration:
    """Read the configuration in a reply.

    Args:
        text: The reply, with a JSON object anywhere in it.

    Returns:
        The configuration, without what its workflow has no agent for.

    Raises:
        InvalidReply: There is no JSON object.
        SpaceError: The object is no configuration.
    """
    try:
        fields = _ReplyFields.model_validate(read_object(text, _ReplyFields.model_fields)[0])
    except ValidationError as error:
        first = error.errors()[0]
        raise SpaceError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if fields.workflow not in WORKFLOWS:
        raise SpaceError(
            f"there is no workflow {fields.workflow!r}; there are {', '.join(WORKFLOWS)}"
        )
    unknown_tiers = [tier for tier in fields.budgets if tier not in TIERS]
    if unknown_tiers or len(fields.budgets) != len(AGENTS):
        raise SpaceError(f"budgets are three of {', '.join(TIERS)}, not {fields.budgets}")
    workflow = WORKFLOWS.index(fields.workflow)
    tools = [action_space.encode_tools(fields.tools1), action_space.encode_tools(fields.tools2)]
    tiers = [TIERS.index(tier) for tier in fields.budgets]
    return Configuration(repair_structure((workflow, *tools, *tiers)))


@dataclass(frozen=True)
class PromptedChoice:
    """What a model chose for one question.

    Attributes:
        configuration: From its reply, `search.BASE` where that held none.
        is_fallback: Whether the reply held none.
        is_lost: Whether that is so because the infrastructure failed, as a provider's filter does: then the question
            says nothing about the model and is not scored.
    """

    configuration: Configuration
    is_fallback: bool = False
    is_lost: bool = False


async def choose_configurations(
    model: ChatModel, items: Sequence[Item], examples: Sequence[Example]
) -> list[PromptedChoice]:
    """Let a model choose a configuration for each item.

    Args:
        model: The model that is asked.
        items: The questions.
        examples: Questions with good configurations, for the prompt.

    Returns:
        The choices in the order of the items.

    Raises:
        InfrastructureError: Where a call failed for reasons that say nothing about the model, and that a later run
            need not meet.
    """
    requests = [
        ChatRequest(write_messages(item.prompt, examples), seed=number, caller="policy")
        for number, item in enumerate(items)
    ]
    choices = []
    for reply in await model.reply_to_all(requests):
        require_reply(reply, "a choice")
        choices.append(_read_choice(reply))
    return choices


def _read_choice(reply: Reply) -> PromptedChoice:
    """Read the configuration in a reply; `search.BASE` stands in where there is none."""
    if reply.failure is not None:
        return PromptedChoice(BASE, is_fallback=True, is_lost=reply.failure.of_infrastructure)
    try:
        return PromptedChoice(parse_reply(reply.text))
    except (InvalidReply, SpaceError):
        return PromptedChoice(BASE, is_fallback=True)
