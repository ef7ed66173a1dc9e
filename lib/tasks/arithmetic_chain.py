"""Chains of arithmetic, left to right, modulo 10: difficulty is the number of operations, 1 to 8.

    3 + 4 * 2 - 5 = ?      (3 + 4 = 7, 7 * 2 = 4, 4 - 5 = 9)      <answer> 9 </answer>

The word skin tells the same chain as turns of a dial with ten positions.
"""

from collections.abc import Sequence

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, POINTS, words

OPERATIONS = {
    "+": lambda a, b: (a + b) % 10,
    "-": lambda a, b: (a - b) % 10,
    "*": lambda a, b: (a * b) % 10,
}
_TURNS = {"+": "Turn it up {} .", "-": "Turn it down {} .", "*": "Multiply it by {} ."}
_WORDS = words("A dial shows Turn it up down Multiply by What does show")


def draw(rng: np.random.Generator, difficulty: int, skin: str) -> Item:
    """A chain of `difficulty` operations on digits; every chain is equally likely."""
    digits = rng.integers(10, size=difficulty + 1).tolist()
    signs = ["+-*"[i] for i in rng.integers(3, size=difficulty)]
    return _item(digits, signs, skin)


def told(item: Item, skin: str) -> Item:
    """The same chain in another skin."""
    first, *rest = item.key.removeprefix("chain/").split()
    return _item([int(first), *map(int, rest[1::2])], rest[::2], skin)


def _item(digits: Sequence[int], signs: Sequence[str], skin: str) -> Item:
    total, steps = digits[0], []
    for sign, digit in zip(signs, digits[1:], strict=True):
        result = OPERATIONS[sign](total, digit)
        steps.append(f"{total} {sign} {digit} = {result}")
        total = result
    plain = " ".join(
        [str(digits[0]), *(f"{s} {d}" for s, d in zip(signs, digits[1:], strict=True))]
    )
    turns = " ".join(_TURNS[s].format(d) for s, d in zip(signs, digits[1:], strict=True))
    prompt = (
        f"{plain} = ?"
        if skin == "plain"
        else f"A dial shows {digits[0]} . {turns} What does it show ?"
    )
    return Item(prompt, str(total), " ; ".join(steps), "chain", len(signs), f"chain/{plain}", skin)


FAMILY = Family(
    "chain",
    "arithmetic modulo 10, left to right; difficulty is the number of operations",
    draw,
    tuple(range(1, 9)),
    (*OPERATIONS, *_WORDS, *DIGITS, *POINTS),
    ("plain", "words"),
)
