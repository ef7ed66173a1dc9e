"""The sentence says no more than the numbers: gains hold together, reasons are measured, few items are named."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.recorded_outcomes import headroom
from lib.routers.compare_methods import CONDITIONS, MethodComparison, MethodEstimate
from lib.routers.evaluation_sentence import (
    CEILING,
    CLOSE,
    DOMINATED,
    GAINS,
    NOT_WON,
    NOTHING_TO_WIN,
    SAVES,
    TOO_FEW,
    WORSE,
    answer_question,
    count_items_needed,
    decide_question,
    find_mde,
)
from lib.routers.methods import LOGISTIC, NEAREST, PERFECT_CHECK, POOR_CHECK
from lib.stats import Interval
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded
NO_GAIN, SAME_COST = Interval(0.0, -0.01, 0.01), Interval(1.0, 0.98, 1.02)


def make_comparison(gain=NO_GAIN, cost_ratio=SAME_COST, equal_gain=NO_GAIN, num_groups=500):
    """Two routers, one of which has this gain at the same money and this cost ratio at equal quality."""
    estimates = {}
    for method in (NEAREST, LOGISTIC, PERFECT_CHECK, POOR_CHECK):
        for condition in CONDITIONS:
            is_winner = method == LOGISTIC
            is_equal = condition == "equal quality"
            estimates[method, condition] = MethodEstimate(
                method=method,
                condition=condition,
                accuracy=Interval(0.7, 0.65, 0.75),
                cost_usd=Interval(0.01, 0.009, 0.011),
                gain=(equal_gain if is_equal else gain) if is_winner else NO_GAIN,
                gain_over_mixtures=NO_GAIN,
                cost_ratio=cost_ratio if is_winner and is_equal else SAME_COST,
            )
    return MethodComparison(estimates, pd.DataFrame(), num_groups, {})


def make_gate(accuracy=(-0.01, 0.01), money=(-0.02, 0.02), open_questions=()):
    rows = {"accuracy": accuracy, "money": money, "check": (0.0, 0.02)}
    frame = pd.DataFrame(rows, index=["ci_low", "ci_high"]).T
    frame["value"] = frame.mean(axis=1)
    frame["question is"] = [
        headroom.OPEN if question in open_questions else headroom.NOT_OPEN
        for question in frame.index
    ]
    return frame


def answer(comparison=None, gate=None, table=None):
    return answer_question(
        table or made(500),
        make_gate() if gate is None else gate,
        comparison or make_comparison(),
        SETTINGS,
    )


def test_a_gain_is_said_in_points_with_an_interval_over_all_comparisons():
    won = answer(make_comparison(Interval(0.031, 0.010, 0.052)))
    assert won.verdict == GAINS
    assert won.sentence.startswith(
        "Choosing gains 3.1 points [0.4, 5.8] over always dear at the same money (logistic"
    )
    assert "all 4 comparisons" in won.details[0]


def test_a_gain_that_only_its_interval_alone_would_show_is_not_claimed():
    assert answer(make_comparison(Interval(0.020, 0.001, 0.039))).verdict != GAINS


def test_a_gain_that_costs_more_than_the_best_constant_is_not_one_at_the_same_money():
    comparison = make_comparison(Interval(0.05, 0.03, 0.07))
    key = LOGISTIC, CONDITIONS[0]
    dearer = replace(comparison.estimates[key], cost_ratio=Interval(1.2, 1.1, 1.3))
    estimates = dict(comparison.estimates) | {key: dearer}
    assert answer(replace(comparison, estimates=estimates)).verdict != GAINS


def test_savings_need_a_tenth_of_the_money_and_the_quality():
    cheap = Interval(0.6, 0.5, 0.7)
    saved = answer(make_comparison(cost_ratio=cheap))
    assert saved.verdict == SAVES
    assert saved.sentence.startswith("Choosing saves 40% [")
    assert answer(make_comparison(cost_ratio=Interval(0.95, 0.92, 0.98))).verdict != SAVES
    worse = Interval(-0.03, -0.05, -0.01)
    assert answer(make_comparison(cost_ratio=cheap, equal_gain=worse)).verdict != SAVES


def test_a_check_that_would_save_is_named_as_an_assumption():
    comparison = make_comparison()
    key = PERFECT_CHECK, "equal quality"
    cheap = replace(comparison.estimates[key], cost_ratio=Interval(0.4, 0.3, 0.5))
    details = answer(
        replace(comparison, estimates=dict(comparison.estimates) | {key: cheap})
    ).details
    assert any(
        "If answers could be checked for free" in detail and "60% [50%, 70%]" in detail
        for detail in details
    )


def test_a_model_that_is_cheapest_and_clearly_best_dominates():
    table = made(500)
    correct = table.correct.copy()
    cost_usd = table.cost_usd.copy()
    cost_usd[:, 2] /= 1_000  # the most accurate model becomes the cheapest
    dominated = answer(table=replace(table, cost_usd=cost_usd))
    lead = 100 * (correct[:, 2].mean() - max(correct[:, 0].mean(), correct[:, 1].mean()))
    assert dominated.verdict == DOMINATED
    assert (
        f"dear is the cheapest and the most accurate, right on {correct[:, 2].mean():.1%}"
        in dominated.sentence
    )
    assert f"{lead:.1f} points [" in dominated.sentence
    # Not clearly better than a copy of itself that costs more.
    correct[:, 0] = correct[:, 2]
    assert answer(table=replace(table, correct=correct, cost_usd=cost_usd)).verdict != DOMINATED


def test_a_model_that_is_nearly_always_right_leaves_nothing_to_add():
    table = made(500)
    correct = table.correct.copy()
    correct[:, 2] = np.arange(500) > 4
    said = answer(table=replace(table, correct=correct))
    assert said.verdict == CEILING and "99.0%" in said.sentence


@pytest.mark.parametrize(
    ("gate", "word", "text"),
    [
        (make_gate(), NOTHING_TO_WIN, "Choosing does not pay here, because there is too little to win"),
        (make_gate((-0.3, 0.3)), TOO_FEW, "cannot be told, because 500 items are too few"),
        (make_gate((0.03, 0.06)), CLOSE, "is undecided"),
        (make_gate(money=(0.2, 0.25)), WORSE, "only with fewer right answers"),
        (make_gate((0.1, 0.2), open_questions=["accuracy"]), NOT_WON, "none of 2 routers beats always dear"),
    ],
)  # fmt: skip
def test_what_was_not_won_has_its_measured_reason(gate, word, text):
    said = answer(gate=gate)
    assert said.verdict == word and text in said.sentence


def test_too_few_items_are_said_with_the_detectable_effect_and_how_many_would_do():
    gate = make_gate((-0.3, 0.3))
    sentence = answer(gate=gate).sentence
    assert f"{100 * find_mde(gate, 'accuracy'):.1f} points of accuracy" in sentence
    assert f"about {count_items_needed(500, gate, 'accuracy'):,} items would do" in sentence


def test_the_items_needed_grow_with_the_square_of_the_detectable_effect():
    gate = pd.DataFrame({"ci_low": [-0.05], "ci_high": [0.05]}, index=["accuracy"])
    ratio = find_mde(gate, "accuracy") / headroom.MIN_WORTHWHILE_GAIN["accuracy"]
    assert count_items_needed(1_000, gate, "accuracy") == pytest.approx(1_000 * ratio**2, rel=0.06)
    assert count_items_needed(1_000, gate / 100, "accuracy") > 1_000


@pytest.mark.parametrize(
    ("ci_low", "ci_high", "word"),
    [
        (-0.02, 0.02, headroom.NOT_OPEN),
        (0.03, 0.06, CLOSE),  # .05 could have been detected, and is among what is possible
        (-0.30, 0.04, TOO_FEW),  # below .05 by luck: .05 could not have been detected
        (-0.30, 0.30, TOO_FEW),
        (0.06, 0.08, WORSE),  # enough, and not open: quality fell
    ],
)
def test_no_is_said_only_where_the_least_gain_could_have_been_detected(ci_low, ci_high, word):
    gate = pd.DataFrame({"ci_low": [ci_low], "ci_high": [ci_high]}, index=["accuracy"])
    assert decide_question(gate, "accuracy") == word
