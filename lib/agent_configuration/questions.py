"""The five kinds of questions that agents are configured for, standing in for the paper's five benchmarks.

They are families of `lib.tasks` that the lab's agents were trained on: training items for policies and searches, dev
items for the gate, test items for tables, each split by the content of the question. A question whose facts no single
source has (see `sources`) is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from lib import tasks
from lib.agent_configuration.sources import select_source
from lib.language_models.training.team_traces import answer_in_words
from lib.tasks import Item, TaskError

VERSION = 2  # of the questions of each kind, and which answers are right


@dataclass(frozen=True)
class Kind:
    """A kind of question.

    Attributes:
        name: Name in tables.
        family: Family of `lib.tasks`.
        difficulties: Difficulties of the family that are drawn.
        skin: The surface form of the family, such as a question with options.
        paper: The benchmark of the paper that it stands in for.
    """

    name: str
    family: str
    difficulties: tuple[int, ...]
    skin: str
    paper: str


KINDS = (
    Kind("chain", "chain", (2, 4, 6), "plain", "GSM8K"),
    Kind("passage", "passage", (1, 3, 5), "plain", "DROP"),
    Kind("choice", "facts", (1, 2), "choice", "MedQA"),
    Kind("hops", "facts", (2, 3), "plain", "HotpotQA"),
    Kind("mixed", "mixed", (1, 2, 3), "plain", "GAIA"),
)
NAMED = {kind.name: kind for kind in KINDS}
_SPARE = 30  # questions drawn per question asked for, since many come twice or have no source


@cache
def questions(kind: str, split: str, n: int, seed: int = 0) -> tuple[Item, ...]:
    """Draw different questions of a kind.

    Args:
        kind: Name of the kind.
        split: train, dev or test.
        n: Number of questions.
        seed: Seed of the draw.

    Returns:
        At most n questions, fewer where a split holds no more; the same ones whenever the arguments are the same.

    Raises:
        TaskError: There is no such kind or split.
    """
    if kind not in NAMED:
        raise TaskError(f"there is no kind of question {kind!r}; there are {', '.join(NAMED)}")
    source = NAMED[kind]
    items = tasks.draw_items(
        source.family, split, _SPARE * n, source.difficulties, source.skin, seed
    )
    # By prompt, so that no question comes twice.
    items_by_prompt = {item.prompt: item for item in items if select_source(item) is not None}
    ordered_items = _alternate_sources(list(items_by_prompt.values()))
    return tuple(ordered_items[:n])


def _alternate_sources(items: Sequence[Item]) -> list[Item]:
    """Order questions so that those that only the documents answer alternate with the others.

    The documents have fewer relations, so that without this most questions would need the same tool.

    Args:
        items: The questions.

    Returns:
        The same questions in another order.
    """
    needs_documents = [item for item in items if select_source(item) == "search"]
    needs_no_documents = [item for item in items if select_source(item) != "search"]
    if not needs_documents:
        return needs_no_documents
    alternating = []
    for pair in zip_longest(needs_documents, needs_no_documents):
        alternating += [item for item in pair if item is not None]
    return alternating


def kind_of(item: Item) -> str:
    """Name the kind of a question.

    Args:
        item: The question.

    Returns:
        Name of the kind.

    Raises:
        TaskError: It is of no kind.
    """
    for kind in KINDS:
        if (item.group, item.surface_form) == (kind.family, kind.skin):
            return kind.name
    raise TaskError(
        f"{item.group}, {item.surface_form}: no kind of question here; there are {', '.join(NAMED)}"
    )


def is_solved(item: Item, text: str) -> bool:
    """Check whether a reply is correct.

    Args:
        item: The question; without a known answer no reply is correct.
        text: The whole reply.

    Returns:
        Whether its answer is that of the question; among options, the letter or the words of the correct one.
    """
    if not item.reference:
        return False
    return tasks.is_correct(item, text) or tasks.is_correct(answer_in_words(item), text)
