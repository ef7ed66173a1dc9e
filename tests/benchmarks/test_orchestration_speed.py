"""What looking ahead through the twin is worth.

The plain look-ahead copies the single environment (Education or GridRoom) once per policy and copy, and
asks the policy for one action at a time. Goal: the twin 10x as fast.
"""

import numpy as np
import pytest

from lib.experiment import seeds
from tests.benchmarks.clock import seconds
from tests.orchestration import zoo

GOAL = 10.0  # times as fast as the plain look-ahead
COPIES = 8


def milliseconds(work, cases, rounds: int) -> float:
    """The least time that all `cases` took, per case: noise only ever slows a round."""
    return 1_000 * seconds(lambda: [work(*case) for case in cases], rounds) / len(cases)


def states(domain: str, count: int = 6):
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
    cases = list(states(domain))

    taken = []

    def plain(world, env, observation):
        for name in names:
            for key in seeds.keys("look-ahead", int(world.stream), world.t, n=COPIES):
                taken.append(
                    len(zoo.rollout(env, observation, policies[name], steps, key)[1]) / steps
                )

    def twin(world, env, observation):
        world.look(names, steps, COPIES)

    slow, fast = milliseconds(plain, cases, 3), milliseconds(twin, cases, 15)
    print(
        f"\n{domain}, 3 policies, {COPIES} copies, {steps} steps ({np.mean(taken):.0%} of them before an end): "
        f"{fast:.2f} ms, plain {slow:.1f} ms, {slow / fast:.1f}x"
    )
    assert slow >= GOAL * fast
