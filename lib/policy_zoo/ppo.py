"""PPO for several policies at once, and MO-MGDA, its variant that combines gradients.

Proximal policy optimization (Schulman et al. 2017) with the defaults and in the order of operations of
stable-baselines3; a test compares the weights after the same updates. K variants, policies of one network shape, are
trained side by side. They share nothing but the calls into the library, so that small networks do not wait for the
overhead of a call. From top to bottom:

    compute_ppo_loss        what a minibatch step minimizes, as the textbook has it
    compute_loss_gradients  its derivatives, written out, which a minibatch step follows
    PPO.train               collect a rollout and update the policies, until the steps are spent
    PPO.collect_rollout     act, step the environments, log episodes
    PPO.update_policies     advantages, then epochs of minibatch steps
    MGDA                    one critic head and one gradient per objective, combined by min-norm weights

Equations that several systems share, the clipped objective and GAE, stand in `lib.rl.losses`.

Letters of shapes: K variants, E environments of each, T steps of a rollout, M samples of a minibatch, A actions,
V critic heads (1, or one per objective), P parameters.

Left out: files of trained policies (`policies`), and jobs, seeds and processes (`train`).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.config import PPOSettings
from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import artifacts, seeds
from lib.policy_zoo.mgda import compute_min_norm_weights
from lib.policy_zoo.networks import Network, draw_initial_parameters, sample_actions
from lib.policy_zoo.objectives import Objective
from lib.rl import losses

VERSION = 1  # of batched PPO trainings

# The epsilon is that of stable-baselines3's PPO; torch's default is 1e-8.
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-5


@dataclass(frozen=True)
class PPOVariant:
    """One policy in training.

    Attributes:
        name: Name of the policy in the paper's tables; it names the random streams, together with the seed.
        seed: Number of the repetition.
        objective: What the policy is rewarded for.
        settings: Settings of PPO. Those that decide shapes of arrays (rollout, minibatch, epochs, num_envs, timesteps)
            must be equal in all variants that are trained together; the others may differ.
    """

    name: str
    seed: int
    objective: Objective
    settings: PPOSettings


@dataclass(frozen=True)
class PPOCoefficients:
    """Settings that may differ between variants, (K, 1) each, so that they broadcast over samples.

    Attributes:
        gamma: Discount.
        gae_lambda: Decay of later errors in GAE.
        clip: Largest change of the ratio that is rewarded, epsilon in the paper.
        learning_rate: Learning rate of Adam.
        entropy: Weight of the entropy in the loss, c_e.
        value: Weight of the critic's error in the loss, c_v.
        max_grad_norm: Largest norm of a gradient.
        target_kl: A variant stops learning from a rollout at 1.5 times this divergence; infinite for no limit.
    """

    gamma: Tensor
    gae_lambda: Tensor
    clip: Tensor
    learning_rate: Tensor
    entropy: Tensor
    value: Tensor
    max_grad_norm: Tensor
    target_kl: Tensor

    @classmethod
    def from_variants(cls, variants: Sequence[PPOVariant]) -> "PPOCoefficients":
        """Collect the PPO settings of all variants (policies in training) as columns.

        Args:
            variants: K policies in training.

        Returns:
            A (K, 1) tensor for each setting.
        """
        columns = {}
        for field in fields(cls):
            values = [getattr(variant.settings, field.name) for variant in variants]
            if field.name == "target_kl":
                values = [math.inf if value is None else value for value in values]
            columns[field.name] = torch.tensor(values).unsqueeze(1)  # (K, 1)
        return cls(**columns)


@dataclass
class PPORollout:
    """What was collected with the policies as they were, time after variants.

    Attributes:
        inputs: (K, T, E, ...) what the network read.
        actions: (K, T, E).
        logprobs: (K, T, E) log-probabilities of the actions under the policies that took them.
        values: (K, T, E, V) before each step.
        rewards: (K, T, E, V) training rewards.
        dones: (K, T, E) whether the episode ended with the step.
        last_values: (K, E, V) after the last step.
    """

    inputs: Tensor
    actions: Tensor
    logprobs: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor
    last_values: Tensor


@dataclass
class PPOSamples:
    """Decisions to learn from, N of each variant: those of a rollout, or M of them in a minibatch.

    Attributes:
        inputs: (K, N, ...) what the network reads.
        actions: (K, N).
        logprobs: (K, N) under the policies that took the actions.
        advantages: (K, N, V).
        returns: (K, N, V) what the critic should have said.
        input_ids: (1, N) equal where inputs are equal; None where equal inputs are not merged.
    """

    inputs: Tensor
    actions: Tensor
    logprobs: Tensor
    advantages: Tensor
    returns: Tensor
    input_ids: Tensor | None = None

    def select(self, index: Tensor) -> "PPOSamples":
        """Select samples of each variant as a minibatch.

        Args:
            index: (K, M) numbers of the samples.

        Returns:
            The minibatch.
        """
        variant = torch.arange(len(index)).unsqueeze(1)  # (K, 1)
        return PPOSamples(
            inputs=self.inputs[variant, index],
            actions=self.actions[variant, index],
            logprobs=self.logprobs[variant, index],
            advantages=self.advantages[variant, index],
            returns=self.returns[variant, index],
            input_ids=None if self.input_ids is None else self.input_ids[variant, index],
        )


# The loss and its derivatives ---------------------------------------------------------------------


def compute_ppo_loss(
    logits: Tensor,
    values: Tensor,
    minibatch: PPOSamples,
    coefficients: PPOCoefficients,
    objective_weights: Tensor | float = 1.0,
) -> Tensor:
    """Compute the loss of PPO on a minibatch: stable-baselines3's, with a clipped objective per critic head.

        L   = sum_i alpha_i L_i + c_v sum_i mean (V_i - R_i)^2 - c_e mean H
        L_i = -mean min(r A_i, clip(r, 1 - epsilon, 1 + epsilon) A_i),   r = pi(a | s) / pi_old(a | s)

    Training follows `compute_loss_gradients`, its derivatives; a test compares both.

    Args:
        logits: (K, M, A) of the policies that are trained.
        values: (K, M, V) of their critics.
        minibatch: The samples.
        coefficients: Settings of each variant.
        objective_weights: (K, V) weights alpha_i of the objectives; 1 where there is one objective.

    Returns:
        (K,) the loss of each variant.

    Source: Schulman et al. 2017 (PPO), eq. 7 and 9; policy orchestration, eq. 1.
    """
    action_logprobs = logits.log_softmax(-1)  # (K, M, A)

    # Clipped policy loss of every objective. Advantages are whitened within the minibatch.
    new_logprobs = action_logprobs.gather(-1, minibatch.actions.unsqueeze(-1))  # (K, M, 1)
    old_logprobs = minibatch.logprobs.unsqueeze(-1)  # (K, M, 1)
    advantages = losses.whiten(minibatch.advantages, dim=1, correction=1)  # (K, M, V)
    clip = coefficients.clip.unsqueeze(-1)  # (K, 1, 1)
    objectives = losses.compute_clipped_objective(new_logprobs, old_logprobs, advantages, clip)
    objective_losses = -objectives.mean(1)  # L_i, (K, V)
    policy_loss = (objective_weights * objective_losses).sum(-1)  # sum_i alpha_i L_i

    # Error of the critic, without clipping.
    value_loss = (values - minibatch.returns).square().mean(1).sum(-1)  # sum_i mean (V_i - R_i)^2

    # Entropy, whose weight keeps the policy exploring.
    entropy = -(action_logprobs.exp() * action_logprobs).sum(-1).mean(1)  # mean H, (K,)

    value_coefficient = coefficients.value.squeeze(-1)  # c_v, (K,)
    entropy_coefficient = coefficients.entropy.squeeze(-1)  # c_e, (K,)
    return policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy


def compute_loss_gradients(
    logits: Tensor, values: Tensor, minibatch: PPOSamples, coefficients: PPOCoefficients
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Compute the derivatives of the PPO loss with respect to the network's outputs, logits and values.

    They are short, and the graph of autograd then holds the network alone, which is faster (a benchmark). The loss is
    that of `compute_ppo_loss`.

    Args:
        logits: (K, M, A) of the policies that are trained.
        values: (K, M, V) of their critics.
        minibatch: The samples.
        coefficients: Settings of each variant.

    Returns:
        d(L_i) / d(logits) of every objective, (K, M, A) each; d(-c_e mean H) / d(logits), (K, M, A); and
        d(c_v sum_i mean (V_i - R_i)^2) / d(values), (K, M, V).
    """
    action_logprobs = logits.log_softmax(-1)
    probs = action_logprobs.exp()  # pi, (K, M, A)
    num_samples = logits.shape[1]  # M

    # r = pi(a | s) / pi_old(a | s) and d(r) / d(logits) = r (1[a] - pi)
    new_logprobs = action_logprobs.gather(-1, minibatch.actions.unsqueeze(-1)).squeeze(-1)
    ratio = (new_logprobs - minibatch.logprobs).exp()  # (K, M)
    is_chosen = torch.nn.functional.one_hot(minibatch.actions, logits.shape[-1])  # 1[a]
    ratio_gradient = (is_chosen - probs) * ratio.unsqueeze(-1)  # (K, M, A)

    # d(L_i) / d(r) = -A_i / M; 0 where the ratio has left the interval in the direction of the advantage
    clip = coefficients.clip
    advantages = losses.whiten(minibatch.advantages, dim=1, correction=1)
    policy_gradients = []
    for advantage in advantages.unbind(-1):  # A_i, (K, M)
        is_clipped = torch.where(advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
        loss_by_ratio = -advantage * ~is_clipped / num_samples
        policy_gradients.append(loss_by_ratio.unsqueeze(-1) * ratio_gradient)

    # d(-c_e mean H) / d(logits) = c_e pi (log pi + H) / M
    entropy_coefficient = coefficients.entropy.unsqueeze(-1)
    weighted_logprobs = probs * action_logprobs  # pi log pi
    entropy = -weighted_logprobs.sum(-1, keepdim=True)  # H of each decision, (K, M, 1)
    entropy_gradient = entropy_coefficient * (weighted_logprobs + probs * entropy) / num_samples

    # d(c_v mean (V_i - R_i)^2) / d(V_i) = 2 c_v (V_i - R_i) / M
    value_coefficient = coefficients.value.unsqueeze(-1)
    critic_gradient = 2 * value_coefficient * (values - minibatch.returns) / num_samples
    return policy_gradients, entropy_gradient, critic_gradient


def clip_gradient_norm(gradient: Tensor, max_norm: Tensor) -> Tensor:
    """Rows of `gradient` (K, P), scaled down to `max_norm` (K, 1) where longer, as torch's clip_grad_norm_ does."""
    norm = gradient.norm(dim=1, keepdim=True)  # (K, 1)
    return gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)


