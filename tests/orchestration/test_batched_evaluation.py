"""Episodes side by side: fair copies, the same luck for everybody, an oracle that nobody passes, readers that read."""

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.envs.education import draw_talents
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import CELLS
from lib.experiment import seeds
from lib.orchestration import experiment
from lib.orchestration.batched_evaluation import (
    Ahead,
    Arena,
    BatchedPolicyMenu,
    BatchedRandomPolicy,
    BatchedSinglePolicy,
    Guides,
    Read,
    Turns,
    cards,
    dealt,
    environments_of,
)
from lib.orchestration.decision_context import Brief, Rational
from lib.policy_zoo.planned_policies import FAR, distances, guide
from tests.orchestration import zoo

SMOKE = config.load("smoke")
PLACES = [("education", "paper"), ("education", "ours"), ("minigrid", "ours")]


def arena(domain: str, world: str, use: str = "test", n: int = 12, copies: int = 4) -> Arena:
    menu = (
        Guides(0.1)
        if (domain, world) == ("minigrid", "ours")
        else BatchedPolicyMenu(zoo.policies(domain))
    )
    streams = seeds.keys("arena", use, domain, n=n)
    return Arena(environments_of(SMOKE, world), domain, world, menu, streams, copies)


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_a_reader_with_the_numbers_of_a_look_ahead_decides_as_the_look_ahead_does(domain, world):
    place = arena(domain, world)
    read, alone = place.play(Read("TO", Rational(), {}, 3)), place.play(Ahead(1))
    assert (
        abs(read["reward"].mean() - alone["reward"].mean()) < 0.05
    )  # two digits in the prompt may break a tie
    same = [a[:1] == b[:1] for a, b in zip(read["chosen"], alone["chosen"], strict=True)]
    assert np.mean(same) > 0.7


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_playing_twice_gives_the_same_episodes_and_company_changes_none(domain, world):
    place, few = arena(domain, world), arena(domain, world, n=5)
    first, again, alone = place.play(Ahead(2)), place.play(Ahead(2)), few.play(Ahead(2))
    assert first.equals(again)
    assert first.head(5).equals(alone)


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_episodes_that_are_over_are_neither_asked_nor_stepped(domain, world, monkeypatch):
    place, stepped, asked = arena(domain, world), [], []
    act = place.menu.act
    monkeypatch.setattr(
        place.menu,
        "act",
        lambda env, which, *rest: stepped.append(env.num_envs) or act(env, which, *rest),
    )

    class Counting(BatchedRandomPolicy):
        def choose(self, moment):
            asked.append(len(moment.rows))
            return super().choose(moment)

    played = place.play(Counting())
    assert played["length"].nunique() > 1
    assert sum(stepped) == sum(asked) == played["length"].sum() == played["calls"].sum()


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_a_sparing_decider_is_asked_every_nth_step_and_its_choice_holds_between(domain, world):
    place = arena(domain, world)
    each, second, once = (place.play(Turns(), every) for every in (1, 2, 1_000))
    assert (second["calls"] == -(-second["length"] // 2)).all() and (once["calls"] == 1).all()
    for often, seldom in zip(each["chosen"], second["chosen"], strict=True):
        assert [seldom[i // 2 * 2] for i in range(len(seldom))] == seldom
        assert often[0] == seldom[0]
    assert once["chosen"].map(set).map(len).max() == 1 < each["chosen"].map(set).map(len).max()


def test_copies_see_other_dice_than_the_episode():
    """With the episode's own numbers, one step of look-ahead would foretell the step to the letter."""
    told, came = {}, {}

    class Foretold(BatchedSinglePolicy):
        def plans(self, arena):
            return np.array([[0]])

        def choose(self, moment):
            if moment.t == 0:
                told.update(enumerate(moment.looks[:, 0].sum(1)))
            if moment.t == 1:
                came.update(
                    {
                        row: sum(recent[-1][1])
                        for row, recent in zip(moment.rows, moment.recent, strict=True)
                    }
                )
            return super().choose(moment)

    arena("education", "paper", n=40, copies=1).play(Foretold())
    assert came and not np.allclose([told[row] for row in came], list(came.values()), atol=0.02)


def test_lava_is_in_sight_for_everybody_who_looks_ahead():
    place = arena("minigrid", "ours", n=30, copies=8)
    looks = []

    class Watching(Ahead):
        def choose(self, moment):
            looks.append(moment.looks[..., 1])
            return super().choose(moment)

    place.play(Watching(6))
    told = np.concatenate(looks)
    assert (
        told.max() == 1.0 and told.min() < 1.0
    )  # a copy that lives is told from one that dies, before the end


def test_the_oracle_in_hindsight_is_passed_by_nobody_on_any_student():
    place, tables = arena("education", "ours"), []
    for method, decider in {
        "SO-d1": BatchedSinglePolicy(0),
        "random": BatchedRandomPolicy(),
        "RO": Read("RO", Rational(), {}, 2),
    }.items():
        tables.append(place.play(decider).assign(method=method, role="router", backend="policy"))
    rows = pd.concat(
        [t.assign(item=np.arange(12), seed=0, group="education", condition="ours") for t in tables]
    )
    rows = experiment.hindsight(rows.reset_index(drop=True))
    best = rows[rows["method"] == experiment.HINDSIGHT].set_index("item")["reward"]
    assert (rows["reward"] <= rows["item"].map(best) + 1e-12).all()
    assert best.mean() > rows[rows["method"] == "random"]["reward"].mean()


def test_cards_tell_of_every_policy_in_every_situation_and_differ():
    told = cards(arena("minigrid", "ours", "cards", n=30), 16)
    assert set(told) == {"SO-d1", "SO-d2", "SO-d3"} and all(
        len(each) == 6 for each in told.values()
    )
    assert told["SO-d3"]["gold 2, lava far"][2] > told["SO-d1"]["gold 2, lava far"][2]
    assert told["SO-d1"]["gold 0, lava far"][0] > told["SO-d3"]["gold 0, lava far"][0]


def test_queries_weigh_differently_and_sum_to_one():
    weights = dealt(seeds.keys("weights", n=200))
    assert np.allclose(weights.sum(1), 1) and (weights >= 0).all()
    assert weights.std(0).min() > 0.2 and abs(weights.mean(0) - 1 / 3).max() < 0.08


def test_the_rational_reader_weighs_looks_and_cards_by_the_query():
    looks = {"a": (0.5, 0.0, 0.0), "b": (0.0, 0.6, 0.0)}
    brief = Brief(
        "TO", ("x", "y", "z"), (0.6, 0.4, 0.0), ("a", "b"), {}, "here", looks=looks, steps=1
    )
    other = Brief(
        "KO",
        ("x", "y", "z"),
        (0.4, 0.6, 0.0),
        ("a", "b"),
        {},
        "here",
        cards={name: {"here": told, "there": (1.0, 1.0, 1.0)} for name, told in looks.items()},
    )
    assert Rational().choose([brief, other]) == ["a", "b"]


def test_what_is_not_on_the_menu_counts_as_malformed():
    class Mute:
        name, backend = "mute", "scripted"

        def choose(self, briefs):
            return ["nobody"] * len(briefs)

    played = arena("education", "ours").play(Read("TO", Mute(), {}, 1))
    assert (played["malformed"] == played["length"]).all()


def test_a_reply_that_was_lost_is_failed_and_not_malformed():
    class Filtered:
        name, backend = "filtered", "endpoint"

        def choose(self, briefs):
            return [None] * len(briefs)

    played = arena("education", "ours").play(Read("TO", Filtered(), {}, 1))
    assert (played["failed"] == played["length"]).all() and not played["malformed"].any()
    assert {name for names in played["chosen"] for name in names} == {"SO-d1"}  # who acts instead


# Guides and hidden talent ---------------------------------------------------------------------------


def test_distances_are_those_of_a_walk_around_what_is_closed():
    floor, sources = np.ones((1, CELLS), dtype=bool), np.zeros((1, CELLS), dtype=bool)
    sources[0, 0] = True
    floor[0, [1, 5]] = False  # a wall between the first two columns, open below
    far = distances(sources, floor)[0]
    assert (
        far[0] == 0
        and far[4] == 1
        and far[8] == 2
        and far[9] == 3
        and far[2] == 6
        and far[1] == FAR
    )


@pytest.mark.parametrize(("name", "reached"), [("SO-d1", "success"), ("SO-d3", "gold")])
def test_a_guide_that_does_not_slip_gets_what_it_seeks_and_never_steps_on_lava(name, reached):
    env = GridBatch("composite", 64, seed=3, lava=2, horizon=60)
    env.reset()
    got, dead, alive = np.zeros(64), np.zeros(64, dtype=bool), np.ones(64, dtype=bool)
    for _ in range(60):
        env_done = env.advance(
            guide(env, np.full(64, name), np.full(64, 0.5), 0.0), restart=False
        ).done
        got = np.where(alive, np.maximum(got, env.outcomes[reached]), got)
        dead |= env.outcomes["lava"] & alive
        alive &= ~env_done
    assert not dead.any()
    assert (
        got.mean() > 0.7
    )  # gold may lie behind the goal, and the goal behind gold that another guide clears


def test_talent_shifts_answers_both_ways_and_is_none_in_the_papers_world():
    talent = draw_talents(seeds.keys("talent", n=400), 0.4) / 1000
    assert abs(talent.mean()) < 0.05 and talent.min() < -0.35 and talent.max() > 0.35
    assert (draw_talents(seeds.keys("talent", n=400), 0.0) == 0).all()
