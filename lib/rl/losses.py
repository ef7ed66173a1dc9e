"""Losses and advantages that several trainers share, each of them once.

The clipped objective, generalised advantage estimates, advantages within a group, and whitening: for policies in
rooms (`policy_zoo.ppo`), controllers of language models (`rl.token_ppo`), configurations
(`agent_configuration.policy_updates`) and the
Conductor. Training loops, averages over a batch and penalties differ, and stay where they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

VERSION = 1  # of the losses and advantages here


def clipped(new: Tensor, old: Tensor, advantages: Tensor, clip: float | Tensor) -> Tensor:
    """The clipped objective of every decision, to be maximised (Schulman et al. 2017, eq. 7); shapes as given.

    new, old: log-probabilities of what was done, under the policy and when it was drawn. The gain is flat where the
    ratio has left [1 - eps, 1 + eps] in the direction of the advantage.
    """
    ratio = (new - old).exp()  # r = pi / pi_old
    return torch.min(
        ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    )  # min(r A, clip(r) A)


def gae(
    rewards: Tensor,
    values: Tensor,
    alive: Tensor,
    last: Tensor,
    gamma: float | Tensor,
    lam: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and returns (Schulman et al. 2016, eq. 16), (B, T, ...) each.

    rewards, values: (B, T, ...), V before each step; alive: 1 where the episode goes on after the step, else 0;
    last: (B, ...), V after the last step; gamma, lam: numbers, or tensors that fit (B, ...).
    """
    advantages, following, after = torch.zeros_like(values), torch.zeros_like(last), last
    for t in reversed(range(values.shape[1])):
        delta = (
            rewards[:, t] + gamma * after * alive[:, t] - values[:, t]
        )  # delta_t = r_t + gamma V_{t+1} - V_t
        following = (
            delta + gamma * lam * alive[:, t] * following
        )  # A_t = delta_t + gamma lam A_{t+1}
        advantages[:, t], after = following, values[:, t]
    return advantages, advantages + values  # return_t = A_t + V_t


def masked_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """`gae` over a writer's own tokens, as if the others were not there; (B, T) each, 0 at tokens of others.

    rewards: (B,), paid at a row's last own token; values: (B, T), V before each token; mask: (B, T), which are own.
    """
    own, place = compressed(values, mask), torch.arange(int(mask.sum(1).max()), device=mask.device)
    last = (mask.sum(1) - 1)[:, None]
    paid = rewards[:, None] * (place == last)
    advantages, returns = gae(
        paid, own, (place < last).to(own), torch.zeros_like(own[:, 0]), gamma, lam
    )
    return spread(advantages, mask), spread(returns, mask)


def compressed(values: Tensor, mask: Tensor) -> Tensor:
    """The entries of each row where mask (B, T) is 1, moved to the left, the rest 0: (B, most of a row)."""
    counts = mask.sum(1)
    out = values.new_zeros(len(mask), int(counts.max()))
    out[torch.arange(out.shape[1]) < counts[:, None].cpu()] = values[mask]
    return out


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """The inverse of `compressed`: row by row back to where mask (B, T) is 1, 0 elsewhere."""
    out = values.new_zeros(mask.shape)
    out[mask] = values[torch.arange(values.shape[1]) < mask.sum(1)[:, None].cpu()]
    return out


def group_advantages(
    rewards: Tensor,
    groups: Sequence[int] | Tensor | int,
    divide: bool = True,
    correction: int = 1,
    least: float = 1e-4,
) -> Tensor:
    """Rewards less their group's mean, over the group's deviation if `divide` (Shao et al. 2024, 4.1.2); (B,).

    groups: an id for each row, in any order, or how many rows beside each other make a group; correction: 1 divides
    squares by n - 1, as TRL does, 0 by n; least: added to the deviation. A group that agrees gets 0.
    """
    if (
        isinstance(groups, int) and len(rewards) % groups == 0 and groups > correction
    ):  # all at once
        side = rewards.view(-1, groups)
        apart = side - side.mean(1, keepdim=True)
        return (
            apart / (side.std(1, correction=correction, keepdim=True) + least) if divide else apart
        ).flatten()
    ids = (
        torch.arange(len(rewards)) // groups if isinstance(groups, int) else torch.as_tensor(groups)
    )
    out = torch.zeros_like(rewards)
    for group in ids.unique():
        rows = (ids == group).to(rewards.device)
        centred = rewards[rows] - rewards[rows].mean()  # R_i - mean(R)
        deviation = rewards[rows].std(correction=correction) if len(centred) > correction else 0.0
        out[rows] = (
            centred / (deviation + least) if divide else centred
        )  # A_i = (R_i - mean(R)) / std(R)
    return out


def whitened(values: Tensor, dim: int | None = None, correction: int = 0) -> Tensor:
    """Mean 0 and deviation 1 along `dim`, or over everything: (x - mean) / std; 0 where all are equal."""
    mean, deviation = (
        values.mean(dim, keepdim=True),
        values.std(dim, correction=correction, keepdim=True),
    )
    return (values - mean) / (deviation + 1e-8)
