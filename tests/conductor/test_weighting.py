"""Fixed and random weights: what the Conductor is compared with."""

import pytest
import torch

from lib.conductor.rewards import COMPONENTS
from lib.conductor.weighting import FixedWeighting, RandomWeighting, RolloutOutcomes
from tests.conductor.small import K

H = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))


def test_fixed_weights_are_those_that_were_named_for_everybody():
    made = FixedWeighting({"len": 0.25, "fmt": 2.0})
    weights, action = made.weigh_rollouts(H, 7)
    assert made.names == ("len", "fmt") and weights.shape == (len(H), 2) and action is None
    assert (weights == torch.tensor([0.25, 2.0])).all() and (
        made.compute_mean_weights(H) == weights
    ).all()
    assert RandomWeighting(0).names == COMPONENTS


def test_random_weights_lie_on_the_simplex_evenly():
    weights, action = RandomWeighting(0).weigh_rollouts(H, 0)
    assert weights.shape == (len(H), K) and action is None and weights.dtype == H.dtype
    assert (weights >= 0).all() and torch.allclose(weights.sum(1), torch.ones(len(H)))
    # of Dirichlet(1, ..., 1): mean 1/K, variance (K - 1) / (K^2 (K + 1)), covariance -1 / (K^2 (K + 1))
    assert torch.allclose(
        weights.mean(0), torch.full((K,), 1 / K), atol=4 * (0.0267 / len(H)) ** 0.5
    )
    wanted = (torch.eye(K) * K - 1) / (K**2 * (K + 1))
    assert torch.allclose(torch.cov(weights.T), wanted, atol=4e-3)


def test_random_weights_are_those_of_seed_and_step():
    first, made = RandomWeighting(3).weigh_rollouts(H, 5)[0], RandomWeighting(3)
    made.weigh_rollouts(H, 0)
    assert torch.equal(made.weigh_rollouts(H, 5)[0], first)
    assert not torch.equal(made.weigh_rollouts(H, 6)[0], first) and not torch.equal(
        RandomWeighting(4).weigh_rollouts(H, 5)[0], first
    )


@pytest.mark.parametrize("made", [FixedWeighting({"fmt": 1.0}), RandomWeighting(0)])
def test_neither_learns_nor_has_a_state(made):
    before = made.weigh_rollouts(H, 0)[0].clone()
    made.learn(RolloutOutcomes(torch.ones(len(H))))
    made.finish_step()
    made.load_state(made.get_state())
    assert (
        made.get_state() == {}
        and torch.equal(made.weigh_rollouts(H, 0)[0], before)
        and not made.centred
    )


def test_weights_for_nothing_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        FixedWeighting({})


def test_every_response_has_its_own_and_none_comes_twice():
    weights = torch.cat([RandomWeighting(0).weigh_rollouts(H[:100], step)[0] for step in range(10)])
    assert len(set(map(tuple, weights.tolist()))) == 1_000


def test_outside_training_random_weights_are_their_mean():
    assert torch.allclose(
        RandomWeighting(0).compute_mean_weights(H), torch.full((len(H), K), 1 / K)
    )
