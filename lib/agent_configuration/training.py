"""A policy of ARC, or a flat one, in training: questions in, configurations out, rewards back.

`ConfigurationPolicy` chooses; `ConfigurationTraining` has batches of questions played by the agent system and learns
from the rewards; `train_side_by_side` plays the batches of several trainings at once, so that the agents' model always
has many sequences to go on with; `refine` and `prefer_better` are the two refinements, SFT on the elite and DPO on
pairs, both from the buffer alone, without another call to an agent.
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
from lib.agent_configuration.policy_updates import EpisodeBatch, PolicyTrainer, Rules
from lib.agent_configuration.questions import kind_of
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.variants import BANDIT, HIERARCHY, MDP, POLICY_KINDS
from lib.experiment import seeds
from lib.tasks import Item

VERSION = 2  # of trained and refined policies


@dataclass
class ConfigurationDecisions:
    """What a policy chose for a batch: configurations, and what is needed to learn from them."""

    configurations: list[Configuration]
    structures: torch.Tensor
    logp: torch.Tensor
    part_logp: torch.Tensor
    steps: Steps | None


class ConfigurationPolicy:
    """Chooses a configuration from a state.

    Attributes:
        kind: Of `variants.POLICY_KINDS`.
        inputs: Numbers of a state.
        atoms: The library that it chooses from.
        structure: The structure policy, or a flat one.
        prompt: The prompt policy; None for flat ones.
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        atoms: Sequence[Atom],
        masked: bool = True,
        seed: int = 0,
        tools: tuple[str, ...] = action_space.TOOLS,
    ) -> None:
        """Make a policy with random weights.

        Args:
            kind: Of `variants.POLICY_KINDS`.
            inputs: Numbers of a state.
            atoms: The library that it chooses from.
            masked: Whether the hierarchy masks its structures.
            seed: Of the weights.
            tools: That agents may be given; masks exclude all others.
        """
        if kind not in POLICY_KINDS:
            raise ValueError(f"there is no policy {kind!r}; there are {', '.join(POLICY_KINDS)}")
        self.kind, self.inputs, self.atoms, self.masked = kind, inputs, list(atoms), masked
        self.structure: Parts
        self.prompt: PromptPolicy | None = None
        with torch.random.fork_rng():
            torch.manual_seed(int(seeds.key("configuration", "weights", seed=seed) >> 1))
            if kind == HIERARCHY:
                self.structure = policies.structure_policy(inputs, masked, tools=tools)
                self.prompt = PromptPolicy(inputs, roles(atoms))
            elif kind == BANDIT:
                self.structure = policies.bandit(inputs, roles(atoms), tools=tools)
            else:
                self.structure = policies.autoregressive(inputs, roles(atoms), tools=tools)

    @torch.no_grad()
    def decide(
        self, states: torch.Tensor, generator: torch.Generator | None = None
    ) -> ConfigurationDecisions:
        """Choose configurations for states, (n, inputs); without a generator the likeliest."""
        sampled = self.structure.draw(states, generator)
        structures = sampled.actions
        steps = None
        if self.prompt is None:
            configurations = [self._read_flat(row) for row in structures.tolist()]
        else:
            chosen_atoms, steps = self.prompt.draw(states, structures, generator)
            names = [atom.name for atom in self.atoms]
            configurations = []
            for row, by_agent in zip(structures.tolist(), chosen_atoms, strict=True):
                named = tuple(tuple(names[i] for i in agent) for agent in by_agent)
                configurations.append(Configuration(action_space.repaired(row), named))
        return ConfigurationDecisions(
            configurations, structures, sampled.logp, sampled.part_logp, steps
        )

    def _read_flat(self, row: Sequence[int]) -> Configuration:
        """What a flat action means: an atom that is chosen twice counts once."""
        num_parts = len(action_space.SIZES)
        named = []
        for agent in range(len(action_space.AGENTS)):
            first = num_parts + agent * action_space.MAX_ATOMS
            slots = row[first : first + action_space.MAX_ATOMS]
            names = [self.atoms[choice - 1].name for choice in slots if choice]  # 0 is no atom
            named.append(tuple(dict.fromkeys(names)))
        return Configuration(action_space.repaired(row[:num_parts]), tuple(named))

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
    """How a policy is trained.

    Attributes:
        episodes: In all.
        batch: Episodes of an update.
        rates: Learning rates of structure and prompt policy.
        rules: Of the updates.
        weights: Of the reward.
        group: Episodes per question; more than 1 only for group-relative advantages.
        draws: How many independent samples of a question there are.
    """

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


