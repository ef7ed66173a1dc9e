"""Policies trained by stable-baselines3's own PPO: its class, its networks, its rollouts and its updates.

The paper's choice (policy orchestration, 4.1.2), and what the stacked trainer (`ppo`) is held to. The first weights
and the random numbers are ours (`SameDraws`), so that both trainers do the same but for rounding, which a long
training multiplies. A training that was stopped begins again, because stable-baselines3's checkpoints are pickles.
MO-MGDA is not here and stays stacked: `PPO.train` flattens values and takes its step in one method, which a subclass
with a critic for each objective would have to repeat as a whole.
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
from stable_baselines3.common.vec_env import VecEnvWrapper
from torch import nn

from lib.config import Environments
from lib.envs.batched_env import BatchedEnv
from lib.policy_zoo.networks import Cnn, initial, sample
from lib.policy_zoo.ppo import booked, curve, stream, streams
from lib.policy_zoo.recipes import Recipe, make_batch

VERSION = 1  # of trainings by stable-baselines3


class SmallExtractor(BaseFeaturesExtractor):
    """MiniGrid's small extractor: three 2x2 convolutions of 16, 32 and 64 channels, 128 features."""

    def __init__(self, observation_space, features_dim: int = 128) -> None:
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
    """A batched twin that pays what a recipe's objective says, (E,), and keeps what episodes returned in each."""

    def __init__(self, venv: BatchedEnv, recipe: Recipe) -> None:
        super().__init__(venv)
        self.recipe, self.steps = recipe, 0
        self.running = np.zeros((venv.num_envs, venv.reward_dim + 1))
        self.episodes: list[tuple] = []  # (update, 0, length, return per objective)

    def reset(self) -> np.ndarray:
        self.seen = self.venv.reset()
        return self.seen

    def step_wait(self):
        acted_on = self.seen
        self.seen, reward, done, infos = self.venv.step_wait()
        update = self.steps // (self.recipe.settings.rollout // self.num_envs)
        self.episodes += [(update, 0, *told) for _, told in booked(self.running, reward, done)]
        self.steps += 1
        return self.seen, self.recipe.objective(reward, acted_on), done, infos


class InverseTransformCategorical(CategoricalDistribution):
    """Actions by inverse distribution from draws that are given, as the stacked trainer takes them."""

    draws: Callable[[], np.ndarray]

    def sample(self) -> torch.Tensor:
        return sample(self.distribution.logits, torch.from_numpy(self.draws()))


class SameDraws(BaseCallback):
    """Gives stable-baselines3's PPO the stacked trainer's first weights and random numbers of a recipe and a seed."""

    def __init__(
        self, recipe: Recipe, seed: int, progress: Callable[[float], None] = lambda fraction: None
    ) -> None:
        super().__init__()
        self.recipe, self.seed, self.progress, self.update = recipe, seed, progress, 0

    def _on_training_start(self) -> None:
        first = initial(
            self.recipe.network, "zoo", self.recipe.domain, self.recipe.name, seed=self.seed
        )
        weights = {name: torch.from_numpy(array) for name, array in first.items()}
        self.model.policy.load_state_dict(
            weights, strict=False
        )  # an extractor that is shared has several names
        self.model.policy.action_dist = InverseTransformCategorical(self.recipe.network.actions)
        self.model.policy.action_dist.draws = lambda: self.draws[self.model.rollout_buffer.pos]
        self.model.rollout_buffer.get = self._minibatches

    def _on_rollout_start(self) -> None:
        who, buffer = (self.recipe.domain, self.recipe.name, self.seed), self.model.rollout_buffer
        self.draws = stream(*who, "actions", self.update).random(
            (buffer.buffer_size, buffer.n_envs)
        )
        self.orders = stream(*who, "minibatches", self.update)
        self.update += 1
        self.progress(self.model.num_timesteps / self.recipe.settings.timesteps)

    def _on_step(self) -> bool:
        return True

    def _minibatches(self, size: int) -> Iterator[RolloutBufferSamples]:
        """`RolloutBuffer.get` in our order."""
        buffer = self.model.rollout_buffer
        next(
            type(buffer).get(buffer, size)
        )  # flattens what was collected; its own order is not used
        order = self.orders.permutation(buffer.buffer_size * buffer.n_envs)
        yield from (
            buffer._get_samples(order[start : start + size]) for start in range(0, len(order), size)
        )


def environment(params: Environments, recipe: Recipe, seed: int) -> RecipeRewardWrapper:
    """The rows that a policy is trained in; they see the students or rooms that the stacked trainer's see."""
    env = make_batch(params, recipe.domain, [recipe.task] * recipe.settings.num_envs)
    env.seed_with(streams(recipe.domain, recipe.name, seed, env.num_envs))
    return RecipeRewardWrapper(env, recipe)


def learner(recipe: Recipe, env: RecipeRewardWrapper) -> PPO:
    """stable-baselines3's PPO with a recipe's settings and a network of its shape."""
    s, rooms = recipe.settings, isinstance(recipe.network, Cnn)
    return PPO(
        "CnnPolicy" if rooms else "MlpPolicy",
        env,
        learning_rate=s.learning_rate,
        n_steps=s.rollout // env.num_envs,
        batch_size=s.minibatch,
        n_epochs=s.epochs,
        gamma=s.gamma,
        gae_lambda=s.gae_lambda,
        clip_range=s.clip,
        ent_coef=s.entropy,
        vf_coef=s.value,
        max_grad_norm=s.max_grad_norm,
        target_kl=s.target_kl,
        device="cpu",
        policy_kwargs={"features_extractor_class": SmallExtractor, "normalize_images": False}
        if rooms
        else None,
    )


def train(
    params: Environments,
    recipe: Recipe,
    seed: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """Parameters and training curve of one policy."""
    env = environment(params, recipe, seed)
    with (
        torch.random.fork_rng()
    ):  # its own first weights come from torch's generator, and are not used
        model = learner(recipe, env)
        model.learn(recipe.settings.timesteps, callback=SameDraws(recipe, seed, progress))
    k = env.venv.reward_dim
    return weights(model, recipe), curve(
        env.episodes, [(recipe.name, seed)], recipe.settings.rollout, k
    )


def weights(model: PPO, recipe: Recipe) -> dict[str, np.ndarray]:
    """Copies of the parameters, by the names and in the shapes of the recipe's network."""
    held = model.policy.state_dict()
    return {name: held[name].numpy().copy() for name in recipe.network.shapes}
