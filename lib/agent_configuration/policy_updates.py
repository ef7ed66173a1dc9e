"""How the policies learn: PPO (ARC, eq. 2 and appendix F), group-relative advantages and DPO (appendix H), and
supervised fine-tuning on the elite (eq. 5 and 6).

An episode is one structure, then the atoms of each agent, then a reward at the end. Its decisions are rows; both
policies are updated on their own rows with their own value network and learning rate. Advantages are normalised per
batch. Every loss here is a mean over decisions, to be minimised. The flat MDP (the paper's "RL episodes") has one row
for each dimension of its decision.

In shapes, n is the number of episodes and m that of prompt decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lib.agent_configuration.policies import PromptSteps, ValueNetwork
from lib.rl import losses

VERSION = 2  # of the updates of policies


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes to learn from.

    Attributes:
        states: (n, inputs) of the questions.
        structures: (n, dimensions) what was chosen.
        logp: (n,) log-probability of the whole structure when it was sampled.
        steps: Prompt decisions; None for flat policies.
        rewards: (n,) at the end of each episode.
        groups: (n,) number of the question, or of its kind.
        runs: (n,) number of the training, of several that go on side by side; None for one.
        logp_by_dimension: (n, dimensions) log-probability of each choice when it was sampled; None if it is not needed.
    """

    states: torch.Tensor
    structures: torch.Tensor
    logp: torch.Tensor
    steps: PromptSteps | None
    rewards: torch.Tensor
    groups: torch.Tensor
    runs: torch.Tensor | None = None
    logp_by_dimension: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.states)

    def select(self, rows: torch.Tensor) -> EpisodeBatch:
        """Select some of the episodes.

        Args:
            rows: (k,) their numbers, ascending.

        Returns:
            A batch of these episodes and their prompt decisions, numbered anew.
        """
        if len(rows) == len(self):
            return self
        steps = None
        if self.steps is not None:
            # New number of each episode, (n,); -1 for those that are left out.
            new_numbers = torch.full((len(self),), -1)
            new_numbers[rows] = torch.arange(len(rows))
            episode = new_numbers[self.steps.episode]
            steps = replace(self.steps, episode=episode).select(episode >= 0)
        return EpisodeBatch(
            states=self.states[rows],
            structures=self.structures[rows],
            logp=self.logp[rows],
            steps=steps,
            rewards=self.rewards[rows],
            groups=self.groups[rows],
            runs=None if self.runs is None else self.runs[rows],
            logp_by_dimension=(
                None if self.logp_by_dimension is None else self.logp_by_dimension[rows]
            ),
        )

    def count_prompt_steps(self) -> torch.Tensor:
        """Count the prompt decisions of each episode, (n,)."""
        if self.steps is None:
            return torch.zeros(len(self), dtype=torch.int64)
        return torch.bincount(self.steps.episode, minlength=len(self))

    def compute_returns(self, gamma: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the return of every decision, G_t = gamma^(T - t) R.

        An episode with T prompt decisions has the structure as decision 0 and its reward R after the last decision.

        Args:
            gamma: The discount.

        Returns:
            (n,) returns of the structures and (m,) returns of the prompt decisions.
        """
        num_steps = self.count_prompt_steps()  # T
        structure_returns = self.rewards * gamma**num_steps  # t = 0
        if self.steps is None:
            return structure_returns, torch.zeros(0)
        episode = self.steps.episode
        # A prompt decision at position p of its episode is decision t = p + 1.
        num_steps_after = num_steps[episode] - 1 - self.steps.position  # T - t
        return structure_returns, self.rewards[episode] * gamma**num_steps_after


def concatenate_batches(batches: Sequence[EpisodeBatch]) -> EpisodeBatch:
    """Concatenate batches of episodes.

    Args:
        batches: The same optional fields are None in all of them.

    Returns:
        One batch; the episodes of prompt decisions are numbered anew.
    """
    steps = None
    if batches[0].steps is not None:
        first_episodes = np.cumsum([0, *(len(batch) for batch in batches)])
        step_tables = []
        for batch, first in zip(batches, first_episodes, strict=False):
            step_tables.append(replace(batch.steps, episode=batch.steps.episode + int(first)))
        steps = PromptSteps.concatenate(step_tables)

    def concatenate(name: str) -> torch.Tensor | None:
        values = [getattr(batch, name) for batch in batches]
        return None if values[0] is None else torch.cat(values)

    return EpisodeBatch(
        states=concatenate("states"),
        structures=concatenate("structures"),
        logp=concatenate("logp"),
        steps=steps,
        rewards=concatenate("rewards"),
        groups=concatenate("groups"),
        runs=concatenate("runs"),
        logp_by_dimension=concatenate("logp_by_dimension"),
    )


@dataclass
class PolicyTrainer:
    """One policy with what trains it.

    Attributes:
        policy: A network with a method `evaluate_actions`.
        value: Its value network; None where advantages are group-relative.
        optimizer: Changes the weights of both.
    """

    policy: nn.Module
    value: nn.Module | None
    optimizer: torch.optim.Optimizer

    @classmethod
    def create(
        cls, policy: nn.Module, num_inputs: int, learning_rate: float, has_value: bool = True
    ) -> PolicyTrainer:
        """Make a trainer with Adam.

        Args:
            policy: What is trained.
            num_inputs: Length of a state of the value network.
            learning_rate: Learning rate of Adam.
            has_value: Whether there is a value network; a new one is made.

        Returns:
            The trainer.
        """
        value = ValueNetwork(num_inputs) if has_value else None
        weights = list(policy.parameters())
        if value is not None:
            weights += value.parameters()
        return cls(policy, value, torch.optim.Adam(weights, lr=learning_rate))

    def step(self, loss: torch.Tensor, max_grad_norm: float) -> None:
        """Do one step down the gradient of a loss, clipped to a norm."""
        self.optimizer.zero_grad()
        loss.backward()
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        nn.utils.clip_grad_norm_(weights, max_grad_norm)
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
    """Update both policies on one batch by policy gradients.

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

    structure_returns, prompt_returns = batch.compute_returns(rules.gamma)
    steps = batch.steps
    has_prompt_steps = prompt is not None and steps is not None and len(steps) > 0

    # Advantages of the structures (n,) and of the prompt decisions (m,)
    prompt_advantages = None
    if rules.grouped:
        # divided by n and with this epsilon, as in ARC, appendix H
        structure_advantages = losses.compute_group_advantages(
            batch.rewards, batch.groups, correction=0, epsilon=1e-8
        )
        if has_prompt_steps:
            prompt_advantages = structure_advantages[steps.episode]
    else:
        structure_advantages = _compute_advantages(
            structure, batch.states, structure_returns, batch.runs
        )
        if has_prompt_steps:
            runs = None if batch.runs is None else batch.runs[steps.episode]
            prompt_advantages = _compute_advantages(prompt, steps.states, prompt_returns, runs)

    measurements: dict[str, float] = {}
    for _ in range(rules.epochs):
        new_logp, entropy = structure.policy.evaluate_actions(batch.states, batch.structures)
        measurements = _take_ppo_step(
            structure,
            rules,
            "structure",
            new_logp=new_logp,
            old_logp=batch.logp,
            advantages=structure_advantages,
            entropy=entropy,
            states=batch.states,
            returns=structure_returns,
        )
        if has_prompt_steps:
            new_logp, entropy = prompt.policy.evaluate_actions(steps)
            measurements |= _take_ppo_step(
                prompt,
                rules,
                "prompt",
                new_logp=new_logp,
                old_logp=steps.logp,
                advantages=prompt_advantages,
                entropy=entropy,
                states=steps.states,
                returns=prompt_returns,
            )
    return measurements


def _update_stepwise(trainer: PolicyTrainer, batch: EpisodeBatch, rules: Rules) -> dict[str, float]:
    """Update a flat policy where every choice of a structure is a step of an MDP (PPO).

    Step t of T has its own ratio, value, and return gamma^(T-1-t) R.

    Args:
        trainer: The policy with its value network.
        batch: The episodes.
        rules: How it is done.

    Returns:
        Losses and entropy of the last epoch.
    """
    # A row for each choice; dimensions that the workflow pins are no steps.
    is_step = trainer.policy.find_dimensions_with_choice(batch.structures[:, 0])  # (n, dimensions)
    episode, dimension = is_step.nonzero(as_tuple=True)  # (rows,) each
    position = is_step.cumsum(1)[episode, dimension] - 1  # t
    num_steps = is_step.sum(1)[episode]  # T
    returns = batch.rewards[episode] * rules.gamma ** (num_steps - 1 - position)

    states = make_step_states(
        batch.states, batch.structures, trainer.policy.sizes, episode, dimension
    )
    runs = None if batch.runs is None else batch.runs[episode]
    advantages = _compute_advantages(trainer, states, returns, runs)
    old_logp = batch.logp_by_dimension[episode, dimension]

    measurements: dict[str, float] = {}
    for _ in range(rules.epochs):
        new_logp, entropy = trainer.policy.evaluate_dimensions(batch.states, batch.structures)
        measurements = _take_ppo_step(
            trainer,
            rules,
            "structure",
            new_logp=new_logp[episode, dimension],
            old_logp=old_logp,
            advantages=advantages,
            entropy=entropy[episode, dimension],
            states=states,
            returns=returns,
        )
    return measurements


def make_step_states(
    states: torch.Tensor,
    structures: torch.Tensor,
    sizes: Sequence[int],
    episode: torch.Tensor,
    dimension: torch.Tensor,
) -> torch.Tensor:
    """Make what the value of a step reads: the state, the choices before it one-hot, and which dimension is next.

    Args:
        states: (n, inputs) of the questions.
        structures: (n, dimensions) choices.
        sizes: Number of choices of each dimension.
        episode: (rows,) the episode of each step.
        dimension: (rows,) the dimension that each step chooses.

    Returns:
        (rows, count_step_inputs(inputs, sizes)).
    """
    columns = [states[episode]]
    for earlier, size in enumerate(sizes):
        one_hot = functional.one_hot(structures[episode, earlier], size).float()
        is_before = (earlier < dimension)[:, None]
        columns.append(one_hot * is_before)
    columns.append(functional.one_hot(dimension, len(sizes)).float())
    return torch.cat(columns, 1)


def count_step_inputs(num_inputs: int, sizes: Sequence[int]) -> int:
    """Count the numbers that `make_step_states` returns for a step."""
    return num_inputs + sum(sizes) + len(sizes)


def _compute_advantages(
    trainer: PolicyTrainer,
    states: torch.Tensor,
    returns: torch.Tensor,
    runs: torch.Tensor | None,
) -> torch.Tensor:
    """Compute G - V(s) of each decision, normalised within each training."""
    with torch.no_grad():
        return _normalize(returns - trainer.value(states), runs)


def _normalize(values: torch.Tensor, runs: torch.Tensor | None) -> torch.Tensor:
    """Scale values (rows,) to mean 0 and standard deviation 1 within each training."""
    if runs is None:
        return losses.whiten(values)
    return losses.compute_group_advantages(values, runs, correction=0, epsilon=1e-8)


def _take_ppo_step(
    trainer: PolicyTrainer,
    rules: Rules,
    name: str,
    *,
    new_logp: torch.Tensor,
    old_logp: torch.Tensor,
    advantages: torch.Tensor,
    entropy: torch.Tensor,
    states: torch.Tensor,
    returns: torch.Tensor,
) -> dict[str, float]:
    """Do one gradient step on all decisions of one policy (ARC, eq. 2).

    Args:
        trainer: The policy with its optimiser.
        rules: How it is done.
        name: Name of the policy, which the names of the losses begin with.
        new_logp: (rows,) log-probability of each decision now.
        old_logp: (rows,) the same when it was sampled.
        advantages: (rows,).
        entropy: (rows,) of the distribution that each decision came from.
        states: (rows, inputs) for the value network.
        returns: (rows,) its targets.

    Returns:
        Loss, entropy and value loss.
    """
    # Eq. 2: min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) with the ratio r = exp(new_logp - old_logp)
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


# Refinement ----------------------------------------------------------------------------------------


def elite(correct: np.ndarray, rewards: np.ndarray, share: float) -> tuple[np.ndarray, float]:
    """Select D_elite: episodes that are correct and among the best by reward (ARC, eq. 5).

    Args:
        correct: (n,) bool, or 0 and 1.
        rewards: (n,).
        share: Share of all episodes, correct or not, that lie above the threshold.

    Returns:
        (n,) bool, whether an episode is in the elite, and the threshold tau.
    """
    tau = np.inf
    if len(rewards):
        tau = float(np.quantile(rewards, 1 - share))
    # Eq. 5: correct and R >= tau
    is_elite = np.asarray(correct, bool) & (np.asarray(rewards) >= tau)
    return is_elite, tau


def imitate(
    trainer: PolicyTrainer, batches: Sequence[tuple], entropy: float, max_grad_norm: float
) -> list[float]:
    """SFT: maximise E[log pi(a* | s)] plus an entropy bonus, with one step for each batch (ARC, eq. 6).

    The loss is -log pi - c H: with the opposite sign the policy would be pushed towards certainty twice.

    Args:
        trainer: The policy with its optimiser.
        batches: For each batch the arguments of the policy's `evaluate_actions`.
        entropy: c, the weight of the bonus.
        max_grad_norm: Gradients are clipped to this norm.

    Returns:
        The loss of each batch.
    """
    batch_losses = []
    for arguments in batches:
        logp, entropies = trainer.policy.evaluate_actions(*arguments)
        # Eq. 6, to be minimised
        loss = -logp.mean() - entropy * entropies.mean()
        trainer.step(loss, max_grad_norm)
        batch_losses.append(float(loss.detach()))
    return batch_losses


def compute_dpo_loss(
    better: torch.Tensor,
    worse: torch.Tensor,
    better_start: torch.Tensor,
    worse_start: torch.Tensor,
    beta: float,
) -> torch.Tensor:
    """Compute DPO's loss, -log sigma(beta [(log pi - log pi_0)(better) - (log pi - log pi_0)(worse)]).

    Args:
        better: (pairs,) log pi of the better decision of each pair.
        worse: (pairs,) log pi of the worse one.
        better_start: (pairs,) log pi_0 of the better one, under the policy before DPO.
        worse_start: (pairs,) log pi_0 of the worse one.
        beta: The temperature (ARC, appendix H).

    Returns:
        The mean over pairs, a scalar.
    """
    better_change = better - better_start
    worse_change = worse - worse_start
    return -functional.logsigmoid(beta * (better_change - worse_change)).mean()


def sum_over_steps(logp: torch.Tensor, steps: PromptSteps, num_episodes: int) -> torch.Tensor:
    """Sum the log-probabilities of each episode's prompt decisions.

    Args:
        logp: (m,) of the decisions.
        steps: The m decisions.
        num_episodes: Number of episodes, n.

    Returns:
        (n,) sums, 0 for an episode without prompt decisions.
    """
    return torch.zeros(num_episodes).index_add(0, steps.episode, logp)
