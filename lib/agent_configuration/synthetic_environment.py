"""ARC's synthetic environment: worlds in which the expected reward of every configuration is a formula.

A question is of one of several kinds. A configuration is a structure (workflow, tools, budgets) and a set of atoms for
each agent. The answer is correct with probability sigmoid(logit / noise):

    logit = base + workflow + tools + budgets + atoms

Each term has a main effect and an effect of the kind of question, which the knob `interaction` scales. `noise` is the
temperature: near 0 the answer is settled, at large values it is random. Calls and tokens have the lesson's prices, and
the reward is the lesson's (`rewards`), so the optimum and the best constant are exact (`compute_bounds`).

Shapes name their axes: "worlds" is the number of worlds, "kinds" that of kinds of questions, "atoms" that of one
agent's atoms, and n that of episodes or structures. The axis of length 3 is the agent, the one of length 2 the two
agents that may have tools, the one of length 4 the tool.

Left out: agents that talk, and questions whose kind is hard to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lib.agent_configuration import action_space, rewards
from lib.agent_configuration.action_space import AGENTS, SUBSETS, TOOLS, WORKFLOWS
from lib.agent_configuration.questions import KINDS
from lib.config import ConfigurationSettings
from lib.experiment import seeds

# The names of random streams decide numbers, and outlive the names in the code.
STREAM = ("configuration", "glass")

# As many as an agent may be told, so that the best set is every atom that helps.
ATOMS_PER_AGENT = 3
NUM_ATOMS = len(AGENTS) * ATOMS_PER_AGENT
BASE_LOGIT = -1.0
SHARE_OF_BUDGET_WRITTEN = 0.5

# Standard deviations of the effects on the logit.
WORKFLOW_DEVIATION = 0.7
TOOL_DEVIATION = 0.5
BUDGET_DEVIATION = 0.3
ATOM_DEVIATION = 0.5
MEAN_BUDGET_EFFECTS = np.array([0.0, 0.4, 0.5])  # by tier: more tokens help, less and less

# Calls of each agent by workflow, (workflows, 3): the fewest that `workflows.CALLS` allows.
CALLS = np.array(
    [
        [1, 0, 0],
        [1, 0, 1],
        [1, 1, 1],
        [0.5, 0.5, 2],
        [1, 1, 2],
        [3, 0, 1],
        [1, 2, 1],
        [2, 1, 1],
        [1, 2, 1],
    ]
)


def _list_present_agents() -> np.ndarray:
    """List which agents each workflow has, (workflows, 3) bool."""
    present = np.zeros((len(WORKFLOWS), len(AGENTS)), bool)
    for number, workflow in enumerate(WORKFLOWS):
        present[number, list(action_space.list_agents(workflow))] = True
    return present


def _list_tool_subsets() -> np.ndarray:
    """List which tools each subset of tools has, (subsets, 4) bool; bit i of a subset's number is tool i."""
    numbers = np.arange(SUBSETS)
    return np.stack([numbers >> i & 1 for i in range(len(TOOLS))], axis=1).astype(bool)


AGENT_IS_PRESENT = _list_present_agents()
SUBSET_HAS_TOOL = _list_tool_subsets()
# Which agent may get which atom, (3, NUM_ATOMS) bool: the first A atoms are the first agent's, and so on.
AGENT_MAY_HAVE_ATOM = np.kron(np.eye(len(AGENTS), dtype=bool), np.ones((1, ATOMS_PER_AGENT), bool))


