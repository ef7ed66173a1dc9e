"""Speed of the batched grid rooms on one core, against the single room that they must agree with.

Both take actions by lot and begin a new episode where one ends. `advance` is what trainings call; `step` makes
Gymnasium's info dictionaries on top.
"""

import numpy as np
import pytest

from lib.envs.grid import GridRoom
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import TASKS
from tests.benchmarks.clock import compare, relax, scale

GOALS = {512: 30.0, 2048: 30.0}  # rooms in a batch: times as fast per step as the single one
GOAL_ADVANCE = 50.0  # of `advance` in 512 composite rooms
STEPS, SINGLE_STEPS = 50, 300  # in a round


def make_batch(tasks: str, rows: int) -> tuple[GridBatch, np.ndarray]:
    """A batch of rooms, and actions (steps, rows) for a round."""
    names = [TASKS[i % len(TASKS)] for i in range(rows)] if tasks == "mixed" else tasks
    batch = GridBatch(names, rows)
    batch.reset()
    return batch, np.random.default_rng(0).integers(0, 6, size=(scale(STEPS, least=10), rows))


def compare_with_single(method: str, tasks: str, rows: int, goal: float) -> float:
    """How many times as fast a batch is, per step of a room. method: `advance` or `step`."""
    batch, actions = make_batch(tasks, rows)
    room = GridRoom("composite" if tasks == "mixed" else tasks)
    room.reset(seed=0)
    single_actions = np.random.default_rng(1).integers(0, 6, size=scale(SINGLE_STEPS, least=100))

    def step_single():
        for action in single_actions:
            _, _, terminated, truncated, _ = room.step(action)
            if terminated or truncated:
                room.reset()

    def step_batch():
        for row in actions:
            getattr(batch, method)(row)

    times = compare(step_single, step_batch, goal, (len(single_actions), actions.size))
    print(f"\n{tasks}, {rows}, {method}: {1 / times.fast:,.0f} steps/s, {times.ratio:.0f}x")
    return times.ratio


@pytest.mark.parametrize("method", ["advance", "step"])
@pytest.mark.parametrize("rows", GOALS)
@pytest.mark.parametrize("tasks", [*TASKS, "mixed"])
def test_a_batch_of_rooms_steps_many_times_as_fast_as_the_single_room(tasks, rows, method):
    goal = relax(GOALS[rows])
    assert compare_with_single(method, tasks, rows, goal) >= goal


def test_a_training_steps_rooms_fifty_times_as_fast_as_the_single_room():
    goal = relax(GOAL_ADVANCE)
    assert compare_with_single("advance", "composite", 512, goal) >= goal
