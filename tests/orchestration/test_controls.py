"""Deciders without a language model: fair dice, honest foresight, a bandit that learns what it should."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lib import seeds
from lib.orchestration.controls import Always, Greedy, LinUCB, Random, RoundRobin
from lib.orchestration.decisions import Decision, Episode
from lib.orchestration.world import World, weighted
from lib.zoo.recipes import ACTIONS
from tests.orchestration import zoo

NAMES = ("SO-d1", "SO-d2", "SO-d3")
TYPICAL = 0.001  # of fixed streams: a fair die looks worse than this once in a thousand


def decide(decider, world: World) -> Decision:
    return asyncio.run(decider.decide(Episode(world)))


def realised(world: World, name: str, weights) -> float:
    """The weighted reward that a policy does earn if it acts next."""
    row = zoo.clone(world).step(name)
    return weighted(np.array([row[f"reward_{i}"] for i in range(3)]), weights)


def many_steps(world: World, count: int):
    """The same world at many steps of many episodes, for deciders that read nothing else of it."""
    for world.stream in seeds.keys("many steps", n=20):
        for world.t in range(count // 20):
            yield world


# Dice --------------------------------------------------------------------------------------------


def test_random_picks_every_policy_as_often_and_whatever_was_picked_before():
    world = zoo.world("education")
    picks = [NAMES.index(decide(Random(), each).policy) for each in many_steps(world, 3000)]
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
        episode, alone = Episode(zoo.world(domain, 2)), zoo.world(domain, 2)
        while not episode.world.done and episode.world.t < 30:
            decision = asyncio.run(Always(actor).decide(episode))
            row = episode.act(decision)
            assert decision.policy == actor.name == episode.last
            assert row == alone.step(actor)
            assert actor.name != "MO-S" or row["action"] == ACTIONS[domain].index(last)
        assert len(episode.lines) == episode.world.t and f"picked {actor.name};" in episode.lines[-1]


# Looking ahead -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "better"), [((1, 0, 0), "challenge"), ((0, 0, 1), "easy")])
@pytest.mark.parametrize("steps", [1, 3])
def test_greedy_picks_the_policy_that_serves_the_objective(weights, better, steps):
    """Challenges have aptitude, easy questions are answered right: clear at every step of every student."""
    menu = [zoo.always("education", name, name) for name in ("challenge", "easy")]
    for seed in range(6):
        for of in (menu, menu[::-1]):
            world = zoo.world("education", seed, of)
            decision = decide(Greedy(weights, steps, copies=64), world)
            assert decision.policy == better and decision.looked == [each.name for each in of]
            assert decision.calls == 0 and decision.dollars == 0


@given(
    st.sampled_from(zoo.DOMAINS),
    st.integers(0, 10_000),
    st.integers(0, 12),
    st.tuples(*[st.integers(0, 5)] * 3).filter(any),
)
@settings(max_examples=60, deadline=None)
def test_nothing_earns_more_in_the_next_step_than_the_oracle_of_one_step(domain, seed, steps, weights):
    world = zoo.played(domain, seed, steps)
    best = realised(world, decide(Greedy(weights, 1, 1, shared=True), world).policy, weights)
    assert all(best >= realised(world, name, weights) - 1e-12 for name in NAMES)
    assert best >= realised(world, decide(Greedy(weights, 1, 4), world).policy, weights) - 1e-12


# The bandit --------------------------------------------------------------------------------------


@dataclass
class Line:
    """A hand-made world: x runs from -1 to 1; policy 0 pays where x < 0, policy 1 where x > 0."""

    noise: np.random.Generator
    length: int = 40
    t: int = 0
    names: tuple[str, ...] = ("low", "high")
    rows: list[dict] = field(default_factory=list)

    @property
    def menu(self):
        return self

    @property
    def done(self) -> bool:
        return self.t >= self.length

    @property
    def x(self) -> float:
        return -1 + 2 * (self.t + 0.5) / self.length

    def features(self) -> np.ndarray:
        return np.array([1.0, self.x])

    def step(self, name: str) -> dict:
        pays = 0.5 + 0.5 * self.x * (1 if name == "high" else -1)
        self.rows.append({"reward_0": pays + self.noise.normal(0, 0.1), "reward_1": 9.0, "reward_2": -9.0})
        self.t += 1
        return self.rows[-1]


def trained(alpha: float, episodes: int) -> LinUCB:
    bandit = LinUCB((1, 0, 0), alpha)
    bandit.learn([Line(np.random.default_rng(seed)) for seed in range(episodes)])
    return bandit


def test_the_bandit_learns_which_policy_pays_where():
    bandit = trained(alpha=0.5, episodes=5)
    judged = Line(np.random.default_rng(99))
    for judged.t in range(40):
        if abs(judged.x) > 0.1:
            assert decide(bandit, judged).policy == ("high" if judged.x > 0 else "low")
    values = bandit.values(judged, np.array([1.0, 0.6]), alpha=0.0)
    assert values == pytest.approx([0.5 - 0.3, 0.5 + 0.3], abs=0.1)


def test_the_bandit_plays_every_episode_to_its_end_and_learns_nothing_while_it_is_judged():
    worlds = [Line(np.random.default_rng(seed)) for seed in range(3)]
    bandit = LinUCB((1, 0, 0), 0.5)
    bandit.learn(worlds)
    assert all(world.done for world in worlds)
    assert bandit.a[:, 0, 0].sum() == 2 + 3 * 40  # I for both policies, and 1 for every step
    before = bandit.a.copy(), bandit.b.copy()
    world = Line(np.random.default_rng(5))
    decide(bandit, world)
    assert world.t == 0 and all(np.array_equal(x, y) for x, y in zip(before, (bandit.a, bandit.b), strict=True))


def test_an_update_of_the_bandit_is_the_one_in_the_paper():
    world, bandit = Line(np.random.default_rng(0), length=1), LinUCB((2, 0, 0), 0.5)
    bandit.learn([world])
    reward = world.rows[0]["reward_0"]  # weights are normalised
    assert bandit.a.tolist() == [[[2, 0], [0, 1]], [[1, 0], [0, 1]]]  # x = (1, 0), the first policy acted
    assert bandit.b == pytest.approx(np.array([[reward, 0], [0, 0]]))


def test_values_are_the_mean_and_the_optimism_of_algorithm_1():
    bandit = LinUCB((1, 1, 1), alpha=0.5)
    bandit.a = np.array([[[2.0, 1.0], [1.0, 3.0]], [[4.0, 0.0], [0.0, 1.0]]])
    bandit.b = np.array([[1.0, 2.0], [2.0, 1.0]])
    x = np.array([1.0, 2.0])
    # A_0^-1 = [[3, -1], [-1, 2]] / 5, theta_0 = (0.2, 0.6), theta_0 x = 1.4, x' A_0^-1 x = 7 / 5
    # A_1^-1 = diag(1/4, 1), theta_1 = (0.5, 1), theta_1 x = 2.5, x' A_1^-1 x = 4.25
    assert bandit.values(None, x, alpha=0.0) == pytest.approx([1.4, 2.5])
    assert bandit.values(None, x, alpha=0.5) == pytest.approx([1.4 + 0.5 * 1.4**0.5, 2.5 + 0.5 * 4.25**0.5])


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_the_bandit_decides_in_real_worlds_and_the_same_each_time(domain):
    def play() -> list[str]:
        bandit = LinUCB((1, 1, 1), 0.5)
        bandit.learn([zoo.world(domain, seed) for seed in range(3)])
        return [decide(bandit, zoo.played(domain, seed, seed % 4)).policy for seed in range(10, 20)]

    first = play()
    assert first == play() and set(first) <= set(NAMES)


def test_round_robin_takes_turns():
    world = zoo.world("education")
    for world.t, expected in enumerate(NAMES * 4):
        assert decide(RoundRobin(), world).policy == expected


def test_ties_fall_at_random():
    same = [zoo.always("minigrid", "left", name) for name in ("a", "b", "c")]
    picks = [decide(Greedy((1, 1, 1), 1, 2), zoo.world("minigrid", seed, same)).policy for seed in range(150)]
    assert chisquare([picks.count(name) for name in "abc"]).pvalue > TYPICAL


def test_greedy_looks_as_far_as_it_is_told():
    """The goal two cells ahead is worth nothing to one who looks one step ahead."""
    menu = [zoo.always("minigrid", name, name) for name in ("left", "forward")]
    rooms = (zoo.world("minigrid", seed, menu) for seed in range(400))
    world = next(room for room in rooms if "goal 2 ahead, straight" in room.state()["in view"].split("; "))
    assert world.state()["in front"] == "empty"
    near, far = (Greedy((1, 0, 0), steps, 1) for steps in (1, 2))
    assert {decide(near, world).policy for world.t in range(20)} == {"left", "forward"}
    assert {decide(far, world).policy for world.t in range(20)} == {"forward"}