# Structures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StructureTable:
    """What n structures set up, whatever the question.

    Attributes:
        workflow: (n,) number of the workflow.
        is_present: (n, 3) bool, whether the workflow has the agent.
        has_tool: (n, 2, 4) bool, whether an agent that is present has the tool.
        tiers: (n, 3) tier of each agent's budget, 0 to 2.
        num_calls: (n,) calls of agents in an episode.
        num_tokens: (n,) tokens that agents write in an episode.
        num_allocated: (n,) tools allocated to both agents together.
    """

    workflow: np.ndarray
    is_present: np.ndarray
    has_tool: np.ndarray
    tiers: np.ndarray
    num_calls: np.ndarray
    num_tokens: np.ndarray
    num_allocated: np.ndarray

    @classmethod
    def from_structures(
        cls, structures: np.ndarray, tokens_by_tier: Sequence[int]
    ) -> StructureTable:
        """Read what structures set up.

        Args:
            structures: (n, 6) valid structures, see `action_space`.
            tokens_by_tier: Tokens of the budgets low, medium and high.

        Returns:
            The table.
        """
        workflow = structures[:, 0]
        tools = structures[:, 1:3]
        tiers = structures[:, 3:6]
        is_present = AGENT_IS_PRESENT[workflow]
        has_tool = SUBSET_HAS_TOOL[tools] & is_present[:, :2, None]
        budget_tokens = np.asarray(tokens_by_tier)[tiers]  # (n, 3)
        return cls(
            workflow=workflow,
            is_present=is_present,
            has_tool=has_tool,
            tiers=tiers,
            num_calls=CALLS[workflow].sum(1),
            num_tokens=SHARE_OF_BUDGET_WRITTEN * (CALLS[workflow] * budget_tokens).sum(1),
            num_allocated=has_tool.sum((1, 2)),
        )

    def __len__(self) -> int:
        return len(self.workflow)

    def select(self, indices: np.ndarray) -> StructureTable:
        """Select some of the structures.

        Args:
            rows: Their indices.

        Returns:
            The table of these structures.
        """
        return StructureTable(
            workflow=self.workflow[indices],
            is_present=self.is_present[indices],
            has_tool=self.has_tool[indices],
            tiers=self.tiers[indices],
            num_calls=self.num_calls[indices],
            num_tokens=self.num_tokens[indices],
            num_allocated=self.num_allocated[indices],
        )


@cache
def _make_table_of_all_structures(tokens_by_tier: tuple[int, ...]) -> StructureTable:
    return StructureTable.from_structures(action_space.list_structures(), tokens_by_tier)


