"""A policy of ARC, or one of its flat rivals, on its way: questions in, configurations out, rewards back.

`ConfigurationPolicy` is what chooses; `ConfigurationTraining` plays batches of questions on the agent system and
learns from their rewards; `refine` and `prefer_better` are the two refinements, SFT on the elite and DPO on pairs, both
from the buffer alone, without another call to an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from lib.agent_configuration import action_space, policies, policy_updates
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredQuestion, System, table
from lib.agent_configuration.atoms import Atom, roles
from lib.agent_configuration.policies import Parts, PromptPolicy, Steps
from lib.agent_configuration.policy_updates import EpisodeBatch, Rules, Side
from lib.agent_configuration.rewards import Weights
from lib.experiment import seeds
from lib.tasks import Item

VERSION = 1  # of trained and refined policies
KINDS = ("hierarchy", "bandit", "episodes")  # of policies


@dataclass
class ConfigurationDecisions:
    """What a policy chose for a batch: configurations, and what is needed to learn from them."""

    configurations: list[Configuration]
    structures: torch.Tensor
    logp: torch.Tensor
    steps: Steps | None


class ConfigurationPolicy:
    """What chooses a configuration from a state. kind: of `KINDS`; masked: whether the hierarchy masks."""

    def __init__(
        self, kind: str, inputs: int, atoms: Sequence[Atom], masked: bool = True, seed: int = 0
    ) -> None:
        self.kind, self.inputs, self.atoms, self.masked = kind, inputs, list(atoms), masked
        with torch.random.fork_rng():
            torch.manual_seed(int(seeds.key("configuration", "weights", seed=seed) >> 1))
            if kind == "hierarchy":
                self.structure: Parts = policies.structure_policy(inputs, masked)
                self.prompt: PromptPolicy | None = PromptPolicy(inputs, roles(atoms))
            else:
                flat = {"bandit": policies.bandit, "episodes": policies.stepwise}[kind]
                self.structure, self.prompt = flat(inputs, len(atoms)), None

    @torch.no_grad()
    def decide(
        self, states: torch.Tensor, generator: torch.Generator | None = None
    ) -> ConfigurationDecisions:
        """Configurations for states, (n, inputs); without a generator the likeliest."""
        drawn = self.structure.draw(states, generator)
        if self.prompt is None:
            return ConfigurationDecisions(
                [self._flat(row) for row in drawn.actions.tolist()], drawn.actions, drawn.logp, None
            )
        chosen, steps = self.prompt.draw(states, drawn.actions, generator)
        names = [atom.name for atom in self.atoms]
        made = [
            Configuration(
                action_space.repaired(row), tuple(tuple(names[i] for i in agent) for agent in told)
            )
            for row, told in zip(drawn.actions.tolist(), chosen, strict=True)
        ]
        return ConfigurationDecisions(made, drawn.actions, drawn.logp, steps)

    def _flat(self, row: Sequence[int]) -> Configuration:
        """What a flat action means: pinned parts are 0, atoms of other roles and repeated ones are ignored."""
        told = []
        for agent, role in enumerate(action_space.AGENTS):
            picked = row[len(action_space.SIZES) + agent * action_space.MAX_ATOMS :][
                : action_space.MAX_ATOMS
            ]
            named = [self.atoms[i - 1] for i in picked if i]
            present = agent in action_space.agents(action_space.WORKFLOWS[row[0]])
            told.append(
                tuple(dict.fromkeys(atom.name for atom in named if atom.role == role and present))
            )
        return Configuration(action_space.repaired(row[: len(action_space.SIZES)]), tuple(told))

    def modules(self) -> dict[str, torch.nn.Module]:
        return {"structure": self.structure} | (
            {"prompt": self.prompt} if self.prompt is not None else {}
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights, for safetensors."""
        return {
            f"{side}.{name}": value.detach().numpy()
            for side, module in self.modules().items()
            for name, value in module.state_dict().items()
        }

    def take(self, arrays: Mapping[str, np.ndarray]) -> ConfigurationPolicy:
        """Weights from `arrays`. Raises KeyError or RuntimeError for those of another policy."""
        for side, module in self.modules().items():
            own = {
                k.removeprefix(f"{side}."): torch.from_numpy(v.copy())
                for k, v in arrays.items()
                if k.startswith(side)
            }
            module.load_state_dict(own)
        return self


