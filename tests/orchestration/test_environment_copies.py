"""Episodes and copies of them: the real steps, what a look ahead may know, and the plain way to look."""

from dataclasses import replace

import numpy as np
import pytest

from lib.experiment import seeds
from lib.orchestration.environment_copies import Foresight, PolicyMenu
from lib.policy_zoo import evaluate
from lib.policy_zoo.networks import Mlp, initial
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import ACTIONS
from tests.orchestration import zoo

NAMES = ("SO-d1", "SO-d2", "SO-d3")
FEW = zoo.SMOKE.model_copy(update={"zoo": zoo.SMOKE.zoo.model_copy(update={"episodes": 3})})


def equal(a: Foresight, b: Foresight) -> bool:
    """Whether two looks saw the same; one policy's network alone may round its last bit otherwise, its actions not."""
    return replace(a, rewards=None) == replace(b, rewards=None) and np.allclose(
        a.rewards, b.rewards, atol=1e-12
    )


def everything(world) -> dict[str, np.ndarray]:
    """All that a world is, as arrays."""
    rest = {
        "observation": world.observation,
        "t": world.t,
        "done": world.done,
        "draws": world.draws,
    }
    return {name: np.array(value) for name, value in (world.env.state() | rest).items()}


def states(domain: str, count: int = 5):
    """Worlds at different times of different episodes."""
    return [zoo.played(domain, seed, 3 * (seed % 5)) for seed in range(count)]


# Real steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_policy_acts_in_a_world_as_in_the_evaluation_row_for_row(domain):
    actors = evaluate.actors({name: [each] for name, each in zoo.policies(domain).items()})
    record = evaluate.evaluate(FEW, actors, domain, zoo.TASK[domain])
    streams = evaluate.evaluation_streams(domain, 0, FEW.zoo.episodes)
    shared = [
        name
        for name in record.columns
        if name not in ("method", "seed", "backend", "episode", "step")
    ]
    assert set(shared) >= {"action", "reward_0", "reward_1", "reward_2", "done"}
    assert {"mastery", "open_failed", "mastery_after"} <= set(shared) or domain == "minigrid"
    for (name, number), rows in record.groupby(["method", "episode"]):
        world = zoo.WORLDS[domain](FEW, zoo.menu(domain), streams[number])
        for row in rows[shared].to_dict("records"):
            step = world.step(name)
            assert {key: step[key] for key in shared} == row
        assert world.done and world.t == len(rows)


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_policy_that_is_not_on_the_menu_acts_as_the_same_one_on_the_menu(domain):
    by_name, by_policy = zoo.world(domain, 3), zoo.world(domain, 3)
    stranger = replace(zoo.policies(domain)["SO-d2"], name="MO-S")
    while not by_name.done:
        assert by_name.step("SO-d2") == by_policy.step(stranger)


@pytest.mark.parametrize("networks", [[], [Mlp(13, 3), Mlp(13, 3, values=3)]])
def test_a_menu_is_of_one_kind_and_not_empty(networks):
    policies = {
        str(n): Policy(str(n), "education", n, initial(n, "x", seed=0), {}) for n in networks
    }
    with pytest.raises(ValueError, match="one network" if networks else "at least one"):
        PolicyMenu(policies)


@pytest.mark.parametrize("names", [NAMES, ("SO-d3",), ("SO-d2", "SO-d1"), ("SO-d1", "SO-d1")])
def test_a_menu_answers_as_its_policies_do_one_by_one(names):
    observation = np.random.default_rng(0).random((len(names), 40, 13)).astype(np.float32)
    draws = np.random.default_rng(1).random((len(names), 40))
    expected = [
        zoo.policies("education")[n].act(o, d)
        for n, o, d in zip(names, observation, draws, strict=True)
    ]
    assert np.array_equal(zoo.menu("education").act(names, observation, draws), expected)


# Copies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_looking_ahead_changes_nothing(domain):
    for world in states(domain):
        untouched = zoo.clone(world)
        before = everything(world)
        first = world.look(NAMES, 5, 4)
        after = everything(world)
        assert all(np.array_equal(before[name], after[name]) for name in before)
        again = world.look(NAMES, 5, 4)
        assert all(equal(a, b) for a, b in zip(first, again, strict=True))
        assert world.step("SO-d1") == untouched.step("SO-d1")


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_policies_looked_at_together_are_seen_as_if_each_were_alone(domain):
    for world in states(domain):
        together = world.look(NAMES, 3, 4)
        alone = [world.look([name], 3, 4)[0] for name in NAMES]
        backwards = world.look(NAMES[::-1], 3, 4)[::-1]
        assert [each.policy for each in together] == list(NAMES)
        for seen in (alone, backwards):
            assert all(equal(a, b) for a, b in zip(together, seen, strict=True))


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_copies_with_numbers_of_their_own_do_not_show_what_will_happen(domain):
    differ = same = 0
    for world in states(domain, 40):
        seen = world.look(["SO-d2"], 1, 1)[0]
        real = zoo.clone(world).step("SO-d2")
        as_it_was = seen.actions == (ACTIONS[domain][real["action"]],)
        differ += not (
            as_it_was and seen.rewards.tolist() == [real[f"reward_{i}"] for i in range(3)]
        )
        same += as_it_was
    assert (
        differ >= 8 and same >= 4
    )  # they do not know the future, and are not about something else