@dataclass(frozen=True)
class PendingBatch:
    """Questions under the configurations that a policy chose, before their rewards are known."""

    states: torch.Tensor
    decisions: ConfigurationDecisions
    groups: torch.Tensor
    jobs: list[ConfiguredQuestion]


@dataclass
class ConfigurationTraining:
    """A policy with its optimisers, its buffer and the questions that it learns from.

    A training that goes on after it was killed decides and learns again, which takes moments, and takes its rewards
    from `played`: no agent is asked twice.

    Attributes:
        policy: What is trained.
        system: The agents.
        items: Questions.
        states: (items, d), one row per item.
        plan: How it is trained.
        seed: Of questions and choices.
        played: Rows of updates that were played before this training was killed.
        name_group: What tables call the group of a question.
        step: Updates done.
        buffer: Every batch with its correctness, which the refinements read.
        rows: What was played, by update.
        learned: Losses of every update.
    """

    policy: ConfigurationPolicy
    system: System
    items: Sequence[Item]
    states: np.ndarray
    plan: TrainingPlan
    seed: int
    played: pd.DataFrame | None = None
    name_group: Callable[[Item], str] = kind_of
    step: int = 0
    buffer: list[tuple[EpisodeBatch, np.ndarray]] = field(default_factory=list)
    rows: list[pd.DataFrame] = field(default_factory=list)
    learned: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        has_values = not self.plan.rules.grouped
        structure, prompt = self.policy.structure, self.policy.prompt
        inputs = self.policy.inputs
        if self.plan.rules.stepwise != (self.policy.kind == MDP):
            raise ValueError(
                f"rules.stepwise is {self.plan.rules.stepwise} with a policy of kind {self.policy.kind!r}; set it for "
                f"{MDP!r} and for no other kind"
            )
        if self.plan.rules.stepwise:
            inputs = policy_updates.count_step_inputs(inputs, structure.sizes)
        structure_rate, prompt_rate = self.plan.rates
        # Value networks draw their first weights from torch's global generator.
        with torch.random.fork_rng():
            torch.manual_seed(int(seeds.key("configuration", "values", seed=self.seed) >> 1))
            self.structure = PolicyTrainer.of(structure, inputs, structure_rate, has_values)
            self.prompt = None
            if prompt is not None:
                self.prompt = PolicyTrainer.of(prompt, prompt.inputs, prompt_rate, has_values)

    @property
    def is_finished(self) -> bool:
        return self.step >= self.plan.updates

    def run(self, after: Callable[[ConfigurationTraining], None] = lambda training: None) -> None:
        """Do all updates that are not done; `after` is called after each."""
        while not self.is_finished:
            self.update()
            after(self)

    def update(self) -> None:
        """Do one update: choose, play, learn."""
        train_side_by_side([self], num_updates=1)

    def choose(self) -> PendingBatch:
        """Sample the questions of the next update, and a configuration for each."""
        stream = self.seed * 10**6 + self.step
        rng = seeds.rng("configuration", "questions", seed=stream)
        num_questions = self.plan.batch // self.plan.group
        item_indices = np.repeat(rng.integers(len(self.items), size=num_questions), self.plan.group)
        draws = rng.integers(self.plan.draws, size=len(item_indices))
        states = torch.from_numpy(self.states[item_indices])
        generator = seeds.torch_generator("configuration", "choices", seed=stream)
        decisions = self.policy.decide(states, generator)
        jobs = []
        for index, configuration, draw in zip(
            item_indices, decisions.configurations, draws, strict=True
        ):
            jobs.append(ConfiguredQuestion(self.items[index], configuration, int(draw)))
        groups = torch.from_numpy(np.repeat(np.arange(num_questions), self.plan.group))
        return PendingBatch(states, decisions, groups, jobs)

    def learn(self, pending: PendingBatch, rows: pd.DataFrame) -> None:
        """Update the policies from what became of a batch.

        Args:
            pending: What `choose` returned.
            rows: The row of each of its jobs, as of `agent_system.table`.
        """
        rewards = torch.from_numpy(rows["reward"].to_numpy(np.float32))
        decisions = pending.decisions
        batch = EpisodeBatch(
            pending.states,
            decisions.structures,
            decisions.logp,
            decisions.steps,
            rewards,
            pending.groups,
            part_logp=decisions.part_logp,
        )
        self.rows.append(rows)
        # An episode of which the infrastructure lost a turn has no reward (nan), so nothing is learned from it.
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

    def find_played(self, jobs: Sequence[ConfiguredQuestion]) -> pd.DataFrame | None:
        """The rows of the next update where it was played before this training was killed; None otherwise."""
        if self.played is None:
            return None
        recorded = self.played[self.played["step"] == self.step].reset_index(drop=True)
        expected = [[job.item.prompt, job.configuration.digest] for job in jobs]
        is_same = recorded[["prompt", "digest"]].to_numpy().tolist() == expected
        return recorded if is_same else None


