"""Three ways to pay an episode, by hand, and what a training learns from."""

import numpy as np
import pytest
from lib.tool_orchestration.variants import NAMED

from lib.tool_orchestration import rewards, tool_environment, variants
from lib.tool_orchestration.tool_environment import OwnTokenPrice
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

OWN = OwnTokenPrice(1e-8, 0.001)
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
        return [played(made, assigned, *turns, own=OWN) for turns in TURNS]


def spent(episodes) -> tuple[np.ndarray, np.ndarray]:
    return np.array([tool_environment.compute_total_cost(e, OWN) for e in episodes]), np.array(
        [e.seconds for e in episodes]
    )


def test_the_matrix_has_calls_by_tool_outcome_and_all_that_was_spent(episodes):
    m, wanted = variants.make_vectors(episodes, NAMES, OWN)
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
    own = 1e-8 * np.array(
        [len(e.ids) for e in episodes]
    )  # with what the orchestrator reads and writes
    assert cost_usd - own == pytest.approx(np.array([e.cost_usd for e in episodes]))


def test_the_paper_and_the_published_error_by_hand(episodes):
    """All in one group: a right one's liked calls, outcome, cost and latency between the least and the most."""
    cost_usd, seconds = spent(episodes)

    def between(values, low, high):
        return (values - low) / (high - low)

    liked, outcome = between(np.array([1, 0, 1, 1, 4]), 0, 4), np.array([1, 1, 0, 1, 0])
    for name, sign in (("paper", -1), ("published", 1)):
        costs = [between(sign * x, -x.max(), -x.min()) for x in (cost_usd, seconds)]
        expected = outcome * (liked + outcome + 0.5 * costs[0] + 0.25 * costs[1])
        assert variants.compute_rewards(
            NAMED[name], episodes, [7] * 5, NAMES, OWN, 0.0
        ) == pytest.approx(expected)


def test_corl_pays_what_is_right_and_within_the_budget(episodes):
    cost_usd, _ = spent(episodes)
    for budget, expected in (
        (0.0, [0] * 5),
        (cost_usd[0], [1, 0, 0, 0, 0]),
        (cost_usd.max(), [1, 1, 0, 1, 0]),
    ):
        assert (
            variants.compute_rewards(NAMED["corl"], episodes, [0] * 5, NAMES, OWN, budget).tolist()
            == expected
        )


def test_what_is_learned_has_no_malformed_calls_and_no_missing_answers(episodes):
    for name in ("paper", "published"):
        samples, kept = variants.select_samples(
            NAMED[name], episodes, [3] * 5, REWARDS, rewards.MIN_GROUP_STD
        )
        assert kept.rows.tolist() == [0, 1, 2] and (
            kept.malformed,
            kept.unanswered,
            kept.agreeing,
        ) == (1, 1, 0)
        assert [(s.ids, s.mask, s.reward, s.group) for s in samples] == [
            (e.ids, e.mask, r, 3) for e, r in zip(episodes[:3], REWARDS, strict=False)
        ]


def test_a_lenient_training_leaves_out_only_groups_that_agree(episodes):
    samples, kept = variants.select_samples(
        NAMED["lenient"], episodes, [0, 0, 0, 1, 1], REWARDS, rewards.MIN_GROUP_STD
    )
    assert [s.ids for s in samples] == [e.ids for e in episodes] and kept.agreeing == 0
    samples, kept = variants.select_samples(
        NAMED["lenient"], episodes, [0, 0, 0, 1, 1], REWARDS * [1, 1, 1, 0, 0], 0.1
    )
    assert [s.ids for s in samples] == [e.ids for e in episodes[:3]] and kept.agreeing == 2
    paid = [
        variants.compute_rewards(NAMED[n], episodes, [0] * 5, NAMES, OWN, 0.0).tolist()
        for n in ("paper", "lenient")
    ]
    assert paid[0] == paid[1]


def test_under_corls_reward_everything_is_learned_from(episodes):
    samples, kept = variants.select_samples(
        NAMED["corl"], episodes, [0, 0, 1, 1, 1], np.zeros(5), rewards.MIN_GROUP_STD
    )
    assert [(s.ids, s.group) for s in samples] == [
        (e.ids, g) for e, g in zip(episodes, [0, 0, 1, 1, 1], strict=True)
    ]
    assert (kept.malformed, kept.unanswered, kept.agreeing) == (1, 1, 3)  # it is said all the same


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
    m, _ = variants.make_vectors([episode], NAMES, OWN)
    assert m[0, :-3].tolist() == [0] * len(NAMES) and offers()["lookup"].name in NAMES