# The trainer --------------------------------------------------------------------------------------


class PPO:
    """Trains K variants in one batched environment of K * E rows; environment e of variant k is row k * E + e.

    Example:
        >>> ppo = PPO([PPOVariant("SO-d1", 0, objective, settings)], Mlp(13, 3), env, "education")
        >>> ppo.train()
        >>> parameters, curve = ppo.get_parameters(0), ppo.make_training_curve()
    """

    def __init__(
        self, variants: Sequence[PPOVariant], network: Network, env: BatchedEnv, domain: str
    ) -> None:
        """Draw the first parameters of all variants (policies in training), and reset their environments.

        Args:
            variants: What is trained side by side.
            network: Network that all variants share in shape.
            env: One row for every environment of every variant.
            domain: education or minigrid; it names the random streams.

        Raises:
            ValueError: Variants differ in settings that decide shapes, or `env` has another number of rows.
        """
        settings = variants[0].settings
        shapes = [
            (variant.settings.rollout, variant.settings.minibatch, variant.settings.epochs)
            for variant in variants
        ]
        if len(set(shapes)) > 1 or env.num_envs != len(variants) * settings.num_envs:
            raise ValueError(
                f"variants that are trained together need equal shapes (rollout, minibatch, epochs), got {shapes}, "
                f"and {settings.num_envs} rows of the environment each, got {env.num_envs} for {len(variants)}"
            )
        self.variants = list(variants)
        self.network = network
        self.env = env
        self.domain = domain
        self.num_variants = len(variants)  # K
        self.num_envs = settings.num_envs  # E
        self.num_steps = settings.rollout // settings.num_envs  # T
        self.coefficients = PPOCoefficients.from_variants(variants)
        # Where several variants are trained together, they differ in which of their inputs are equal.
        self.merges_equal_inputs = self.num_variants == 1 and network.has_expensive_forward

        # Parameters: all in one matrix, of which those with names are views.
        initial_theta = []
        for variant in variants:
            parameters = draw_initial_parameters(
                network, "zoo", domain, variant.name, seed=variant.seed
            )
            flat = [parameters[name].ravel() for name in network.parameter_shapes]
            initial_theta.append(np.concatenate(flat))
        self.theta = torch.from_numpy(np.stack(initial_theta).astype(np.float32))  # (K, P)
        self.params = self._make_parameter_views()

        # Adam.
        self.first_moment = torch.zeros_like(self.theta)
        self.second_moment = torch.zeros_like(self.theta)
        self.adam_steps = torch.zeros(self.num_variants, 1)

        # Environments and their log.
        streams = [
            make_environment_streams(domain, variant.name, variant.seed, self.num_envs)
            for variant in variants
        ]
        env.seed_with(np.concatenate(streams))
        self.observation = env.reset()  # (K * E, ...)
        self.num_updates = 0
        # Return per objective so far, and length, of the episodes under way.
        self.running_totals = np.zeros((env.num_envs, env.reward_dim + 1))
        # Of finished episodes: update, number of the variant, length, return per objective.
        self.episodes: list[tuple] = []

    def train(
        self,
        checkpoint: Path | None = None,
        progress: Callable[[float], None] = lambda fraction: None,
        seconds_between_checkpoints: float = 20.0,
    ) -> None:
        """Collect rollouts and update the policies until `timesteps` of the settings are spent.

        Args:
            checkpoint: File to resume from, if it exists, and to save to on the way; None for neither.
            progress: Called with the fraction of the training that is over.
            seconds_between_checkpoints: At least.
        """
        if checkpoint is not None and checkpoint.exists():
            self.resume_from_checkpoint(checkpoint)
        total_updates = math.ceil(self.variants[0].settings.timesteps / self.steps_per_update)
        last_save = time.monotonic()

        while self.num_updates < total_updates:
            rollout = self.collect_rollout()
            self.update_policies(rollout)
            self.num_updates += 1

            progress(self.num_updates / total_updates)
            is_save_due = time.monotonic() - last_save > seconds_between_checkpoints
            if checkpoint is not None and is_save_due:
                self.save_checkpoint(checkpoint)
                last_save = time.monotonic()

    @property
    def steps_per_update(self) -> int:
        """Environment steps of a rollout, of each variant."""
        return self.num_steps * self.num_envs

    # Collecting --------------------------------------------------------------------------------

    @torch.no_grad()
    def collect_rollout(self) -> PPORollout:
        """Play T steps in every environment, with actions sampled from the policies.

        Returns:
            Inputs, actions, log-probabilities, values, rewards and ends of episodes, (K, T, E, ...) each.
        """
        # One uniform number for every decision, from a stream of each variant and update.
        uniforms_by_variant = [
            self._make_generator(variant, "actions").random((self.num_steps, self.num_envs))
            for variant in self.variants
        ]
        uniforms = torch.from_numpy(np.stack(uniforms_by_variant))  # (K, T, E)

        steps: list[dict[str, Tensor]] = []
        for t in range(self.num_steps):
            # Act.
            inputs = self.network.prepare_inputs(self._split_by_variant(self.observation))
            logits, values = self.network.forward(self.params, inputs)  # (K, E, A), (K, E, V)
            action_logprobs = logits.log_softmax(-1)  # (K, E, A)
            actions = sample_actions(action_logprobs, uniforms[:, t])  # (K, E)
            logprobs = action_logprobs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)  # (K, E)

            # Step the environments.
            transition = self.env.advance(actions.numpy().ravel())
            rewards = self._compute_rewards(transition.reward, self.observation)  # (K, E, V)
            rewards = rewards + self._compute_value_after_truncation(transition)
            dones = torch.from_numpy(self._split_by_variant(transition.done))  # (K, E)
            self.observation = transition.observation

            # Log.
            finished_episodes = pop_finished_episodes(
                self.running_totals, transition.reward, transition.done
            )
            for row, length_and_returns in finished_episodes:
                variant_number = row // self.num_envs
                self.episodes.append((self.num_updates, variant_number, *length_and_returns))

            steps.append(
                {
                    "inputs": inputs,
                    "actions": actions,
                    "logprobs": logprobs,
                    "values": values,
                    "rewards": rewards,
                    "dones": dones,
                }
            )

        # The critic's value stands for the steps that follow the rollout.
        last_inputs = self.network.prepare_inputs(self._split_by_variant(self.observation))
        _, last_values = self.network.forward(self.params, last_inputs)  # (K, E, V)
        stacked = {name: torch.stack([step[name] for step in steps], dim=1) for name in steps[0]}
        return PPORollout(**stacked, last_values=last_values)

    def _split_by_variant(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the environment (K * E, ...) as (K, E, ...)."""
        return rows.reshape(self.num_variants, self.num_envs, *rows.shape[1:])

    def _make_generator(self, variant: PPOVariant, purpose: str) -> np.random.Generator:
        """Random numbers of a variant in this update."""
        return make_training_generator(
            self.domain, variant.name, variant.seed, purpose, self.num_updates
        )

    def _compute_rewards(self, vector_rewards: np.ndarray, observation: np.ndarray) -> Tensor:
        """Compute the training rewards by the objective of each variant (policy in training).

        Args:
            vector_rewards: (K * E, k) rewards of the environment's k objectives.
            observation: (K * E, ...) what the policies saw before the step.

        Returns:
            (K, E, V) rewards, V of them where the critic has several heads.
        """
        vector_rewards = self._split_by_variant(vector_rewards)  # (K, E, k)
        observation = self._split_by_variant(observation)  # (K, E, ...)
        rewards = [
            variant.objective(vector_rewards[k], observation[k])
            for k, variant in enumerate(self.variants)
        ]
        rewards = np.stack(rewards).astype(np.float32)  # (K, E), or (K, E, V) for several heads
        return torch.from_numpy(rewards.reshape(self.num_variants, self.num_envs, -1))

    def _compute_value_after_truncation(self, transition: Transition) -> Tensor | float:
        """Compute gamma V(s_{t+1}) where the time limit cut an episode off.

        The episode would have gone on, so what it would still have earned belongs to its last reward.

        Source: Pardo et al. 2018, partial-episode bootstrapping.

        Args:
            transition: The step of all K * E environments.

        Returns:
            (K, E, V), 0 where no episode was cut off.
        """
        is_truncated = transition.truncated & ~transition.terminated  # (K * E,)
        if not is_truncated.any():
            return 0.0
        final_observation = self._split_by_variant(transition.final_observation)
        inputs = self.network.prepare_inputs(final_observation)
        _, values = self.network.forward(self.params, inputs)  # (K, E, V)
        mask = torch.from_numpy(self._split_by_variant(is_truncated)).unsqueeze(-1)  # (K, E, 1)
        return self.coefficients.gamma.unsqueeze(-1) * values * mask

    # Learning ----------------------------------------------------------------------------------

    def update_policies(self, rollout: PPORollout) -> None:
        """Train all policies on one rollout, by epochs of minibatch steps; parameters change in place.

        A variant whose policy has moved too far from the one that collected the rollout takes no further step.

        Args:
            rollout: What was collected with the policies as they are.
        """
        # Advantages.
        advantages, returns = self.compute_advantages(rollout)  # (K, T, E, V)

        # Samples, in stable-baselines3's order: all steps of environment 0, then those of environment 1, ...
        def flatten(values: Tensor) -> Tensor:  # (K, T, E, ...) to (K, E * T, ...)
            return values.transpose(1, 2).flatten(1, 2)

        samples = PPOSamples(
            inputs=flatten(rollout.inputs),
            actions=flatten(rollout.actions),
            logprobs=flatten(rollout.logprobs),
            advantages=flatten(advantages),
            returns=flatten(returns),
        )
        if self.merges_equal_inputs:
            samples.input_ids = number_distinct_inputs(samples.inputs)

        # Epochs.
        settings = self.variants[0].settings
        num_samples = self.steps_per_update
        generators = [self._make_generator(variant, "minibatches") for variant in self.variants]
        is_learning = torch.ones(self.num_variants, 1, dtype=torch.bool)  # (K, 1)
        for _ in range(settings.epochs):
            orders = [generator.permutation(num_samples) for generator in generators]
            order = torch.from_numpy(np.stack(orders))  # (K, E * T)
            for start in range(0, num_samples, settings.minibatch):
                minibatch = samples.select(order[:, start : start + settings.minibatch])
                is_learning = self._take_minibatch_step(minibatch, is_learning)
                if not is_learning.any():
                    return

    def compute_advantages(self, rollout: PPORollout) -> tuple[Tensor, Tensor]:
        """Compute generalized advantage estimates and returns of a rollout.

        A_t = delta_t + gamma lambda A_{t+1},   delta_t = r_t + gamma V_{t+1} - V_t,   R_t = A_t + V_t

        Args:
            rollout: T steps of E environments for each of K variants.

        Returns:
            Advantages and returns, (K, T, E, V) each.
        """
        continues = (~rollout.dones).float().unsqueeze(-1)  # (K, T, E, 1)
        gamma = self.coefficients.gamma.unsqueeze(-1)  # (K, 1, 1)
        lam = self.coefficients.gae_lambda.unsqueeze(-1)
        return losses.compute_gae(
            rollout.rewards, rollout.values, continues, rollout.last_values, gamma, lam
        )

    def _take_minibatch_step(self, minibatch: PPOSamples, is_learning: Tensor) -> Tensor:
        """Do one step of Adam on a minibatch, for the variants that are still learning from this rollout.

        Args:
            minibatch: The samples.
            is_learning: (K, 1) which variants are.

        Returns:
            (K, 1) which variants still are: those whose policy is near enough to the one that collected the rollout.
        """
        logits, values = self._compute_outputs(minibatch)

        # Stop early: KL(old || new) = E[(r - 1) - log r], known as k3, is compared before the step.
        with torch.no_grad():
            new_logprobs = logits.log_softmax(-1).gather(-1, minibatch.actions.unsqueeze(-1))
            log_ratio = new_logprobs.squeeze(-1) - minibatch.logprobs  # log r, (K, M)
            approx_kl = (log_ratio.exp() - 1 - log_ratio).mean(1, keepdim=True)  # (K, 1)
            is_learning = is_learning & (approx_kl <= 1.5 * self.coefficients.target_kl)
        if not is_learning.any():
            return is_learning

        gradient = self._compute_gradient(logits, values, minibatch)  # (K, P)
        gradient = clip_gradient_norm(gradient, self.coefficients.max_grad_norm)
        self._take_adam_step(gradient, is_learning)
        return is_learning

    def _compute_outputs(self, minibatch: PPOSamples) -> tuple[Tensor, Tensor]:
        """Compute logits and values of a minibatch, each distinct input once.

        A room has few views, so a minibatch has many equal ones. Each is computed once and its gradients add up,
        which gives the same sum with less work.

        Args:
            minibatch: M samples of each variant.

        Returns:
            (K, M, A) logits and (K, M, V) values.
        """
        if not self.merges_equal_inputs:
            return self.network.forward(self.params, minibatch.inputs)
        distinct_ids, position = torch.unique(minibatch.input_ids[0], return_inverse=True)
        # One sample of every distinct input.
        representative = torch.empty_like(distinct_ids)
        representative.scatter_(0, position, torch.arange(len(position)))
        logits, values = self.network.forward(self.params, minibatch.inputs[:, representative])
        return logits[:, position], values[:, position]

    def _compute_gradient(self, logits: Tensor, values: Tensor, minibatch: PPOSamples) -> Tensor:
        """Compute the gradient of the PPO loss with respect to all parameters.

        Args:
            logits: (K, M, A), part of autograd's graph.
            values: (K, M, V), part of autograd's graph.
            minibatch: The samples.

        Returns:
            (K, P).
        """
        policy_gradients, entropy_gradient, critic_gradient = compute_loss_gradients(
            logits.detach(), values.detach(), minibatch, self.coefficients
        )
        (policy_gradient,) = policy_gradients  # there is one objective
        return self._backpropagate(
            (logits, values), (policy_gradient + entropy_gradient, critic_gradient)
        )

    def _backpropagate(
        self,
        outputs: Sequence[Tensor],
        output_gradients: Sequence[Tensor],
        keep_graph: bool = False,
    ) -> Tensor:
        """Backpropagate from outputs of the network to all parameters.

        Variants share no parameter, so that one backward pass serves all of them.

        Args:
            outputs: Logits, values, or both.
            output_gradients: Gradients of the loss with respect to them.
            keep_graph: Whether another pass follows.

        Returns:
            (K, P) gradients.
        """
        gradients = torch.autograd.grad(
            outputs,
            list(self.params.values()),
            output_gradients,
            retain_graph=keep_graph,
            materialize_grads=True,  # zeros for parameters that the outputs do not depend on
        )
        return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)

    @torch.no_grad()
    def _take_adam_step(self, gradient: Tensor, is_learning: Tensor) -> None:
        """Do one step of Adam on the parameters of the variants that are still learning.

        One state for all variants: torch's Adam takes longer with one optimizer per variant, and its fused one as long
        (a benchmark).

        Args:
            gradient: (K, P).
            is_learning: (K, 1) which variants are.

        Source: Kingma and Ba 2015, algorithm 1.
        """
        beta_1, beta_2 = ADAM_BETAS
        state = (self.theta, self.first_moment, self.second_moment, self.adam_steps)
        learning_rate = self.coefficients.learning_rate
        rows = is_learning.squeeze(1)  # (K,)
        theta, m, v, t = state
        if not rows.all():  # indexing copies; the rows are written back below
            theta, m, v, t = (tensor[rows] for tensor in state)
            gradient = gradient[rows]
            learning_rate = learning_rate[rows]

        t += 1
        m.lerp_(gradient, 1 - beta_1)  # m = beta_1 m + (1 - beta_1) g
        v.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)  # beta_2 v + (1 - beta_2) g^2
        corrected_v = v / (1 - beta_2**t)
        corrected_v.clamp_(min=1e-30)  # the square root of 0 is slow
        deviation = corrected_v.sqrt_().add_(ADAM_EPSILON)
        theta -= (learning_rate / (1 - beta_1**t)) * m / deviation  # the quotient corrects m

        if not rows.all():
            for tensor, updated_rows in zip(state, (theta, m, v, t), strict=True):
                tensor[rows] = updated_rows

    # Results and checkpoints -------------------------------------------------------------------

    def get_parameters(self, k: int) -> dict[str, np.ndarray]:
        """Copies of the parameters of variant k, by stable-baselines3's names."""
        return {name: values[k].detach().numpy().copy() for name, values in self.params.items()}

    def make_training_curve(self) -> pd.DataFrame:
        """Tabulate the finished training episodes of some policies, a row for each."""
        names_and_seeds = [(variant.name, variant.seed) for variant in self.variants]
        return make_training_curve(
            self.episodes, names_and_seeds, self.steps_per_update, self.env.reward_dim
        )

    def save_checkpoint(self, path: Path) -> None:
        """Write everything that decides the rest of the training to a safetensors file.

        Args:
            path: Path of the file.
        """
        episodes = np.array(self.episodes, dtype=np.float64)
        arrays = {
            "theta": self.theta.detach().numpy(),
            "moment_1": self.first_moment.numpy(),
            "moment_2": self.second_moment.numpy(),
            "adam_steps": self.adam_steps.numpy(),
            "updates": np.array([self.num_updates]),
            "observation": self.observation,
            "running": self.running_totals,
            "episodes": episodes.reshape(len(self.episodes), -1),
        }
        for name, array in self.env.state().items():
            arrays[f"env.{name}"] = array
        artifacts.write_tensors(path, arrays)

    def resume_from_checkpoint(self, path: Path) -> None:
        """Take over parameters, Adam's state, environments and log from a checkpoint.

        Random streams need no state: every update has another one.

        Args:
            path: A file that `save_checkpoint` wrote.
        """
        arrays = artifacts.read_tensors(path)
        with torch.no_grad():  # in place, because the named parameters are views
            self.theta.copy_(torch.from_numpy(arrays["theta"]))
        self.first_moment = torch.from_numpy(arrays["moment_1"].copy())
        self.second_moment = torch.from_numpy(arrays["moment_2"].copy())
        self.adam_steps = torch.from_numpy(arrays["adam_steps"].copy())
        self.num_updates = int(arrays["updates"][0])
        self.observation = arrays["observation"].copy()
        self.running_totals = arrays["running"].copy()
        self.episodes = [
            (int(update), int(variant_number), *length_and_returns)
            for update, variant_number, *length_and_returns in arrays["episodes"]
        ]
        env_state = {}
        for name, array in arrays.items():
            if name.startswith("env."):
                env_state[name.removeprefix("env.")] = array
        self.env.restore(env_state)

    def _make_parameter_views(self) -> dict[str, Tensor]:
        """Make the parameters by name as views of one flat tensor, theta.

        Returns:
            By name (K, *shape): leaves of autograd's graph that share their memory with theta.
        """
        shapes = self.network.parameter_shapes
        sizes = [math.prod(shape) for shape in shapes.values()]
        views = {}
        for name, columns in zip(shapes, self.theta.split(sizes, dim=1), strict=True):
            view = columns.view(self.num_variants, *shapes[name])
            views[name] = view.detach().requires_grad_()
        return views


class MGDA(PPO):
    """PPO for several objectives: one critic head, one advantage and one policy gradient for each.

    The gradients are combined by the weights of least norm, so that no objective gets worse by the step.

    Source: policy orchestration, A.3, equation 3.
    """

    def _compute_gradient(self, logits: Tensor, values: Tensor, minibatch: PPOSamples) -> Tensor:
        """Combine the policy gradients of all objectives by min-norm weights, and add those of entropy and critic.

        Args:
            logits: (K, M, A), part of autograd's graph.
            values: (K, M, V), part of autograd's graph.
            minibatch: The samples.

        Returns:
            (K, P).
        """
        policy_gradients, entropy_gradient, critic_gradient = compute_loss_gradients(
            logits.detach(), values.detach(), minibatch, self.coefficients
        )

        # The gradient of every objective, g_i = d(L_i) / d(theta).
        objective_gradients = [
            self._backpropagate((logits,), (policy_gradient,), keep_graph=True)
            for policy_gradient in policy_gradients
        ]
        g = torch.stack(objective_gradients, dim=1).double()  # (K, V, P)

        # alpha = argmin || sum_i alpha_i g_i ||^2, for every variant.
        gram_matrices = g @ g.transpose(1, 2)  # G_ij = g_i . g_j, (K, V, V)
        weights = [compute_min_norm_weights(gram_matrix) for gram_matrix in gram_matrices.numpy()]
        alpha = torch.from_numpy(np.stack(weights)).unsqueeze(-1)  # (K, V, 1)
        combined = (alpha * g).sum(1).float()  # sum_i alpha_i g_i, (K, P)

        # Critic and entropy have no weight: it would change how well an objective is estimated, not how objectives are
        # traded off.
        return combined + self._backpropagate((logits, values), (entropy_gradient, critic_gradient))


def number_distinct_inputs(inputs: Tensor) -> Tensor:
    """For each input of the only variant, (1, N, ...), the number of its content among the distinct ones, (1, N)."""
    rows = np.ascontiguousarray(inputs[0].flatten(1).numpy())  # (N, size)
    bytes_of_row = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    _, input_ids = np.unique(rows.view(bytes_of_row), return_inverse=True)
    return torch.from_numpy(input_ids.reshape(1, -1))


# Random streams and episodes, which training by stable-baselines3 shares ---------------------------


def make_training_generator(
    domain: str, name: str, seed: int, *purpose: str | int
) -> np.random.Generator:
    """The random generator of one policy's training for a purpose, such as the actions of an update.

    Every update has another generator, so that a training that is resumed needs no state of one.

    Args:
        domain: education or minigrid.
        name: Name of the policy.
        seed: Number of the repetition.
        purpose: Further parts of the name of the random stream.
    """
    return seeds.rng("zoo", domain, name, *purpose, seed=seed)


def make_environment_streams(domain: str, name: str, seed: int, num_envs: int) -> np.ndarray:
    """Random streams of the environments that a policy is trained in, (num_envs,) uint64."""
    return seeds.keys("zoo", domain, name, seed=1000 * seed, n=num_envs)


def pop_finished_episodes(
    running_totals: np.ndarray, rewards: np.ndarray, dones: np.ndarray
) -> list[tuple[int, tuple[float, ...]]]:
    """Add a step to the running returns of all episodes, and take out the episodes that ended with it.

    Args:
        running_totals: (B, k + 1) return per objective so far, and length; changed in place.
        rewards: (B, k) of the step.
        dones: (B,) whether the episode ended with the step.

    Returns:
        Of every episode that ended its row, and (length, return per objective).
    """
    running_totals[:, :-1] += rewards
    running_totals[:, -1] += 1

    finished_episodes = []
    for row in np.flatnonzero(dones):
        *returns, length = running_totals[row]
        finished_episodes.append((int(row), (length, *returns)))
    running_totals[dones] = 0
    return finished_episodes


def make_training_curve(
    episodes: Sequence[tuple],
    names_and_seeds: Sequence[tuple[str, int]],
    steps_per_update: int,
    num_objectives: int,
) -> pd.DataFrame:
    """The finished training episodes of some policies as a table, a row for each.

    Args:
        episodes: (update, number of the variant, length, return per objective) of each.
        names_and_seeds: Name and seed of each variant (policy in training).
        steps_per_update: Environment steps of each variant.
        num_objectives: Number of objectives, k.

    Returns:
        Columns update, method, length, return_0 .. return_{k-1}, seed, and steps (of the variant, at the end of the
        update).
    """
    return_columns = [f"return_{i}" for i in range(num_objectives)]
    columns = ["update", "method", "length", *return_columns]
    curve = pd.DataFrame(list(episodes), columns=columns)

    variant_number = curve["method"]
    name_by_number = {number: name for number, (name, _) in enumerate(names_and_seeds)}
    seed_by_number = {number: seed for number, (_, seed) in enumerate(names_and_seeds)}
    curve["method"] = variant_number.map(name_by_number)
    curve["seed"] = variant_number.map(seed_by_number)
    curve["steps"] = (curve["update"] + 1) * steps_per_update
    return curve
