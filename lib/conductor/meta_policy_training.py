"""How the Conductor learns: REINFORCE on the advantages of the rollouts of the last steps.

    grad J = 1/(N G) sum_ij [ A_ij grad log pi(a_ij | h_ij) + lambda grad H(pi(. | h_ij)) ]    MAESTRO, eq. 3

A is the group-relative advantage that the policy itself is trained with: the Conductor has no reward of its own. The
triplets (h, a, A) are buffered, and every M steps one update is made of them, on its own time scale.

`AnchoredWeighting` is ours: the same head, buffer and updates, in which A is replaced by what the emphasised reward has
to do with verified quality. All tensors may have leading dimensions: `batch_over_seeds` puts many Conductors side by
side, each of which learns what it would learn alone.

Letters of shapes: S seeds, B rollouts of a step, G rollouts of a group, d width of a state, K rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lib.conductor.meta_policy import (
    Conductor,
    compute_emphasis_weights,
    compute_entropy,
    sample_actions,
)
from lib.conductor.rewards import COMPONENTS, subtract_group_means
from lib.conductor.weighting import RolloutOutcomes, Weighting
from lib.config import HeadSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.rl.seed_batched import SeedBatched

VERSION = 1  # of how the Conductor learns


@dataclass(frozen=True)
class MetaBatch:
    """The triplets of eq. 3.

    Attributes:
        h: (..., N, d) hidden states.
        action: (..., N) sampled emphases.
        advantage: (..., N) what each emphasis is rewarded with; groups stand side by side.
    """

    h: torch.Tensor
    action: torch.Tensor
    advantage: torch.Tensor

    @classmethod
    def concatenate(cls, batches: Sequence[MetaBatch]) -> MetaBatch:
        """The rollouts of several steps as one batch."""
        return cls(
            torch.cat([batch.h for batch in batches], dim=-2),
            torch.cat([batch.action for batch in batches], dim=-1),
            torch.cat([batch.advantage for batch in batches], dim=-1),
        )

    def move(self, device: torch.device) -> MetaBatch:
        """The batch on another device."""
        return MetaBatch(self.h.to(device), self.action.to(device), self.advantage.to(device))


def compute_meta_loss(
    conductor: Conductor,
    batch: MetaBatch,
    entropy_coefficient: float,
    pairwise: float = 0.0,
    group_size: int = 1,
) -> torch.Tensor:
    """The loss that one update minimises: equations 5 and 6 of the paper.

    Args:
        conductor: One Conductor, or several batched over seeds.
        batch: The buffered triplets.
        entropy_coefficient: lambda_ent.
        pairwise: Weight of `compute_pairwise_loss`, the variant of Table 5.
        group_size: Rollouts of a group; only the pairwise loss reads it.

    Returns:
        A scalar. Conductors side by side each have their own mean, and their losses are summed.
    """
    probabilities = conductor(batch.h)  # (..., N, K)
    log_probs = probabilities.gather(-1, batch.action[..., None])[..., 0].log()
    # eq. 5: -1/(N G) sum_ij A_ij log pi(a_ij | h_ij); A is a constant here.
    reinforce = -(batch.advantage * log_probs).mean(-1)
    loss = reinforce - entropy_coefficient * compute_entropy(probabilities).mean(-1)
    if pairwise:
        grouped_log_probs = log_probs.unflatten(-1, (-1, group_size))
        grouped_advantages = batch.advantage.unflatten(-1, (-1, group_size))
        loss = loss + pairwise * compute_pairwise_loss(grouped_log_probs, grouped_advantages)
    return loss.sum()


def compute_pairwise_loss(log_probs: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """-log sigmoid(log pi(a_i) - log pi(a_j)) over the pairs of a group in which i has the larger advantage.

    The paper names a pairwise perturbation and does not define it. Differences of advantages would change nothing:
    centred in the group, they are eq. 5 times G. So the variant is the logistic one, which reads only the order
    (decision).

    Args:
        log_probs: (..., groups, G) of the sampled emphases.
        advantage: (..., groups, G).

    Returns:
        (...,) means over the ordered pairs; 0 where there are none.
    """
    # Pairs (i, j) of a group: (..., groups, G, G).
    is_better = advantage[..., :, None] > advantage[..., None, :]
    difference = log_probs[..., :, None] - log_probs[..., None, :]
    pair_axes = (-3, -2, -1)
    num_pairs = is_better.sum(pair_axes).clamp(min=1)
    return -(nn.functional.logsigmoid(difference) * is_better).sum(pair_axes) / num_pairs


def compute_joint_loss(
    advantage: torch.Tensor, num_tokens: torch.Tensor, max_tokens: int
) -> torch.Tensor:
    """The part of the policy's loss that depends on the Conductor, where its weights stay in that loss (Table 6).

    The loss of DR-GRPO with sequence-level importance, as TRL computes it, is

        L = -1/(B T) sum_j n_j rho_j A_j,    rho_j = pi_theta(y_j) / pi_old(y_j) = 1 on fresh rollouts

    with n_j the tokens of reply j that count and T the limit of tokens. So dL/dphi = -1/(B T) sum_j n_j dA_j/dphi.
    Advantages of a group sum to 0 whatever the weights are, and so do their derivatives: only the differences between
    n_j and its mean over the group are left. Where all replies of a group are equally long the gradient is exactly 0;
    otherwise it raises the advantage of long replies, whatever they are worth. Replies that are cut off and masked have
    n_j = 0.

    Args:
        advantage: (B,) with its gradient.
        num_tokens: (B,) n_j.
        max_tokens: T.

    Returns:
        A scalar.
    """
    return -(advantage * num_tokens).sum() / (len(advantage) * max_tokens)


class ConductorWeighting(Weighting):
    """Weights by the Conductor: it samples an emphasis for every rollout and learns from the advantages.

    In homogeneous mode a group shares one context (its mean) and one action, what the paper calls naive: centred
    advantages then cancel in eq. 5. What is left is rounding, which AdamW scales up into steps without meaning. In
    joint mode there is no REINFORCE: the weights stay in the policy's own loss, whose gradient is followed after every
    step (Table 6); `compute_joint_loss` says what that gradient is.

    Attributes:
        conductor: The head, or several batched over seeds.
        buffer: The triplets of the steps since the last update.
        num_updates: Updates so far.
    """

    def __init__(self, width: int, settings: HeadSettings, group_size: int, seed: int) -> None:
        """Start with uniform weights.

        Args:
            width: Of the hidden states.
            settings: Of the head.
            group_size: Rollouts per prompt.
            seed: Of the sampled emphases.
        """
        self.settings = settings
        self.group_size = group_size
        self.centred = settings.centred
        self.conductor = Conductor(width, len(COMPONENTS), settings.floor, settings.temperature)
        self.optimizer = torch.optim.AdamW(self.conductor.parameters(), lr=settings.learning_rate)
        self.stream = seeds.key("conductor", "emphasis", seed=seed)
        self.buffer: list[MetaBatch] = []
        self.num_updates = 0
        self._last_sample: tuple[torch.Tensor, torch.Tensor] | None = None  # h and action

    def weigh_rollouts(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._move(h.device)
        h = self._prepare_contexts(h)
        with torch.set_grad_enabled(self.settings.joint):
            probabilities = self.conductor(h)
            action = self._sample(probabilities.detach(), step)
            weights = compute_emphasis_weights(probabilities, action, self.settings.kappa)
        self._last_sample = h, action
        if weights.requires_grad:
            # Advantages are divided by a deviation, which has no derivative where all rewards of a group are equal.
            weights.register_hook(lambda gradient: gradient.nan_to_num(0.0, 0.0, 0.0))
        return weights, action

    @property
    def last_context(self) -> torch.Tensor:
        """(B, d) the states that the last `weigh_rollouts` used."""
        return self._last_sample[0]

    @torch.no_grad()
    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        self._move(h.device)
        return self.conductor(h.float())

    def learn(self, outcomes: RolloutOutcomes) -> None:
        """Buffer the step's triplets, and update once `update_interval` steps are buffered."""
        if self._last_sample is None or self.settings.joint:
            return
        h, action = self._last_sample
        self._last_sample = None
        meta_reward = self._compute_meta_rewards(outcomes, action)
        self.buffer.append(MetaBatch(h.detach(), action, meta_reward))
        if len(self.buffer) < self.settings.update_interval:
            return
        loss = compute_meta_loss(
            self.conductor,
            MetaBatch.concatenate(self.buffer),
            self.settings.entropy,
            self.settings.pairwise,
            self.group_size,
        )
        loss.backward()
        self.buffer = []
        self._update()

    def _compute_meta_rewards(
        self, outcomes: RolloutOutcomes, action: torch.Tensor
    ) -> torch.Tensor:
        """What each sampled emphasis is rewarded with, (..., B): here the advantage of its rollout (eq. 3)."""
        return outcomes.advantage.detach()

    def finish_step(self) -> None:
        """In joint mode, follow the gradient that the policy's loss left."""
        if self.settings.joint and next(self.conductor.parameters()).grad is not None:
            self._update()

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.num_updates += 1

    def _move(self, device: torch.device) -> None:
        """Move everything to where the states are; a checkpoint is read before that is known."""
        if next(self.conductor.parameters()).device != device:
            self.conductor.to(device)
            for state in self.optimizer.state.values():
                for name, tensor in state.items():
                    if name != "step":
                        state[name] = tensor.to(device)
        self.buffer = [batch.move(device) for batch in self.buffer]

    def _prepare_contexts(self, h: torch.Tensor) -> torch.Tensor:
        """h in single precision; in homogeneous mode the group's mean for every rollout of it."""
        h = h.detach().float()
        if not self.settings.homogeneous:
            return h
        # (..., groups, G, d) to (..., groups, d), and back to one context per rollout.
        group_means = h.unflatten(-2, (-1, self.group_size)).mean(-2)
        return group_means.repeat_interleave(self.group_size, -2)

    def _sample(self, probabilities: torch.Tensor, step: int) -> torch.Tensor:
        num_rollouts = probabilities.shape[-2]
        numbers = np.arange(num_rollouts)
        if self.settings.homogeneous:
            numbers = numbers // self.group_size * self.group_size  # one random number per group
        # Numbered by step and rollout, so that a resumed training draws what it would have drawn.
        uniforms = seeds.uniform(self.stream, step * num_rollouts + numbers)
        return sample_actions(probabilities, torch.from_numpy(uniforms).to(probabilities.device))

    def get_state(self) -> dict[str, np.ndarray]:
        tensors = {}
        for name, tensor in self.conductor.state_dict().items():
            tensors[f"conductor.{name}"] = tensor
        for index, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
        for index, batch in enumerate(self.buffer):
            tensors[f"buffer.{index}.h"] = batch.h
            tensors[f"buffer.{index}.action"] = batch.action
            tensors[f"buffer.{index}.advantage"] = batch.advantage
        tensors["num_updates"] = torch.tensor(self.num_updates)
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from `get_state`.

        Raises:
            KeyError, RuntimeError: The arrays are of another Conductor.
        """
        sections: dict[str, dict[str, torch.Tensor]] = {
            "conductor": {},
            "optimizer": {},
            "buffer": {},
        }
        for name, array in arrays.items():
            section, _, key = name.partition(".")
            if section in sections:
                sections[section][key] = torch.from_numpy(np.array(array))
        self.conductor.load_state_dict(sections["conductor"])

        optimizer_state = self.optimizer.state_dict()
        optimizer_state["state"] = {}
        for name, tensor in sections["optimizer"].items():
            index, _, key = name.partition(".")
            optimizer_state["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(optimizer_state)

        buffered = sections["buffer"]
        indices = sorted({int(name.partition(".")[0]) for name in buffered})
        self.buffer = [
            MetaBatch(buffered[f"{i}.h"], buffered[f"{i}.action"], buffered[f"{i}.advantage"])
            for i in indices
        ]
        self.num_updates = int(arrays["num_updates"])


class AnchoredWeighting(ConductorWeighting):
    """The anchored Conductor (ours): on a fraction of the prompts replies are verified, and an emphasis is rewarded by

        B = (r_a - mean of r_a in its group) * z / fraction,    z: verified quality, standardised in the group

    on those prompts and by nothing on others. Its mean over the group is the covariance of the emphasised reward with
    quality: a reward is worth emphasising where it ranks replies as the truth does. The policy is rewarded as before,
    by the weighted rewards alone; verified quality reaches it through the weights only.
    """

    def __init__(self, width: int, settings: HeadSettings, group_size: int, seed: int) -> None:
        super().__init__(width, settings, group_size, seed)
        self.verified_stream = make_verified_mask_stream([seed])

    def _compute_meta_rewards(
        self, outcomes: RolloutOutcomes, action: torch.Tensor
    ) -> torch.Tensor:
        rewards, quality, prompt = outcomes.rewards, outcomes.quality, outcomes.prompt
        if rewards is None or quality is None or prompt is None:
            raise ValueError(
                "an anchored Conductor needs the rewards, verified quality and prompts of its rollouts"
            )
        # The emphasised reward, above its group's mean.
        num_rewards = rewards.shape[-1]
        above_mean = subtract_group_means(
            rewards.detach().reshape(-1, num_rewards), self.group_size
        )
        emphasized = above_mean.gather(-1, action.flatten()[:, None])[:, 0]  # (S * B,)
        z = losses.compute_group_advantages(quality.to(emphasized).flatten(), self.group_size)

        fraction = self.settings.verified_fraction
        is_verified = select_verified(self.verified_stream, prompt, fraction).to(emphasized)
        meta_reward = (emphasized * z).view_as(outcomes.advantage)
        # Divided by the fraction, so that the expectation does not depend on it.
        return meta_reward * is_verified / max(fraction, 1e-9)


def batch_over_seeds(
    weighting: ConductorWeighting, seed_names: Sequence[int]
) -> ConductorWeighting:
    """Turn a weighting into one of as many Conductors side by side as there are seeds, for tensors (S, B, ...).

    Args:
        weighting: Of one seed; it is changed.
        seed_names: The seeds.

    Returns:
        The weighting.
    """
    weighting.conductor = SeedBatched([weighting.conductor] * len(seed_names))
    weighting.optimizer = torch.optim.AdamW(
        weighting.conductor.parameters(), lr=weighting.settings.learning_rate
    )
    keys = [seeds.key("conductor", "emphasis", seed=seed) for seed in seed_names]
    weighting.stream = np.array(keys)[:, None]
    weighting.verified_stream = make_verified_mask_stream(seed_names)
    return weighting


def make_verified_mask_stream(seed_names: Sequence[int]) -> np.ndarray:
    """The stream of random numbers that says which prompts are verified.

    Args:
        seed_names: The seeds.

    Returns:
        (S, 1) keys, or (1,) for one seed.
    """
    keys = [seeds.key("conductor", "verified prompts", seed=seed) for seed in seed_names]
    stream = np.array(keys)
    return stream if len(keys) == 1 else stream[:, None]


def select_verified(stream: np.ndarray, prompt: torch.Tensor, fraction: float) -> torch.Tensor:
    """Which rollouts belong to a verified prompt; the same prompts every time.

    Args:
        stream: Of `make_verified_mask_stream`.
        prompt: (..., B) numbers of the prompts.
        fraction: Of the prompts that are verified.

    Returns:
        (..., B) booleans.
    """
    uniforms = seeds.uniform(stream, prompt.cpu().numpy())
    return torch.from_numpy(uniforms < fraction).to(prompt.device)
