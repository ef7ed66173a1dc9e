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
from lib.agent_configuration.agent_system import (
    ConfiguredAnswer,
    ConfiguredQuestion,
    System,
    make_table,
)
from lib.agent_configuration.atoms import Atom, find_roles
from lib.agent_configuration.policies import MultiDiscretePolicy, PromptPolicy, PromptSteps
from lib.agent_configuration.policy_updates import EpisodeBatch, PolicyTrainer, Rules
from lib.agent_configuration.questions import kind_of
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.variants import BANDIT, HIERARCHY, MDP, POLICY_KINDS
from lib.experiment import seeds
from lib.tasks import Item

VERSION = 2  # of trained and refined policies
_MOST_UPDATES = 10**6  # of one training: updates of two seeds share no random numbers


@dataclass
class ConfigurationDecisions:
    """What a policy chose for n questions.

    Attributes:
        configurations: One for each question.
        structures: (n, dimensions) choices of the structure policy, or of a flat one.
        logp: (n,) their log-probabilities.
        logp_by_dimension: (n, dimensions) log-probability of each choice.
        steps: The prompt decisions; None for a flat policy.
    """

    configurations: list[Configuration]
    structures: torch.Tensor
    logp: torch.Tensor
    logp_by_dimension: torch.Tensor
    steps: PromptSteps | None


