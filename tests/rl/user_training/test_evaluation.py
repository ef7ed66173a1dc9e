"""The evaluation compares inside questions, leaves out what was lost, and says first what went wrong."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.rl.user_training.evaluation import (
    START,
    TOO_FEW,
    TRAINED,
    average_over_conditions,
    compare_methods,
    decide_verdicts,
    describe_outcome,
    estimate_means,
)

ROLES = {START: "start", TRAINED: "paper", "always a": "expert", "oracle": "oracle"}


def make_rows(
    rewards: dict[str, list[float]], conditions: tuple[str, ...] = ("low",)
) -> pd.DataFrame:
    """Rows of methods on numbered questions, the same under every condition."""
    rows = []
    for method, values in rewards.items():
        for condition in conditions:
            for number, value in enumerate(values):
                rows.append(
                    {"method": method, "role": ROLES[method], "item": f"q{number}", "sample": 0}
                    | {"condition": condition, "reward": value, "correct": value}
                )
    return pd.DataFrame(rows)


def compare(rewards: dict[str, list[float]], **options):
    return compare_methods(make_rows(rewards, **options), ["reward", "correct"], ["trained"])


def test_a_clear_gain_and_a_clear_loss_to_a_baseline_are_both_said_the_loss_first():
    noise = np.random.default_rng(0).normal(0, 0.05, 40)
    values = 0.5 + noise
    comparison = compare(
        {
            START: list(values - 0.2 - noise),
            TRAINED: list(values),
            "always a": list(values + 0.2 + noise),
        }
    )
    sentence = describe_outcome(comparison)
    assert sentence.startswith("Worse than the best baseline, always a: -0.20")
    assert "; after training +0.20" in sentence and "40 held-out questions" in sentence


def test_a_gain_whose_interval_holds_zero_is_called_not_significant():
    differences = np.random.default_rng(1).normal(0, 0.3, 30)
    comparison = compare({START: [0.5] * 30, TRAINED: list(0.5 + differences)})
    assert describe_outcome(comparison).startswith("No significant gain: after training")


def test_a_loss_is_said_first():
    noise = np.random.default_rng(0).normal(0, 0.05, 40)
    comparison = compare({START: [0.5] * 40, TRAINED: list(0.2 + noise)})
    assert describe_outcome(comparison).startswith("Training made it worse, -0.30")


def test_a_training_that_changed_nothing_is_no_verdict():
    comparison = compare({START: [0.0, 1.0] * 5, TRAINED: [0.0, 1.0] * 5})
    assert describe_outcome(comparison).startswith("Training changed no reward: +0.00")


def test_equal_differences_on_all_questions_are_no_verdict_either():
    comparison = compare({START: [0.0, 0.5] * 5, TRAINED: [0.25, 0.75] * 5})
    assert describe_outcome(comparison).startswith("No verdict, all questions changed alike: +0.25")


def test_fewer_than_ten_questions_have_amounts_and_no_verdict():
    rewards = {START: [0.0] * 9, TRAINED: [1.0] * 8 + [0.0], "always a": [0.0, 1.0, 1.0] * 3}
    comparison = compare(rewards)
    sentence = describe_outcome(comparison)
    assert sentence.startswith("Too few held-out questions to tell (9): after training +0.89 [")
    assert "+0.22 [" in sentence and "against the best baseline, always a" in sentence
    assert set(decide_verdicts(comparison.differences)) == {TOO_FEW}
    one_more = compare({method: [*values, 0.0] for method, values in rewards.items()})
    assert decide_verdicts(one_more.differences)[START] == "holds"


def test_two_questions_have_points_without_intervals():
    comparison = compare({START: [0.0, 0.0], TRAINED: [0.0, 1.0]})
    for estimates in (*comparison.means.values(), comparison.differences):
        assert estimates["value"].notna().all()
        assert estimates[["ci_low", "ci_high"]].isna().all(axis=None)
    assert "+0.50 (no interval)" in describe_outcome(comparison)


@given(
    st.integers(3, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([0.0, 1 / 3, 1.0]), min_size=size, max_size=size),
            min_size=2,
            max_size=2,
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_intervals_lie_inside_of_the_range_of_the_reward(values):
    rows = make_rows(dict(zip((START, TRAINED), values, strict=True)), ("low", "high"))
    comparison = compare_methods(rows, ["reward"], [], {"reward": (0.0, 1.0)})
    means = comparison.means["reward"][["ci_low", "ci_high"]]
    assert means.ge(0).all(axis=None) and means.le(1).all(axis=None)
    differences = comparison.differences[["ci_low", "ci_high"]]
    assert differences.ge(-1).all(axis=None) and differences.le(1).all(axis=None)


def test_the_oracle_is_no_baseline():
    comparison = compare({START: [0, 0], TRAINED: [0, 1], "always a": [0, 1], "oracle": [1, 1]})
    assert comparison.best_baseline == "always a"
    assert "oracle" in comparison.differences.index


def test_a_question_that_one_method_lost_is_in_no_comparison():
    rewards = {START: [0.0, 1.0, 0.0], TRAINED: [1.0, np.nan, 1.0]}
    comparison = compare(rewards)
    assert comparison.num_questions == 2 and comparison.num_incomplete == 1
    assert comparison.means["reward"].loc[START, "value"] == 0.0


def test_a_question_that_one_method_was_not_asked_is_in_no_comparison():
    rows = make_rows({START: [0.0, 1.0], TRAINED: [1.0, 1.0]})
    rows = rows[~((rows["method"] == TRAINED) & (rows["item"] == "q1"))]
    assert compare_methods(rows, ["reward"], []).num_questions == 1


def test_conditions_of_a_question_are_no_further_questions():
    rewards = {START: [0.0, 1.0, 1.0], TRAINED: [1.0, 1.0, 0.0]}
    one, three = compare(rewards), compare(rewards, conditions=("low", "medium", "high"))
    pd.testing.assert_frame_equal(one.differences, three.differences)
    table = average_over_conditions(make_rows(rewards, ("low", "high")), ["reward"])
    assert len(table) == 6


def test_a_question_of_the_training_is_refused():
    rows = make_rows({START: [0.0], TRAINED: [1.0]})
    with pytest.raises(ValueError, match="question 'q0' is in the training and in the evaluation"):
        compare_methods(rows, ["reward"], ["q0"])


def test_where_nothing_has_a_score_it_is_said():
    with pytest.raises(ValueError, match="none of 2 held-out questions has a score"):
        compare({START: [np.nan, 1.0], TRAINED: [1.0, np.nan]})


def test_calls_that_cost_nothing_have_no_interval_of_a_proportion():
    rows = pd.DataFrame(
        {"method": "a", "item": list("abc"), "sample": 0, "cost_usd": 0.0, "correct": 0.0}
    )
    cost = estimate_means(rows, "cost_usd").loc["a"]
    assert (cost["ci_low"], cost["ci_high"]) == (0.0, 0.0)
    assert estimate_means(rows, "correct").loc["a", "ci_high"] > 0.5
