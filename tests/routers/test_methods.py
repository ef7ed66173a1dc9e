"""Deciders on recorded outcomes: rewards are those of the papers' rooms, and nobody learns from what is scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import config
from lib.agent_configuration.rewards import utility
from lib.recorded_outcomes import model_selection
from lib.rl.budget_reward import compute_budget_reward
from lib.routers import methods
from lib.routers.methods import CHECK, CORL, LOGISTIC, MIXTURES, NEAREST, ORACLE, POOR, STOP
from lib.tool_orchestration.rewards import (
    compute_preference_rewards,
    make_outcome_vectors,
    normalize_within_groups,
)
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded.model_copy(update={"updates": 60, "neighbours": 20})
TABLE = made()
FOLDS = model_selection.make_cross_validation_folds(model_selection.assign_folds(TABLE, 4, 0))
ROWS = torch.arange(40)[None]


def paid(make, knob: float) -> tuple[np.ndarray, float]:
    """Rewards (40, m) at a knob, and what the knob stands for."""
    found = make(TABLE)
    return found.reward(ROWS, torch.full((1, 40, 1), knob))[0].numpy(), found.value(knob)


@pytest.mark.parametrize("knob", [0.1, 0.5, 0.9])
def test_corl_is_paid_as_in_lesson_05(knob):
    given, budget = paid(methods.corl, knob)
    wanted = [
        [compute_budget_reward(r, c, budget) for r, c in zip(*pair, strict=True)]
        for pair in zip(TABLE.correct[:40], TABLE.cost_usd[:40], strict=True)
    ]
    assert (given == np.array(wanted)).all() and 0 < given.mean() < 1


@pytest.mark.parametrize("knob", [0.0, 0.3, 1.0])
def test_toolorchestra_is_paid_as_in_lesson_06(knob):
    given, _ = paid(methods.toolorchestra, knob)
    correct, cost_usd, items = (
        TABLE.correct[:40].ravel(),
        TABLE.cost_usd[:40].ravel(),
        np.repeat(np.arange(40), 3),
    )
    m = normalize_within_groups(
        make_outcome_vectors(np.zeros((120, 0)), correct, cost_usd, np.zeros(120)), items
    )
    wanted = compute_preference_rewards(m, np.tile([1 - knob, knob, 0.0], (120, 1)), correct)
    assert np.allclose(given.ravel(), wanted, atol=1e-6)


@pytest.mark.parametrize("knob", [0.0, 0.5, 1.0])
def test_arc_is_paid_by_its_utility(knob):
    given, weight = paid(methods.arc, knob)
    wanted = utility(TABLE.correct[:40], TABLE.cost_usd[:40] / TABLE.cost_usd.mean(), weight)
    assert np.allclose(given, wanted, atol=1e-4)


def test_a_cheaper_right_answer_is_never_paid_less():
    cheaper = replace(TABLE, cost_usd=TABLE.cost_usd * np.array([0.5, 1.0, 1.0]))
    for make in (methods.corl, methods.arc):
        rows, knobs = torch.arange(len(TABLE))[None], torch.full((1, len(TABLE), 1), 0.5)
        before = make(TABLE)
        after = make(cheaper)
        if make is methods.corl:  # the same budget in dollars
            assert after.value(0.5) <= before.value(0.5)
            continue
        unit = cheaper.cost_usd.mean() / TABLE.cost_usd.mean()
        scaled = before.reward(rows, knobs)[0, :, 0], after.reward(rows, knobs)[0, :, 0]
        assert unit < 1 and (scaled[1] >= scaled[0] - 1e-6).float().mean() > 0.99


def test_a_network_finds_who_is_good_at_what():
    """Two cheap models are right where the feature says; a dear one nearly always. The optimum asks the cheap ones."""
    longer = SETTINGS.model_copy(update={"updates": 150})
    choices = methods.make_choices(TABLE, longer, 0, FOLDS, [CORL, methods.ARC, MIXTURES])
    met = {
        method: model_selection.score_choices(TABLE, FOLDS, own, SETTINGS.min_dev_gain)
        for method, own in choices.items()
    }
    half = model_selection.LEVELS.index(0.5)
    for method in (CORL, methods.ARC):
        assert met[method].correct[half].mean() > met[MIXTURES].correct[half].mean() + 0.1, method
        assert met[method].equal[1].mean() < 0.3 * TABLE.cost_usd[:, 2].mean(), method


@pytest.mark.parametrize("method", [NEAREST, LOGISTIC, CORL, STOP])
def test_outcomes_that_are_held_out_change_nothing_that_is_decided(method):
    fold = FOLDS[0]
    turned = TABLE.correct.copy()
    turned[fold.test] = 1 - turned[fold.test]
    one, other = (
        methods.make_choices(table, SETTINGS, 0, [fold], [method])[method][0]
        for table in (TABLE, replace(TABLE, correct=turned))
    )
    assert (one.cost_usd == other.cost_usd).all() and one.names == other.names


def test_the_oracle_is_right_wherever_anybody_is_and_pays_no_more():
    choices = methods.make_choices(TABLE, SETTINGS, 0, FOLDS)
    best = choices[ORACLE][0]
    for method, own in choices.items():
        for each in own:
            assert (best.correct[0] >= each.correct - 1e-9).all(), method
            as_right = each.correct >= best.correct[0] - 1e-9
            assert (each.cost_usd >= best.cost_usd[0] - 1e-9)[as_right].all(), method


def test_who_is_stopped_loses_what_it_spent_by_hand():
    fold = FOLDS[0]
    choices = methods.stopped(TABLE, fold)
    at = next(
        i
        for i, name in enumerate(choices.names)
        if name.startswith("cheap up to its 50%") and name.endswith("dear")
    )
    limit = np.quantile(TABLE.cost_usd[fold.train_and_dev, 0], 0.5)
    done = TABLE.cost_usd[:, 0] <= limit
    assert (choices.correct[at] == np.where(done, TABLE.correct[:, 0], TABLE.correct[:, 2])).all()
    assert np.allclose(
        choices.cost_usd[at], np.where(done, TABLE.cost_usd[:, 0], limit + TABLE.cost_usd[:, 2])
    )


def test_nobody_predicts_where_there_is_nothing_to_see_and_nobody_stops_where_money_tells_nothing():
    blind = replace(TABLE, features=np.zeros((len(TABLE), 1)), cost_measures_work=False)
    assert set(methods.make_choices(blind, SETTINGS, 0, FOLDS)) & {NEAREST, LOGISTIC, STOP} == set()
    assert {POOR, CHECK, CORL} <= set(methods.make_choices(blind, SETTINGS, 0, FOLDS))


def test_the_same_seed_plays_the_same_and_another_need_not():
    one, again, other = (
        methods.make_choices(TABLE, SETTINGS, seed, FOLDS, [CORL])[CORL][0].cost_usd
        for seed in (0, 0, 1)
    )
    assert (one == again).all() and (one != other).any()
