"""The evaluation compares inside questions, leaves out what was lost, and says first what went wrong."""

import numpy as np
import pandas as pd
import pytest

from lib.rl.user_training.evaluation import (
    START,
    TRAINED,
    average_over_conditions,
    compare_methods,
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
    comparison = compare({START: [0.0, 1.0], TRAINED: [0.0, 1.0]})
    assert describe_outcome(comparison).startswith("Training changed no reward: +0.00")


def test_equal_differences_on_all_questions_are_no_verdict_either():
    comparison = compare({START: [0.0, 0.5], TRAINED: [0.25, 0.75]})
    assert describe_outcome(comparison).startswith("No verdict, all questions changed alike: +0.25")


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
