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
    """A kind of question. family, difficulties, skin: of `lib.tasks`; paper: the benchmark that it stands in for."""

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
    """At most n different questions of a kind and split; fewer where a split holds no more.

    Equal arguments give equal items. Raises TaskError for an unknown kind or split.
    """
    if kind not in NAMED:
        raise TaskError(f"there is no kind of question {kind!r}; there are {', '.join(NAMED)}")
    about = NAMED[kind]
    items = tasks.draw_items(about.family, split, _SPARE * n, about.difficulties, about.skin, seed)
    # By prompt, so that no question comes twice.
    unique_items = {item.prompt: item for item in items if select_source(item) is not None}
    return tuple(_alternate_sources(list(unique_items.values()))[:n])


def _alternate_sources(items: Sequence[Item]) -> list[Item]:
    """Put questions that only the documents answer and all others in turn, for as long as there are both.

    Fewer relations are in the documents, so that without this most questions would want the same tool.
    """
    needs_documents = [item for item in items if select_source(item) == "search"]
    others = [item for item in items if select_source(item) != "search"]
    if not needs_documents:
        return others
    alternating = []
    for pair in zip_longest(needs_documents, others):
        alternating += [item for item in pair if item is not None]
    return alternating


def kind_of(item: Item) -> str:
    """The kind of an item. Raises TaskError for one of no kind."""
    for kind in KINDS:
        if (item.group, item.surface_form) == (kind.family, kind.skin):
            return kind.name
    raise TaskError(
        f"{item.group}, {item.surface_form}: no kind of question here; there are {', '.join(NAMED)}"
    )


def solved(item: Item, text: str) -> bool:
    """Whether a whole reply is right; of options their words count as much as their letter.

    Without a known answer no reply is right.
    """
    return bool(item.reference) and any(
        tasks.is_correct(one, text) for one in (item, answer_in_words(item))
    )
