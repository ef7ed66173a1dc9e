"""Methods on recorded outcomes: rewards are those of the papers' lessons, and no method learns from test items."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import config
from lib.recorded_outcomes import model_selection
from lib.rl.budget_reward import compute_budget_reward
from lib.routers import methods
from lib.routers.methods import (
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    NEAREST,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    STOP_OR_ESCALATE,
)
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


def compute_rewards(make_reward, knob: float) -> tuple[np.ndarray, float]:
    """Rewards (40, models) at a knob, and what the knob means."""
    reward = make_reward(TABLE)
    knobs = torch.full((1, 40, 1), knob)
    return reward.compute(ROWS, knobs)[0].numpy(), reward.read_knob(knob)


@pytest.mark.parametrize("knob", [0.1, 0.5, 0.9])
def test_corls_reward_is_that_of_lesson_05(knob):
    rewards, budget = compute_rewards(methods.make_corl_reward, knob)
    expected = np.zeros_like(rewards)
    for item, model in np.ndindex(expected.shape):
        correct, cost_usd = TABLE.correct[item, model], TABLE.cost_usd[item, model]
        expected[item, model] = compute_budget_reward(correct, cost_usd, budget)
    assert (rewards == expected).all()
    assert 0 < rewards.mean() < 1


@pytest.mark.parametrize("knob", [0.0, 0.3, 1.0])
def test_toolorchestras_reward_is_that_of_lesson_06(knob):
    rewards, _ = compute_rewards(methods.make_toolorchestra_reward, knob)
    correct, cost_usd = TABLE.correct[:40].ravel(), TABLE.cost_usd[:40].ravel()
    item_of_row = np.repeat(np.arange(40), 3)
    no_tools, no_latency = np.zeros((120, 0)), np.zeros(120)
    vectors = make_outcome_vectors(no_tools, correct, cost_usd, no_latency)
    normalized = normalize_within_groups(vectors, item_of_row)
    preferences = np.tile([1 - knob, knob, 0.0], (120, 1))
    expected = compute_preference_rewards(normalized, preferences, correct)
    assert np.allclose(rewards.ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("knob", [0.0, 0.5, 1.0])
def test_arcs_reward_is_its_utility(knob):
    """U(q, c) = 1[correct] - lambda C_cost(c) (ARC, eq. 1)."""
    rewards, weight = compute_rewards(methods.make_arc_reward, knob)
    cost = TABLE.cost_usd[:40] / TABLE.cost_usd.mean()
    expected = TABLE.correct[:40] - weight * cost
    assert np.allclose(rewards, expected, atol=1e-4)


def test_a_correct_answer_that_became_cheaper_is_rewarded_no_less():
    cheaper = replace(TABLE, cost_usd=TABLE.cost_usd * np.array([0.5, 1.0, 1.0]))
    # CoRL: the same knob is no larger a budget in USD.
    budget_before = methods.make_corl_reward(TABLE).read_knob(0.5)
    budget_after = methods.make_corl_reward(cheaper).read_knob(0.5)
    assert budget_after <= budget_before

    # ARC: its unit falls too, but by less than the price of the first model.
    assert cheaper.cost_usd.mean() < TABLE.cost_usd.mean()
    rows, knobs = torch.arange(len(TABLE))[None], torch.full((1, len(TABLE), 1), 0.5)
    before = methods.make_arc_reward(TABLE).compute(rows, knobs)[0, :, 0]
    after = methods.make_arc_reward(cheaper).compute(rows, knobs)[0, :, 0]
    assert (after >= before - 1e-6).float().mean() > 0.99


def test_a_network_learns_which_model_is_good_at_what():
    """Two cheap models are correct where the feature says so, an expensive one nearly always: ask the cheap ones."""
    longer = SETTINGS.model_copy(update={"updates": 150})
    choices = methods.make_choices(TABLE, longer, 0, FOLDS, [CORL, methods.ARC, CONSTANT_MIXTURES])
    scores = {}
    for method, method_choices in choices.items():
        scores[method] = model_selection.score_choices(
            TABLE, FOLDS, method_choices, SETTINGS.min_dev_gain
        )
    half = model_selection.LEVELS.index(0.5)
    mixtures_accuracy = scores[CONSTANT_MIXTURES].correct[half].mean()
    for method in (CORL, methods.ARC):
        assert scores[method].correct[half].mean() > mixtures_accuracy + 0.1, method
        assert (
            scores[method].at_equal_quality.cost_usd.mean() < 0.3 * TABLE.cost_usd[:, 2].mean()
        ), method


@pytest.mark.parametrize("method", [NEAREST, LOGISTIC, CORL, STOP_OR_ESCALATE])
def test_outcomes_of_test_items_change_no_choice(method):
    fold = FOLDS[0]
    flipped = TABLE.correct.copy()
    flipped[fold.test] = 1 - flipped[fold.test]
    before, after = (
        methods.make_choices(table, SETTINGS, 0, [fold], [method])[method][0]
        for table in (TABLE, replace(TABLE, correct=flipped))
    )
    assert (before.cost_usd == after.cost_usd).all()
    assert before.names == after.names


def test_the_oracle_is_correct_wherever_any_method_is_and_pays_no_more():
    choices_by_method = methods.make_choices(TABLE, SETTINGS, 0, FOLDS)
    oracle = choices_by_method[ORACLE][0]
    for method, choices_by_fold in choices_by_method.items():
        for choices in choices_by_fold:
            assert (oracle.correct[0] >= choices.correct - 1e-9).all(), method
            is_as_correct = choices.correct >= oracle.correct[0] - 1e-9
            is_no_cheaper = choices.cost_usd >= oracle.cost_usd[0] - 1e-9
            assert is_no_cheaper[is_as_correct].all(), method


def test_an_agent_that_is_stopped_loses_what_it_spent():
    fold = FOLDS[0]
    choices = methods.stop_or_escalate(TABLE, fold)
    (knob,) = (
        knob
        for knob, name in enumerate(choices.names)
        if name.startswith("cheap up to its 50%") and name.endswith("dear")
    )
    limit = np.quantile(TABLE.cost_usd[fold.train_and_dev, 0], 0.5)
    finishes = TABLE.cost_usd[:, 0] <= limit
    correct = np.where(finishes, TABLE.correct[:, 0], TABLE.correct[:, 2])
    cost_usd = np.where(finishes, TABLE.cost_usd[:, 0], limit + TABLE.cost_usd[:, 2])
    assert (choices.correct[knob] == correct).all()
    assert np.allclose(choices.cost_usd[knob], cost_usd)


def test_without_features_no_method_predicts_and_where_cost_measures_no_work_none_stops():
    table = replace(TABLE, features=np.zeros((len(TABLE), 1)), cost_measures_work=False)
    made_choices = set(methods.make_choices(table, SETTINGS, 0, FOLDS))
    assert not made_choices & {NEAREST, LOGISTIC, STOP_OR_ESCALATE}
    assert {POOR_CHECK, PERFECT_CHECK, CORL} <= made_choices


def test_a_seed_repeats_the_choices_of_a_network_and_another_seed_need_not():
    first, repeated, other = (
        methods.make_choices(TABLE, SETTINGS, seed, FOLDS, [CORL])[CORL][0].cost_usd
        for seed in (0, 0, 1)
    )
    assert (first == repeated).all()
    assert (first != other).any()
