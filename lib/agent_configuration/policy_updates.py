"""How the policies learn: PPO (ARC, eq. 2 and appendix F), group-relative advantages and DPO (appendix H), and
supervised fine-tuning on the elite (eq. 5 and 6).

An episode is one structure, then the atoms of each agent, then a reward at the end. Its decisions are rows; both
policies are updated on their own rows with their own value network and learning rate. Advantages are normalised per
batch. Every loss here is a mean over decisions, to be minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lib.agent_configuration.policies import Parts, Steps, Value
from lib.rl import losses

VERSION = 1  # of the updates of policies


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes to learn from. states: (n, d); structures: (n, parts); logp: (n,) of the whole structure when it was
    drawn; steps: prompt decisions, None for flat policies; rewards: (n,); groups: (n,) which question; runs: (n,) which
    of several trainings that go on side by side, None for one."""

    states: torch.Tensor
    structures: torch.Tensor
    logp: torch.Tensor
    steps: Steps | None
    rewards: torch.Tensor
    groups: torch.Tensor
    runs: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.states)

    def select(self, rows: torch.Tensor) -> EpisodeBatch:
        """Some of the episodes.

        Args:
            rows: (k,) their numbers, ascending.

        Returns:
            A batch of these episodes and their prompt decisions, numbered anew.
        """
        if len(rows) == len(self):
            return self
        steps = None
        if self.steps is not None:
            # Number of each episode among those that stay, (n,); -1 for the others.
            new_numbers = torch.full((len(self),), -1)
            new_numbers[rows] = torch.arange(len(rows))
            episodes = new_numbers[self.steps.episode]
            steps = replace(self.steps, episode=episodes).rows(episodes >= 0)
        runs = None if self.runs is None else self.runs[rows]
        return EpisodeBatch(
            self.states[rows],
            self.structures[rows],
            self.logp[rows],
            steps,
            self.rewards[rows],
            self.groups[rows],
            runs,
        )

    @property
    def lengths(self) -> torch.Tensor:
        """Prompt decisions of each episode, (n,)."""
        if self.steps is None:
            return torch.zeros(len(self), dtype=torch.int64)
        return torch.bincount(self.steps.episode, minlength=len(self))

    def returns(self, gamma: float) -> tuple[torch.Tensor, torch.Tensor]:
        """What each decision led to, G_t = gamma^(T - t) R: (n,) of the structures, (m,) of the prompt decisions.

        The structure is decision 0 of T + 1; the reward comes after the last one.
        """
        lengths = self.lengths
        first = self.rewards * gamma**lengths
        if self.steps is None:
            return first, torch.zeros(0)
        whose = self.steps.episode
        return first, self.rewards[whose] * gamma ** (lengths[whose] - 1 - self.steps.place)


@dataclass
class Side:
    """One policy with what trains it; `value` is None where advantages are group-relative."""

    policy: nn.Module
    value: nn.Module | None
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(cls, policy: nn.Module, inputs: int, learning_rate: float, valued: bool = True) -> Side:
        value = Value(inputs) if valued else None
        weights = [*policy.parameters(), *(value.parameters() if value else ())]
        return cls(policy, value, torch.optim.Adam(weights, lr=learning_rate))

    def step(self, loss: torch.Tensor, max_grad_norm: float) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(
            [w for g in self.optimizer.param_groups for w in g["params"]], max_grad_norm
        )
        self.optimizer.step()


@dataclass(frozen=True)
class Rules:
    """How a policy-gradient update is done (ARC, appendix F; appendix H for `grouped`)."""

    clip: float = 0.2
    gamma: float = 0.95
    entropy: float = 0.05
    value: float = 0.5
    max_grad_norm: float = 0.5
    epochs: int = 4
    grouped: bool = False


def update(
    structure: Side, prompt: Side | None, batch: EpisodeBatch, rules: Rules
) -> dict[str, float]:
    """One batch of policy gradients on both policies; returns losses and entropies of the last epoch.

    rules.grouped: group-relative advantages without a value network (GRPO), otherwise PPO's G - V(s).
    """
    first, later = batch.returns(rules.gamma)
    steps = batch.steps
    if rules.grouped:
        # divided by n and with this epsilon, as in ARC, appendix H
        episode_advantages = losses.compute_group_advantages(
            batch.rewards, batch.groups, correction=0, epsilon=1e-8
        )
        step_advantages = episode_advantages[steps.episode] if steps is not None else None
        advantages = (episode_advantages, step_advantages)
    else:
        with torch.no_grad():
            advantages = (
                _whitened(first - structure.value(batch.states), batch.runs),
                _whitened(
                    later - prompt.value(steps.states),
                    None if batch.runs is None else batch.runs[steps.episode],
                )
                if prompt and steps is not None
                else None,
            )
    said: dict[str, float] = {}
    for _ in range(rules.epochs):
        said = _epoch(
            structure,
            batch.states,
            (batch.structures,),
            batch.logp,
            advantages[0],
            first,
            rules,
            "structure",
        )
        if prompt is not None and steps is not None and len(steps.actions):
            said |= _epoch(
                prompt, steps.states, (steps,), steps.logp, advantages[1], later, rules, "prompt"
            )
    return said


