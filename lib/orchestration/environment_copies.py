"""One running episode, and copies of it that look ahead.

A `World` is a row of a batched twin: `step` lets one policy act for real, `look` lets several act on
copies. Copies draw fresh random numbers, so a look-ahead is a sample of what may happen, not a peek
at what will. All copies of all candidates advance together, and all policies of the zoo answer in one
stacked forward pass. What is said about a domain stands in `domains`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from lib.config import Environments
from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import seeds
from lib.policy_zoo.networks import sample
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import ACTIONS, make_batch

VERSION = 1  # of episodes and look-aheads
_DRAWS = np.uint64(
    0xAC7
)  # as in lib.policy_zoo.evaluate.play: the same student meets the same luck there and here


@dataclass(frozen=True)
class Domain:
    """Words of one domain. objectives and actions: name -> what it means, in the environment's order."""

    name: str
    role: str
    task: str
    objectives: dict[str, str]
    actions: dict[str, str]
    seen: str
    unit: str


class PolicyMenu:
    """The policies to choose from, one per name. All answer at once where their networks are alike."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        if not policies:
            raise ValueError("a menu needs at least one policy")
        self.policies = dict(policies)
        self.names = tuple(self.policies)
        kinds = {policy.network for policy in self.policies.values()}
        if len(kinds) > 1:
            raise ValueError(
                f"the policies of a menu must share one network, got {sorted(map(str, kinds))}"
            )
        self.network = kinds.pop()

    @cached_property
    def _stacked(self) -> dict[str, torch.Tensor]:
        params = [policy.params for policy in self.policies.values()]
        return {
            name: torch.from_numpy(np.stack([each[name] for each in params])) for name in params[0]
        }

    def act(self, names: Sequence[str], observation: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Actions (K, N) of the named policies for observations (K, N, ...) with draws (K, N) in [0, 1). A costly
        network is asked policy by policy, for each remembers what it has seen."""
        if self.network.costly:
            pairs = zip(names, observation, draws, strict=True)
            return np.stack([self.policies[name].act(seen, lots) for name, seen, lots in pairs])
        chosen = [self.names.index(name) for name in names]
        params = (
            self._stacked if chosen == list(range(len(self.names))) else self._some(tuple(chosen))
        )
        with torch.no_grad():
            logits = self.network.forward(params, self.network.prepare(observation))[0]
        return sample(logits.log_softmax(-1), torch.from_numpy(draws)).numpy()

    def _some(self, chosen: tuple[int, ...]) -> dict[str, torch.Tensor]:
        return {name: tensor[list(chosen)] for name, tensor in self._stacked.items()}


@dataclass(frozen=True)
class Foresight:
    """What one policy did on copies of the world.

    rewards: (3,) mean over copies, per step where the domain is judged per step, else in all; actions:
    names along the first copy; told: what else a prompt says of it; change: what it did to the state.
    """

    policy: str
    steps: int
    copies: int
    rewards: np.ndarray
    actions: tuple[str, ...]
    told: str
    change: str


@dataclass(frozen=True)
class LookaheadRollout:
    """Copies advanced together, (T, K, C, ...) over steps, candidates and copies: whether the copy was
    still running, its action, its reward, and what the steps led to."""

    alive: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    outcome: dict[str, np.ndarray]


