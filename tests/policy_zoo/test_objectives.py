"""What policies are paid for."""

import numpy as np

from lib.policy_zoo.objectives import RewardMachine


def observe(*mastery):
    return np.column_stack([mastery, np.zeros((len(mastery), 12))]).astype(np.float32)


def test_the_reward_machine_moves_up_at_mastery_point_six_and_back_below():
    assert RewardMachine().state(observe(0.5, 0.6, 0.7, 0.59, 1.0)).tolist() == [0, 1, 1, 0, 1]


def test_the_reward_machine_pays_performance_and_gap_first_then_gap_and_aptitude():
    reward = np.array([[0.8, 0.4, 0.2], [0.8, 0.4, 0.2]])  # aptitude, gap, performance
    paid = RewardMachine()(reward, observe(0.4, 0.6))
    np.testing.assert_allclose(paid, [0.5 * 0.2 + 0.5 * 0.4, 0.5 * 0.4 + 0.5 * 0.8])
