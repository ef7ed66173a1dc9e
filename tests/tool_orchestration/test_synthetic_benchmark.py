"""ToolOrchestra's synthetic environment: utilities by hand, the lesson's reward, and what training makes of it."""

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config
from lib.config import ToolSyntheticSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.tool_orchestration import lab_episodes, rewards, synthetic_benchmark, tool_menu
from lib.tool_orchestration.synthetic_environment import (
    HELD_OUT_TOOLS,
    KNOWN_TOOLS,
    NEW_TOOL,
    NUM_KINDS,
    TOOLS,
    UNSEEN_PRICES,
    USUAL,
    SyntheticMenus,
    ToolEnvironments,
    compute_expected_utilities,
    draw_menus,
    make_environments,
)
from lib.tool_orchestration.synthetic_evaluation import ToolChoiceEvaluation, compute_slope
from lib.tool_orchestration.synthetic_training import (
    MALFORMED_VARIANTS,
    TOOLORCHESTRA,
    VARIANTS,
    BatchedToolPolicies,
    SyntheticToolVariant,
    compute_advantages,
    compute_rewards,
    sample_rollouts,
    train_policies,
)

SETTINGS = config.settings(profile="smoke").tools
SMALL = SETTINGS.synthetic
LARGER = SMALL.model_copy(update={"seeds": 6, "groups": 16, "menus": 40})
SIGN_ERROR = SyntheticToolVariant("sign error", normalization="sign error")


def make_one_question(
    prices=((1.0, 4.0), (2.0, 4.0), (5.0, 8.0)), accuracy=(0.5, 0.8, 1.0)
) -> tuple[ToolEnvironments, SyntheticMenus]:
    """One environment, one question of kind 0, a menu of the first three tools."""
    table = np.zeros((1, NUM_KINDS, len(TOOLS)))
    table[0, 0, :3] = accuracy
    environments = ToolEnvironments(table, table, np.ones((1, len(TOOLS), 2)))
    menus = SyntheticMenus(np.array([[0]]), np.array([[[0, 1, 2]]]), np.array([[prices]]))
    return environments, menus


def make_user(accuracy=0.0, cost=0.0, latency=0.0, **tool_weights) -> np.ndarray:
    """P of one user at one question, (1, 1, k)."""
    preference = np.zeros(len(TOOLS) + 3)
    preference[-3:] = accuracy, cost, latency
    for name, weight in tool_weights.items():
        preference[TOOLS.index(name)] = weight
    return preference[None, None]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (make_user(accuracy=1.0), [0.5, 0.8, 1.0]),
        (make_user(cost=1.0), [0.5, 0.8 * 3 / 4, 0.0]),
        (make_user(latency=0.5), [0.25, 0.4, 0.0]),
        (make_user(accuracy=1.0, facts=1.0), [0.5, 0.8, 2.0]),
    ],
    ids=["accuracy", "cost", "latency", "a liked tool"],
)
def test_expected_utilities_by_hand(user, expected):
    environments, menus = make_one_question()
    utilities = compute_expected_utilities(environments, menus, user)
    assert utilities.ravel() == pytest.approx(expected)


def test_the_utility_is_the_lessons_reward_in_a_group_that_tries_the_whole_menu():
    """Where everything is right for certain; the outcome's own entry is then 0 for all, so that it weighs nothing."""
    environments, menus = make_one_question(accuracy=(1.0, 1.0, 1.0))
    user = make_user(cost=0.7, latency=0.3, sums=1.0)
    calls = np.eye(len(TOOLS))[:3]
    cost_usd, seconds = menus.prices[0, 0].T
    vectors = rewards.make_outcome_vectors(calls, np.ones(3), cost_usd, seconds)
    normalized = rewards.normalize_within_groups(vectors, [0] * 3)
    expected = rewards.compute_preference_rewards(
        normalized, np.repeat(user[0], 3, axis=0), np.ones(3)
    )
    utilities = compute_expected_utilities(environments, menus, user)
    assert utilities.ravel() == pytest.approx(expected)


def test_menus_of_training_have_no_held_out_tool_and_menus_with_a_newcomer_have_one():
    environments = make_environments(LARGER)
    usual = draw_menus(environments, LARGER, 50, "a test")
    assert usual.tools.max() < len(KNOWN_TOOLS)
    for menu in usual.tools.reshape(-1, LARGER.menu):
        assert len(set(menu)) == LARGER.menu
    with_newcomer = draw_menus(environments, LARGER, 50, "a test", condition=NEW_TOOL)
    is_held_out = with_newcomer.tools >= len(KNOWN_TOOLS)
    assert (is_held_out.sum(-1) == 1).all()
    assert len(np.unique(with_newcomer.tools[is_held_out])) == len(HELD_OUT_TOOLS)


