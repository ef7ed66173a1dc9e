"""Questions over a fictional world of records, one to three hops: a search or a lookup helps.

    Where does the friend of Ana live ?      (friend of Ana is Cy ; home of Cy is Loro)      <answer> Loro </answer>

The world is fixed: `records` are its rows, `documents` its sentences. It is drawn once from its own
name, so the same facts hold in every lesson. Multiple choice adds four options and asks for a letter.
"""

from functools import cache

import numpy as np

from lib.experiment import seeds
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import PEOPLE, POINTS

TOWNS = ("Loro", "Mira", "Tesk", "Vand", "Quil", "Rope", "Sarn", "Ulmo")
RIVERS = ("Abra", "Belt", "Cori", "Dorn", "Eska", "Fluv")
# with fewer people a test cell of one hop would hold fewer than 40 questions
OTHERS = (
    "Abel", "Ada", "Alma", "Amy", "Anton", "Arne", "Asta", "Axel", "Bea", "Ben", "Berta", "Boris", "Carl", "Cleo",
    "Cora", "Dan", "Dora", "Edda", "Ella", "Emil", "Enno", "Erik", "Esra", "Eva", "Finn", "Flora", "Frida", "Gina",
    "Greta", "Gwen", "Hanna", "Hugo", "Igor", "Ilse", "Ines", "Iris", "Ivan", "Jack", "Jana", "Joel", "Juri", "Kai",
    "Karl", "Klara", "Kurt", "Lars", "Lena", "Leo", "Lia", "Luis", "Luna", "Maja", "Marc", "Mary", "Milo", "Mina",
    "Nico", "Nina", "Nora", "Olaf", "Olga", "Oskar", "Otto", "Pablo", "Paul", "Petra", "Raul", "Rita", "Rosa", "Ruth",
    "Sam", "Sara", "Sven", "Tara", "Theo", "Tina", "Tom", "Udo", "Ute", "Vera", "Viktor", "Willy", "Yara", "Yves",
    "Zoe",
)  # fmt: skip
NAMES = (*PEOPLE, *OTHERS)
JOBS = ("baker", "smith", "pilot", "nurse", "miner", "judge", "tailor", "farmer")
PETS = ("cat", "dog", "owl", "fox", "goat", "frog")
LETTERS = ("A", "B", "C", "D")
# relation: (about what, what it leads to, its sentence)
RELATIONS = {
    "friend": ("person", "person", "The friend of {} is {} ."),
    "home": ("person", "town", "The home of {} is {} ."),
    "job": ("person", "job", "The job of {} is {} ."),
    "pet": ("person", "pet", "The pet of {} is {} ."),
    "river": ("town", "river", "The river of {} is {} ."),
    "mayor": ("town", "person", "The mayor of {} is {} ."),
}
VALUES = {"person": NAMES, "town": TOWNS, "job": JOBS, "pet": PETS, "river": RIVERS}
_WORDS = ("The", "the", "of", "is", "What", "Options", *RELATIONS, *LETTERS)


@cache
def records() -> dict[str, dict[str, str]]:
    """The world: records()["home"]["Ana"] is a town. Nobody is their own friend; the people of all families
    (`words.PEOPLE`) have their friends among themselves."""
    rng = seeds.world("tasks", "facts", "world")
    world = {
        r: {s: str(rng.choice(VALUES[to])) for s in VALUES[about]}
        for r, (about, to, _) in RELATIONS.items()
    }
    world["friend"] = _circle(rng, PEOPLE) | _circle(rng, OTHERS)
    return world


def _circle(rng: np.random.Generator, people: tuple[str, ...]) -> dict[str, str]:
    """Everybody's friend: the next in a random round."""
    around = [people[i] for i in rng.permutation(len(people))]
    return dict(zip(around, around[1:] + around[:1], strict=True))


def documents() -> list[str]:
    """One sentence per record."""
    return [RELATIONS[r][2].format(s, o) for r, rows in records().items() for s, o in rows.items()]


def draw(rng: np.random.Generator, difficulty: int, skin: str) -> Item:
    """A question of `difficulty` hops from a random person or town along random relations."""
    start = str(rng.choice(NAMES + TOWNS if difficulty == 1 else NAMES))
    hops, place, steps = [], start, []
    for left in range(difficulty, 0, -1):
        relation = str(rng.choice(_onward(place, left)))
        reached = records()[relation][place]
        steps.append(f"the {relation} of {place} is {reached}")
        hops, place = [relation, *hops], reached
    question = "What is the " + " of the ".join(hops) + f" of {start} ?"
    key = "facts/" + "/".join([*hops, start])
    if skin == "plain":
        return Item(question, place, " ; ".join(steps), "facts", difficulty, key)
    choices, letter = _options(rng, place, hops[0])
    shown = " ".join(f"{name} : {choice}" for name, choice in zip(LETTERS, choices, strict=True))
    thought = " ; ".join([*steps, f"{letter} : {place}"])
    return Item(
        f"{question} Options {shown}", letter, thought, "facts", difficulty, key, skin, choices
    )


def _onward(place: str, hops: int) -> list[str]:
    """Relations that lead on from a place; those that leave room for the hops after them."""
    kind = next(k for k, values in VALUES.items() if place in values)
    relations = [r for r, (about, to, _) in RELATIONS.items() if about == kind]
    return [r for r in relations if hops == 1 or RELATIONS[r][1] in ("person", "town")]


def _options(rng: np.random.Generator, correct: str, relation: str) -> tuple[tuple[str, ...], str]:
    others = [value for value in VALUES[RELATIONS[relation][1]] if value != correct]
    picked = [correct, *(others[i] for i in rng.permutation(len(others))[:3])]
    order = rng.permutation(4)
    return tuple(picked[i] for i in order), LETTERS[int(np.flatnonzero(order == 0)[0])]


FAMILY = Family(
    "facts",
    "questions of one to three hops over a fictional world of records; a search helps",
    draw,
    (1, 2, 3),
    (*_WORDS, *(v for values in VALUES.values() for v in values), *POINTS),
    ("plain", "choice"),
)
