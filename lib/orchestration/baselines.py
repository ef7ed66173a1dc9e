"""Deciders without a language model, one episode at a time: what prompts are priced and judged beside.

What a look-ahead, a bandit or a constant is worth is asked where thousands of episodes are played: `arena`.
"""

from lib.experiment import seeds
from lib.orchestration.decisions import Decision, OrchestrationEpisode
from lib.policy_zoo.policies import Policy

VERSION = 1  # of deciders without a model


class Random:
    """Every policy is as likely, at every step, by a number that belongs to this step and to nothing else."""

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        names, world = episode.world.menu.names, episode.world
        draw = seeds.uniform(seeds.key("random policy", int(world.stream)), world.t)
        return Decision(names[int(draw * len(names))])


class RoundRobin:
    """Each policy in turn."""

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        names = episode.world.menu.names
        return Decision(names[episode.world.t % len(names)])


class SinglePolicy:
    """One policy all the way."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        return Decision(self.policy.name, actor=self.policy)
