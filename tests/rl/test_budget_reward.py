"""Eq. 5 to 7 as a table, and what follows from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.rl.budget_reward import cost_reward, reward

COST = st.floats(0, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("performance", "cost_usd", "budget", "r_c", "r"),
    [
        (1.0, 0.9, 1.0, 1.0, 1.0),  # right, below the budget
        (1.0, 1.0, 1.0, 1.0, 1.0),  # the limit itself is within
        (1.0, 1.1, 1.0, 0.0, 0.0),
        (0.0, 0.9, 1.0, 1.0, 0.0),  # wrong
        (0.0, 1.0, 1.0, 1.0, 0.0),
        (0.0, 1.1, 1.0, 0.0, 0.0),
        (0.5, 0.9, 1.0, 1.0, 0.5),  # half right
        (0.5, 1.1, 1.0, 0.0, 0.0),
        (1.0, 0.0, 0.0, 1.0, 1.0),  # nothing spent of nothing
        (1.0, 1e-12, 0.0, 0.0, 0.0),
    ],
)
def test_right_is_paid_within_the_budget_and_nothing_else_is(performance, cost_usd, budget, r_c, r):
    assert cost_reward(cost_usd, budget) == r_c and reward(performance, cost_usd, budget) == r


@given(st.floats(0, 1), COST, COST, COST)
def test_of_two_episodes_that_are_as_right_the_cheaper_is_never_paid_less(
    performance, one, other, budget
):
    assert reward(performance, min(one, other), budget) >= reward(
        performance, max(one, other), budget
    )


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 8), st.floats(0, 8)), min_size=1))
def test_many_episodes_at_once_are_paid_as_each_by_itself(episodes):
    """The glass box pays thousands of them in one call."""
    single = [reward(*each) for each in episodes]
    columns = np.array(episodes).T
    np.testing.assert_array_equal(reward(*columns), single)
    np.testing.assert_array_equal(reward(*map(torch.tensor, columns)).numpy(), single)
