"""Configurations without learning: everything switched on, a grid, a greedy climb, the best of a set.

These see labels of training questions through rewards, and nothing of test questions; only the oracle does, which is
no method but a bound. All of them choose from structures and base atoms, as a person would.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import SUBSETS, TOOLS, WORKFLOWS, Configuration, repaired
from lib.experiment import seeds

VERSION = 1  # of the configurations that are tried
GRID = 50  # configurations (ARC, 4.5)
BASE = Configuration(
    (0, SUBSETS - 1, 0, 2, 0, 2)
)  # the base model with all tools and the largest budgets
Score = Callable[[Sequence[Configuration]], np.ndarray]  # mean reward of each, (n,)


def grid(n: int = GRID) -> list[Configuration]:
    """n structures without atoms, evenly spread over all 62,208 and repaired where they are invalid.

    So every workflow has its part of them. A grid of more points is taken until n of them differ.
    """
    structures = np.indices(action_space.SIZES).reshape(len(action_space.SIZES), -1).T
    for num_points in range(n, action_space.total()):
        rows = np.linspace(0, len(structures) - 1, num_points).round().astype(int)
        distinct = list(dict.fromkeys(repaired(structures[row].tolist()) for row in rows))
        if len(distinct) >= n:
            return [Configuration(structure) for structure in distinct[:n]]
    return [Configuration(action_space.checked(row)) for row in action_space.structures().tolist()]


def sampled(n: int, atoms: Sequence[Sequence[str]], seed: int = 0) -> list[Configuration]:
    """Sample configurations for constants and the oracle.

    Workflows take turns; the tools of an agent are none, all or random; large budgets are as likely as the others
    together; each agent is told up to two atoms.

    Args:
        n: How many, all different.
        atoms: Names that each agent may be told.
        seed: Of the random numbers.
    """
    rng = seeds.rng("configuration", "sampled", seed=seed)
    configurations: dict[Configuration, None] = {}
    while len(configurations) < n:
        workflow = len(configurations) % len(WORKFLOWS)
        tools = [_sample_tools(rng) for _ in range(2)]
        budgets = rng.choice(3, size=3, p=[0.2, 0.3, 0.5]).tolist()
        structure = repaired((workflow, *tools, *budgets))
        present = action_space.agents(WORKFLOWS[workflow])
        chosen_atoms = tuple(
            _sample_atoms(atoms[agent], rng) if agent in present else () for agent in range(3)
        )
        configurations.setdefault(Configuration(structure, chosen_atoms))
    return list(configurations)


def _sample_tools(rng: np.random.Generator) -> int:
    subsets = (0, SUBSETS - 1, int(rng.integers(SUBSETS)))
    return int(subsets[int(rng.integers(3))])


def _sample_atoms(atoms: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    num_atoms = int(rng.integers(3))
    return tuple(atoms[i] for i in rng.permutation(len(atoms))[:num_atoms])


def neighbours(configuration: Configuration, dimension: str) -> list[Configuration]:
    """The configurations that differ in one dimension: other workflows or budgets, or one tool more or less."""
    index = list(action_space.DIMENSIONS).index(dimension)
    structure = configuration.structure
    current = structure[index]
    if dimension.startswith("tools"):
        values = [current ^ (1 << i) for i in range(len(TOOLS))]
    else:
        values = [value for value in range(action_space.SIZES[index]) if value != current]

    # A structure that was changed may have to be repaired, and then be one that is there already.
    changed = [repaired((*structure[:index], value, *structure[index + 1 :])) for value in values]
    distinct = [other for other in dict.fromkeys(changed) if other != structure]
    return [Configuration(other, _drop_absent(other, configuration.atoms)) for other in distinct]


def _drop_absent(structure: action_space.Structure, atoms: tuple) -> tuple:
    """The atoms of agents that a structure has."""
    present = action_space.agents(WORKFLOWS[structure[0]])
    return tuple(of_agent if agent in present else () for agent, of_agent in enumerate(atoms))


def instructed(
    configuration: Configuration, agent: int, atoms: Sequence[str]
) -> list[Configuration]:
    """The configurations that tell one agent one atom more or one fewer.

    Args:
        configuration: Where from.
        agent: Which of the three; where the workflow has no such agent there are none.
        atoms: Names that it may be told.
    """
    if agent not in action_space.agents(configuration.workflow):
        return []
    current = configuration.atoms[agent]
    variants = [tuple(atom for atom in current if atom != dropped) for dropped in current]
    if len(current) < action_space.MAX_ATOMS:
        variants += [(*current, atom) for atom in atoms if atom not in current]
    before, after = configuration.atoms[:agent], configuration.atoms[agent + 1 :]
    return [
        Configuration(configuration.structure, (*before, variant, *after)) for variant in variants
    ]


def greedy(
    score: Score, start: Configuration = BASE, rounds: int = 1, atoms: Sequence[Sequence[str]] = ()
) -> tuple[Configuration, list[tuple[int, float]]]:
    """Climb one dimension at a time, keeping what has the highest reward.

    Args:
        score: Mean reward of each of several configurations.
        start: Where from.
        rounds: How often to go through all dimensions.
        atoms: Names that each agent may be told, tried after the structure of a round.

    Returns:
        The end, and (configurations tried, reward) on the way.
    """
    best = start
    num_tried = 1
    best_reward = float(score([start])[0])
    path = [(num_tried, best_reward)]
    steps = [partial(neighbours, dimension=dimension) for dimension in action_space.DIMENSIONS]
    steps += [partial(instructed, agent=agent, atoms=names) for agent, names in enumerate(atoms)]
    for _ in range(rounds):
        for step in steps:
            candidates = step(best)
            if not candidates:
                continue
            rewards = score(candidates)
            num_tried += len(candidates)
            if rewards.max() > best_reward:
                best = candidates[int(rewards.argmax())]
                best_reward = float(rewards.max())
            path.append((num_tried, best_reward))
    return best, path
