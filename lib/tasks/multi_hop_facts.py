"""Questions over a fictional world of records, one to three hops: a search or a lookup helps.

    What is the home of the friend of Ana ?
        (the friend of Ana is Cy ; the home of Cy is Loro)      <answer> Loro </answer>

The world is fixed: `build_records` gives its rows, `build_documents` its sentences. It is drawn once from a random
stream of its own, so the same facts hold everywhere. Multiple choice adds four options and asks for a letter.
"""

from functools import cache

import numpy as np

from lib.experiment import seeds
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import PEOPLE, PUNCTUATION

TOWNS = ("Loro", "Mira", "Tesk", "Vand", "Quil", "Rope", "Sarn", "Ulmo")
RIVERS = ("Abra", "Belt", "Cori", "Dorn", "Eska", "Fluv")
# with fewer people the test split would hold fewer than 40 questions of one hop
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
# relation: (kind of its subject, kind of its value, its sentence)
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
def build_records() -> dict[str, dict[str, str]]:
    """Draw the records of the fictional world, the same in every run.

    Returns:
        Value by relation and subject: records["home"]["Ana"] is a town. Nobody is their own friend, and the friends of
        PEOPLE (the names that all task families share) are among PEOPLE.
    """
    rng = seeds.world("tasks", "facts", "world")
    records = {}
    for relation, (subject_kind, value_kind, _) in RELATIONS.items():
        records[relation] = {
            subject: str(rng.choice(VALUES[value_kind])) for subject in VALUES[subject_kind]
        }
    # Friends drawn independently could be one's own.
    records["friend"] = _draw_friends(rng, PEOPLE) | _draw_friends(rng, OTHERS)
    return records


def _draw_friends(rng: np.random.Generator, people: tuple[str, ...]) -> dict[str, str]:
    """Draw a friend for each person: the next one in a random circle, so that no chain of friends closes early."""
    circle = [people[i] for i in rng.permutation(len(people))]
    return dict(zip(circle, circle[1:] + circle[:1], strict=True))


def build_documents() -> list[str]:
    """Write the records as sentences, for a search engine: "The friend of Ana is Cy .", one per record."""
    sentences = []
    for relation, values in build_records().items():
        sentence = RELATIONS[relation][2]
        sentences += [sentence.format(subject, value) for subject, value in values.items()]
    return sentences


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str) -> Item:
    """Draw a question over the fictional world, such as "What is the home of the friend of Ana ?".

    It starts at a random person or town and follows random relations.

    Args:
        rng: Random numbers.
        difficulty: Number of hops, of records that lead to the answer.
        surface_form: "plain", or "choice" for a question with four options, whose answer is a letter.

    Returns:
        The item, with the hops as its worked solution.
    """
    # Only a question of one hop may begin at a town, because few relations lead on from there.
    start = str(rng.choice(NAMES + TOWNS if difficulty == 1 else NAMES))

    # Follow relations. In the question the last hop stands first: the home of the friend of Ana.
    relations: list[str] = []
    steps = []
    subject = start
    for hops_remaining in range(difficulty, 0, -1):
        relation = str(rng.choice(_list_next_relations(subject, hops_remaining)))
        value = build_records()[relation][subject]
        steps.append(f"the {relation} of {subject} is {value}")
        relations.insert(0, relation)
        subject = value
    answer = subject
    question = "What is the " + " of the ".join(relations) + f" of {start} ?"
    item_id = "facts/" + "/".join([*relations, start])
    if surface_form == "plain":
        return Item(question, answer, " ; ".join(steps), "facts", difficulty, item_id)

    options, letter = _draw_options(rng, answer, relations[0])
    listed = " ".join(f"{name} : {option}" for name, option in zip(LETTERS, options, strict=True))
    return Item(
        prompt=f"{question} Options {listed}",
        reference=letter,
        worked_solution=" ; ".join([*steps, f"{letter} : {answer}"]),
        group="facts",
        difficulty=difficulty,
        id=item_id,
        surface_form=surface_form,
        choices=options,
    )


def _list_next_relations(subject: str, hops_remaining: int) -> list[str]:
    """List the relations that the next hop of a question can follow: "home", "friend" and others for Ana.

    Args:
        subject: The person or town that the hop starts at.
        hops_remaining: Number of hops still to come, this one included.

    Returns:
        Names of relations that the subject has. Unless the hop is the last one, its value must be a person or a town:
        jobs, pets and rivers have no relations to follow.
    """
    subject_kind = next(kind for kind, values in VALUES.items() if subject in values)
    is_last_hop = hops_remaining == 1
    next_relations = []
    for relation, (relation_subject_kind, value_kind, _) in RELATIONS.items():
        value_has_relations = value_kind in ("person", "town")
        if relation_subject_kind == subject_kind and (is_last_hop or value_has_relations):
            next_relations.append(relation)
    return next_relations


def _draw_options(
    rng: np.random.Generator, answer: str, relation: str
) -> tuple[tuple[str, ...], str]:
    """Draw the options of a multiple-choice question.

    Args:
        rng: Random numbers.
        answer: The right answer.
        relation: The relation whose value is asked for; wrong options are other values of the same kind.

    Returns:
        (options, letter): four different words in random order, and the letter of the right one.
    """
    _, value_kind, _ = RELATIONS[relation]
    wrong = [value for value in VALUES[value_kind] if value != answer]
    options = [answer]
    for i in rng.permutation(len(wrong))[:3]:
        options.append(wrong[i])
    shuffled = tuple(options[i] for i in rng.permutation(4))
    return shuffled, LETTERS[shuffled.index(answer)]


FAMILY = Family(
    name="facts",
    description="questions of one to three hops over a fictional world of records; a search helps",
    draw_item=draw_item,
    difficulties=(1, 2, 3),
    vocabulary=(*_WORDS, *(word for values in VALUES.values() for word in values), *PUNCTUATION),
    surface_forms=("plain", "choice"),
)
