"""Sums and products of two- and three-digit numbers, which a calculator makes easy.

    47 * 38 = ?      (47 * 30 = 1410, 47 * 8 = 376, 1410 + 376 = 1786)      <answer> 1786 </answer>

Difficulty: 1 is a sum of two digits each, 2 of three; 3 is a product of two by two digits, 4 of three
by two.
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, POINTS

_KINDS = {
    1: ("+", 2, 2),
    2: ("+", 3, 3),
    3: ("*", 2, 2),
    4: ("*", 3, 2),
}  # sign, digits of either number


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A sum or product; both numbers uniform among those of their length."""
    sign, *lengths = _KINDS[difficulty]
    a, b = (int(rng.integers(10 ** (n - 1), 10**n)) for n in lengths)
    answer, steps = worked(a, sign, b)
    return Item(f"{a} {sign} {b} = ?", answer, steps, "big", difficulty, f"big/{a}{sign}{b}", skin)


def worked(a: int, sign: str, b: int) -> tuple[str, str]:
    """The result of a sum or product, and how it is worked out by hand."""
    return (str(a + b), _add(a, b)) if sign == "+" else (str(a * b), _multiply(a, b))


def _add(a: int, b: int) -> str:
    """Hundreds, tens, ones apart, then together."""
    places = [p for p in (100, 10, 1) if max(a, b) >= p]
    parts = [(a // p % 10 * p, b // p % 10 * p) for p in places]
    sums = [f"{x} + {y} = {x + y}" for x, y in parts]
    return " ; ".join([*sums, " + ".join(str(x + y) for x, y in parts) + f" = {a + b}"])


def _multiply(a: int, b: int) -> str:
    """By the tens of b, by its ones, then together."""
    tens, ones = b // 10 * 10, b % 10
    return (
        f"{a} * {tens} = {a * tens} ; {a} * {ones} = {a * ones} ; {a * tens} + {a * ones} = {a * b}"
    )


FAMILY = Family(
    "big",
    "sums and products of two- and three-digit numbers; a calculator helps",
    draw,
    tuple(_KINDS),
    ("+", "*", *DIGITS, *POINTS),
)
