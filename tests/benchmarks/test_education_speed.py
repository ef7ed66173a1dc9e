"""The batched student simulator must step at least 100,000 students a second on one core."""

import numpy as np
import pytest

from lib.config import load
from lib.envs import make_education_rules
from lib.envs.education_batch import EducationBatch

GOAL = 100_000  # env steps per second


@pytest.mark.parametrize("rows", [256, 1024])
def test_the_batched_students_step_fast(rows, benchmark):
    twin = EducationBatch(make_education_rules(load().education), rows)
    twin.reset()
    actions = np.random.default_rng(0).integers(
        0, 3, (60, rows)
    )  # longer than an episode: resets included

    def steps():
        for row in actions:
            twin.advance(row)

    benchmark.pedantic(steps, rounds=5, warmup_rounds=1)
    speed = actions.size / benchmark.stats["min"]
    print(f"\nbatched education, {rows} rows: {speed:,.0f} env steps/s")
    assert speed >= GOAL