def test_under_unseen_prices_the_cheapest_tool_of_the_list_is_the_most_expensive():
    environments = make_environments(LARGER)
    at_list = LARGER.model_copy(update={"spread": 1.0})
    usual = draw_menus(environments, at_list, 20, "a test")
    unseen = draw_menus(environments, at_list, 20, "a test", condition=UNSEEN_PRICES)
    assert (usual.tools == unseen.tools).all()
    assert usual.prices * unseen.prices == pytest.approx(np.full(usual.prices.shape, LARGER.prices))


def make_group(correct, cost_usd) -> np.ndarray:
    """Outcome vectors of rollouts that differ in outcome and cost alone."""
    num_rollouts = len(correct)
    return rewards.make_outcome_vectors(
        np.zeros((num_rollouts, len(TOOLS))),
        np.array(correct),
        np.array(cost_usd),
        np.ones(num_rollouts),
    )


def test_the_cheaper_of_two_correct_rollouts_has_the_larger_reward_and_with_the_sign_error_the_smaller():
    vectors = make_group([1, 1, 0, 1], [1.0, 3.0, 0.5, 2.0])
    user = make_user(cost=1.0)
    paper = compute_rewards(TOOLORCHESTRA, vectors, user, 1, 4)
    assert paper[2] == 0.0
    assert paper[0] > paper[3] > paper[1]
    sign_error = compute_rewards(SIGN_ERROR, vectors, user, 1, 4)
    assert sign_error[2] == 0.0
    assert sign_error[0] < sign_error[3] < sign_error[1]


def test_over_the_whole_batch_a_question_that_is_cheap_for_all_rewards_all_of_them():
    vectors = make_group([1, 1, 1, 1], [1.0, 2.0, 9.0, 10.0])
    users = np.repeat(make_user(cost=1.0), 2, axis=1)
    by_group = compute_rewards(TOOLORCHESTRA, vectors, users, 1, 2)
    assert by_group.tolist() == [1.0, 0.0, 1.0, 0.0]
    whole_batch = SyntheticToolVariant("whole batch", normalization="batch")
    by_batch = compute_rewards(whole_batch, vectors, users, 1, 2)
    assert by_batch.tolist() == pytest.approx([1.0, 8 / 9, 1 / 9, 0.0])


def test_advantages_are_those_of_the_trainer_and_0_for_what_is_left_out():
    rollout_rewards = np.random.default_rng(0).random(24)
    advantages = compute_advantages(rollout_rewards, np.ones(24, bool), 8)
    expected = losses.compute_group_advantages(torch.as_tensor(rollout_rewards), 8)
    assert advantages.flatten() == pytest.approx(expected, abs=2e-3)

    is_learned = np.ones(24, bool)
    is_learned[[3, 8, 9, 10, 11, 12, 13, 14, 15]] = False
    advantages = compute_advantages(rollout_rewards, is_learned, 8)
    assert (advantages.flatten()[~torch.as_tensor(is_learned)] == 0).all()
    remaining = [0, 1, 2, 4, 5, 6, 7]
    expected = losses.compute_group_advantages(torch.as_tensor(rollout_rewards[remaining]), 7)
    assert advantages[0, remaining] == pytest.approx(expected)


def test_rollouts_are_sampled_by_their_probabilities_and_a_malformed_call_costs_nothing():
    environments, menus = make_one_question()
    log_probs = np.log([[[0.1, 0.2, 0.3, 0.4]]])
    choices, vectors = sample_rollouts(environments, menus, log_probs, 20_000, 0)
    choices = choices.ravel()
    assert np.bincount(choices) / 20_000 == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)
    assert (vectors[choices == 3] == 0).all()
    assert (vectors[choices < 3, : len(TOOLS)].sum(1) == 1).all()
    accuracy = [vectors[choices == index, -3].mean() for index in range(3)]
    assert accuracy == pytest.approx([0.5, 0.8, 1.0], abs=0.03)


