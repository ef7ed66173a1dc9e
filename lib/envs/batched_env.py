"""Batched twins: B environments of one kind, stepped together by array arithmetic.

`BatchedEnv` holds what the twins share: random streams, automatic resets, state copies for
look-ahead, and the interface of a stable-baselines3 `VecEnv`. A twin itself says only how episodes begin,
advance and are observed. Rewards are vectors, (B, k), as in MO-Gymnasium; `LinearVecReward` is the
scalar view that stable-baselines3 needs. Rendering is left to the single environments.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from lib.experiment import seeds


@dataclass(frozen=True)
class Transition:
    """What one step of a batch returns, one row per environment.

    Attributes:
        observation: (B, ...), the observation to act on next: of the new episode where one has just ended.
        reward: (B, k).
        terminated: (B,) bool.
        truncated: (B,) bool.
        final_observation: (B, ...), the last observation of the episodes that ended, equal to `observation` in the
            other rows.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observation: np.ndarray

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated


class BatchedEnv(VecEnv):
    """Base of the twins.

    A subclass sets `name` (of its random streams) and `fields` (names of its state arrays, each
    with a leading axis of B; `key`, the episode's random stream, is always one of them) and
    implements `_begin`, `_advance` and `_observe`.
    """

    name: str
    fields: tuple[str, ...] = ()

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        reward_space: spaces.Box,
        seed: int = 0,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be >= 1, got {num_envs}")
        self.reward_space = reward_space
        self.reward_dim = reward_space.shape[0]
        self.render_mode = None  # the single environments render
        super().__init__(num_envs, observation_space, action_space)
        self.key = np.zeros(num_envs, dtype=np.uint64)
        self.seed(seed)

    # What a twin defines -------------------------------------------------------------------

    @abstractmethod
    def _begin(self, rows: np.ndarray) -> None:
        """Start an episode in each of `rows` ((n,) indices), drawing from `self.key[rows]`."""

    @abstractmethod
    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of every row: reward (B, k), terminated (B,), truncated (B,)."""

    @abstractmethod
    def _observe(self) -> np.ndarray:
        """A new array with the observation of every row."""

    # Episodes ------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Environment i draws, from the next reset on, as a single one seeded with seed + i does."""
        seed = 0 if seed is None else seed
        # Keys for the next reset; None where the streams go on from their own keys.
        self._fresh_keys: np.ndarray | None = seeds.keys(self.name, seed=seed, n=self.num_envs)
        return [seed + i for i in range(self.num_envs)]

    def seed_with(self, keys: np.ndarray) -> None:
        """Draw from these streams, (B,) uint64, from the next reset on."""
        self._fresh_keys = np.asarray(keys, dtype=np.uint64).reshape(self.num_envs).copy()

    def reset(self) -> np.ndarray:
        self.key = seeds.next_key(self.key) if self._fresh_keys is None else self._fresh_keys
        self._fresh_keys = None
        self._begin(np.arange(self.num_envs))
        return self._observe()

    def advance(self, actions: np.ndarray, restart: bool = True) -> Transition:
        """Steps every environment; those whose episode ends begin the next one at once.

        Args:
            actions: (B,) integers.
            restart: False leaves ended episodes at their end, for a caller who steps them no further on purpose.

        Raises:
            ValueError: A wrong shape or an unknown action.
        """
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"expected {self.num_envs} actions, got shape {actions.shape}")
        lowest = actions.min()
        highest = actions.max()
        num_actions = self.action_space.n
        if lowest < 0 or highest >= num_actions:
            raise ValueError(f"actions must lie in 0..{num_actions - 1}, got {lowest}..{highest}")
        reward, terminated, truncated = self._advance(actions)
        final_observation = self._observe()
        observation = final_observation

        ended_rows = np.flatnonzero(terminated | truncated)
        if restart and ended_rows.size:
            self.key[ended_rows] = seeds.next_key(self.key[ended_rows])
            self._begin(ended_rows)
            observation = self._observe()
        return Transition(observation, reward, terminated, truncated, final_observation)

    # Copies, for look-ahead ----------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """A copy of every state array."""
        return {name: getattr(self, name).copy() for name in ("key", *self.fields)}

    def restore(self, state: dict[str, np.ndarray], rows: np.ndarray | None = None) -> None:
        """Takes a state over.

        Args:
            state: As `state` returns it.
            rows: (n,) indices. With them, this batch becomes one of n environments, of which the i-th is row rows[i]
                of the state: so copies are made, and episodes that are over are left out.

        Raises:
            ValueError: The state has another number of rows than the batch.
        """
        self.num_envs = self.num_envs if rows is None else len(rows)
        for name in ("key", *self.fields):
            array = state[name].copy() if rows is None else state[name][rows]
            if len(array) != self.num_envs:
                raise ValueError(
                    f"{name}: a state of {len(array)} rows for {self.num_envs} environments"
                )
            setattr(self, name, array)
        self._fresh_keys = None

    # The interface of stable-baselines3 ----------------------------------------------------

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self):
        """Makes the step that `step_async` announced, as stable-baselines3 asks it of a vectorized environment.

        Returns:
            Observations (B, ...), rewards (B, k), whether each episode is over (B,), and an info dictionary for each
            row; that of an episode that is over has its last observation and whether it was cut off by the horizon.
        """
        step = self.advance(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        timed_out = step.truncated & ~step.terminated
        for row in np.flatnonzero(step.done):
            infos[row]["terminal_observation"] = step.final_observation[row]
            infos[row]["TimeLimit.truncated"] = bool(timed_out[row])
        return step.observation, step.reward, step.done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices=None) -> list[Any]:
        return [getattr(self, attr_name)] * len(self._get_indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices=None) -> None:
        raise AttributeError(
            f"{attr_name}: the rows of a batched environment share their attributes"
        )

    def env_method(self, method_name: str, *args, indices=None, **kwargs) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs)] * len(self._get_indices(indices))

    def env_is_wrapped(self, wrapper_class, indices=None) -> list[bool]:
        return [False] * len(self._get_indices(indices))


class LinearVecReward(VecEnvWrapper):
    """The scalar view of a batched twin: r = w . r_vector, as MO-Gymnasium's LinearReward does."""

    def __init__(self, venv: BatchedEnv, weight: np.ndarray) -> None:
        super().__init__(venv)
        self.weight = np.asarray(weight, dtype=np.float64)
        if self.weight.shape != (venv.reward_dim,):
            raise ValueError(
                f"weight must have {venv.reward_dim} entries, got shape {self.weight.shape}"
            )

    def reset(self) -> np.ndarray:
        return self.venv.reset()

    def step_wait(self):
        observation, reward, done, infos = self.venv.step_wait()
        return observation, reward @ self.weight, done, infos
