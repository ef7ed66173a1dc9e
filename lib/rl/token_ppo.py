"""One trainer for controllers whose turns are interleaved with other people's tokens.

PPO with a value head and GAE (CoRL, eq. 4), or GRPO's group advantages (ToolOrchestra); both average a
clipped objective over the controller's own tokens and hold it near the start model. Tokens of prompts and
experts are read and never learned: they have no term in any loss, hence exactly zero gradient, and GAE runs
over the controller's tokens as if the others were not there.

Advantages and the clipped objective are `lib.rl.losses`; here follow what is averaged and added, then the learner.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from lib.config import LearnSettings
from lib.experiment import artifacts, seeds
from lib.rl import losses

VERSION = 1  # of the updates of a controller

# Losses --------------------------------------------------------------------------------------------


def averaged(values: torch.Tensor, mask: torch.Tensor, by: str) -> torch.Tensor:
    """Mean over own tokens: of each sequence first (`sequence`, eq. 4), or over all of the batch (`token`)."""
    if by == "sequence":
        return ((values * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
    return (values * mask).sum() / mask.sum().clamp(min=1)


def policy_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip: float,
    by: str,
) -> torch.Tensor:
    """The negative of eq. 4, J = mean over own tokens of min(r A, clip(r, 1 - eps, 1 + eps) A), r = exp(new - old)."""
    return -averaged(losses.clipped(new, old, advantages, clip), mask, by)


def divergence(new: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(new || reference), exp(d) - d - 1 with d = reference - new: never negative.

    As in Shao et al. 2024, eq. 4. TRL by default also multiplies it by the ratio of new to old, and this does not.
    """
    d = reference - new
    return torch.exp(d) - d - 1


def value_loss(
    values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor, by: str
) -> torch.Tensor:
    """Half the mean squared error of V."""
    return 0.5 * averaged((values - returns) ** 2, mask, by)


# The learner ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One finished episode. ids: all tokens; mask: which the controller wrote; group: whose rewards it is
    compared with (GRPO); stratum: whose advantages it is whitened with."""

    ids: Sequence[int]
    mask: Sequence[bool]
    reward: float
    group: int = 0
    stratum: int = 0


@dataclass
class TokenBatch:
    """Samples as tensors, padded on the right: ids, mask (B, T); rewards (B,); the rest is filled in."""

    ids: torch.Tensor
    seen: torch.Tensor  # 1 where there is a token at all
    mask: torch.Tensor  # 1 where the controller wrote the *next* token: (B, T - 1)
    rewards: torch.Tensor
    groups: list[int]
    strata: torch.Tensor  # (B,)
    old: torch.Tensor | None = None  # log-probabilities that sampled the tokens, (B, T - 1)
    reference: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    returns: torch.Tensor | None = None


def batch(samples: Sequence[Sample], pad: int, device: torch.device | str = "cpu") -> TokenBatch:
    """Samples as tensors. Raises ValueError for one in which the controller wrote nothing."""
    for sample in samples:
        if not any(sample.mask) or sample.mask[0] or len(sample.mask) != len(sample.ids):
            raise ValueError(
                "a sample needs a prompt, tokens of the controller, and a mask for every token"
            )
    width = max(len(s.ids) for s in samples)
    ids = torch.tensor([[*s.ids, *[pad] * (width - len(s.ids))] for s in samples], device=device)
    own = torch.tensor([[*s.mask, *[False] * (width - len(s.ids))] for s in samples], device=device)
    seen = torch.tensor(
        [[1] * len(s.ids) + [0] * (width - len(s.ids)) for s in samples], device=device
    )
    rewards = torch.tensor([s.reward for s in samples], dtype=torch.float32, device=device)
    strata = torch.tensor([s.stratum for s in samples], device=device)
    return TokenBatch(ids, seen, own[:, 1:], rewards, [s.group for s in samples], strata)


class Critic(nn.Module):
    """V: one number per token. On the policy's own trunk (`shared`), or with a trunk of its own (`apart`)."""

    def __init__(self, policy: PreTrainedModel, apart: bool) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(policy.base_model) if apart else None
        self.head = nn.Linear(policy.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # V starts at 0 everywhere, whatever the generator
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: TokenBatch, hidden: torch.Tensor) -> torch.Tensor:
        """V before every next token, (B, T - 1); hidden: the policy's states."""
        if self.trunk is not None:
            hidden = self.trunk(input_ids=batch.ids, attention_mask=batch.seen).last_hidden_state[
                :, :-1
            ]
        return self.head(hidden)[..., 0]


