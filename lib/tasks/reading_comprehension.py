"""Short passages with counting and comparison; difficulty is the number of people beyond one.

    Ana has 3 coins . Bo has 7 coins . Who has most ?      <answer> Bo </answer>

Four questions: who has most, how many two people have together, how much more one has than another,
and how many people have more than a number.
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE, POINTS, words

THINGS = ("coins", "pens", "eggs", "cups", "keys", "nuts")
_WORDS = words("has Who most How many do and have together more than does people so")


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A passage about `difficulty` + 1 people, with different numbers of one thing."""
    people = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[: difficulty + 1]]
    numbers = rng.permutation(10)[: difficulty + 1].tolist()
    thing = THINGS[int(rng.integers(len(THINGS)))]
    told = " ".join(f"{who} has {n} {thing} ." for who, n in zip(people, numbers, strict=True))
    question, answer, thought = _QUESTIONS[int(rng.integers(len(_QUESTIONS)))](
        rng, people, numbers, thing
    )
    prompt = f"{told} {question}"
    return Item(prompt, answer, thought, "passage", difficulty, f"passage/{prompt}", skin)


def _most(rng, people, numbers, thing):
    top = int(np.argmax(numbers))
    best = [people[int(np.argmax(numbers[: i + 1]))] for i in range(len(people))]
    seen = [f"{who} {n} so {leader}" for who, n, leader in zip(people, numbers, best, strict=True)]
    return "Who has most ?", people[top], " ; ".join(seen)


def _together(rng, people, numbers, thing):
    i, j = (int(k) for k in rng.permutation(len(people))[:2])
    total = numbers[i] + numbers[j]
    question = f"How many {thing} do {people[i]} and {people[j]} have together ?"
    return question, str(total), _reckoned(people, numbers, i, j, "+", total)


def _difference(rng, people, numbers, thing):
    i, j = (int(k) for k in rng.permutation(len(people))[:2])
    if numbers[i] < numbers[j]:
        i, j = j, i
    gap = numbers[i] - numbers[j]
    question = f"How many more {thing} does {people[i]} have than {people[j]} ?"
    return question, str(gap), _reckoned(people, numbers, i, j, "-", gap)


def _reckoned(people, numbers, i, j, sign, result):
    """What two people have, then the sum."""
    return f"{people[i]} {numbers[i]} ; {people[j]} {numbers[j]} ; {numbers[i]} {sign} {numbers[j]} = {result}"


def _above(rng, people, numbers, thing):
    limit = int(rng.integers(1, 9))
    counts = np.cumsum([n > limit for n in numbers]).tolist()
    seen = [f"{who} {n} so {count}" for who, n, count in zip(people, numbers, counts, strict=True)]
    question = f"How many people have more than {limit} {thing} ?"
    return question, str(counts[-1]), " ; ".join(seen)


_QUESTIONS = (_most, _together, _difference, _above)

FAMILY = Family(
    "passage",
    "short passages with counting and comparison; difficulty is the number of people beyond one",
    draw,
    (1, 2, 3, 4, 5),
    (*_WORDS, *THINGS, *PEOPLE, *DIGITS, *POINTS, "+", "-"),
)
