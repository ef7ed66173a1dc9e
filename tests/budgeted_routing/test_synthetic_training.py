"""CoRL's training in the synthetic environment: episodes agree with exact means, and updates are the lab's."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.budgeted_routing.synthetic_controllers import BatchedControllers
from lib.budgeted_routing.synthetic_environment import (
    BUDGETS,
    draw_uniforms,
    make_environments,
    make_queries,
)
from lib.budgeted_routing.synthetic_strategies import evaluate_strategy
from lib.budgeted_routing.synthetic_training import (
    FIXED_BUDGET_VARIANTS,
    SyntheticRoutingVariant,
    clip_gradients,
    train_controllers,
    whiten_by_controller,
)
from lib.experiment import seeds
from lib.rl import losses
from tests.budgeted_routing.small_systems import SMOKE
from tests.budgeted_routing.synthetic import (
    CENTRAL,
    make_random_controllers,
    make_settings,
    make_test_queries,
    sample_test_episodes,
)


def test_sampled_episodes_agree_with_the_exact_means_of_their_strategy():
    """Mean rewards and calls of many episodes, on the queries of these episodes, within four standard errors."""
    settings = make_settings(seeds=2)
    num_rows = 6_000
    environments, episodes = sample_test_episodes(settings, rows=num_rows)
    _, observations = make_queries(environments, draw_uniforms(settings, "rows", num_rows))
    strategy = make_random_controllers(settings).compute_strategy(observations)
    beliefs = environments.compute_beliefs(observations)
    means = evaluate_strategy(environments, beliefs, strategy)

    for budget_id in range(len(BUDGETS)):
        rows = slice(budget_id, None, len(BUDGETS))
        rewards = episodes.rewards[:, rows]
        difference = rewards - means["reward"][:, budget_id, rows]
        standard_error = (difference.var(1) / difference.shape[1]).sqrt()
        assert (difference.mean(1).abs() < 4 * standard_error).all()
        assert rewards.mean() > 0.02

        calls = episodes.options[:, rows].sign().sum(-1).float()
        difference = calls - means["mean_calls"][:, budget_id, rows]
        assert (difference.mean(1).abs() < 0.06).all()


def test_the_reply_is_no_token_of_the_controller():
    _, episodes = sample_test_episodes(make_settings(seeds=2), rows=300)
    has_called = episodes.options[..., 0] > 0
    assert 0 < has_called.float().mean() < 1
    assert episodes.mask[..., 0].all()
    assert not episodes.mask[..., 1].any()
    assert torch.equal(episodes.mask[..., 2], has_called)
    assert not episodes.old_logprobs[~episodes.mask].any()
    assert not episodes.values[~episodes.mask].any()
    assert not episodes.options[..., 1][~has_called].any()  # nobody is called after an answer


def test_beyond_the_budget_there_is_no_reward_unless_the_reward_has_no_budget():
    settings = make_settings(seeds=2)
    without_budget = SyntheticRoutingVariant("without", budget_in_reward=False)
    environments, episodes = sample_test_episodes(settings)
    _, unlimited = sample_test_episodes(settings, without_budget)

    prices = torch.gather(environments.price, 1, episodes.options.flatten(1))
    cost_usd = prices.view_as(episodes.options).sum(-1)
    row = torch.arange(cost_usd.shape[1])
    is_beyond = cost_usd > environments.budget[row % len(BUDGETS)]
    assert is_beyond.any()
    assert not episodes.rewards[is_beyond].any()
    assert torch.equal(episodes.rewards[~is_beyond], unlimited.rewards[~is_beyond])
    assert unlimited.rewards[is_beyond].any()


def test_a_fixed_budget_is_that_of_all_episodes():
    settings = make_settings(seeds=2)
    low, high = FIXED_BUDGET_VARIANTS
    environments, under_low = sample_test_episodes(settings, low)
    _, under_high = sample_test_episodes(settings, high)
    assert torch.equal(under_low.options, under_high.options)  # the budget is not in the prompt
    prices = torch.gather(environments.price, 1, under_low.options.flatten(1))
    is_above_low = prices.view_as(under_low.options).sum(-1) > environments.budget[0]
    assert not under_low.rewards[is_above_low].any()
    assert under_high.rewards[is_above_low].any()


def test_a_controller_without_the_budget_in_its_prompt_does_the_same_under_all_budgets():
    settings = make_settings(seeds=2)
    environments = make_environments(settings, [CENTRAL])
    _, observations = make_test_queries(environments, settings)
    controllers = make_random_controllers(settings)
    without = controllers.compute_strategy(observations, budget_in_prompt=False)
    for probabilities in (without.first, without.second):
        assert torch.equal(probabilities[:, :1].expand_as(probabilities), probabilities)
    with_budget = controllers.compute_strategy(observations)
    assert not torch.allclose(with_budget.first[:, 0], with_budget.first[:, 2])


@given(st.integers(1, 3), st.integers(0, 10**6))
def test_a_stack_is_whitened_as_the_lab_whitens_each_group(num_groups, seed):
    rng = seeds.rng("test", "whitened", seed=seed)
    shape = (2, 6 * num_groups, 3)
    values = torch.tensor(rng.standard_normal(shape))
    mask = torch.tensor(rng.random(shape) < 0.7)
    mask[:, :, 0] = True
    whitened = whiten_by_controller(values, mask, num_groups)
    assert not whitened[~mask].any()
    for controller, group in product(range(2), range(num_groups)):
        rows = slice(group, None, num_groups)
        group_mask = mask[controller, rows]
        expected = losses.whiten(values[controller, rows][group_mask])
        torch.testing.assert_close(whitened[controller, rows][group_mask], expected)


def test_gradients_are_clipped_for_every_controller_by_itself():
    settings = make_settings()
    controllers = BatchedControllers(settings, 1)
    for parameter in controllers.parameters():
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[0] *= 1e-4  # of the first controller, whose norm is below 1
    first_before = [parameter.grad[0].clone() for parameter in controllers.parameters()]
    clip_gradients(controllers, 1.0)

    gradients = [parameter.grad for parameter in controllers.parameters()]
    norms = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
    torch.testing.assert_close(norms[1:], torch.ones(settings.seeds - 1))
    assert norms[0] < 0.1
    for gradient, before in zip(gradients, first_before, strict=True):
        assert torch.equal(gradient[0], before)


def test_at_the_start_all_options_are_equally_likely_and_values_are_0():
    settings = make_settings()
    num_inputs = settings.kinds + len(BUDGETS) + len(settings.prices) + 1
    generator = seeds.torch_generator("test", "synthetic", "inputs")
    inputs = torch.randn(settings.seeds, 5, num_inputs, generator=generator)
    logprobs, values = BatchedControllers(settings, 1)(inputs)
    torch.testing.assert_close(logprobs.exp(), torch.full_like(logprobs, 0.2))
    assert not values.any()


def test_a_controller_learns_the_same_alone_and_in_any_stack():
    """Neither more seeds nor other grid points change its random numbers, so only rounding differs."""
    grid_points = [CENTRAL, CENTRAL | {"noise": 1.0}]
    small_settings = make_settings(seeds=2, updates=2)
    large_settings = make_settings(seeds=3, updates=2)
    small = train_controllers(
        make_environments(small_settings, grid_points[:1]), small_settings, SMOKE.learn
    )
    large = train_controllers(
        make_environments(large_settings, grid_points), large_settings, SMOKE.learn
    )
    for alone, stacked in zip(small.parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(alone, stacked[:2], rtol=1e-3, atol=1e-4)
    differs = [not torch.allclose(stacked[:3], stacked[3:]) for stacked in large.parameters()]
    assert any(differs)


def test_training_is_observed_before_the_first_and_after_each_update():
    settings = make_settings(seeds=2, updates=3)
    updates = []
    train_controllers(
        make_environments(settings, [CENTRAL]),
        settings,
        SMOKE.learn,
        observe=lambda update, controllers: updates.append(update),
    )
    assert updates == [0, 1, 2, 3]


@pytest.mark.parametrize("variant", FIXED_BUDGET_VARIANTS, ids=lambda variant: variant.name)
def test_one_fixed_budget_is_not_in_the_prompt_and_needs_no_groups(variant):
    assert not variant.budget_in_prompt
    assert variant.whiten_over == "batch"