def train_side_by_side(
    trainings: Sequence[ConfigurationTraining],
    after: Callable[[], None] = lambda: None,
    num_updates: int | None = None,
) -> None:
    """Train several policies in step, with the episodes of all of them under way together.

    Args:
        trainings: Of one agent system. What each learns does not depend on the others.
        after: Called after every update of all.
        num_updates: How many; None for all that are not done.
    """
    updates_done = 0
    while updates_done != num_updates:
        unfinished = [training for training in trainings if not training.is_finished]
        if not unfinished:
            return
        pending_batches = [training.choose() for training in unfinished]

        # Play what was not played yet, all at once.
        recorded = [
            training.find_played(pending.jobs)
            for training, pending in zip(unfinished, pending_batches, strict=True)
        ]
        open_jobs: list[ConfiguredQuestion] = []
        for pending, rows in zip(pending_batches, recorded, strict=True):
            if rows is None:
                open_jobs += pending.jobs
        outcomes = iter(unfinished[0].system.run(open_jobs) if open_jobs else [])

        for training, pending, rows in zip(unfinished, pending_batches, recorded, strict=True):
            if rows is None:
                own_outcomes = [next(outcomes) for _ in pending.jobs]
                rewards = training.system.rewards(pending.jobs, own_outcomes, training.plan.weights)
                rows = table(pending.jobs, own_outcomes, rewards, training.name_group)
                rows = rows.drop(columns=["text", "answer"]).assign(step=training.step)
            training.learn(pending, rows)
        after()
        updates_done += 1


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
    side = PolicyTrainer.of(policy.structure, policy.inputs, refining.rates[0], valued=False)
    _epochs(
        side,
        len(rows),
        refining,
        seed,
        lambda at: (whole.states[rows[at]], whole.structures[rows[at]]),
    )
    if policy.prompt is not None and whole.steps is not None:
        steps = whole.steps.rows(torch.from_numpy(chosen)[whole.steps.episode])
        prompt = PolicyTrainer.of(
            policy.prompt, policy.prompt.inputs, refining.rates[1], valued=False
        )
        _epochs(prompt, len(steps.actions), refining, seed + 1, lambda at: (steps.rows(at),))
    return policy, about


def _epochs(
    side: PolicyTrainer,
    n: int,
    refining: Refining,
    seed: int,
    judged: Callable[[torch.Tensor], tuple],
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
    sides = [PolicyTrainer.of(policy.structure, policy.inputs, refining.rates[0], valued=False)]
    if policy.prompt is not None:
        sides.append(
            PolicyTrainer.of(policy.prompt, policy.prompt.inputs, refining.rates[1], valued=False)
        )
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
