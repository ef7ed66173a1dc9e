"""Questions of a user are read, split by content, and refused where an expert cannot read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import config
from lib.config import ParamsError
from lib.rl.user_training.data import (
    check_vocabulary,
    hash_questions,
    name_units,
    split_off_dev,
    split_questions,
)
from lib.tasks import Dataset, Item, TaskError


def make_items(ids) -> tuple[Item, ...]:
    return tuple(
        Item(f"question {number}", "4", "", "own", 1, str(item_id))
        for number, item_id in enumerate(ids)
    )


@given(
    ids=st.lists(st.integers(0, 30), min_size=3, max_size=60).filter(lambda ids: len(set(ids)) > 2),
    share=st.floats(0.01, 0.99),
    max_test=st.integers(1, 20),
    seed=st.integers(0, 5),
)
def test_no_content_is_on_both_sides_and_neither_side_is_empty(ids, share, max_test, seed):
    dataset = Dataset("own", make_items(ids), "exact")
    split = split_questions(dataset, share, max_test, seed)
    train_ids = {item.id for item in split.train}
    assert not train_ids & {item.id for item in split.test}
    assert len(train_ids) >= 2 and 1 <= len(split.test) <= max_test
    assert set(split.baseline_train) <= set(split.train)
    assert split == split_questions(dataset, share, max_test, seed)


def test_a_fifth_of_the_contents_is_held_out_and_the_note_says_so():
    split = split_questions(Dataset("own", make_items(range(50)), "exact"), 0.2, 5)
    assert len(split.train) == 40 and len(split.test) == 5
    assert "40 questions to learn from, 10 held out by the hash of their ids" in split.note
    assert "5 of them are asked" in split.note


def test_wordings_of_two_contents_are_too_few_to_hold_one_out():
    dataset = Dataset("own", make_items([1, 2, 1, 2]), "exact")
    with pytest.raises(TaskError, match="own holds questions of 2 id.* bring 3 or more"):
        split_questions(dataset, 0.2, 10)


def test_wordings_of_one_content_are_samples_of_one_item():
    assert name_units(make_items(["a", "b", "a"])) == [("a", 0), ("b", 0), ("a", 1)]


def test_the_hash_of_questions_changes_with_a_reference():
    items = make_items("ab")
    other = (items[0], Item("question 1", "5", "", "own", 1, "b"))
    assert hash_questions(items) == hash_questions(make_items("ab")) != hash_questions(other)


def test_questions_that_a_lab_expert_would_read_with_holes_are_refused():
    llm = config.load("smoke").llm
    items = [Item("Natalia sold 48 clips .", "48", "", "own", 1, "a")]
    with pytest.raises(ParamsError, match="nano are lab models.* question 1 has 'Natalia'"):
        check_vocabulary(llm, ["scripted-small", "nano"], items)
    check_vocabulary(llm, ["scripted-small"], items)


@given(
    ids=st.lists(st.integers(0, 30), min_size=5, max_size=60).filter(lambda ids: len(set(ids)) > 4),
    share=st.floats(0.01, 0.4),
    seed=st.integers(0, 5),
)
def test_dev_questions_are_in_no_other_part(ids, share, seed):
    dataset = Dataset("own", make_items(ids), "exact")
    whole = split_questions(dataset, share, 20, seed)
    questions, dev = split_off_dev(whole, share, 20, seed)
    parts = [{item.id for item in part} for part in (questions.train, dev, questions.test)]
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts))
    assert questions.test == whole.test and set(questions.baseline_train) <= set(questions.train)
