"""Whoever weighs cost more gets a policy that costs no more; under the published error, one that costs more.

The learner is exact: a softmax over tools, each right with a known chance, at a known price and latency. What a
tool is expected to be paid beside the rest of its group is summed over everything that can happen in a group, so
nothing is left to dice, and gradient ascent goes on until the policy stays as it is.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest

from lib.routing.toolorchestra import rewards

GRID = np.linspace(0, 1, 6)
SIZE = 3  # rollouts of a group
SCENES = {  # by tool: the chance that it is right, dollars, seconds
    "dear is better": ((0.6, 1.0, 4.0), (0.75, 3.0, 2.0), (0.9, 10.0, 1.0)),
    "all as good": ((0.8, 1.0, 1.0), (0.8, 2.0, 1.0), (0.8, 6.0, 1.0)),
    "two": ((0.7, 1.0, 2.0), (0.95, 5.0, 1.0)),
    "cheap is slow": ((0.85, 1.0, 9.0), (0.85, 4.0, 3.0), (0.85, 9.0, 1.0)),
    "seldom right": ((0.125, 1.0, 11.0), (0.125, 15.0, 9.0), (0.125, 1.5, 8.0)),  # learned slowly
}


@cache
def outcomes(scene: tuple[tuple[float, float, float], ...], normalise) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Everything that can happen in a group: tools (n, SIZE), its chance given the tools (n,), and the first rollout's
    normalised vector, 0 where it is wrong (n, 3)."""
    q, dollars, seconds = np.array(scene).T
    told = list(product(product(range(len(q)), (0, 1)), repeat=SIZE))
    tools, right = (np.array([[pair[i] for pair in group] for group in told]) for i in (0, 1))
    chance = np.where(right == 1, q[tools], 1 - q[tools]).prod(1)
    flat = rewards.vectors(np.zeros((tools.size, 0)), right.ravel(), dollars[tools.ravel()], seconds[tools.ravel()])
    norm = normalise(flat, np.repeat(np.arange(len(told)), SIZE)).reshape(len(told), SIZE, 3)
    return tools, chance, norm[:, 0] * right[:, :1]


def costs(scene, normalise, accuracy: float = 1.0, latency: float = 0.0, steps: int = 4000) -> np.ndarray:
    """The mean cost of the learned policy over the grid of p_cost, after gradient ascent: d/d logit of a tool is its
    chance times its advantage."""
    tools, chance, paid = outcomes(scene, normalise)
    wanted = np.array([[accuracy, p, latency] for p in GRID])
    worth = chance * (wanted @ paid.T)
    k = len(scene)
    first = np.eye(k)[tools[:, 0]]
    logits = np.zeros((len(GRID), k))
    for _ in range(steps):
        policy = np.exp(logits - logits.max(1, keepdims=True))
        policy /= policy.sum(1, keepdims=True)
        expected = (worth * policy[:, tools[:, 1]] * policy[:, tools[:, 2]]) @ first  # of a rollout with each tool
        change = policy * (expected - (policy * expected).sum(1, keepdims=True))
        logits += 2 * change
        if np.abs(change).max() < 1e-7:
            break
    return policy @ np.array(scene)[:, 1]


@pytest.mark.parametrize("latency", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scene", SCENES)
def test_raising_p_cost_never_raises_the_mean_cost_of_the_learned_policy(scene, latency):
    assert (np.diff(costs(SCENES[scene], rewards.normalised, latency=latency)) <= 1e-3).all()


@pytest.mark.parametrize("scene", ["dear is better", "two", "cheap is slow"])
def test_it_lowers_the_cost_somewhere(scene):
    """Else the test above would say nothing."""
    told = costs(SCENES[scene], rewards.normalised, latency=0.5)
    assert told[0] - told[-1] > 0.5


@pytest.mark.parametrize("scene", ["all as good", "cheap is slow"])
def test_under_the_published_error_raising_p_cost_raises_the_mean_cost(scene):
    """Where accuracy alone has not chosen the dearest tool already."""
    told = costs(SCENES[scene], rewards.published)
    assert np.diff(told).max() > 0.05 and told[-1] > told[0]


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
@pytest.mark.parametrize("scene", ["dear is better", "all as good", "two", "cheap is slow"])
def test_a_user_who_minds_the_cost_pays_more_under_the_published_error(scene, accuracy):
    right, wrong = (costs(SCENES[scene], n, accuracy)[-1] for n in (rewards.normalised, rewards.published))
    assert wrong > right + 0.5
