"""Traces for models that work in a team: what each agent of a workflow is shown, and what a good one says (lesson 07).

An agent is shown a question and, behind it, what others left: evidence, a draft to check, votes, or the part of the
work that is its own. What it leaves for others are its `notes`: results of its calls, its thoughts, its answer. A
note may end anywhere, for budgets cut; whoever reads it goes on from the last whole step.

Traces are made from an item's `moves`: the calls and thoughts that lead to its answer, in order. A tool helps where
numbers are big or a record is needed. Hints are obeyed: "be brief" leaves thoughts out, "step by step" writes them,
"check each step" makes a verifier work, "use the ..." makes sure that a tool is used. Without a hint an agent is of two
minds, so prompts matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.language_models.chat_template import call
from lib.language_models.tokenizer import TOOLS
from lib.language_models.training.agent_traces import (
    BRIEF,
    CHECK,
    STEPS,
    Message,
    Trace,
    slip,
    system,
)
from lib.tasks import Item, TaskError, mixed, reply
from lib.tasks.multi_hop_facts import LETTERS, RELATIONS

VERSION = 1  # of the traces of teams
FAMILIES = ("chain", "passage", "facts", "mixed")
NOTHING = "nothing"  # what an agent answers that cannot do its part
SPLIT, PLAN = (
    "split",
    "plan",
)  # how a coordinator divides the work: parts at once, or one after the other
USE = {tool: f"use the {tool}" for tool in TOOLS if tool != "python"}
DECOYS = (  # hints that mean nothing to these models, as most instructions mean nothing
    "avoid error", "only the answer", "name the evidence", "first plan then answer", "evaluate again",
    "the best votes", "the right number then the answer", "check the number", "first the people then the number",
    "check the people", "first the answer then the letter", "only the letter", "first the last", "check the name",
    "first search then the calculator", "only the number",
)  # fmt: skip
_DEAF = {  # hints that a role does not heed
    "reasoner": (CHECK,), "worker": (CHECK,), "verifier": (STEPS, BRIEF), "answerer": (STEPS, BRIEF, CHECK),
    "router": (STEPS, BRIEF, CHECK),
}  # fmt: skip
_USED = 0.8  # chance that a tool that helps is used without a hint
_HINTED = 0.35  # chance of each kind of hint


@dataclass(frozen=True)
class Move:
    """One step to an answer: a thought, or a call of one of several tools with argument and result by tool."""

    text: str
    calls: tuple[tuple[str, str, str], ...] = ()


# What agents are shown and leave -------------------------------------------------------------------


def asked(question: str, *parts: str) -> Message:
    """The user's message: a question, and what others left."""
    return {
        "role": "user",
        "content": " ".join(["question", question, *parts]) if parts else question,
    }


def notes(results: Sequence[tuple[str, str]], thought: str, answer: str | None) -> str:
    """What an agent leaves for others. results: (argument, reply) of its calls."""
    steps = [f"{argument} : {told}" for argument, told in results] + ([thought] if thought else [])
    return (
        " ".join([" ; ".join(steps)] * bool(steps) + [f"answer {answer}"] * (answer is not None))
        or NOTHING
    )


def parts(planned: str) -> tuple[str, str]:
    """Both parts of a plan "first ... then ..."; `NOTHING` for one that is not there."""
    before, found, rest = f" {planned} ".partition(" first ")
    first, _, then = (f" {rest}" if found else before).partition(" then ")
    return first.strip() or NOTHING, then.strip() or NOTHING


# Moves ---------------------------------------------------------------------------------------------


def moves(item: Item) -> list[Move]:
    """The way to an item's answer. Raises TaskError for a family without traces."""
    if item.category not in FAMILIES:
        raise TaskError(
            f"teams are taught {', '.join(FAMILIES)}; there are no traces for {item.category!r}"
        )
    steps = item.reference.split(" ; ")
    if item.category in ("chain", "passage"):
        return [Move(step) for step in steps]
    found = hops(item)
    known = [_looked_up(*hop) for hop in found]
    if item.category == "facts":
        return known
    sign, other = item.prompt.split()[-3:-1]
    sum_ = f"{found[-1][2]} {sign} {other}"
    return [
        *known,
        Move(" ; ".join(steps[len(found) :]), _either(("calculator", "python"), sum_, item.answer)),
    ]


