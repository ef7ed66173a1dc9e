"""How a team shares the work on an item: two subtasks, and the plan that names them."""

from dataclasses import dataclass

from lib.language_models.training.team_traces.moves import (
    NOTHING,
    Move,
    list_moves,
    look_up_hops,
)
from lib.tasks import Item

# How a coordinator divides the work: into subtasks that run in parallel, or one after the other.
SPLIT, PLAN = "split", "plan"


def split_plan(plan: str) -> tuple[str, str]:
    """Parse a plan: "first home of Ana then river" -> ("home of Ana", "river").

    Args:
        plan: The answer of a coordinator, a model; "first" or "then" may be missing.

    Returns:
        Both subtasks; NOTHING for one that is missing.
    """
    padded = f" {plan} "  # so that a word at either end has blanks around it
    before, first_word, behind = padded.partition(" first ")
    subtasks = f" {behind}" if first_word else before
    first, _, second = subtasks.partition(" then ")
    return first.strip() or NOTHING, second.strip() or NOTHING


@dataclass(frozen=True)
class WorkHalf:
    """One of the two subtasks that an item's work is divided into.

    Attributes:
        name: What a plan calls it.
        moves: How it is done once what it needs is known.
        answer: Its result.
        is_independent: Whether it can be done without the other half.
    """

    name: str
    moves: tuple[Move, ...]
    answer: str
    is_independent: bool = True


def split_work(item: Item) -> tuple[WorkHalf, WorkHalf]:
    """Divide the solution of an item into two subtasks, as a coordinator would.

    Args:
        item: A question of one of FAMILIES.

    Returns:
        Both halves. The second needs the result of the first, except for a passage, whose halves are read apart.

    Raises:
        TaskError: For a family without traces.
    """
    if item.group == "passage":
        return _split_passage(item)
    if item.group == "chain":
        return _split_chain(item)
    return _split_hops(item)


def _split_chain(item: Item) -> tuple[WorkHalf, WorkHalf]:
    """Cut a chain of operations in the middle: "3 + 4 * 2" -> "3 + 4" and "* 2".

    Args:
        item: A question of the family chain.

    Returns:
        Both halves. A chain of one operation leaves nothing for the second, whose name is then "answer".
    """
    moves = tuple(list_moves(item))
    middle = -(-len(moves) // 2)  # rounded up
    # The id is a digit, then a sign and a digit for every move.
    words = item.id.removeprefix("chain/").split()
    cut = 2 * middle + 1
    first_name = " ".join(words[:cut])
    second_name = " ".join(words[cut:]) or "answer"
    last_step = moves[middle - 1].text
    first_answer = last_step.split()[-1]
    first = WorkHalf(first_name, moves[:middle], first_answer)
    second = WorkHalf(second_name, moves[middle:], item.reference, is_independent=False)
    return first, second


def _split_hops(item: Item) -> tuple[WorkHalf, WorkHalf]:
    """Cut a multi-hop question between its hops, and a mixed one between its last hop and the sum.

    Args:
        item: A question of the family facts or mixed.

    Returns:
        Both halves, for example "friend of Ana" and "home", or "number of Ana" and "+ 38".
    """
    moves = tuple(list_moves(item))
    hops = look_up_hops(item)
    if item.group == "mixed":
        middle = len(hops)
        sign, number = item.prompt.split()[-3:-1]
        second_name = f"{sign} {number}"
    else:
        middle = -(-len(hops) // 2)  # rounded up
        second_name = _join_relations(hops[middle:]) or "answer"
    _, subject, _ = hops[0]
    _, _, first_answer = hops[middle - 1]
    first_name = f"{_join_relations(hops[:middle])} of {subject}"
    first = WorkHalf(first_name, moves[:middle], first_answer)
    second = WorkHalf(second_name, moves[middle:], item.reference, is_independent=False)
    return first, second


def _join_relations(hops: list[tuple[str, str, str]]) -> str:
    """Name a path of hops as a question does, the last hop first: "home of the friend"."""
    relations = [relation for relation, _, _ in hops]
    return " of the ".join(reversed(relations))


def _split_passage(item: Item) -> tuple[WorkHalf, WorkHalf]:
    """Cut a passage in the middle: each half holds half of the sentences, such as "Ana has 3 pens"."""
    *sentences, _ = item.prompt.split(" . ")
    counts = []
    for sentence in sentences:  # "Ana has 3 pens"
        person, _, count, _ = sentence.split()
        counts.append((person, count))
    middle = -(-len(counts) // 2)  # rounded up
    first = _read_half_passage(item, dict(counts[:middle]))
    second = _read_half_passage(item, dict(counts[middle:]))
    return first, second


def _read_half_passage(item: Item, counts: dict[str, str]) -> WorkHalf:
    """Make the subtask of reading half of a passage: what do these people contribute to the answer?

    Args:
        item: The whole question: a passage of sentences such as "Ana has 3 pens", and what is asked about it.
        counts: Of this half: {"Ana": "3", ...}.

    Returns:
        The subtask, with the answer that its half allows: the best of these people with the count, how many of them
        are above the limit, or the counts of those that the question names.
    """
    question = item.prompt.split(" . ")[-1].split()
    people = list(counts)
    if "most" in question:
        best = max(counts, key=lambda person: int(counts[person]), default="")
        answer = f"{best} {counts[best]}" if best else NOTHING
    elif question[2] == "people":  # "How many people have more than 2 pens ?"
        limit = int(question[-3])
        num_above = sum(int(count) > limit for count in counts.values())
        answer = str(num_above)
    else:
        people = [person for person in counts if person in question]
        answer = " ".join(counts[person] for person in people) or NOTHING
    moves = tuple(Move(f"{person} {counts[person]}") for person in people)
    return WorkHalf(" ".join(counts), moves, answer)
