"""Deciders without a language model: fair dice, turns, and one policy all the way."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from lib.experiment import seeds
from lib.orchestration.baselines import Random, RoundRobin, SinglePolicy
from lib.orchestration.decisions import Decision, OrchestrationEpisode
from lib.orchestration.environment_copies import World
from lib.policy_zoo.recipes import ACTIONS
from tests.orchestration import zoo

NAMES = ("SO-d1", "SO-d2", "SO-d3")
TYPICAL = 0.001  # of fixed streams: a fair die looks worse than this once in a thousand


def decide(decider, world: World) -> Decision:
    return asyncio.run(decider.decide(OrchestrationEpisode(world)))


def test_random_picks_every_policy_as_often_and_whatever_was_picked_before():
    world, picks = zoo.world("education"), []
    for world.stream in seeds.keys("many steps", n=20):
        for world.t in range(150):
            picks.append(NAMES.index(decide(Random(), world).policy))
    assert chisquare(np.bincount(picks, minlength=3)).pvalue > TYPICAL
    pairs = [3 * a + b for a, b in pairwise(picks)]
    assert chisquare(np.bincount(pairs, minlength=9)).pvalue > TYPICAL


def test_random_picks_the_same_in_the_same_episode_and_not_in_another():
    def picks(seed: int) -> list[str]:
        world, out = zoo.world("minigrid", seed), []
        while not world.done and len(out) < 20:
            out.append(decide(Random(), world).policy)
            world.step("SO-d1")
        return out

    assert picks(8) == picks(8) and len(picks(8)) == 20
    assert picks(8) != picks(9)


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_always_lets_one_policy_act_on_the_menu_or_not(domain):
    last = ACTIONS[domain][-1]
    for actor in (zoo.always(domain, last, "MO-S"), zoo.policies(domain)["SO-d2"]):
        episode, alone = OrchestrationEpisode(zoo.world(domain, 2)), zoo.world(domain, 2)
        while not episode.world.done and episode.world.t < 30:
            decision = asyncio.run(SinglePolicy(actor).decide(episode))
            row = episode.act(decision)
            assert decision.policy == actor.name == episode.last
            assert row == alone.step(actor)
            assert actor.name != "MO-S" or row["action"] == ACTIONS[domain].index(last)
        assert (
            len(episode.lines) == episode.world.t and f"picked {actor.name};" in episode.lines[-1]
        )


def test_round_robin_takes_turns():
    world = zoo.world("education")
    for world.t, expected in enumerate(NAMES * 4):
        assert decide(RoundRobin(), world).policy == expected
