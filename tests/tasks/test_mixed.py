"""Mixed questions: read by someone who knows only the documents and Python's arithmetic."""

import hashlib
import re

from lib import tasks
from lib.tasks import SPLITS, multi_hop_facts
from lib.tasks.mixed import build_documents, build_records
from lib.tasks.vocabulary import PEOPLE

PROMPT = re.compile(r"What is the number( of the friend)? of (\w+) ([+*]) (\d\d) \?")
SENTENCE = re.compile(r"The (\w+) of (\w+) is (\w+) \.")
ITEMS = [
    item
    for d in (1, 2, 3)
    for split in SPLITS
    for item in tasks.draw_items("mixed", split, 60, d, seed=3)
]
FACTS = "213244b0eead85c7"


def world() -> dict[tuple[str, str], str]:
    """What the documents say, by relation and subject."""
    return {
        (r, s): value
        for r, s, value in (SENTENCE.fullmatch(text).groups() for text in build_documents())
    }


def test_a_question_is_of_its_difficulty_and_its_solution_looks_up_first_and_then_reckons_without_an_error():
    told, asked = world(), set()
    for item in ITEMS:
        between, who, sign, other = PROMPT.fullmatch(item.prompt).groups()
        assert (sign, bool(between)) == {1: ("+", False), 2: ("*", False), 3: ("*", True)}[
            item.difficulty
        ]
        assert (
            item.id == f"mixed/number/{'friend/' * bool(between)}{who}/{sign}{other}"
            and 11 <= int(other) <= 99
        )
        asked.add(who)
        steps, looked = item.worked_solution.split(" ; "), []
        if between:
            looked, who = [f"the friend of {who} is {told['friend', who]}"], told["friend", who]
        number = told["number", who]
        looked.append(f"the number of {who} is {number}")
        assert steps[: len(looked)] == looked
        for step in steps[len(looked) :]:
            left, right = step.split(" = ")
            assert eval(left) == int(right), step
        expected = int(number) + int(other) if sign == "+" else int(number) * int(other)
        assert item.reference == str(expected) == steps[-1].split()[-1]
    assert asked == set(PEOPLE)


def test_documents_and_records_say_the_same():
    rows = {(r, s): value for r, told in build_records().items() for s, value in told.items()}
    assert world() == rows and len(build_documents()) == len(rows)


def test_everybody_has_a_number_of_two_digits():
    numbers = build_records()["number"]
    assert tuple(numbers) == PEOPLE and all(
        re.fullmatch(r"[1-9]\d", number) for number in numbers.values()
    )
    assert len(set(numbers.values())) > 10


def test_the_world_of_facts_is_as_it_was():
    assert {
        name: rows for name, rows in build_records().items() if name != "number"
    } == multi_hop_facts.build_records()
    assert (
        "number" not in multi_hop_facts.build_records()
        and build_documents()[: len(multi_hop_facts.build_documents())]
        == multi_hop_facts.build_documents()
    )
    assert (
        hashlib.sha256("\n".join(multi_hop_facts.build_documents()).encode()).hexdigest()[:16]
        == FACTS
    )
