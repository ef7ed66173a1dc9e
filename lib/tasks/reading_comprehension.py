"""Short passages with counting and comparison; difficulty is the number of people beyond one.

    Ana has 3 coins . Bo has 7 coins . Who has most ?      <answer> Bo </answer>

Four questions: who has most, how many two people have together, how much more somebody has than somebody else, and
how many people have more than a number.
"""

from dataclasses import dataclass

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE, PUNCTUATION, split_words

THINGS = ("coins", "pens", "eggs", "cups", "keys", "nuts")
_WORDS = split_words("has Who most How many do and have together more than does people so")


@dataclass(frozen=True)
class Passage:
    """What a passage says: how many of a thing everybody has; numbers differ."""

    people: list[str]
    counts: list[int]
    thing: str


@dataclass(frozen=True)
class PassageQuestion:
    """A question about a passage, its answer, and the steps that lead to it."""

    text: str
    answer: str
    steps: list[str]


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw a passage, with different numbers of one thing, and a question about it.

    Args:
        rng: Random numbers.
        difficulty: One less than the number of people.
        surface_form: "plain", the only one.

    Returns:
        The item.
    """
    people = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[: difficulty + 1]]
    # A permutation: nobody has as many as somebody else, so `most` and `more` have one answer.
    counts = rng.permutation(10)[: difficulty + 1].tolist()
    thing = THINGS[int(rng.integers(len(THINGS)))]
    passage = Passage(people, counts, thing)
    draw_question = _QUESTION_TYPES[int(rng.integers(len(_QUESTION_TYPES)))]
    question = draw_question(rng, passage)

    sentences = [
        f"{person} has {count} {thing} ." for person, count in zip(people, counts, strict=True)
    ]
    prompt = " ".join([*sentences, question.text])
    return Item(
        prompt=prompt,
        reference=question.answer,
        worked_solution=" ; ".join(question.steps),
        group="passage",
        difficulty=difficulty,
        id=f"passage/{prompt}",
        surface_form=surface_form,
    )


def _ask_who_has_most(rng: np.random.Generator, passage: Passage) -> PassageQuestion:
    """Ask who has most of the passage's thing. The steps name, person by person, who has most so far.

    Args:
        rng: Not used: there is only one such question.
        passage: People and how many of a thing each of them has.

    Returns:
        The question with its answer and steps such as "Bo 7 so Bo".
    """
    steps = []
    leader = 0  # index of the person with most so far
    for i, (person, count) in enumerate(zip(passage.people, passage.counts, strict=True)):
        if count > passage.counts[leader]:
            leader = i
        steps.append(f"{person} {count} so {passage.people[leader]}")
    return PassageQuestion("Who has most ?", passage.people[leader], steps)


def _ask_for_sum(rng: np.random.Generator, passage: Passage) -> PassageQuestion:
    """Ask how many of a thing two random people of a passage have together."""
    i, j = _draw_two_people(rng, passage)
    first, second = passage.people[i], passage.people[j]
    total = passage.counts[i] + passage.counts[j]
    return PassageQuestion(
        text=f"How many {passage.thing} do {first} and {second} have together ?",
        answer=str(total),
        steps=_list_calculation(passage, i, "+", j, total),
    )


def _ask_for_difference(rng: np.random.Generator, passage: Passage) -> PassageQuestion:
    """Ask how many more of a thing one person of a passage has than another; both are random."""
    i, j = _draw_two_people(rng, passage)
    if passage.counts[i] < passage.counts[j]:
        i, j = j, i  # the person with more is named first: no answer is negative
    difference = passage.counts[i] - passage.counts[j]
    richer, poorer = passage.people[i], passage.people[j]
    return PassageQuestion(
        text=f"How many more {passage.thing} does {richer} have than {poorer} ?",
        answer=str(difference),
        steps=_list_calculation(passage, i, "-", j, difference),
    )


def _ask_how_many_have_more(rng: np.random.Generator, passage: Passage) -> PassageQuestion:
    """Ask how many people have more of a thing than a random limit. The steps count them, person by person.

    Args:
        rng: Random numbers.
        passage: People and how many of a thing each of them has.

    Returns:
        The question with its answer and steps such as "Bo 7 so 1".
    """
    limit = int(rng.integers(1, 9))
    steps = []
    num_above_limit = 0
    for person, count in zip(passage.people, passage.counts, strict=True):
        num_above_limit += count > limit
        steps.append(f"{person} {count} so {num_above_limit}")
    question = f"How many people have more than {limit} {passage.thing} ?"
    return PassageQuestion(question, str(num_above_limit), steps)


def _draw_two_people(rng: np.random.Generator, passage: Passage) -> tuple[int, int]:
    """Positions of two different people."""
    first, second = rng.permutation(len(passage.people))[:2]
    return int(first), int(second)


def _list_calculation(passage: Passage, i: int, sign: str, j: int, result: int) -> list[str]:
    """Write the steps to a sum or difference: "Ana 3", "Bo 7", "3 + 7 = 10" for the people at positions i and j."""
    a, b = passage.counts[i], passage.counts[j]
    return [f"{passage.people[i]} {a}", f"{passage.people[j]} {b}", f"{a} {sign} {b} = {result}"]


_QUESTION_TYPES = (_ask_who_has_most, _ask_for_sum, _ask_for_difference, _ask_how_many_have_more)

FAMILY = Family(
    name="passage",
    description="short passages with counting and comparison; difficulty is the number of people beyond one",
    draw_item=draw_item,
    difficulties=(1, 2, 3, 4, 5),
    vocabulary=(*_WORDS, *THINGS, *PEOPLE, *DIGITS, *PUNCTUATION, "+", "-"),
)