# Worlds --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConfigurationWorlds:
    """A stack of worlds: what each part of a configuration adds to the logit, by kind of question.

    Attributes:
        workflow_effects: (worlds, kinds, 9) of each workflow.
        tool_effects: (worlds, kinds, 4) of each tool, once at least one agent has it.
        budget_effects: (worlds, kinds, 3, 3) by agent and tier.
        atom_effects: (worlds, kinds, 3, atoms) of each agent's atoms.
        noise: (worlds,) temperature of the logit.
        settings: Budgets, weights of the reward, and how policies are trained.
    """

    workflow_effects: np.ndarray
    tool_effects: np.ndarray
    budget_effects: np.ndarray
    atom_effects: np.ndarray
    noise: np.ndarray
    settings: ConfigurationSettings

    def __len__(self) -> int:
        return len(self.noise)

    def describe(self, structures: np.ndarray) -> StructureTable:
        """Describe what structures, (n, 6), set up under the budgets of the settings."""
        return StructureTable.from_structures(structures, self.settings.tiers)

    def compute_structure_logits(
        self, world: np.ndarray | int, kind: np.ndarray | int, table: StructureTable
    ) -> np.ndarray:
        """Compute the logit of a correct answer without any atom.

        Args:
            world: (n,) number of each episode's world, or one number for all.
            kind: (n,) number of each question's kind, or one number for all.
            table: The n structures.

        Returns:
            (n,) logits.
        """
        n = len(table)
        workflow_effects = np.broadcast_to(self.workflow_effects[world, kind], (n, len(WORKFLOWS)))
        workflow_term = workflow_effects[np.arange(n), table.workflow]

        # A tool counts once, whichever agent has it.
        any_agent_has_tool = table.has_tool.any(1)  # (n, 4)
        tool_term = (any_agent_has_tool * self.tool_effects[world, kind]).sum(-1)

        num_tiers = self.budget_effects.shape[-1]
        budget_effects = np.broadcast_to(
            self.budget_effects[world, kind], (n, len(AGENTS), num_tiers)
        )
        effect_of_tier = np.take_along_axis(budget_effects, table.tiers[..., None], 2)[..., 0]
        budget_term = (table.is_present * effect_of_tier).sum(-1)
        return BASE_LOGIT + workflow_term + tool_term + budget_term

    def compute_success_probability(
        self,
        world: np.ndarray | int,
        kind: np.ndarray | int,
        table: StructureTable,
        has_atom: np.ndarray,
    ) -> np.ndarray:
        """Compute the probability of a correct answer, sigmoid(logit / noise).

        Args:
            world: (n,) number of each episode's world, or one number for all.
            kind: (n,) number of each question's kind, or one number for all.
            table: The n structures.
            has_atom: (n, 3, atoms) bool, the prompt instructions (atoms) in each agent's prompt.

        Returns:
            (n,) probabilities.
        """
        has_effect = table.is_present[..., None] * has_atom  # absent agents read nothing
        atom_term = (has_effect * self.atom_effects[world, kind]).sum((1, 2))
        logits = self.compute_structure_logits(world, kind, table) + atom_term
        return _sigmoid(logits / self.noise[world])

    def compute_reward(
        self,
        correct: np.ndarray,
        world: np.ndarray | int,
        kind: np.ndarray | int,
        table: StructureTable,
    ) -> np.ndarray:
        """Compute the reward of ARC, eq. 3. Agents use the tools that help with the kind of question.

        Args:
            correct: (n,) 0 or 1; or the probability of a correct answer, which gives the expected reward, since the
                reward is linear in `correct`.
            world: (n,) number of each episode's world, or one number for all.
            kind: (n,) number of each question's kind, or one number for all.
            table: The n structures.

        Returns:
            (n,) rewards.
        """
        tool_helps = self.tool_effects[world, kind] > 0
        num_used = (table.has_tool * tool_helps[..., None, :]).sum((-1, -2))
        max_tokens = 3.0 * max(self.settings.tiers)  # T_max
        weights = rewards.Weights(**self.settings.reward.model_dump())
        return rewards.reward(
            correct,
            table.num_calls,
            table.num_tokens,
            num_used,
            table.num_allocated,
            max_tokens,
            weights,
        )


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def make_world(
    settings: ConfigurationSettings, seed: int, interaction: float, noise: float
) -> ConfigurationWorlds:
    """Draw one synthetic environment (world) at random.

    An effect is deviation * (main + interaction * by_kind) with standard normal draws; by_kind sums to 0 over kinds.

    Args:
        settings: Budgets and weights of the reward.
        seed: Seed of the world.
        interaction: How much the effects depend on the kind of question; 0 makes all kinds alike.
        noise: Temperature of the logit.

    Returns:
        A stack of one world.
    """
    rng = seeds.rng(*STREAM, "world", seed=seed)

    def draw_effects(deviation: float, *shape: int) -> np.ndarray:
        main = rng.standard_normal(shape)
        by_kind = rng.standard_normal((len(KINDS), *shape))
        centered = by_kind - by_kind.mean(0)
        return deviation * (main + interaction * centered)[None]  # (1, kinds, *shape)

    # The order of the draws decides the numbers.
    budget_effects = draw_effects(BUDGET_DEVIATION, len(AGENTS), 3) + MEAN_BUDGET_EFFECTS
    workflow_effects = draw_effects(WORKFLOW_DEVIATION, len(WORKFLOWS))
    tool_effects = draw_effects(TOOL_DEVIATION, len(TOOLS))
    atom_effects = draw_effects(ATOM_DEVIATION, len(AGENTS), ATOMS_PER_AGENT)
    return ConfigurationWorlds(
        workflow_effects, tool_effects, budget_effects, atom_effects, np.array([noise]), settings
    )


