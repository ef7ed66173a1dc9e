"""How the Conductor learns: REINFORCE on the advantages of the rollouts of the last steps.

    grad J = 1/(N G) sum_ij [ A_ij grad log pi(a_ij | h_ij) + lambda grad H(pi(. | h_ij)) ]    MAESTRO, eq. 3

    h_ij    hidden state of the policy at the end of rollout j of prompt i
    a_ij    emphasis: the reward whose weight is raised in that rollout, sampled from pi(. | h_ij)
    A_ij    advantage of the rollout: its weighted reward, standardised among the G rollouts of its prompt (a group)
    H       entropy

A is the advantage that the policy itself is trained with: the Conductor has no reward of its own. The triplets
(h, a, A) are buffered, and every M steps one update is made of them, on its own time scale.

`AnchoredWeighting` is ours: the same head, buffer and updates, with another number in the place of A. It says how well
the emphasised reward agrees with verified quality, the score of a verifier or judge. What stands in the place of A is
called meta reward below.

All tensors may have leading dimensions: `batch_over_seeds` puts many Conductors side by side, each of which learns what
it would learn alone.

Letters of shapes: S seeds, B rollouts of a step, N rollouts in the buffer, G rollouts of a group, d width of a state, K
rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_SMALLEST_FRACTION = 1e-9  # of verified prompts, to divide by


@dataclass(frozen=True)
class MetaBatch:
    """The triplets (h, a, A) of eq. 3, one for each rollout; groups stand side by side.

    Attributes:
        h: (..., N, d) hidden states.
        action: (..., N) sampled emphases, as indices of rewards.
        advantage: (..., N) meta reward of each emphasis: A, or what an anchored Conductor puts in its place.
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
    """Compute the loss that one update of the Conductor minimises: MAESTRO, eq. 5 and 6.

    Args:
        conductor: One Conductor, or several batched over seeds.
        batch: The buffered triplets.
        entropy_coefficient: lambda_ent, the weight of the entropy bonus.
        pairwise: Weight of `compute_pairwise_loss`, the variant of Table 5.
        group_size: Rollouts of a group; only the pairwise loss reads it.

    Returns:
        A scalar. Conductors side by side each have their own mean, and their losses are summed.
    """
    probabilities = conductor(batch.h)  # (..., N, K), pi(. | h)
    log_probs = probabilities.gather(-1, batch.action[..., None])[..., 0].log()  # (..., N)

    # eq. 5: -1/(N G) sum_ij A_ij log pi(a_ij | h_ij); A is a constant here.
    reinforce = -(batch.advantage * log_probs).mean(-1)
    # eq. 6: minus lambda_ent times the mean of H(pi(. | h_ij)).
    entropy = compute_entropy(probabilities).mean(-1)
    loss = reinforce - entropy_coefficient * entropy

    if pairwise:
        # (..., N) to (..., groups, G): pairs are of one group.
        grouped_log_probs = log_probs.unflatten(-1, (-1, group_size))
        grouped_advantages = batch.advantage.unflatten(-1, (-1, group_size))
        loss = loss + pairwise * compute_pairwise_loss(grouped_log_probs, grouped_advantages)
    return loss.sum()


