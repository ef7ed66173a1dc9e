"""The five kinds of questions that agents are configured for, standing in for the paper's five benchmarks.

They are families of `lib.tasks` that the lab's agents were taught: training items for policies, dev items for
searches, test items for tables, each split by the content of the question.
"""

from dataclasses import dataclass
from functools import cache

from lib import tasks
from lib.language_models.training.team_traces import answer_in_words
from lib.tasks import Item, TaskError

VERSION = 1  # of the questions of each kind, and which answers are right


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
_SPARE = 30  # draws per item wanted


@cache
def questions(kind: str, split: str, n: int, seed: int = 0) -> tuple[Item, ...]:
    """At most n different questions of a kind and split; fewer where a split holds no more.

    Equal arguments give equal items. Raises TaskError for an unknown kind or split.
    """
    if kind not in NAMED:
        raise TaskError(f"there is no kind of question {kind!r}; there are {', '.join(NAMED)}")
    about = NAMED[kind]
    drawn = tasks.draw_items(about.family, split, _SPARE * n, about.difficulties, about.skin, seed)
    return tuple({item.prompt: item for item in drawn}.values())[:n]


def kind_of(item: Item) -> str:
    """The kind of an item. Raises TaskError for one of no kind."""
    for kind in KINDS:
        if (item.group, item.surface_form) == (kind.family, kind.skin):
            return kind.name
    raise TaskError(
        f"{item.group}, {item.surface_form}: no kind of question here; there are {', '.join(NAMED)}"
    )


def solved(item: Item, text: str) -> bool:
    """Whether a whole reply is right; of options their words count as much as their letter. Nothing is right where
    nobody knows the answer."""
    return bool(item.reference) and any(
        tasks.is_correct(one, text) for one in (item, answer_in_words(item))
    )