class TokenPPO:
    """A policy under training. `update` takes finished episodes; nothing in it knows who the experts are.

    accelerator: of the accelerate library, for a GPU and several processes, each of which brings equally many
    episodes: gradients are averaged, whitening and groups stay within a process. None computes here and alone.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        settings: LearnSettings,
        pad: int,
        total: int,
        seed: int = 0,
        accelerator=None,
    ) -> None:
        """pad: a token that fills rows; total: updates to come, over which the learning rate may fall."""
        self.policy, self.settings, self.pad, self.seed, self.accelerator = (
            policy,
            settings,
            pad,
            seed,
            accelerator,
        )
        self.total = total
        self.reference = copy.deepcopy(policy).eval().requires_grad_(False)
        self.critic = (
            Critic(policy, settings.value == "apart") if settings.advantages == "gae" else None
        )
        groups = [{"params": list(policy.parameters()), "lr": settings.learning_rate}]
        if self.critic is not None:
            groups.append(
                {"params": list(self.critic.parameters()), "lr": settings.value_learning_rate}
            )
        self.optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        for group in self.optimiser.param_groups:
            group["full"] = group["lr"]
        self.device: torch.device | str = "cpu"
        if accelerator is not None:  # every process holds the whole model and its own episodes
            self.device = accelerator.device
            for model in filter(None, (self.policy, self.reference, self.critic)):
                model.to(self.device)
        self.step = 0

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Learn from episodes that the present policy wrote; returns means: loss, kl, clipped (share of own
        tokens whose ratio left the trust region), ratio (how far the first pass is from 1), value_error."""
        minibatches = self._minibatches(samples)
        parts = [part for minibatch in minibatches for part in minibatch]
        for part in parts:
            self._fill(part)
        self._advantages(parts)
        rows: list[dict[str, float]] = []
        for epoch in range(self.settings.epochs):
            rng = seeds.rng("routing", "minibatches", self.step, epoch, seed=self.seed)
            rows += [self._descend(minibatches[int(i)]) for i in rng.permutation(len(minibatches))]
        self.step += 1
        first = rows[0]["ratio"]
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} | {
            "ratio": first
        }

    def skip(self) -> dict[str, float]:
        """An update that nothing was left to learn from: the schedule goes on, the weights stay."""
        self.step += 1
        return {}

    def _minibatches(self, samples: Sequence[Sample]) -> list[list[TokenBatch]]:
        """What one step learns from, in parts that one pass reads: like lengths together, so that little is padding;
        groups need not stay together."""
        order = sorted(range(len(samples)), key=lambda i: len(samples[i].ids))

        def cut(rows: Sequence[int], size: int) -> list[Sequence[int]]:
            return [rows[at : at + size] for at in range(0, len(rows), size)]

        return [
            [
                batch([samples[i] for i in part], self.pad, self.device)
                for part in cut(rows, self.settings.microbatch)
            ]
            for rows in cut(order, self.settings.minibatch)
        ]

    @torch.no_grad()
    def _fill(self, part: TokenBatch) -> None:
        """What the sampling policy and the start model say; in the shape that is learned from, so that the ratio of
        the first pass is exactly 1."""
        part.old, hidden = self._read(self.policy, part)
        part.reference, _ = self._read(self.reference, part)
        if self.critic is not None:
            settings = self.settings
            values = self.critic(part, hidden)
            told = losses.masked_gae(part.rewards, values, part.mask, settings.gamma, settings.lam)
            part.advantages, part.returns = told

    def _advantages(self, parts: Sequence[TokenBatch]) -> None:
        """Over all parts of an update: whitened in each stratum (GAE), or by group (GRPO)."""
        rewards = torch.cat([part.rewards for part in parts])
        if self.critic is None:
            told = losses.group_advantages(
                rewards, [g for part in parts for g in part.groups], self.settings.divide
            )
            for part, some in zip(
                parts, told.split([len(part.rewards) for part in parts]), strict=True
            ):
                part.advantages = some[:, None] * part.mask
        elif self.settings.whiten:
            own = torch.cat([part.advantages[part.mask] for part in parts])
            strata = torch.cat(
                [part.strata[:, None].expand_as(part.mask)[part.mask] for part in parts]
            )
            for stratum in strata.unique():
                own[strata == stratum] = losses.whitened(own[strata == stratum])
            for part, some in zip(
                parts, own.split([int(part.mask.sum()) for part in parts]), strict=True
            ):
                part.advantages[part.mask] = some

    def _descend(self, minibatch: Sequence[TokenBatch]) -> dict[str, float]:
        """One step on one minibatch, its parts one after another: gradients add up to those of the whole."""
        by_sequence = self.settings.average == "sequence"
        counts = np.array(
            [float(len(p.rewards) if by_sequence else p.mask.sum()) for p in minibatch]
        )
        shares = counts / counts.sum()
        rows: list[dict[str, float]] = []
        for part, share in zip(minibatch, shares.tolist(), strict=True):
            loss, row = self._loss(part)
            (loss * share).backward()
            rows.append(row)
        self._step()
        means = {name: float(np.dot(shares, [row[name] for row in rows])) for name in rows[0]}
        return means | {"ratio": max(row["ratio"] for row in rows)}

    def _loss(self, part: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The negative of eq. 4 with the penalty for leaving the start model, and the value head's error."""
        settings = self.settings
        new, hidden = self._read(self.policy, part)
        kl = averaged(divergence(new, part.reference), part.mask, settings.average)
        loss = policy_loss(
            new, part.old, part.advantages, part.mask, settings.clip, settings.average
        )
        loss = loss + settings.kl * kl
        error = new.new_zeros(())
        if self.critic is not None:
            error = value_loss(self.critic(part, hidden), part.returns, part.mask, settings.average)
            loss = loss + settings.value_weight * error
        ratio = torch.exp(new.detach() - part.old)[part.mask]
        return loss, {
            "loss": float(loss.detach()),
            "kl": float(kl.detach()),
            "clipped": float(((ratio - 1).abs() > settings.clip).float().mean()),
            "ratio": float((ratio - 1).abs().max()),
            "value_error": float(error.detach()),
        }

    def _step(self) -> None:
        if self.accelerator is not None:
            for parameter in self._parameters():
                if parameter.grad is not None:
                    parameter.grad = self.accelerator.reduce(parameter.grad, "mean")
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.settings.max_grad_norm)
        warmups = (self.settings.warmup, self.settings.value_warmup)
        for group, warmup in zip(self.optimiser.param_groups, warmups, strict=False):
            group["lr"] = group["full"] * self._schedule(warmup)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def _parameters(self) -> list[nn.Parameter]:
        return [
            *self.policy.parameters(),
            *(self.critic.parameters() if self.critic is not None else ()),
        ]

    def _schedule(self, warmup: int) -> float:
        """Share of the full learning rate: a rise, then all of it, or a straight fall to 0 after the last update."""
        fall = 1.0 if self.settings.schedule == "constant" else max(0.0, 1 - self.step / self.total)
        return min(1.0, (self.step + 1) / warmup, fall)

    def _read(self, model: PreTrainedModel, part: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the next tokens (B, T - 1), 0 where they are not the controller's; and the states.

        At temperature 1, and from the head as it is: a model that caps its logits after it (Gemma 2) is not served."""
        hidden = model.base_model(input_ids=part.ids, attention_mask=part.seen).last_hidden_state[
            :, :-1
        ]
        logits = model.get_output_embeddings()(
            hidden[part.mask]
        ).float()  # (own tokens, V): no others are scored
        chosen = logits.log_softmax(-1).gather(1, part.ids[:, 1:][part.mask][:, None])[:, 0]
        return hidden.new_zeros(part.mask.shape, dtype=chosen.dtype).masked_scatter(
            part.mask, chosen
        ), hidden

    def save(self, path: str | Path) -> None:
        """Everything that the next update depends on, as safetensors; for training in one process."""
        held = {f"policy.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        held |= {
            f"reference.{name}": tensor for name, tensor in self.reference.state_dict().items()
        }
        if self.critic is not None:
            held |= {f"critic.{name}": tensor for name, tensor in self.critic.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            held |= {
                f"optimiser.{i}.{name}": torch.as_tensor(value) for name, value in state.items()
            }
        arrays = {name: tensor.detach().float().cpu().numpy() for name, tensor in held.items()}
        artifacts.write_tensors(
            path, arrays | {"step": np.array(self.step), "tensors": np.array(len(arrays))}
        )

    def restore(self, path: str | Path) -> None:
        """Go on from `save`, with the same result as without a break. Raises ValueError for a broken file."""
        arrays = artifacts.read_tensors(path)
        try:
            if len(arrays) != int(arrays["tensors"]) + 2:  # an optimiser takes what there is
                raise ValueError(f"{len(arrays) - 2} tensors instead of {int(arrays['tensors'])}")
            tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
            for prefix in ("policy", "reference", "critic"):
                model = getattr(self, prefix)
                if model is not None:
                    own = {
                        n.removeprefix(f"{prefix}."): t
                        for n, t in tensors.items()
                        if n.startswith(f"{prefix}.")
                    }
                    model.load_state_dict(own)
            whole = self.optimiser.state_dict()
            for name in (name for name in tensors if name.startswith("optimiser.")):
                _, i, key = name.split(".")
                whole["state"].setdefault(int(i), {})[key] = tensors[name]
            self.optimiser.load_state_dict(whole)
            self.step = int(arrays["step"])
        except (KeyError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path} is no checkpoint of this training ({error}); delete it and run again"
            ) from error