def compute_pairwise_loss(log_probs: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Compute a loss that raises the emphasis of the better rollout above that of the worse one, pair by pair.

        mean of -log sigmoid(log pi(a_i) - log pi(a_j)) over the pairs (i, j) of a group with A_i > A_j

    The paper names a pairwise perturbation (Table 5) and does not define it. Weighting pairs by A_i - A_j would change
    nothing: as advantages sum to 0 in a group, that is eq. 5 times G. So we take the logistic loss, which reads only
    the order.

    Args:
        log_probs: (..., groups, G) log pi(a | h) of the sampled emphases.
        advantage: (..., groups, G) advantages of the rollouts.

    Returns:
        (...,) means over the pairs; 0 where all advantages of every group are equal.
    """
    # Entry (i, j) of the last two axes is a pair of rollouts: (..., groups, G, G).
    is_better = advantage[..., :, None] > advantage[..., None, :]
    difference = log_probs[..., :, None] - log_probs[..., None, :]
    losses_of_pairs = -nn.functional.logsigmoid(difference) * is_better

    # The mean over groups and pairs.
    pair_axes = (-3, -2, -1)
    num_pairs = is_better.sum(pair_axes).clamp(min=1)
    return losses_of_pairs.sum(pair_axes) / num_pairs


def compute_joint_loss(
    advantage: torch.Tensor, num_tokens: torch.Tensor, max_tokens: int
) -> torch.Tensor:
    """Compute the part of the policy's loss whose gradient the Conductor follows in joint training (Table 6).

    In joint training there is no REINFORCE: the weights keep their gradient in the policy's own loss. phi are the
    parameters of the Conductor, theta those of the policy. The loss of DR-GRPO with sequence-level importance, as TRL
    computes it, is

        L = -1/(B T) sum_j n_j rho_j A_j,    rho_j = pi_theta(y_j) / pi_old(y_j) = 1 on fresh rollouts

    with n_j the tokens of reply j that count and T the limit of tokens. So dL/dphi = -1/(B T) sum_j n_j dA_j/dphi.
    Advantages of a group sum to 0 whatever the weights are, and so do their derivatives: only the differences between
    n_j and its mean over the group are left. Where all replies of a group are equally long the gradient is exactly 0;
    otherwise it raises the advantage of long replies, whatever they are worth. Replies that are cut off and masked have
    n_j = 0.

    Args:
        advantage: (B,) A_j, with its gradient with respect to the Conductor.
        num_tokens: (B,) n_j, tokens of reply j that count.
        max_tokens: T, limit of tokens of a reply.

    Returns:
        A scalar.
    """
    return -(advantage * num_tokens).sum() / (len(advantage) * max_tokens)


class ConductorWeighting(Weighting):
    """Weights by the Conductor: it samples an emphasis for every rollout and learns from the advantages.

    Two ablations of the paper:

    - Homogeneous: a group shares one state (its mean) and one emphasis, what the paper calls naive. Advantages sum to 0
      in a group, so they cancel in eq. 5. What is left is rounding, which AdamW scales up into steps without meaning.
    - Joint (Table 6): there is no REINFORCE. The weights stay in the policy's own loss, whose gradient is followed
      after every step; `compute_joint_loss` says what that gradient is.

    Attributes:
        settings: Settings of the Conductor; MAESTRO, Table 8, and its ablations.
        group_size: G, rollouts per prompt.
        conductor: The head, or several batched over seeds.
        optimizer: Optimizer of the head's parameters.
        stream: Key of the random numbers that sample emphases; (S, 1) keys where seeds are batched.
        buffer: The triplets of the steps since the last update, one batch per step.
        num_updates: Updates so far.
    """

    def __init__(self, width: int, settings: HeadSettings, group_size: int, seed: int) -> None:
        """Start with uniform weights.

        Args:
            width: d, of the hidden states.
            settings: Settings of the Conductor; MAESTRO, Table 8, and its ablations.
            group_size: G, rollouts per prompt.
            seed: Seed of the sampled emphases.
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
        """Sample an emphasis for every rollout of a step, and weigh the rewards by it.

        Args:
            h: (..., B, d) hidden states at the ends of the rollouts.
            step: Number of the GRPO step; it selects the random numbers.

        Returns:
            (..., B, K) weights w(h, a), with their gradient in joint training; (..., B) sampled emphases.
        """
        self._move(h.device)
        h = self._prepare_states(h)
        # REINFORCE needs no gradient of the weights; joint training follows nothing else.
        with torch.set_grad_enabled(self.settings.joint):
            probabilities = self.conductor(h)
            action = self._sample_emphases(probabilities.detach(), step)
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
        """Buffer the step's triplets, and update the Conductor once `update_interval` steps are buffered.

        Args:
            outcomes: What followed from the weights of the last `weigh_rollouts`.
        """
        # Joint training learns in `finish_step`, from the gradient of the policy's loss.
        if self._last_sample is None or self.settings.joint:
            return

        # Complete the triplets (h, a, A); every sample is learned from once.
        h, action = self._last_sample
        self._last_sample = None
        meta_reward = self._compute_meta_rewards(outcomes, action)
        self.buffer.append(MetaBatch(h.detach(), action, meta_reward))
        if len(self.buffer) < self.settings.update_interval:
            return

        # One update from all buffered steps.
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
        """Compute what stands in the place of A in eq. 3: here A itself, the advantage of the rollout.

        Args:
            outcomes: Outcomes of the rollouts of the step.
            action: (..., B) sampled emphases; not read here, but by derived classes.

        Returns:
            (..., B) meta rewards of the sampled emphases.
        """
        return outcomes.advantage.detach()

    def finish_step(self) -> None:
        """In joint mode, follow the gradient that the policy's loss left."""
        if self.settings.joint and next(self.conductor.parameters()).grad is not None:
            self._update()

    def _update(self) -> None:
        """Follow the gradient that the parameters hold."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.num_updates += 1

    def _move(self, device: torch.device) -> None:
        """Move the head, its optimizer and its buffer to the device of the hidden states.

        A checkpoint is loaded before that device is known.

        Args:
            device: The device.
        """
        if next(self.conductor.parameters()).device != device:
            self.conductor.to(device)
            for state in self.optimizer.state.values():
                for name, tensor in state.items():
                    if name != "step":  # AdamW keeps its count of steps on the CPU
                        state[name] = tensor.to(device)
        self.buffer = [batch.move(device) for batch in self.buffer]

    def _prepare_states(self, h: torch.Tensor) -> torch.Tensor:
        """Make the states that the Conductor reads: h, or in homogeneous mode the mean of h in each group.

        Args:
            h: (..., B, d) hidden states of the rollouts, groups side by side.

        Returns:
            (..., B, d) states in single precision and without gradient.
        """
        h = h.detach().float()
        if not self.settings.homogeneous:
            return h
        # (..., groups, G, d) to (..., groups, d), and back to one state per rollout.
        group_means = h.unflatten(-2, (-1, self.group_size)).mean(-2)
        return group_means.repeat_interleave(self.group_size, -2)

    def _sample_emphases(self, probabilities: torch.Tensor, step: int) -> torch.Tensor:
        """Sample the emphasis of every rollout from pi(. | h).

        Args:
            probabilities: (..., B, K) pi(. | h).
            step: Number of the GRPO step.

        Returns:
            (..., B) indices of rewards; in homogeneous mode the same one throughout a group.
        """
        num_rollouts = probabilities.shape[-2]
        rollout_numbers = np.arange(num_rollouts)
        if self.settings.homogeneous:
            # All rollouts of a group draw the random number of the group's first one.
            rollout_numbers = rollout_numbers // self.group_size * self.group_size
        # Numbered by step and rollout, so that a resumed training draws what it would have drawn.
        uniforms = seeds.uniform(self.stream, step * num_rollouts + rollout_numbers)
        return sample_actions(probabilities, torch.from_numpy(uniforms).to(probabilities.device))

    def get_state(self) -> dict[str, np.ndarray]:
        """Collect the state for a checkpoint: head, optimizer, buffer and the number of updates.

        Returns:
            Arrays by name: conductor.PARAMETER, optimizer.INDEX.MOMENT, buffer.STEP.FIELD, num_updates.
        """
        tensors = {}
        for name, tensor in self.conductor.state_dict().items():
            tensors[f"conductor.{name}"] = tensor

        # AdamW numbers the parameters, and keeps its moments for each of them.
        for index, moments in self.optimizer.state_dict()["state"].items():
            for name, value in moments.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)

        for index, batch in enumerate(self.buffer):
            tensors[f"buffer.{index}.h"] = batch.h
            tensors[f"buffer.{index}.action"] = batch.action
            tensors[f"buffer.{index}.advantage"] = batch.advantage
        tensors["num_updates"] = torch.tensor(self.num_updates)

        # Copies: training goes on while the checkpoint is written.
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a checkpoint.

        Args:
            arrays: What `get_state` returned.

        Raises:
            KeyError, RuntimeError: The arrays are of another Conductor.
        """
        # Sort the arrays by what comes before the first dot of their names.
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

        # The optimizer: INDEX.MOMENT back to moments by number of the parameter.
        optimizer_state = self.optimizer.state_dict()
        optimizer_state["state"] = {}
        for name, tensor in sections["optimizer"].items():
            index, _, key = name.partition(".")
            optimizer_state["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(optimizer_state)

        # The buffer: STEP.FIELD back to one batch per step.
        buffered = sections["buffer"]
        step_numbers = sorted({int(name.partition(".")[0]) for name in buffered})
        self.buffer = [
            MetaBatch(buffered[f"{i}.h"], buffered[f"{i}.action"], buffered[f"{i}.advantage"])
            for i in step_numbers
        ]
        self.num_updates = int(arrays["num_updates"])


class AnchoredWeighting(ConductorWeighting):
    """The anchored Conductor (ours): it learns to emphasise the rewards that agree with verified quality.

    On a fraction of the prompts a verifier or judge scores the replies. There an emphasis a is rewarded by

        B = (r_a - mean of r_a in its group) * z / fraction

        r_a    the emphasised reward of the rollout
        z      verified quality of the rollout, minus its mean in the group, divided by its deviation there

    and on all other prompts by 0. B stands in the place of A in eq. 3. Its mean over a group is the covariance of the
    emphasised reward with quality: a reward is worth emphasising where it ranks replies as the truth does. The policy
    is rewarded as before, by the weighted rewards alone; verified quality reaches it through the weights only.

    Attributes:
        verified_stream: Key of the random numbers that choose the verified prompts; (S, 1) keys where seeds are
            batched.
    """

    def __init__(self, width: int, settings: HeadSettings, group_size: int, seed: int) -> None:
        """Start with uniform weights.

        Args:
            width: d, of the hidden states.
            settings: Settings of the Conductor; `verified_fraction` says how many prompts are verified.
            group_size: G, rollouts per prompt.
            seed: Seed of the sampled emphases and of the verified prompts.
        """
        super().__init__(width, settings, group_size, seed)
        self.verified_stream = make_verified_mask_stream([seed])

    def _compute_meta_rewards(
        self, outcomes: RolloutOutcomes, action: torch.Tensor
    ) -> torch.Tensor:
        """Reward every emphasis by how well the emphasised reward agrees with verified quality: B of the class.

        Args:
            outcomes: Outcomes of the rollouts of the step, groups side by side; with rewards, verified quality and
                prompts.
            action: (..., B) sampled emphases a, as indices of rewards.

        Returns:
            (..., B) meta rewards; 0 on prompts that are not verified.

        Raises:
            ValueError: The outcomes lack rewards, verified quality or prompts.
        """
        rewards = outcomes.rewards
        quality = outcomes.quality
        prompt = outcomes.prompt
        if rewards is None or quality is None or prompt is None:
            raise ValueError(
                "an anchored Conductor needs the rewards, verified quality and prompts of its rollouts"
            )
        # r_a minus its mean in the group. The rollouts of all seeds stand in one row: (seeds * B, K) to (seeds * B,).
        num_rewards = rewards.shape[-1]
        flat_rewards = rewards.detach().reshape(-1, num_rewards)
        centred_rewards = subtract_group_means(flat_rewards, self.group_size)
        emphasized = centred_rewards.gather(-1, action.flatten()[:, None])[:, 0]

        # z, quality standardised in the group as GRPO standardises rewards: (seeds * B,).
        flat_quality = quality.to(emphasized).flatten()
        standardized_quality = losses.compute_group_advantages(flat_quality, self.group_size)
        agreement = (emphasized * standardized_quality).view_as(outcomes.advantage)  # (..., B)

        # Other prompts give 0. Divided by the fraction, the expectation does not depend on how many are verified.
        fraction = self.settings.verified_fraction
        is_verified = select_verified(self.verified_stream, prompt, fraction).to(emphasized)
        return agreement * is_verified / max(fraction, _SMALLEST_FRACTION)


def batch_over_seeds(
    weighting: ConductorWeighting, seed_names: Sequence[int]
) -> ConductorWeighting:
    """Put the Conductors of several seeds side by side, so that one call weighs the rollouts of all of them.

    Args:
        weighting: Weighting of one seed, before any update; it is changed.
        seed_names: The seeds, S of them.

    Returns:
        The same weighting, now for tensors (S, B, ...).
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
    """Make the keys of the random numbers that choose the verified prompts.

    Args:
        seed_names: The seeds, S of them.

    Returns:
        (S, 1) keys, or (1,) for one seed; for `select_verified`.
    """
    keys = [seeds.key("conductor", "verified prompts", seed=seed) for seed in seed_names]
    stream = np.array(keys)
    return stream if len(keys) == 1 else stream[:, None]


def select_verified(stream: np.ndarray, prompt: torch.Tensor, fraction: float) -> torch.Tensor:
    """Select the rollouts whose prompt is verified; a prompt is always verified or never.

    Args:
        stream: Keys of `make_verified_mask_stream`.
        prompt: (..., B) number of each rollout's prompt.
        fraction: Fraction of the prompts that are verified, on average.

    Returns:
        (..., B) booleans.
    """
    # One random number per prompt, whichever step it comes in.
    uniforms = seeds.uniform(stream, prompt.cpu().numpy())
    return torch.from_numpy(uniforms < fraction).to(prompt.device)


def score_verified_replies(
    row: Sequence[int],
    seed: int,
    fraction: float,
    score_replies: Callable[[list[int]], list[float]],
) -> list[float]:
    """Score the replies to verified prompts, from which an anchored Conductor learns.

    Args:
        row: B numbers, of each reply's prompt.
        seed: Seed of the training, which decides which prompts are verified.
        fraction: Fraction of the prompts that are verified, on average.
        score_replies: From the positions of replies, in 0 to B - 1, to their scores, in the same order.

    Returns:
        B scores; 0 for replies to all other prompts, which `AnchoredWeighting` leaves out.
    """
    # The same prompts are verified in every step.
    stream = make_verified_mask_stream([seed])
    is_verified = select_verified(stream, torch.tensor(row), fraction)  # (B,)
    verified = is_verified.nonzero()[:, 0].tolist()

    # Only replies to those are scored, since a judge costs money; with none of them it is not asked at all.
    scores = [0.0] * len(row)
    if verified:
        for position, score in zip(verified, score_replies(verified), strict=True):
            scores[position] = score
    return scores
