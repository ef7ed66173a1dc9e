"""What a scorer is, and how one is made."""

import asyncio
import math

import pytest

from lib.tasks.scorers import SCORERS, Score, ScorerError, make_scorer
from tests.tasks.scorers.items import make_item

PLAIN = ["exact", "choice", "numeric", "math", "f1", "f1:drop", "code", "tags"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_scorer_has_the_name_that_makes_it(name):
    assert make_scorer(name).name == name


def test_a_tolerance_is_part_of_the_name():
    scorer = make_scorer("numeric:0.01")
    assert scorer.name == "numeric:0.01" and scorer.tolerance == 0.01


@pytest.mark.parametrize(
    "name", ["exakt", "", "exact:", "f1:bleu", "code:python", "math:3", "judge", ":"]
)
def test_an_unknown_name_lists_what_there_is(name):
    with pytest.raises(ScorerError) as error:
        make_scorer(name)
    assert repr(name) in str(error.value) or "judge" in name
    if name != "judge":
        assert all(scorer in str(error.value) for scorer in SCORERS)


@pytest.mark.parametrize("argument", ["a", "-1", "nan", "inf"])
def test_a_tolerance_that_is_none_is_refused(argument):
    with pytest.raises(ScorerError, match="a tolerance is a number from 0 on"):
        make_scorer(f"numeric:{argument}")


def test_a_judge_that_is_no_model_lists_the_models():
    with pytest.raises(ScorerError, match="no model 'big'; models are none"):
        make_scorer("judge:big")
    with pytest.raises(ScorerError, match="models are small"):
        make_scorer("judge:big", {"small": None})


@pytest.mark.parametrize("name", PLAIN)
def test_every_item_needs_a_reply(name):
    with pytest.raises(ScorerError, match="2 items and 1 replies"):
        make_scorer(name).score([make_item("5"), make_item("6")], ["5"])


@pytest.mark.parametrize("name", PLAIN)
def test_no_items_have_no_scores(name):
    assert make_scorer(name).score([], []) == []


def test_scores_come_in_the_order_of_the_items():
    items = [make_item(str(number)) for number in range(50)]
    replies = [str(number if number % 3 else -1) for number in range(50)]
    values = [score.value for score in make_scorer("numeric").score(items, replies)]
    assert values == [float(number % 3 != 0) for number in range(50)]


def test_a_scorer_works_inside_an_event_loop_both_ways():
    scorer = make_scorer("exact")

    async def score_twice():
        return await scorer.score_all([make_item("x")], ["x"]) + scorer.score(
            [make_item("x")], ["y"]
        )

    assert [score.value for score in asyncio.run(score_twice())] == [1, 0]


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_score_outside_0_and_1_is_refused(value):
    with pytest.raises(ValueError, match="a number from 0 to 1"):
        Score(value)


def test_a_lost_judgement_has_no_value():
    assert Score(math.nan, failure="timeout: too long").lost
    assert not Score(0.5).lost
    with pytest.raises(ValueError, match="has the value nan"):
        Score(0.0, failure="timeout: too long")
