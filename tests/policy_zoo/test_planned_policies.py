"""Planned policies of rooms: they walk around lava, get what they seek, and slip as often as they are told to."""

import numpy as np
import pytest

from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import CELLS, FORWARD, LEFT, RIGHT
from lib.policy_zoo.planned_policies import (
    TARGET_BY_POLICY,
    UNREACHABLE,
    compute_distances,
    plan_actions,
)

NUM_ROOMS = 64


def make_rooms() -> GridBatch:
    env = GridBatch("composite", NUM_ROOMS, seed=3, lava=2, horizon=60)
    env.reset()
    return env


def test_distances_are_those_of_a_walk_around_what_is_closed():
    is_floor = np.ones((1, CELLS), dtype=bool)
    is_source = np.zeros((1, CELLS), dtype=bool)
    is_source[0, 0] = True
    is_floor[0, [1, 5]] = False  # a wall between the first two columns, open below
    distances = compute_distances(is_source, is_floor)[0]
    assert distances[[0, 4, 8, 9, 2]].tolist() == [0, 1, 2, 3, 6]
    assert distances[1] == UNREACHABLE


@pytest.mark.parametrize(("name", "outcome"), [("SO-d1", "success"), ("SO-d3", "gold")])
def test_a_policy_that_does_not_slip_gets_what_it_seeks_and_never_steps_on_lava(name, outcome):
    env = make_rooms()
    names = np.full(NUM_ROOMS, name)
    gained = np.zeros(NUM_ROOMS)
    is_running = np.ones(NUM_ROOMS, dtype=bool)
    for _ in range(60):
        actions = plan_actions(env, names, np.full(NUM_ROOMS, 0.5), 0.0)
        transition = env.advance(actions, restart=False)
        best = np.maximum(gained, env.outcomes[outcome])
        gained = np.where(is_running, best, gained)
        assert not (env.outcomes["lava"] & is_running).any()
        is_running &= ~transition.done
    # Gold may lie behind the goal, and the goal behind gold that another policy would pick up.
    assert gained.mean() > 0.7


@pytest.mark.parametrize("name", TARGET_BY_POLICY)
def test_a_move_is_random_below_the_probability_and_planned_above_it(name):
    env = make_rooms()
    names = np.full(NUM_ROOMS, name)
    planned = plan_actions(env, names, np.full(NUM_ROOMS, 0.9), 0.0)
    assert (plan_actions(env, names, np.full(NUM_ROOMS, 0.31), 0.3) == planned).all()
    for draw, move in ((0.05, LEFT), (0.15, RIGHT), (0.25, FORWARD)):
        assert (plan_actions(env, names, np.full(NUM_ROOMS, draw), 0.3) == move).all()


def test_policies_of_different_rooms_do_not_disturb_one_another():
    env = make_rooms()
    draws = np.full(NUM_ROOMS, 0.5)
    names = np.array(list(TARGET_BY_POLICY))[np.arange(NUM_ROOMS) % 3]
    mixed = plan_actions(env, names, draws, 0.0)
    for name in TARGET_BY_POLICY:
        alone = plan_actions(env, np.full(NUM_ROOMS, name), draws, 0.0)
        assert (mixed == alone)[names == name].all()
