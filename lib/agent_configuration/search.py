"""Configurations without learning: everything switched on, a grid, a greedy climb, the best of a set.

These see labels of training questions through rewards, and nothing of test questions; only the oracle does, which is
no method but a bound. All of them choose from structures and base atoms, as a person would.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import (
    SUBSETS,
    TOOLS,
    WORKFLOWS,
    Configuration,
    repair_structure,
)
from lib.experiment import seeds

VERSION = 1  # of the configurations that are tried
GRID = 50  # configurations (ARC, 4.5)
_BUDGET_PROBABILITIES = (0.2, 0.3, 0.5)  # of a small, medium or large budget
BASE = Configuration(
    (0, SUBSETS - 1, 0, 2, 0, 2)
)  # the base model with all tools and the largest budgets
Score = Callable[[Sequence[Configuration]], np.ndarray]  # mean reward of each, (n,)


def make_grid(n: int = GRID) -> list[Configuration]:
    """Spread n configurations without atoms evenly over all 62,208 structures, so that every workflow has some.

    Invalid structures are repaired, which makes some of them equal; the grid is refined until n of them differ.

    Args:
        n: Number of configurations.

    Returns:
        Different configurations; fewer than n only where there are not so many.
    """
    structures = np.indices(action_space.SIZES).reshape(len(action_space.SIZES), -1).T
    for num_points in range(n, action_space.total()):
        rows = np.linspace(0, len(structures) - 1, num_points).round().astype(int)
        repaired_structures = [repair_structure(structures[row].tolist()) for row in rows]
        distinct = list(dict.fromkeys(repaired_structures))
        if len(distinct) >= n:
            return [Configuration(structure) for structure in distinct[:n]]
    return [
        Configuration(action_space.check_structure(row))
        for row in action_space.list_structures().tolist()
    ]


def sample_configurations(
    n: int, atoms: Sequence[Sequence[str]], seed: int = 0
) -> list[Configuration]:
    """Sample configurations for constants and the oracle.

    Workflows take turns, so that each has as many. Tools, budgets and instructions are random.

    Args:
        n: Number of configurations, all different.
        atoms: Names of the prompt instructions (atoms) that each agent may get.
        seed: Seed of the random numbers.

    Returns:
        The configurations.
    """
    rng = seeds.rng("configuration", "sampled", seed=seed)
    configurations: dict[Configuration, None] = {}  # a set that keeps the order
    while len(configurations) < n:
        # Workflows in turn, so that rare ones are sampled as often as others.
        workflow = len(configurations) % len(WORKFLOWS)
        # Two agents may have tools, and each of the three has a budget of tokens: small, medium or large.
        tools = [_sample_tools(rng) for _ in range(2)]
        budgets = rng.choice(3, size=3, p=_BUDGET_PROBABILITIES).tolist()

        # Agents that the workflow lacks get neither tools nor instructions.
        structure = repair_structure((workflow, *tools, *budgets))
        present = action_space.list_agents(WORKFLOWS[workflow])
        chosen_atoms = [()] * 3
        for agent in present:
            chosen_atoms[agent] = _sample_atoms(atoms[agent], rng)
        configurations.setdefault(Configuration(structure, tuple(chosen_atoms)))
    return list(configurations)


def _sample_tools(rng: np.random.Generator) -> int:
    """Sample a set of tools: none, all, or any, with the same probability."""
    subsets = (0, SUBSETS - 1, int(rng.integers(SUBSETS)))
    return int(subsets[int(rng.integers(3))])


def _sample_atoms(atoms: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    """Sample none, one or two of an agent's atoms."""
    num_atoms = int(rng.integers(3))
    return tuple(atoms[i] for i in rng.permutation(len(atoms))[:num_atoms])


def list_structure_neighbours(configuration: Configuration, dimension: str) -> list[Configuration]:
    """List the configurations that differ in one dimension: other workflows or budgets, or one tool more or less.

    Args:
        configuration: Where to start from.
        dimension: One of `action_space.DIMENSIONS`.

    Returns:
        Valid configurations. An agent that the new workflow lacks gets none.
    """
    index = list(action_space.DIMENSIONS).index(dimension)
    structure = configuration.structure
    current = structure[index]
    if dimension.startswith("tools"):
        # A set of tools is a bit mask: flip the bit of each tool.
        values = [current ^ (1 << tool) for tool in range(len(TOOLS))]
    else:
        values = [value for value in range(action_space.SIZES[index]) if value != current]

    # A changed structure may have to be repaired, and then be one that is in the list already.
    changed = [
        repair_structure((*structure[:index], value, *structure[index + 1 :])) for value in values
    ]
    neighbours = []
    for neighbour in dict.fromkeys(changed):
        if neighbour != structure:
            atoms = _drop_absent_agents(neighbour, configuration.atoms)
            neighbours.append(Configuration(neighbour, atoms))
    return neighbours


def _drop_absent_agents(structure: action_space.Structure, atoms: tuple) -> tuple:
    """Keep the atoms of the agents that a structure has, and none for the others."""
    present = action_space.list_agents(WORKFLOWS[structure[0]])
    return tuple(
        atoms_of_agent if agent in present else () for agent, atoms_of_agent in enumerate(atoms)
    )


def list_prompt_neighbours(
    configuration: Configuration, agent: int, atoms: Sequence[str]
) -> list[Configuration]:
    """List the configurations that differ in one prompt instruction (atom) of one agent.

    Args:
        configuration: Where to start from.
        agent: Which of the three; where the workflow has no such agent there are none.
        atoms: Names of the prompt instructions (atoms) that it may get.

    Returns:
        The configurations.
    """
    if agent not in action_space.list_agents(configuration.workflow):
        return []
    current = configuration.atoms[agent]
    # One atom fewer, then one more where there is room.
    variants = [tuple(atom for atom in current if atom != dropped) for dropped in current]
    if len(current) < action_space.MAX_ATOMS:
        variants += [(*current, atom) for atom in atoms if atom not in current]
    neighbours = []
    for variant in variants:
        atoms_by_agent = list(configuration.atoms)
        atoms_by_agent[agent] = variant
        neighbours.append(Configuration(configuration.structure, tuple(atoms_by_agent)))
    return neighbours


def search_greedily(
    score: Score, start: Configuration = BASE, rounds: int = 1, atoms: Sequence[Sequence[str]] = ()
) -> tuple[Configuration, list[tuple[int, float]]]:
    """Climb one dimension at a time: move to the best neighbour, if it is better.

    Args:
        score: Mean reward of each of several configurations.
        start: Where to start from.
        rounds: How often to go through all dimensions.
        atoms: Names of the atoms that each agent may get, tried after the structure of a round.

    Returns:
        The configuration at the end, and for each step (configurations tried so far, best reward so far).
    """
    best = start
    num_candidates = 1
    best_reward = float(score([start])[0])
    path = [(num_candidates, best_reward)]
    neighbourhoods = [
        partial(list_structure_neighbours, dimension=dimension)
        for dimension in action_space.DIMENSIONS
    ]
    neighbourhoods += [
        partial(list_prompt_neighbours, agent=agent, atoms=names)
        for agent, names in enumerate(atoms)
    ]
    for _ in range(rounds):
        for list_neighbours in neighbourhoods:
            candidates = list_neighbours(best)
            if not candidates:
                continue
            rewards = score(candidates)
            num_candidates += len(candidates)
            # Only a strictly better neighbour is taken, which ends the climb on a plateau.
            if rewards.max() > best_reward:
                best = candidates[int(rewards.argmax())]
                best_reward = float(rewards.max())
            path.append((num_candidates, best_reward))
    return best, path
