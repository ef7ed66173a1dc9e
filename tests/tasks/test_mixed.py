"""Mixed questions: read by someone who knows only the documents and Python's arithmetic."""

import hashlib
import re

import pytest

from lib import tasks
from lib.tasks import SPLITS, facts, reply, verify
from lib.tasks.mixed import FAMILY, documents, records
from lib.tasks.words import PEOPLE

PROMPT = re.compile(r"What is the number( of the friend)? of (\w+) ([+*]) (\d\d) \?")
SENTENCE = re.compile(r"The (\w+) of (\w+) is (\w+) \.")
ITEMS = [item for d in (1, 2, 3) for split in SPLITS for item in tasks.draw("mixed", split, 60, d, seed=3)]


def world() -> dict[tuple[str, str], str]:
    """What the documents say, by relation and subject."""
    return {(r, s): value for r, s, value in (SENTENCE.fullmatch(text).groups() for text in documents())}


# Questions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("difficulty, sign, friend", [(1, "+", False), (2, "*", False), (3, "*", True)])
def test_a_difficulty_says_what_is_reckoned_with_whose_number(difficulty, sign, friend):
    own = [item for item in ITEMS if item.difficulty == difficulty]
    assert len(own) == 180
    for item in own:
        between, _, found, _ = PROMPT.fullmatch(item.prompt).groups()
        assert (bool(between), found) == (friend, sign) and item.category == "mixed" and item.skin == "plain"


def test_answers_follow_from_the_documents():
    told = world()
    for item in ITEMS:
        between, who, sign, other = PROMPT.fullmatch(item.prompt).groups()
        owner = told["friend", who] if between else who
        number = int(told["number", owner])
        expected = number + int(other) if sign == "+" else number * int(other)
        assert item.answer == str(expected) and verify(item, item.solution) and verify(item, reply(str(expected)))
        assert not verify(item, reply(str(expected + 1)))


def test_a_solution_looks_up_first_and_then_reckons_without_an_error():
    told = world()
    for item in ITEMS:
        between, who, _, other = PROMPT.fullmatch(item.prompt).groups()
        steps = item.reference.split(" ; ")
        looked = []
        if between:
            looked, who = [f"the friend of {who} is {told['friend', who]}"], told["friend", who]
        looked.append(f"the number of {who} is {told['number', who]}")
        assert steps[: len(looked)] == looked
        for step in steps[len(looked) :]:
            left, right = step.split(" = ")
            assert eval(left) == int(right), step
        assert steps[-1].split()[-1] == item.answer and told["number", who] in " ".join(steps) and len(other) == 2


# The world -----------------------------------------------------------------------------------------


def test_documents_and_records_say_the_same():
    rows = {(r, s): value for r, told in records().items() for s, value in told.items()}
    assert world() == rows and len(documents()) == len(rows)


# Splits --------------------------------------------------------------------------------------------


def test_the_key_holds_what_a_question_is_about_and_decides_its_split():
    for item in ITEMS:
        between, who, sign, other = PROMPT.fullmatch(item.prompt).groups()
        assert item.key == f"mixed/number/{'friend/' * bool(between)}{who}/{sign}{other}"
        tenth = int.from_bytes(hashlib.sha256(item.key.encode()).digest()[:8], "little") % 10
        assert item.split == ("train" if tenth < 8 else "dev" if tenth == 8 else "test")
    keys = [{item.key for item in ITEMS if item.split == split} for split in SPLITS]
    assert all(keys) and not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])


def test_equal_arguments_give_equal_questions():
    assert tasks.draw("mixed", "train", 20, seed=1) == tasks.draw("mixed", "train", 20, seed=1)
    assert tasks.draw("mixed", "train", 20, seed=1) != tasks.draw("mixed", "train", 20, seed=2)


FACTS = "213244b0eead85c7"


def test_everybody_has_a_number_of_two_digits():
    numbers = records()["number"]
    assert tuple(numbers) == PEOPLE and all(re.fullmatch(r"[1-9]\d", number) for number in numbers.values())
    assert len(set(numbers.values())) > 10


def test_the_world_of_facts_is_as_it_was():
    assert {name: rows for name, rows in records().items() if name != "number"} == facts.records()
    assert "number" not in facts.records() and documents()[: len(facts.documents())] == facts.documents()
    assert hashlib.sha256("\n".join(facts.documents()).encode()).hexdigest()[:16] == FACTS


def test_other_families_are_drawn_as_before():
    """Big sums share their arithmetic with this family."""
    for item in tasks.draw("big", "train", 60, seed=5):
        assert item.answer == str(eval(item.prompt.removesuffix(" = ?"))) and item.reference.endswith(
            f"= {item.answer}"
        )


def test_every_person_and_both_signs_are_asked_about():
    asked = [PROMPT.fullmatch(item.prompt).groups() for item in ITEMS]
    assert {who for _, who, _, _ in asked} == set(PEOPLE) and {sign for _, _, sign, _ in asked} == {"+", "*"}
    assert FAMILY.difficulties == (1, 2, 3) and all(11 <= int(other) <= 99 for *_, other in asked)
