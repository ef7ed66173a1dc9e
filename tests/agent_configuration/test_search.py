"""Configurations without learning: an even grid, sampled ones, and a climb that finds the top of a known hill."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.agent_configuration import action_space, search
from lib.agent_configuration.action_space import Configuration
from tests.agent_configuration.small import NAMES

TOLD = (NAMES[:4], NAMES[4:5], NAMES[5:])


def test_the_base_is_one_call_with_all_tools_and_the_largest_budget():
    assert (
        search.BASE.workflow == "direct"
        and search.BASE.tools(0) == action_space.TOOLS
        and search.BASE.tier(0) == 2
    )
    assert search.BASE.atoms == ((), (), ())


@pytest.mark.parametrize("n", [9, 17, 50, 200])
def test_a_grid_has_as_many_different_structures_of_all_workflows_as_are_wanted(n):
    configurations = search.make_grid(n)
    assert len(configurations) == len(set(configurations)) == n and all(
        configuration.atoms == ((), (), ()) for configuration in configurations
    )
    assert {configuration.workflow for configuration in configurations} == set(
        action_space.WORKFLOWS
    )


def test_the_grid_spreads_fifty_structures_over_every_dimension():
    configurations = search.make_grid()
    assert (
        configurations == search.make_grid(50)
        and min(Counter(configuration.workflow for configuration in configurations).values()) >= 3
    )
    columns = np.array([configuration.structure for configuration in configurations]).T
    assert all(
        len(set(column)) >= least
        for column, least in zip(columns, (9, 10, 10, 3, 3, 3), strict=True)
    )


def test_sampled_configurations_are_different_and_always_the_same():
    configurations = search.sample_configurations(90, TOLD)
    assert len(configurations) == len(
        set(configurations)
    ) == 90 and configurations == search.sample_configurations(
        90, TOLD
    ) != search.sample_configurations(90, TOLD, seed=1)
    assert set(Counter(configuration.workflow for configuration in configurations).values()) == {10}


def test_sampled_atoms_are_at_most_two_of_agents_that_are_there():
    configurations = search.sample_configurations(300, TOLD)
    lengths = Counter()
    for configuration in configurations:
        for agent, atoms in enumerate(configuration.atoms):
            assert set(atoms) <= set(TOLD[agent]) and len(set(atoms)) == len(atoms) <= 2
            assert not atoms or agent in action_space.list_agents(configuration.workflow)
            lengths[agent, len(atoms)] += 1
    assert all(lengths[agent, n] > 20 for agent, n in ((0, 0), (0, 1), (0, 2), (1, 1), (2, 2)))


# Neighbours ----------------------------------------------------------------------------------------

STRUCTURE = st.tuples(*(st.integers(0, size - 1) for size in action_space.SIZES)).map(
    action_space.repair_structure
)


@settings(deadline=None)
@given(STRUCTURE, st.sampled_from(list(action_space.DIMENSIONS)))
def test_neighbours_differ_in_one_dimension_and_in_what_the_workflow_pins(structure, dimension):
    at = list(action_space.DIMENSIONS).index(dimension)
    near = search.list_structure_neighbours(Configuration(structure), dimension)
    assert len(near) == len(set(near))
    for configuration in near:
        differing = {i for i in range(6) if configuration.structure[i] != structure[i]}
        pinned = {2, 4} if configuration.workflow in action_space.SINGLE else set()
        assert at in differing and differing <= {at} | (
            pinned if dimension == "workflow" else set()
        )
    has_no_second_agent = action_space.WORKFLOWS[structure[0]] in action_space.SINGLE
    counts = {
        "workflow": 8,
        "tools1": 4,
        "tools2": 0 if has_no_second_agent else 4,
        "budget2": 0 if has_no_second_agent else 2,
    }
    assert len(near) == counts.get(dimension, 2)
    if dimension.startswith("tools"):
        assert all(
            (configuration.structure[at] ^ structure[at]).bit_count() == 1 for configuration in near
        )


# The climb -----------------------------------------------------------------------------------------

TOP = (7, 5, 10, 1, 2, 0)


def height(configuration: Configuration) -> float:
    """Minus the distance from the top, counted in values that differ and in tools."""
    w, a, b, x, y, z = configuration.structure
    tools = (a ^ TOP[1]).bit_count() + (b ^ TOP[2]).bit_count()
    return -float((w != TOP[0]) * 20 + tools + abs(x - TOP[3]) + abs(y - TOP[4]) + abs(z - TOP[5]))


def scored(near):
    return np.array([height(configuration) for configuration in near])


def test_the_climb_goes_to_the_top_of_a_hill():
    """One tool a round and set: from BASE, tools1 has two too many and tools2 lacks two."""
    best, path = search.search_greedily(scored, rounds=2)
    assert best.structure == TOP and path[-1][1] == 0.0
    assert search.search_greedily(scored, rounds=1)[0].structure == (7, 13, 2, 1, 2, 0)
    best, path = search.search_greedily(scored, Configuration(TOP), rounds=3)
    assert best.structure == TOP and {reward for _, reward in path} == {
        0.0
    }  # where nothing is better


def test_the_climb_tries_each_neighbour_once_a_round_and_never_goes_down():
    num_candidates = []

    def score(near):
        num_candidates.extend(near)
        return scored(near)

    _, path = search.search_greedily(score, rounds=1)
    num_tried_so_far, rewards = zip(*path, strict=True)
    assert (
        num_tried_so_far == (1, 1 + 8, 9 + 4, 13 + 4, 17 + 2, 19 + 2, 21 + 2)
        and len(num_candidates) == 23
    )
    assert list(rewards) == sorted(rewards) and rewards[0] == height(search.BASE)


def test_one_atom_more_or_fewer_for_an_agent_of_the_workflow():
    start = Configuration((1, 0, 0, 2, 0, 2), (("a", "b"), (), ()))
    near = search.list_prompt_neighbours(start, 0, ["a", "b", "c"])
    assert [configuration.atoms[0] for configuration in near] == [("b",), ("a",), ("a", "b", "c")]
    assert {configuration.structure for configuration in near} == {start.structure}
    assert search.list_prompt_neighbours(start, 1, ["x"]) == []  # nobody checks in this workflow
    full = Configuration((1, 0, 0, 2, 0, 2), (("a", "b", "c"), (), ()))
    assert all(
        len(configuration.atoms[0]) == 2
        for configuration in search.list_prompt_neighbours(full, 0, ["a", "b", "c", "d"])
    )


def test_the_climb_finds_an_atom_that_pays():
    def score(near):
        return np.array(
            [
                float("good" in configuration.atoms[0]) - 0.1 * len(configuration.atoms[0])
                for configuration in near
            ]
        )

    best, path = search.search_greedily(score, atoms=[["bad", "good"], [], ["x"]])
    assert best.atoms == (("good",), (), ()) and best.structure == search.BASE.structure
    without, shorter = search.search_greedily(score)
    assert without.atoms == ((), (), ()) and shorter[-1][0] < path[-1][0]


def test_neighbours_are_told_what_the_configuration_is_told():
    start = Configuration((2, 1, 1, 0, 0, 0), ((NAMES[0],), (), ()))
    assert {
        configuration.atoms for configuration in search.list_structure_neighbours(start, "budget1")
    } == {start.atoms}
