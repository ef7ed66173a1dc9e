"""Moves: the steps of an item's solution, each a tool call or a line of reasoning, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lib.tasks import Item, TaskError, mixed
from lib.tasks.multi_hop_facts import LETTERS, RELATIONS

FAMILIES = ("chain", "passage", "facts", "mixed")
NOTHING = "nothing"  # the answer of an agent that cannot solve its subtask


@dataclass(frozen=True)
class Move:
    """One step of a solution: a line of reasoning, or a call of one of several tools that give the same.

    Attributes:
        text: The step as reasoning, for example "the home of Ana is Loro".
        calls: (tool, argument, result) of every tool that can do the step, for example ("lookup", "home Ana", "Loro");
            empty where only reasoning can.
    """

    text: str
    calls: tuple[tuple[str, str, str], ...] = ()


def list_moves(item: Item) -> list[Move]:
    """List the steps of an item's solution, with the tool calls that can replace each.

    Args:
        item: A question of one of FAMILIES.

    Returns:
        The steps in order. Those of "chain" and "passage" can only be reasoned.

    Raises:
        TaskError: For a family without traces.
    """
    if item.group not in FAMILIES:
        raise TaskError(
            f"teams are taught {', '.join(FAMILIES)}; there are no traces for {item.group!r}"
        )
    steps = item.worked_solution.split(" ; ")
    if item.group in ("chain", "passage"):
        return [Move(step) for step in steps]

    # A record is looked up or searched for.
    hops = look_up_hops(item)
    moves = []
    for relation, subject, value in hops:
        sentence = mixed.SENTENCE if relation == mixed.RELATION else RELATIONS[relation][2]
        lookup = ("lookup", f"{relation} {subject}", value)
        search = ("search", f"{relation} of {subject}", sentence.format(subject, value))
        moves.append(Move(f"the {relation} of {subject} is {value}", (lookup, search)))
    if item.group == "facts":
        return moves

    # A mixed question ends in a sum with the number that was looked up.
    sign, operand = item.prompt.split()[-3:-1]
    _, _, number = hops[-1]
    expression = f"{number} {sign} {operand}"
    calls = tuple((tool, expression, item.reference) for tool in ("calculator", "python"))
    sum_steps = steps[len(hops) :]
    moves.append(Move(" ; ".join(sum_steps), calls))
    return moves


def look_up_hops(item: Item) -> list[tuple[str, str, str]]:
    """Look up the records that answer a multi-hop question.

    Args:
        item: A question of the family facts or mixed, whose id names its relations: "facts/home/friend/Ana" is "What
            is the home of the friend of Ana ?".

    Returns:
        (relation, subject, value) of every hop, in order: ("friend", "Ana", "Cy"), ("home", "Cy", "Loro").
    """
    # The id of a mixed question also holds an operation such as "+3", which is no relation.
    _, *words = item.id.split("/")
    *relations, subject = [word for word in words if word[0] not in "+*"]
    hops = []
    for relation in reversed(relations):
        value = mixed.build_records()[relation][subject]
        hops.append((relation, subject, value))
        subject = value
    return hops


def answer_in_words(item: Item) -> Item:
    """Make the words of the right option the reference answer of a multiple-choice item, instead of its letter.

    Mapping an option's words back to its letter is a further step, which models of this size do not learn.

    Args:
        item: Any item.

    Returns:
        A copy with another reference, and without the last solution step "A : Loro"; the item itself where it has no
        options.
    """
    if not item.choices:
        return item
    steps_to_option = item.worked_solution.split(" ; ")[:-1]
    return replace(
        item,
        reference=item.choices[LETTERS.index(item.reference)],
        worked_solution=" ; ".join(steps_to_option),
    )


def select_helpful_tools(tools: Sequence[str], moves: Sequence[Move]) -> set[str]:
    """The tools that can do at least one of the moves (steps of a solution)."""
    return {tool for move in moves for tool, _, _ in move.calls} & set(tools)


def decide_route(item: Item) -> str:
    """The router's right answer: a tool ("search", "calculator"), "reason", or "direct" for an easy question."""
    if item.group == "facts":
        return "search"
    if item.group == "mixed":
        return "calculator"
    return "direct" if item.difficulty <= 1 else "reason"
