"""Who thinks what is where: stories in which somebody misses a move.

    The key is in the box . Ana leaves . Bo moves the key to the jar . Where does Ana look for the key ?

Difficulty 1 asks where the object is, 2 where somebody believes it is (first order), 3 where somebody believes that
somebody else believes it is (second order). Whoever is in the room sees a move, and sees who else sees it (Wimmer and
Perner 1983; Perner and Wimmer 1985).
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import PEOPLE, PUNCTUATION, split_words

OBJECTS = ("key", "ring", "map", "coin", "ball")
CONTAINERS = ("box", "jar", "bag", "desk", "chest")
_WORDS = split_words(
    "The the is in leaves comes back moves to Where does look for think looks saw thinks"
)


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw a story in which people may miss that an object is moved, and a question about who believes it where.

    Args:
        rng: Random numbers.
        difficulty: 1 asks where the object is, 2 where somebody believes it is, 3 where somebody believes that somebody
            else believes it is.
        surface_form: "plain", the only one.

    Returns:
        The item.
    """
    people = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[:3]]
    hidden_object = OBJECTS[int(rng.integers(len(OBJECTS)))]
    container = CONTAINERS[int(rng.integers(len(CONTAINERS)))]

    # Tell the story.
    room = Room(people, hidden_object, container)
    sentences = [f"The {hidden_object} is in the {container} ."]
    num_events = int(rng.integers(3, 6))
    for _ in range(num_events):
        sentences.append(room.draw_event(rng))

    # Ask about two of the three people, whether the question needs them or not: at every difficulty a story takes the
    # same random numbers.
    first, second = (people[i] for i in rng.permutation(3)[:2])
    if difficulty == 1:
        question = f"Where is the {hidden_object} ?"
        answer = room.container
        reasoning = f"the {hidden_object} is in the {answer}"
    elif difficulty == 2:
        question = f"Where does {first} look for the {hidden_object} ?"
        answer = room.beliefs[first]
        reasoning = f"{first} saw the {answer}"
    else:
        question = f"Where does {first} think {second} looks for the {hidden_object} ?"
        answer = room.second_order_beliefs[first, second]
        reasoning = f"{first} thinks {second} saw the {answer}"

    prompt = " ".join([*sentences, question])
    return Item(
        prompt=prompt,
        reference=answer,
        worked_solution=reasoning,
        group="belief",
        difficulty=difficulty,
        id=f"belief/{prompt}",
        surface_form=surface_form,
    )


class Room:
    """Where an object is, who is there to see it, and who believes what.

    Attributes:
        container: Where the object is.
        present: The people in the room.
        beliefs: By person, where he or she believes the object to be.
        second_order_beliefs: By (person, other person), where the first believes that the second believes it to be.
    """

    def __init__(self, people: list[str], hidden_object: str, container: str) -> None:
        self.people = people
        self.hidden_object = hidden_object
        self.container = container
        self.present = set(people)
        self.beliefs = dict.fromkeys(people, container)
        self.second_order_beliefs = {
            (person, other): container for person in people for other in people if person != other
        }

    def draw_event(self, rng: np.random.Generator) -> str:
        """Draw what happens next: a person comes back, leaves, or moves the object. Positions and beliefs are updated.

        Args:
            rng: Random numbers.

        Returns:
            The event as a sentence, for example "Bo moves the key to the jar ."
        """
        # Lists in the order of `people`: the order of a set differs between processes.
        absent = [person for person in self.people if person not in self.present]
        present = [person for person in self.people if person in self.present]
        event = rng.random()
        if absent and event < 0.3:
            person = absent[int(rng.integers(len(absent)))]
            self.present.add(person)
            return f"{person} comes back ."
        # The last person never leaves, so that somebody can always move the object.
        if len(present) > 1 and event < 0.6:
            person = present[int(rng.integers(len(present)))]
            self.present.remove(person)
            return f"{person} leaves ."
        person = present[int(rng.integers(len(present)))]
        other_containers = [container for container in CONTAINERS if container != self.container]
        self._move_object(other_containers[int(rng.integers(len(other_containers)))])
        return f"{person} moves the {self.hidden_object} to the {self.container} ."

    def _move_object(self, container: str) -> None:
        """Move the object to a container, and update what people believe.

        Everybody present then believes that it is there, and believes that everybody else present believes so. Beliefs
        of absent people, and beliefs about them, stay as they are.
        """
        self.container = container
        for person in self.present:
            self.beliefs[person] = container
            for other in self.present - {person}:
                self.second_order_beliefs[person, other] = container


FAMILY = Family(
    name="belief",
    description="who thinks what is where: the fact, a belief, a belief about a belief",
    draw_item=draw_item,
    difficulties=(1, 2, 3),
    vocabulary=(*_WORDS, *OBJECTS, *CONTAINERS, *PEOPLE, *PUNCTUATION),
)
