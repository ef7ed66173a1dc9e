"""Objectives: the training rewards that vector rewards become."""

import numpy as np

from lib.policy_zoo.objectives import LinearScalarization, RewardMachine


def make_observations(*mastery):
    """Observations (n, 13) of students with this mastery."""
    observations = np.zeros((len(mastery), 13), np.float32)
    observations[:, 0] = mastery
    return observations


def test_the_reward_machine_moves_up_at_mastery_point_six_and_back_below():
    observations = make_observations(0.5, 0.6, 0.7, 0.59, 1.0)
    assert RewardMachine().find_state(observations).tolist() == [0, 1, 1, 0, 1]


def test_the_reward_machine_rewards_performance_and_gap_first_then_gap_and_aptitude():
    vector_rewards = np.array([[0.8, 0.4, 0.2], [0.8, 0.4, 0.2]])  # aptitude, gap, performance
    rewards = RewardMachine()(vector_rewards, make_observations(0.4, 0.6))
    np.testing.assert_allclose(rewards, [0.5 * 0.2 + 0.5 * 0.4, 0.5 * 0.4 + 0.5 * 0.8])


def test_a_scalarization_is_described_by_the_objectives_that_have_a_weight():
    names = ("aptitude", "gap", "performance")
    assert LinearScalarization((1.0, 0.0, 0.0)).describe_reward(names) == "aptitude"
    assert LinearScalarization((0.0, 1.0, 0.5)).describe_reward(names) == "gap + 0.5 performance"
