"""Policies of many trainings side by side: one product for all, drawing, masking and learning as a single one does.

Left out: what they are trained in (`glassbox`), and what a single policy is (`policies`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lib.agent_configuration.policies import Parts, PromptPolicy, Value
from lib.agent_configuration.policy_updates import PolicyTrainer

VERSION = 2  # of stacked policies and their updates


class Stacked(nn.Module):
    """The same linear layers of R trainings, each layer as one product.

    Rows are (n, 1 + inputs); column 0 is the number of the training that a row belongs to. A trunk applies tanh after
    each layer and hands column 0 on to the heads; a head applies it between layers only, and drops the column.

    Written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.4 to 1.6 times as long for a training step at the
    lesson's sizes (tests/benchmarks/test_seed_batched_speed.py), and wants as many rows of every training.
    """

    def __init__(self, layers: Sequence[Sequence[nn.Linear]], trunk: bool) -> None:
        """layers: by depth, then by training; trunk: whether these layers are a trunk."""
        super().__init__()
        # (R, inputs, outputs) and (R, 1, outputs) of each layer
        self.weights = nn.ParameterList(
            torch.stack([layer.weight.detach().T for layer in trainings]) for trainings in layers
        )
        self.biases = nn.ParameterList(
            torch.stack([layer.bias.detach()[None] for layer in trainings]) for trainings in layers
        )
        self.trunk = trunk

    def forward(self, rows: Tensor) -> Tensor:
        """Outputs (n, outputs) of rows (n, 1 + inputs); of a trunk (n, 1 + outputs), column 0 as it was."""
        num_trainings = len(self.weights[0])
        training, inputs = rows[:, 0].long(), rows[:, 1:]

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
            if self.trunk or depth < last:
                x = x.tanh()

        outputs = x.flatten(0, 1) if position is None else x[training, position]
        return torch.cat([rows[:, :1], outputs], 1) if self.trunk else outputs


def _positions_in_training(training: Tensor, num_trainings: int) -> Tensor | None:
    """The number of each row among the rows of its training, (n,).

    None where rows stand in order of trainings, as many of each: then they need not be moved.
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


class Embedded(nn.Module):
    """The embeddings of R trainings, one table below the other."""

    def __init__(self, layers: Sequence[nn.Embedding]) -> None:
        super().__init__()
        self.size = layers[0].num_embeddings
        # (1, R * size, hidden)
        self.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers])[None])

    def forward(self, training: Tensor, index: Tensor) -> Tensor:
        """Embeddings (n, hidden) of indices (n,), each from the table of its training, (n,)."""
        return nn.functional.embedding(training * self.size + index, self.weight[0])


class ManyParts(Parts):
    """`Parts` of R trainings: it draws, masks and judges as one does."""

    @classmethod
    def of(cls, alone: Sequence[Parts]) -> ManyParts:
        """alone: the policy of each training, all of one shape."""
        first = alone[0]
        many = cls(
            first.trunk[0].in_features,
            first.sizes,
            first.chained,
            first.masked,
            first.trunk[0].out_features,
            first.masks,
        )
        many.trunk = _trunk([one.trunk for one in alone])
        many.heads = nn.ModuleList(
            Stacked([[one.heads[i] for one in alone]], False) for i in range(len(first.sizes))
        )
        many.seen = nn.ModuleList(
            Embedded([one.seen[i] for one in alone]) for i in range(len(first.sizes) - 1)
        )
        return many

    def after(self, hidden: Tensor, part: int, choice: Tensor) -> Tensor:
        if not self.chained or part == len(self.seen):
            return hidden
        return hidden + nn.functional.pad(self.seen[part](hidden[:, 0].long(), choice), (1, 0))


def _trunk(trunks: Sequence[nn.Sequential]) -> Stacked:
    return Stacked(
        [list(place) for place in zip(*trunks, strict=True) if isinstance(place[0], nn.Linear)],
        True,
    )


def prompts(alone: Sequence[PromptPolicy]) -> PromptPolicy:
    """Prompt policies of R trainings as one; a column more in front, which says whose."""
    many = alone[0]
    many.trunk, many.head = (
        _trunk([one.trunk for one in alone]),
        Stacked([[one.head for one in alone]], False),
    )
    return many


class BatchedPolicyTrainer(PolicyTrainer):
    """`PolicyTrainer` of R trainings: one loss, gradients clipped for each training by itself."""

    @classmethod
    def made(
        cls,
        policy: nn.Module,
        inputs: int,
        rate: float,
        runs: int,
        hidden: int,
        valued: bool = True,
    ) -> BatchedPolicyTrainer:
        value = None
        if valued:
            alone = [Value(inputs, hidden) for _ in range(runs)]
            value, places = alone[0], zip(*(one.layers for one in alone), strict=True)
            value.layers = Stacked(
                [list(place) for place in places if isinstance(place[0], nn.Linear)], False
            )
        weights = [*policy.parameters(), *(value.parameters() if value else ())]
        return cls(policy, value, torch.optim.Adam(weights, lr=rate))

    def step(self, loss: Tensor, max_grad_norm: float) -> None:
        """One step of Adam on a loss that is the mean over all trainings, gradients clipped for each by itself."""
        self.optimizer.zero_grad()
        loss.backward()
        gradients = [
            weights.grad
            for group in self.optimizer.param_groups
            for weights in group["params"]
            if weights.grad is not None
        ]
        # One row for each training; embeddings of trainings stand below each other in one table.
        num_trainings = max(len(gradient) for gradient in gradients)
        by_training = [gradient.view(num_trainings, -1) for gradient in gradients]
        # The loss is a mean over R trainings, so each training's gradient is R times what stands here.
        norms = num_trainings * sum(rows.pow(2).sum(1) for rows in by_training).sqrt()
        scale = num_trainings * (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)  # (R,)
        for rows in by_training:
            rows.mul_(scale[:, None])
        self.optimizer.step()
