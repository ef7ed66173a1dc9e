"""The reward of an episode, by hand, and what a training learns from."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lib.tool_orchestration import episode_rewards, rewards
from lib.tool_orchestration.tool_menu import UserPreference
from tests.tool_orchestration import common
from tests.tool_orchestration.common import (
    NAMES,
    answer,
    at_work,
    call,
    given,
    item,
    offers,
    played,
)

BIG = item("big", 1)
WHO = UserPreference(1.0, 0.5, 0.25, ("calculator",))
RIGHT, WRONG = answer(BIG.reference), answer("0")
PYTHON, CALCULATOR = call("python", "1 + 1"), call("calculator", "1 + 1")
TURNS = [  # of one example
    (CALCULATOR, RIGHT),
    (PYTHON, PYTHON, RIGHT),
    (CALCULATOR, WRONG),
    ("<think>", CALCULATOR, RIGHT),
    (CALCULATOR, CALCULATOR, CALCULATOR, CALCULATOR, CALCULATOR),  # never answers
]
REWARDS = np.array([1.0, 0.5, 0.0, 1.0, 0.0])


@pytest.fixture(scope="module")
def episodes():
    assigned = given(BIG, "calculator", "python", preference=WHO)
    with at_work() as made:
        return [played(made, assigned, *turns) for turns in TURNS]


def spent(episodes) -> tuple[np.ndarray, np.ndarray]:
    cost_usd = np.array([episode.cost_usd for episode in episodes])
    return cost_usd, np.array([episode.seconds for episode in episodes])


def test_the_matrix_has_calls_by_tool_outcome_and_all_that_was_spent(episodes):
    m, wanted = episode_rewards.make_vectors(episodes, NAMES)
    cost_usd, seconds = spent(episodes)
    at, py = NAMES.index("calculator"), NAMES.index("python")
    assert m.shape == wanted.shape == (5, len(NAMES) + 3)
    assert (
        m[:, at].tolist() == [1, 0, 1, 1, 4]
        and m[:, py].tolist() == [0, 2, 0, 0, 0]
        and m[:, :-3].sum() == 9
    )
    assert m[:, -3].tolist() == [1, 1, 0, 1, 0]
    assert (-m[:, -2]).tolist() == cost_usd.tolist() and (-m[:, -1]).tolist() == seconds.tolist()
    assert wanted.tolist() == [WHO.vector(NAMES).tolist()] * 5


def test_the_reward_of_the_paper_by_hand(episodes):
    """All in one group: a right one's liked calls, outcome, cost and latency between the least and the most."""
    cost_usd, seconds = spent(episodes)

    def scale_between(values, lowest, highest):
        return (values - lowest) / (highest - lowest)

    liked = scale_between(np.array([1, 0, 1, 1, 4]), 0, 4)
    outcome = np.array([1, 1, 0, 1, 0])
    cheap = scale_between(-cost_usd, -cost_usd.max(), -cost_usd.min())
    fast = scale_between(-seconds, -seconds.max(), -seconds.min())
    expected = outcome * (liked + outcome + 0.5 * cheap + 0.25 * fast)
    computed = episode_rewards.compute_rewards(episodes, [7] * 5, NAMES)
    assert computed == pytest.approx(expected)


def test_what_is_learned_has_no_malformed_calls_and_no_missing_answers(episodes):
    samples, filtered = episode_rewards.select_samples(
        episodes, [3] * 5, REWARDS, rewards.MIN_GROUP_STD
    )
    assert filtered.rows.tolist() == [0, 1, 2]
    assert (filtered.malformed, filtered.unanswered, filtered.agreeing) == (1, 1, 0)
    learned = [(sample.ids, sample.mask, sample.reward, sample.group) for sample in samples]
    expected = []
    for episode, reward in zip(episodes[:3], REWARDS, strict=False):
        expected.append((episode.ids, episode.mask, reward, 3))
    assert learned == expected


def test_groups_that_agree_teach_nothing_and_lost_episodes_have_no_reward(episodes):
    lost = replace(episodes[0], correct=math.nan)
    groups = np.array([0, 0, 0, 1])
    update = episode_rewards.make_update_data(
        [*episodes[:3], lost], groups, NAMES, rewards.MIN_GROUP_STD, step=4
    )
    assert update.counts == {"kept": 3, "malformed": 0, "unanswered": 0, "agreeing": 0}
    assert math.isnan(update.rollouts["reward"].iloc[3])
    assert update.rollouts["rollout_group"].tolist() == [0, 0, 0, 1]
    assert update.rollouts["step"].eq(4).all()

    each_by_itself = episode_rewards.make_update_data(
        episodes[:3], np.arange(3), NAMES, rewards.MIN_GROUP_STD, step=0
    )
    assert each_by_itself.samples == [] and each_by_itself.counts["agreeing"] == 3


def test_calls_of_an_office_have_no_place_in_the_vector():
    """The office's lookup has the name of a tool, and is none that a user may like."""
    task = common.office(changes=False)
    (name, *words), who = task.calls[0], UserPreference(1.0, 0.0, 0.0, ("lookup",))
    with at_work() as made:
        episode = played(
            made,
            given(task, "search", preference=who),
            call(name, " ".join(words)),
            answer(task.answer),
        )
    assert name == "lookup" and episode.correct == 1.0
    m, _ = episode_rewards.make_vectors([episode], NAMES)
    assert m[0, :-3].tolist() == [0] * len(NAMES) and offers()["lookup"].name in NAMES