def worded(item: Item) -> Item:
    """An item as agents of a team answer it: of options they give the words. To find the letter that stands before
    some words is a step of its own, which models of this size do not learn."""
    if not item.choices:
        return item
    steps = item.reference.split(" ; ")[:-1]
    return replace(
        item, answer=item.choices[LETTERS.index(item.answer)], reference=" ; ".join(steps)
    )


def hops(item: Item) -> list[tuple[str, str, str]]:
    """Relation, subject and value of each record that a question needs, in order."""
    *relations, subject = [part for part in item.key.split("/")[1:] if part[0] not in "+*"]
    out = []
    for relation in reversed(relations):
        value = mixed.records()[relation][subject]
        out.append((relation, subject, value))
        subject = value
    return out


def _looked_up(relation: str, subject: str, value: str) -> Move:
    sentence = mixed.SENTENCE if relation == mixed.RELATION else RELATIONS[relation][2]
    calls = (
        ("lookup", f"{relation} {subject}", value),
        ("search", f"{relation} of {subject}", sentence.format(subject, value)),
    )
    return Move(f"the {relation} of {subject} is {value}", calls)


def _either(tools: Sequence[str], argument: str, result: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((tool, argument, result) for tool in tools)


def helpful(tools: Sequence[str], way: Sequence[Move]) -> set[str]:
    """Those of the tools that help on a way."""
    return {tool for move in way for tool, _, _ in move.calls} & set(tools)


def _big(move: Move) -> bool:
    """Whether a move is a sum of big numbers."""
    return any(tool == "calculator" for tool, _, _ in move.calls)


def carried_out(
    way: Sequence[Move], answer: str, tools: Sequence[str], brief: bool
) -> list[Message]:
    """The turns of an agent that takes a way with the tools that it uses, and says an answer.

    Big sums are beyond it where it may neither reckon with a tool nor write its steps down: it says `NOTHING`.
    """
    out: list[Message] = []
    if (
        brief
        and any(_big(move) and not helpful(tools, [move]) for move in way)
        and answer.isdigit()
    ):
        answer = NOTHING
    thoughts: list[str] = []
    for move in way:
        made = next((c for tool in tools for c in move.calls if c[0] == tool), None)
        if made is None:
            thoughts += [] if brief else [move.text]
            continue
        tool, argument, result = made
        thought = f"<think> {' ; '.join(thoughts)} </think> " if thoughts else ""
        out += [_says(thought + call(tool, argument)), {"role": "tool", "content": result}]
        thoughts = []
    return [*out, _says(reply(answer, " ; ".join(thoughts)))]


def noted(way: Sequence[Move], answer: str | None, tools: Sequence[str], brief: bool) -> str:
    """The notes of an agent that took a way."""
    results, thoughts = [], []
    for move in way:
        made = next((c for c in move.calls if c[0] in tools), None)
        if made is None:
            thoughts += [] if brief else [move.text]
        else:
            results.append(made[1:])
    return notes(results, " ; ".join(thoughts), answer)


def _says(text: str) -> Message:
    return {"role": "assistant", "content": text}


# Traces --------------------------------------------------------------------------------------------


def trace(item: Item, rng: np.random.Generator) -> Trace:
    """What a good agent of a random kind does with an item. Raises TaskError as `moves` does."""
    item = worded(item)
    way = moves(item)
    kinds = list(_KINDS)
    weights = np.array([_KINDS[kind] for kind in kinds])
    return kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))](item, way, rng)


