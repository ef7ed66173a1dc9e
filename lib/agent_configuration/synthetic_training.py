"""Training in ARC's synthetic environment: a variant in several worlds side by side, by PPO and by imitating the elite.

Spaces, masks, policies, PPO, elite and imitation are those of the lesson; only the networks are small. Training r is
that of world r. All variants meet the same questions with the same random numbers.

Shapes name their axes: "kinds" is the number of kinds of questions, "atoms" that of one agent's atoms, n that of
episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lib.agent_configuration import action_space, policies, policy_updates
from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.batched_policies import (
    BatchedPolicyTrainer,
    StackedMultiDiscretePolicy,
    stack_prompt_policies,
)
from lib.agent_configuration.policies import PromptPolicy, PromptSteps
from lib.agent_configuration.policy_updates import EpisodeBatch, Rules
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.synthetic_environment import (
    AGENT_IS_PRESENT,
    AGENT_MAY_HAVE_ATOM,
    ATOMS_PER_AGENT,
    NUM_ATOMS,
    STREAM,
    ConfigurationWorlds,
)
from lib.agent_configuration.variants import AUTOREGRESSIVE, BANDIT, HIERARCHY, MDP
from lib.config import ConfigurationGlassSettings, ConfigurationSettings
from lib.experiment import seeds

NUM_DIMENSIONS = len(action_space.DIMENSIONS)  # of a structure


@dataclass(frozen=True)
class SyntheticConfigurationVariant:
    """One way to train.

    Attributes:
        name: Name in tables.
        kind: The policy, one of `variants.POLICY_KINDS`.
        masked: Whether choices that the workflow lacks are excluded.
        gamma: The discount; None for that of the settings.
    """

    name: str
    kind: str = HIERARCHY
    masked: bool = True
    gamma: float | None = None


ARC = SyntheticConfigurationVariant("ARC without SFT")
UNDISCOUNTED = SyntheticConfigurationVariant("ARC, no discount", gamma=1.0)
VARIANTS = (
    ARC,
    UNDISCOUNTED,
    SyntheticConfigurationVariant("ARC without masks", masked=False),
    SyntheticConfigurationVariant("flat bandit", kind=BANDIT),
    SyntheticConfigurationVariant("flat autoregressive", kind=AUTOREGRESSIVE),
    SyntheticConfigurationVariant("flat MDP", kind=MDP),
)


# Policies ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SyntheticDecisions:
    """What policies chose for n questions.

    Attributes:
        structures: (n, 6) valid structures.
        has_atom: (n, 3, atoms) bool, the prompt instructions (atoms) in each agent's prompt.
        batch: The same decisions to learn from, before their rewards are known.
    """

    structures: np.ndarray
    has_atom: np.ndarray
    batch: EpisodeBatch


@dataclass
class StackedTrainings:
    """The policies of several trainings of one variant, with all episodes that they have learned from.

    Attributes:
        structure: The structure policies, or flat ones.
        prompt: The prompt policies; None for flat ones.
        batches: The episodes of every update.
        correct_by_batch: (n,) bool for each batch, whether an answer was correct.
    """

    structure: StackedMultiDiscretePolicy
    prompt: PromptPolicy | None
    batches: list[EpisodeBatch]
    correct_by_batch: list[np.ndarray]

    @torch.no_grad()
    def decide(self, states: Tensor, generator: torch.Generator | None) -> SyntheticDecisions:
        """Choose a configuration for each state.

        Args:
            states: (n, 1 + kinds), see `make_states`.
            generator: Source of random numbers; None for the likeliest choices.

        Returns:
            The decisions.
        """
        sampled = self.structure.sample(states, generator)
        actions = sampled.actions.numpy()
        steps = None
        if self.prompt is None:
            has_atom = read_flat_atoms(actions[:, NUM_DIMENSIONS:])
        else:
            steps = self.prompt.sample(states, sampled.actions, generator).steps
            has_atom = read_prompt_atoms(steps, len(states))
        # Rewards and groups are filled in once the episodes have been rewarded.
        no_numbers = torch.zeros(len(states))
        batch = EpisodeBatch(
            states=states,
            structures=sampled.actions,
            logp=sampled.logp,
            steps=steps,
            rewards=no_numbers,
            groups=no_numbers,
            logp_by_dimension=sampled.logp_by_dimension,
        )
        return SyntheticDecisions(repair_structures(actions[:, :NUM_DIMENSIONS]), has_atom, batch)


def repair_structures(structures: np.ndarray) -> np.ndarray:
    """Set pinned dimensions of structures, (n, 6), to 0, as `action_space.repair_structure` does for one."""
    is_valid = [
        mask[structures[:, 0], structures[:, dimension]]
        for dimension, mask in enumerate(action_space.make_masks().values())
    ]
    return np.where(np.stack(is_valid, 1), structures, 0)


def read_prompt_atoms(steps: PromptSteps, num_episodes: int) -> np.ndarray:
    """Read which atoms (prompt instructions) the agents of each episode get.

    Args:
        steps: The prompt decisions of the episodes.
        num_episodes: Number of episodes, n.

    Returns:
        (n, 3, atoms) bool.
    """
    has_atom = np.zeros((num_episodes, NUM_ATOMS), bool)
    episode = steps.episode.numpy()
    action = steps.actions.numpy()
    is_atom = action < NUM_ATOMS  # and not STOP
    has_atom[episode[is_atom], action[is_atom]] = True
    return has_atom.reshape(-1, len(AGENTS), ATOMS_PER_AGENT)


def read_flat_atoms(choices: np.ndarray) -> np.ndarray:
    """Read which atoms (prompt instructions) the agents get from the last dimensions of flat actions.

    Args:
        choices: (n, 3 * MAX_ATOMS), MAX_ATOMS of each agent: 0 is no atom, c is atom c - 1.

    Returns:
        (n, 3, atoms) bool. Atoms of other agents are ignored.
    """
    choices = choices.reshape(-1, len(AGENTS), action_space.MAX_ATOMS)
    atom_numbers = 1 + np.arange(NUM_ATOMS)
    # Whether an agent's choices have an atom, (n, 3, NUM_ATOMS)
    has_any_atom = (choices[..., None] == atom_numbers).any(2)
    has_own_atom = has_any_atom & AGENT_MAY_HAVE_ATOM
    # Split NUM_ATOMS into (3, atoms), by the agent whose atoms they are: only an agent's own are left.
    by_owner = has_own_atom.reshape(-1, len(AGENTS), len(AGENTS), ATOMS_PER_AGENT)
    return by_owner.any(2)


def make_untrained(
    variant: SyntheticConfigurationVariant, num_trainings: int, settings: ConfigurationGlassSettings
) -> StackedTrainings:
    """Make the policies of a variant before any training, with first weights of its own for each training.

    Args:
        variant: What is trained.
        num_trainings: Number of trainings.
        settings: `seeds`, after which first weights repeat, and `hidden`, the width of the layers.

    Returns:
        The policies, without any episodes.
    """
    num_inputs = len(KINDS)
    structure_policies = []
    prompt_policies = []
    for training in range(num_trainings):
        with torch.random.fork_rng():
            key = seeds.key("configuration", "weights", seed=training % settings.seeds)
            torch.manual_seed(int(key >> 1))
            if variant.kind == HIERARCHY:
                structure_policies.append(
                    policies.make_structure_policy(num_inputs, variant.masked, settings.hidden)
                )
                prompt_policies.append(
                    PromptPolicy(num_inputs, AGENT_MAY_HAVE_ATOM, settings.hidden)
                )
                continue
            make_policy = policies.make_autoregressive_policy
            if variant.kind == BANDIT:
                make_policy = policies.make_bandit_policy
            structure_policies.append(make_policy(num_inputs, AGENT_MAY_HAVE_ATOM, settings.hidden))
    return StackedTrainings(
        structure=StackedMultiDiscretePolicy.stack(structure_policies),
        prompt=stack_prompt_policies(prompt_policies) if prompt_policies else None,
        batches=[],
        correct_by_batch=[],
    )


# PPO -----------------------------------------------------------------------------------------------


def make_states(training: np.ndarray, kind: np.ndarray, noise: np.ndarray) -> Tensor:
    """Make the states that policies read: the kind of question, one-hot with noise.

    Args:
        training: (n,) number of each row's training, which becomes column 0.
        kind: (n,) number of the question's kind.
        noise: (n, kinds) what is added to the one-hot vector.

    Returns:
        (n, 1 + kinds) float32.
    """
    observation = np.eye(len(KINDS))[kind] + noise
    return torch.from_numpy(np.concatenate([training[:, None], observation], 1).astype(np.float32))


def train(
    variant: SyntheticConfigurationVariant,
    worlds: ConfigurationWorlds,
    num_episodes: int,
    after_update: Callable[[int, StackedTrainings], None] = lambda num_episodes, trainings: None,
) -> StackedTrainings:
    """Train one variant in every world by PPO.

    Args:
        variant: What is trained.
        worlds: The worlds.
        num_episodes: Number of episodes of each training.
        after_update: Called with the episodes so far and the policies, at the start and after each update.

    Returns:
        The trained policies with their episodes.
    """
    settings = worlds.settings.glass
    num_worlds = len(worlds)
    trainings = make_untrained(variant, num_worlds, settings)
    structure_trainer, prompt_trainer = _make_trainers(variant, trainings, num_worlds, settings)
    rules = _make_rules(variant, worlds.settings)
    world = np.repeat(np.arange(num_worlds), settings.batch)  # (trainings * batch,)
    after_update(0, trainings)
    for update in range(num_episodes // settings.batch):
        # The questions of a batch, the same in every world
        rng = seeds.rng(*STREAM, "questions", seed=update)
        kind = np.tile(rng.integers(len(KINDS), size=settings.batch), num_worlds)
        noise = settings.observation_noise * rng.standard_normal((settings.batch, len(KINDS)))
        noise = np.tile(noise, (num_worlds, 1))
        # Decides whether answers are correct
        uniform = np.tile(rng.random(settings.batch), num_worlds)

        # Configurations, and what they are rewarded with
        generator = seeds.torch_generator(*STREAM, "choices", seed=update)
        decisions = trainings.decide(make_states(world, kind, noise), generator)
        table = worlds.describe(decisions.structures)
        probability = worlds.compute_success_probability(world, kind, table, decisions.has_atom)
        correct = uniform < probability
        reward = worlds.compute_reward(correct, world, kind, table)
        batch = replace(
            decisions.batch,
            rewards=torch.from_numpy(reward.astype(np.float32)),
            groups=torch.from_numpy(kind),
            runs=torch.from_numpy(world),
        )

        policy_updates.update(structure_trainer, prompt_trainer, batch, rules)
        trainings.batches.append(batch)
        trainings.correct_by_batch.append(correct)
        after_update((update + 1) * settings.batch, trainings)
    return trainings


def _make_trainers(
    variant: SyntheticConfigurationVariant,
    trainings: StackedTrainings,
    num_worlds: int,
    settings: ConfigurationGlassSettings,
) -> tuple[BatchedPolicyTrainer, BatchedPolicyTrainer | None]:
    """Make the trainers of structure and prompt policies, with new value networks.

    Args:
        variant: What is trained.
        trainings: The untrained policies.
        num_worlds: Number of worlds, each with a training of its own.
        settings: Learning rates and width of the layers.

    Returns:
        The trainer of the structure policies, and that of the prompt policies or None where there are none.
    """
    num_inputs = len(KINDS)
    if variant.kind == MDP:
        num_inputs = policy_updates.count_step_inputs(num_inputs, trainings.structure.sizes)
    with torch.random.fork_rng():
        torch.manual_seed(int(seeds.key("configuration", "values") >> 1))
        structure_trainer = BatchedPolicyTrainer.create_stacked(
            trainings.structure, num_inputs, settings.structure_rate, num_worlds, settings.hidden
        )
        prompt_trainer = None
        if trainings.prompt is not None:
            prompt_trainer = BatchedPolicyTrainer.create_stacked(
                trainings.prompt,
                trainings.prompt.num_inputs,
                settings.prompt_rate,
                num_worlds,
                settings.hidden,
            )
    return structure_trainer, prompt_trainer


def _make_rules(variant: SyntheticConfigurationVariant, settings: ConfigurationSettings) -> Rules:
    """Make the settings of PPO, with the variant's own discount.

    Args:
        variant: The variant.
        settings: Settings of lesson 07.

    Returns:
        The settings of an update.
    """
    ppo = settings.ppo
    return Rules(
        clip=ppo.clip,
        gamma=ppo.gamma if variant.gamma is None else variant.gamma,
        entropy=ppo.entropy,
        value=ppo.value,
        max_grad_norm=ppo.max_grad_norm,
        epochs=ppo.epochs,
        stepwise=variant.kind == MDP,
    )


# Imitation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elites:
    """The elite of each world: the best episodes of its training, which SFT imitates.

    Attributes:
        episodes: All n episodes of all worlds; `runs` has the number of the world, `groups` that of the kind.
        is_elite: (n,) bool, whether an episode belongs to the elite of its world.
        tau: (worlds, kinds) the reward that an episode must reach to belong to the elite.
    """

    episodes: EpisodeBatch
    is_elite: np.ndarray
    tau: np.ndarray

    def encode_elite_configurations(self) -> set[bytes]:
        """Encode the configurations of the elite episodes, to look up whether another configuration is among them.

        Returns:
            The different codes, see `encode_configurations`; a code also holds the world and the kind of its episode.
        """
        world = self.episodes.runs.numpy()
        kind = self.episodes.groups.numpy()
        structures = repair_structures(self.episodes.structures.numpy()[:, :NUM_DIMENSIONS])
        has_atom = read_prompt_atoms(self.episodes.steps, len(self.episodes))
        codes = encode_configurations(
            world[self.is_elite],
            kind[self.is_elite],
            structures[self.is_elite],
            has_atom[self.is_elite],
        )
        return set(codes)


def encode_configurations(
    world: np.ndarray, kind: np.ndarray, structures: np.ndarray, has_atom: np.ndarray
) -> list[bytes]:
    """Encode n configurations as bytes, so that they can be compared and looked up in a set.

    A configuration is a structure (workflow, tools, budgets) and the atoms (prompt instructions) of each agent. It is
    encoded with the world and the kind of question in which it was chosen. Codes of one world and kind are equal where
    the configurations do the same: atoms of an agent that the workflow does not call are ignored.

    Args:
        world: (n,) number of the world.
        kind: (n,) number of the kind of question.
        structures: (n, 6) valid structures.
        has_atom: (n, 3, atoms) bool, whether an agent has an atom in its prompt.

    Returns:
        The n codes.
    """
    # Ignore the atoms of absent agents
    workflow = structures[:, 0]
    is_present = AGENT_IS_PRESENT[workflow]  # (n, 3)
    has_active_atom = has_atom & is_present[..., None]  # (n, 3, atoms)

    # One row of whole numbers for each configuration
    active_atoms = has_active_atom.reshape(len(has_atom), -1)  # (n, 3 * atoms)
    columns = [world[:, None], kind[:, None], structures, active_atoms]
    rows = np.concatenate(columns, 1).astype(np.int16)  # (n, 1 + 1 + 6 + 3 * atoms)
    return [row.tobytes() for row in rows]


def select_elites(
    episodes: EpisodeBatch, correct: np.ndarray, share: float, is_by_kind: bool
) -> Elites:
    """Select the elite of each world: episodes that are correct and whose reward reaches the threshold tau.

    Args:
        episodes: All n episodes of all worlds.
        correct: (n,) bool, whether the answer of an episode was correct.
        share: Share of the episodes that a threshold lets pass, see `policy_updates.elite`.
        is_by_kind: Whether each kind of question has a threshold of its own; otherwise a world has one for all kinds.

    Returns:
        The elites of all worlds.
    """
    world = episodes.runs.numpy()
    kind = episodes.groups.numpy()
    reward = episodes.rewards.numpy()

    # Kinds that share a threshold
    all_kinds = list(range(len(KINDS)))
    kinds_by_threshold = [[number] for number in all_kinds] if is_by_kind else [all_kinds]

    num_worlds = world.max() + 1
    tau = np.zeros((num_worlds, len(KINDS)))
    is_elite = np.zeros(len(world), bool)
    for world_number in range(num_worlds):
        for kinds in kinds_by_threshold:
            rows = np.flatnonzero((world == world_number) & np.isin(kind, kinds))
            is_elite_row, threshold = policy_updates.elite(correct[rows], reward[rows], share)
            tau[world_number, kinds] = threshold
            is_elite[rows[is_elite_row]] = True
    return Elites(episodes, is_elite, tau)


def imitate_elites(
    trainings: StackedTrainings, elites: Elites, settings: ConfigurationSettings
) -> StackedTrainings:
    """Fine-tune copies of the policies of all trainings on their elites (SFT; ARC, eq. 6).

    Args:
        trainings: Structure and prompt policies; each learns from its own decisions.
        elites: The elites of these trainings.
        settings: `glass` has batch and learning rates, `sft` epochs, entropy and the norm of gradients.

    Returns:
        The fine-tuned copies, without episodes.
    """
    synthetic = settings.glass
    episodes = elites.episodes
    num_trainings = len(elites.tau)
    structure = deepcopy(trainings.structure)
    prompt = deepcopy(trainings.prompt)

    # Structures
    trainer = BatchedPolicyTrainer.create_stacked(
        structure, len(KINDS), synthetic.sft_rate, num_trainings, synthetic.hidden, has_value=False
    )
    rows = np.flatnonzero(elites.is_elite)
    batches = _split_into_batches(episodes.runs.numpy()[rows], settings)
    for epoch_batches in batches:
        arguments = [
            (episodes.states[rows[batch]], episodes.structures[rows[batch]])
            for batch in epoch_batches
        ]
        policy_updates.imitate(trainer, arguments, settings.sft.entropy, settings.sft.max_grad_norm)

    # Prompts
    trainer = BatchedPolicyTrainer.create_stacked(
        prompt,
        prompt.num_inputs,
        synthetic.sft_prompt_rate,
        num_trainings,
        synthetic.hidden,
        has_value=False,
    )
    is_step_of_elite = torch.from_numpy(elites.is_elite)[episodes.steps.episode]
    steps = episodes.steps.select(is_step_of_elite)
    batches = _split_into_batches(episodes.runs[steps.episode].numpy(), settings)
    for epoch_batches in batches:
        arguments = [(steps.select(torch.from_numpy(batch)),) for batch in epoch_batches]
        policy_updates.imitate(trainer, arguments, settings.sft.entropy, settings.sft.max_grad_norm)
    return StackedTrainings(structure, prompt, batches=[], correct_by_batch=[])


def _split_into_batches(
    training: np.ndarray, settings: ConfigurationSettings
) -> list[list[np.ndarray]]:
    """Split rows into batches in which every training has as many rows, in a random order for each epoch.

    Args:
        training: (n,) number of each row's training.
        settings: `sft.epochs`, and `glass.sft_batch` rows of each training in a batch.

    Returns:
        For each epoch its batches: indices of rows. A training with fewer rows is missing in the last batches.
    """
    batch_size = settings.glass.sft_batch
    counts = np.bincount(training)  # rows of each training
    num_batches = -(-counts.max() // batch_size)
    batches_by_epoch = []
    for epoch in range(settings.sft.epochs):
        order = seeds.rng(*STREAM, "sft", epoch).permutation(len(training))
        # Sorted by training, in random order within each
        order = order[np.argsort(training[order], kind="stable")]
        first_of_training = np.repeat(np.cumsum(counts) - counts, counts)
        number_in_training = np.arange(len(order)) - first_of_training
        batch_of_row = number_in_training // batch_size
        batches_by_epoch.append([order[batch_of_row == number] for number in range(num_batches)])
    return batches_by_epoch
