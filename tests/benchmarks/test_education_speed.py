"""Speed of the batched student simulator, against the single environment that it must agree with.

Both take the same number of actions by lot and begin a new episode where one ends.
"""

import numpy as np
import pytest

from lib.config import load
from lib.envs import make_education, make_education_rules
from lib.envs.education_batch import EducationBatch
from tests.benchmarks.clock import compare, relax, scale

GOALS = {256: 20.0, 1024: 40.0}  # students in a batch: times as fast per step as the single one
STEPS = 60  # of a batch; longer than an episode, so that resets are in it
SINGLE_STEPS = 600


@pytest.mark.parametrize("rows", GOALS)
def test_the_batched_students_step_many_times_as_fast_as_the_single_one(rows):
    batched, single = EducationBatch(make_education_rules(load().education), rows), make_education()
    batched.reset()
    single.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, (STEPS, rows))
    single_actions = rng.integers(0, 3, scale(SINGLE_STEPS, least=STEPS))

    def step_single():
        for action in single_actions:
            _, _, terminated, truncated, _ = single.step(action)
            if terminated or truncated:
                single.reset()

    def step_batched():
        for row in actions:
            batched.advance(row)

    goal = relax(GOALS[rows])
    times = compare(step_single, step_batched, goal, (len(single_actions), actions.size))
    print(f"\n{rows} students: {1 / times.fast:,.0f} steps/s, {times.ratio:.0f}x the single one")
    assert times.ratio >= goal
