"""The text protocol between a controller and its experts (CoRL, 3.1 and algorithm 1).

    system     budget low                          (eq. 8: the budget stands in the prompt)
    user       What is the home of the friend of Ana ?
    controller <think> low </think> <call> lab-facts <t> question </t> </call>
    expert     <response> Loro </response>
    controller <think> low </think> <answer> it </answer>

A query may be any text; `question` alone passes the user's question on word for word, and the answer `it` passes the
last response on. So a small controller has to decide, not to copy.

A turn ends in one call or one answer; f (which expert) and g (which query) of eq. 2 are the two groups of one regular
expression. Any other turn is malformed: it costs a turn, and the controller reads `error`.

Left out: who answers a call (`lib.rl.expert_pool`), and several calls in one turn.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.tasks.item import extract_answer, normalize_whitespace
from lib.tasks.scorers import extract_final_answer

UNMARKED_RULE = "whole reply"  # of `extract_final_answer` where nothing marks an answer
VERSION = 1  # of what controllers read and how their turns are read
BUDGET_WORDS = ("low", "medium", "high")
# Soft prompts (the paper's B.2) name the budget and leave the rest to the controller; hard ones (B.1) say what to do.
# A number is the budget itself, in units of `routing.budget_unit_usd` dollars.
# In the styles of FIXED_BUDGETS one budget holds for a whole training, and the prompt does not tell which: it reads the
# same under all of them (CoRL, section 5, "one fixed budget").
FIXED_BUDGETS = {"fixed-low": "low", "fixed-medium": "medium", "fixed-high": "high"}
PROMPT_STYLES = ("soft", "hard", "number", *FIXED_BUDGETS)
_FIXED_PROMPT = "budget medium"
_HARD_RULES = {
    "low": "answer direct only",
    "medium": "route only if needed",
    "high": "route only",
}
NUM_BUDGET_DIGITS = 3  # of a budget in numbers
RESPONSE_TAGS = ("<response>", "</response>")
ERROR_REPLY = "error"  # stands in the response where there is no reply to read
USER_QUESTION = "question"  # as a query: the question that the user asked, word for word
LAST_REPLY = "it"  # as an answer: the last response
# For controllers that read any text. The lab's have no words for it; what was cut is counted all the same.
GAP_MARK = "[... a part of the reply is left out ...]"
END_MARK = "[... the reply was cut off here ...]"
# These end a controller's turn (algorithm 1, line 10), and so does an end token.
STOP_STRINGS = ("</call>", "</answer>")
_STOP_STRING = re.compile("|".join(STOP_STRINGS))
_CALL = re.compile(r"<call>\s*(\S+)\s*<t>((?:(?!</?(?:t|call)>).)*)</t>\s*</call>\s*$", re.DOTALL)
# An expert must not write the controller's next step.
_TAG = re.compile(r"</?(?:think|answer|call|t|response)>")
_REASONING = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)


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
    """A turn that is neither a call nor an answer, and the reason why."""

    reason: str


ParsedTurn = Call | Answer | Malformed


def write_instruction(style: str, budget: str) -> str:
    """Write the system message, which names the budget.

    Args:
        style: One of PROMPT_STYLES.
        budget: One of BUDGET_WORDS, or for the style `number` the digits of `format_budget`.

    Returns:
        Its text.

    Raises:
        ValueError: There is no such style.
    """
    if style not in PROMPT_STYLES:
        raise ValueError(f"the style of a prompt is {', '.join(PROMPT_STYLES)}, not {style!r}")
    if style in FIXED_BUDGETS:
        return _FIXED_PROMPT
    return f"budget {budget} {_HARD_RULES[budget]}" if style == "hard" else f"budget {budget}"


def format_budget(units: float) -> str:
    """Write a budget as a number of NUM_BUDGET_DIGITS digits; a larger one is the largest that there is."""
    largest = 10**NUM_BUDGET_DIGITS - 1
    return str(round(min(max(units, 0), largest))).zfill(NUM_BUDGET_DIGITS)


def make_messages(
    style: str, budget: str, question: str, history: Sequence[tuple[str, str]] = ()
) -> list[dict[str, str]]:
    """Make the conversation that the controller reads first.

    Args:
        style: One of PROMPT_STYLES.
        budget: As `write_instruction` takes it.
        question: The user's.
        history: Messages before it, as (role, content); a system message among them joins the controller's own.

    Returns:
        Messages, a system message first.
    """
    system_texts = [write_instruction(style, budget)]
    system_texts += [content for role, content in history if role == "system"]
    turns = [("system", "\n".join(system_texts))]
    turns += [(role, content) for role, content in history if role != "system"]
    turns.append(("user", question))
    return [{"role": role, "content": content} for role, content in turns]


def describe_budget_size(budget: str) -> str:
    """Name the size of a budget: its word, or for a number how often 1 has to be doubled to come near it."""
    if budget in BUDGET_WORDS:
        return budget
    return str(round(math.log2(max(int(budget), 1))))


def format_reasoning(budget: str, steps: Sequence[str] = ()) -> str:
    """Write the reasoning of a turn as the lab's controllers do.

    Args:
        budget: Its size comes first.
        steps: Steps of a solution that the controller works out without experts.

    Returns:
        The text, with its tags.
    """
    return " ".join(
        ["<think>", describe_budget_size(budget), *(f"; {step}" for step in steps), "</think>"]
    )


def format_call(expert: str, query: str = USER_QUESTION) -> str:
    """Write a call as a controller does."""
    return f"<call> {expert} <t> {query} </t> </call>"


def clean_reply(text: str) -> str:
    """Select what a controller reads of an expert's reply.

    Args:
        text: The visible text of the reply; a lab model writes its reasoning into it.

    Returns:
        The content of the answer tags where the reply ends in them, else the whole text; without reasoning and
        without tags, so that no expert writes the controller's next step. ERROR_REPLY where nothing remains.
    """
    visible = _REASONING.sub(" ", text)
    answer = extract_answer(visible)
    content = visible if answer is None else answer
    return normalize_whitespace(_TAG.sub(" ", content)) or ERROR_REPLY


def cut_after_stop_string(text: str) -> str:
    """Cut the text of a turn after its first stop string.

    Some tokenizers join the end of a stop string with what follows it, such as a full stop, in one token.

    Args:
        text: Text of a turn.

    Returns:
        The text up to and with the first stop string; all of it where there is none.
    """
    match = _STOP_STRING.search(text)
    return text[: match.end()] if match else text


def parse_turn(text: str, experts: Sequence[str]) -> ParsedTurn:
    """Read what a turn of the controller asks for.

    Args:
        text: Text of the turn.
        experts: Names of those that may be called; a call to any other is malformed.

    Returns:
        A call, an answer, or the reason why it is neither.
    """
    if extract_answer(text) is not None:
        return Answer(text)
    match = _CALL.search(text)
    if match is None:
        return Malformed("neither a call nor an answer")
    expert = match[1]
    query = normalize_whitespace(match[2])
    if expert not in experts:
        return Malformed(f"there is no expert {expert!r}")
    return Call(expert, query) if query else Malformed("a call without a query")


def marks_answer(text: str) -> bool:
    """Whether a turn marks an answer in any way, such as `\\boxed{4}`, for controllers that do not keep to the tags.

    A call that went wrong is no answer, and neither is a text in which nothing is marked as one.
    """
    return extract_final_answer(text).rule != UNMARKED_RULE and "<call>" not in text


def draw_budget(style: str, rng: np.random.Generator, budget_range: Sequence[float]) -> str:
    """Draw a budget as tables name it: one of three words, or a number for the style `number`.

    A style with one fixed budget has nothing to draw.

    Args:
        style: Style of the prompt.
        rng: Random numbers of the draw.
        budget_range: Smallest and largest number, in units; numbers are uniform on a logarithmic scale.
    """
    if style in FIXED_BUDGETS:
        return FIXED_BUDGETS[style]
    if style != "number":
        return BUDGET_WORDS[int(rng.integers(3))]
    return format_budget(np.exp(rng.uniform(*np.log(budget_range))))