class World(ABC):
    """One episode; ends by itself (`done`). A domain says how its state reads and what changed."""

    words: Domain
    task: str
    per_step: bool  # whether rewards are judged per step (an early end must not pay less)

    def __init__(self, params: Environments, menu: PolicyMenu, stream: np.uint64) -> None:
        self.menu, self.params = menu, params
        self.domain = self.words.name
        self.horizon = getattr(params, self.domain).horizon  # steps at the most, H
        self.env = self._batch(1)
        self.env.seed_with(np.array([stream], dtype=np.uint64))
        self.observation = self.env.reset()
        self.draws = seeds.next_key(np.uint64(stream) ^ _DRAWS)
        self.stream, self.t, self.done = np.uint64(stream), 0, False
        self._copy = self._batch(1)

    # What a domain defines ---------------------------------------------------------------------

    @abstractmethod
    def facts(self) -> dict[str, float | str]:
        """The state as values, for the decision record and for deciders that read it."""

    @abstractmethod
    def state(self) -> dict[str, str]:
        """The state in words, for a prompt."""

    @abstractmethod
    def outcome(self, env: BatchedEnv, result: Transition) -> dict[str, np.ndarray]:
        """What a step led to, (B,) or (B, questions) arrays: more columns of the decision record, and for `tell`."""

    @abstractmethod
    def tell(self, rollout: LookaheadRollout, candidate: int) -> tuple[str, str]:
        """What a prompt says of a candidate's rollout, and what it did to the state."""

    @abstractmethod
    def change(self, row: Mapping[str, float | str]) -> str:
        """What a real step did to the state, from its row of the record."""

    # Acting ------------------------------------------------------------------------------------

    def _batch(self, rows: int) -> BatchedEnv:
        return make_batch(self.params, self.domain, [self.task] * rows)

    def step(self, policy: str | Policy) -> dict[str, float | str]:
        """Let a policy of the menu, or any other, act for real; the environment's columns of the record."""
        if self.done:
            raise ValueError(f"this episode ended after {self.t} steps; begin another one")
        draw = seeds.uniform(self.draws, np.array([self.t]))
        if isinstance(policy, Policy):
            action = policy.act(self.observation, draw)
        else:
            action = self.menu.act([policy], self.observation[None], draw[None])[0]
        before = self.facts()
        result = self.env.advance(action)
        self.observation, self.t, self.done = result.observation, self.t + 1, bool(result.done[0])
        rewards = {f"reward_{i}": float(value) for i, value in enumerate(result.reward[0])}
        after = {name: _plain(values[0]) for name, values in self.outcome(self.env, result).items()}
        return {**before, "action": int(action[0]), **rewards, **after, "done": self.done}

    # Looking ahead -----------------------------------------------------------------------------

    def look(self, names: Sequence[str], steps: int, copies: int) -> list[Foresight]:
        """What each named policy would do in `steps` steps, on `copies` copies.

        All candidates meet the same numbers, so that they differ by what they do, not by luck.
        """
        env = self._copy
        env.restore(self.env.state(), rows=np.zeros(len(names) * copies, dtype=int))
        keys = seeds.keys("look-ahead", int(self.stream), self.t, n=copies)
        env.key = np.tile(keys, len(names))
        draws = seeds.uniform(seeds.next_key(keys ^ _DRAWS), np.arange(steps)[:, None])
        rollout = self._roll(env, names, steps, draws)
        return [self._foresight(rollout, i, name) for i, name in enumerate(names)]

    def _roll(
        self, env: BatchedEnv, names: Sequence[str], steps: int, draws: np.ndarray
    ) -> LookaheadRollout:
        """Advance all copies; draws: (T, C). A copy that has ended counts no further."""
        grid = (len(names), draws.shape[1])
        observation = np.repeat(self.observation, env.num_envs, axis=0)
        alive, log = np.ones(env.num_envs, dtype=bool), []
        for step in range(steps):
            seen = observation.reshape(*grid, *observation.shape[1:])
            action = self.menu.act(names, seen, np.tile(draws[step], (grid[0], 1))).ravel()
            result = env.advance(action, restart=False)  # what has ended counts no further
            log.append((alive, action, result.reward, self.outcome(env, result)))
            alive = alive & ~result.done
            observation = result.observation

        def stacked(parts) -> np.ndarray:
            together = np.stack(list(parts))
            return together.reshape(steps, *grid, *together.shape[2:])

        columns = [stacked(line[i] for line in log) for i in range(3)]
        return LookaheadRollout(
            *columns, {name: stacked(line[3][name] for line in log) for name in log[0][3]}
        )

    def _foresight(self, rollout: LookaheadRollout, i: int, name: str) -> Foresight:
        alive = rollout.alive[:, i]  # (T, C)
        rewards = (rollout.reward[:, i] * alive[..., None]).sum(axis=0)  # (C, 3)
        if self.per_step:
            rewards = rewards / alive.sum(axis=0)[:, None]
        own = rollout.action[:, i, 0][alive[:, 0]]
        actions = tuple(ACTIONS[self.domain][int(action)] for action in own)
        told, change = self.tell(rollout, i)
        return Foresight(
            name, len(alive), alive.shape[1], rewards.mean(axis=0), actions, told, change
        )


def _plain(value: np.ndarray) -> float | str:
    """A number, or the levels of a set as digits from 1 on."""
    return (
        float(value)
        if value.ndim == 0
        else "".join(str(level + 1) for level in value if level >= 0)
    )
