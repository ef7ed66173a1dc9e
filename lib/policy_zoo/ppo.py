"""PPO for a stack of policies, and its multi-gradient variant.

Proximal policy optimisation as stable-baselines3 has it (its defaults, its order of operations; a
test compares the weights after the same updates), for K policies of one shape at once: they share
nothing but the calls into the library. `Arm` says what one policy is paid for; `PPO` collects with
a batched twin and updates; `MGDA` replaces the actor's gradient by the min-norm combination of one
gradient per objective. `loss` is what both descend, to be read; `slopes` are its derivatives, to be
followed. Saving and cards are elsewhere (`policies`, `cards`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.config import PPOSettings
from lib.envs.batched_env import BatchedEnv
from lib.experiment import artifacts, seeds
from lib.policy_zoo.mgda import min_norm_weights
from lib.policy_zoo.networks import Network, initial, sample
from lib.policy_zoo.objectives import Objective
from lib.rl import losses

VERSION = 1  # of stacked PPO trainings
Batch = dict[str, Tensor]  # what is known of a minibatch, or of the variants, by name

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-5  # stable-baselines3's PPO


@dataclass(frozen=True)
class PPOVariant:
    """One policy in training: its name, its random seed, what it is paid for, its settings.

    settings that decide array shapes (rollout, minibatch, epochs, num_envs, timesteps) must be equal
    in all variants of a stack; learning rates, coefficients and limits may differ.
    """

    name: str
    seed: int
    objective: Objective
    settings: PPOSettings


@dataclass
class PPORollout:
    """What was collected, time first; N = T * E samples per variant after `flat`.

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
    """Train the variants of a stack in one batched environment of K * E rows (row k * E + e)."""

    def __init__(
        self, arms: Sequence[PPOVariant], network: Network, env: BatchedEnv, domain: str
    ) -> None:
        self.arms, self.network, self.env, self.domain = list(arms), network, env, domain
        first = arms[0].settings
        shared = [(a.settings.rollout, a.settings.minibatch, a.settings.epochs) for a in arms]
        if len(set(shared)) > 1 or env.num_envs != len(arms) * first.num_envs:
            raise ValueError(
                f"variants of one stack need equal shapes and {first.num_envs} rows each, got {shared}"
            )
        self.K, self.E, self.T = len(arms), first.num_envs, first.rollout // first.num_envs
        self.names = list(network.shapes)
        self.sizes = [int(np.prod(shape)) for shape in network.shapes.values()]
        start = [initial(network, "zoo", domain, a.name, seed=a.seed) for a in arms]
        flat = [np.concatenate([params[name].ravel() for name in self.names]) for params in start]
        self.theta = torch.from_numpy(np.stack(flat).astype(np.float32))
        self.params = self._leaves()
        self.moment_1, self.moment_2 = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.adam_steps = torch.zeros(self.K, 1)
        column = {n: torch.tensor([[getattr(a.settings, n)] for a in arms]) for n in _PER_ARM}
        self.coefficient = column | {
            "target_kl": torch.tensor([[a.settings.target_kl or np.inf] for a in arms])
        }
        self.merges_equal = (
            self.K == 1 and network.costly
        )  # variants differ in which inputs are equal
        self.updates = 0
        env.seed_with(np.concatenate([streams(domain, a.name, a.seed, self.E) for a in arms]))
        self.observation = env.reset()
        self.running = np.zeros((env.num_envs, env.reward_dim + 1))  # return so far and length
        self.episodes: list[
            tuple
        ] = []  # (update, number of the variant, length, return per objective)

    # Parameters --------------------------------------------------------------------------------

    def _leaves(self) -> dict[str, Tensor]:
        """Parameters by name, (K, *shape): leaves of the graph that share their memory with `theta`."""
        parts = self.theta.split(self.sizes, dim=1)
        shapes = self.network.shapes.values()
        named = zip(self.names, parts, shapes, strict=True)
        return {
            name: part.view(self.K, *shape).detach().requires_grad_() for name, part, shape in named
        }

    def _slopes(
        self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], keep: bool = False
    ) -> Tensor:
        """d(outputs) / d(theta) along `slopes`, flat, (K, P); keep: the graph is needed again."""
        leaves = list(self.params.values())
        parts = torch.autograd.grad(
            outputs, leaves, slopes, retain_graph=keep, materialize_grads=True
        )
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    def parameters(self, k: int) -> dict[str, np.ndarray]:
        """Copies of variant k's parameters."""
        return {name: value[k].detach().numpy().copy() for name, value in self.params.items()}

    # Collecting --------------------------------------------------------------------------------

    @torch.no_grad()
    def collect(self) -> PPORollout:
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
            for row, told in booked(self.running, step.reward, step.done):
                self.episodes.append((self.updates, row // self.E, *told))
            self.observation = step.observation
            done = torch.from_numpy(self._per_arm(step.done).copy())
            for store_, item in zip(
                kept, (inputs, action, log_prob, value, reward, done), strict=True
            ):
                store_.append(item)
        last = self.network.forward(params, self.network.prepare(self._per_arm(self.observation)))[
            1
        ]
        return PPORollout(*(torch.stack(items, dim=1) for items in kept), last_value=last)

    def _per_arm(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(self.K, self.E, *rows.shape[1:])

    def _rng(self, variant: PPOVariant, *what: str) -> np.random.Generator:
        return stream(self.domain, variant.name, variant.seed, *what, self.updates)

    def _scalar(self, reward: np.ndarray, observation: np.ndarray) -> Tensor:
        """What each variant is paid for the vector rewards (K*E, k): (K, E, V)."""
        reward, observation = self._per_arm(reward), self._per_arm(observation)
        paid = [a.objective(reward[k], observation[k]) for k, a in enumerate(self.arms)]
        return torch.from_numpy(np.stack(paid).astype(np.float32).reshape(self.K, self.E, -1))

    def _beyond_the_horizon(self, params: dict[str, Tensor], step) -> Tensor | float:
        """gamma V(last state) where the time limit cut an episode off (Pardo et al. 2018)."""
        cut = step.truncated & ~step.terminated
        if not cut.any():
            return 0.0
        value = self.network.forward(
            params, self.network.prepare(self._per_arm(step.final_observation))
        )[1]
        mask = torch.from_numpy(self._per_arm(cut).copy()).unsqueeze(-1)
        return self.coefficient["gamma"].unsqueeze(-1) * value * mask

    # Learning ----------------------------------------------------------------------------------

    def advantages(self, rollout: PPORollout) -> tuple[Tensor, Tensor]:
        """Advantages and returns of what was collected, (K, T, E, V) each."""
        gamma, lam = (self.coefficient[n].unsqueeze(-1) for n in ("gamma", "gae_lambda"))
        continues = (~rollout.done).float().unsqueeze(-1)
        return losses.compute_gae(
            rollout.reward, rollout.value, continues, rollout.last_value, gamma, lam
        )

    def learn(self, rollout: PPORollout) -> None:
        """Epochs of minibatch updates over one rollout."""
        advantage, returns = self.advantages(rollout)
        samples = {
            "inputs": rollout.inputs,
            "action": rollout.action,
            "log_prob": rollout.log_prob,
            "advantage": advantage,
            "returns": returns,
        }
        # rows in stable-baselines3's order: all steps of environment 0, then of environment 1, ...
        samples = {name: x.transpose(1, 2).flatten(1, 2) for name, x in samples.items()}
        if self.merges_equal:
            samples["same"] = self._equal_inputs(samples["inputs"])
        settings, total = self.arms[0].settings, self.T * self.E
        learning = torch.ones(self.K, 1, dtype=torch.bool)
        orders = [self._rng(a, "minibatches") for a in self.arms]
        variant = torch.arange(self.K).unsqueeze(1)
        for _ in range(settings.epochs):
            order = torch.from_numpy(np.stack([rng.permutation(total) for rng in orders]))
            for start in range(0, total, settings.minibatch):
                index = order[:, start : start + settings.minibatch]
                learning = self._minibatch(
                    {n: x[variant, index] for n, x in samples.items()}, learning
                )
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
        """One step of the variants still `learning` (K, 1); returns which of them go on."""
        logits, value = self._forward(batch)
        with torch.no_grad():
            log_probs = logits.log_softmax(-1)
            log_ratio = (
                log_probs.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1) - batch["log_prob"]
            )
            divergence = (log_ratio.exp() - 1 - log_ratio).mean(
                1, keepdim=True
            )  # Schulman's k3 estimate
            learning = learning & (divergence <= 1.5 * self.coefficient["target_kl"])
        if learning.any():
            gradient = self._gradient(logits, value, batch)
            self._adam(clip_norm(gradient, self.coefficient["max_grad_norm"]), learning)
        return learning

    def _gradient(self, logits: Tensor, value: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """d(loss) / d(theta), (K, P). Variants share no parameter, so one backward pass serves all."""
        (actor,), rest, critic = slopes(logits.detach(), value.detach(), batch, self.coefficient)
        return self._slopes((logits, value), (actor + rest, critic))

    @torch.no_grad()
    def _adam(self, gradient: Tensor, learning: Tensor) -> None:
        """Adam (Kingma and Ba 2015) on the variants that are `learning`; the others stay as they are. One state for all
        variants, for which torch's plain Adam takes longer and its fused one as long (a benchmark)."""
        (b1, b2), rows = ADAM_BETAS, learning.squeeze(1)
        whole = (
            self.theta,
            self.moment_1,
            self.moment_2,
            self.adam_steps,
            self.coefficient["learning_rate"],
        )
        if rows.all():
            theta, m, v, steps, rate = whole
        else:  # copies of the learning variants, put back below
            theta, m, v, steps, rate = (tensor[rows] for tensor in whole)
            gradient = gradient[rows]
        steps += 1
        m.lerp_(gradient, 1 - b1)
        v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        deviation = (
            (v / (1 - b2**steps)).clamp_(min=1e-30).sqrt_().add_(ADAM_EPS)
        )  # the root of 0 is slow
        theta -= (rate / (1 - b1**steps)) * m / deviation
        if not rows.all():
            for tensor, part in zip(whole, (theta, m, v, steps), strict=False):
                tensor[rows] = part

    # Running -----------------------------------------------------------------------------------

    def train(
        self, checkpoint: Path | None = None, progress=lambda fraction: None, every: float = 20.0
    ) -> None:
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
        """Finished training episodes, as `curve` tells them."""
        arms = [(variant.name, variant.seed) for variant in self.arms]
        return curve(self.episodes, arms, self.T * self.E, self.env.reward_dim)

    def save(self, path: Path) -> None:
        """Everything that decides the rest of the training, as safetensors."""
        episodes = np.array(self.episodes, dtype=np.float64)
        arrays = {
            "theta": self.theta.detach().numpy(),
            "moment_1": self.moment_1.numpy(),
            "moment_2": self.moment_2.numpy(),
            "adam_steps": self.adam_steps.numpy(),
            "updates": np.array([self.updates]),
            "observation": self.observation,
            "running": self.running,
            "episodes": episodes.reshape(len(self.episodes), -1),
        }
        state = {f"env.{name}": array for name, array in self.env.state().items()}
        artifacts.write_tensors(path, arrays | state)

    def resume(self, path: Path) -> None:
        """Take over a checkpoint written by `save`."""
        arrays = artifacts.read_tensors(path)
        with torch.no_grad():
            self.theta.copy_(torch.from_numpy(arrays["theta"]))
        for name in ("moment_1", "moment_2", "adam_steps"):
            setattr(self, name, torch.from_numpy(arrays[name].copy()))
        self.updates = int(arrays["updates"][0])
        self.observation, self.running = arrays["observation"].copy(), arrays["running"].copy()
        self.episodes = [(int(e[0]), int(e[1]), *e[2:]) for e in arrays["episodes"]]
        self.env.restore(
            {n.removeprefix("env."): a for n, a in arrays.items() if n.startswith("env.")}
        )


class MGDA(PPO):
    """Multi-objective PPO: one critic head, one advantage and one actor gradient per objective."""

    def _gradient(self, logits: Tensor, value: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """The min-norm convex combination of the objectives' gradients (equation 3), plus the rest.

        Critic and entropy have no part in the combination: weighting them would change how well each
        objective is *estimated*, not how the objectives are traded off.
        """
        actors, entropy, critic = slopes(logits.detach(), value.detach(), batch, self.coefficient)
        each = [self._slopes((logits,), (actor,), keep=True) for actor in actors]
        stacked = torch.stack(each, dim=1).double()  # (K, k, P)
        alpha = [min_norm_weights(gram) for gram in (stacked @ stacked.transpose(1, 2)).numpy()]
        combined = (torch.from_numpy(np.stack(alpha)).unsqueeze(-1) * stacked).sum(1).float()
        return combined + self._slopes((logits, value), (entropy, critic))


def loss(
    logits: Tensor, value: Tensor, batch: Batch, coefficient: Batch, alpha: Tensor | float = 1.0
) -> Tensor:
    """What an update descends, (K,): stable-baselines3's loss, with k clipped objectives (equation 1) in the place of
    one where there are several.

        L = sum_i alpha_i L_i + c_v sum_i mean (V_i - R_i)^2 - c_e H,   L_i = -mean min(r A_i, clip(r) A_i)

    logits: (K, M, A); value: (K, M, V); batch: action, log_prob (K, M), advantage, returns (K, M, V); coefficient:
    (K, 1) each; alpha: (K, V), the weights of the objectives (MGDA's min-norm ones).
    """
    log_probs = logits.log_softmax(-1)
    new = log_probs.gather(-1, batch["action"].unsqueeze(-1))  # log pi(a | s), (K, M, 1)
    advantage = losses.whiten(batch["advantage"], dim=1, correction=1)  # within the minibatch
    objective = losses.compute_clipped_objective(
        new, batch["log_prob"].unsqueeze(-1), advantage, coefficient["clip"].unsqueeze(-1)
    )
    actor = -(alpha * objective.mean(1)).sum(-1)  # sum_i alpha_i L_i
    critic = (value - batch["returns"]).square().mean(1).sum(-1)  # sum_i mean (V_i - R_i)^2
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean(1)  # H
    return (
        actor
        + coefficient["value"].squeeze(-1) * critic
        - coefficient["entropy"].squeeze(-1) * entropy
    )


def slopes(
    logits: Tensor, value: Tensor, batch: Batch, coefficient: Batch
) -> tuple[list[Tensor], Tensor, Tensor]:
    """The derivatives of `loss`, written out: d(L_i) / d(logits) for each objective, d(-c_e H) / d(logits), (K, M, A)
    each, and d(critic) / d(value), (K, M, V).

    They are short, and the graph then holds the network alone, which a benchmark shows to be worth it.
    """
    log_probs, chosen = logits.log_softmax(-1), batch["action"].unsqueeze(-1)
    ratio = (log_probs.gather(-1, chosen).squeeze(-1) - batch["log_prob"]).exp()
    onehot = torch.nn.functional.one_hot(batch["action"], logits.shape[-1])
    direction = (onehot - log_probs.exp()) * ratio.unsqueeze(-1)  # d(r) / d(logits)
    advantage, limit, count = (
        losses.whiten(batch["advantage"], dim=1, correction=1),
        coefficient["clip"],
        ratio.shape[1],
    )
    actors = []
    for each in advantage.unbind(-1):
        flat = torch.where(each > 0, ratio > 1 + limit, ratio < 1 - limit)
        actors.append(
            (-each * ~flat / count).unsqueeze(-1) * direction
        )  # d(L_i) / d(r) = -A / M, or 0
    weighted = log_probs.exp() * log_probs
    inside = -weighted.sum(-1, keepdim=True)  # H of each decision
    entropy = (
        coefficient["entropy"].unsqueeze(-1) * (weighted + log_probs.exp() * inside) / count
    )  # c p (log p + H) / M
    critic = (
        2 * coefficient["value"].unsqueeze(-1) * (value - batch["returns"]) / count
    )  # 2 c (V - R) / M
    return actors, entropy, critic


_PER_ARM = ("gamma", "gae_lambda", "clip", "learning_rate", "entropy", "value", "max_grad_norm")


def stream(domain: str, name: str, seed: int, *what: str | int) -> np.random.Generator:
    """Random numbers of a policy's training; each update has its own, so that going on needs no generator's state."""
    return seeds.rng("zoo", domain, name, *what, seed=seed)


def streams(domain: str, name: str, seed: int, rows: int) -> np.ndarray:
    """Random streams of the rows that a policy is trained in, (rows,) uint64."""
    return seeds.keys("zoo", domain, name, seed=1000 * seed, n=rows)


def booked(
    running: np.ndarray, reward: np.ndarray, done: np.ndarray
) -> list[tuple[int, tuple[float, ...]]]:
    """Adds a step to `running`, returns so far and length, (B, k + 1); of every episode that ended its row, and
    (length, return per objective)."""
    running[:, :-1] += reward
    running[:, -1] += 1
    ended = [(int(row), (running[row, -1], *running[row, :-1])) for row in np.flatnonzero(done)]
    running[done] = 0
    return ended


def curve(
    episodes: Sequence[tuple], arms: Sequence[tuple[str, int]], samples: int, k: int
) -> pd.DataFrame:
    """Finished training episodes: update, variant, length, return_0 and on by objective, seed, steps (per variant, at
    the update's end).

    episodes: (update, number of the variant, length, return per objective); variants: name and seed; samples:
    of an update; k: objectives.
    """
    returns = [f"return_{i}" for i in range(k)]
    frame = pd.DataFrame(list(episodes), columns=["update", "method", "length", *returns])
    names, runs = (dict(enumerate(column)) for column in zip(*arms, strict=True))
    seed = frame["method"].map(runs)
    return frame.assign(
        method=frame["method"].map(names), seed=seed, steps=(frame["update"] + 1) * samples
    )


def clip_norm(gradient: Tensor, limit: Tensor) -> Tensor:
    """Scale each row of (K, P) down to the norm `limit` (K, 1), as torch's clip_grad_norm_ does."""
    norm = gradient.norm(dim=1, keepdim=True)
    return gradient * (limit / (norm + 1e-6)).clamp(max=1.0)
