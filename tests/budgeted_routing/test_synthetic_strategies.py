"""What strategies earn in CoRL's synthetic environment: worked by hand, and nothing is above the optimum."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lib.budgeted_routing.synthetic_environment import make_environments
from lib.budgeted_routing.synthetic_strategies import (
    BEST_CONSTANT,
    BEST_WITHOUT_QUERY,
    CONTROLLER_ALONE,
    OPTIMUM,
    Strategy,
    evaluate_strategy,
    evaluate_with_known_kind,
    find_optimum,
    make_baselines,
    make_constant_strategy,
)
from tests.budgeted_routing.synthetic import (
    BELIEFS,
    CENTRAL,
    draw_strategy,
    make_random_controllers,
    make_settings,
    make_small_environment,
    make_test_queries,
)


def test_the_means_of_a_cascade_are_those_by_hand():
    """The cheap expert (accuracy .6), and the expensive one (.9) where the reply looks wrong.

    The reply is correct and looks so in .6 * .8 = .48 of the episodes. It looks wrong in .6 * .2 + .4 * .8 = .44, of
    which the expensive expert gets .9 right. Both calls cost 5, which is above the low budget of 1.
    """
    second = torch.zeros(1, 3, 1, 3, 2, 3)
    second[..., 0] = 1.0
    second[:, :, :, 1, 0] = torch.eye(3)[2]
    first = torch.eye(3)[1].expand(1, 3, 1, 3)
    means = evaluate_strategy(make_small_environment(), BELIEFS, Strategy(first, second))

    accuracy = 0.48 + 0.44 * 0.9
    expected = {
        "correct": [accuracy] * 3,
        "reward": [0.48, accuracy, accuracy],
        "cost_usd": [1 + 0.44 * 4] * 3,
        "within": [0.56, 1.0, 1.0],
        "mean_calls": [1.44] * 3,
        "mean_expensive_calls": [0.44] * 3,
    }
    assert set(means) == set(expected)
    for name, values in expected.items():
        assert means[name].flatten().tolist() == pytest.approx(values), name


def test_a_constant_costs_its_price_and_is_as_accurate_as_its_expert():
    environment = make_small_environment()
    means = evaluate_strategy(environment, BELIEFS, make_constant_strategy(environment, 2))
    assert means["correct"].flatten().tolist() == pytest.approx([0.9] * 3)
    assert means["cost_usd"].flatten().tolist() == pytest.approx([4.0] * 3)
    assert means["reward"].flatten().tolist() == pytest.approx([0.0, 0.9, 0.9])


@pytest.mark.parametrize("reply_signal_accuracy", [0.5, 0.65, 1.0])
def test_the_optimum_is_the_best_of_all_strategies(reply_signal_accuracy):
    """All of them enumerated: one of three first options, and after each signal one of three second ones."""
    environment = make_small_environment(reply_signal_accuracy)
    best_rewards = torch.zeros(3)
    for first, after_wrong, after_correct in product(range(3), repeat=3):
        second = torch.zeros(1, 3, 1, 3, 2, 3)
        second[:, :, :, 0, :, 0] = 1.0
        second[:, :, :, 1:, 0, after_wrong] = 1.0
        second[:, :, :, 1:, 1, after_correct] = 1.0
        strategy = Strategy(torch.eye(3)[first].expand(1, 3, 1, 3), second)
        rewards = evaluate_strategy(environment, BELIEFS, strategy)["reward"].flatten()
        best_rewards = torch.maximum(best_rewards, rewards)

    optimum = find_optimum(environment, BELIEFS)
    rewards = evaluate_strategy(environment, BELIEFS, optimum)["reward"]
    torch.testing.assert_close(rewards.flatten(), best_rewards)


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.floats(0, 1), st.floats(0, 2), st.floats(0.05, 2), st.floats(0.5, 1), st.integers(0, 10**6)
)
def test_nothing_is_above_the_optimum_on_any_query_but_who_knows_the_kind(
    complementarity, spread, noise, reply_signal_accuracy, seed
):
    settings = make_settings(seeds=2, reply_signal_accuracy=reply_signal_accuracy)
    grid_point = {"complementarity": complementarity, "spread": spread, "noise": noise}
    environments = make_environments(settings, [grid_point])
    _, observations = make_test_queries(environments, settings)
    beliefs = environments.compute_beliefs(observations)

    baselines = make_baselines(environments, beliefs)
    controllers = make_random_controllers(settings, seed).compute_strategy(observations)
    random_strategy = draw_strategy(environments, beliefs.shape[1], seed)
    strategies = [*baselines.values(), random_strategy, controllers, controllers.make_greedy()]

    best_reward = evaluate_strategy(environments, beliefs, baselines[OPTIMUM])["reward"]
    for strategy in strategies:
        reward = evaluate_strategy(environments, beliefs, strategy)["reward"]
        assert (reward <= best_reward + 1e-5).all()
    with_known_kind = evaluate_with_known_kind(environments, beliefs)["reward"]
    assert (with_known_kind >= best_reward - 1e-5).all()


def test_the_best_strategy_without_the_query_is_at_least_as_good_as_every_constant():
    settings = make_settings()
    environments = make_environments(settings, [CENTRAL])
    prior = torch.full((settings.seeds, 1, settings.kinds), 1 / settings.kinds)
    rewards = {
        name: evaluate_strategy(environments, prior, strategy)["reward"]
        for name, strategy in make_baselines(environments, prior).items()
    }

    names = [CONTROLLER_ALONE, "specialist 1", "specialist 2", "specialist 3", "generalist"]
    best_constant = torch.stack([rewards[name] for name in names]).amax(0)
    torch.testing.assert_close(rewards[BEST_CONSTANT], best_constant)
    gain = rewards[BEST_WITHOUT_QUERY] - best_constant
    assert (gain >= -1e-6).all()
    assert (gain > 0.01).any()  # a second call after a reply that looks wrong
