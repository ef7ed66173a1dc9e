"""Advantages over a controller's own tokens: by hand, by the definition, and blind to what others wrote."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.routing.learn import averaged, compressed, gae, group_advantages, spread, whitened
from tests.routing import small

JUNK = st.floats(-1e6, 1e6, width=32)
VALUE = st.floats(-2, 2, width=32)
SHARE = st.floats(0, 1)


@st.composite
def rows(draw, most: int = 5) -> list[list[tuple[bool, float]]]:
    """Rows of tokens (own?, V), each with at least one own token and a token that is not."""
    out = []
    for _ in range(draw(st.integers(1, most))):
        tokens = draw(st.lists(st.tuples(st.booleans(), VALUE), max_size=10))
        tokens.insert(draw(st.integers(0, len(tokens))), (True, draw(VALUE)))
        out.append([(False, draw(JUNK)), *tokens])
    return out


def tensors(told: list[list[tuple[bool, float]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """values and mask, padded on the right."""
    width = max(map(len, told))
    padded = [[*row, *[(False, 0.0)] * (width - len(row))] for row in told]
    return torch.tensor([[v for _, v in row] for row in padded]), torch.tensor(
        [[own for own, _ in row] for row in padded]
    )


# Own tokens alone ---------------------------------------------------------------------------------


def test_own_entries_move_to_the_left():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    mask = torch.tensor([[False, True, False, True], [False, False, True, False]])
    assert compressed(values, mask).tolist() == [[2.0, 4.0], [7.0, 0.0]]
    assert spread(torch.tensor([[2.0, 4.0], [7.0, 9.0]]), mask).tolist() == [[0, 2, 0, 4], [0, 0, 7, 0]]


@given(rows())
@settings(deadline=None, max_examples=60)
def test_what_was_compressed_is_spread_as_it_was(told):
    values, mask = tensors(told)
    left = compressed(values, mask)
    assert torch.equal(spread(left, mask), torch.where(mask, values, 0.0))
    assert torch.equal(compressed(spread(left, mask), mask), left)
    assert left.shape[1] == mask.sum(1).max()


# GAE ----------------------------------------------------------------------------------------------


def naive(reward: float, values: list[float], gamma: float, lam: float) -> list[float]:
    """A_t as the sum of (gamma lam)^l delta_{t+l}, in a double loop."""
    n = len(values)
    deltas = [
        (reward if t == n - 1 else 0.0) + gamma * (values[t + 1] if t + 1 < n else 0.0) - values[t] for t in range(n)
    ]
    return [sum((gamma * lam) ** k * deltas[t + k] for k in range(n - t)) for t in range(n)]


def test_gae_equals_a_case_by_hand():
    """gamma 1/2, lambda 1/2, V = 1, 2, 4 and a reward of 8: delta = 0, 0, 4; A = 1/4, 1, 4; returns = A + V."""
    mask = torch.tensor([[False, True, False, True, True, False]])
    values = torch.tensor([[9.0, 1.0, 9.0, 2.0, 4.0, 9.0]])
    advantages, returns = gae(torch.tensor([8.0]), values, mask, 0.5, 0.5)
    assert advantages.tolist() == [[0, 0.25, 0, 1.0, 4.0, 0]]
    assert returns.tolist() == [[0, 1.25, 0, 3.0, 8.0, 0]]


@given(rows(), SHARE, SHARE, st.lists(VALUE, min_size=5, max_size=5))
@settings(deadline=None, max_examples=60)
def test_gae_equals_its_definition(told, gamma, lam, paid):
    values, mask = tensors(told)
    advantages, returns = gae(torch.tensor(paid)[: len(told)], values, mask, gamma, lam)
    for row, own, reward, a, r in zip(values, mask, paid, advantages, returns, strict=False):
        v = row[own].tolist()
        expected = naive(reward, v, gamma, lam)
        np.testing.assert_allclose(a[own], expected, atol=1e-4)
        np.testing.assert_allclose(r[own], np.add(expected, v), atol=1e-4)
        assert not a[~own].any() and not r[~own].any()


@given(rows(), st.lists(VALUE, min_size=5, max_size=5))
@settings(deadline=None, max_examples=60)
def test_without_discount_the_advantage_is_what_was_paid_less_what_was_expected(told, paid):
    values, mask = tensors(told)
    rewards = torch.tensor(paid)[: len(told)]
    advantages, returns = gae(rewards, values, mask, 1.0, 1.0)
    torch.testing.assert_close(advantages, (rewards[:, None] - values) * mask, atol=1e-4, rtol=0)
    torch.testing.assert_close(returns, rewards[:, None] * mask, atol=1e-4, rtol=0)


@given(rows(), SHARE, SHARE, st.lists(VALUE, min_size=5, max_size=5), st.data())
@settings(deadline=None, max_examples=60)
def test_tokens_of_others_change_no_bit_wherever_they_stand(told, gamma, lam, paid, data):
    """Bare rows of own tokens, and the same rows with anything between them."""
    bare = [[(own, v) for own, v in row if own] for row in told]
    rewards = torch.tensor(paid)[: len(told)]
    longer = []
    for row in bare:
        row = list(row)
        for _ in range(data.draw(st.integers(0, 8))):
            row.insert(data.draw(st.integers(0, len(row))), (False, data.draw(JUNK)))
        longer.append(row)
    (v1, m1), (v2, m2) = tensors(bare), tensors(longer)
    for one, other in zip(gae(rewards, v1, m1, gamma, lam), gae(rewards, v2, m2, gamma, lam), strict=True):
        for a, b, own1, own2 in zip(one, other, m1, m2, strict=True):
            assert torch.equal(a[own1], b[own2])


def test_values_that_are_no_numbers_do_no_harm_where_nobody_of_ours_speaks():
    values = torch.tensor([[float("nan"), 0.5, float("inf"), 0.25]])
    mask = torch.tensor([[False, True, False, True]])
    advantages, returns = gae(torch.tensor([1.0]), values, mask, 1.0, 1.0)
    assert advantages.tolist() == [[0, 0.5, 0, 0.75]] and returns.tolist() == [[0, 1, 0, 1]]


# Groups -------------------------------------------------------------------------------------------


def test_group_advantages_equal_a_case_by_hand():
    """Group 7: 1, 0, 0 with mean 1/3 and deviation 1/sqrt(3), of a sample as TRL's; group 3: 0.5 and 1.5."""
    told = group_advantages(torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7])
    third, half = 3**-0.5 + 1e-4, 0.5**0.5 + 1e-4
    assert told.tolist() == pytest.approx([2 / 3 / third, -0.5 / half, -1 / 3 / third, 0.5 / half, -1 / 3 / third])
    told = group_advantages(torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7], divide=False)
    assert told.tolist() == pytest.approx([2 / 3, -0.5, -1 / 3, 0.5, -1 / 3])


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=12),
    st.randoms(),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_groups_survive_any_order_of_the_rows(told, random, divide):
    order = list(range(len(told)))
    random.shuffle(order)
    rewards, groups = torch.tensor([r for r, _ in told]), [g for _, g in told]
    straight = group_advantages(rewards, groups, divide)
    mixed = group_advantages(rewards[order], [groups[i] for i in order], divide)
    torch.testing.assert_close(mixed, straight[order], atol=1e-3, rtol=1e-3)  # sums in another order


