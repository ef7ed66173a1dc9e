"""Traces for the agent model: roles, hints and tools, and what a good agent does with them.

The system message names the role and the hints, and behind them the tools on offer. Traces obey: "be brief" is an
answer without reasoning, "step by step" the worked solution, a sum of big numbers is given to the calculator if there
is one, a fact is looked up or searched hop by hop. The verifier checks a draft, which is right in every other trace;
the answerer reads evidence or counts votes; the router names what a question needs.

Left out: what agents of one workflow say to each other (`lib.language_models.training.team_traces`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lib.language_models.chat_template import format_tool_call, parse_tool_call
from lib.tasks import Item, TaskError, extract_answer, format_reply
from lib.tasks.arithmetic_chain import OPERATIONS
from lib.tasks.multi_hop_facts import LETTERS, RELATIONS, VALUES, build_records

VERSION = 1  # of the traces of agents
TOOLS = ("calculator", "search", "lookup")
FAMILIES = ("chain", "big", "facts", "passage")
ROLES = ("reasoner", "reasoner", "worker", "verifier", "answerer", "router")  # drawn evenly
STEPS, BRIEF, CHECK = "step by step", "be brief", "check each step"
TOOL_PROBABILITY = 0.7  # of each tool to be on offer
BRIEF_PROBABILITY = 0.15  # of the hint to be brief
CHECK_PROBABILITY = 0.7  # of the hint to check each step
Message = dict[str, str]  # {"role", "content"}
Trace = tuple[list[Message], list[str]]  # messages, and the tools on offer


def write_system_message(role: str, *hints: str) -> Message:
    """The system message: "role reasoner step by step" from a role and hints (instructions that the agent obeys)."""
    return {"role": "system", "content": " ".join(["role", role, *hints])}


def write_user_turn(content: str) -> Message:
    """The user message of a conversation with the agent model."""
    return {"role": "user", "content": content}


def write_assistant_turn(content: str) -> Message:
    """A target of supervised fine-tuning: what the agent model is to reply."""
    return {"role": "assistant", "content": content}


def write_trace(item: Item, rng: np.random.Generator) -> Trace:
    """Write one training conversation: an agent in a random role, with random hints and tools, solves an item.

    Args:
        item: A question of one of FAMILIES.
        rng: Draws role, hints (such as "be brief"), tools on offer and the mistakes of drafts.

    Returns:
        (messages, tools): the conversation, whose assistant turns are the targets of supervised fine-tuning, and the
        names of the tools on offer.

    Raises:
        TaskError: For a family without traces.
    """
    if item.group not in FAMILIES:
        raise TaskError(
            f"agents are taught {', '.join(FAMILIES)}; there are no traces for {item.group!r}"
        )
    role = ROLES[int(rng.integers(len(ROLES)))]
    if role == "verifier" and item.group == "big":
        role = "reasoner"  # big numbers are not checked by hand
    return _WRITERS[role](item, rng, role)


@dataclass(frozen=True)
class TraceTurn:
    """The first assistant turn of a training conversation, as a test case for a model.

    Attributes:
        messages: The conversation before the turn.
        tools: Names of the tools on offer.
        target: The text that a good agent replies.
        role: Role of the system message, such as "verifier"; "tool" where the target is a tool call.
    """

    messages: list[Message]
    tools: list[str]
    target: str
    role: str


def get_first_turn(messages: list[Message], tools: list[str]) -> TraceTurn:
    """Turn a training conversation into a test case: what comes before the first assistant turn, and that turn.

    Args:
        messages: The whole conversation, with one assistant turn or more.
        tools: Names of the tools on offer.

    Returns:
        The first assistant turn with its prompt.
    """
    roles = [message["role"] for message in messages]
    index = roles.index("assistant")
    target = messages[index]["content"]
    if parse_tool_call(target):
        role = "tool"
    else:
        role = messages[0]["content"].split()[1]  # of "role worker ..."
    return TraceTurn(messages[:index], tools, target, role)


def agrees_with_trace(reply: str, target: str) -> bool:
    """Whether a model's reply has the tool call of the target, or its answer; the reasoning may differ."""
    target_call = parse_tool_call(target)
    if target_call:
        return parse_tool_call(reply) == target_call
    answer = extract_answer(reply)
    return answer is not None and answer == extract_answer(target)


