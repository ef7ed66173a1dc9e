"""Policies of several trainings side by side: one matrix product for all, which samples, masks and learns as one does.

A state has one column more than that of a single policy: column 0 is the number of the training that a row belongs to.

Left out: what they are trained on (`synthetic_environment`), and what a single policy is (`policies`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lib.agent_configuration.policies import MultiDiscretePolicy, PromptPolicy, ValueNetwork
from lib.agent_configuration.policy_updates import PolicyTrainer

VERSION = 2  # of stacked policies and their updates


class StackedLinears(nn.Module):
    """The same linear layers of several trainings, each layer as one product.

    Rows are (n, 1 + inputs); column 0 is the number of the training that a row belongs to. A trunk applies tanh after
    each layer and hands column 0 on to the heads; a head applies it between layers only, and drops the column.

    Written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.4 to 1.6 times as long for a training step at the
    lesson's sizes (tests/benchmarks/test_seed_batched_speed.py), and wants as many rows of every training.
    """

    def __init__(self, layers: Sequence[Sequence[nn.Linear]], is_trunk: bool) -> None:
        """Copy the weights of several trainings.

        Args:
            layers: By depth, then by training.
            is_trunk: Whether these layers are a trunk, and not a head.
        """
        super().__init__()
        # (trainings, inputs, outputs) and (trainings, 1, outputs) of each layer
        self.weights = nn.ParameterList(
            torch.stack([layer.weight.detach().T for layer in trainings]) for trainings in layers
        )
        self.biases = nn.ParameterList(
            torch.stack([layer.bias.detach()[None] for layer in trainings]) for trainings in layers
        )
        self.is_trunk = is_trunk

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the layers of each row's training.

        Args:
            rows: (n, 1 + inputs), the training in column 0.

        Returns:
            (n, 1 + outputs) of a trunk, column 0 as it was; (n, outputs) of a head.
        """
        num_trainings = len(self.weights[0])
        training = rows[:, 0].long()
        inputs = rows[:, 1:]

        # One matrix (rows, inputs) for each training; where they have unequally many rows, zeros fill up.
        position = _positions_in_training(training, num_trainings)
        if position is None:
            x = inputs.reshape(num_trainings, -1, inputs.shape[1])
        else:
            x = inputs.new_zeros(num_trainings, int(position.max()) + 1, inputs.shape[1])
            x[training, position] = inputs

        last = len(self.weights) - 1
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)  # x_r W_r + b_r for every training r
            if self.is_trunk or depth < last:
                x = x.tanh()

        outputs = x.flatten(0, 1) if position is None else x[training, position]  # (n, outputs)
        if self.is_trunk:
            return torch.cat([rows[:, :1], outputs], 1)
        return outputs


def _positions_in_training(training: Tensor, num_trainings: int) -> Tensor | None:
    """Number the rows of each training, from 0.

    Args:
        training: (n,) the training of each row.
        num_trainings: Number of trainings.

    Returns:
        (n,) numbers; None where rows stand in order of trainings, as many of each, and need not be moved.
    """
    if len(training) % num_trainings == 0:
        in_order = torch.arange(num_trainings)[:, None]
        if bool((training.view(num_trainings, -1) == in_order).all()):
            return None
    counts = torch.bincount(training, minlength=num_trainings)
    first = counts.cumsum(0) - counts  # of each training, among rows that are sorted by training
    order = training.argsort(stable=True)
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order)) - first[training[order]]
    return position


class StackedEmbedding(nn.Module):
    """The embeddings of several trainings, one table below the other."""

    def __init__(self, embeddings: Sequence[nn.Embedding]) -> None:
        super().__init__()
        self.size = embeddings[0].num_embeddings
        # (1, trainings * size, hidden)
        self.weight = nn.Parameter(
            torch.cat([embedding.weight.detach() for embedding in embeddings])[None]
        )

    def forward(self, training: Tensor, index: Tensor) -> Tensor:
        """Embeddings (n, hidden) of indices (n,), each from the table of its training, (n,)."""
        return nn.functional.embedding(training * self.size + index, self.weight[0])


