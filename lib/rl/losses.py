"""Losses and advantages of policy gradients, each formula once and beside its equation.

The clipped objective, generalized advantage estimation (GAE), advantages within a group (GRPO), whitening, the
estimate of the KL divergence and the error of a value head. Policies in environments (`policy_zoo.ppo`), controllers
that are language models (`rl.token_ppo`), agent configurations (`agent_configuration.policy_updates`) and the
Conductor all train with them. Left out: networks, optimizers and training loops, which each system has for itself.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

VERSION = 1  # of the losses and advantages here

# The clipped objective and the policy loss ---------------------------------------------------------


def compute_clipped_objective(
    new_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float | Tensor
) -> Tensor:
    """Clipped objective of PPO for every decision, to be maximized.

    Its gradient is 0 where the ratio has left [1 - clip, 1 + clip] in the direction of the advantage.

    Args:
        new_logprobs: (...) log-probabilities of the decisions under the policy that is trained.
        old_logprobs: (...) the same under the policy that sampled them; without gradient.
        advantages: (...) how much better each decision was than expected.
        clip: Largest change of the ratio that is rewarded, epsilon in the paper; a tensor if it differs between rows.

    Returns:
        (...) objective of each decision.

    Source: Schulman et al. 2017 (PPO), eq. 7.
    """
    ratio = (new_logprobs - old_logprobs).exp()  # r = pi_new / pi_old
    clipped_ratio = ratio.clamp(1 - clip, 1 + clip)
    return torch.min(ratio * advantages, clipped_ratio * advantages)  # min(r A, clip(r) A)


def average_over_tokens(values: Tensor, mask: Tensor, by: Literal["sequence", "token"]) -> Tensor:
    """Averages `values` over policy tokens.

    Args:
        values: (B, T) one number per token; finite also where the mask is 0.
        mask: (B, T) 1 at policy tokens, 0 at prompts, replies of experts and padding.
        by: `sequence` averages every sequence first, then the sequences (CoRL, eq. 4; `grpo` in TRL); `token`
            averages all tokens of the batch at once (`bnpo` in TRL).

    Returns:
        () the mean; 0 where there is no policy token at all.

    Raises:
        ValueError: `by` is neither.
    """
    if by == "sequence":
        mean_by_sequence = (values * mask).sum(1) / mask.sum(1).clamp(min=1)  # (B,)
        return mean_by_sequence.mean()
    if by == "token":
        return (values * mask).sum() / mask.sum().clamp(min=1)
    raise ValueError(f"losses are averaged by 'sequence' or 'token', not by {by!r}")


def compute_policy_loss(
    new_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip: float,
    by: Literal["sequence", "token"],
) -> Tensor:
    """Policy loss over policy tokens, to be minimized: the negative mean of the clipped objective.

    Args:
        new_logprobs: (B, T) log-probabilities of the tokens under the policy that is trained.
        old_logprobs: (B, T) the same under the policy that sampled them.
        advantages: (B, T) advantage of every token.
        mask: (B, T) 1 at policy tokens.
        clip: Largest change of the ratio that is rewarded.
        by: How tokens are averaged, as in `average_over_tokens`.

    Returns:
        () the loss.

    Source: CoRL, eq. 4, without the KL penalty.
    """
    objective = compute_clipped_objective(new_logprobs, old_logprobs, advantages, clip)
    return -average_over_tokens(objective, mask, by)  # L = -J


def estimate_kl(new_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate of KL(new || reference) at every token, never negative.

    TRL multiplies it by default by the ratio of the new to the old policy (`use_bias_correction_kl`); Shao et al. and
    this function do not.

    Args:
        new_logprobs: (...) log-probabilities of the sampled tokens under the policy that is trained.
        reference_logprobs: (...) the same under the reference.

    Returns:
        (...) estimate at each token; 0 where both agree.

    Source: Shao et al. 2024 (GRPO), eq. 4; known as k3.
    """
    log_ratio = reference_logprobs - new_logprobs  # d = log pi_ref - log pi_new
    return torch.exp(log_ratio) - log_ratio - 1  # exp(d) - d - 1


