"""What an orchestrator that knows English reads: the call form, tools with prices and times, and the user's wishes.

The lab's orchestrators read the same in words of their own (`tool_menu`). Left out: function schemas, which
`prompted_baseline` uses for models that are only prompted.
"""

from __future__ import annotations

from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_menu import Offer
from lib.tool_orchestration.writer_tools import DESCRIPTIONS as WRITER_DESCRIPTIONS

_INSTRUCTION = (
    "You answer questions with the help of tools. In every turn first think inside <think> </think> about which tool "
    "is worth its price. Then either call one tool with <call> TOOL argument </call> and end your turn, or give the "
    "final answer with <answer> final answer </answer>. What a tool replies comes back inside <response> </response>, "
    "and you go on. <answer> it </answer> hands on the last response. A wrong answer is worth nothing."
)
_DESCRIPTIONS = {
    "calculator": "the argument is an expression such as 12 * (3 + 4)",
    "python": "the argument is a short program; what it prints and its last expression come back",
    "search": "the argument is words to search for in the documents",
    "lookup": "the argument is a relation and a person, such as home Ana",
}
_MODEL_DESCRIPTION = (
    "a language model; the argument is a question to it, or the word question to pass on the user's"
)


def write_plain_messages(assignment: Assignment) -> list[dict[str, str]]:
    """Write the conversation that an orchestrator continues: instruction, tools with prices, preferences, question.

    Args:
        assignment: A question with a menu and a user.

    Returns:
        Messages, a system message first; a question's own system message joins it.
    """
    tools = [f"- {describe_offer(offer)}" for offer in assignment.menu.offers]
    system_texts = [
        _INSTRUCTION,
        "Tools on offer, with the price and the time of a usual call:",
        *tools,
        f"The user says: {assignment.preference.sentence}",
    ]
    system_texts += [content for role, content in assignment.history if role == "system"]
    turns = [("system", "\n".join(system_texts))]
    turns += [(role, content) for role, content in assignment.history if role != "system"]
    turns.append(("user", assignment.prompt))
    return [{"role": role, "content": content} for role, content in turns]


def describe_offer(offer: Offer) -> str:
    """Describe a tool of a menu in one line: name, location, argument, and usual dollars and seconds of a call.

    Args:
        offer: The tool's entry on the menu.

    Returns:
        The line.
    """
    description = _MODEL_DESCRIPTION if offer.model else _DESCRIPTIONS.get(offer.name, "")
    if offer.name in WRITER_DESCRIPTIONS:
        description = f"{WRITER_DESCRIPTIONS[offer.name]}; the argument is the question"
    if offer.description:
        description = f"{description}; {offer.description.rstrip('.')}"
    location = "on the user's machine" if offer.local else "behind an API"
    return (
        f"{offer.name} ({location}): {description}; about ${offer.typical_cost_usd:.2g} and "
        f"{offer.typical_seconds:.2g} seconds"
    )