def write_tool_calls(item: Item, tools: Sequence[str]) -> list[Message]:
    """Write the tool calls that answer an item, with their results.

    Args:
        item: A sum of big numbers is one call of the calculator; a multi-hop question is one lookup, or else one
            search, for every hop. Other families have no calls.
        tools: Names of the tools on offer.

    Returns:
        Messages, a call and its result in turn; empty where no tool on offer helps.
    """
    if item.group == "big" and "calculator" in tools:
        return _write_call("calculator", item.prompt.removesuffix(" = ?"), item.reference)
    if item.group != "facts":
        return []
    messages: list[Message] = []
    for relation, subject, value in look_up_hops(item):
        if "lookup" in tools:
            messages += _write_call("lookup", f"{relation} {subject}", value)
        elif "search" in tools:
            sentence = RELATIONS[relation][2].format(subject, value)
            messages += _write_call("search", f"{relation} of {subject}", sentence)
    return messages


def _write_call(tool: str, argument: str, result: str) -> list[Message]:
    call = write_assistant_turn(format_tool_call(tool, argument))
    return [call, {"role": "tool", "content": result}]


def look_up_hops(item: Item) -> list[tuple[str, str, str]]:
    """Look up the records that answer a multi-hop question.

    Args:
        item: A question of the family facts, such as "What is the home of the friend of Ana ?".

    Returns:
        (relation, subject, value) of every hop, in order: ("friend", "Ana", "Cy"), ("home", "Cy", "Loro").
    """
    # The id is "facts/home/friend/Ana": the last relation is the first hop.
    _, *relations, subject = item.id.split("/")
    hops = []
    for relation in reversed(relations):
        value = build_records()[relation][subject]
        hops.append((relation, subject, value))
        subject = value
    return hops


def insert_mistake(
    steps: Sequence[str], index: int, rng: np.random.Generator, follow: bool
) -> list[str]:
    """Make one step of a solution wrong: ["3 + 4 = 7", "7 + 1 = 8"] -> ["3 + 4 = 9", "9 + 1 = 0"].

    Args:
        steps: Lines of reasoning; the last word of each is its result.
        index: Position of the step that gets a wrong result.
        rng: Draws the wrong result.
        follow: Whether the later steps calculate on with the wrong result, as in the example (modulo 10); possible
            for the family chain only.

    Returns:
        All steps, as many as before.
    """
    head, _, result = steps[index].rpartition(" ")
    wrong_steps = [*steps[:index], f"{head} {_draw_wrong_result(result, rng)}"]
    for step in steps[index + 1 :]:
        if follow:
            # "7 + 1 = 8" becomes the same operation on the result of the step before.
            _, sign, digit, *_ = step.split()
            _, _, total_word = wrong_steps[-1].rpartition(" ")
            total = int(total_word)
            new_total = OPERATIONS[sign](total, int(digit))
            step = f"{total} {sign} {digit} = {new_total}"
        wrong_steps.append(step)
    return wrong_steps


def _draw_wrong_result(result: str, rng: np.random.Generator) -> str:
    """Draw a wrong result of the same kind: a number with one digit changed, another person, town or job.

    Args:
        result: The right result, one word.
        rng: Random numbers.

    Returns:
        Another word.
    """
    if result.isdigit():
        digits = list(result)
        index = int(rng.integers(len(digits)))
        shift = int(rng.integers(1, 10))  # 1 to 9, so that the digit changes
        digits[index] = str((int(digits[index]) + shift) % 10)
        return "".join(digits)
    kinds = (LETTERS, *VALUES.values())
    values_of_kind = next(values for values in kinds if result in values)
    wrong_values = [value for value in values_of_kind if value != result]
    index = int(rng.integers(len(wrong_values)))
    return wrong_values[index]


def decide_route(item: Item) -> str:
    """The router's right answer: a tool ("search", "calculator"), "reason", or "direct" for an easy question."""
    if item.group == "big":
        return "calculator"
    if item.group == "facts":
        return "search"
    return "direct" if item.difficulty <= 1 else "reason"


