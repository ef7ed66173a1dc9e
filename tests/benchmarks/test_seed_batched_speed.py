"""Networks of many seeds by one call: the helper `SeedBatched` against those that are written out by hand.

A step is forward pass, backward pass and Adam, at the sizes of the lessons. The helper is `vmap` over the code of the
single network; by hand means one `baddbmm` or `einsum` with an axis of seeds. What a network gains by being written
out is the time of its calls, not of its arithmetic: it is large where the tensors are small. A network is written out
where the helper takes more than 1.15 times as long; the Conductor's, which it does not, uses the helper.
"""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lib import config
from lib.agent_configuration import batched_policies, policies
from lib.agent_configuration.action_space import SIZES
from lib.agent_configuration.questions import KINDS
from lib.budgeted_routing.synthetic_controllers import BatchedControllers
from lib.conductor.meta_policy import Conductor
from lib.policy_zoo import networks
from lib.rl.seed_batched import SeedBatched
from tests.benchmarks.clock import Comparison, compare, relax, scale

SETTINGS = config.load("laptop")
WRITTEN_OUT = (
    1.15  # a network is written out by hand where the helper takes at least so many times as long
)
STEPS = 20  # in a round
Forward = Callable[[], Iterable[Tensor]]  # outputs, each with the axis of seeds in front

pytestmark = pytest.mark.usefixtures("one_thread")