@pytest.mark.parametrize("reads", ["descriptions", "names"])
def test_policies_start_with_equal_probabilities_which_sum_to_1(reads):
    environments = make_environments(SMALL)
    menus = draw_menus(environments, SMALL, 5, "a test")
    user = make_user(accuracy=1.0, cost=0.5)[0, 0]
    preferences = np.broadcast_to(user, (*menus.kinds.shape, len(user)))

    def compute_probs(writes_malformed: bool) -> np.ndarray:
        variant = SyntheticToolVariant("one", reads=reads, writes_malformed=writes_malformed)
        policies = BatchedToolPolicies(variant, environments.num_seeds, 0.1)
        log_probs = policies.compute_log_probs(environments, menus, preferences)
        return log_probs.exp().detach().numpy()

    probs = compute_probs(writes_malformed=False)
    assert probs[..., :-1] == pytest.approx(1 / SMALL.menu)
    assert (probs[..., -1] == 0).all()
    probs = compute_probs(writes_malformed=True)
    assert probs[..., -1] == pytest.approx(0.1)
    assert probs.sum(-1) == pytest.approx(1.0)


def test_the_reward_teaches_to_save_what_a_user_cares_for_and_the_sign_error_to_spend_it():
    environments = make_environments(LARGER)
    evaluation = ToolChoiceEvaluation(environments, LARGER)

    def train_and_compare_spending(variant: SyntheticToolVariant) -> pd.Series:
        *_, (_, policies) = train_policies(variant, environments, LARGER, 25)
        rows = evaluation.evaluate_policies(variant.name, policies, 25, (USUAL,))
        cost = rows.set_index(["item", "seed"])["cost_usd"]
        return cost["cost 1"] - cost["cost 0"]

    assert (train_and_compare_spending(TOOLORCHESTRA) < 0).all()
    assert (train_and_compare_spending(SIGN_ERROR) > 0).all()


def test_the_optimum_is_never_exceeded():
    environments = make_environments(SMALL)
    evaluation = ToolChoiceEvaluation(environments, SMALL)
    policies = BatchedToolPolicies(TOOLORCHESTRA, SMALL.seeds, 0.1)
    references = evaluation.evaluate_references()
    untrained = evaluation.evaluate_policies("untrained", policies, 0)
    assert min(references["regret"].min(), untrained["regret"].min()) >= -1e-9
    optimum = references.query("method == 'optimum'")
    assert optimum["regret"].abs().max() < 1e-12
    assert optimum["optimal"].min() == 1.0


def test_the_slope_of_points_on_a_line_is_that_of_the_line():
    x = np.array([0.0, 0.25, 1.0])
    assert compute_slope(np.column_stack([x, 3 - 2 * x])) == pytest.approx(-2)


def test_all_variants_meet_the_same_environments_and_two_runs_give_the_same_table(tmp_path):
    lists = ["chosen", "offered", "outcomes"]  # columns that cannot be compared
    first, second = (
        synthetic_benchmark.run(SETTINGS, tmp_path / name).drop(columns=lists) for name in "ab"
    )
    assert first.equals(second)
    names = {variant.name for variant in (*VARIANTS, *MALFORMED_VARIANTS)}
    assert set(first["method"]) >= names
    assert set(first["split"]) == {"test", "map"}
    assert set(first["seed"]) == set(range(SMALL.seeds))


def make_keys(settings: ToolSyntheticSettings = SMALL) -> dict[str, str]:
    return {job.label: job.key for job in synthetic_benchmark.make_jobs(settings)}


@pytest.mark.parametrize(
    ("change", "unchanged"),
    [
        ({"spreads": [3.0]}, {"test"}),
        ({"prices": 9.0}, {"map"}),
        ({"test_users": 5}, {"map"}),
        ({"malformed_updates": 7}, {"map"}),
        ({"seeds": 5}, set()),
        ({"malformed_probability": 0.3}, set()),
        ({"least_deviation": 0.3}, set()),
    ],
    ids=str,
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it_and_of_no_others(change, unchanged):
    before = make_keys()
    after = make_keys(SMALL.model_copy(update=change))
    assert {label for label in before if before[label] == after[label]} == unchanged


@pytest.mark.parametrize("module", [seeds, losses, tool_menu, rewards, synthetic_benchmark])
def test_a_raised_version_makes_both_jobs_new(module, monkeypatch):
    before = make_keys()
    # Nothing here uses the lab world.
    monkeypatch.setattr(lab_episodes, "VERSION", lab_episodes.VERSION + 1)
    assert make_keys() == before
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert not make_keys().items() & before.items()
