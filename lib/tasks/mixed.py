"""Questions that need two kinds of tools: somebody's number from the records, and then a big sum or product.

    What is the number of the friend of Ana * 38 ?
        (the friend of Ana is Cy ; the number of Cy is 47 ; 47 * 30 = 1410 ; ...)      <answer> 1786 </answer>

Difficulty: 1 is a sum, 2 a product, 3 a product with the number of somebody's friend. The numbers join the world of
`multi_hop_facts`; they are drawn from a random stream of their own, so that world stays as it is.
"""

from functools import cache

import numpy as np

from lib.experiment import seeds
from lib.tasks import long_arithmetic, multi_hop_facts
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE, split_words

RELATION = "number"  # the relation that this family adds to those of `multi_hop_facts`
SENTENCE = "The number of {} is {} ."
_LOWEST, _HIGHEST = 11, 99  # of the numbers: two digits, and a product that is no table of ten
_OPERATIONS = {1: ("+", 1), 2: ("*", 1), 3: ("*", 2)}  # difficulty: (sign, hops to the number)


@cache
def build_records() -> dict[str, dict[str, str]]:
    """Build the table of facts that the questions are about: friends, homes, jobs and so on, and a number per person.

    The facts about a fictional world are those of `multi_hop_facts`; only the numbers are new.

    Returns:
        Value by relation and subject, the same in every run: records["friend"]["Ana"] is a person,
        records["number"]["Ana"] a number of two digits as text.
    """
    # A generator with a fixed seed of its own, so that the facts of `multi_hop_facts` do not change.
    rng = seeds.world("tasks", "mixed", "world")
    numbers = rng.integers(_LOWEST, _HIGHEST + 1, size=len(PEOPLE))
    number_by_person = {}
    for person, number in zip(PEOPLE, numbers.tolist(), strict=True):
        number_by_person[person] = str(number)
    return {**multi_hop_facts.build_records(), RELATION: number_by_person}


def build_documents() -> list[str]:
    """Write the facts as sentences, for a search engine: "The friend of Ana is Cy .", "The number of Ana is 47 ."."""
    number_by_person = build_records()[RELATION]
    number_sentences = [
        SENTENCE.format(person, number) for person, number in number_by_person.items()
    ]
    return [*multi_hop_facts.build_documents(), *number_sentences]


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw a question such as "What is the number of the friend of Ana * 38 ?": a lookup, then arithmetic.

    Args:
        rng: Random numbers.
        difficulty: 1 for a sum, 2 for a product, 3 for a product with the number of somebody's friend.
        surface_form: "plain", the only one.

    Returns:
        The item, with lookups and arithmetic as its worked solution.
    """
    # hops: how many records have to be looked up, one after the other, to find the number
    sign, hops = _OPERATIONS[difficulty]
    person = PEOPLE[int(rng.integers(len(PEOPLE)))]
    operand = int(rng.integers(_LOWEST, _HIGHEST + 1))

    # Look the number up. Relations stand in the order of the question ("number", "friend"), so the last comes first.
    relations = [RELATION, "friend"][:hops]
    lookups = []
    subject = person
    for relation in reversed(relations):
        value = build_records()[relation][subject]
        lookups.append(f"the {relation} of {subject} is {value}")
        subject = value

    answer, arithmetic = long_arithmetic.solve_by_hand(int(subject), sign, operand)
    return Item(
        prompt=f"What is the {' of the '.join(relations)} of {person} {sign} {operand} ?",
        reference=answer,
        worked_solution=" ; ".join([*lookups, arithmetic]),
        group="mixed",
        difficulty=difficulty,
        id="mixed/" + "/".join([*relations, person, f"{sign}{operand}"]),
        surface_form=surface_form,
    )


FAMILY = Family(
    name="mixed",
    description="a number that is looked up, then a big sum or product; two kinds of tools help",
    draw_item=draw_item,
    difficulties=tuple(_OPERATIONS),
    vocabulary=(*split_words("What is the number of friend ? + * = ;"), *PEOPLE, *DIGITS),
)
