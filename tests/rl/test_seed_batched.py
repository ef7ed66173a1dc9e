"""Networks that are batched over seeds: each computes and learns what it would alone."""

import copy

import pytest
import torch
from torch import nn

from lib.rl.seed_batched import SeedBatched

SEEDS, ROWS, INPUTS = 3, 5, 4


class Scaled(nn.Module):
    """A network with a parameter and a buffer of its own beside its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(INPUTS, 6), nn.Tanh(), nn.Linear(6, 2))
        self.scale = nn.Parameter(torch.rand(()))
        self.register_buffer("shift", torch.rand(2))

    def forward(self, x):
        return self.scale * self.layers(x) + self.shift


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [Scaled() for _ in range(SEEDS)]


def test_networks_batched_over_seeds_compute_what_each_computes_alone(networks):
    inputs = torch.randn(SEEDS, ROWS, INPUTS)
    outputs = SeedBatched(networks)(inputs)
    for network, rows, output in zip(networks, inputs, outputs, strict=True):
        assert torch.allclose(network(rows), output, atol=1e-6)


def test_the_sum_of_losses_trains_each_seed_as_its_own_loss_would(networks):
    inputs = torch.randn(SEEDS, ROWS, INPUTS)
    batched = SeedBatched(networks)
    together = torch.optim.Adam(batched.parameters(), lr=0.1)
    alone = [torch.optim.Adam(network.parameters(), lr=0.1) for network in networks]
    for _ in range(3):
        together.zero_grad()
        batched(inputs).pow(2).mean((1, 2)).sum().backward()
        together.step()
        for network, optimizer, rows in zip(networks, alone, inputs, strict=True):
            optimizer.zero_grad()
            network(rows).pow(2).mean().backward()
            optimizer.step()
    for seed, network in enumerate(networks):
        for name, weights in network.named_parameters():
            trained = batched.get_parameter(f"network.{name}")[seed]
            assert torch.allclose(trained, weights, atol=1e-5), name


def test_batched_weights_are_copies_also_of_one_network_for_all_seeds(networks):
    network = networks[0]
    before = copy.deepcopy(network.state_dict())
    batched = SeedBatched([network] * SEEDS)
    optimizer = torch.optim.SGD(batched.parameters(), lr=1.0)
    batched(torch.randn(SEEDS, ROWS, INPUTS)).sum().backward()
    optimizer.step()
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())
    first, second, _ = batched.get_parameter("network.layers.0.weight")
    assert not torch.equal(first, second)  # they met other inputs


def test_batched_weights_are_saved_and_loaded_under_the_names_of_the_single_network(networks):
    batched, other = SeedBatched(networks), SeedBatched([Scaled() for _ in range(SEEDS)])
    names = {f"network.{name}" for name in networks[0].state_dict()}
    assert set(batched.state_dict()) == names
    other.load_state_dict(batched.state_dict())
    inputs = torch.randn(SEEDS, ROWS, INPUTS)
    assert torch.equal(batched(inputs), other(inputs))


@pytest.mark.parametrize("others", [[], [nn.Linear(4, 2), nn.Linear(4, 3)]])
def test_networks_of_no_or_of_different_shapes_are_refused(others):
    with pytest.raises(RuntimeError):
        SeedBatched(others)
