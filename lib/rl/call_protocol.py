"""What controller and experts say to each other, and how it is read (CoRL, 3.1 and algorithm 1).

    system     budget low                          (eq. 8: the budget stands in the prompt)
    user       What is the home of the friend of Ana ?
    controller <think> low </think> <call> lab-facts <t> question </t> </call>
    expert     <response> Loro </response>
    controller <think> low </think> <answer> it </answer>

A query may be any text; `question` alone hands the user's question on as it stands, word for word, and `it` as the
answer hands on what was heard last. So a small controller has to decide, not to copy.

A turn ends in one call or one answer; f (which expert) and g (which query) of eq. 2 are the two groups of
one regular expression. Whatever is neither is malformed: it costs a round and is told so.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.tasks.item import extract_answer, normalize_whitespace

VERSION = 1  # of what controllers read and how their turns are read
WORDS = ("low", "medium", "high")  # budgets by name
STYLES = ("soft", "hard", "number")
# Soft prompts (the paper's B.2) name the budget and leave the rest to the controller; hard ones (B.1)
# say what to do. A number is the budget itself, in units of `routing.budget_unit_usd` dollars.
_RULES = {"low": "answer direct only", "medium": "route only if needed", "high": "route only"}
DIGITS = 3  # of a budget in numbers
ERROR = "error"  # what stands in the response where no expert spoke
RESPONSE = ("<response>", "</response>")
AS_IT_STANDS = "question"  # instead of a question: the one that the user asked
AS_HEARD = "it"  # instead of an answer: the last response
# For controllers that read any word; the lab's have none for it, and count what was cut all the same.
GAP_MARK = "[... a part of the reply is left out ...]"
END_MARK = "[... the reply was cut off here ...]"
STOPS = (
    "</call>",
    "</answer>",
)  # with the end of turn, where a controller's turn ends (algorithm 1, line 10)
_CALL = re.compile(r"<call>\s*(\S+)\s*<t>((?:(?!</?(?:t|call)>).)*)</t>\s*</call>\s*$", re.DOTALL)
_TAG = re.compile(
    r"</?(?:think|answer|call|t|response)>"
)  # an expert must not speak for the controller
_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A call to an expert: f and g of eq. 2."""

    expert: str
    query: str


@dataclass(frozen=True)
class Answer:
    """The controller's answer, with its tags."""

    text: str


@dataclass(frozen=True)
class Malformed:
    """A turn that is neither."""

    why: str


Turn = Call | Answer | Malformed


def instruction(style: str, budget: str) -> str:
    """The system message. budget: one of WORDS, or for style `number` the digits of `digits`."""
    if style not in STYLES:
        raise ValueError(f"a prompt is {', '.join(STYLES)}, not {style!r}")
    return f"budget {budget} {_RULES[budget]}" if style == "hard" else f"budget {budget}"


def explain_protocol(call_costs: Mapping[str, float]) -> str:
    """The protocol for a model that follows instructions.

    Args:
        call_costs: Dollars that a call to each expert typically costs, by expert, the cheapest first. List prices
            would hide how much an expert writes.

    Returns:
        The text of a system message.
    """
    experts = ", ".join(f"{name} (about ${cost:.2g} a call)" for name, cost in call_costs.items())
    return (
        "You answer questions, and may pay experts to help. First think inside <think> </think> about how hard the "
        "question is and what the budget allows. Then either answer with <answer> final answer </answer>, or ask one "
        "expert with <call> EXPERT <t> question </t> </call> and end your turn; what it says comes back inside "
        "<response> </response>, and you go on. You may ask about a part of the question. <answer> it </answer> hands "
        "on what was said last. Only the answer counts, "
        f"and it counts only if the calls together cost no more than the budget. Experts: {experts}."
    )


def digits(units: float) -> str:
    """A budget as a number of DIGITS digits; what is beyond them is the largest there is."""
    return str(round(min(max(units, 0), 10**DIGITS - 1))).zfill(DIGITS)


def messages(
    style: str, budget: str, question: str, history: Sequence[tuple[str, str]] = ()
) -> list[dict[str, str]]:
    """What the controller reads first.

    Args:
        style: One of STYLES.
        budget: As `instruction` takes it.
        question: The user's.
        history: Messages before it, as (role, content); a system message among them joins the controller's own.

    Returns:
        Messages, a system message first.
    """
    system_texts = [instruction(style, budget)]
    system_texts += [content for role, content in history if role == "system"]
    turns = [("system", "\n".join(system_texts))]
    turns += [(role, content) for role, content in history if role != "system"]
    turns.append(("user", question))
    return [{"role": role, "content": content} for role, content in turns]


def size(budget: str) -> str:
    """How large a budget is: its word, or for a number how often 1 has to be doubled to come near it."""
    return budget if budget in WORDS else str(round(math.log2(max(int(budget), 1))))


def thought(budget: str, steps: Sequence[str] = ()) -> str:
    """What the controller writes before it decides: how large the budget is, and its own steps where it works them out
    itself."""
    return " ".join(["<think>", size(budget), *(f"; {step}" for step in steps), "</think>"])


def call(expert: str, query: str = AS_IT_STANDS) -> str:
    """A call as the controller writes it."""
    return f"<call> {expert} <t> {query} </t> </call>"


def clean_reply(text: str) -> str:
    """What a controller reads of an expert's reply.

    Args:
        text: The visible text of the reply; a lab model writes its thoughts into it.

    Returns:
        The content of the answer tags where the reply ends in them, else the whole text; without thoughts and without
        tags, so that no expert writes the controller's next step. ERROR where nothing is left.
    """
    plain = _THOUGHT.sub(" ", text)
    answer = extract_answer(plain)
    return normalize_whitespace(_TAG.sub(" ", plain if answer is None else answer)) or ERROR


def parse(text: str, experts: tuple[str, ...] | list[str]) -> Turn:
    """What a turn of the controller asks for; a call to nobody we know is malformed."""
    if extract_answer(text) is not None:
        return Answer(text)
    found = _CALL.search(text)
    if not found:
        return Malformed("neither a call nor an answer")
    expert, query = found[1], normalize_whitespace(found[2])
    if expert not in experts:
        return Malformed(f"there is no expert {expert!r}")
    return Call(expert, query) if query else Malformed("a call without a query")
