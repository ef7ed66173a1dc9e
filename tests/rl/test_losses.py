"""The losses and advantages that trainers share: by hand, by the definition, and blind to what others wrote."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.rl import losses
from lib.rl.losses import compressed, group_advantages, masked_gae, spread, whitened

JUNK = st.floats(-1e6, 1e6, width=32)
VALUE = st.floats(-2, 2, width=32)
SHARE = st.floats(0, 1)


# The clipped objective ----------------------------------------------------------------------------

RATIOS = [
    (1.0, 2.0, 2.0), (1.1, 2.0, 2.2), (1.5, 2.0, 2.4), (0.5, 2.0, 1.0),
    (1.0, -2.0, -2.0), (0.9, -2.0, -1.8), (0.5, -2.0, -1.6), (1.5, -2.0, -3.0),
]  # fmt: skip


@pytest.mark.parametrize("ratio, advantage, gain", RATIOS)
def test_a_gain_is_clipped_where_the_policy_went_too_far_for_its_own_good(ratio, advantage, gain):
    new, old = torch.tensor([0.3 * ratio]).log().requires_grad_(), torch.tensor([0.3]).log()
    made = losses.clipped(new, old, torch.tensor([advantage]), 0.2)
    made.backward()
    assert made.item() == pytest.approx(gain, rel=1e-5)
    beyond = ratio > 1.2 if advantage > 0 else ratio < 0.8
    assert new.grad.item() == pytest.approx(0.0 if beyond else ratio * advantage, rel=1e-5)


def test_each_row_may_have_its_own_clip():
    new, clip = torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log(), torch.tensor([[0.2], [0.6]])
    made = losses.clipped(new, torch.zeros(2, 2), torch.tensor([[1.0, -1.0], [1.0, -1.0]]), clip)
    torch.testing.assert_close(made, torch.tensor([[1.2, -0.8], [1.5, -0.5]]))


# GAE over steps -----------------------------------------------------------------------------------


def test_an_episode_that_ends_hides_what_follows_and_one_that_goes_on_counts_the_last_value():
    """gamma 1/2, lambda 1/2: deltas are 1 + 1 - 1, 2 - 2 (its end) and 3 + 2 - 4; values 1, 2, 4, then 4."""
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    alive = torch.tensor([[1.0, 0.0, 1.0]])
    advantages, returns = losses.gae(rewards, values, alive, torch.tensor([4.0]), 0.5, 0.5)
    assert advantages.tolist() == [[1.0, 0.0, 1.0]] and returns.tolist() == [[2.0, 2.0, 5.0]]


# Own tokens: rows of any mask ---------------------------------------------------------------------


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
        (reward if t == n - 1 else 0.0) + gamma * (values[t + 1] if t + 1 < n else 0.0) - values[t]
        for t in range(n)
    ]
    return [sum((gamma * lam) ** k * deltas[t + k] for k in range(n - t)) for t in range(n)]


@given(rows(), SHARE, SHARE, st.lists(VALUE, min_size=5, max_size=5))
@settings(deadline=None, max_examples=60)
def test_gae_equals_its_definition(told, gamma, lam, paid):
    values, mask = tensors(told)
    advantages, returns = masked_gae(torch.tensor(paid)[: len(told)], values, mask, gamma, lam)
    for row, own, reward, a, r in zip(values, mask, paid, advantages, returns, strict=False):
        v = row[own].tolist()
        expected = naive(reward, v, gamma, lam)
        np.testing.assert_allclose(a[own], expected, atol=1e-4)
        np.testing.assert_allclose(r[own], np.add(expected, v), atol=1e-4)
        assert not a[~own].any() and not r[~own].any()


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
    for one, other in zip(
        masked_gae(rewards, v1, m1, gamma, lam),
        masked_gae(rewards, v2, m2, gamma, lam),
        strict=True,
    ):
        for a, b, own1, own2 in zip(one, other, m1, m2, strict=True):
            assert torch.equal(a[own1], b[own2])


def test_values_that_are_no_numbers_do_no_harm_where_nobody_of_ours_speaks():
    values = torch.tensor([[float("nan"), 0.5, float("inf"), 0.25]])
    mask = torch.tensor([[False, True, False, True]])
    advantages, returns = masked_gae(torch.tensor([1.0]), values, mask, 1.0, 1.0)
    assert advantages.tolist() == [[0, 0.5, 0, 0.75]] and returns.tolist() == [[0, 1, 0, 1]]


# Groups -------------------------------------------------------------------------------------------


def test_group_advantages_equal_a_case_by_hand():
    """Group 7: 1, 0, 0 with mean 1/3 and deviation 1/sqrt(3), of a sample as TRL's; group 3: 0.5 and 1.5."""
    told = group_advantages(torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7])
    third, half = 3**-0.5 + 1e-4, 0.5**0.5 + 1e-4
    assert told.tolist() == pytest.approx(
        [2 / 3 / third, -0.5 / half, -1 / 3 / third, 0.5 / half, -1 / 3 / third]
    )
    told = group_advantages(torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7], divide=False)
    assert told.tolist() == pytest.approx([2 / 3, -0.5, -1 / 3, 0.5, -1 / 3])


def test_groups_that_stand_beside_each_other_need_no_ids():
    rewards = torch.rand(12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        group_advantages(rewards, 4), group_advantages(rewards, [i // 4 for i in range(12)])
    )


def test_arc_divides_squares_by_n():
    """Ids 4 and 9 are whole numbers; the third group has deviation sqrt(2/9) * 3 (ARC, appendix H)."""
    rewards, groups = (
        torch.tensor([1.0, 5.0, 3.0, 5.0, 0.0, 0.0, 3.0]),
        torch.tensor([4, 9, 4, 9, 7, 7, 7]),
    )
    expected = [-1.0, 0.0, 1.0, 0.0, -(0.5**0.5), -(0.5**0.5), 2**0.5]
    told = group_advantages(rewards, groups, correction=0, least=1e-8)
    assert told.tolist() == pytest.approx(expected, abs=1e-6)


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
    torch.testing.assert_close(
        mixed, straight[order], atol=1e-3, rtol=1e-3
    )  # sums in another order


@pytest.mark.parametrize("divide", [True, False])
def test_a_group_that_agrees_and_a_group_of_one_get_nothing(divide):
    told = group_advantages(torch.tensor([1.0, 1.0, 0.3, 0.0, 1.0]), [0, 0, 1, 2, 2], divide)
    assert told[:3].tolist() == [0, 0, 0] and told[3] < 0 < told[4]


# Whitening ----------------------------------------------------------------------------------------


def test_whitening_by_hand():
    """1, 3 and 5: mean 3, deviation sqrt(8/3)."""
    step = 2 / (8 / 3) ** 0.5
    torch.testing.assert_close(
        whitened(torch.tensor([1.0, 5.0, 3.0])), torch.tensor([-step, step, 0])
    )
    assert not whitened(torch.full((3,), 2.0)).any()  # no deviation


def test_rows_are_whitened_each_by_itself():
    told = whitened(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), dim=1, correction=1)
    torch.testing.assert_close(told, torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]) / 2**0.5)