def compare_steps(
    helper: tuple[Forward, Iterable[Tensor]], by_hand: tuple[Forward, Iterable[Tensor]], goal: float
) -> Comparison:
    """Training steps with the helper (slow) and by hand (fast), which must compute the same.

    Args:
        helper: The forward pass and the weights of the network under the helper.
        by_hand: The same of the network that is written out, with equal weights.
        goal: As of `compare`.
    """
    for output, expected in zip(helper[0](), by_hand[0](), strict=True):
        assert torch.allclose(output, expected, atol=1e-4)

    def make_round(forward: Forward, weights: Iterable[Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.Adam(weights, lr=1e-3)

        def train():
            for _ in range(scale(STEPS, least=5)):
                optimizer.zero_grad()
                # A sum over seeds trains each by its own loss.
                sum(output.pow(2).mean() for output in forward()).backward()
                optimizer.step()

        return train

    return compare(make_round(*helper), make_round(*by_hand), goal, rounds=7)


class RoutingController(nn.Module):
    """One network of `budgeted_routing.synthetic_controllers.BatchedControllers`."""

    def __init__(self, inputs: int, hidden: int, options: int) -> None:
        super().__init__()
        self.trunk = nn.Linear(inputs, hidden)
        self.actor, self.critic = nn.Linear(hidden, options), nn.Linear(hidden, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(inputs).tanh()
        return self.actor(hidden).log_softmax(-1), self.critic(hidden)[..., 0]


def make_routing():
    """Thirty-two controllers on the two choices of a minibatch of episodes."""
    settings = SETTINGS.routing.synthetic
    batched = BatchedControllers(settings, num_grid_points=1)
    seeds, num_inputs, hidden = batched.trunk.shape
    singles = [RoutingController(num_inputs, hidden, batched.num_options) for _ in range(seeds)]
    with torch.no_grad():
        for seed, single in enumerate(singles):
            single.trunk.weight.copy_(batched.trunk[seed].T)
            for layer in (single.trunk, single.actor, single.critic):
                layer.bias.zero_()
            single.actor.weight.zero_()
            single.critic.weight.zero_()
    helper, inputs = SeedBatched(singles), torch.randn(seeds, 2 * settings.minibatch, num_inputs)
    return (
        (lambda: helper(inputs), helper.parameters()),
        (lambda: batched(inputs), batched.parameters()),
    )


class ToolScores(nn.Module):
    """One policy of `tool_orchestration.synthetic_training`, which reads descriptions of tools."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(4, 4))

    def forward(self, user: Tensor, tools: Tensor) -> Tensor:
        # s_nm = sum_uf user_nu W_uf tools_nmf
        return torch.einsum("nu,uf,nmf->nm", user, self.weights, tools)


def make_tools():
    """Thirty-two policies on the menus of an update."""
    settings = SETTINGS.tools.synthetic
    helper = SeedBatched([ToolScores() for _ in range(settings.seeds)])
    weights = torch.zeros(settings.seeds, 4, 4, requires_grad=True)
    user = torch.randn(settings.seeds, settings.groups, 4)
    tools = torch.randn(settings.seeds, settings.groups, settings.menu, 4)
    return (
        (lambda: [helper(user, tools)], helper.parameters()),
        (lambda: [torch.einsum("snu,suf,snmf->snm", user, weights, tools)], [weights]),
    )


def make_agents():
    """Structure policies of twenty trainings: the trunk and the head of the workflow, on a batch of episodes."""
    settings, inputs = SETTINGS.configuration.glass, len(KINDS)
    trunks = [policies.make_trunk(inputs, settings.hidden) for _ in range(settings.seeds)]
    heads = [nn.Linear(settings.hidden, SIZES[0]) for _ in range(settings.seeds)]
    helper = SeedBatched(
        [nn.Sequential(*trunk, head) for trunk, head in zip(trunks, heads, strict=True)]
    )
    trunk, head = (
        batched_policies.stack_trunks(trunks),
        batched_policies.StackedLinears([heads], is_trunk=False),
    )
    states = torch.randn(settings.seeds, settings.batch, inputs)
    training = torch.arange(settings.seeds).repeat_interleave(settings.batch)
    rows = torch.cat([training[:, None].float(), states.flatten(0, 1)], 1)
    return (
        (lambda: [helper(states).flatten(0, 1)], helper.parameters()),
        (lambda: [head(trunk(rows))], [*trunk.parameters(), *head.parameters()]),
    )


class ActorCritic(nn.Module):
    """One network of `policy_zoo.networks.Mlp`, or the part of `Cnn` above its features."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.policy_net, self.value_net = (
            policies.make_trunk(inputs, 64),
            policies.make_trunk(inputs, 64),
        )
        self.action_head, self.value_head = nn.Linear(64, actions), nn.Linear(64, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        policy, value = self.policy_net(inputs), self.value_net(inputs)
        return self.action_head(policy), self.value_head(value)

    def load(self, params: dict[str, np.ndarray]) -> None:
        """Take over the weights of a policy of the zoo."""
        layers = {"action_net": self.action_head, "value_net": self.value_head}
        for name in ("policy_net", "value_net"):
            for i in (0, 2):
                layers[f"mlp_extractor.{name}.{i}"] = getattr(self, name)[i]
        load_layers(layers, params)


class ConvolutionalActorCritic(nn.Module):
    """One network of `policy_zoo.networks.Cnn`, with torch's convolutions."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 16, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Conv2d(32, 64, 2)
        )
        self.features = nn.Linear(1024, 128)
        self.heads = ActorCritic(128, actions)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.convolutions(inputs).relu().flatten(1)
        return self.heads(self.features(x).relu())

    def load(self, params: dict[str, np.ndarray]) -> None:
        layers = {f"features_extractor.cnn.{i}": self.convolutions[i] for i in (0, 2, 4)}
        load_layers(layers | {"features_extractor.linear.0": self.features}, params)
        self.heads.load(params)


def load_layers(layers: dict[str, nn.Module], params: dict[str, np.ndarray]) -> None:
    for name, layer in layers.items():
        layer.weight.data = torch.from_numpy(params[f"{name}.weight"])
        layer.bias.data = torch.from_numpy(params[f"{name}.bias"])


def make_zoo(network: networks.Network, make_single, observation: np.ndarray, inputs: Tensor):
    """Policies of the zoo. observation: what `network` prepares; inputs: the same for the single networks."""
    singles, starts = [], []
    for seed in range(len(observation)):
        starts.append(networks.draw_initial_parameters(network, "benchmark", seed=seed))
        singles.append(make_single())
        singles[-1].load(starts[-1])
    helper, prepared = SeedBatched(singles), network.prepare_inputs(observation)
    params = {
        name: torch.from_numpy(np.stack([start[name] for start in starts])).requires_grad_()
        for name in network.parameter_shapes
    }
    return (
        (lambda: helper(inputs), helper.parameters()),
        (lambda: network.forward(params, prepared), params.values()),
    )


def make_students():
    """Eight policies of students on a minibatch each."""
    states = np.random.default_rng(0).random((8, 64, 9), dtype=np.float32)
    return make_zoo(networks.Mlp(9, 3), lambda: ActorCritic(9, 3), states, torch.from_numpy(states))


def make_rooms(policies_together: int):
    views = np.random.default_rng(0).integers(0, 10, (policies_together, 64, 7, 7, 3), np.uint8)
    images = torch.from_numpy(views).float().permute(0, 1, 4, 2, 3).contiguous()
    return make_zoo(networks.Cnn(6), lambda: ConvolutionalActorCritic(6), views, images)


@pytest.mark.parametrize("make", [make_routing, make_tools, make_agents, make_students])
def test_small_networks_are_faster_written_out_by_hand(make):
    goal = relax(WRITTEN_OUT - 1) + 1
    times = compare_steps(*make(), goal)
    report(make.__name__.removeprefix("make_"), times)
    assert times.ratio >= goal


@pytest.mark.parametrize("policies_together", [1, 4])
def test_convolutions_written_out_as_products_are_no_slower_than_those_of_torch(policies_together):
    """They are as fast; they stay because their numbers are the trained policies', which torch's round otherwise."""
    goal = relax(0.8)
    times = compare_steps(*make_rooms(policies_together), goal)
    report(f"{policies_together} policies of rooms", times)
    assert times.ratio >= goal


def test_conductors_under_the_helper_are_many_times_as_fast_as_one_after_another():
    settings = SETTINGS.conductor.synthetic
    width, rollouts = settings.categories + settings.features, settings.prompts * settings.group
    singles = [Conductor(width, 5) for _ in range(settings.seeds)]
    helper, states = SeedBatched(singles), torch.randn(settings.seeds, rollouts, width)
    weights = [each for single in singles for each in single.parameters()]
    goal = relax(2.5)
    times = compare_steps(
        (lambda: [torch.stack([one(h) for one, h in zip(singles, states, strict=True)])], weights),
        (lambda: [helper(states)], helper.parameters()),
        goal,
    )
    print(f"\n{settings.seeds} Conductors: one after another takes {times.ratio:.1f} times as long")
    assert times.ratio >= goal


def report(name: str, times: Comparison) -> None:
    step = scale(STEPS, least=5)
    print(
        f"\n{name}: by hand {1e3 * times.fast / step:.2f} ms a step, helper {1e3 * times.slow / step:.2f} ms: "
        f"{times.ratio:.2f}x"
    )
