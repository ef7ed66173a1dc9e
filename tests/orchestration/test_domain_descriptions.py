"""The two domains in numbers and words: what a state reads like, and what a rollout is said to have done."""

import numpy as np
import pytest

from lib.orchestration.domain_descriptions import (
    DESCRIBERS,
    HIGH_MASTERY,
    EducationDescriber,
    MiniGridDescriber,
)
from lib.policy_zoo.recipes import ACTIONS, OBJECTIVES, make_batched_env
from tests.orchestration.untrained import (
    DOMAINS,
    ConstantMenu,
    WatchedModel,
    make_episode_set,
    make_options,
    make_params,
)

PARAMS = make_params(minigrid={"horizon": 144})


def make_env(domain: str):
    describer = DESCRIBERS[domain](PARAMS)
    env = make_batched_env(PARAMS, domain, [describer.task] * 2)
    env.reset()
    return describer, env


@pytest.mark.parametrize("domain", DOMAINS)
def test_objectives_and_actions_are_those_of_the_environment_in_its_order(domain):
    words = DESCRIBERS[domain].domain
    assert tuple(words.objectives) == OBJECTIVES[domain]
    assert tuple(words.actions) == ACTIONS[domain]
    assert words.criteria == (*words.objectives, *words.measures)


def test_the_state_of_a_student_reads_as_it_is():
    describer, env = make_env("education")
    env.mastery[0] = env.rules.top * 0.6
    env.pending[0] = [0, 2, 0, 1, 0, 0]
    state_features = describer.read_state_features(env)
    assert {name: values[0] for name, values in state_features.items()} == {
        "mastery": 0.6,
        "failed questions open": 3,
    }
    assert describer.describe_state(env, 0) == {
        "mastery": "0.60 (the episode ends at 0.80)",
        "failed questions open": "3",
    }


def test_the_state_of_a_room_reads_as_the_robot_sees_it():
    describer, env = make_env("minigrid")
    env.board[0, :16] = 1
    # Goal at column 2, row 3; lava at column 3, row 2; gold at column 1, row 1.
    env.board[0, [9, 6, 0]] = (8, 9, 6)
    env.pose[0] = 4 * 13 + 3  # column 2, row 4, facing north
    env.t[0] = 44
    assert describer.describe_state(env, 0) == {
        "position": "column 2, row 4 of 4 x 4, heading north",
        "in front": "goal",
        "in view": "goal 1 ahead, straight; lava 2 ahead, 1 to the right; gold 3 ahead, 1 to the left",
        "gold left": "1",
        "steps left": "100",
    }
    state_features = describer.read_state_features(env)
    # Three steps to the lava: to column 2, row 3 is the goal, so that the way leads around it.
    assert state_features["gold left"][0] == 1 and state_features["lava distance"][0] == 3


@pytest.mark.parametrize(
    ("mastery", "num_open", "situation"),
    [
        (0.4, 0, "mastery low, no failed question open"),
        (HIGH_MASTERY - 0.01, 2, "mastery low, failed questions open"),
        (HIGH_MASTERY, 1, "mastery high, failed questions open"),
        (0.7, 0, "mastery high, no failed question open"),
    ],
)
def test_the_row_of_a_card_follows_from_mastery_and_open_questions(mastery, num_open, situation):
    state_features = {"mastery": np.array([mastery]), "failed questions open": np.array([num_open])}
    assert EducationDescriber(PARAMS).name_situations(state_features) == [situation]


@pytest.mark.parametrize(("distance", "lava"), [(0, "near"), (1, "near"), (2, "far"), (999, "far")])
def test_lava_is_near_where_one_step_leads_onto_it(distance, lava):
    state_features = {"gold left": np.array([2]), "lava distance": np.array([distance])}
    assert MiniGridDescriber(PARAMS).name_situations(state_features) == [
        f"gold left 2, lava {lava}"
    ]


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_situation_that_comes_up_has_a_row(domain):
    model = WatchedModel()
    make_episode_set(domain, num_episodes=20).play(model, make_options(domain, ""))
    situations = {context.state.situation for context in model.contexts}
    assert situations <= set(DESCRIBERS[domain].situations) and len(situations) > 1