def compute_value_loss(
    values: Tensor, returns: Tensor, mask: Tensor, by: Literal["sequence", "token"]
) -> Tensor:
    """Error of a value head over policy tokens: half the mean squared difference to the returns.

    Args:
        values: (B, T) V before each token.
        returns: (B, T) what V should have said.
        mask: (B, T) 1 at policy tokens.
        by: How tokens are averaged, as in `average_over_tokens`.

    Returns:
        () the loss.
    """
    return 0.5 * average_over_tokens((values - returns) ** 2, mask, by)  # 1/2 mean (V - R)^2


# Generalized advantage estimation ------------------------------------------------------------------


def compute_gae(
    rewards: Tensor,
    values: Tensor,
    continues: Tensor,
    last_values: Tensor,
    gamma: float | Tensor,
    lam: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimates and returns over steps.

    Args:
        rewards: (B, T, ...) reward of each step.
        values: (B, T, ...) V before each step.
        continues: (B, T, ...) 1 where the episode goes on after the step, 0 where it ends.
        last_values: (B, ...) V after the last step.
        gamma: Discount; a tensor of a shape that fits (B, ...) if it differs between rows.
        lam: Decay of later errors, lambda in the paper; a number or a tensor as `gamma`.

    Returns:
        Advantages and returns, (B, T, ...) each.

    Source: Schulman et al. 2016 (GAE), eq. 16.
    """
    advantages = torch.zeros_like(values)
    next_advantage = torch.zeros_like(last_values)  # (B, ...)
    next_value = last_values

    for t in reversed(range(values.shape[1])):
        # delta_t = r_t + gamma V_{t+1} - V_t
        delta = rewards[:, t] + gamma * next_value * continues[:, t] - values[:, t]
        # A_t = delta_t + gamma lambda A_{t+1}
        advantage = delta + gamma * lam * continues[:, t] * next_advantage

        advantages[:, t] = advantage
        next_advantage = advantage
        next_value = values[:, t]

    returns = advantages + values  # R_t = A_t + V_t
    return advantages, returns


def compute_masked_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Computes GAE over policy tokens, as if the tokens between them were not there.

    Args:
        rewards: (B,) reward of each sequence, received at its last policy token.
        values: (B, T) V before each token; read at policy tokens only.
        mask: (B, T) bool, True at policy tokens.
        gamma: Discount from one policy token to the next.
        lam: Decay of later errors, lambda in the paper.

    Returns:
        Advantages and returns, (B, T) each, 0 where the mask is 0.

    Raises:
        ValueError: A reward is NaN or infinite.

    Source: Schulman et al. 2016 (GAE), eq. 16, with the loss mask of CoRL, section 3.2.
    """
    _refuse_nonfinite(rewards)
    policy_values = gather_masked(values, mask)  # (B, N): N policy tokens in the longest sequence
    position = torch.arange(policy_values.shape[1], device=mask.device)  # (N,)
    last_position = (mask.sum(1) - 1)[:, None]  # (B, 1)

    # The reward comes with the last policy token; the sequence goes on after every earlier one.
    token_rewards = rewards[:, None] * (position == last_position)  # (B, N)
    continues = (position < last_position).to(policy_values)  # (B, N)
    value_after_end = torch.zeros_like(policy_values[:, 0])  # (B,)

    advantages, returns = compute_gae(
        token_rewards, policy_values, continues, value_after_end, gamma, lam
    )
    return scatter_masked(advantages, mask), scatter_masked(returns, mask)


def gather_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Gathers the entries of each row where the mask is True, side by side from the left.

    Args:
        values: (B, T).
        mask: (B, T) bool.

    Returns:
        (B, N) with N the most entries of a row; 0 behind the entries of a shorter row.

    Example:
        >>> gather_masked(torch.tensor([[5, 6, 7]]), torch.tensor([[True, False, True]]))
        tensor([[5, 7]])
    """
    counts = mask.sum(1)  # (B,)
    gathered = values.new_zeros(len(mask), int(counts.max()))
    is_entry = torch.arange(gathered.shape[1], device=mask.device) < counts[:, None]  # (B, N)
    gathered[is_entry] = values[mask]
    return gathered


def scatter_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Scatters entries back to where the mask is True, the inverse of `gather_masked`.

    Args:
        values: (B, N) entries of each row, from the left.
        mask: (B, T) bool.

    Returns:
        (B, T), 0 where the mask is False.
    """
    counts = mask.sum(1)  # (B,)
    scattered = values.new_zeros(mask.shape)
    is_entry = torch.arange(values.shape[1], device=mask.device) < counts[:, None]  # (B, N)
    scattered[mask] = values[is_entry]
    return scattered


# Advantages within a group, and whitening ----------------------------------------------------------


def compute_group_advantages(
    rewards: Tensor,
    groups: Sequence[int] | Tensor | int,
    divide: bool = True,
    correction: int = 1,
    epsilon: float = 1e-4,
) -> Tensor:
    """Advantages of GRPO: how far each reward is from the mean of its group, in deviations of the group.

    Args:
        rewards: (B,) reward of each episode.
        groups: Group of each episode, in any order; or one number, the size of groups that stand side by side.
        divide: Whether to divide by the deviation of the group; without it only the mean is subtracted.
        correction: The variance is a sum of squares over n - correction: 1 as in TRL, 0 as in ARC.
        epsilon: Added to the deviation, so that a group of equal rewards gets 0.

    Returns:
        (B,) advantages; 0 in groups of one or of equal rewards.

    Raises:
        ValueError: A reward is NaN or infinite; it would make all advantages of its group NaN.

    Source: Shao et al. 2024 (GRPO), section 4.1.2.

    Example:
        >>> compute_group_advantages(torch.tensor([1.0, 0.0, 2.0, 4.0]), groups=2, divide=False)
        tensor([ 0.5000, -0.5000, -1.0000,  1.0000])
    """
    _refuse_nonfinite(rewards)
    has_equal_groups = isinstance(groups, int) and len(rewards) % groups == 0
    if has_equal_groups and groups > correction:
        grouped_rewards = rewards.view(-1, groups)  # (groups, group size)
        centred = grouped_rewards - grouped_rewards.mean(1, keepdim=True)  # R_i - mean(R)
        if not divide:
            return centred.flatten()
        deviation = grouped_rewards.std(1, correction=correction, keepdim=True)
        return (centred / (deviation + epsilon)).flatten()  # A_i = (R_i - mean(R)) / std(R)

    if isinstance(groups, int):
        group_ids = torch.arange(len(rewards)) // groups
    else:
        group_ids = torch.as_tensor(groups)  # (B,)

    advantages = torch.zeros_like(rewards)
    for group in group_ids.unique():
        is_member = (group_ids == group).to(rewards.device)  # (B,)
        group_rewards = rewards[is_member]
        centred = group_rewards - group_rewards.mean()  # R_i - mean(R)
        if not divide:
            advantages[is_member] = centred
            continue
        deviation = 0.0  # a group of one has none
        if len(group_rewards) > correction:
            deviation = group_rewards.std(correction=correction)
        advantages[is_member] = centred / (deviation + epsilon)  # A_i = (R_i - mean(R)) / std(R)
    return advantages


def whiten(values: Tensor, dim: int | None = None, correction: int = 0) -> Tensor:
    """Shift and scale values to mean 0 and deviation 1.

    Args:
        values: (...) what is whitened.
        dim: The dimension along which mean and deviation are taken; None takes them over everything.
        correction: The variance is a sum of squares over n - correction.

    Returns:
        (...) whitened values; 0 where all are equal.
    """
    mean = values.mean(dim, keepdim=True)
    deviation = values.std(dim, correction=correction, keepdim=True)
    return (values - mean) / (deviation + 1e-8)  # (x - mean) / std


def _refuse_nonfinite(rewards: Tensor) -> None:
    """Checks that all rewards are finite, before one that is not spreads to other episodes.

    Args:
        rewards: (B,) reward of each episode.

    Raises:
        ValueError: A reward is NaN or infinite.
    """
    is_broken = ~torch.isfinite(rewards)
    if is_broken.any():
        first = int(is_broken.nonzero()[0, 0])
        raise ValueError(
            f"{int(is_broken.sum())} of {len(rewards)} rewards are NaN or infinite, the first at index {first} "
            f"({float(rewards[first])}); check the reward function, or leave these episodes out"
        )
