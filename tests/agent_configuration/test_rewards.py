"""The reward term by term, with the paper's numbers, and what must hold whatever the numbers are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.agent_team import MOST_TOOLS
from lib.agent_configuration.graph import count_most_tool_calls
from lib.agent_configuration.rewards import Weights, derive_reward_facts, reward

MOST = 192.0
CASES = [  # right, steps, tokens, used, allocated: paid, by appendix F's coefficients
    (1, 1, 0, 0, 0, 5 - 0.02),
    (0, 1, 0, 0, 0, -0.02),
    (1, 3, 48, 0, 0, 5 - 0.06 - 0.0075),
    (1, 3, 48, 2, 3, 5 - 0.06 - 0.0075 + 0.2 + 0.2),
    (0, 3, 48, 2, 3, -0.06 - 0.0075 + 0.2),
    (1, 3, 48, 0, 3, 5 - 0.06 - 0.0075 - 0.9),
    (0, 7, 192, 0, 8, -0.14 - 0.03 - 2.4),
    (1, 4, 96, 1, 0, 5 - 0.08 - 0.015 + 0.1 + 0.2),
]
STEPS, TOKENS, TOOLS = st.integers(1, 7), st.integers(0, 192), st.integers(0, 8)


def paid(correct, steps, tokens, used, allocated, **weights: float) -> float:
    """One reward."""
    (out,) = reward(
        *(np.array([value]) for value in (correct, steps, tokens, used, allocated)),
        MOST,
        Weights(**weights),
    )
    return float(out)


@pytest.mark.parametrize("correct, steps, tokens, used, allocated, expected", CASES)
def test_an_episode_is_paid_what_equation_3_says(correct, steps, tokens, used, allocated, expected):
    assert paid(correct, steps, tokens, used, allocated) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 1), STEPS, TOKENS, TOOLS, TOOLS, st.integers(0, 6), st.integers(0, 100))
def test_the_cheaper_of_two_equal_episodes_is_never_paid_less(
    correct, steps, tokens, used, allocated, more, longer
):
    least = paid(correct, steps, tokens, used, allocated)
    assert least >= paid(correct, steps + more, tokens + longer, used, allocated)
    assert least > paid(correct, steps + 1, tokens, used, allocated)
    assert least > paid(correct, steps, tokens + 1, used, allocated)


@given(STEPS, TOKENS, TOOLS, TOOLS)
def test_a_right_answer_is_paid_more_than_the_same_episode_with_a_wrong_one(
    steps, tokens, used, allocated
):
    gap = paid(1, steps, tokens, used, allocated) - paid(0, steps, tokens, used, allocated)
    assert gap == pytest.approx(5.2 if used else 5.0)


@given(st.integers(0, 1), STEPS, TOKENS, TOOLS, st.integers(1, 8))
def test_idle_tools_cost_and_used_ones_never_do(correct, steps, tokens, allocated, used):
    none = paid(correct, steps, tokens, 0, 0)
    assert paid(correct, steps, tokens, 0, allocated) == pytest.approx(none - 0.3 * allocated)
    assert paid(correct, steps, tokens, used, allocated) > none
    assert paid(correct, steps, tokens, used, allocated) == paid(correct, steps, tokens, used, 0)


def test_every_coefficient_weighs_its_own_term():
    """Prime numbers, so that no two terms can be taken for one another."""
    w = {
        "alpha": 2,
        "beta_s": 3,
        "beta_t": 5,
        "eta": 7,
        "delta_1": 11,
        "delta_2": 13,
        "delta_3": 17,
    }
    assert paid(1, 4, 96, 3, 5, **w) == 2 - 3 * 4 - 5 * 0.5 + 7 * (11 * 3 + 13)
    assert paid(0, 4, 96, 3, 5, **w) == -3 * 4 - 5 * 0.5 + 7 * 11 * 3
    assert paid(1, 4, 96, 0, 5, **w) == 2 - 3 * 4 - 5 * 0.5 - 7 * 17 * 5


FACTS = derive_reward_facts(Weights(), num_tools=4, most_steps=7, most_tool_calls=36)


def test_a_wrong_answer_with_many_tool_calls_earns_more_than_a_right_one_with_idle_tools():
    """Worked by hand: 36 x .1 - 7 x .02 = 3.46; 5 - .02 - 4 x .3 = 3.78; with the tools of two agents 2.58."""
    assert FACTS.wrong_with_most_tool_calls == pytest.approx(3.46)
    assert FACTS.right_with_idle_tools == pytest.approx(3.78)
    assert FACTS.wrong_with_most_tool_calls > paid(1, 1, 0, 0, 8)


def test_fifty_one_tool_calls_outweigh_a_right_answer_without_tools_and_fifty_do_not():
    assert FACTS.tool_calls_to_outweigh == 51
    assert paid(0, 1, 0, 51, 4) > FACTS.right_without_tools == pytest.approx(4.98)
    assert paid(0, 1, 0, 49, 4) < FACTS.right_without_tools


def test_tokens_can_be_more_than_t_max():
    assert FACTS.largest_token_share == pytest.approx(7 / 3)


def test_the_evaluator_makes_the_most_tool_calls_of_all_workflows():
    """Six of its seven calls are of agents with tools, each of which makes MOST_TOOLS calls at most."""
    most = count_most_tool_calls()
    assert most == {name: most[name] for name in WORKFLOWS}
    assert max(most, key=most.get) == "evaluator" and most["evaluator"] == 6 * MOST_TOOLS == 36
