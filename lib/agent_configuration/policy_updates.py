"""How the policies learn: PPO (ARC, eq. 2 and appendix F), group-relative advantages and DPO (appendix H), and
supervised fine-tuning on the elite (eq. 5 and 6).

An episode is one structure, then the atoms of each agent, then a reward at the end. Its decisions are rows; both
policies are updated on their own rows with their own value network and learning rate. Advantages are normalised per
batch. Every loss here is a mean over decisions, to be minimised. The flat MDP (the paper's "RL episodes") has one row
for each part of its decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lib.agent_configuration.policies import Steps, Value
from lib.rl import losses

VERSION = 2  # of the updates of policies


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes to learn from.

    Attributes:
        states: (n, d).
        structures: (n, parts) what was chosen.
        logp: (n,) log-probability of the whole structure when it was sampled.
        steps: Prompt decisions; None for flat policies.
        rewards: (n,).
        groups: (n,) number of the question.
        runs: (n,) number of the training, of several that go on side by side; None for one.
        part_logp: (n, parts) log-probability of each part when it was sampled; None where nobody needs it.
    """

    states: torch.Tensor
    structures: torch.Tensor
    logp: torch.Tensor
    steps: Steps | None
    rewards: torch.Tensor
    groups: torch.Tensor
    runs: torch.Tensor | None = None
    part_logp: torch.Tensor | None = None

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
        part_logp = None if self.part_logp is None else self.part_logp[rows]
        return EpisodeBatch(
            self.states[rows],
            self.structures[rows],
            self.logp[rows],
            steps,
            self.rewards[rows],
            self.groups[rows],
            runs,
            part_logp,
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
class PolicyTrainer:
    """One policy with what trains it; `value` is None where advantages are group-relative."""

    policy: nn.Module
    value: nn.Module | None
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(
        cls, policy: nn.Module, inputs: int, learning_rate: float, valued: bool = True
    ) -> PolicyTrainer:
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
    """How a policy-gradient update is done (ARC, appendix F; appendix H for `grouped`).

    Attributes:
        clip: epsilon of eq. 2.
        gamma: Discount of a decision; of no use where advantages are group-relative.
        entropy: Weight of the entropy bonus.
        value: Weight of the value loss.
        max_grad_norm: Gradients are clipped to this norm.
        epochs: Passes over a batch.
        grouped: Group-relative advantages without a value network (GRPO) instead of PPO's G - V(s).
        stepwise: Whether each part of a structure is a step with its own ratio and value (the flat MDP).
    """

    clip: float = 0.2
    gamma: float = 0.95
    entropy: float = 0.05
    value: float = 0.5
    max_grad_norm: float = 0.5
    epochs: int = 4
    grouped: bool = False
    stepwise: bool = False


def update(
    structure: PolicyTrainer, prompt: PolicyTrainer | None, batch: EpisodeBatch, rules: Rules
) -> dict[str, float]:
    """Do one batch of policy gradients on both policies.

    Args:
        structure: The structure policy, or a flat one.
        prompt: The prompt policy; None for flat policies.
        batch: The episodes.
        rules: How it is done.

    Returns:
        Losses and entropies of the last epoch.
    """
    if rules.stepwise:
        return _update_stepwise(structure, batch, rules)

    # Advantages, of episodes (n,) and of prompt decisions (m,)
    structure_returns, prompt_returns = batch.returns(rules.gamma)
    steps = batch.steps
    has_prompt_steps = prompt is not None and steps is not None and len(steps.actions) > 0
    prompt_advantages = None
    if rules.grouped:
        # divided by n and with this epsilon, as in ARC, appendix H
        structure_advantages = losses.compute_group_advantages(
            batch.rewards, batch.groups, correction=0, epsilon=1e-8
        )
        if has_prompt_steps:
            prompt_advantages = structure_advantages[steps.episode]
    else:
        with torch.no_grad():
            baseline = structure.value(batch.states)
            structure_advantages = _whitened(structure_returns - baseline, batch.runs)
            if has_prompt_steps:
                runs = None if batch.runs is None else batch.runs[steps.episode]
                baseline = prompt.value(steps.states)
                prompt_advantages = _whitened(prompt_returns - baseline, runs)

    # Epochs
    measured: dict[str, float] = {}
    for _ in range(rules.epochs):
        new_logp, entropy = structure.policy.judge(batch.states, batch.structures)
        measured = _take_step(
            structure,
            (new_logp, batch.logp, structure_advantages, entropy),
            (batch.states, structure_returns),
            rules,
            "structure",
        )
        if has_prompt_steps:
            new_logp, entropy = prompt.policy.judge(steps)
            measured |= _take_step(
                prompt,
                (new_logp, steps.logp, prompt_advantages, entropy),
                (steps.states, prompt_returns),
                rules,
                "prompt",
            )
    return measured


def _update_stepwise(trainer: PolicyTrainer, batch: EpisodeBatch, rules: Rules) -> dict[str, float]:
    """PPO where every choice of a structure is a step: with its own ratio, return gamma^(T-1-t) R, and value."""
    # One row for each choice; parts that the workflow pins are no steps.
    is_choice = trainer.policy.is_choice(batch.structures[:, 0])  # (n, parts)
    episode, part = is_choice.nonzero(as_tuple=True)  # (rows,) each
    position = is_choice.cumsum(1)[episode, part] - 1
    num_steps = is_choice.sum(1)[episode]
    returns = batch.rewards[episode] * rules.gamma ** (num_steps - 1 - position)
    states = make_step_states(batch.states, batch.structures, trainer.policy.sizes, episode, part)
    old_logp = batch.part_logp[episode, part]
    with torch.no_grad():
        runs = None if batch.runs is None else batch.runs[episode]
        advantages = _whitened(returns - trainer.value(states), runs)

    measured: dict[str, float] = {}
    for _ in range(rules.epochs):
        part_logp, part_entropy = trainer.policy.judge_parts(batch.states, batch.structures)
        decisions = (part_logp[episode, part], old_logp, advantages, part_entropy[episode, part])
        measured = _take_step(trainer, decisions, (states, returns), rules, "structure")
    return measured


def make_step_states(
    states: torch.Tensor,
    structures: torch.Tensor,
    sizes: Sequence[int],
    episode: torch.Tensor,
    part: torch.Tensor,
) -> torch.Tensor:
    """What the value of a step reads: the state, the choices before it one-hot, and which part is next.

    Args:
        states: (n, d).
        structures: (n, parts) choices.
        sizes: Choices of each part.
        episode: (rows,) the episode of each step.
        part: (rows,) the part that each step chooses.

    Returns:
        (rows, count_step_inputs(d, sizes)).
    """
    columns = [states[episode]]
    for before, size in enumerate(sizes):
        one_hot = functional.one_hot(structures[episode, before], size).float()
        columns.append(one_hot * (before < part)[:, None])
    columns.append(functional.one_hot(part, len(sizes)).float())
    return torch.cat(columns, 1)


def count_step_inputs(inputs: int, sizes: Sequence[int]) -> int:
    """How many numbers `make_step_states` returns for a step."""
    return inputs + sum(sizes) + len(sizes)


def _whitened(values: torch.Tensor, runs: torch.Tensor | None) -> torch.Tensor:
    """Mean 0 and deviation 1 within each training."""
    if runs is None:
        return losses.whiten(values)
    return losses.compute_group_advantages(values, runs, correction=0, epsilon=1e-8)


def _take_step(
    trainer: PolicyTrainer,
    decisions: tuple[torch.Tensor, ...],
    targets: tuple[torch.Tensor, torch.Tensor],
    rules: Rules,
    name: str,
) -> dict[str, float]:
    """One gradient step on all decisions of one policy.

    Args:
        trainer: The policy with its optimiser.
        decisions: New and old log-probability, advantage and entropy of each decision, (rows,) each.
        targets: States (rows, d) and returns (rows,) for the value network.
        rules: How it is done.
        name: Of the policy, in the names of the losses.

    Returns:
        Loss, entropy and value loss.
    """
    new_logp, old_logp, advantages, entropy = decisions
    states, returns = targets
    objective = losses.compute_clipped_objective(new_logp, old_logp, advantages, rules.clip)
    policy_loss = -objective.mean() - rules.entropy * entropy.mean()
    value_loss = torch.zeros(())
    if trainer.value is not None:
        value_loss = functional.mse_loss(trainer.value(states), returns)
    trainer.step(policy_loss + rules.value * value_loss, rules.max_grad_norm)
    return {
        f"{name}_loss": float(policy_loss.detach()),
        f"{name}_entropy": float(entropy.mean().detach()),
        f"{name}_value": float(value_loss.detach()),
    }


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


# Refinement ----------------------------------------------------------------------------------------


def elite(correct: np.ndarray, rewards: np.ndarray, share: float) -> tuple[np.ndarray, float]:
    """D_elite, (n,) bool, and its threshold tau: right, and among the best `share` of all by reward (ARC, eq. 5)."""
    tau = float(np.quantile(rewards, 1 - share)) if len(rewards) else np.inf
    return np.asarray(correct, bool) & (np.asarray(rewards) >= tau), tau


def imitate(
    side: PolicyTrainer, batches: Sequence[tuple], entropy: float, max_grad_norm: float
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