@pytest.mark.parametrize(("steps", "copies"), [(1, 1), (7, 3)])
@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_look_equals_copying_and_stepping_single_environments(domain, steps, copies):
    seen_ends = 0
    for seed in range(8):
        world, actions = zoo.world(domain, seed), []
        while not world.done and world.t < seed:
            actions.append(world.step(NAMES[world.t % 3])["action"])
        if world.done:
            continue
        env, observation = zoo.single(domain, seed, actions)
        keys = seeds.keys("look-ahead", int(world.stream), world.t, n=copies)
        for seen in world.look(NAMES, steps, copies):
            runs = [
                zoo.rollout(env, observation, zoo.policies(domain)[seen.policy], steps, key)
                for key in keys
            ]
            per_copy = [r.mean(axis=0) if domain == "education" else r.sum(axis=0) for r, _ in runs]
            assert seen.rewards == pytest.approx(np.mean(per_copy, axis=0), abs=1e-12)
            assert seen.actions == tuple(ACTIONS[domain][a] for a in runs[0][1])
            assert (seen.steps, seen.copies) == (steps, copies)
            seen_ends += sum(len(taken) < steps for _, taken in runs)
    assert steps < 7 or seen_ends > 0  # some copies did end before the last step


# Ends --------------------------------------------------------------------------------------------


def facing(thing: str):
    """A room whose robot has `thing` in front when it begins."""
    forward = [zoo.always("minigrid", name, name) for name in ("forward", "left")]
    worlds = (zoo.world("minigrid", seed, forward) for seed in range(400))
    return next(world for world in worlds if world.state()["in front"] == thing)


@pytest.mark.parametrize(
    ("thing", "rewards", "change"),
    [
        ("lava", [0, 0, 0], "goal in 0% and lava in 100% of copies"),
        ("goal", [1, 1, 0], "goal in 100% and lava in 0% of copies"),
    ],
)
def test_a_copy_that_ends_on_lava_or_goal_counts_no_step_after_it(thing, rewards, change):
    world = facing(thing)
    for steps in (1, 2, 60):
        seen, turning = world.look(["forward", "left"], steps, 8)
        assert seen.rewards.tolist() == rewards and seen.change == change
        assert seen.actions == ("forward",) and seen.steps == steps
        assert turning.actions == ("left",) * steps and turning.rewards.tolist() == [0, 0, 0]
    assert facing(thing).step("forward")["done"]


def test_the_state_of_a_student_reads_as_it_is():
    world = zoo.world("education", 0)
    world.env.mastery[0] = world.env.rules.top * 0.6
    world.env.pending[0] = [0, 2, 0, 1, 0, 0]
    assert world.facts() == {"mastery": 0.6, "open_failed": 3}
    assert world.state() == {
        "mastery": "0.60 (the episode ends at 0.80)",
        "failed questions open": "3",
    }


def test_the_state_of_a_room_reads_as_the_robot_sees_it():
    world = zoo.world("minigrid", 0)
    room = world.env
    room.board[0, :16] = 1
    room.board[0, [9, 6, 0]] = (
        8,
        9,
        6,
    )  # goal at column 2, row 3; lava at column 3, row 2; gold at 1, 1
    room.pose[0], room.t[0] = 4 * 13 + 3, 44  # column 2, row 4, facing north
    assert world.state() == {
        "position": "column 2, row 4 of 4 x 4, heading north",
        "in front": "goal",
        "in view": "goal 1 ahead, straight; lava 2 ahead, 1 to the right; gold 3 ahead, 1 to the left",
        "gold left": "1",
        "steps left": "100",
    }


def test_a_copy_that_runs_out_of_time_counts_no_step_after_it():
    world = facing("empty")
    world.env.t[0] = world.horizon - 2
    seen = world.look(["left"], 10, 4)[0]
    assert seen.actions == ("left", "left") and seen.rewards.tolist() == [0, 1, 0]


def test_what_is_told_of_a_student_is_what_the_first_copy_was_asked_and_how_all_fared():
    world = zoo.world(
        "education", 0, [zoo.always("education", name, name) for name in ACTIONS["education"]]
    )
    start = world.facts()["mastery"]
    one = world.look(["challenge"], 1, 16)[0]
    assert one.told == "difficulties 0.8 0.8 0.8 0.8 0.8"  # the bank has no level above 5
    several = world.look(["challenge"], 3, 16)[0]
    course = [float(value) for value in several.told.split("mastery by step ")[1].split()]
    assert len(course) == 3 and course == sorted(course)
    assert float(several.change.removeprefix("mastery ")) == pytest.approx(
        course[-1] - start, abs=0.006
    )
    assert float(one.change.removeprefix("mastery ")) == pytest.approx(course[0] - start, abs=0.006)
