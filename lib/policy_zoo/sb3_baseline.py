"""Policies trained by stable-baselines3's PPO as it is: its class, its networks, its rollouts and its updates.

The paper's choice (policy orchestration, 4.1.2), and what the stacked trainer (`ppo`) is compared with. First weights
and random numbers are handed in (`SameRandomNumbers`), so that both trainers do the same but for rounding, which a
long training multiplies. A training that was stopped begins again, because stable-baselines3's checkpoints are
pickles.

Left out: MO-MGDA, which is always trained by the stacked trainer. `PPO.train` flattens values and takes its step in one
method, which a subclass with a critic head for each objective would have to repeat as a whole.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from torch import nn

from lib.config import Environments
from lib.envs.batched_env import BatchedEnv
from lib.policy_zoo.networks import Cnn, draw_initial_parameters, sample_actions
from lib.policy_zoo.ppo import (
    make_environment_streams,
    make_training_curve,
    make_training_generator,
    pop_finished_episodes,
)
from lib.policy_zoo.recipes import Recipe, make_batched_env

VERSION = 1  # of trainings by stable-baselines3


class SmallExtractor(BaseFeaturesExtractor):
    """MiniGrid's small extractor: three 2x2 convolutions of 16, 32 and 64 channels, 128 features."""

    def __init__(self, observation_space, features_dim: int = 128) -> None:
        """Make the layers, untrained; `features_dim` is the number of features that come out."""
        super().__init__(observation_space, features_dim)
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 16, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 2),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.linear = nn.Sequential(nn.Linear(1024, features_dim), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.linear(self.cnn(observations))


class RecipeRewardWrapper(VecEnvWrapper):
    """A batched environment whose rewards, (E,), are those of a recipe's objective.

    Attributes:
        episodes: Finished episodes: update, 0 (the number of the only variant), length, return per objective.
    """

    def __init__(self, venv: BatchedEnv, recipe: Recipe) -> None:
        """venv: the environments, with vector rewards; recipe: whose objective turns them into training rewards."""
        super().__init__(venv)
        self.recipe = recipe
        self.num_steps = 0
        self.running_totals = np.zeros((venv.num_envs, venv.reward_dim + 1))
        self.episodes: list[tuple] = []

    def reset(self) -> np.ndarray:
        self.observation = self.venv.reset()
        return self.observation

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Step the environments, and log finished episodes.

        Returns:
            Observations, training rewards (E,), dones (E,), and infos.
        """
        previous_observation = self.observation
        self.observation, vector_rewards, dones, infos = self.venv.step_wait()

        steps_per_rollout = self.recipe.settings.rollout // self.num_envs
        update = self.num_steps // steps_per_rollout
        finished_episodes = pop_finished_episodes(self.running_totals, vector_rewards, dones)
        for _, length_and_returns in finished_episodes:
            self.episodes.append((update, 0, *length_and_returns))
        self.num_steps += 1

        rewards = self.recipe.objective(vector_rewards, previous_observation)  # (E,)
        return self.observation, rewards, dones, infos


class InverseTransformCategorical(CategoricalDistribution):
    """Samples actions by inverse transform from uniform numbers that are handed in, as the stacked trainer does.

    Attributes:
        read_uniforms: Returns the (E,) uniform numbers in [0, 1) of the current step.
    """

    read_uniforms: Callable[[], np.ndarray]

    def sample(self) -> torch.Tensor:
        uniforms = torch.from_numpy(self.read_uniforms())
        return sample_actions(self.distribution.logits, uniforms)


class SameRandomNumbers(BaseCallback):
    """Gives stable-baselines3's PPO the first weights and random numbers that the stacked trainer has.

    Args:
        recipe: What is trained.
        seed: Number of the repetition.
        progress: Called with the fraction of the training that is over.
    """

    def __init__(
        self, recipe: Recipe, seed: int, progress: Callable[[float], None] = lambda fraction: None
    ) -> None:
        """Prepare to hand random numbers to a training; nothing is drawn yet."""
        super().__init__()
        self.recipe = recipe
        self.seed = seed
        self.progress = progress
        self.num_updates = 0

    def _on_training_start(self) -> None:
        """Replace first weights, sampling of actions and order of minibatches by those of the stacked trainer."""
        # First weights. An extractor that actor and critic share has several names, hence not strict.
        parameters = draw_initial_parameters(
            self.recipe.network, "zoo", self.recipe.domain, self.recipe.name, seed=self.seed
        )
        state_dict = {name: torch.from_numpy(array) for name, array in parameters.items()}
        self.model.policy.load_state_dict(state_dict, strict=False)

        # Actions and minibatches.
        distribution = InverseTransformCategorical(self.recipe.network.actions)
        distribution.read_uniforms = lambda: self.uniforms[self.model.rollout_buffer.pos]
        self.model.policy.action_dist = distribution
        self.model.rollout_buffer.get = self._iterate_minibatches

    def _on_rollout_start(self) -> None:
        """Draw the random numbers of the coming rollout and update."""
        buffer = self.model.rollout_buffer
        actions_generator = self._make_generator("actions")
        self.uniforms = actions_generator.random((buffer.buffer_size, buffer.n_envs))  # (T, E)
        self.order_generator = self._make_generator("minibatches")
        self.num_updates += 1
        self.progress(self.model.num_timesteps / self.recipe.settings.timesteps)

    def _on_step(self) -> bool:
        return True

    def _make_generator(self, purpose: str) -> np.random.Generator:
        return make_training_generator(
            self.recipe.domain, self.recipe.name, self.seed, purpose, self.num_updates
        )

    def _iterate_minibatches(self, batch_size: int) -> Iterator[RolloutBufferSamples]:
        """Iterate over the rollout's minibatches in the order of the batched trainer, in place of `RolloutBuffer.get`.

        Args:
            batch_size: Samples of a minibatch.
        """
        buffer = self.model.rollout_buffer
        # The first minibatch of the original is thrown away: asking for it flattens the buffer.
        next(type(buffer).get(buffer, batch_size))

        order = self.order_generator.permutation(buffer.buffer_size * buffer.n_envs)
        for start in range(0, len(order), batch_size):
            yield buffer._get_samples(order[start : start + batch_size])


def make_environment(params: Environments, recipe: Recipe, seed: int) -> RecipeRewardWrapper:
    """The environments of a policy, with the students or rooms that the stacked trainer has."""
    env = make_batched_env(params, recipe.domain, [recipe.task] * recipe.settings.num_envs)
    env.seed_with(make_environment_streams(recipe.domain, recipe.name, seed, env.num_envs))
    return RecipeRewardWrapper(env, recipe)


def make_learner(recipe: Recipe, env: VecEnv) -> PPO:
    """Make stable-baselines3's PPO with the settings and the network shape of a recipe, untrained.

    Args:
        recipe: What is trained.
        env: The environments, with training rewards (E,).

    Returns:
        The learner.
    """
    settings = recipe.settings
    policy_class = "MlpPolicy"
    policy_kwargs = None
    if isinstance(recipe.network, Cnn):
        policy_class = "CnnPolicy"
        policy_kwargs = {"features_extractor_class": SmallExtractor, "normalize_images": False}
    return PPO(
        policy_class,
        env,
        learning_rate=settings.learning_rate,
        n_steps=settings.rollout // env.num_envs,
        batch_size=settings.minibatch,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        ent_coef=settings.entropy,
        vf_coef=settings.value,
        max_grad_norm=settings.max_grad_norm,
        target_kl=settings.target_kl,
        device="cpu",
        policy_kwargs=policy_kwargs,
    )


def train_policy(
    params: Environments,
    recipe: Recipe,
    seed: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """Train one policy with stable-baselines3, and return its parameters by name and its training curve.

    Args:
        params: Settings of the environments.
        recipe: What is trained.
        seed: Number of the repetition.
        progress: Called with the fraction of the training that is over.

    Returns:
        float32 arrays, and a table with a row per finished training episode.
    """
    env = make_environment(params, recipe, seed)
    # stable-baselines3 draws first weights from torch's generator. They are replaced, and the generator put back.
    with torch.random.fork_rng():
        model = make_learner(recipe, env)
        callback = SameRandomNumbers(recipe, seed, progress)
        model.learn(recipe.settings.timesteps, callback=callback)

    curve = make_training_curve(
        env.episodes, [(recipe.name, seed)], recipe.settings.rollout, env.venv.reward_dim
    )
    return get_parameters(model, recipe), curve


def get_parameters(model: PPO, recipe: Recipe) -> dict[str, np.ndarray]:
    """Copies of the parameters, by the names and in the shapes of the recipe's network."""
    state_dict = model.policy.state_dict()
    return {name: state_dict[name].numpy().copy() for name in recipe.network.parameter_shapes}