@dataclass(frozen=True)
class TrainingPlan:
    """How a policy is trained. episodes: in all; batch: of an update; group: episodes per question (more than 1 only
    for group-relative advantages); draws: how many different tries of a question there are, for dice that fall
    differently; rates: of structure and prompt policy."""

    episodes: int
    batch: int
    rates: tuple[float, float]
    rules: Rules
    weights: Weights
    group: int = 1
    draws: int = 4

    @property
    def updates(self) -> int:
        return max(1, self.episodes // self.batch)


@dataclass
class ConfigurationTraining:
    """A policy with its optimisers, its buffer and the questions that it learns from.

    states: (items, d), one row per item; played: rows of updates that were played before this training was killed.
    `step` is the number of updates done; `buffer` holds every batch with its correctness, which the refinements read;
    `rows` what was played. A training that goes on decides and learns again, which takes moments, and is paid what
    stands in `played`: no agent is asked twice.
    """

    policy: ConfigurationPolicy
    system: System
    items: Sequence[Item]
    states: np.ndarray
    plan: TrainingPlan
    seed: int
    played: pd.DataFrame | None = None
    step: int = 0
    buffer: list[tuple[EpisodeBatch, np.ndarray]] = field(default_factory=list)
    rows: list[pd.DataFrame] = field(default_factory=list)
    learned: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        valued, prompt = not self.plan.rules.grouped, self.policy.prompt
        with (
            torch.random.fork_rng()
        ):  # value networks draw their first weights from torch's own generator
            torch.manual_seed(int(seeds.key("configuration", "values", seed=self.seed) >> 1))
            self.structure = Side.of(
                self.policy.structure, self.policy.inputs, self.plan.rates[0], valued
            )
            self.prompt = (
                None
                if prompt is None
                else Side.of(prompt, prompt.inputs, self.plan.rates[1], valued)
            )

    def run(self, after: Callable[[ConfigurationTraining], None] = lambda training: None) -> None:
        """All updates that are not done; `after` each one, whoever wants may look."""
        while self.step < self.plan.updates:
            self.update()
            after(self)

    def update(self) -> None:
        """One batch: choose, play, be paid, learn."""
        rng = seeds.rng(
            "configuration", "questions", self.policy.kind, seed=self.seed * 10**6 + self.step
        )
        different = self.plan.batch // self.plan.group
        picked = np.repeat(rng.integers(len(self.items), size=different), self.plan.group)
        draws = rng.integers(self.plan.draws, size=len(picked))
        states = torch.from_numpy(self.states[picked])
        dice = seeds.torch_generator("configuration", "choices", seed=self.seed * 10**6 + self.step)
        decision = self.policy.decide(states, dice)
        jobs = [
            ConfiguredQuestion(self.items[i], made, int(draw))
            for i, made, draw in zip(picked, decision.configurations, draws, strict=True)
        ]
        rows = self._played(jobs)
        rewards = torch.from_numpy(rows["reward"].to_numpy(np.float32))
        groups = torch.from_numpy(np.repeat(np.arange(different), self.plan.group))
        batch = EpisodeBatch(
            states, decision.structures, decision.logp, decision.steps, rewards, groups
        )
        self.rows.append(rows)
        # An episode of which the infrastructure lost a turn was paid nothing (nan), so nothing is learned from it.
        is_scored = ~rows["reward"].isna().to_numpy()
        batch = batch.select(torch.from_numpy(np.flatnonzero(is_scored)))
        self.buffer.append((batch, rows["correct"].to_numpy()[is_scored] == 1.0))
        losses_of_update = {}
        if len(batch):
            losses_of_update = policy_updates.update(
                self.structure, self.prompt, batch, self.plan.rules
            )
        self.learned.append({"step": self.step} | losses_of_update)
        self.step += 1

    def _played(self, jobs: Sequence[ConfiguredQuestion]) -> pd.DataFrame:
        """The outcomes of a batch: from the agents, or from the file if they did it before."""
        if self.played is not None:
            known = self.played[self.played["step"] == self.step].reset_index(drop=True)
            asked = [[job.item.prompt, job.configuration.digest] for job in jobs]
            if known[["prompt", "digest"]].to_numpy().tolist() == asked:
                return known
        outcomes = self.system.run(jobs)
        rows = table(jobs, outcomes, self.system.rewards(jobs, outcomes, self.plan.weights))
        return rows.drop(columns=["text", "answer"]).assign(step=self.step)


# Refinements ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refining:
    """How a policy is refined (ARC, appendix F for SFT, appendix H for DPO). share: of the buffer that is elite."""

    share: float = 0.3
    epochs: int = 3
    batch: int = 32
    rates: tuple[float, float] = (1e-4, 5e-6)
    entropy: float = 0.01
    max_grad_norm: float = 0.5
    beta: float = 0.05
    good: float = 4.0
    bad: float = 2.0


def refine(
    training: ConfigurationTraining, refining: Refining, seed: int
) -> tuple[ConfigurationPolicy, dict[str, float]]:
    """SFT of structure and prompt policy, each on its own decisions of the elite; masks stay (ARC, 3.3).

    Returns another policy, and the threshold, the elite's size and its mean reward.
    """
    policy = _copied(training.policy)
    rewards, correct = _told(training)
    chosen, tau = policy_updates.elite(correct, rewards, refining.share)
    about = {
        "tau": tau,
        "elite": int(chosen.sum()),
        "reward": float(rewards[chosen].mean()) if chosen.any() else 0.0,
    }
    if not chosen.any():
        return policy, about
    whole = policy_updates.joined([batch for batch, _ in training.buffer])
    rows = torch.from_numpy(np.flatnonzero(chosen))
    side = Side.of(policy.structure, policy.inputs, refining.rates[0], valued=False)
    _epochs(
        side,
        len(rows),
        refining,
        seed,
        lambda at: (whole.states[rows[at]], whole.structures[rows[at]]),
    )
    if policy.prompt is not None and whole.steps is not None:
        steps = whole.steps.rows(torch.from_numpy(chosen)[whole.steps.episode])
        prompt = Side.of(policy.prompt, policy.prompt.inputs, refining.rates[1], valued=False)
        _epochs(prompt, len(steps.actions), refining, seed + 1, lambda at: (steps.rows(at),))
    return policy, about


def _epochs(
    side: Side, n: int, refining: Refining, seed: int, judged: Callable[[torch.Tensor], tuple]
) -> None:
    for epoch in range(refining.epochs):
        order = seeds.rng("configuration", "sft", epoch, seed=seed).permutation(n)
        parts = [
            torch.from_numpy(order[at : at + refining.batch]) for at in range(0, n, refining.batch)
        ]
        policy_updates.imitate(
            side, [judged(part) for part in parts], refining.entropy, refining.max_grad_norm
        )


def pairs(training: ConfigurationTraining, refining: Refining) -> np.ndarray:
    """(pairs, 2) rows of the buffer: of one question, a right one paid `good` or more and a wrong one `bad` or less."""
    rewards, correct = _told(training)
    played = pd.concat(training.rows, ignore_index=True)
    keys = played.loc[played["reward"].notna(), "prompt"].to_numpy()
    better, worse = correct & (rewards >= refining.good), ~correct & (rewards <= refining.bad)
    found = [
        (i, j)
        for key in dict.fromkeys(keys[better].tolist())
        for i, j in zip(
            np.flatnonzero(better & (keys == key)),
            np.flatnonzero(worse & (keys == key)),
            strict=False,
        )
    ]
    return np.array(found, dtype=int).reshape(-1, 2)


def prefer_better(
    training: ConfigurationTraining, refining: Refining, seed: int
) -> tuple[ConfigurationPolicy, dict[str, float]]:
    """DPO from the trained policy, on pairs of its buffer (ARC, appendix H). Returns another policy, and the pairs."""
    policy, matched = _copied(training.policy), pairs(training, refining)
    if not len(matched):
        return policy, {"pairs": 0}
    whole = policy_updates.joined([batch for batch, _ in training.buffer])
    sides = [Side.of(policy.structure, policy.inputs, refining.rates[0], valued=False)]
    if policy.prompt is not None:
        sides.append(Side.of(policy.prompt, policy.prompt.inputs, refining.rates[1], valued=False))
    with torch.no_grad():
        start, _ = _judged(policy, whole)
    for epoch in range(refining.epochs):
        order = seeds.rng("configuration", "dpo", epoch, seed=seed).permutation(len(matched))
        for at in range(0, len(order), refining.batch):
            rows = torch.from_numpy(matched[order[at : at + refining.batch]])
            now, spread = _judged(policy, whole)
            lost = policy_updates.prefer(
                now[rows[:, 0]],
                now[rows[:, 1]],
                start[rows[:, 0]],
                start[rows[:, 1]],
                refining.beta,
            )
            loss = lost - refining.entropy * spread
            for side in sides:
                side.optimizer.zero_grad()
            loss.backward()
            for side in sides:
                torch.nn.utils.clip_grad_norm_(side.policy.parameters(), refining.max_grad_norm)
                side.optimizer.step()
    return policy, {"pairs": len(matched)}


def _judged(policy: ConfigurationPolicy, whole: EpisodeBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of every episode's decisions, (n,), and the mean entropy."""
    logp, spread = policy.structure.judge(whole.states, whole.structures)
    if policy.prompt is None or whole.steps is None:
        return logp, spread.mean()
    later, more = policy.prompt.judge(whole.steps)
    return logp + policy_updates.summed(later, whole.steps, len(whole)), spread.mean() + more.mean()


def _copied(policy: ConfigurationPolicy) -> ConfigurationPolicy:
    twin = deepcopy(policy)
    return twin.take({name: value.copy() for name, value in policy.arrays().items()})


def _told(training: ConfigurationTraining) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and correctness of the whole buffer, (n,) each."""
    rewards = np.concatenate([batch.rewards.numpy() for batch, _ in training.buffer])
    return rewards, np.concatenate([correct for _, correct in training.buffer]).astype(bool)
