"""Finished episodes as padded tensors, with a mask that says which tokens are learned from.

The mask alone decides: tokens of prompts, experts, tools and padding, and whatever a generator wrote after the
end of a turn, are read by the model but have no term in any loss. Nothing here knows who wrote the other tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sample:
    """One finished episode.

    Attributes:
        ids: All tokens of the episode, those of the prompt first.
        mask: For each token whether the policy wrote it, and so learns from it.
        reward: Reward of the whole episode; it is paid at the last token of the policy.
        group: Episodes of one group are compared with each other (GRPO).
        stratum: Advantages are whitened within each stratum (PPO).
    """

    ids: Sequence[int]
    mask: Sequence[bool]
    reward: float
    group: int = 0
    stratum: int = 0


@dataclass
class TokenBatch:
    """Samples as tensors, padded on the right; B episodes of at most T tokens.

    Position t of everything with T - 1 columns is about token t + 1, which is predicted from the tokens before it.
    The last four attributes are filled in by the trainer.

    Attributes:
        ids: (B, T).
        attention_mask: (B, T), 1 where there is a token at all.
        mask: (B, T - 1), whether the policy wrote the next token.
        rewards: (B,).
        groups: B ids.
        strata: (B,).
        old_logprobs: (B, T - 1), under the policy that sampled the tokens.
        reference_logprobs: (B, T - 1), under the policy as it was before training.
        advantages: (B, T - 1).
        returns: (B, T - 1), what the critic learns.
    """

    ids: torch.Tensor
    attention_mask: torch.Tensor
    mask: torch.Tensor
    rewards: torch.Tensor
    groups: list[int]
    strata: torch.Tensor
    old_logprobs: torch.Tensor | None = None
    reference_logprobs: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    returns: torch.Tensor | None = None


def collate_samples(
    samples: Sequence[Sample], pad_id: int, device: torch.device | str = "cpu"
) -> TokenBatch:
    """Pad samples into tensors.

    Args:
        samples: B episodes.
        pad_id: Token that fills the rows on the right.
        device: Where the tensors go.

    Returns:
        The batch, (B, T) with T the length of the longest sample.

    Raises:
        ValueError: No samples; a sample without a prompt, without a token of the policy, or with a mask of another
            length; a reward that is NaN or infinite. The message names the sample's index.
    """
    if not samples:
        raise ValueError("there are no samples to collate; skip the update instead")
    for index, sample in enumerate(samples):
        _check_sample(index, sample)

    # Padded on the right: positions count from the first token, as they did while the tokens were sampled.
    width = max(len(sample.ids) for sample in samples)  # T
    rows, masks, attention = [], [], []
    for sample in samples:
        padding = width - len(sample.ids)
        rows.append([*sample.ids, *[pad_id] * padding])
        masks.append([*sample.mask, *[False] * padding])
        attention.append([1] * len(sample.ids) + [0] * padding)
    return TokenBatch(
        ids=torch.tensor(rows, device=device),
        attention_mask=torch.tensor(attention, device=device),
        # (B, T - 1): what is predicted after each token is the one behind it.
        mask=torch.tensor(masks, device=device)[:, 1:],
        rewards=torch.tensor(
            [sample.reward for sample in samples], dtype=torch.float32, device=device
        ),
        groups=[sample.group for sample in samples],
        strata=torch.tensor([sample.stratum for sample in samples], device=device),
    )


def _check_sample(index: int, sample: Sample) -> None:
    """Checks that a sample can be trained on.

    Args:
        index: Index of the sample, for the error message.
        sample: Tokens, the mask of those that the policy wrote, and the reward.

    Raises:
        ValueError: The mask does not fit, no token is the policy's, the first one is, or the reward is not finite.
    """
    if len(sample.mask) != len(sample.ids):
        raise ValueError(
            f"sample {index} has {len(sample.ids)} tokens and a mask of {len(sample.mask)}; "
            "give every token one entry of the mask"
        )
    if not any(sample.mask):
        raise ValueError(
            f"sample {index} has no token that the policy wrote; leave out episodes "
            "in which nothing was written"
        )
    if sample.mask[0]:
        raise ValueError(
            f"sample {index} starts with a token of the policy, which nothing predicts; "
            "put the prompt before it"
        )
    if not math.isfinite(sample.reward):
        raise ValueError(
            f"sample {index} has the reward {sample.reward}; leave out episodes "
            "that could not be scored"
        )
