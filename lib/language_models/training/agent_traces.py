"""Traces for the agent model: roles, hints and tools, and what a good agent does with them.

The system message names the role and the hints, the tools on offer stand behind them. Traces obey:
"be brief" is an answer without a thought, "step by step" the worked solution, a sum of big numbers is
given to the calculator if there is one, a fact is looked up or searched hop by hop. The verifier
checks a draft, which is right in every other trace; the answerer reads evidence or counts votes; the
router names what a question needs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lib.language_models.chat_template import call, called
from lib.tasks import Item, TaskError, answered, reply
from lib.tasks.arithmetic_chain import OPERATIONS
from lib.tasks.multi_hop_facts import LETTERS, RELATIONS, VALUES, records

VERSION = 1  # of the traces of agents
TOOLS = ("calculator", "search", "lookup")
FAMILIES = ("chain", "big", "facts", "passage")
OFFERED = 0.7  # chance of each tool to be on offer
STEPS, BRIEF, CHECK = "step by step", "be brief", "check each step"
Message = dict[str, str]
Trace = tuple[list[Message], list[str]]  # messages and the tools on offer


def system(role: str, *hints: str) -> Message:
    """The message that tells the agent model who it is."""
    return {"role": "system", "content": " ".join(["role", role, *hints])}


def trace(item: Item, rng: np.random.Generator) -> Trace:
    """What a good agent does with an item in a random role, under random hints and tools.

    Raises TaskError for a family without traces.
    """
    if item.category not in FAMILIES:
        raise TaskError(
            f"agents are taught {', '.join(FAMILIES)}; there are no traces for {item.category!r}"
        )
    roles = ("reasoner", "reasoner", "worker", "verifier", "answerer", "router")
    role = roles[int(rng.integers(len(roles)))]
    if role == "verifier" and item.category == "big":
        role = "reasoner"  # nobody here checks big numbers by hand
    return _ROLES[role](item, rng, role)


@dataclass(frozen=True)
class Turn:
    """What the agent is to answer: messages and tools so far, its right first turn, and in which role
    ("tool" where that turn is a call)."""

    messages: list[Message]
    tools: list[str]
    wanted: str
    kind: str


def first_turn(messages: list[Message], tools: list[str]) -> Turn:
    """The first turn of a trace."""
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    wanted = messages[first]["content"]
    role = "tool" if called(wanted) else messages[0]["content"].split()[1]
    return Turn(messages[:first], tools, wanted, role)


def agrees(reply: str, wanted: str) -> bool:
    """Whether a turn does what a trace does: the same call, or the same answer however thought out."""
    if called(wanted):
        return called(reply) == called(wanted)
    return answered(reply) is not None and answered(reply) == answered(wanted)


def _reasoner(item: Item, rng: np.random.Generator, role: str) -> Trace:
    tools = [t for t in TOOLS if rng.random() < OFFERED]
    brief = bool(rng.random() < 0.15)
    hints = [BRIEF] if brief else [STEPS] * int(rng.integers(2))
    start = [system(role, *hints), {"role": "user", "content": item.prompt}]
    used = tool_steps(item, tools)
    if used:
        return [*start, *used, _says(reply(item.answer))], tools
    return [*start, _says(reply(item.answer, "" if brief else item.reference))], tools


def tool_steps(item: Item, tools: list[str]) -> list[Message]:
    """Calls and their results, if one of the tools on offer helps with the item; else none."""
    if item.category == "big" and "calculator" in tools:
        return _step("calculator", item.prompt.removesuffix(" = ?"), item.answer)
    if item.category != "facts" or not {"lookup", "search"} & set(tools):
        return []
    steps: list[Message] = []
    for relation, subject, value in hops(item):
        if "lookup" in tools:
            steps += _step("lookup", f"{relation} {subject}", value)
        else:
            steps += _step(
                "search", f"{relation} of {subject}", RELATIONS[relation][2].format(subject, value)
            )
    return steps


def hops(item: Item) -> list[tuple[str, str, str]]:
    """Relation, subject and value of each record that a question about facts needs, in order."""
    *relations, start = item.key.split("/")[1:]
    out, subject = [], start
    for relation in reversed(relations):
        value = records()[relation][subject]
        out.append((relation, subject, value))
        subject = value
    return out


def _step(tool: str, argument: str, result: str) -> list[Message]:
    return [_says(call(tool, argument)), {"role": "tool", "content": result}]


def _says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _verifier(item: Item, rng: np.random.Generator, role: str) -> Trace:
    steps = item.reference.split(" ; ")
    slipped = int(rng.integers(len(steps))) if rng.random() < 0.5 else None
    drafted = (
        steps if slipped is None else slip(steps, slipped, rng, follow=item.category == "chain")
    )
    concludes = steps[-1].split()[-1] == item.answer  # else the answer is another word: a letter
    given = drafted[-1].split()[-1] if concludes else item.answer
    careful = bool(rng.random() < 0.7)
    checked = steps if slipped is None else steps[: slipped + 1]
    start = [
        system(role, *[CHECK] * careful),
        {"role": "user", "content": draft(item.prompt, drafted, given)},
    ]
    verdict = "right" if slipped is None else "wrong"
    return [*start, _says(reply(verdict, " ; ".join(checked) if careful else ""))], []


def draft(prompt: str, steps: list[str], answer: str) -> str:
    """A question and somebody's solution, for the verifier to judge."""
    return f"question {prompt} draft {' ; '.join(steps)} answer {answer}"


def slip(steps: list[str], at: int, rng: np.random.Generator, follow: bool) -> list[str]:
    """The steps with a wrong result in step `at`; `follow`: those after it reckon on with it."""
    head, _, result = steps[at].rpartition(" ")
    out = [*steps[:at], f"{head} {_another(result, rng)}"]
    for step in steps[at + 1 :]:
        if follow:
            _, sign, digit, *_ = step.split()
            total = int(out[-1].split()[-1])
            step = f"{total} {sign} {digit} = {OPERATIONS[sign](total, int(digit))}"
        out.append(step)
    return out


def _another(result: str, rng: np.random.Generator) -> str:
    """A wrong result of the same kind: a number with one digit changed, another person, town or job."""
    if result.isdigit():
        at, digit = int(rng.integers(len(result))), (int(rng.integers(1, 10)))
        return result[:at] + str((int(result[at]) + digit) % 10) + result[at + 1 :]
    kind = next(values for values in (LETTERS, *VALUES.values()) if result in values)
    others = [value for value in kind if value != result]
    return others[int(rng.integers(len(others)))]


def _answerer(item: Item, rng: np.random.Generator, role: str) -> Trace:
    if rng.random() < 0.5:
        votes = [item.answer, item.answer, _another(item.answer, rng)]
        shown = "votes " + " ".join(votes[i] for i in rng.permutation(3))
    else:
        shown = f"evidence {item.reference}"
    return [
        system(role),
        {"role": "user", "content": f"question {item.prompt} {shown}"},
        _says(reply(item.answer)),
    ], []


def need(item: Item) -> str:
    """What a question needs: a tool, a thought, or neither."""
    if item.category == "big":
        return "calculator"
    if item.category == "facts":
        return "search"
    return "direct" if item.difficulty <= 1 else "reason"


def _router(item: Item, rng: np.random.Generator, role: str) -> Trace:
    return [system(role), {"role": "user", "content": item.prompt}, _says(reply(need(item)))], []


_ROLES: dict[str, Callable[[Item, np.random.Generator, str], Trace]] = {
    "reasoner": _reasoner,
    "worker": _reasoner,
    "verifier": _verifier,
    "answerer": _answerer,
    "router": _router,
}
