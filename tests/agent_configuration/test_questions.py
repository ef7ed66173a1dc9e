"""The five kinds of questions: what they are made of, and that equal arguments give equal ones."""

from dataclasses import replace

import pytest

from lib.agent_configuration.questions import KINDS, is_solved, kind_of, questions
from lib.tasks import SPLITS, TaskError
from lib.tasks.multi_hop_facts import NAMES as PERSONS
from tests.agent_configuration.small import CHAIN

NAMES = [kind.name for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_questions_are_of_their_kind_and_of_all_its_difficulties(kind):
    items = questions(kind.name, "train", 30)
    assert len(items) == 30 and {item.difficulty for item in items} == set(kind.difficulties)
    assert {(item.group, item.surface_form, kind_of(item)) for item in items} == {
        (kind.family, kind.skin, kind.name)
    }
    assert bool(items[0].choices) == (kind.name == "choice")


@pytest.mark.parametrize("kind", NAMES)
def test_no_question_comes_twice_and_every_split_has_its_own(kind):
    prompts_by_split = {split: questions(kind, split, 5) for split in SPLITS}
    for split, items in prompts_by_split.items():
        assert len({item.prompt for item in items}) == len(items) > 0
        assert {item.split for item in items} == {split}
    keys = [{item.id for item in items} for items in prompts_by_split.values()]
    assert len(set.union(*keys)) == sum(map(len, keys))


@pytest.mark.parametrize("kind", NAMES)
def test_equal_arguments_give_equal_questions_and_seeds_others(kind):
    assert (
        questions(kind, "train", 12)
        == questions(kind, "train", 12)
        != questions(kind, "train", 12, seed=1)
    )


def test_a_split_that_holds_no_more_gives_all_that_it_has():
    """Two and three relations, the last one first: a friend and a mayor are persons, a home is a town."""
    person, town = ("friend", "home", "job", "pet"), ("river", "mayor")
    onward = {"friend": person, "mayor": person, "home": town}
    two = [(last, first) for first in person for last in onward.get(first, ())]
    three = [(last, *relations) for relations in two for last in onward.get(relations[0], ())]
    assert (len(two), len(three)) == (6, 10)
    keys = {f"facts/{'/'.join(relations)}/{who}" for relations in (*two, *three) for who in PERSONS}
    # No single source knows both a mayor and a job or pet.
    keys = {key for key in keys if not ("mayor" in key and key.split("/")[1] in ("job", "pet"))}
    few = questions("hops", "test", 300)
    assert {item.id for item in few} == {
        key for key in keys if replace(CHAIN, id=key).split == "test"
    }
    assert 30 < len(few) < 300


def test_of_options_the_letter_and_the_words_count():
    item = questions("choice", "test", 1)[0]
    words = item.choices["ABCD".index(item.reference)]
    assert is_solved(item, f"<answer> {item.reference} </answer>") and is_solved(
        item, f"<answer> {words} </answer>"
    )
    wrong = next(choice for choice in item.choices if choice != words)
    assert not is_solved(item, f"<answer> {wrong} </answer>") and not is_solved(item, words)


def test_each_kind_stands_in_for_one_benchmark_of_the_paper():
    assert {kind.name: kind.paper for kind in KINDS} == {
        "chain": "GSM8K",
        "passage": "DROP",
        "choice": "MedQA",
        "hops": "HotpotQA",
        "mixed": "GAIA",
    }


def test_an_unknown_kind_or_split_and_an_item_of_no_kind_are_named():
    with pytest.raises(
        TaskError,
        match="no kind of question 'riddle'; there are chain, passage, choice, hops, mixed",
    ):
        questions("riddle", "train", 1)
    with pytest.raises(TaskError, match="exam"):
        questions("chain", "exam", 1)
    with pytest.raises(TaskError, match="chain, words: no kind of question here"):
        kind_of(replace(CHAIN, surface_form="words"))
