"""The Conductor's head: a distribution with a floor, through which gradients pass everywhere."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from lib.conductor.meta_policy import (
    Conductor,
    apply_floor,
    compute_emphasis_weights,
    compute_entropy,
    sample_actions,
)
from lib.experiment import seeds

K = 5


def conductor(bias=None, weight=None, width: int = 3, **options) -> Conductor:
    """A head whose logits are W h + b."""
    made = Conductor(width, K, **options)
    with torch.no_grad():
        if bias is not None:
            made.linear.bias.copy_(torch.tensor(bias))
        if weight is not None:
            made.linear.weight.copy_(torch.as_tensor(weight))
    return made


def uniforms(n: int) -> torch.Tensor:
    return torch.from_numpy(seeds.uniform(seeds.key("test of the head"), np.arange(n)))


def test_it_starts_without_an_opinion_and_at_the_temperature_that_was_asked_for():
    made = conductor(temperature=2.5)
    assert torch.allclose(made(torch.randn(4, 3)), torch.full((4, K), 1 / K))
    assert made.tau == pytest.approx(2.5)


def test_the_temperature_divides_the_logits_and_is_learned():
    bias, h = [2.0, 1.0, 0.0, -1.0, 0.5], torch.zeros(1, 3)
    made = conductor(bias, temperature=4.0, floor=0.0)
    assert torch.allclose(made(h)[0], (torch.tensor(bias) / 4).softmax(0))
    made(h)[0, 0].backward()
    assert made.log_tau.grad < 0  # colder is more of the best


@pytest.mark.parametrize("floor", [0.0, 1e-4, 0.05, 0.19])
def test_the_distribution_sums_to_one_and_nothing_in_it_is_below_the_floor(floor):
    for bias in ([50.0, -50.0, 0.0, 0.0, 0.0], [-50.0, 50.0, 50.0, -50.0, 50.0], [0.0] * K):
        p = conductor(bias, floor=floor).double()(torch.zeros(2, 3).double())
        assert p.shape == (2, K)
        assert torch.allclose(p.sum(-1), torch.ones(2).double(), atol=1e-12)
        assert (p >= floor * (1 - 1e-6)).all() and (p <= 1 - (K - 1) * floor + 1e-12).all()


def test_the_floor_lets_gradients_through_where_a_clamp_would_stop_them():
    """All but one of the softmax's entries lie below the floor: a clamp would leave them without a gradient."""
    made = conductor([50.0, -50.0, 0.0, 10.0, 20.0], floor=1e-2).double()
    for action in range(1, K):
        made.zero_grad()
        made(torch.zeros(3).double())[action].log().backward()
        assert (made.linear.bias.grad[action] > 0) and (made.linear.bias.grad[0] < 0), action


@pytest.mark.parametrize("floor", [0.2, 0.3, -1e-9])
def test_a_floor_that_leaves_nothing_to_distribute_is_refused(floor):
    with pytest.raises(ValueError, match="5 actions"):
        Conductor(3, K, floor=floor)


# Drawing ------------------------------------------------------------------------------------------


def test_drawn_actions_follow_the_distribution():
    """Chi-square with 4 degrees of freedom, for two distributions that alternate."""
    n = 20_000
    p = torch.tensor([[0.5, 0.3, 0.1, 0.07, 0.03], [0.01, 0.01, 0.9, 0.01, 0.07]]).repeat(n, 1)
    drawn = sample_actions(p, uniforms(2 * n)).view(n, 2)
    for column, wanted in zip(drawn.T, p[:2].double(), strict=True):
        observed = torch.bincount(column, minlength=K)
        assert ((observed - n * wanted) ** 2 / (n * wanted)).sum() < 18.5  # one in a thousand


def test_the_ends_of_the_uniform_numbers_draw_the_first_and_the_last_possible_action():
    p = torch.tensor([[0.0, 0.4, 0.6, 0.0, 0.0], [0.2] * K])
    assert sample_actions(p, torch.zeros(2, dtype=torch.float64)).tolist() == [1, 0]
    assert sample_actions(p, torch.full((2,), 1 - 1e-16, dtype=torch.float64)).tolist() == [2, 4]


# Emphasis -----------------------------------------------------------------------------------------


def test_kappa_leads_from_the_distribution_to_the_drawn_action_alone():
    p, action = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]), torch.tensor([3, 1])
    one_hot = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    assert torch.equal(compute_emphasis_weights(p, action, 0.0), p)
    assert torch.equal(compute_emphasis_weights(p, action, 1.0), one_hot)
    assert torch.allclose(compute_emphasis_weights(p, action, 0.5), (p + one_hot) / 2)


numbers = st.floats(-1e30, 1e30)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(numbers, min_size=3, max_size=3),
    st.lists(st.floats(-50, 50), min_size=K, max_size=K),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.floats(0, 0.2, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)
def test_weights_stay_on_the_simplex_whatever_the_state(h, bias, seed, kappa, floor, uniform):
    assume(floor * K < 1)
    weight = torch.randn(K, 3, generator=torch.Generator().manual_seed(seed))
    p = conductor(bias, weight, floor=floor)(torch.tensor([h]))
    action = sample_actions(p, torch.tensor([uniform], dtype=torch.float64))
    w = compute_emphasis_weights(p, action, kappa)[0].detach()
    assert torch.isfinite(w).all() and float(w.sum()) == pytest.approx(1, abs=1e-5)
    assert (w >= (1 - kappa) * floor - 1e-6).all() and (w <= 1 + 1e-6).all()
    assert w[action] >= kappa - 1e-6


# Entropy ------------------------------------------------------------------------------------------


def test_the_entropy_is_in_nats():
    assert float(compute_entropy(torch.full((K,), 1 / K))) == pytest.approx(np.log(K))
    assert float(compute_entropy(torch.tensor([0.5, 0.25, 0.25]))) == pytest.approx(1.5 * np.log(2))


def test_without_a_floor_a_certain_distribution_has_no_entropy_and_a_finite_gradient():
    """params.yaml may say floor: 0, and a softmax in 32 bits does reach 0."""
    logits = nn.Parameter(torch.tensor([200.0, 0.0, 0.0]))
    value = compute_entropy(apply_floor(logits.softmax(-1), 0.0))
    assert float(value.detach()) == 0.0
    value.backward()
    assert torch.isfinite(logits.grad).all()


def test_the_log_probability_is_that_of_the_distribution_with_its_floor():
    made, h = conductor([50.0, -50.0, 0.0, 1.0, 2.0], floor=1e-3), torch.randn(6, 3)
    action = torch.tensor([0, 1, 2, 3, 4, 1])
    assert torch.allclose(made.log_prob(h, action), made(h)[torch.arange(6), action].log())
    assert made.log_prob(h, action)[1].item() == pytest.approx(
        np.log(1e-3), rel=1e-4
    )  # and not -100


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        Conductor(3, K, temperature=temperature)


def test_rounding_in_the_sum_of_a_distribution_makes_no_action_out_of_range():
    p = torch.tensor([[0.1] * 10, [0.3, 0.3, 0.4 - 1e-7, *[0.0] * 7]])
    assert sample_actions(p, torch.full((2,), 1 - 1e-16, dtype=torch.float64)).tolist() == [9, 2]


@pytest.mark.parametrize("kappa", [-0.1, 1.1, float("nan")])
def test_kappa_is_a_share(kappa):
    with pytest.raises(ValueError, match="kappa"):
        compute_emphasis_weights(torch.full((1, K), 1 / K), torch.tensor([0]), kappa)