@pytest.mark.parametrize("divide", [True, False])
def test_a_group_that_agrees_and_a_group_of_one_get_nothing(divide):
    told = group_advantages(torch.tensor([1.0, 1.0, 0.3, 0.0, 1.0]), [0, 0, 1, 2, 2], divide)
    assert told[:3].tolist() == [0, 0, 0] and told[3] < 0 < told[4]


def test_every_row_of_a_batch_gets_its_own_groups_advantage_in_any_order():
    """The learner sorts by length and cuts into minibatches; groups are told by their ids."""
    samples = small.samples(9, groups=3)
    expected = group_advantages(torch.tensor([s.reward for s in samples]), [s.group for s in samples])
    wanted = {(tuple(s.ids), tuple(s.mask)): a for s, a in zip(samples, expected.tolist(), strict=True)}
    assert len(wanted) == 9 and len({round(a, 4) for a in wanted.values()}) > 2
    for shuffled in (samples, samples[::-1], samples[3:] + samples[:3]):
        made = small.learner(advantages="group", minibatch=4)
        parts = small.parts(made, shuffled)
        made._advantages(parts)
        seen = {}
        for part in parts:
            for ids, n, own, told in zip(part.ids, part.seen.sum(1), part.mask, part.advantages, strict=True):
                assert not told[~own].any() and len(set(told[own].tolist())) == 1
                seen[tuple(ids[:n].tolist()), (False, *own[: n - 1].tolist())] = float(told[own][0])
        assert seen == pytest.approx(wanted)


# Means --------------------------------------------------------------------------------------------

ADVANTAGES = torch.tensor([[1.0, 50.0, 3.0], [60.0, 5.0, 70.0]])
OWN = torch.tensor([[True, False, True], [False, True, False]])


def test_whitening_by_hand():
    """1, 3 and 5: mean 3, deviation sqrt(8/3)."""
    step = 2 / (8 / 3) ** 0.5
    torch.testing.assert_close(whitened(torch.tensor([1.0, 5.0, 3.0])), torch.tensor([-step, step, 0]))
    assert not whitened(torch.full((3,), 2.0)).any()  # no deviation


def test_the_learner_whitens_over_all_minibatches_of_an_update():
    samples = small.samples(8)
    made, whole = (small.learner(whiten=True, minibatch=m) for m in (3, 64))
    told = []
    for each in (made, whole):
        parts = small.parts(each, samples)
        for i, part in enumerate(parts):
            part.advantages = torch.sin(torch.arange(part.mask.numel()).view(part.mask.shape) + 5.0 * i) * part.mask
        before = torch.cat([part.advantages[part.mask] for part in parts])
        each._advantages(parts)
        after = torch.cat([part.advantages[part.mask] for part in parts])
        torch.testing.assert_close(after, (before - before.mean()) / before.std(correction=0))
        assert all(not part.advantages[~part.mask].any() for part in parts)
        told.append(len(parts))
    assert told == [3, 1]


def test_averages_by_hand():
    """By sequence: (2 + 5) / 2; by token: 9 / 3."""
    assert averaged(ADVANTAGES, OWN, "sequence") == 3.5 and averaged(ADVANTAGES, OWN, "token") == 3.0
