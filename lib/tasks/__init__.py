"""Language tasks: procedural families of one kind of `Item`.

`draw` makes items of one family and split; `verify` and `score` judge a reply to one.
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
from lib.tasks.item import SPLITS, Family, Item, TaskError, answered, reply

VERSION = 1  # of the items and scores of this package
__all__ = [
    "FAMILIES", "SPLITS", "Family", "Item", "TaskError", "answered", "draw", "family", "reply", "score",
    "spread", "verify",
]  # fmt: skip

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
_TRIES = 1_000  # draws per item wanted, before a split is said to be exhausted


def family(name: str) -> Family:
    """A family by name. Raises TaskError for one that there is not."""
    if name not in FAMILIES:
        raise TaskError(f"unknown family {name!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def draw(
    name: str,
    split: str,
    n: int,
    difficulty: int | Sequence[int] | None = None,
    skin: str | None = None,
    seed: int = 0,
    unique: bool = False,
) -> list[Item]:
    """n items of a family and split. Equal arguments give equal items.

    difficulty: one, several (drawn evenly), or None for all; skin: None is the first; "any" draws one;
    unique: no two items of one key. Raises TaskError for an unknown family, split, difficulty or skin, and
    where a split does not hold n different items.
    """
    which = family(name)
    wanted = which.difficulties if difficulty is None else _several(difficulty)
    _check(which, split, wanted, skin)
    skins = which.skins if skin == "any" else (skin or which.skins[0],)
    rng = seeds.rng("tasks", name, split, "-".join(map(str, wanted)), skin or "", seed=seed)
    items: list[Item] = []
    seen: set[str] = set()
    for _ in range(_TRIES * n):
        if len(items) == n:
            break
        item = which.draw(
            rng, wanted[int(rng.integers(len(wanted)))], skins[int(rng.integers(len(skins)))]
        )
        if item.split == split and not (unique and item.key in seen):
            items.append(item)
            seen.add(item.key)
    if len(items) < n:
        raise TaskError(
            f"the {split} split of {name} at difficulty {wanted} holds fewer than {n} different items"
        )
    return items


def spread(
    questions: Mapping[str, Sequence[int]], split: str, n: int, seed: int = 0, unique: bool = False
) -> list[Item]:
    """n items of several families, evenly (the first families have one more where n does not divide), family after
    family. questions: family -> difficulties. Raises TaskError as `draw` does, and for no family at all."""
    if not questions:
        raise TaskError("no family to draw questions from")
    shares = [n // len(questions) + (i < n % len(questions)) for i in range(len(questions))]
    drawn = (
        draw(name, split, share, difficulties, seed=seed, unique=unique)
        for (name, difficulties), share in zip(questions.items(), shares, strict=True)
    )
    return [item for items in drawn for item in items]


def _several(difficulty: int | Sequence[int]) -> tuple[int, ...]:
    return (difficulty,) if isinstance(difficulty, int) else tuple(difficulty)


def _check(which: Family, split: str, difficulties: tuple[int, ...], skin: str | None) -> None:
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    wrong = [d for d in difficulties if d not in which.difficulties]
    if wrong or not difficulties:
        raise TaskError(
            f"{which.name} has difficulties {which.difficulties}, not {wrong or difficulties}"
        )
    if skin not in (None, "any", *which.skins):
        raise TaskError(f"{which.name} has the skins {', '.join(which.skins)}, not {skin!r}")


def score(item: Item, text: str) -> float:
    """How good a whole reply is, in [0, 1]; 0 where it does not end in answer tags."""
    given = answered(text)
    return 0.0 if given is None else family(item.category).score(item, given)


def verify(item: Item, text: str) -> bool:
    """Whether a whole reply is right: the answer in its last tags, nothing behind them."""
    return score(item, text) == 1.0