class ReadingModel(WatchedModel):
    """Needs words."""

    reads_words = True


def list_results(num_steps: int, action: int, num_copies: int):
    """Tool results of one policy in a first step, with the mastery before."""
    model = ReadingModel()
    menu = ConstantMenu((action,) * 3)
    episode_set = make_episode_set("education", 4, num_copies, menu=menu)
    options = make_options("education", "RO", rollout_steps=num_steps)
    episode_set.play(model, options)
    first = [context for context in model.contexts if context.query.step == 1]
    return [(context.tool_results[0], context.state.features["mastery"]) for context in first]


def test_one_step_is_told_by_the_questions_of_the_first_copy_and_the_mean_mastery():
    for result, mastery in list_results(1, ACTIONS["education"].index("challenge"), 8):
        assert result.details == "difficulties 0.8 0.8 0.8 0.8 0.8"  # the bank has no harder ones
        assert result.actions == ("challenge",)
        # The mean progress per step of the results is the change that is told.
        assert float(result.change.removeprefix("mastery ")) == pytest.approx(
            result.results[3], abs=2e-3
        )
        assert mastery == pytest.approx(0.4)


def test_several_steps_are_told_by_the_mean_mastery_of_all_copies():
    for result, mastery in list_results(3, ACTIONS["education"].index("easy"), 8):
        first, course = result.details.split("; mastery by step ")
        assert first.startswith("first difficulties ")
        values = [float(value) for value in course.split()]
        assert len(values) == 3 and values == sorted(values)  # mastery never falls
        change = float(result.change.removeprefix("mastery "))
        assert change == pytest.approx(values[-1] - mastery, abs=0.006)


def test_a_copy_that_has_ended_keeps_the_mastery_that_it_ended_with():
    describer = EducationDescriber(PARAMS)
    outcomes = [
        {"mastery_after": np.array([0.8, 0.4]), "levels": np.array([[2, 2, -1], [3, 3, 3]])},
        {"mastery_after": np.array([0.0, 0.6]), "levels": np.array([[0, 0, 0], [1, 1, 1]])},
    ]
    alive = np.array([[True, True], [False, True]])
    details, change = describer.describe_rollout({"mastery": 0.4}, outcomes, alive)
    assert details == "first difficulties 0.4 0.4; mastery by step 0.60 0.70"
    assert change == "mastery +0.300"


def test_a_room_is_told_by_the_copies_that_reached_goal_or_lava():
    describer = MiniGridDescriber(PARAMS)
    no, yes = np.array([False] * 4), np.array([True, False, False, True])
    outcomes = [{"success": no, "lava": yes}, {"success": np.array([True] * 4), "lava": no}]
    # Two copies are on lava after one step, so that the second step is not theirs.
    alive = np.array([[True] * 4, [False, True, True, False]])
    _, change = describer.describe_rollout({}, outcomes, alive)
    assert change == "goal in 50% and lava in 50% of copies"


@pytest.mark.parametrize(
    ("outcome", "change"),
    [
        ({"success": True, "lava": False, "gold_collected": 2}, "reached the goal"),
        ({"success": False, "lava": True, "gold_collected": 0}, "stepped onto lava"),
        ({"success": False, "lava": False, "gold_collected": 1}, "gold left 1"),
    ],
)
def test_a_step_in_a_room_is_told_by_what_it_led_to(outcome, change):
    assert MiniGridDescriber(PARAMS).describe_change({}, outcome) == change


def test_a_step_with_a_student_is_told_by_the_mastery_that_it_won():
    change = EducationDescriber(PARAMS).describe_change({"mastery": 0.5}, {"mastery_after": 0.6})
    assert change == "mastery +0.100"


def test_gold_of_a_step_stays_what_it_was_when_more_is_collected():
    """The environment counts in place; a record must not change afterwards."""
    episode_set = make_episode_set("minigrid", num_episodes=12)
    played = episode_set.play(WatchedModel(), make_options("minigrid", ""))
    for _, steps in played.steps.groupby("episode"):
        collected = steps["gold_collected"].to_numpy()
        gains = np.diff(collected, prepend=0)
        assert (gains == (steps["result_2"] * 2).to_numpy()).all()