# One writer per role ------------------------------------------------------------------------------


def _write_reasoner_trace(item: Item, rng: np.random.Generator, role: str) -> Trace:
    """Write a conversation in which an agent solves a question with the tools on offer or by reasoning.

    Args:
        item: The question.
        rng: Draws the tools on offer and the hint ("be brief", "step by step" or none).
        role: "reasoner" or "worker", the role in the system message.

    Returns:
        (messages, tools): the conversation, and the names of the tools on offer.
    """
    tools = [tool for tool in TOOLS if rng.random() < TOOL_PROBABILITY]
    is_brief = bool(rng.random() < BRIEF_PROBABILITY)
    hints = []
    if is_brief:
        hints = [BRIEF]
    elif rng.integers(2):
        hints = [STEPS]

    # Tool calls replace the written solution.
    calls = write_tool_calls(item, tools)
    reasoning = "" if is_brief or calls else item.worked_solution
    system = write_system_message(role, *hints)
    user = write_user_turn(item.prompt)
    answer = format_reply(item.reference, reasoning)
    reply = write_assistant_turn(answer)
    return [system, user, *calls, reply], tools


def _write_verifier_trace(item: Item, rng: np.random.Generator, role: str) -> Trace:
    """Write a conversation in which a verifier judges a draft (a written solution) "right" or "wrong".

    Args:
        item: The question.
        rng: Draws whether the draft has a mistake, the mistake, and whether the hint "check each step" is there.
        role: "verifier", the role in the system message.

    Returns:
        (messages, tools): system message, question with draft, and verdict; no tools.
    """
    # Half of the drafts have a mistake.
    steps = item.worked_solution.split(" ; ")
    draft_steps, checked_steps, verdict = steps, steps, "right"
    if rng.random() < 0.5:
        index = int(rng.integers(len(steps)))
        draft_steps = insert_mistake(steps, index, rng, follow=item.group == "chain")
        checked_steps = steps[: index + 1]  # the check ends at the mistake
        verdict = "wrong"
    # The draft answers with the result of its last step. The answer of a multiple-choice question may be no step's
    # result; then it stays right.
    answer = item.reference
    if steps[-1].split()[-1] == item.reference:
        answer = draft_steps[-1].split()[-1]
    draft = f"question {item.prompt} draft {' ; '.join(draft_steps)} answer {answer}"

    # The steps are written down only where the hint asks for it.
    is_careful = bool(rng.random() < CHECK_PROBABILITY)
    hints = [CHECK] if is_careful else []
    reasoning = " ; ".join(checked_steps) if is_careful else ""
    return [
        write_system_message(role, *hints),
        write_user_turn(draft),
        write_assistant_turn(format_reply(verdict, reasoning)),
    ], []


def _write_answerer_trace(item: Item, rng: np.random.Generator, role: str) -> Trace:
    """Write a conversation in which an answerer reads other agents' work and gives the final answer.

    Args:
        item: The question.
        rng: Draws what it reads: three votes (answers, two of them right) or a whole solution.
        role: "answerer", the role in the system message.

    Returns:
        (messages, tools): system message, question with evidence, and answer; no tools.
    """
    if rng.random() < 0.5:
        votes = [item.reference, item.reference, _draw_wrong_result(item.reference, rng)]
        evidence = "votes " + " ".join(votes[i] for i in rng.permutation(3))
    else:
        evidence = f"evidence {item.worked_solution}"
    return [
        write_system_message(role),
        write_user_turn(f"question {item.prompt} {evidence}"),
        write_assistant_turn(format_reply(item.reference)),
    ], []


def _write_router_trace(item: Item, rng: np.random.Generator, role: str) -> Trace:
    """Write a conversation in which a router names what a question needs, for example "calculator"."""
    return [
        write_system_message(role),
        write_user_turn(item.prompt),
        write_assistant_turn(format_reply(decide_route(item))),
    ], []


_WRITERS: dict[str, Callable[[Item, np.random.Generator, str], Trace]] = {
    "reasoner": _write_reasoner_trace,
    "worker": _write_reasoner_trace,
    "verifier": _write_verifier_trace,
    "answerer": _write_answerer_trace,
    "router": _write_router_trace,
}