def stack_worlds(worlds: Sequence[ConfigurationWorlds]) -> ConfigurationWorlds:
    """Stack environments with the same settings.

    Args:
        worlds: The environments.

    Returns:
        One stack, in the same order.
    """
    return ConfigurationWorlds(
        workflow_effects=np.concatenate([world.workflow_effects for world in worlds]),
        tool_effects=np.concatenate([world.tool_effects for world in worlds]),
        budget_effects=np.concatenate([world.budget_effects for world in worlds]),
        atom_effects=np.concatenate([world.atom_effects for world in worlds]),
        noise=np.concatenate([world.noise for world in worlds]),
        settings=worlds[0].settings,
    )


# Bounds --------------------------------------------------------------------------------------------

_STRUCTURES_AT_ONCE = 64  # that are tried with all sets of atoms


@dataclass(frozen=True)
class Bounds:
    """The best expected rewards in several worlds, by enumeration of every structure with every set of atoms.

    Attributes:
        optimum: (worlds, kinds) of the best configuration for each kind of question.
        optimal_workflow: (worlds, kinds) its workflow.
        constant: (worlds, kinds) of the one configuration with the best mean over kinds.
        constant_structure: (worlds, 6) its structure.
        constant_has_atom: (worlds, 3, atoms) bool, its atoms.
    """

    optimum: np.ndarray
    optimal_workflow: np.ndarray
    constant: np.ndarray
    constant_structure: np.ndarray
    constant_has_atom: np.ndarray


def compute_bounds(worlds: ConfigurationWorlds) -> Bounds:
    """Compute the optimum and the best constant of every world.

    Args:
        worlds: The worlds.

    Returns:
        Their bounds.
    """
    bounds_by_world = [_compute_bounds_of_world(worlds, world) for world in range(len(worlds))]
    return Bounds(
        optimum=np.concatenate([bounds.optimum for bounds in bounds_by_world]),
        optimal_workflow=np.concatenate([bounds.optimal_workflow for bounds in bounds_by_world]),
        constant=np.concatenate([bounds.constant for bounds in bounds_by_world]),
        constant_structure=np.concatenate(
            [bounds.constant_structure for bounds in bounds_by_world]
        ),
        constant_has_atom=np.concatenate([bounds.constant_has_atom for bounds in bounds_by_world]),
    )


def _compute_bounds_of_world(worlds: ConfigurationWorlds, world: int) -> Bounds:
    """Compute the optimum and the best constant of one environment by enumeration.

    Args:
        worlds: The environments.
        world: Number of the environment.

    Returns:
        The bounds, as a stack of one.
    """
    all_structures = _make_table_of_all_structures(tuple(worlds.settings.tiers))
    kinds = range(len(KINDS))

    # For one kind the best atoms are all that help, whatever the structure.
    gain_of_best_atoms = np.maximum(worlds.atom_effects[world], 0).sum(-1)  # (kinds, 3)
    logits = []
    best_rewards = []
    for kind in kinds:
        logit = worlds.compute_structure_logits(world, kind, all_structures)
        logit_with_atoms = logit + all_structures.is_present @ gain_of_best_atoms[kind]
        probability = _sigmoid(logit_with_atoms / worlds.noise[world])
        logits.append(logit)
        best_rewards.append(worlds.compute_reward(probability, world, kind, all_structures))
    best_rewards = np.stack(best_rewards)  # (kinds, structures)
    optimal = best_rewards.argmax(1)  # (kinds,)

    structure, has_atom = _find_best_constant(worlds, world, np.stack(logits), best_rewards)
    table = worlds.describe(structure[None])
    constant = []
    for kind in kinds:
        probability = worlds.compute_success_probability(world, kind, table, has_atom[None])
        constant.append(worlds.compute_reward(probability, world, kind, table)[0])
    return Bounds(
        optimum=best_rewards.max(1)[None],
        optimal_workflow=all_structures.workflow[optimal][None],
        constant=np.array(constant)[None],
        constant_structure=structure[None],
        constant_has_atom=has_atom[None],
    )


