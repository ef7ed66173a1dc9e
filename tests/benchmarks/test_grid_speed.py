"""Speed of the grid twin on one core: random actions, automatic resets, observations included."""

import time

import numpy as np
import pytest

from lib.envs.grid import GridRoom
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import TASKS

PROMISED = 200_000  # environment steps per second
ROUND = 50  # batch steps


def measured(step, moves, repeats: int = 5) -> float:
    """Batch steps per second, the best of `repeats` rounds: noise only ever slows a round."""
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        for row in moves:
            step(row)
        best = max(best, len(moves) / (time.perf_counter() - start))
    return best


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