def _whitened(values: torch.Tensor, runs: torch.Tensor | None) -> torch.Tensor:
    """Mean 0 and deviation 1 within each training."""
    if runs is None:
        return losses.whiten(values)
    return losses.compute_group_advantages(values, runs, correction=0, epsilon=1e-8)


def joined(batches: Sequence[EpisodeBatch]) -> EpisodeBatch:
    """Several batches as one."""
    offsets = np.cumsum([0, *(len(batch) for batch in batches)])
    steps = None
    if batches[0].steps is not None:
        moved = [
            Steps(
                b.steps.episode + int(o),
                *(getattr(b.steps, n) for n in list(Steps.__dataclass_fields__)[1:]),
            )
            for b, o in zip(batches, offsets, strict=False)
        ]
        steps = Steps(
            *(torch.cat([getattr(s, name) for s in moved]) for name in Steps.__dataclass_fields__)
        )
    whole = {
        name: torch.cat([getattr(b, name) for b in batches])
        for name in EpisodeBatch.__dataclass_fields__
        if name != "steps" and getattr(batches[0], name) is not None
    }
    return EpisodeBatch(**whole, steps=steps)


def _epoch(
    side: Side, states, decided, old, advantages, returns, rules: Rules, name: str
) -> dict[str, float]:
    """One pass over all decisions of one policy."""
    judged = (states, *decided) if isinstance(side.policy, Parts) else decided
    new, entropy = side.policy.judge(*judged)
    objective = losses.compute_clipped_objective(new, old, advantages, rules.clip)
    loss = -objective.mean() - rules.entropy * entropy.mean()
    fit = torch.zeros(())
    if side.value is not None:
        fit = functional.mse_loss(side.value(states), returns)
    side.step(loss + rules.value * fit, rules.max_grad_norm)
    return {
        f"{name}_loss": float(loss.detach()),
        f"{name}_entropy": float(entropy.mean().detach()),
        f"{name}_value": float(fit.detach()),
    }


# Refinement ----------------------------------------------------------------------------------------


def elite(correct: np.ndarray, rewards: np.ndarray, share: float) -> tuple[np.ndarray, float]:
    """D_elite, (n,) bool, and its threshold tau: right, and among the best `share` of all by reward (ARC, eq. 5)."""
    tau = float(np.quantile(rewards, 1 - share)) if len(rewards) else np.inf
    return np.asarray(correct, bool) & (np.asarray(rewards) >= tau), tau


def imitate(
    side: Side, batches: Sequence[tuple], entropy: float, max_grad_norm: float
) -> list[float]:
    """SFT: max E[log pi(a* | s)] plus an entropy *bonus*, over batches of what `judge` takes (ARC, eq. 6).

    The loss is -log pi - c H: with the opposite sign the policy would be pushed towards certainty twice.
    """
    losses = []
    for judged in batches:
        logp, spread = side.policy.judge(*judged)
        loss = -logp.mean() - entropy * spread.mean()
        side.step(loss, max_grad_norm)
        losses.append(float(loss.detach()))
    return losses


def prefer(
    better: torch.Tensor,
    worse: torch.Tensor,
    better_start: torch.Tensor,
    worse_start: torch.Tensor,
    beta: float,
) -> torch.Tensor:
    """DPO's loss, -log sigma(beta [(log pi - log pi_0)(better) - (log pi - log pi_0)(worse)]), a scalar.

    All (pairs,), log-probabilities of whole decisions; beta: its temperature (ARC, appendix H).
    """
    return -functional.logsigmoid(beta * ((better - better_start) - (worse - worse_start))).mean()


def summed(logp: torch.Tensor, steps: Steps, n: int) -> torch.Tensor:
    """Log-probability of all prompt decisions of each episode, (n,)."""
    return torch.zeros(n).index_add(0, steps.episode, logp)
