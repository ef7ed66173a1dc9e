"""Chains of arithmetic, left to right, modulo 10: difficulty is the number of operations, 1 to 8.

    3 + 4 * 2 - 5 = ?      (3 + 4 = 7, 7 * 2 = 4, 4 - 5 = 9)      <answer> 9 </answer>

The surface form `words` words the same chain as turns of a dial with ten positions.
"""

from collections.abc import Sequence

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PUNCTUATION, split_words

# modulo 10, so that results stay one digit however long a chain is
OPERATIONS = {
    "+": lambda a, b: (a + b) % 10,
    "-": lambda a, b: (a - b) % 10,
    "*": lambda a, b: (a * b) % 10,
}
_DIAL_TURNS = {"+": "Turn it up {} .", "-": "Turn it down {} .", "*": "Multiply it by {} ."}
_DIAL_WORDS = split_words("A dial shows Turn it up down Multiply by What does show")


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str) -> Item:
    """Draw a chain of operations such as "3 + 4 * 2 = ?", worked left to right modulo 10; all are equally likely.

    Args:
        rng: Random numbers.
        difficulty: Number of operations in the chain.
        surface_form: "plain" for digits and signs, "words" for a dial that is turned.

    Returns:
        The item.
    """
    digits = rng.integers(10, size=difficulty + 1).tolist()
    signs = ["+-*"[i] for i in rng.integers(3, size=difficulty)]
    return _make_item(digits, signs, surface_form)


def _make_item(digits: Sequence[int], signs: Sequence[str], surface_form: str) -> Item:
    """Make the item of a chain of operations, worked from left to right modulo 10.

    Args:
        digits: The first number and the operand of each operation, for example [3, 4, 2].
        signs: The operations, "+", "-" or "*", one less than digits.
        surface_form: "plain" for "3 + 4 * 2 = ?", "words" for a dial that is turned.

    Returns:
        The item, with one step for each operation as its worked solution.
    """
    operations = list(zip(signs, digits[1:], strict=True))

    # Work the chain out.
    total = digits[0]
    steps = []
    for sign, digit in operations:
        result = OPERATIONS[sign](total, digit)
        steps.append(f"{total} {sign} {digit} = {result}")
        total = result

    # Word it. The id is the chain in digits, whatever the surface form.
    chain = " ".join([str(digits[0]), *(f"{sign} {digit}" for sign, digit in operations)])
    if surface_form == "plain":
        prompt = f"{chain} = ?"
    else:
        turns = " ".join(_DIAL_TURNS[sign].format(digit) for sign, digit in operations)
        prompt = f"A dial shows {digits[0]} . {turns} What does it show ?"
    return Item(
        prompt=prompt,
        reference=str(total),
        worked_solution=" ; ".join(steps),
        group="chain",
        difficulty=len(signs),
        id=f"chain/{chain}",
        surface_form=surface_form,
    )


FAMILY = Family(
    name="chain",
    description="arithmetic modulo 10, left to right; difficulty is the number of operations",
    draw_item=draw_item,
    difficulties=tuple(range(1, 9)),
    vocabulary=(*OPERATIONS, *_DIAL_WORDS, *DIGITS, *PUNCTUATION),
    surface_forms=("plain", "words"),
)
