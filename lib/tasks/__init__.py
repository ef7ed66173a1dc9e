"""Language tasks: what a model is asked, and how its reply is scored.

    items = tasks.draw_items("chain", "test", 10, difficulty=3)
    tasks.is_correct(items[0], "<answer> 7 </answer>")

Items of the procedural families are drawn, as many as are wanted, in splits that share no content; `load` takes them
from files too. Left out: who is asked.
"""

from collections.abc import Mapping, Sequence

from lib.experiment import seeds
from lib.tasks import (
    arithmetic_chain,
    long_arithmetic,
    mixed,
    multi_hop_facts,
    reading_comprehension,
    story,
    theory_of_mind,
    translation,
)
from lib.tasks.dataset import Dataset, load
from lib.tasks.item import SPLITS, Family, Item, TaskError, extract_answer, format_reply
from lib.tasks.rules import describe_rules

VERSION = 1  # of the items and scores of this package
__all__ = [
    "FAMILIES",
    "SPLITS",
    "Dataset",
    "Family",
    "Item",
    "TaskError",
    "describe_rules",
    "draw_evenly",
    "draw_items",
    "extract_answer",
    "format_reply",
    "get_family",
    "is_correct",
    "load",
    "score_reply",
]

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        arithmetic_chain,
        long_arithmetic,
        multi_hop_facts,
        reading_comprehension,
        theory_of_mind,
        story,
        translation,
        mixed,
    )
}
_DRAWS_PER_ITEM = 1_000  # before a split is said to be exhausted


def get_family(name: str) -> Family:
    """Look up a family of procedural tasks (a generator of questions with answers) by its name.

    Args:
        name: A key of FAMILIES, for example "chain".

    Returns:
        The family.

    Raises:
        TaskError: For a name that no family has.
    """
    if name not in FAMILIES:
        raise TaskError(f"unknown family {name!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def draw_items(
    family: str,
    split: str,
    n: int,
    difficulty: int | Sequence[int] | None = None,
    surface_form: str | None = None,
    seed: int = 0,
    unique: bool = False,
) -> list[Item]:
    """Draw items (questions with reference answers) of one task family and split. Equal arguments give equal items.

    Args:
        family: Name of the family, a key of FAMILIES.
        split: "train", "dev" or "test". The hash of an item's content decides which of them it belongs to.
        n: Number of items.
        difficulty: One difficulty, several (drawn with equal probability), or None for all of the family.
        surface_form: How questions are worded, one of the family's surface forms; None for the usual one, "any" for a
            random one per item.
        seed: Seed of the random numbers.
        unique: Whether items must differ in their ids, that is, in their content.

    Returns:
        The items.

    Raises:
        TaskError: For an unknown family, split, difficulty or surface form, and where the split does not hold n
            different items.
    """
    drawn_family = get_family(family)
    if difficulty is None:
        difficulties = drawn_family.difficulties
    elif isinstance(difficulty, int):
        difficulties = (difficulty,)
    else:
        difficulties = tuple(difficulty)
    _check_arguments(drawn_family, split, difficulties, surface_form)

    if surface_form == "any":
        surface_forms = drawn_family.surface_forms
    else:
        surface_forms = (surface_form or drawn_family.surface_forms[0],)

    # A family draws items of any split: reject those of other splits, and draw until there are enough.
    stream = ("tasks", family, split, "-".join(map(str, difficulties)), surface_form or "")
    rng = seeds.rng(*stream, seed=seed)
    items: list[Item] = []
    item_ids: set[str] = set()
    for _ in range(_DRAWS_PER_ITEM * n):
        if len(items) == n:
            break
        item_difficulty = difficulties[int(rng.integers(len(difficulties)))]
        item_form = surface_forms[int(rng.integers(len(surface_forms)))]
        item = drawn_family.draw_item(rng, item_difficulty, item_form)
        if item.split == split and not (unique and item.id in item_ids):
            items.append(item)
            item_ids.add(item.id)
    if len(items) < n:
        raise TaskError(
            f"the {split} split of {family} at difficulty {difficulties} holds fewer than {n} different items"
        )
    return items


def _check_arguments(
    family: Family, split: str, difficulties: tuple[int, ...], surface_form: str | None
) -> None:
    """Raise a TaskError, which lists what there is, for a split, difficulty or surface form that the family lacks."""
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    unknown = [level for level in difficulties if level not in family.difficulties]
    if unknown or not difficulties:
        raise TaskError(
            f"{family.name} has difficulties {family.difficulties}, not {unknown or difficulties}"
        )
    if surface_form not in (None, "any", *family.surface_forms):
        known_forms = ", ".join(family.surface_forms)
        raise TaskError(f"{family.name} has the surface forms {known_forms}, not {surface_form!r}")


def draw_evenly(
    difficulties_by_family: Mapping[str, Sequence[int]],
    split: str,
    n: int,
    seed: int = 0,
    unique: bool = False,
) -> list[Item]:
    """Draw items (questions with reference answers) in equal numbers from several task families.

    Args:
        difficulties_by_family: Difficulties to draw from, by the name of the family.
        split: "train", "dev" or "test".
        n: Number of items in all; if families cannot have equally many, the first ones have one more.
        seed: Seed of the random numbers.
        unique: Whether items of a family must differ in their ids, that is, in their content.

    Returns:
        The items, family after family.

    Raises:
        TaskError: For no family at all, and as `draw_items` does.
    """
    if not difficulties_by_family:
        raise TaskError("no family to draw questions from")
    per_family, remainder = divmod(n, len(difficulties_by_family))
    items = []
    for i, (family, difficulties) in enumerate(difficulties_by_family.items()):
        num_items = per_family + (i < remainder)
        items += draw_items(family, split, num_items, difficulties, seed=seed, unique=unique)
    return items


def score_reply(item: Item, text: str) -> float:
    """Score a model's reply to a question by the rule of the task family that the question is from.

    Args:
        item: The question, with its reference answer; `item.group` is the name of its family.
        text: The whole reply. The answer is what stands in the `<answer>` tags at its end.

    Returns:
        The score, from 0 to 1; 0 where the reply does not end in answer tags.

    Raises:
        TaskError: For an item of no family.
    """
    answer = extract_answer(text)
    if answer is None:
        return 0.0
    return get_family(item.group).score_answer(item, answer)


def is_correct(item: Item, text: str) -> bool:
    """Whether a model's reply to a question has the full score of 1.

    Args:
        item: The question, with its reference answer, from one of the procedural task families.
        text: The whole reply, which must end with the answer in `<answer>` tags.

    Returns:
        Whether `score_reply` gives it 1.

    Raises:
        TaskError: For an item of no family.
    """
    return score_reply(item, text) == 1.0