def _find_best_constant(
    worlds: ConfigurationWorlds, world: int, logits: np.ndarray, best_rewards: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the configuration with the highest mean reward over kinds.

    No set of atoms lifts a structure above the mean of its best rewards. So structures are tried in the order of this
    limit, until the limit is no higher than the best mean so far: exact without trying all 41,904 x 512.

    Args:
        worlds: The stack of worlds.
        world: Number of the world.
        logits: (kinds, structures) logit of each structure without atoms.
        best_rewards: (kinds, structures) expected reward of each structure with the best atoms for each kind.

    Returns:
        The structure (6,), and which agent gets which atom, (3, atoms) bool.
    """
    all_structures = _make_table_of_all_structures(tuple(worlds.settings.tiers))
    atom_sets = np.array(
        list(itertools.product([False, True], repeat=ATOMS_PER_AGENT))
    )  # (8, atoms)
    order = np.argsort(-best_rewards.mean(0), kind="stable")
    best_mean = -np.inf
    best_structure = 0
    best_sets = [0, 0, 0]  # of each agent, a row of atom_sets
    for first in range(0, len(order), _STRUCTURES_AT_ONCE):
        chunk = order[first : first + _STRUCTURES_AT_ONCE]
        if best_rewards[:, chunk[0]].mean() <= best_mean:
            break
        table = all_structures.select(chunk)
        totals = _sum_rewards_over_kinds(worlds, world, logits[:, chunk], table, atom_sets)
        highest_mean = totals.max() / len(KINDS)
        if highest_mean > best_mean:
            best_mean = highest_mean
            row, *best_sets = np.unravel_index(totals.argmax(), totals.shape)
            best_structure = chunk[row]
    return action_space.list_structures()[best_structure], atom_sets[best_sets]


def _sum_rewards_over_kinds(
    worlds: ConfigurationWorlds,
    world: int,
    logits: np.ndarray,
    table: StructureTable,
    atom_sets: np.ndarray,
) -> np.ndarray:
    """Sum the expected rewards over kinds, for n structures with every combination of the agents' atom sets.

    Args:
        worlds: The stack of worlds.
        world: Number of the world.
        logits: (kinds, n) logit of each structure without atoms.
        table: The structures.
        atom_sets: (8, atoms) bool, all sets of one agent's atoms.

    Returns:
        (n, 8, 8, 8) sums, by the sets of the first, second and third agent.
    """
    n = len(table)
    # Effect of each set of atoms, (kinds, 3, 8): the sum of the effects of its atoms.
    set_effects = np.einsum("sa,kga->kgs", atom_sets, worlds.atom_effects[world])
    total = 0.0
    for kind in range(len(KINDS)):
        first, second, third = (
            table.is_present[:, agent, None] * set_effects[kind, agent]  # (n, 8)
            for agent in range(len(AGENTS))
        )
        logit = (
            logits[kind][:, None, None, None]
            + first[:, :, None, None]
            + second[:, None, :, None]
            + third[:, None, None, :]
        )
        probability = _sigmoid(logit / worlds.noise[world])
        # The reward is linear in the probability: R(p) = R(0) + (R(1) - R(0)) p.
        reward_if_wrong = worlds.compute_reward(np.full(n, 0.0), world, kind, table)
        reward_if_correct = worlds.compute_reward(np.full(n, 1.0), world, kind, table)
        slope = reward_if_correct - reward_if_wrong
        total = (
            total + reward_if_wrong[:, None, None, None] + slope[:, None, None, None] * probability
        )
    return total
