"""Sums and products of two- and three-digit numbers, which a calculator makes easy.

    47 * 38 = ?      (47 * 30 = 1410, 47 * 8 = 376, 1410 + 376 = 1786)      <answer> 1786 </answer>

Difficulty: 1 is a sum of two digits each, 2 of three; 3 is a product of two by two digits, 4 of three
by two.
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PUNCTUATION

# difficulty: (sign, digits of the first number, digits of the second)
_OPERATIONS = {
    1: ("+", 2, 2),
    2: ("+", 3, 3),
    3: ("*", 2, 2),
    4: ("*", 3, 2),
}


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw a sum or product; both numbers are uniform among those of their length.

    Args:
        rng: Random numbers.
        difficulty: 1 to 4.
        surface_form: "plain", the only one.

    Returns:
        The item.
    """
    sign, a_length, b_length = _OPERATIONS[difficulty]
    a = _draw_number(rng, a_length)
    b = _draw_number(rng, b_length)
    answer, steps = solve_by_hand(a, sign, b)
    return Item(
        prompt=f"{a} {sign} {b} = ?",
        reference=answer,
        worked_solution=steps,
        group="big",
        difficulty=difficulty,
        id=f"big/{a}{sign}{b}",
        surface_form=surface_form,
    )


def _draw_number(rng: np.random.Generator, digits: int) -> int:
    """Draw a number with so many digits, uniformly and without a leading zero."""
    return int(rng.integers(10 ** (digits - 1), 10**digits))


def solve_by_hand(a: int, sign: str, b: int) -> tuple[str, str]:
    """Work out a sum or product of two- or three-digit numbers as on paper.

    Args:
        a: The first number.
        sign: "+" or "*".
        b: The second number; of two digits in a product.

    Returns:
        The result, and the steps that lead to it, separated by " ; ".
    """
    if sign == "+":
        return str(a + b), _add_by_digits(a, b)
    return str(a * b), _multiply_by_digits(a, b)


def _add_by_digits(a: int, b: int) -> str:
    """Write an addition by place value: "20 + 30 = 50 ; 4 + 5 = 9 ; 50 + 9 = 59".

    Args:
        a: A number of up to three digits.
        b: Another one.

    Returns:
        Sums of hundreds, tens and ones, and their total, separated by " ; ".
    """
    steps = []
    sums = []
    # Hundreds only where one of the numbers has hundreds.
    for unit in (100, 10, 1):
        if max(a, b) >= unit:
            a_share = a // unit % 10 * unit
            b_share = b // unit % 10 * unit
            steps.append(f"{a_share} + {b_share} = {a_share + b_share}")
            sums.append(str(a_share + b_share))
    steps.append(f"{' + '.join(sums)} = {a + b}")
    return " ; ".join(steps)


def _multiply_by_digits(a: int, b: int) -> str:
    """Write a product by place value of the second factor: "7 * 20 = 140 ; 7 * 3 = 21 ; 140 + 21 = 161"."""
    tens = b // 10 * 10
    ones = b % 10
    steps = [
        f"{a} * {tens} = {a * tens}",
        f"{a} * {ones} = {a * ones}",
        f"{a * tens} + {a * ones} = {a * b}",
    ]
    return " ; ".join(steps)


FAMILY = Family(
    name="big",
    description="sums and products of two- and three-digit numbers; a calculator helps",
    draw_item=draw_item,
    difficulties=tuple(_OPERATIONS),
    vocabulary=("+", "*", *DIGITS, *PUNCTUATION),
)
