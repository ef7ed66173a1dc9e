"""Who thinks what is where: stories in which somebody misses a move.

    The key is in the box . Ana leaves . Bo moves the key to the jar . Where does Ana look for the key ?

Difficulty 1 asks where the thing is, 2 where somebody believes it is (first order), 3 where somebody
believes that somebody else believes it is (second order). Who is in the room sees a move, and sees
who else sees it (Wimmer and Perner 1983; Perner and Wimmer 1985).
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import PEOPLE, POINTS, words

THINGS = ("key", "ring", "map", "coin", "ball")
PLACES = ("box", "jar", "bag", "desk", "chest")
_WORDS = words(
    "The the is in leaves comes back moves to Where does look for think looks saw thinks"
)


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A story with three people, three to five events, and a question of the given order."""
    people = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[:3]]
    thing, place = THINGS[int(rng.integers(len(THINGS)))], PLACES[int(rng.integers(len(PLACES)))]
    room = Room(people, place)
    told = [f"The {thing} is in the {place} ."]
    told += [room.happen(rng, thing) for _ in range(int(rng.integers(3, 6)))]
    a, b = (people[i] for i in rng.permutation(3)[:2])
    question, answer, thought = {
        1: (f"Where is the {thing} ?", room.place, f"the {thing} is in the {room.place}"),
        2: (
            f"Where does {a} look for the {thing} ?",
            room.thinks[a],
            f"{a} saw the {room.thinks[a]}",
        ),
        3: (
            f"Where does {a} think {b} looks for the {thing} ?",
            room.about[a, b],
            f"{a} thinks {b} saw the {room.about[a, b]}",
        ),
    }[difficulty]
    prompt = " ".join([*told, question])
    return Item(prompt, answer, thought, "belief", difficulty, f"belief/{prompt}", skin)


class Room:
    """Where the thing is, who is there, where each thinks it is, and what each thinks that others think."""

    def __init__(self, people: list[str], place: str) -> None:
        self.people, self.place, self.present = people, place, set(people)
        self.thinks = dict.fromkeys(people, place)
        self.about = {(a, b): place for a in people for b in people if a != b}

    def happen(self, rng: np.random.Generator, thing: str) -> str:
        """One event: somebody comes back, leaves, or moves the thing. Two always stay or have stayed."""
        away = [p for p in self.people if p not in self.present]
        there = [p for p in self.people if p in self.present]
        chance = rng.random()
        if away and chance < 0.3:
            return self._comes_back(away[int(rng.integers(len(away)))])
        if len(there) > 1 and chance < 0.6:
            return self._leaves(there[int(rng.integers(len(there)))])
        others = [p for p in PLACES if p != self.place]
        return self._moves(
            there[int(rng.integers(len(there)))], thing, others[int(rng.integers(len(others)))]
        )

    def _comes_back(self, who: str) -> str:
        self.present.add(who)
        return f"{who} comes back ."

    def _leaves(self, who: str) -> str:
        self.present.remove(who)
        return f"{who} leaves ."

    def _moves(self, who: str, thing: str, place: str) -> str:
        self.place = place
        for a in self.present:  # those who are there see it, and see each other seeing it
            self.thinks[a] = place
            self.about |= {(a, b): place for b in self.present if b != a}
        return f"{who} moves the {thing} to the {place} ."


FAMILY = Family(
    "belief",
    "who thinks what is where: the fact, a belief, a belief about a belief",
    draw,
    (1, 2, 3),
    (*_WORDS, *THINGS, *PLACES, *PEOPLE, *POINTS),
)
