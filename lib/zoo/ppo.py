"""PPO for a stack of policies, and its multi-gradient variant.

Proximal policy optimisation as stable-baselines3 has it (its defaults, its order of operations; a
test compares the weights after the same updates), for K policies of one shape at once: they share
nothing but the calls into the library. `Arm` says what one policy is paid for; `PPO` collects with
a batched twin and updates; `MGDA` replaces the actor's gradient by the min-norm combination of one
gradient per objective. Saving and cards are elsewhere (`policies`, `cards`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib import seeds, store
from lib.envs.batch import BatchedEnv
from lib.params import PPOSettings
from lib.zoo.mgda import min_norm_weights
from lib.zoo.networks import Network, initial
from lib.zoo.objectives import Objective

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-5  # stable-baselines3's PPO


@dataclass(frozen=True)
class Arm:
    """One policy in training: its name, its random seed, what it is paid for, its settings.

    settings that decide array shapes (rollout, minibatch, epochs, num_envs, timesteps) must be equal
    in all arms of a stack; learning rates, coefficients and limits may differ.
    """

    name: str
    seed: int
    objective: Objective
    settings: PPOSettings


@dataclass
class Rollout:
    """What was collected, time first; N = T * E samples per arm after `flat`.

    inputs (K, T, E, ...), action, log_prob (K, T, E); value, reward (K, T, E, V);
    last_value (K, E, V); done (K, T, E): the episode ended with this step.
    """

    inputs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    reward: Tensor
    done: Tensor
    last_value: Tensor


class PPO:
    """Train the arms of a stack in one batched environment of K * E rows (row k * E + e)."""

    def __init__(self, arms: Sequence[Arm], network: Network, env: BatchedEnv, domain: str) -> None:
        self.arms, self.network, self.env, self.domain = list(arms), network, env, domain
        first = arms[0].settings
        shared = [(a.settings.rollout, a.settings.minibatch, a.settings.epochs) for a in arms]
        if len(set(shared)) > 1 or env.num_envs != len(arms) * first.num_envs:
            raise ValueError(f"arms of one stack need equal shapes and {first.num_envs} rows each, got {shared}")
        self.K, self.E, self.T = len(arms), first.num_envs, first.rollout // first.num_envs
        self.names = list(network.shapes)
        self.sizes = [int(np.prod(shape)) for shape in network.shapes.values()]
        start = [self._flat(initial(network, "zoo", domain, a.name, seed=a.seed)) for a in arms]
        self.theta = torch.from_numpy(np.stack(start))
        self.params = self._leaves()
        self.moment_1, self.moment_2 = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.adam_steps = torch.zeros(self.K, 1)
        column = {n: torch.tensor([[getattr(a.settings, n)] for a in arms]) for n in _PER_ARM}
        self.coefficient = column | {"target_kl": torch.tensor([[a.settings.target_kl or np.inf] for a in arms])}
        self.merges_equal = self.K == 1 and network.costly  # arms differ in which inputs are equal
        self.updates = 0
        env.seed_with(np.concatenate([seeds.keys("zoo", domain, a.name, seed=1000 * a.seed, n=self.E) for a in arms]))
        self.observation = env.reset()
        self.running = np.zeros((env.num_envs, env.reward_dim + 1))  # return so far and length
        self.episodes: list[tuple] = []  # (update, number of the arm, length, return per objective)

    # Parameters --------------------------------------------------------------------------------

    def _flat(self, params: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([params[name].ravel() for name in self.names]).astype(np.float32)

    def load(self, k: int, params: dict[str, np.ndarray]) -> None:
        """Give arm k these parameters."""
        with torch.no_grad():
            self.theta[k].copy_(torch.from_numpy(self._flat(params)))

    def _leaves(self) -> dict[str, Tensor]:
        """Parameters by name, (K, *shape): leaves of the graph that share their memory with `theta`."""
        parts = self.theta.split(self.sizes, dim=1)
        shapes = self.network.shapes.values()
        named = zip(self.names, parts, shapes, strict=True)
        return {name: part.view(self.K, *shape).detach().requires_grad_() for name, part, shape in named}

    def _slopes(self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], keep: bool = False) -> Tensor:
        """d(outputs) / d(theta) along `slopes`, flat, (K, P); keep: the graph is needed again."""
        leaves = list(self.params.values())
        parts = torch.autograd.grad(outputs, leaves, slopes, retain_graph=keep, materialize_grads=True)
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    def parameters(self, k: int) -> dict[str, np.ndarray]:
        """Copies of arm k's parameters."""
        return {name: value[k].detach().numpy().copy() for name, value in self.params.items()}

    # Collecting --------------------------------------------------------------------------------

    @torch.no_grad()
    def collect(self) -> Rollout:
        """T steps of every row; actions are drawn by inverse distribution from named streams."""
        draws = np.stack([self._rng(a, "actions").random((self.T, self.E)) for a in self.arms])
        params = self.params
        kept: list[list] = [[] for _ in range(6)]
        for t in range(self.T):
            inputs = self.network.prepare(self._per_arm(self.observation))
            logits, value = self.network.forward(params, inputs)
            log_probs = logits.log_softmax(-1)
            action = sample(log_probs, torch.from_numpy(draws[:, t]))
            log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
            before = self.observation
            step = self.env.advance(action.numpy().ravel())
            reward = self._scalar(step.reward, before) + self._beyond_the_horizon(params, step)
            self._book(step)
            self.observation = step.observation
            done = torch.from_numpy(self._per_arm(step.done).copy())
            for store_, item in zip(kept, (inputs, action, log_prob, value, reward, done), strict=True):
                store_.append(item)
        last = self.network.forward(params, self.network.prepare(self._per_arm(self.observation)))[1]
        return Rollout(*(torch.stack(items, dim=1) for items in kept), last_value=last)

    def _per_arm(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(self.K, self.E, *rows.shape[1:])

    def _rng(self, arm: Arm, *what: str) -> np.random.Generator:
        # a stream of its own for every update: resuming needs no generator state
        return seeds.rng("zoo", self.domain, arm.name, *what, self.updates, seed=arm.seed)

    def _scalar(self, reward: np.ndarray, observation: np.ndarray) -> Tensor:
        """What each arm is paid for the vector rewards (K*E, k): (K, E, V)."""
        reward, observation = self._per_arm(reward), self._per_arm(observation)
        paid = [a.objective(reward[k], observation[k]) for k, a in enumerate(self.arms)]
        return torch.from_numpy(np.stack(paid).astype(np.float32).reshape(self.K, self.E, -1))

    def _beyond_the_horizon(self, params: dict[str, Tensor], step) -> Tensor | float:
        """gamma V(last state) where the time limit cut an episode off (Pardo et al. 2018)."""
        cut = step.truncated & ~step.terminated
        if not cut.any():
            return 0.0
        value = self.network.forward(params, self.network.prepare(self._per_arm(step.final_observation)))[1]
        mask = torch.from_numpy(self._per_arm(cut).copy()).unsqueeze(-1)
        return self.coefficient["gamma"].unsqueeze(-1) * value * mask

    def _book(self, step) -> None:
        self.running[:, :-1] += step.reward
        self.running[:, -1] += 1
        for row in np.flatnonzero(step.done):
            *returns, length = self.running[row]
            self.episodes.append((self.updates, row // self.E, length, *returns))
            self.running[row] = 0

    # Learning ----------------------------------------------------------------------------------

    def advantages(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Generalised advantage estimates (Schulman et al. 2016) and returns, (K, T, E, V)."""
        gamma, lam = (self.coefficient[n].unsqueeze(-1) for n in ("gamma", "gae_lambda"))
        alive = (~rollout.done).float().unsqueeze(-1)
        advantage = torch.zeros_like(rollout.value)
        running, following = torch.zeros_like(rollout.last_value), rollout.last_value
        for t in reversed(range(self.T)):
            delta = rollout.reward[:, t] + gamma * following * alive[:, t] - rollout.value[:, t]
            running = delta + gamma * lam * alive[:, t] * running
            advantage[:, t], following = running, rollout.value[:, t]
        return advantage, advantage + rollout.value

    def learn(self, rollout: Rollout) -> None:
        """Epochs of minibatch updates over one rollout."""
        advantage, returns = self.advantages(rollout)
        samples = {
            "inputs": rollout.inputs, "action": rollout.action, "log_prob": rollout.log_prob,
            "advantage": advantage, "returns": returns,
        }  # fmt: skip
        # rows in stable-baselines3's order: all steps of environment 0, then of environment 1, ...
        samples = {name: x.transpose(1, 2).flatten(1, 2) for name, x in samples.items()}
        if self.merges_equal:
            samples["same"] = self._equal_inputs(samples["inputs"])
        settings, total = self.arms[0].settings, self.T * self.E
        learning = torch.ones(self.K, 1, dtype=torch.bool)
        orders = [self._rng(a, "minibatches") for a in self.arms]
        arm = torch.arange(self.K).unsqueeze(1)
        for _ in range(settings.epochs):
            order = torch.from_numpy(np.stack([rng.permutation(total) for rng in orders]))
            for start in range(0, total, settings.minibatch):
                index = order[:, start : start + settings.minibatch]
                learning = self._minibatch({n: x[arm, index] for n, x in samples.items()}, learning)
                if not learning.any():
                    return

    def _equal_inputs(self, inputs: Tensor) -> Tensor:
        """For each sample the number of its input among the distinct ones, (1, N)."""
        rows = inputs[0].flatten(1).numpy()
        packed = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
        return torch.from_numpy(np.unique(packed, return_inverse=True)[1].reshape(1, -1))

    def _forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits and values of a minibatch. A room has few views, so a minibatch holds many equal ones:
        each is computed once and its gradients add up, which is the same sum with less work."""
        if not self.merges_equal:
            return self.network.forward(self.params, batch["inputs"])
        distinct, place = torch.unique(batch["same"][0], return_inverse=True)
        first = torch.empty_like(distinct).scatter_(0, place, torch.arange(len(place)))
        logits, value = self.network.forward(self.params, batch["inputs"][:, first])
        return logits[:, place], value[:, place]

    def _minibatch(self, batch: dict[str, Tensor], learning: Tensor) -> Tensor:
        """One step of the arms still `learning` (K, 1); returns which of them go on."""
        logits, value = self._forward(batch)
        with torch.no_grad():
            log_probs = logits.log_softmax(-1)
            log_ratio = log_probs.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1) - batch["log_prob"]
            divergence = (log_ratio.exp() - 1 - log_ratio).mean(1, keepdim=True)  # Schulman's k3 estimate
            learning = learning & (divergence <= 1.5 * self.coefficient["target_kl"])
            if not learning.any():
                return learning
            chosen = torch.nn.functional.one_hot(batch["action"], logits.shape[-1])
            direction = (chosen - log_probs.exp()) * log_ratio.exp().unsqueeze(-1)  # d(ratio) / d(logits)
            slopes = [
                self._surrogate_slope(log_ratio.exp(), batch["advantage"][..., i]).unsqueeze(-1) * direction
                for i in range(value.shape[-1])
            ]
            rest = (self._entropy_slope(log_probs), self._value_slope(value, batch["returns"]))
        gradient = self._gradient(logits, value, slopes, rest)
        self._adam(clip_norm(gradient, self.coefficient["max_grad_norm"]), learning)
        return learning

    # The loss's slopes are written out: they are short, and the graph then holds the network alone.

    def _surrogate_slope(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """d(-L_CLIP) / d(ratio), (K, M): -A / M where the clipped surrogate (equation 1) is not flat.

        It is flat where the ratio has left [1 - eps, 1 + eps] in the direction of the advantage A, which
        is normalised within the minibatch.
        """
        advantage = (advantage - advantage.mean(1, keepdim=True)) / (advantage.std(1, keepdim=True) + 1e-8)
        limit = self.coefficient["clip"]
        flat = torch.where(advantage > 0, ratio > 1 + limit, ratio < 1 - limit)
        return -advantage * ~flat / ratio.shape[1]

    def _entropy_slope(self, log_probs: Tensor) -> Tensor:
        """d(-c H) / d(logits) = c p (log p + H) / M, with entropy H = -sum p log p, (K, M, A)."""
        weighted = log_probs.exp() * log_probs
        entropy = -weighted.sum(-1, keepdim=True)
        slope = weighted + log_probs.exp() * entropy
        return self.coefficient["entropy"].unsqueeze(-1) * slope / log_probs.shape[1]

    def _value_slope(self, value: Tensor, returns: Tensor) -> Tensor:
        """d(c (V - R)^2) / d(V) = 2 c (V - R) / M, (K, M, V)."""
        return 2 * self.coefficient["value"].unsqueeze(-1) * (value - returns) / value.shape[1]

    def _gradient(self, logits: Tensor, value: Tensor, slopes: list[Tensor], rest: tuple[Tensor, Tensor]) -> Tensor:
        """d(loss) / d(theta), (K, P), from the loss's slopes in logits (one per objective) and values.

        Arms share no parameter, so one backward pass serves all.
        """
        entropy, critic = rest
        return self._slopes((logits, value), (slopes[0] + entropy, critic))

    @torch.no_grad()
    def _adam(self, gradient: Tensor, learning: Tensor) -> None:
        """Adam (Kingma and Ba 2015) on the arms that are `learning`; the others stay as they are."""
        (b1, b2), rows = ADAM_BETAS, learning.squeeze(1)
        whole = (self.theta, self.moment_1, self.moment_2, self.adam_steps, self.coefficient["learning_rate"])
        if rows.all():
            theta, m, v, steps, rate = whole
        else:  # copies of the learning arms, put back below
            theta, m, v, steps, rate = (tensor[rows] for tensor in whole)
            gradient = gradient[rows]
        steps += 1
        m.lerp_(gradient, 1 - b1)
        v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        deviation = (v / (1 - b2**steps)).clamp_(min=1e-30).sqrt_().add_(ADAM_EPS)  # the root of 0 is slow
        theta -= (rate / (1 - b1**steps)) * m / deviation
        if not rows.all():
            for tensor, part in zip(whole, (theta, m, v, steps), strict=False):
                tensor[rows] = part

    # Running -----------------------------------------------------------------------------------

    def train(self, checkpoint: Path | None = None, progress=lambda fraction: None, every: float = 20.0) -> None:
        """Updates until `timesteps` are spent; with `checkpoint`, resumes from it and keeps it fresh."""
        if checkpoint is not None and checkpoint.exists():
            self.resume(checkpoint)
        total = -(-self.arms[0].settings.timesteps // (self.T * self.E))
        saved = time.monotonic()
        while self.updates < total:
            self.learn(self.collect())
            self.updates += 1
            progress(self.updates / total)
            if checkpoint is not None and time.monotonic() - saved > every:
                self.save(checkpoint)
                saved = time.monotonic()

    def curve(self) -> pd.DataFrame:
        """Finished training episodes: arm, seed, steps (per arm, at the update), length, returns by objective."""
        returns = [f"return_{i}" for i in range(self.env.reward_dim)]
        frame = pd.DataFrame(self.episodes, columns=["update", "arm", "length", *returns])
        seeds_of = frame["arm"].map({k: arm.seed for k, arm in enumerate(self.arms)})
        names = frame["arm"].map({k: arm.name for k, arm in enumerate(self.arms)})
        return frame.assign(arm=names, seed=seeds_of, steps=(frame["update"] + 1) * self.T * self.E)

    def save(self, path: Path) -> None:
        """Everything that decides the rest of the training, as safetensors."""
        episodes = np.array(self.episodes, dtype=np.float64)
        arrays = {
            "theta": self.theta.detach().numpy(), "moment_1": self.moment_1.numpy(),
            "moment_2": self.moment_2.numpy(), "adam_steps": self.adam_steps.numpy(),
            "updates": np.array([self.updates]), "observation": self.observation,
            "running": self.running, "episodes": episodes.reshape(len(self.episodes), -1),
        }  # fmt: skip
        state = {f"env.{name}": array for name, array in self.env.state().items()}
        store.write_tensors(path, arrays | state)

    def resume(self, path: Path) -> None:
        """Take over a checkpoint written by `save`."""
        arrays = store.read_tensors(path)
        with torch.no_grad():
            self.theta.copy_(torch.from_numpy(arrays["theta"]))
        for name in ("moment_1", "moment_2", "adam_steps"):
            setattr(self, name, torch.from_numpy(arrays[name].copy()))
        self.updates = int(arrays["updates"][0])
        self.observation, self.running = arrays["observation"].copy(), arrays["running"].copy()
        self.episodes = [(int(e[0]), int(e[1]), *e[2:]) for e in arrays["episodes"]]
        prefix = "env."
        self.env.restore({n[len(prefix) :]: a for n, a in arrays.items() if n.startswith(prefix)})


class MGDA(PPO):
    """Multi-objective PPO: one critic head, one advantage and one actor gradient per objective."""

    def _gradient(self, logits: Tensor, value: Tensor, slopes: list[Tensor], rest: tuple[Tensor, Tensor]) -> Tensor:
        """The min-norm convex combination of the objectives' gradients (equation 3), plus the rest.

        Critic and entropy have no part in the combination: weighting them would change how well each
        objective is *estimated*, not how the objectives are traded off.
        """
        each = [self._slopes((logits,), (slope,), keep=True) for slope in slopes]
        stacked = torch.stack(each, dim=1).double()  # (K, k, P)
        alpha = [min_norm_weights(gram) for gram in (stacked @ stacked.transpose(1, 2)).numpy()]
        combined = (torch.from_numpy(np.stack(alpha)).unsqueeze(-1) * stacked).sum(1).float()
        return combined + self._slopes((logits, value), rest)


_PER_ARM = ("gamma", "gae_lambda", "clip", "learning_rate", "entropy", "value", "max_grad_norm")


def sample(log_probs: Tensor, draws: Tensor) -> Tensor:
    """The action whose interval of the cumulative distribution holds the draw.

    log_probs (..., A); draws (...) in [0, 1). Returns (...) int64.
    """
    cumulative = log_probs.double().exp().cumsum(-1)
    return (draws.unsqueeze(-1) >= cumulative).sum(-1).clamp(max=log_probs.shape[-1] - 1)


def clip_norm(gradient: Tensor, limit: Tensor) -> Tensor:
    """Scale each row of (K, P) down to the norm `limit` (K, 1), as torch's clip_grad_norm_ does."""
    norm = gradient.norm(dim=1, keepdim=True)
    return gradient * (limit / (norm + 1e-6)).clamp(max=1.0)