class ConfigurationPolicy:
    """Chooses a configuration from a state.

    Attributes:
        kind: One of `variants.POLICY_KINDS`.
        num_inputs: Length of the state of a question.
        atoms: The library that it chooses from.
        structure: The structure policy, or a flat one.
        prompt: The prompt policy; None for a flat one.
    """

    def __init__(
        self,
        kind: str,
        num_inputs: int,
        atoms: Sequence[Atom],
        masked: bool = True,
        seed: int = 0,
        tools: tuple[str, ...] = action_space.TOOLS,
    ) -> None:
        """Make a policy with random weights.

        Args:
            kind: One of `variants.POLICY_KINDS`.
            num_inputs: Length of the state of a question.
            atoms: The library that it chooses from.
            masked: Whether the hierarchy masks its structures.
            seed: Seed of the first weights.
            tools: The tools that agents may be given; masks exclude all others.

        Raises:
            ValueError: There is no such kind.
        """
        if kind not in POLICY_KINDS:
            raise ValueError(f"there is no policy {kind!r}; there are {', '.join(POLICY_KINDS)}")
        self.kind = kind
        self.num_inputs = num_inputs
        self.atoms = list(atoms)
        self.masked = masked
        self.structure: MultiDiscretePolicy
        self.prompt: PromptPolicy | None = None
        with torch.random.fork_rng():
            torch.manual_seed(int(seeds.key("configuration", "weights", seed=seed) >> 1))
            if kind == HIERARCHY:
                self.structure = policies.make_structure_policy(num_inputs, masked, tools=tools)
                self.prompt = PromptPolicy(num_inputs, find_roles(atoms))
            elif kind == BANDIT:
                self.structure = policies.make_bandit_policy(
                    num_inputs, find_roles(atoms), tools=tools
                )
            else:
                self.structure = policies.make_autoregressive_policy(
                    num_inputs, find_roles(atoms), tools=tools
                )

    @torch.no_grad()
    def decide(
        self, states: torch.Tensor, generator: torch.Generator | None = None
    ) -> ConfigurationDecisions:
        """Choose a configuration for each state.

        Args:
            states: (n, inputs) of the questions.
            generator: Source of random numbers; None for the likeliest choices.

        Returns:
            The decisions.
        """
        sampled = self.structure.sample(states, generator)
        structures = sampled.actions
        steps = None
        if self.prompt is None:
            configurations = [self._read_flat_action(row) for row in structures.tolist()]
        else:
            prompts = self.prompt.sample(states, structures, generator)
            steps = prompts.steps
            configurations = []
            for structure, atoms in zip(structures.tolist(), prompts.atoms, strict=True):
                configurations.append(self._make_configuration(structure, atoms))
        return ConfigurationDecisions(
            configurations, structures, sampled.logp, sampled.logp_by_dimension, steps
        )

    def _make_configuration(
        self, structure: Sequence[int], atoms: Sequence[Sequence[int]]
    ) -> Configuration:
        """Make a configuration from numbers.

        Args:
            structure: Six numbers: workflow, tools and budgets.
            atoms: Numbers of the instructions of each agent.

        Returns:
            The configuration.
        """
        names_by_agent = tuple(
            tuple(self.atoms[number].name for number in atoms_of_agent) for atoms_of_agent in atoms
        )
        return Configuration(action_space.repair_structure(structure), names_by_agent)

    def _read_flat_action(self, action: Sequence[int]) -> Configuration:
        """Convert the action of a flat policy to a configuration; an atom that is chosen twice counts once.

        Args:
            action: The structure, then MAX_ATOMS choices for each agent, 0 for no atom.

        Returns:
            The configuration.
        """
        num_dimensions = len(action_space.SIZES)
        names_by_agent = []
        for agent in range(len(action_space.AGENTS)):
            first = num_dimensions + agent * action_space.MAX_ATOMS
            choices = action[first : first + action_space.MAX_ATOMS]
            names = [self.atoms[choice - 1].name for choice in choices if choice]  # 0 is no atom
            names_by_agent.append(tuple(dict.fromkeys(names)))
        structure = action_space.repair_structure(action[:num_dimensions])
        return Configuration(structure, tuple(names_by_agent))

    def list_modules(self) -> dict[str, torch.nn.Module]:
        """The networks by name."""
        modules: dict[str, torch.nn.Module] = {"structure": self.structure}
        if self.prompt is not None:
            modules["prompt"] = self.prompt
        return modules

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All weights by name, such as "structure.trunk.0.weight", for safetensors."""
        arrays = {}
        for module_name, module in self.list_modules().items():
            for name, value in module.state_dict().items():
                arrays[f"{module_name}.{name}"] = value.detach().numpy()
        return arrays

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> ConfigurationPolicy:
        """Take over weights.

        Args:
            arrays: What `to_arrays` of a policy of this shape returned.

        Returns:
            This policy.

        Raises:
            RuntimeError: The weights are those of a policy of another shape.
        """
        for module_name, module in self.list_modules().items():
            prefix = f"{module_name}."
            weights = {}
            for name, array in arrays.items():
                if name.startswith(prefix):
                    weights[name.removeprefix(prefix)] = torch.from_numpy(array.copy())
            module.load_state_dict(weights)
        return self


@dataclass(frozen=True)
class TrainingPlan:
    """How a policy is trained.

    Attributes:
        episodes: Number of episodes in all.
        batch: Episodes of an update.
        rates: Learning rates of structure and prompt policy.
        rules: How an update is done.
        weights: Coefficients of the reward.
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
    def num_updates(self) -> int:
        return max(1, self.episodes // self.batch)


@dataclass(frozen=True)
class PendingBatch:
    """Questions under the configurations that a policy chose, before their rewards are known.

    Attributes:
        states: (n, inputs) of the questions.
        decisions: What the policy chose.
        groups: (n,) number of the question.
        jobs: What the agents are to do.
    """

    states: torch.Tensor
    decisions: ConfigurationDecisions
    groups: torch.Tensor
    jobs: list[ConfiguredQuestion]


@dataclass
class ConfigurationTraining:
    """A policy with its optimisers, its buffer and the questions that it learns from.

    A training that goes on after it was killed decides and learns again, which takes moments, and takes its rewards
    from `recorded`: no agent is asked twice.

    Attributes:
        policy: What is trained.
        system: The agents.
        items: Questions.
        states: (items, inputs), one row per item.
        plan: How it is trained.
        seed: Seed of questions and choices.
        recorded: Rows of updates that were played before this training was killed.
        name_group: What tables call the group of a question.
        step: Number of updates so far.
        batches: The scored episodes of every update, which the refinements read.
        correct_by_batch: (n,) bool for each batch, whether an answer was correct.
        rows: Rows of every update, see `agent_system.make_table`.
        losses_by_update: Losses and entropies of every update.
    """

    policy: ConfigurationPolicy
    system: System
    items: Sequence[Item]
    states: np.ndarray
    plan: TrainingPlan
    seed: int
    recorded: pd.DataFrame | None = None
    name_group: Callable[[Item], str] = kind_of
    step: int = 0
    batches: list[EpisodeBatch] = field(default_factory=list)
    correct_by_batch: list[np.ndarray] = field(default_factory=list)
    rows: list[pd.DataFrame] = field(default_factory=list)
    losses_by_update: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rules = self.plan.rules
        if rules.stepwise != (self.policy.kind == MDP):
            raise ValueError(
                f"rules.stepwise is {rules.stepwise} with a policy of kind {self.policy.kind!r}; set it for "
                f"{MDP!r} and for no other kind"
            )
        structure, prompt = self.policy.structure, self.policy.prompt
        structure_rate, prompt_rate = self.plan.rates
        has_value = not rules.grouped
        num_inputs = self.policy.num_inputs
        if rules.stepwise:
            num_inputs = policy_updates.count_step_inputs(num_inputs, structure.sizes)
        # Value networks draw their first weights from torch's global generator.
        with torch.random.fork_rng():
            torch.manual_seed(int(seeds.key("configuration", "values", seed=self.seed) >> 1))
            self.structure_trainer = PolicyTrainer.create(
                structure, num_inputs, structure_rate, has_value
            )
            self.prompt_trainer = None
            if prompt is not None:
                self.prompt_trainer = PolicyTrainer.create(
                    prompt, prompt.num_inputs, prompt_rate, has_value
                )

    @property
    def is_finished(self) -> bool:
        return self.step >= self.plan.num_updates

    def run(
        self, after_update: Callable[[ConfigurationTraining], None] = lambda training: None
    ) -> None:
        """Do all updates that are not done; `after_update` is called after each."""
        while not self.is_finished:
            self.update()
            after_update(self)

    def update(self) -> None:
        """Do one update: choose, play, learn."""
        train_side_by_side([self], num_updates=1)

    def choose(self) -> PendingBatch:
        """Sample the questions of the next update, and let the policy choose a configuration for each.

        Returns:
            The batch before it was played. Of GRPO it has each question `plan.group` times, one after the other.
        """
        # Questions, and the number of the random draw that each is answered with
        stream = self.seed * _MOST_UPDATES + self.step
        rng = seeds.rng("configuration", "questions", seed=stream)
        num_questions = self.plan.batch // self.plan.group
        item_indices = np.repeat(rng.integers(len(self.items), size=num_questions), self.plan.group)
        draws = rng.integers(self.plan.draws, size=len(item_indices))

        # Configurations
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
        """Update the policies by the rewards of a batch.

        Args:
            pending: What `choose` returned.
            rows: The row of each of its jobs, see `agent_system.make_table`.
        """
        rewards = torch.from_numpy(rows["reward"].to_numpy(np.float32))
        decisions = pending.decisions
        batch = EpisodeBatch(
            states=pending.states,
            structures=decisions.structures,
            logp=decisions.logp,
            steps=decisions.steps,
            rewards=rewards,
            groups=pending.groups,
            logp_by_dimension=decisions.logp_by_dimension,
        )
        self.rows.append(rows)

        # An episode of which the infrastructure lost a turn has no reward (nan), so nothing is learned from it.
        is_scored = ~rows["reward"].isna().to_numpy()
        batch = batch.select(torch.from_numpy(np.flatnonzero(is_scored)))
        self.batches.append(batch)
        self.correct_by_batch.append(rows["correct"].to_numpy()[is_scored] == 1.0)

        losses_of_update = {}
        if len(batch):
            losses_of_update = policy_updates.update(
                self.structure_trainer, self.prompt_trainer, batch, self.plan.rules
            )
        self.losses_by_update.append({"step": self.step} | losses_of_update)
        self.step += 1

    def find_recorded_rows(self, jobs: Sequence[ConfiguredQuestion]) -> pd.DataFrame | None:
        """Find the rows of the next update, if it was played before this training was killed.

        Args:
            jobs: What the policy chose for this update.

        Returns:
            The row of each job; None where nothing, or something else, was played.
        """
        if self.recorded is None:
            return None
        rows = self.recorded[self.recorded["step"] == self.step].reset_index(drop=True)
        recorded_jobs = rows[["prompt", "digest"]].to_numpy().tolist()
        expected_jobs = [[job.item.prompt, job.configuration.digest] for job in jobs]
        return rows if recorded_jobs == expected_jobs else None


def train_side_by_side(
    trainings: Sequence[ConfigurationTraining],
    after_update: Callable[[], None] = lambda: None,
    num_updates: int | None = None,
) -> None:
    """Train several policies side by side: the agents play the episodes of all policies at once.

    What a policy learns does not depend on the others.

    Args:
        trainings: Trainings with the same agent system.
        after_update: Called after each update, when every policy has learned.
        num_updates: Number of updates of each training; None for all that are left.
    """
    num_finished_updates = 0
    while num_finished_updates != num_updates:
        unfinished = [training for training in trainings if not training.is_finished]
        if not unfinished:
            return
        pending_batches = [training.choose() for training in unfinished]

        # Play all at once what was not played before a training was killed
        recorded_rows = [
            training.find_recorded_rows(pending.jobs)
            for training, pending in zip(unfinished, pending_batches, strict=True)
        ]
        new_jobs: list[ConfiguredQuestion] = []
        for pending, rows in zip(pending_batches, recorded_rows, strict=True):
            if rows is None:
                new_jobs += pending.jobs
        outcomes = iter(unfinished[0].system.run(new_jobs) if new_jobs else [])

        # Learn from the new or the recorded rows
        for training, pending, rows in zip(unfinished, pending_batches, recorded_rows, strict=True):
            if rows is None:
                outcomes_of_batch = [next(outcomes) for _ in pending.jobs]
                rows = _make_rows(training, pending, outcomes_of_batch)
            training.learn(pending, rows)
        after_update()
        num_finished_updates += 1


def _make_rows(
    training: ConfigurationTraining,
    pending: PendingBatch,
    outcomes: Sequence[ConfiguredAnswer],
) -> pd.DataFrame:
    """Make the rows of an update.

    Args:
        training: Has the agent system, the weights of the reward and the number of the update (step).
        pending: The batch that was played.
        outcomes: The answer to each of its jobs.

    Returns:
        A row for each job as of `agent_system.make_table`, with reward and step and without texts.
    """
    rewards = training.system.compute_rewards(pending.jobs, outcomes, training.plan.weights)
    rows = make_table(pending.jobs, outcomes, rewards, training.name_group)
    return rows.drop(columns=["text", "answer"]).assign(step=training.step)


# Refinements ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refining:
    """How a policy is refined (ARC, appendix F for SFT, appendix H for DPO).

    Attributes:
        share: Share of all episodes that lie above the elite's threshold (SFT).
        epochs: Passes over the data.
        batch: Decisions or pairs of a step.
        rates: Learning rates of structure and prompt policy.
        entropy: Weight of the entropy bonus.
        max_grad_norm: Gradients are clipped to this norm.
        beta: Temperature of DPO.
        good: The least reward of a better episode of a pair (DPO).
        bad: The largest reward of a worse one.
    """

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
    """Fine-tune a copy of a trained policy on its elite episodes (SFT; ARC, 3.3).

    Structure and prompt policy learn from their own decisions, with the masks of the training.

    Args:
        training: The policy with its episodes.
        refining: How it is done.
        seed: Seed of the order of the decisions.

    Returns:
        The fine-tuned copy, and tau (the elite's threshold), elite (its size) and reward (its mean).
    """
    # The elite of all episodes of the training
    policy = deepcopy(training.policy)
    episodes = policy_updates.concatenate_batches(training.batches)
    rewards = episodes.rewards.numpy()
    correct = np.concatenate(training.correct_by_batch)
    is_elite, tau = policy_updates.elite(correct, rewards, refining.share)
    report = {
        "tau": tau,
        "elite": int(is_elite.sum()),
        "reward": float(rewards[is_elite].mean()) if is_elite.any() else 0.0,
    }
    if not is_elite.any():
        return policy, report
    structure_rate, prompt_rate = refining.rates

    # Structures
    rows = torch.from_numpy(np.flatnonzero(is_elite))
    trainer = PolicyTrainer.create(
        policy.structure, policy.num_inputs, structure_rate, has_value=False
    )
    for batches in _split_into_batches(len(rows), refining, seed):
        arguments = [
            (episodes.states[rows[batch]], episodes.structures[rows[batch]]) for batch in batches
        ]
        policy_updates.imitate(trainer, arguments, refining.entropy, refining.max_grad_norm)

    # Prompts
    if policy.prompt is not None and episodes.steps is not None:
        is_step_of_elite = torch.from_numpy(is_elite)[episodes.steps.episode]
        steps = episodes.steps.select(is_step_of_elite)
        trainer = PolicyTrainer.create(
            policy.prompt, policy.prompt.num_inputs, prompt_rate, has_value=False
        )
        for batches in _split_into_batches(len(steps), refining, seed + 1):
            arguments = [(steps.select(batch),) for batch in batches]
            policy_updates.imitate(trainer, arguments, refining.entropy, refining.max_grad_norm)
    return policy, report


def _split_into_batches(num_rows: int, refining: Refining, seed: int) -> list[list[torch.Tensor]]:
    """Split rows into batches, in another random order for each epoch.

    Args:
        num_rows: Number of rows.
        refining: Has the epochs and the size of a batch.
        seed: Seed of the orders.

    Returns:
        For each epoch its batches: indices of rows.
    """
    batches_by_epoch = []
    for epoch in range(refining.epochs):
        order = seeds.rng("configuration", "sft", epoch, seed=seed).permutation(num_rows)
        batches_by_epoch.append(
            [
                torch.from_numpy(order[first : first + refining.batch])
                for first in range(0, num_rows, refining.batch)
            ]
        )
    return batches_by_epoch


def find_pairs(training: ConfigurationTraining, refining: Refining) -> np.ndarray:
    """Find pairs of episodes on one question for DPO: a correct one with a high reward, and a wrong one with a low one.

    Args:
        training: The training with its episodes.
        refining: Has the bounds of both rewards.

    Returns:
        (pairs, 2) numbers of the better and the worse episode. Each episode is in one pair at most.
    """
    rewards = np.concatenate([batch.rewards.numpy() for batch in training.batches])
    correct = np.concatenate(training.correct_by_batch)
    rows = pd.concat(training.rows, ignore_index=True)
    is_scored = rows["reward"].notna()
    prompts = rows.loc[is_scored, "prompt"].to_numpy()  # (n,)
    is_better = correct & (rewards >= refining.good)
    is_worse = ~correct & (rewards <= refining.bad)

    # The i-th better episode on a question with the i-th worse one; what has no partner is left out
    pairs = []
    for prompt in dict.fromkeys(prompts[is_better].tolist()):
        better = np.flatnonzero(is_better & (prompts == prompt))
        worse = np.flatnonzero(is_worse & (prompts == prompt))
        pairs += zip(better, worse, strict=False)
    return np.array(pairs, dtype=int).reshape(-1, 2)


def prefer_better(
    training: ConfigurationTraining, refining: Refining, seed: int
) -> tuple[ConfigurationPolicy, dict[str, float]]:
    """Refine a copy of a trained policy by DPO on pairs of its episodes (ARC, appendix H).

    Args:
        training: The policy with its episodes.
        refining: How it is done.
        seed: Seed of the order of the pairs.

    Returns:
        The refined copy, and pairs (their number).
    """
    policy = deepcopy(training.policy)
    pairs = find_pairs(training, refining)
    if not len(pairs):
        return policy, {"pairs": 0}
    episodes = policy_updates.concatenate_batches(training.batches)
    structure_rate, prompt_rate = refining.rates
    trainers = [
        PolicyTrainer.create(policy.structure, policy.num_inputs, structure_rate, has_value=False)
    ]
    if policy.prompt is not None:
        trainers.append(
            PolicyTrainer.create(
                policy.prompt, policy.prompt.num_inputs, prompt_rate, has_value=False
            )
        )

    # The policy before DPO is the reference of its loss.
    with torch.no_grad():
        start_logp, _ = _evaluate_episodes(policy, episodes)
    for epoch in range(refining.epochs):
        order = seeds.rng("configuration", "dpo", epoch, seed=seed).permutation(len(pairs))
        for first in range(0, len(order), refining.batch):
            batch = torch.from_numpy(pairs[order[first : first + refining.batch]])
            better, worse = batch[:, 0], batch[:, 1]
            logp, mean_entropy = _evaluate_episodes(policy, episodes)
            dpo_loss = policy_updates.compute_dpo_loss(
                logp[better], logp[worse], start_logp[better], start_logp[worse], refining.beta
            )
            loss = dpo_loss - refining.entropy * mean_entropy

            # One loss for both policies, gradients clipped for each by itself
            for trainer in trainers:
                trainer.optimizer.zero_grad()
            loss.backward()
            for trainer in trainers:
                weights = trainer.policy.parameters()
                torch.nn.utils.clip_grad_norm_(weights, refining.max_grad_norm)
                trainer.optimizer.step()
    return policy, {"pairs": len(pairs)}


def _evaluate_episodes(
    policy: ConfigurationPolicy, episodes: EpisodeBatch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Evaluate all decisions of each episode together.

    Args:
        policy: Structure policy, and prompt policy if there is one.
        episodes: n episodes.

    Returns:
        (n,) log-probability of each episode's structure and prompts, and the mean entropy of a decision, a scalar.
    """
    logp, entropy = policy.structure.evaluate_actions(episodes.states, episodes.structures)
    if policy.prompt is None or episodes.steps is None:
        return logp, entropy.mean()
    step_logp, step_entropy = policy.prompt.evaluate_actions(episodes.steps)
    prompt_logp = policy_updates.sum_over_steps(step_logp, episodes.steps, len(episodes))
    return logp + prompt_logp, entropy.mean() + step_entropy.mean()
