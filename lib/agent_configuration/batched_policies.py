"""Policies of many trainings side by side: one product for all, drawing, masking and learning as a single one does.

Left out: what they are trained in (`glassbox`), and what a single policy is (`policies`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lib.agent_configuration.policies import Parts, PromptPolicy, Value
from lib.agent_configuration.policy_updates import Side

VERSION = 1  # of stacked policies and their updates


class Stacked(nn.Module):
    """The same layers of R trainings, each as one product. Rows are (n, 1 + inputs), and column 0 says which training a
    row belongs to. A trunk squashes by tanh after each layer and hands that column on; a head does neither."""

    def __init__(self, layers: Sequence[Sequence[nn.Linear]], trunk: bool) -> None:
        """layers: by place, then by training."""
        super().__init__()
        self.weights = nn.ParameterList(
            torch.stack([one.weight.detach().T for one in place]) for place in layers
        )
        self.biases = nn.ParameterList(
            torch.stack([one.bias.detach()[None] for one in place]) for place in layers
        )
        self.trunk = trunk

    def forward(self, rows: Tensor) -> Tensor:
        whose, x = rows[:, 0].long(), rows[:, 1:]
        place = _places(whose, len(self.weights[0]))
        if place is None:
            x = x.reshape(len(self.weights[0]), -1, x.shape[1])
        else:
            padded = x.new_zeros(len(self.weights[0]), int(place.max()) + 1, x.shape[1])
            padded[whose, place] = x
            x = padded
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = x.tanh() if self.trunk or i < len(self.weights) - 1 else x
        x = x.flatten(0, 1) if place is None else x[whose, place]
        return torch.cat([rows[:, :1], x], 1) if self.trunk else x


def _places(whose: Tensor, runs: int) -> Tensor | None:
    """The place of each row among those of its training, (n,); None where they stand in order, as many of each."""
    if len(whose) % runs == 0 and bool((whose.view(runs, -1) == torch.arange(runs)[:, None]).all()):
        return None
    counts, order = torch.bincount(whose, minlength=runs), whose.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[whose[order]]
    return place


class Embedded(nn.Module):
    """The embeddings of R trainings, one below the other; each row of indices has its own training's."""

    def __init__(self, layers: Sequence[nn.Embedding]) -> None:
        super().__init__()
        self.size = layers[0].num_embeddings
        self.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers])[None])

    def forward(self, whose: Tensor, drawn: Tensor) -> Tensor:
        return nn.functional.embedding(whose * self.size + drawn, self.weight[0])


class ManyParts(Parts):
    """`Parts` of R trainings: it draws, masks and judges as one does."""

    @classmethod
    def of(cls, alone: Sequence[Parts]) -> ManyParts:
        """alone: the policies of the trainings, of one shape."""
        first = alone[0]
        many = cls(
            first.trunk[0].in_features,
            first.sizes,
            first.chained,
            first.masked,
            first.trunk[0].out_features,
        )
        many.trunk = _trunk([one.trunk for one in alone])
        many.heads = nn.ModuleList(
            Stacked([[one.heads[i] for one in alone]], False) for i in range(len(first.sizes))
        )
        many.seen = nn.ModuleList(
            Embedded([one.seen[i] for one in alone]) for i in range(len(first.sizes) - 1)
        )
        return many

    def after(self, hidden: Tensor, part: int, drawn: Tensor) -> Tensor:
        if not self.chained or part == len(self.seen):
            return hidden
        return hidden + nn.functional.pad(self.seen[part](hidden[:, 0].long(), drawn), (1, 0))


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


class ManySide(Side):
    """`Side` of R trainings: one loss, gradients clipped for each training by itself."""

    @classmethod
    def made(
        cls,
        policy: nn.Module,
        inputs: int,
        rate: float,
        runs: int,
        hidden: int,
        valued: bool = True,
    ) -> ManySide:
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
        self.optimizer.zero_grad()
        loss.backward()
        held = [
            w.grad
            for group in self.optimizer.param_groups
            for w in group["params"]
            if w.grad is not None
        ]
        runs = max(len(gradient) for gradient in held)
        own = [
            gradient.view(runs, -1) for gradient in held
        ]  # embeddings of trainings stand below each other
        norms = (
            runs * sum(gradient.pow(2).sum(1) for gradient in own).sqrt()
        )  # a mean over all, as a mean over each
        scale = runs * (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in own:
            gradient.mul_(scale[:, None])
        self.optimizer.step()
