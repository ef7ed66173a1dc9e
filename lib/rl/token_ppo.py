"""PPO and GRPO on episodes in which the policy's turns alternate with tokens of experts and tools.

PPO with a critic and GAE (CoRL, eq. 4), or GRPO's group advantages (ToolOrchestra); both average a clipped objective
over the policy's tokens and hold it near the policy's start. Other tokens are read and never learned: they have no
term in any loss, so exactly zero gradient, and GAE runs over the policy's tokens as if the others were not there.

`TokenPPO.update` is one update from episodes to weights, top to bottom. Formulas are in `losses`, the model and its
precision in `policy_model`. Sampling the episodes is left to the caller.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from transformers import PreTrainedModel

from lib.config import LearnSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.rl.critic import Critic
from lib.rl.policy_model import PolicyModel
from lib.rl.sharding import discard_gathered_weights
from lib.rl.token_batch import Sample, TokenBatch, collate_samples
from lib.rl.training_checkpoint import (
    CheckpointHeader,
    check_number_of_ranks,
    collect_optimiser_state,
    list_rank_paths,
    load_tensors,
    make_next_path,
    make_rank_path,
    read_checkpoint,
    read_step,
    write_checkpoint,
)

VERSION = 1  # of the updates of a policy

_METRICS = ("loss", "kl", "clipped", "ratio", "value_error")


class TokenPPO:
    """A policy under training.

    Example:
        trainer = TokenPPO(policy, settings, pad_id=tokenizer.pad_token_id, num_updates=100)
        while trainer.step < 100:
            episodes = ...  # sampled from policy.network
            trainer.update([Sample(episode.ids, episode.mask, episode.reward) for episode in episodes])

    Attributes:
        policy: The model that is trained, and its reference.
        critic: V of every token, or None for group advantages.
        step: Updates that were done.
    """

    def __init__(
        self,
        policy: PolicyModel | PreTrainedModel,
        settings: LearnSettings,
        pad_id: int,
        num_updates: int,
        seed: int = 0,
        accelerator: Accelerator | None = None,
    ) -> None:
        """Start a training.

        Args:
            policy: A bare transformers model is trained as it is, in float32.
            settings: Settings of the updates.
            pad_id: Token that fills rows.
            num_updates: Updates to come, over which the learning rate may fall.
            seed: Seed of the order of minibatches.
            accelerator: For several processes, each of which brings equally many episodes: gradients are averaged,
                whitening and groups stay within a process. None trains in this process alone.
        """
        self.policy = policy if isinstance(policy, PolicyModel) else PolicyModel(policy)
        self.settings = settings
        self.pad_id = pad_id
        self.num_updates = num_updates
        self.seed = seed
        self.accelerator = accelerator
        self.step = 0

        # The reference and the critic's trunk are copies of the policy as it starts.
        if accelerator is not None:
            self.policy.to(accelerator.device)
        if settings.kl > 0:
            self.policy.freeze_reference()
        self.critic: Critic | None = None
        if settings.advantages == "gae":
            self.critic = Critic(self.policy, is_separate=settings.value == "apart")

        # Weights are divided before the optimiser is made, whose state then is divided too.
        if self.policy.settings.sharded:
            self._shard()

        groups = [{"params": self.policy.list_trained_parameters(), "lr": settings.learning_rate}]
        if self.critic is not None:
            critic_parameters = list(self.critic.list_named_parameters().values())
            groups.append({"params": critic_parameters, "lr": settings.value_learning_rate})
        self.optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        for group in self.optimiser.param_groups:
            group["full_lr"] = group["lr"]

    def _shard(self) -> None:
        if self.accelerator is None or not torch.distributed.is_initialized():
            raise ValueError(
                "sharded training needs several processes; start them with torchrun "
                "and pass the accelerator, or set sharded to false"
            )
        self.policy.shard()
        if self.critic is not None:
            self.critic.shard()

    # One update ------------------------------------------------------------------------------------

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Learn from episodes that the present policy wrote.

        Args:
            samples: At least one episode; in several processes, equally many in each.

        Returns:
            Means over all steps of the update: `loss`; `kl`, to the reference (NaN where the settings give it no
            weight, since there is no reference then); `clipped`, the share of policy tokens whose ratio left the
            trust region; `value_error`; and `ratio`, how far from 1 the ratios of the first step were.

        Raises:
            ValueError: A sample that nothing can be learned from, or other numbers of samples in other processes.
        """
        self._check_equally_many(samples)

        # Minibatches for one step each, in microbatches that fit into memory.
        minibatches = self._split_samples(samples)
        microbatches = [microbatch for minibatch in minibatches for microbatch in minibatch]

        # What the sampling policy, its reference and the critic say, before anything is learned. Where all is
        # learned in one step, that step's own pass says what the sampling policy says.
        needs_old_logprobs = len(minibatches) * self.settings.epochs > 1
        for microbatch in microbatches:
            self._evaluate(microbatch, needs_old_logprobs)
        self._assign_advantages(microbatches)

        # Several passes over all minibatches, each time in another order.
        rows: list[dict[str, float]] = []
        for epoch in range(self.settings.epochs):
            rng = seeds.rng("routing", "minibatches", self.step, epoch, seed=self.seed)
            for index in rng.permutation(len(minibatches)):
                rows.append(self._take_step(minibatches[int(index)]))
        self.step += 1

        metrics = {name: float(np.mean([row[name] for row in rows])) for name in _METRICS}
        metrics["ratio"] = rows[0]["ratio"]
        return metrics

    def skip_update(self) -> dict[str, float]:
        """Count an update that nothing is there to learn from: the schedule goes on, the weights stay."""
        self.step += 1
        return {}

    def _check_equally_many(self, samples: Sequence[Sample]) -> None:
        """Checks that all processes have the same number of samples; else some would wait for the others for ever.

        Args:
            samples: Those of this process.

        Raises:
            ValueError: The numbers differ.
        """
        if self.accelerator is None or self.accelerator.num_processes == 1:
            return
        count = torch.tensor([len(samples)], device=self.policy.device)
        counts = self.accelerator.gather(count).tolist()
        if len(set(counts)) > 1:
            raise ValueError(
                f"the processes bring {counts} samples; give each of them equally many"
            )

    def _split_samples(self, samples: Sequence[Sample]) -> list[list[TokenBatch]]:
        """Splits samples into minibatches of microbatches, similar lengths together, so that there is little padding.

        Groups of GRPO need not stay together, since advantages are computed over the whole update.

        Args:
            samples: All samples of an update.

        Returns:
            For each minibatch its microbatches.
        """
        order = sorted(range(len(samples)), key=lambda index: len(samples[index].ids))
        minibatches = []
        for minibatch_indices in _split_evenly(order, self.settings.minibatch):
            microbatches = []
            for indices in _split_evenly(minibatch_indices, self.settings.microbatch):
                chosen = [samples[index] for index in indices]
                microbatches.append(collate_samples(chosen, self.pad_id, self.policy.device))
            minibatches.append(microbatches)
        return minibatches

    @torch.no_grad()
    def _evaluate(self, microbatch: TokenBatch, needs_old_logprobs: bool) -> None:
        """Computes what the loss of a microbatch needs: old and reference log-probabilities, advantages and returns.

        The microbatch has the same shape as in training, so that the probability ratio of the first step is exactly
        1.

        Args:
            microbatch: Gets the results.
            needs_old_logprobs: Whether there are several steps per update, so that old log-probabilities are needed.
        """
        settings = self.settings
        if settings.kl > 0:
            microbatch.reference_logprobs = self.policy.compute_reference_logprobs(microbatch)
        if needs_old_logprobs or self.critic is not None:
            microbatch.old_logprobs, states = self.policy.compute_logprobs_and_states(microbatch)
        if self.critic is not None:
            values = self.critic(microbatch, states)
            microbatch.advantages, microbatch.returns = losses.compute_masked_gae(
                microbatch.rewards, values, microbatch.mask, settings.gamma, settings.lam
            )

    def _assign_advantages(self, microbatches: Sequence[TokenBatch]) -> None:
        """Over all of an update: by group (GRPO), or whitened within each stratum (PPO)."""
        if self.critic is None:
            self._assign_group_advantages(microbatches)
        elif self.settings.whiten:
            self._whiten_advantages(microbatches)

    def _assign_group_advantages(self, microbatches: Sequence[TokenBatch]) -> None:
        """Computes one group-relative advantage per episode (GRPO), the same at all of the policy's tokens.

        Args:
            microbatches: All of an update; they get the advantages.
        """
        rewards = torch.cat([microbatch.rewards for microbatch in microbatches])
        groups = [group for microbatch in microbatches for group in microbatch.groups]
        advantages = losses.compute_group_advantages(rewards, groups, self.settings.divide)
        sizes = [len(microbatch.rewards) for microbatch in microbatches]
        for microbatch, episode_advantages in zip(
            microbatches, advantages.split(sizes), strict=True
        ):
            microbatch.advantages = episode_advantages[:, None] * microbatch.mask

    def _whiten_advantages(self, microbatches: Sequence[TokenBatch]) -> None:
        """Normalizes advantages to mean 0 and variance 1 over all policy tokens of each stratum.

        Args:
            microbatches: All of an update; their advantages are changed.
        """
        # All of the policy's tokens in one row, with the stratum of each.
        advantages = torch.cat(
            [microbatch.advantages[microbatch.mask] for microbatch in microbatches]
        )
        strata = torch.cat(
            [
                microbatch.strata[:, None].expand_as(microbatch.mask)[microbatch.mask]
                for microbatch in microbatches
            ]
        )
        for stratum in strata.unique():
            is_in_stratum = strata == stratum
            advantages[is_in_stratum] = losses.whiten(advantages[is_in_stratum])

        # Back to where they came from.
        sizes = [int(microbatch.mask.sum()) for microbatch in microbatches]
        for microbatch, token_advantages in zip(microbatches, advantages.split(sizes), strict=True):
            microbatch.advantages[microbatch.mask] = token_advantages

    # One step --------------------------------------------------------------------------------------

    def _take_step(self, minibatch: Sequence[TokenBatch]) -> dict[str, float]:
        """Accumulates the gradients of a minibatch over its microbatches, and takes one optimizer step.

        Args:
            minibatch: Its microbatches.

        Returns:
            Metrics by name, averaged over the minibatch; the probability ratio is the largest deviation.
        """
        # A microbatch weighs as much as it has of what the loss is averaged over.
        if self.settings.average == "sequence":
            counts = np.array([float(len(microbatch.rewards)) for microbatch in minibatch])
        else:
            counts = np.array([float(microbatch.mask.sum()) for microbatch in minibatch])
        weights = counts / counts.sum()

        rows: list[list[float]] = []
        for microbatch, weight in zip(minibatch, weights.tolist(), strict=True):
            loss, metrics = self._compute_loss(microbatch)
            (loss * weight).backward()
            rows.append(metrics.tolist())
        self._apply_gradients()

        columns = list(zip(*rows, strict=True))
        means = {
            name: float(np.dot(weights, column))
            for name, column in zip(_METRICS, columns, strict=True)
        }
        means["ratio"] = max(columns[_METRICS.index("ratio")])
        return means

    def _compute_loss(self, microbatch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the loss of a microbatch: clipped policy loss (CoRL, eq. 4), KL penalty and value loss.

        Args:
            microbatch: Tokens with old log-probabilities, advantages and, with a critic, returns.

        Returns:
            The loss, and the values of _METRICS as one tensor.
        """
        settings = self.settings
        mask = microbatch.mask
        by = settings.average
        new_logprobs, states = self.policy.compute_logprobs_and_states(microbatch)
        old_logprobs = microbatch.old_logprobs
        if old_logprobs is None:
            old_logprobs = new_logprobs.detach()
        loss = losses.compute_policy_loss(
            new_logprobs, old_logprobs, microbatch.advantages, mask, settings.clip, by
        )

        kl = loss.new_full((), float("nan"))
        if settings.kl > 0:
            token_kl = losses.estimate_kl(new_logprobs, microbatch.reference_logprobs)
            kl = losses.average_over_tokens(token_kl, mask, by)
            loss = loss + settings.kl * kl

        value_error = loss.new_zeros(())
        if self.critic is not None:
            values = self.critic(microbatch, states)
            value_error = losses.compute_value_loss(values, microbatch.returns, mask, by)
            loss = loss + settings.value_weight * value_error

        with torch.no_grad():
            distance = (torch.exp(new_logprobs - old_logprobs)[mask] - 1).abs()
            clipped = (distance > settings.clip).float().mean()
            metrics = torch.stack([loss, kl, clipped, distance.max(), value_error])
        return loss, metrics

    def _apply_gradients(self) -> None:
        """Takes one AdamW step with clipped gradients, at the learning rate that the warm-up schedule gives."""
        if self.accelerator is not None:
            for parameter in self._list_parameters().values():
                # Those of sharded weights have been averaged by the backward pass.
                if parameter.grad is not None and not _is_sharded(parameter):
                    parameter.grad = self.accelerator.reduce(parameter.grad, "mean")
        nn.utils.clip_grad_norm_(self.policy.list_trained_parameters(), self.settings.max_grad_norm)

        warmups = [self.settings.warmup, self.settings.value_warmup]
        for group, warmup in zip(self.optimiser.param_groups, warmups, strict=False):
            group["lr"] = group["full_lr"] * self._compute_lr_factor(warmup)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def _compute_lr_factor(self, warmup: int) -> float:
        """Fraction of the full learning rate: a linear rise, then constant or a linear fall to 0."""
        rise = (self.step + 1) / warmup
        if self.settings.schedule == "constant":
            return min(1.0, rise)
        fall = max(0.0, 1 - self.step / self.num_updates)
        return min(1.0, rise, fall)

    def _list_parameters(self) -> dict[str, nn.Parameter]:
        """Lists all trained parameters, of the policy and of the critic, by name."""
        parameters = {
            f"policy.{name}": parameter
            for name, parameter in self.policy.list_named_parameters().items()
        }
        if self.critic is not None:
            for name, parameter in self.critic.list_named_parameters().items():
                parameters[f"critic.{name}"] = parameter
        return parameters

    # Checkpoints -----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything that the next update depends on and that cannot be read again from the start folder.

        Args:
            path: A safetensors file. With sharded weights every process calls this, and writes a file of its own
                beside it (`checkpoint-rank-0-of-2.safetensors`); otherwise one process is enough.
        """
        tensors = self._collect_weights()
        tensors |= collect_optimiser_state(self.optimiser, self._list_parameters())
        own_path = self._make_own_path(path)
        if not self.policy.is_sharded:
            write_checkpoint(own_path, tensors, self._make_header())
            return
        # Killed at any moment, the processes still have files of one and the same update.
        next_path = make_next_path(own_path)
        write_checkpoint(next_path, tensors, self._make_header())
        self.accelerator.wait_for_everyone()
        os.replace(next_path, own_path)

    def restore(self, path: str | Path) -> None:
        """Restores a training from a checkpoint, so that it continues as if it had not been interrupted.

        Args:
            path: As in `save`.

        Raises:
            ValueError: The file is broken or of another training; nothing has changed then.
        """
        own_path = self._make_own_path(path)
        if self.policy.is_sharded:
            check_number_of_ranks(path, self._make_header().num_ranks)
            own_path = self._choose_common_file(own_path)
        weights = self._collect_weights()
        parameters = self._list_parameters()
        header, tensors = read_checkpoint(own_path, weights, parameters, self._make_header())
        load_tensors(tensors, weights, self.optimiser, parameters)
        self.step = header.step
        self._discard_gathered_weights()

    def _choose_common_file(self, own_path: Path) -> Path:
        """Chooses which of two checkpoint files to restore: the latest update that every process has saved.

        Args:
            own_path: The file of this process; a second one may be of the next update.

        Raises:
            ValueError: There is no such update.
        """
        candidates = [own_path, make_next_path(own_path)]
        steps = [read_step(candidate) for candidate in candidates]
        steps_by_rank = gather_object([steps])  # (processes, 2)
        common = set.intersection(*(set(rank_steps) for rank_steps in steps_by_rank)) - {None}
        if common:
            return candidates[steps.index(max(common))]
        if steps[0] is None:
            return own_path  # whoever reads it says what is wrong with it
        raise ValueError(
            f"{own_path} is of update {steps[0]}, and another process has no such file; delete all files of the "
            "checkpoint and run again"
        )

    def has_checkpoint(self, path: str | Path) -> bool:
        """Whether there is anything to restore, also of another number of processes."""
        if self.policy.is_sharded:
            return bool(list_rank_paths(path))
        return Path(path).exists()

    def _collect_weights(self) -> dict[str, torch.Tensor]:
        """Collects the tensors of a checkpoint: trained weights, and the reference where it cannot be loaded again.

        Returns:
            Tensors by name; of sharded ones the shard of this process.
        """
        # After a pass without a backward pass, as the reference's, FSDP still holds the outermost weights whole.
        self._discard_gathered_weights()
        weights: dict[str, torch.Tensor] = dict(self._list_parameters())
        reference = self.policy.reference
        if reference is not None and self.policy.start_folder is None:
            for name, parameter in reference.named_parameters():
                weights[f"reference.{name}"] = parameter
        return weights

    def _discard_gathered_weights(self) -> None:
        for network in (self.policy.network, self.policy.reference, self.critic):
            if network is not None:
                discard_gathered_weights(network)

    def _make_header(self) -> CheckpointHeader:
        rank, num_ranks = 0, 1
        if self.policy.is_sharded:
            rank, num_ranks = self.accelerator.process_index, self.accelerator.num_processes
        return CheckpointHeader(self.step, 0, self.policy.fingerprint, rank, num_ranks)

    def _make_own_path(self, path: str | Path) -> Path:
        if not self.policy.is_sharded:
            return Path(path)
        return make_rank_path(path, self.accelerator.process_index, self.accelerator.num_processes)


def _split_evenly(indices: Sequence[int], size: int) -> list[Sequence[int]]:
    """Stretches of `size`, the last perhaps shorter."""
    return [indices[first : first + size] for first in range(0, len(indices), size)]


def _is_sharded(parameter: nn.Parameter) -> bool:
    return hasattr(parameter, "full_tensor")
