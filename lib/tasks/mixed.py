"""Questions that need two kinds of tools: somebody's number from the records, and then a big sum or product.

    What is the number of the friend of Ana * 38 ?
        (the friend of Ana is Cy ; the number of Cy is 47 ; 47 * 30 = 1410 ; ...)      <answer> 1786 </answer>

Difficulty: 1 is a sum, 2 a product, 3 a product with the number of somebody's friend. Numbers belong to the world of
`facts` and are drawn from a name of their own, so that world stays as it is.
"""

from functools import cache

import numpy as np

from lib.experiment import seeds
from lib.tasks import long_arithmetic, multi_hop_facts
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE, words

RELATION = "number"
SENTENCE = "The number of {} is {} ."
_KINDS = {1: ("+", 1), 2: ("*", 1), 3: ("*", 2)}  # sign, hops to the number


@cache
def records() -> dict[str, dict[str, str]]:
    """The world of `facts`, and everybody's number of two digits: records()["number"]["Ana"]."""
    drawn = seeds.world("tasks", "mixed", "world").integers(11, 100, size=len(PEOPLE)).tolist()
    return multi_hop_facts.records() | {
        RELATION: {who: str(n) for who, n in zip(PEOPLE, drawn, strict=True)}
    }


def documents() -> list[str]:
    """One sentence per record."""
    return [
        *multi_hop_facts.documents(),
        *(SENTENCE.format(who, n) for who, n in records()[RELATION].items()),
    ]


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A question about a random person and a random number of two digits."""
    sign, hops = _KINDS[difficulty]
    start, other = PEOPLE[int(rng.integers(len(PEOPLE)))], int(rng.integers(11, 100))
    relations = [RELATION, "friend"][:hops]
    steps, subject = [], start
    for relation in reversed(relations):
        value = records()[relation][subject]
        steps.append(f"the {relation} of {subject} is {value}")
        subject = value
    answer, reckoned = long_arithmetic.worked(int(subject), sign, other)
    prompt = f"What is the {' of the '.join(relations)} of {start} {sign} {other} ?"
    key = "mixed/" + "/".join([*relations, start, f"{sign}{other}"])
    return Item(prompt, answer, " ; ".join([*steps, reckoned]), "mixed", difficulty, key, skin)


FAMILY = Family(
    "mixed",
    "a number that is looked up, then a big sum or product; two kinds of tools help",
    draw,
    tuple(_KINDS),
    (*words("What is the number of friend ? + * = ;"), *PEOPLE, *DIGITS),
)