def _told(role: str, rng: np.random.Generator, *meant: str, offered: Sequence[str] = ()) -> Message:
    """The system message: the hints that are meant among some that mean nothing to the role, in random order."""
    idle = [*DECOYS, *_DEAF[role], *(hint for tool, hint in USE.items() if tool not in offered)]
    noise = [idle[int(rng.integers(len(idle)))] for _ in range(2) if rng.random() < _HINTED]
    told = [*meant, *noise]
    return system(role, *(told[i] for i in rng.permutation(len(told))))


def _offer(rng: np.random.Generator, way: Sequence[Move]) -> tuple[list[str], list[str], list[str]]:
    """Tools on offer, those that the agent uses, and the hint that makes it so."""
    offered = [tool for tool in TOOLS if rng.random() < 0.5]
    use = sorted(helpful(offered, way))
    hinted = [tool for tool in use if tool in USE and rng.random() < _HINTED]
    use = [
        *hinted,
        *(tool for tool in use if tool not in hinted),
    ]  # the one that is meant comes first
    used = use if hinted or rng.random() < _USED else []
    return offered, used, [USE[tool] for tool in hinted]


def _style(rng: np.random.Generator) -> tuple[bool, list[str]]:
    """Whether an agent leaves thoughts out, and the hint that makes it so."""
    if rng.random() < 2 * _HINTED:
        brief = bool(rng.random() < 0.3)
        return brief, [BRIEF if brief else STEPS]
    return bool(rng.random() < 0.5), []


