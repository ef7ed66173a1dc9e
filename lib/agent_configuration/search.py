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
    """n structures without atoms, evenly spread over all 62,208 with what is invalid repaired, so that every workflow
    has its share of them."""
    every = np.indices(action_space.SIZES).reshape(len(action_space.SIZES), -1).T
    for points in range(n, action_space.total()):
        picked = np.linspace(0, len(every) - 1, points).round().astype(int)
        found = list(dict.fromkeys(repaired(every[i].tolist()) for i in picked))
        if len(found) >= n:
            return [Configuration(structure) for structure in found[:n]]
    return [Configuration(action_space.checked(row)) for row in action_space.structures().tolist()]


def sampled(n: int, atoms: Sequence[Sequence[str]], seed: int = 0) -> list[Configuration]:
    """n configurations for constants and the oracle: workflows in turn, tools of both agents none, all or drawn,
    budgets drawn with the large ones as likely as the others together, up to two atoms for each agent.

    atoms: names that each agent may be told.
    """
    rng = seeds.rng("configuration", "sampled", seed=seed)
    out: dict[Configuration, None] = {}
    while len(out) < n:
        workflow = len(out) % len(WORKFLOWS)
        tools = [_tools(rng) for _ in range(2)]
        budgets = rng.choice(3, size=3, p=[0.2, 0.3, 0.5]).tolist()
        structure = repaired((workflow, *tools, *budgets))
        told = tuple(
            _some(atoms[a], rng) if a in action_space.agents(WORKFLOWS[workflow]) else ()
            for a in range(3)
        )
        out.setdefault(Configuration(structure, told))
    return list(out)


def _tools(rng: np.random.Generator) -> int:
    return int((0, SUBSETS - 1, int(rng.integers(SUBSETS)))[int(rng.integers(3))])


def _some(atoms: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    wanted = int(rng.integers(3))
    return tuple(atoms[i] for i in rng.permutation(len(atoms))[:wanted])


def neighbours(configuration: Configuration, dimension: str) -> list[Configuration]:
    """The configurations that differ in one dimension: other workflows or budgets, or one tool more or less."""
    at = list(action_space.DIMENSIONS).index(dimension)
    now = configuration.structure[at]
    if dimension.startswith("tools"):
        values = [now ^ (1 << i) for i in range(len(TOOLS))]
    else:
        values = [value for value in range(action_space.SIZES[at]) if value != now]
    changed = [
        (*configuration.structure[:at], value, *configuration.structure[at + 1 :])
        for value in values
    ]
    found = {repaired(structure): None for structure in changed}
    return [
        Configuration(s, _kept(s, configuration.atoms))
        for s in found
        if s != configuration.structure
    ]


def _kept(structure: action_space.Structure, atoms: tuple) -> tuple:
    """The atoms of agents that a structure has."""
    present = action_space.agents(WORKFLOWS[structure[0]])
    return tuple(told if agent in present else () for agent, told in enumerate(atoms))


def instructed(
    configuration: Configuration, agent: int, atoms: Sequence[str]
) -> list[Configuration]:
    """The configurations that tell one agent one atom more or one fewer; none where the workflow has no such agent."""
    if agent not in action_space.agents(configuration.workflow):
        return []
    told = configuration.atoms[agent]
    fewer = [tuple(atom for atom in told if atom != gone) for gone in told]
    more = (
        [(*told, atom) for atom in atoms if atom not in told]
        if len(told) < action_space.MAX_ATOMS
        else []
    )
    every = configuration.atoms
    return [
        Configuration(configuration.structure, (*every[:agent], one, *every[agent + 1 :]))
        for one in (*fewer, *more)
    ]


def greedy(
    score: Score, start: Configuration = BASE, rounds: int = 1, atoms: Sequence[Sequence[str]] = ()
) -> tuple[Configuration, list[tuple[int, float]]]:
    """Climb one dimension at a time, keeping what is paid best; returns the end and (configurations tried, reward).

    rounds: how often to go through all dimensions; atoms: names that each agent may be told, tried after the
    structure of a round, one more or fewer at a time.
    """
    best, tried = start, 1
    reward = float(score([start])[0])
    path = [(tried, reward)]
    steps = [partial(neighbours, dimension=dimension) for dimension in action_space.DIMENSIONS]
    steps += [partial(instructed, agent=agent, atoms=names) for agent, names in enumerate(atoms)]
    for _ in range(rounds):
        for step in steps:
            near = step(best)
            if not near:
                continue
            paid = score(near)
            tried += len(near)
            if paid.max() > reward:
                best, reward = near[int(paid.argmax())], float(paid.max())
            path.append((tried, reward))
    return best, path
