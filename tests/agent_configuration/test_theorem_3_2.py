"""ARC's theorem on a table: it holds where a configuration is always paid the same, and fails where dice fall."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.agent_configuration import theorem_3_2

SEEDS = st.integers(0, 10**6)


def world(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Costs, chances to be right, and dice; every number only once."""
    rng = np.random.default_rng(seed)
    return -rng.random((6, 8)), rng.random((6, 8)), rng


# Lemma 3.1 -----------------------------------------------------------------------------------------


def test_the_refined_policy_has_the_shares_of_the_elite():
    questions, actions = np.array([0, 0, 0, 0, 1, 2, 2]), np.array([1, 1, 2, 0, 0, 2, 2])
    elite = np.array([True, True, True, False, True, True, False])
    policy = theorem_3_2.fit_refined_policy(questions, actions, elite, (4, 3))
    assert policy == pytest.approx(np.array([[0, 2 / 3, 1 / 3], [1, 0, 0], [0, 0, 1], [0, 0, 0]]))


# Theorem 3.2 ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(SEEDS, st.sampled_from([0.1, 0.3, 0.6]), st.integers(20, 300))
def test_the_policy_never_leaves_the_elite_and_where_nothing_is_left_to_chance_both_parts_hold(
    seed, share, rows
):
    mean, correct, rng = world(seed)
    checked = theorem_3_2.check_theorem(mean, correct, 0.0, share, rows, rng)
    assert (
        checked.outside
        == 0.0
        == theorem_3_2.check_theorem(mean, correct, 1.0, share, rows, rng).outside
    )
    if checked.covered:
        assert checked.kept == 1.0 and checked.fresh >= checked.tau and checked.after >= checked.tau


def test_where_dice_fall_the_elite_were_lucky_and_a_fresh_try_is_paid_less():
    """And the more so, the more is left to chance."""
    checked_by_noise = {
        noise: [
            theorem_3_2.check_theorem(
                *world(seed)[:2], noise, 0.3, 200, np.random.default_rng(seed)
            )
            for seed in range(30)
        ]
        for noise in (0.0, 0.3, 1.0)
    }
    assert (
        all(result.fresh < result.after for result in checked_by_noise[1.0])
        and np.mean([result.fresh - result.tau for result in checked_by_noise[1.0]]) < -1
    )
    kept_shares = [
        np.mean([result.kept for result in every]) for every in checked_by_noise.values()
    ]
    assert kept_shares[0] == 1.0 > kept_shares[1] > kept_shares[2] and kept_shares[2] < 0.2


def test_a_tiny_world_by_hand():
    """One question; the first action is right and costs 1, the second is wrong and free: 4 and 0, half of it elite."""
    checked = theorem_3_2.check_theorem(
        np.array([[-1.0, 0.0]]), np.array([[1.0, 0.0]]), 0.0, 0.4, 4_000, np.random.default_rng(1)
    )
    assert (
        checked.tau,
        checked.covered,
        checked.outside,
        checked.after,
        checked.fresh,
        checked.kept,
    ) == (
        4.0,
        1.0,
        0.0,
        4.0,
        4.0,
        1.0,
    )
    assert checked.before == pytest.approx(2.0, abs=0.15)


def test_rounding_does_not_break_the_guarantee_where_rewards_are_equal():
    """As rewards are that differ in the number of calls alone."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean, correct = (
            -0.02 * rng.integers(1, 4, size=(6, 8)),
            rng.integers(2, size=(6, 8)).astype(float),
        )
        assert theorem_3_2.check_theorem(mean, correct, 0.0, 0.3, 200, rng).kept == 1.0


def test_a_question_without_an_elite_row_is_not_covered():
    correct = np.array([[1.0, 1.0], [0.0, 0.0]])
    checked = theorem_3_2.check_theorem(
        np.zeros((2, 2)), correct, 0.0, 0.4, 200, np.random.default_rng(0)
    )
    assert checked.covered == 0.5 and checked.fresh == 5.0


def test_the_buffer_is_paid_what_its_choices_are_worth_on_average():
    mean, correct, _ = world(3)
    checked = theorem_3_2.check_theorem(mean, correct, 1.0, 0.3, 40_000, np.random.default_rng(0))
    assert checked.before == pytest.approx((mean + 5 * correct).mean(), abs=0.05)


def test_a_chance_of_one_half_is_the_same_when_it_is_paid_again():
    """As chances are that were measured in two or four tries."""
    checked = theorem_3_2.check_theorem(
        np.zeros((1, 1)), np.full((1, 1), 0.5), 0.0, 0.3, 50, np.random.default_rng(0)
    )
    assert checked.after == checked.fresh == 5.0 and checked.kept == 1.0
