"""Short passages with counting and comparison; difficulty is the number of people beyond one.

    Ana has 3 coins . Bo has 7 coins . Who has most ?      <answer> Bo </answer>

Four questions: who has most, how many two people have together, how much more one has than another,
and how many people have more than a number.
"""

from __future__ import annotations

import numpy as np

from lib.tasks.items import Family, Item
from lib.tasks.words import DIGITS, PEOPLE, POINTS, words

THINGS = ("coins", "pens", "eggs", "cups", "keys", "nuts")
_WORDS = words("has Who most How many do and have together more than does people there are")


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A passage about `difficulty` + 1 people, with different numbers of one thing."""
    people = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[: difficulty + 1]]
    numbers = rng.permutation(10)[: difficulty + 1].tolist()
    thing = THINGS[int(rng.integers(len(THINGS)))]
    told = " ".join(f"{who} has {n} {thing} ." for who, n in zip(people, numbers, strict=True))
    question, answer, thought = _QUESTIONS[int(rng.integers(len(_QUESTIONS)))](rng, people, numbers, thing)
    prompt = f"{told} {question}"
    return Item(prompt, answer, thought, "passage", difficulty, f"passage/{prompt}", skin)


def _most(rng, people, numbers, thing):
    top = int(np.argmax(numbers))
    return "Who has most ?", people[top], f"{people[top]} has {numbers[top]}"


def _together(rng, people, numbers, thing):
    i, j = (int(k) for k in rng.permutation(len(people))[:2])
    total = numbers[i] + numbers[j]
    question = f"How many {thing} do {people[i]} and {people[j]} have together ?"
    return question, str(total), f"{numbers[i]} + {numbers[j]} = {total}"


def _difference(rng, people, numbers, thing):
    i, j = (int(k) for k in rng.permutation(len(people))[:2])
    if numbers[i] < numbers[j]:
        i, j = j, i
    gap = numbers[i] - numbers[j]
    question = f"How many more {thing} does {people[i]} have than {people[j]} ?"
    return question, str(gap), f"{numbers[i]} - {numbers[j]} = {gap}"


def _above(rng, people, numbers, thing):
    limit = int(rng.integers(1, 9))
    above = [f"{who} {n}" for who, n in zip(people, numbers, strict=True) if n > limit]
    question = f"How many people have more than {limit} {thing} ?"
    return question, str(len(above)), " ; ".join([*above, f"there are {len(above)}"])


_QUESTIONS = (_most, _together, _difference, _above)

FAMILY = Family(
    "passage",
    "short passages with counting and comparison; difficulty is the number of people beyond one",
    draw,
    (1, 2, 3, 4, 5),
    (*_WORDS, *THINGS, *PEOPLE, *DIGITS, *POINTS, "+", "-"),
)
