"""The reward of a rollout: what the paper's formulas say by hand, what follows from them, and the published error."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.rl.losses import compute_group_advantages
from lib.tool_orchestration import rewards

SHARE = st.floats(0, 1)
AMOUNT = st.floats(1e-7, 10)


def m(*rows) -> np.ndarray:
    """M, from rows of (calls, right, dollars, seconds)."""
    calls, correct, cost_usd, seconds = zip(*rows, strict=True)
    return rewards.make_outcome_vectors(
        np.array(calls, float), np.array(correct, float), np.array(cost_usd), np.array(seconds)
    )


@st.composite
def groups(draw, least: int = 1, most: int = 4, tools: int = 2):
    """Rollouts of a few groups, shuffled: M, ids of groups, and P, which is one within a group."""
    sizes = draw(st.lists(st.integers(least, most), min_size=1, max_size=3))
    ids = draw(st.permutations([g for g, size in enumerate(sizes) for _ in range(size)]))
    row = st.tuples(
        st.tuples(*[st.integers(0, 3)] * tools), st.sampled_from([0.0, 1.0]), AMOUNT, AMOUNT
    )
    made = m(*draw(st.lists(row, min_size=len(ids), max_size=len(ids))))
    users = [draw(st.lists(SHARE, min_size=tools + 3, max_size=tools + 3)) for _ in sizes]
    return made, ids, np.array([users[g] for g in ids])


def paid(made, ids, wanted, normalise=rewards.normalize_within_groups) -> np.ndarray:
    return rewards.compute_preference_rewards(normalise(made, ids), wanted, made[:, -3])


def test_every_entry_lies_between_the_least_and_the_most_of_its_group_by_hand():
    made = m(
        ([0, 4], 1, 1.0, 8.0), ([2, 4], 0, 3.0, 4.0), ([1, 4], 1, 2.0, 0.0), ([9, 9], 1, 9.0, 9.0)
    )
    expected = [[0, 0, 1, 1, 0], [1, 0, 0, 0, 0.5], [0.5, 0, 1, 0.5, 1], [0, 0, 0, 0, 0]]
    assert (
        rewards.normalize_within_groups(made, [5, 5, 5, 2]).tolist() == expected
    )  # the last one is a group of its own


@given(groups())
def test_entries_lie_in_0_to_1_and_the_extremes_of_a_group_are_reached(told):
    made, ids, _ = told
    norm = rewards.normalize_within_groups(made, ids)
    assert ((norm >= 0) & (norm <= 1)).all()
    for group in set(ids):
        rows = np.array(ids) == group
        for k in range(made.shape[1]):
            column = made[rows, k]
            expected = {0.0} if column.min() == column.max() else {0.0, 1.0}
            assert {norm[rows, k].min(), norm[rows, k].max()} == expected


@given(groups(least=2), AMOUNT, st.sampled_from([-2, -1]))
def test_of_two_right_rollouts_the_cheaper_or_faster_is_paid_more_and_by_the_published_error_the_other(
    told, other, k
):
    made, ids, wanted = told
    two = next(i for i in range(1, len(ids)) if ids[i] == ids[0])
    made[two] = made[0]
    made[[0, two], -3] = 1.0
    made[two, k] = -other
    less, more = (0, two) if made[0, k] >= made[two, k] else (two, 0)
    correct, wrong = (
        paid(made, ids, wanted, n)
        for n in (rewards.normalize_within_groups, rewards.normalize_with_sign_error)
    )
    assert correct[less] >= correct[more]
    if made[less, k] == made[more, k]:
        assert correct[less] == correct[more]
    elif wanted[0, k] > 0.01 and made[less, k] - made[more, k] > 0.01:
        assert correct[less] > correct[more] and wrong[less] < wrong[more]


@given(groups())
def test_wrong_earns_exactly_nothing_and_right_never_less(told):
    made, ids, wanted = told
    for normalise in (rewards.normalize_within_groups, rewards.normalize_with_sign_error):
        told = paid(made, ids, wanted, normalise)
        assert (told[made[:, -3] == 0] == 0).all() and (told >= 0).all()


@given(groups(), st.data())
def test_a_group_is_told_by_its_id_wherever_its_rollouts_stand(told, data):
    """Rows shuffled with their ids: rewards, what is kept and advantages are shuffled alike."""
    made, ids, wanted = told
    order = np.array(data.draw(st.permutations(range(len(ids)))))
    ids = np.array(ids)
    names = np.array(data.draw(st.permutations([0, 7, 12, 99])))[ids]  # whatever the ids are
    for normalise in (rewards.normalize_within_groups, rewards.normalize_with_sign_error):
        before, after = (
            paid(made, ids, wanted, normalise),
            paid(made[order], names[order], wanted[order], normalise),
        )
        assert after.tolist() == before[order].tolist()
        one = compute_group_advantages(torch.tensor(before), ids.tolist())[order]
        two = compute_group_advantages(torch.tensor(after), names[order].tolist())
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_the_published_error_by_hand():
    """(c + c_max) / (c_max - c_min) for dollars and for seconds; calls and outcome as they should be."""
    made = m(([0], 1, 2.0, 1.0), ([2], 1, 6.0, 5.0), ([1], 0, 4.0, 1.0), ([3], 1, 7.0, 7.0))
    norm = rewards.normalize_with_sign_error(made, [1, 1, 1, 0])
    assert (
        norm[:, :2].tolist() == rewards.normalize_within_groups(made, [1, 1, 1, 0])[:, :2].tolist()
    )
    assert norm[:, 2].tolist() == [(2 + 6) / 4, (6 + 6) / 4, (4 + 6) / 4, 0.0]
    assert norm[:, 3].tolist() == [(1 + 5) / 4, (5 + 5) / 4, (1 + 5) / 4, 0.0]


def test_the_evaluation_by_hand():
    """M_s / max(1, M_0) for calls and outcome, M_0 / max(1, M_s) for what is spent, in millionths and thousandths."""
    start = m(([0, 4], 0, 5e-6, 0.8), ([1, 2], 1, 0.0, 0.01), ([3, 0], 1, 9e-6, 0.0005))
    after = m(([3, 2], 1, 2e-6, 0.2), ([0, 2], 1, 3e-6, 0.0002), ([2, 5], 0, 2e-7, 0.4))
    expected = [
        [3 / 1, 2 / 4, 1 / 1, 5 / 2, 800 / 200],
        [0 / 1, 2 / 2, 1 / 1, 0 / 3, 10 / 1],  # 0.2 ms count as one
        [2 / 3, 5 / 1, 0 / 1, 9 / 1, 0.5 / 400],  # 0.2 millionths count as one
    ]
    assert rewards.normalize_against_start(after, start) == pytest.approx(np.array(expected))
    wanted = np.array([[0, 1, 1, 1, 0], [1, 1, 1, 0.5, 0.5], [1, 1, 1, 1, 1]])
    told = rewards.compute_preference_scores(after, start, wanted)
    assert told == pytest.approx([0.5 + 1 + 2.5, 1 + 1 + 0.5 * 10, 0.0])


@given(groups(least=2), st.floats(1.5, 4), st.sampled_from([-2, -1]))
def test_whoever_spends_less_than_before_never_scores_less(told, factor, k):
    start, _, wanted = told
    less = start.copy()
    less[:, k] /= factor
    assert (
        rewards.compute_preference_scores(less, start, wanted)
        >= rewards.compute_preference_scores(start, start, wanted) - 1e-12
    ).all()


def test_filters_by_hand():
    """Malformed ones first, then those without an answer, then groups whose other rollouts agree."""
    rows = [  # reward, group, malformed, answered
        (1.0, 0, False, True),
        (0.0, 0, False, True),
        (0.5, 0, True, False),  # both: it counts as malformed
        (0.5, 0, False, False),
        (1.0, 1, False, True),  # would disagree with the next two, but those are left out
        (0.0, 1, True, True),
        (0.0, 1, False, False),
        (0.70, 2, False, True),  # they deviate by less than .1
        (0.75, 2, False, True),
        (0.70, 3, False, True),  # and by more
        (0.95, 3, False, True),
        (0.0, 4, True, True),  # nothing is left of it, and nobody agrees
    ]
    given, ids, malformed, answered = (np.array(column) for column in zip(*rows, strict=True))
    kept = rewards.filter_rollouts(given, ids, malformed, answered)
    assert kept.rows.tolist() == [0, 1, 9, 10]
    assert (kept.malformed, kept.unanswered, kept.agreeing) == (3, 2, 3)
    assert rewards.filter_rollouts(given, ids, malformed, answered, 0.0).rows.tolist() == [
        0,
        1,
        4,
        7,
        8,
        9,
        10,
    ]
    assert rewards.filter_rollouts(given, ids, malformed, answered, 0.2).rows.tolist() == [0, 1]


@given(groups(), st.data())
def test_filters_do_not_mind_the_order_of_rollouts(told, data):
    _, ids, _ = told
    n, ids = len(ids), np.array(ids)
    order = np.array(data.draw(st.permutations(range(n))))
    given = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n)))
    bad, said = (
        np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n))) for _ in range(2)
    )
    before = rewards.filter_rollouts(given, ids, bad, said)
    after = rewards.filter_rollouts(given[order], ids[order], bad[order], said[order])
    assert sorted(order[after.rows].tolist()) == before.rows.tolist()
    counts = [(k.malformed, k.unanswered, k.agreeing) for k in (before, after)]
    assert counts[0] == counts[1] and len(before.rows) + sum(counts[0]) == n


@given(
    groups(), st.sampled_from([-1e-9, -1.0, 1.0 + 1e-9, 5.0, float("inf"), float("nan")]), st.data()
)
def test_preferences_out_of_0_to_1_are_refused(told, wrong, data):
    made, ids, wanted = told
    wanted[data.draw(st.integers(0, len(ids) - 1)), data.draw(st.integers(0, 4))] = wrong
    with pytest.raises(ValueError, match="preferences"):
        paid(made, ids, wanted)


@given(groups(least=2))
def test_a_bounded_score_lies_in_0_to_1_and_1_half_is_what_the_start_has_for_cost_and_latency(told):
    start, _, wanted = told
    scores = rewards.compute_bounded_scores(start, start, wanted)
    assert ((scores >= 0) & (scores <= 1)).all()
    only_cost = np.zeros_like(wanted)
    only_cost[:, rewards.COST_INDEX] = 1.0
    scores = rewards.compute_bounded_scores(start, start, only_cost)
    assert scores == pytest.approx(0.5 * start[:, rewards.OUTCOME_INDEX])


def test_a_bounded_score_by_hand():
    """A quarter of the start's cost is worth .8, whatever the unit; half of its calls of a liked tool is worth .5."""
    start = m(([2], 1, 4e-6, 1.0))
    after = m(([1], 1, 1e-6, 1.0))
    preferences = np.array([[1.0, 0.0, 1.0, 0.0]])
    assert rewards.compute_bounded_scores(after, start, preferences) == pytest.approx([0.65])
    free = m(([1], 1, 0.0, 1.0))
    assert rewards.compute_bounded_scores(free, start, preferences) == pytest.approx([0.75])
