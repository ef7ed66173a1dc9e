"""The strict scorer of the procedural families."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import tasks
from lib.tasks.scorers import make_scorer
from tests.tasks.own import FAMILIES

SCORER = make_scorer("tags")


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_families(family):
    items = tasks.draw_items(family, "test", 20)
    for replies in (
        [item.solution for item in items],
        [items[0].solution] * 20,
        [f"The answer is {item.reference}." for item in items],
        [item.solution + " And more." for item in items],
    ):
        scores = SCORER.score(items, replies)
        expected = [
            tasks.score_reply(item, reply) for item, reply in zip(items, replies, strict=True)
        ]
        assert [score.value for score in scores] == expected


def test_the_solution_is_right_and_an_answer_without_tags_is_not():
    [item] = tasks.draw_items("chain", "test", 1)
    right, untagged = SCORER.score([item] * 2, [item.solution, item.reference])
    assert (right.value, right.extracted) == (1, item.reference)
    assert (untagged.value, untagged.extracted) == (0, None)
    assert untagged.explanation == "the reply does not end in <answer> tags"


@given(st.text())
def test_every_text_has_the_score_of_the_family(reply):
    [item] = tasks.draw_items("chain", "test", 1)
    assert SCORER.score_reply(item, reply).value == tasks.score_reply(item, reply)


def test_an_item_of_no_family_is_refused():
    [item] = tasks.draw_items("chain", "test", 1)
    stranger = tasks.Item(item.prompt, item.reference, "", "no_family", 1, "x")
    with pytest.raises(tasks.TaskError, match="no_family"):
        SCORER.score([stranger], [item.solution])
