"""Speed of the grid twin on one core: random actions, automatic resets, observations included."""

import numpy as np
import pytest

from lib.envs.grid import GridRoom
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import TASKS
from tests.benchmarks.clock import seconds

PROMISED = 200_000  # environment steps per second
ROUND = 50  # batch steps


def measured(step, moves) -> float:
    """Batch steps per second, in the best of some rounds: noise only ever slows a round."""
    return len(moves) / seconds(lambda: [step(row) for row in moves], rounds=5)


def batch(tasks: str, rows: int) -> tuple[GridBatch, np.ndarray]:
    names = [TASKS[i % len(TASKS)] for i in range(rows)] if tasks == "mixed" else tasks
    twin = GridBatch(names, rows)
    twin.reset()
    return twin, np.random.default_rng(0).integers(0, 6, size=(ROUND, rows))


@pytest.mark.parametrize("face", ["advance", "step"])
@pytest.mark.parametrize("rows", [512, 2048])
@pytest.mark.parametrize("tasks", [*TASKS, "mixed"])
def test_the_twin_keeps_the_promised_speed(tasks, rows, face):
    twin, moves = batch(tasks, rows)
    assert measured(getattr(twin, face), moves) * rows >= PROMISED


def test_the_twin_is_at_least_fifty_times_the_single_environment():
    env = GridRoom()
    env.reset(seed=0)

    def step(action):
        if any(env.step(action)[2:4]):
            env.reset()

    twin, moves = batch("composite", 512)
    assert measured(twin.advance, moves) * 512 >= 50 * measured(step, moves[:, 0])
