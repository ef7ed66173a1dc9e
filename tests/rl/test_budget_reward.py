"""The reward of CoRL: eq. 5 to 7 as a table, and what follows from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.rl.budget_reward import compute_budget_reward, compute_cost_reward

COST = st.floats(0, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("performance", "cost_usd", "budget", "r_c", "r"),
    [
        (1.0, 0.9, 1.0, 1.0, 1.0),  # correct, below the budget
        (1.0, 1.0, 1.0, 1.0, 1.0),  # the limit itself is within
        (1.0, 1.1, 1.0, 0.0, 0.0),
        (0.0, 0.9, 1.0, 1.0, 0.0),  # wrong
        (0.0, 1.0, 1.0, 1.0, 0.0),
        (0.0, 1.1, 1.0, 0.0, 0.0),
        (0.5, 0.9, 1.0, 1.0, 0.5),  # half correct
        (0.5, 1.1, 1.0, 0.0, 0.0),
        (1.0, 0.0, 0.0, 1.0, 1.0),  # nothing spent of nothing
        (1.0, 1e-12, 0.0, 0.0, 0.0),
    ],
)
def test_a_correct_answer_is_rewarded_within_the_budget_and_nothing_else_is(
    performance, cost_usd, budget, r_c, r
):
    assert compute_cost_reward(cost_usd, budget) == r_c
    assert compute_budget_reward(performance, cost_usd, budget) == r


@given(st.floats(0, 1), COST, COST, COST)
def test_of_two_equally_good_episodes_the_cheaper_is_never_rewarded_less(
    performance, first_cost, second_cost, budget
):
    cheaper = compute_budget_reward(performance, min(first_cost, second_cost), budget)
    dearer = compute_budget_reward(performance, max(first_cost, second_cost), budget)
    assert cheaper >= dearer


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 8), st.floats(0, 8)), min_size=1))
def test_arrays_and_tensors_of_episodes_are_rewarded_as_each_episode_by_itself(episodes):
    """The synthetic benchmark rewards thousands of episodes in one call."""
    expected = [compute_budget_reward(*episode) for episode in episodes]
    columns = np.array(episodes).T  # performance, cost, budget
    np.testing.assert_array_equal(compute_budget_reward(*columns), expected)
    tensors = map(torch.tensor, columns)
    np.testing.assert_array_equal(compute_budget_reward(*tensors).numpy(), expected)


def test_a_cost_that_is_nan_is_not_within_any_budget():
    assert compute_cost_reward(float("nan"), 1.0) == 0.0
