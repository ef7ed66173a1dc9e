"""What looking ahead through the twin is worth.

The plain look-ahead copies the single environment (Education or GridRoom) once per policy and copy, and
asks the policy for one action at a time. Goal: the twin 10x as fast.
"""

import numpy as np
import pytest

from lib.experiment import seeds
from tests.benchmarks.clock import compare, relax, scale
from tests.orchestration import zoo

GOAL = 10.0  # times as fast as the plain look-ahead
COPIES = 8
CASES = 6  # states from which is looked ahead

pytestmark = pytest.mark.usefixtures("one_thread")


def states(domain: str, count: int):
    """Worlds early in their episodes, each with its single environment and what that shows."""
    for seed in range(40):
        world = zoo.world(domain, seed)
        actions = [world.step("SO-d2")["action"] for _ in range(2) if not world.done]
        far = world.facts()["mastery"] <= 0.5 if domain == "education" else True
        if far and not world.done and count:
            count -= 1
            yield world, *zoo.single(domain, seed, actions)


@pytest.mark.parametrize("steps", [3, 5])
@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_looking_ahead_through_the_twin_is_ten_times_as_fast(domain, steps):
    names, policies = zoo.menu(domain).names, zoo.policies(domain)
    cases = list(states(domain, scale(CASES, least=2)))
    lengths = []  # of the rollouts, as shares of `steps`

    def look_ahead_in_single_environments():
        for world, env, observation in cases:
            for name in names:
                for key in seeds.keys("look-ahead", int(world.stream), world.t, n=COPIES):
                    rollout = zoo.rollout(env, observation, policies[name], steps, key)
                    lengths.append(len(rollout[1]) / steps)

    def look_ahead_in_twin():
        for world, _, _ in cases:
            world.look(names, steps, COPIES)

    goal = relax(GOAL)
    times = compare(look_ahead_in_single_environments, look_ahead_in_twin, goal, rounds=5)
    print(
        f"\n{domain}, 3 policies, {COPIES} copies, {steps} steps ({np.mean(lengths):.0%} of them before an end): "
        f"{1_000 * times.fast / len(cases):.2f} ms, plain {1_000 * times.slow / len(cases):.1f} ms, "
        f"{times.ratio:.1f}x"
    )
    assert times.ratio >= goal
