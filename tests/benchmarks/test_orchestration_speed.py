"""What looking ahead through the batched environment is worth.

The plain look-ahead copies the single environment (Education or GridRoom) once per policy and copy, and
asks the policy for one action at a time. Goal: the batch 10x as fast.
"""

import numpy as np
import pytest

from lib.experiment import seeds
from lib.orchestration.menus import TrainedMenu
from lib.policy_zoo.recipes import SINGLE
from tests.benchmarks.clock import compare, relax, scale
from tests.orchestration import zoo
from tests.orchestration.untrained import DOMAINS, make_episode_set

GOAL = 10.0  # times as fast as the plain look-ahead
COPIES = 8
CASES = 6  # episodes from whose beginning is looked ahead

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("num_steps", [3, 5])
@pytest.mark.parametrize("domain", DOMAINS)
def test_looking_ahead_through_the_batch_is_ten_times_as_fast(domain, num_steps):
    policies = zoo.policies(domain)
    num_cases = scale(CASES, least=2)
    streams = seeds.keys(zoo.STREAM[domain], n=num_cases)
    episode_set = make_episode_set(
        domain, num_cases, COPIES, zoo.SMOKE, TrainedMenu(policies), streams
    )
    env = episode_set.make_env(num_cases)
    env.seed_with(streams)
    observation = env.reset()
    plans = np.repeat(np.arange(len(SINGLE))[:, None], num_steps, axis=1)
    single_environments = [zoo.single(domain, seed) for seed in range(num_cases)]
    lengths = []  # of the rollouts, as shares of `num_steps`

    def look_ahead_in_single_environments():
        for number, (single, seen) in enumerate(single_environments):
            for name in SINGLE:
                for key in seeds.keys("copies", number, n=COPIES):
                    _, actions = zoo.rollout(single, seen, policies[name], num_steps, key)
                    lengths.append(len(actions) / num_steps)

    def look_ahead_in_batch():
        # One episode after another, as an orchestrator that plays alone would.
        for row in range(num_cases):
            alone = episode_set.make_env(1)
            alone.restore(env.state(), rows=np.array([row]))
            episode_set.look_ahead(alone, observation[[row]], np.array([row]), 0, plans)

    goal = relax(GOAL)
    times = compare(look_ahead_in_single_environments, look_ahead_in_batch, goal, rounds=5)
    print(
        f"\n{domain}, 3 policies, {COPIES} copies, {num_steps} steps ({np.mean(lengths):.0%} of them before an "
        f"end): {1_000 * times.fast / num_cases:.2f} ms, plain {1_000 * times.slow / num_cases:.1f} ms, "
        f"{times.ratio:.1f}x"
    )
    assert times.ratio >= goal