class StackedMultiDiscretePolicy(MultiDiscretePolicy):
    """The `MultiDiscretePolicy` of several trainings: it samples, masks and evaluates as a single one does."""

    @classmethod
    def stack(cls, policies: Sequence[MultiDiscretePolicy]) -> StackedMultiDiscretePolicy:
        """Stack the policies of several trainings into one, so that they are evaluated by batched products.

        Args:
            policies: Policies with equal shapes.

        Returns:
            The stacked policy.
        """
        first = policies[0]
        stacked = cls(
            first.trunk[0].in_features,
            first.sizes,
            first.chained,
            first.masked,
            first.trunk[0].out_features,
            first.masks,
        )
        stacked.trunk = stack_trunks([policy.trunk for policy in policies])
        stacked.heads = nn.ModuleList()
        stacked.seen = nn.ModuleList()
        for dimension in range(len(first.sizes)):
            # One layer for the same head of all trainings, which a batched product evaluates at once.
            heads = [policy.heads[dimension] for policy in policies]
            stacked.heads.append(StackedLinears([heads], is_trunk=False))
        for dimension in range(len(first.sizes) - 1):
            embeddings = [policy.seen[dimension] for policy in policies]
            stacked.seen.append(StackedEmbedding(embeddings))
        return stacked

    def add_choice(self, hidden: Tensor, dimension: int, choices: Tensor) -> Tensor:
        if not self.chained or dimension == len(self.seen):
            return hidden
        training = hidden[:, 0].long()
        embeddings = self.seen[dimension](training, choices)
        # Column 0 stays the number of the training.
        return hidden + nn.functional.pad(embeddings, (1, 0))


def stack_trunks(trunks: Sequence[nn.Sequential]) -> StackedLinears:
    """Stack the trunks of several trainings; see `policies.make_trunk`."""
    return StackedLinears(_list_linears_by_depth(trunks), is_trunk=True)


def _list_linears_by_depth(networks: Sequence[nn.Sequential]) -> list[list[nn.Linear]]:
    """List the linear layers of networks of one shape: for each depth, the layer of each network."""
    layers_by_network = [
        [layer for layer in network if isinstance(layer, nn.Linear)] for network in networks
    ]
    return [list(layers) for layers in zip(*layers_by_network, strict=True)]


def stack_prompt_policies(policies: Sequence[PromptPolicy]) -> PromptPolicy:
    """Stack the prompt policies of several trainings; the first of them becomes the stack."""
    stacked = policies[0]
    stacked.trunk = stack_trunks([policy.trunk for policy in policies])
    stacked.head = StackedLinears([[policy.head for policy in policies]], is_trunk=False)
    return stacked


class BatchedPolicyTrainer(PolicyTrainer):
    """The `PolicyTrainer` of several trainings: one loss, gradients clipped for each training by itself."""

    @classmethod
    def create_stacked(
        cls,
        policy: nn.Module,
        num_inputs: int,
        learning_rate: float,
        num_trainings: int,
        hidden: int,
        has_value: bool = True,
    ) -> BatchedPolicyTrainer:
        """Make a trainer with Adam, and with new value networks if it is to have any.

        Args:
            policy: The stacked policies.
            num_inputs: Length of a state of one value network.
            learning_rate: Learning rate of Adam.
            num_trainings: Number of trainings.
            hidden: Width of the value networks.
            has_value: Whether there are value networks.

        Returns:
            The trainer.
        """
        value = None
        weights = list(policy.parameters())
        if has_value:
            values = [ValueNetwork(num_inputs, hidden) for _ in range(num_trainings)]
            layers = _list_linears_by_depth([network.layers for network in values])
            value = values[0]
            value.layers = StackedLinears(layers, is_trunk=False)
            weights += value.parameters()
        return cls(policy, value, torch.optim.Adam(weights, lr=learning_rate))

    def step(self, loss: Tensor, max_grad_norm: float) -> None:
        """Do one step of Adam, with gradients clipped for each training by itself.

        Args:
            loss: The mean over all trainings.
            max_grad_norm: The most that the norm of one training's gradient may be.
        """
        self.optimizer.zero_grad()
        loss.backward()
        gradients = []
        for group in self.optimizer.param_groups:
            gradients += [weights.grad for weights in group["params"] if weights.grad is not None]

        # One row for each training; embeddings of trainings stand below each other in one table.
        num_trainings = max(len(gradient) for gradient in gradients)
        by_training = [gradient.view(num_trainings, -1) for gradient in gradients]
        # The loss is a mean over trainings, so each training's gradient is num_trainings times what stands here.
        norms = num_trainings * sum(rows.pow(2).sum(1) for rows in by_training).sqrt()
        scale = num_trainings * (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)  # (trainings,)
        for rows in by_training:
            rows.mul_(scale[:, None])
        self.optimizer.step()
