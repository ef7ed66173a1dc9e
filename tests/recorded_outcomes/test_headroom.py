"""Headroom: skill counts, luck does not; a check pays for what it refuses."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib.recorded_outcomes import headroom, model_selection
from tests.recorded_outcomes.small import made

OPEN, NOT_OPEN = headroom.OPEN, headroom.NOT_OPEN


def test_three_coins_leave_an_oracle_a_lead_and_a_router_nothing():
    table = made(600, dice=True)
    told = headroom.describe_table(table)
    assert told["oracle"] - told["constant"] > 0.3
    found = headroom.estimate_headroom(table, 4, range(2), 0.01)
    assert (
        found.loc["accuracy", "question is"] == NOT_OPEN
        and abs(found.loc["accuracy", "value"]) < 0.06
    )


def test_models_that_are_good_at_different_items_leave_something_to_win():
    found = headroom.estimate_headroom(made(600), 4, range(2), 0.01)
    assert (found["question is"] == OPEN).all() and found.loc["accuracy", "ci_low"] > 0.05
    assert found.loc["money", "value"] > 0.8  # the dear model is ten times as dear as both others


def test_the_gate_learns_from_train_alone():
    table = made(300)
    fold = model_selection.make_cross_validation_folds(model_selection.assign_folds(table, 4, 0))[0]
    told = headroom.fit_informed_router(table, fold)
    turned = table.correct.copy()
    turned[np.ix_(fold.test, told.pool)] = 1 - turned[np.ix_(fold.test, told.pool)]
    again = headroom.fit_informed_router(replace(table, correct=turned), fold)
    assert np.allclose(told.chances[fold.test], again.chances[fold.test])


def test_a_perfect_check_by_hand():
    table = made(60)
    choices = headroom.choose_with_checker(table)
    at = choices.names.index("cheap > dear")
    wrong = table.correct[:, 0] == 0
    assert (choices.correct[at] == np.maximum(table.correct[:, 0], table.correct[:, 2])).all()
    assert np.allclose(choices.cost_usd[at], table.cost_usd[:, 0] + wrong * table.cost_usd[:, 2])


@pytest.mark.parametrize("miss, alarm, like", [(1.0, 0.0, 0), (0.0, 1.0, 2)])
def test_a_check_that_lets_all_pass_is_the_first_and_one_that_refuses_all_pays_for_both(
    miss, alarm, like
):
    table = made(60)
    choices = headroom.choose_with_checker(table, miss, alarm)
    at = choices.names.index("cheap > dear")
    if like == 0:
        assert np.allclose(choices.correct[at], table.correct[:, 0]) and np.allclose(
            choices.cost_usd[at], table.cost_usd[:, 0]
        )
    else:
        refused = table.correct[:, 0] * alarm + (1 - table.correct[:, 0]) * (1 - miss)
        assert np.allclose(refused, 1) and np.allclose(choices.correct[at], table.correct[:, 2])
        assert np.allclose(choices.cost_usd[at], table.cost_usd[:, 0] + table.cost_usd[:, 2])


def test_a_router_that_asked_the_constant_everywhere_is_no_evidence_on_few_items():
    questions = pd.DataFrame(
        {"value": 0.0, "ci_low": 0.0, "ci_high": 0.0, "question is": NOT_OPEN},
        index=list(headroom.MIN_WORTHWHILE_GAIN),
    )
    questions.loc["check", ["value", "ci_low", "ci_high"]] = [0.2, 0.1, 0.3]
    few, many = (
        headroom.widen_degenerate_intervals(made(num_items), questions) for num_items in (60, 6_000)
    )
    assert few.loc["accuracy", "ci_high"] > 0.05 > many.loc["accuracy", "ci_high"] > 0
    assert few.loc["money", "ci_high"] > many.loc["money", "ci_high"] > 0
    assert few.loc["check"].tolist() == questions.loc["check"].tolist()

    # Where no other model is ever better no accuracy can be found, however few the items; money can.
    table = made(60)
    nested = replace(table, correct=table.correct * table.correct[:, 2:])
    widened = headroom.widen_degenerate_intervals(nested, questions)
    assert widened.loc["accuracy"].tolist() == questions.loc["accuracy"].tolist()
    assert widened.loc["money", "ci_high"] > 0.05