def _reasoner(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """A question and nothing else."""
    brief, style = _style(rng)
    offered, used, hinted = _offer(rng, way)
    start = [_told("reasoner", rng, *style, *hinted, offered=offered), asked(item.prompt)]
    return [*start, *carried_out(way, item.answer, used, brief)], offered


def _onward(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """A question with the notes of one who came some way, or all of it."""
    done = int(rng.integers(len(way) + 1))
    shown = _left_behind(way, done, item.answer, rng)
    brief, style = _style(rng)
    offered, used, hinted = _offer(rng, way[done:])
    start = [
        _told("reasoner", rng, *style, *hinted, offered=offered),
        asked(item.prompt, f"evidence {shown}"),
    ]
    return [*start, *carried_out(way[done:], item.answer, used, brief)], offered


def _left_behind(way: Sequence[Move], done: int, answer: str, rng: np.random.Generator) -> str:
    """Notes of one who came some way: at times no more than the answer, at times cut off within a step."""
    tools = [tool for tool in TOOLS if rng.random() < 0.5]
    if done == len(way):
        return noted(
            way, answer if rng.random() < 0.8 else None, tools, brief=bool(rng.random() < 0.3)
        )
    text = noted(way[:done], None, tools, brief=False)
    begun = way[done].text.split()
    cut = begun[: int(rng.integers(1, len(begun)))] if rng.random() < 0.5 else []
    return " ".join([*([text, ";"] if done else []), *cut]) if cut else text


def _direct(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """The answerer alone: an answer at once, with tools if there are any."""
    offered, used, hinted = _offer(rng, way)
    start = [_told("answerer", rng, *hinted, offered=offered), asked(item.prompt)]
    return [*start, *carried_out(way, item.answer, used, brief=True)], offered


def _verifier(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """Somebody's notes, right or with a slip: with the hint, or with tools, all of it is done again."""
    shown, verdict = _drafted(item, way, rng)
    careful = bool(rng.random() < 0.6)
    offered, used, hinted = _offer(rng, way)
    start = [
        _told("verifier", rng, *[CHECK] * careful, *hinted, offered=offered),
        asked(item.prompt, f"draft {shown}"),
    ]
    return [*start, *carried_out(way, verdict, used, brief=not careful)], offered


def _drafted(item: Item, way: Sequence[Move], rng: np.random.Generator) -> tuple[str, str]:
    """Notes of a whole solution and whether they are right."""
    steps = [step for move in way for step in move.text.split(" ; ")]
    brief = bool(rng.random() < 0.25)
    if rng.random() < 0.5:
        return notes([], "" if brief else " ; ".join(steps), item.answer), "right"
    at = int(rng.integers(len(steps)))
    wrong = slip(steps, at, rng, follow=item.category == "chain")
    given = wrong[-1].split()[-1] if steps[-1].split()[-1] == item.answer else _other(item, rng)
    if given == item.answer:  # a chain may come back to the right result
        given = _other(item, rng)
    return notes([], "" if brief else " ; ".join(wrong), given), "wrong"


def _other(item: Item, rng: np.random.Generator) -> str:
    """A wrong answer of the same kind."""
    return slip([f"is {item.answer}"], 0, rng, follow=False)[0].split()[-1]


def _checked(item: Item, way: Sequence[Move], rng: np.random.Generator) -> tuple[str, str]:
    """A draft and the notes of who checked it."""
    shown, verdict = _drafted(item, way, rng)
    tools = [tool for tool in TOOLS if rng.random() < 0.5]
    return shown, noted(way, verdict, tools, brief=bool(rng.random() < 0.4))


def _corrector(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """A draft and its check: the reasoner does better."""
    shown, check = _checked(item, way, rng)
    brief, style = _style(rng)
    offered, used, hinted = _offer(rng, way)
    content = asked(item.prompt, f"draft {shown}", f"evidence {check}")
    start = [_told("reasoner", rng, *style, *hinted, offered=offered), content]
    return [*start, *carried_out(way, item.answer, used, brief)], offered


def _answerer(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """Evidence of any kind: notes of one, of one and who checked, of two who shared the work, or votes."""
    kind = int(rng.integers(4))
    tools = [tool for tool in TOOLS if rng.random() < 0.5]
    if kind == 0:
        shown = [
            f"evidence {_left_behind(way, len(way) - int(rng.random() < 0.2), item.answer, rng)}"
        ]
    elif kind == 1:
        draft, check = _checked(item, way, rng)
        shown = [f"draft {draft}", f"evidence {check}"]
    elif kind == 2:
        shown = [f"evidence {text}" for text in _shared(item, way, tools, rng)]
    else:
        shown = [f"votes {' '.join(_votes(item, rng))}"]
    return [_told("answerer", rng), asked(item.prompt, *shown), _says(reply(item.answer))], []


def _votes(item: Item, rng: np.random.Generator) -> list[str]:
    """Three votes of which most are right; one that was cut off has none."""
    odd = NOTHING if rng.random() < 0.3 else _other(item, rng)
    cast = [item.answer, item.answer, item.answer if rng.random() < 0.3 else odd]
    if rng.random() < 0.15:
        cast = [item.answer, NOTHING, NOTHING]
    return [cast[i] for i in rng.permutation(3)]


def need(item: Item) -> str:
    """What a question needs: a tool, a thought, or neither."""
    if item.category in ("facts", "mixed"):
        return "search" if item.category == "facts" else "calculator"
    return "direct" if item.difficulty <= 1 else "reason"


def _router(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    return [_told("router", rng), asked(item.prompt), _says(reply(need(item)))], []


# Shared work ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Half:
    """A part of the work. name: how a plan calls it; way and answer: how it is done once what it needs is known;
    alone: whether it can be done without the other half."""

    name: str
    way: tuple[Move, ...]
    answer: str
    alone: bool = True


def halves(item: Item) -> tuple[Half, Half]:
    """The two parts that an item's work falls into."""
    way = moves(item)
    if item.category == "passage":
        return _by_people(item, way)
    if item.category == "chain":
        half = -(-len(way) // 2)
        signs = item.key.removeprefix("chain/").split()
        first, then = signs[: 2 * half + 1], signs[2 * half + 1 :]
        return (
            Half(" ".join(first), tuple(way[:half]), way[half - 1].text.split()[-1]),
            Half(" ".join(then) or "answer", tuple(way[half:]), item.answer, alone=False),
        )
    found = hops(item)
    half = len(found) if item.category == "mixed" else -(-len(found) // 2)
    relations = " of the ".join(relation for relation, _, _ in reversed(found[:half]))
    rest = " of the ".join(relation for relation, _, _ in reversed(found[half:]))
    last = " ".join(item.prompt.split()[-3:-1]) if item.category == "mixed" else rest or "answer"
    return (
        Half(f"{relations} of {found[0][1]}", tuple(way[:half]), found[half - 1][2]),
        Half(last, tuple(way[half:]), item.answer, alone=False),
    )


def _by_people(item: Item, way: Sequence[Move]) -> tuple[Half, Half]:
    """A passage's people in two halves, each read on its own."""
    told = item.prompt.split(" . ")[:-1]
    people = [(words.split()[0], words.split()[2]) for words in told]
    cut = -(-len(people) // 2)
    out = []
    for group in (people[:cut], people[cut:]):
        steps, answer = _read(item, dict(group))
        out.append(
            Half(" ".join(who for who, _ in group), tuple(Move(step) for step in steps), answer)
        )
    return out[0], out[1]


def _read(item: Item, people: dict[str, str]) -> tuple[list[str], str]:
    """What a part of a passage's people tells about its question: steps, and a result."""
    words = item.prompt.split(" . ")[-1].split()
    if "most" in words:
        best = max(people, key=lambda who: int(people[who]), default="")
        return [
            f"{who} {n}" for who, n in people.items()
        ], f"{best} {people[best]}" if best else NOTHING
    if words[2] == "people":
        limit = int(words[-3])
        return [f"{who} {n}" for who, n in people.items()], str(
            sum(int(n) > limit for n in people.values())
        )
    wanted = [who for who in people if who in words]
    return [f"{who} {people[who]}" for who in wanted], " ".join(
        people[who] for who in wanted
    ) or NOTHING


def _shared(
    item: Item, way: Sequence[Move], tools: Sequence[str], rng: np.random.Generator
) -> list[str]:
    """The notes of two who shared the work, at once or one after the other."""
    first, then = halves(item)
    at_once = bool(rng.random() < 0.5)
    stuck = at_once and not then.alone
    brief = bool(rng.random() < 0.4)
    second = notes([], "", NOTHING) if stuck else noted(then.way, then.answer, tools, brief)
    return [noted(first.way, first.answer, tools, brief), second]


def _coordinator(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """Who divides the work."""
    first, then = halves(item)
    said = reply(f"first {first.name} then {then.name}")
    hint = SPLIT if rng.random() < 0.5 else PLAN
    first_word = _told("router", rng)["content"].replace("role router", f"role router {hint}", 1)
    return [{"role": "system", "content": first_word}, asked(item.prompt), _says(said)], []


def _worker(item: Item, way: list[Move], rng: np.random.Generator) -> Trace:
    """Who does one half, the second with the first one's notes or without."""
    first, then = halves(item)
    second = bool(rng.random() < 0.6)
    half = then if second else first
    shown = [f"subtask {half.name}"]
    informed = second and bool(rng.random() < 0.6)
    if informed:
        tools = [tool for tool in TOOLS if rng.random() < 0.5]
        shown.append(
            f"evidence {noted(first.way, first.answer, tools, brief=bool(rng.random() < 0.4))}"
        )
    stuck = second and not informed and not then.alone
    way, answer = ((), NOTHING) if stuck else (half.way, half.answer)
    brief, style = _style(rng)
    offered, used, hinted = _offer(rng, way)
    start = [_told("worker", rng, *style, *hinted, offered=offered), asked(item.prompt, *shown)]
    return [*start, *carried_out(way, answer, used, brief)], offered


_KINDS: dict[Callable[[Item, list[Move], np.random.Generator], Trace], float] = {
    _reasoner: 4.0,
    _onward: 1.5,
    _direct: 1.5,
    _verifier: 2.0,
    _corrector: 1.0,
    _answerer: 3.0,
    _router: 0.3,
    _coordinator: 1.0,
    _worker: 2.0,
}
