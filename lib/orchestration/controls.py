"""Deciders without a language model: what any orchestrator has to be compared with.

The paper has none of them. Random and round-robin show what switching alone is worth, `Always` what no
switching is, `Greedy` what the look-ahead alone is worth without a reader, and with true foresight
(`shared`, several steps) what it could be worth at the most; `LinUCB` what a small learner gets.
"""

from collections.abc import Sequence

import numpy as np

from lib import seeds
from lib.orchestration.decisions import Decision, Episode
from lib.orchestration.world import World, weighted
from lib.zoo.policies import Policy


def _draw(world: World, what: str) -> float:
    """A number in [0, 1) that belongs to this step of this episode and to nothing else."""
    return float(seeds.uniform(seeds.key(what, int(world.stream)), world.t))


class Random:
    """Every policy is as likely, at every step."""

    async def decide(self, episode: Episode) -> Decision:
        names = episode.world.menu.names
        return Decision(names[int(_draw(episode.world, "random policy") * len(names))])


class RoundRobin:
    """Each policy in turn."""

    async def decide(self, episode: Episode) -> Decision:
        names = episode.world.menu.names
        return Decision(names[episode.world.t % len(names)])


class Always:
    """One policy all the way: a single-objective one, or a multi-objective reference."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def decide(self, episode: Episode) -> Decision:
        return Decision(self.policy.name, actor=self.policy)


class Greedy:
    """The policy whose look-ahead has the highest weighted reward; ties fall at random.

    shared: with the episode's own random numbers, it sees what will really happen - an oracle for
    decisions of `steps` steps, not a method.
    """

    def __init__(self, weights: Sequence[float], steps: int, copies: int, shared: bool = False) -> None:
        self.weights, self.steps, self.copies, self.shared = weights, steps, copies, shared

    async def decide(self, episode: Episode) -> Decision:
        world = episode.world
        seen = world.look(world.menu.names, self.steps, self.copies, self.shared)
        values = np.array([weighted(each.rewards, self.weights) for each in seen])
        best = np.flatnonzero(values >= values.max() - 1e-12)
        chosen = best[int(_draw(world, "tie") * best.size)]
        return Decision(world.menu.names[chosen], looked=list(world.menu.names))


class LinUCB:
    """A linear bandit over policies, disjoint models (Li et al. 2010, algorithm 1).

    Reward: w . r of the next step; context: the world's features. It learns in episodes of its own and
    is judged without optimism and without learning on.
    """

    def __init__(self, weights: Sequence[float], alpha: float) -> None:
        self.weights, self.alpha = weights, alpha
        self.a: np.ndarray | None = None  # (K, F, F), A_k = I + sum x x'
        self.b: np.ndarray | None = None  # (K, F), b_k = sum r x

    def learn(self, worlds: Sequence[World]) -> None:
        """Play whole episodes with optimism, learning after each step."""
        for world in worlds:
            while not world.done:
                x = world.features()
                k = int(np.argmax(self.values(world, x, self.alpha)))
                row = world.step(world.menu.names[k])
                reward = weighted(np.array([row[f"reward_{i}"] for i in range(3)]), self.weights)
                self.a[k] += np.outer(x, x)
                self.b[k] += reward * x

    def values(self, world: World, x: np.ndarray, alpha: float) -> np.ndarray:
        """p_k = theta_k . x + alpha sqrt(x' A_k^-1 x), (K,)."""
        if self.a is None:
            k = len(world.menu.names)
            self.a, self.b = np.tile(np.eye(x.size), (k, 1, 1)), np.zeros((k, x.size))
        inverse = np.linalg.inv(self.a)
        theta = np.einsum("kij,kj->ki", inverse, self.b)
        return theta @ x + alpha * np.sqrt(np.einsum("i,kij,j->k", x, inverse, x))

    async def decide(self, episode: Episode) -> Decision:
        world = episode.world
        values = self.values(world, world.features(), alpha=0.0)
        return Decision(world.menu.names[int(np.argmax(values))])
