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
    """A procedural family by its name.

    Args:
        name: A key of FAMILIES.

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
    """Draw items of one family and split. Equal arguments give equal items.

    Args:
        family: A key of FAMILIES.
        split: "train", "dev" or "test".
        n: How many items.
        difficulty: One, several (drawn evenly), or None for all.
        surface_form: One of the family's; None is its first, "any" draws one for each item.
        seed: Of the random numbers.
        unique: Whether no two items may have one id.

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

    # A family knows no splits: draw until enough items fall into this one.
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
    """Draw as many items of every family, family after family.

    Args:
        difficulties_by_family: Which families, and which difficulties of each.
        split: "train", "dev" or "test".
        n: How many items in all; where it does not divide, the first families have one more.
        seed: Of the random numbers.
        unique: Whether no two items may have one id.

    Returns:
        The items.

    Raises:
        TaskError: For no family at all, and as `draw_items` does.
    """
    if not difficulties_by_family:
        raise TaskError("no family to draw questions from")
    # Every family gets the same number, and the first ones what is left over.
    per_family, remainder = divmod(n, len(difficulties_by_family))
    items = []
    for i, (family, difficulties) in enumerate(difficulties_by_family.items()):
        num_items = per_family + (i < remainder)
        items += draw_items(family, split, num_items, difficulties, seed=seed, unique=unique)
    return items


def score_reply(item: Item, text: str) -> float:
    """Score a whole reply by the rule of the item's family.

    Args:
        item: An item of a procedural family.
        text: The reply.

    Returns:
        How good it is, in [0, 1]; 0 where it does not end in answer tags.

    Raises:
        TaskError: For an item of no family.
    """
    answer = extract_answer(text)
    return 0.0 if answer is None else get_family(item.group).score_answer(item, answer)


def is_correct(item: Item, text: str) -> bool:
    """Whether a whole reply is right: the answer in its last tags, and nothing behind them.

    Args:
        item: An item of a procedural family.
        text: The reply.

    Returns:
        Whether its score is 1.

    Raises:
        TaskError: For an item of no family.
    """
    return score_reply(item, text) == 1.0
