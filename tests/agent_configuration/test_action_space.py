"""The space of configurations, counted once more; what is masked, repaired and refused."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import Configuration, SpaceError

ALONE = {0, 1, 5}  # direct, reason and voting: no second agent (ARC, appendix A)
STRUCTURE = st.tuples(*(st.integers(0, size - 1) for size in (9, 16, 16, 3, 3, 3)))


EVERY = set(product(range(9), range(16), range(16), range(3), range(3), range(3)))
POSSIBLE = {
    s for s in EVERY if s[0] not in ALONE or (s[2] == 0 and s[4] == 0)
}  # by the words of the paper


# How many ------------------------------------------------------------------------------------------


def test_there_are_62_208_structures_and_41_904_valid_ones_each_listed_once_and_in_order():
    assert action_space.total() == len(EVERY) == 62_208
    assert action_space.valid() == len(POSSIBLE) == 6 * 6_912 + 3 * 144 == 41_904
    assert [tuple(row) for row in action_space.list_structures().tolist()] == sorted(POSSIBLE)


def test_the_nine_workflows_stand_in_the_order_of_the_paper():
    assert action_space.WORKFLOWS == (
        "direct",
        "reason",
        "verify",
        "routing",
        "sectioning",
        "voting",
        "orchestrator",
        "evaluator",
        "autonomous",
    )
    assert {action_space.WORKFLOWS.index(name) for name in action_space.SINGLE} == ALONE


# Masks ---------------------------------------------------------------------------------------------


def test_only_the_second_agents_tools_and_budget_are_ever_masked():
    sizes = {"workflow": 9, "tools1": 16, "tools2": 16, "budget1": 3, "budget2": 3, "budget3": 3}
    assert {name: rows.shape for name, rows in action_space.make_masks().items()} == {
        name: (9, n) for name, n in sizes.items()
    }
    for name, rows in action_space.make_masks().items():
        for workflow in range(9):
            pinned = name in ("tools2", "budget2") and workflow in ALONE
            assert rows[workflow].tolist() == [True] + [not pinned] * (sizes[name] - 1)


@given(STRUCTURE)
def test_a_repaired_structure_is_valid_and_differs_only_where_it_was_pinned(structure):
    repaired = action_space.repair_structure(structure)
    assert repaired in POSSIBLE
    assert repaired == (
        structure if structure in POSSIBLE else (*structure[:2], 0, structure[3], 0, structure[5])
    )
    assert action_space.repair_structure(repaired) == repaired


@given(STRUCTURE)
def test_what_is_valid_passes_as_it_is_and_what_is_not_is_refused(structure):
    if structure in POSSIBLE:
        assert (
            action_space.check_structure(structure)
            == structure
            == Configuration(structure).structure
        )
        checked = action_space.check_structure(np.array(structure))
        assert checked == structure and {type(value) for value in checked} == {int}  # plain numbers
    else:
        with pytest.raises(SpaceError, match="has no second agent"):
            Configuration(structure)


@pytest.mark.parametrize(
    "structure, complaint",
    [
        ((9, 0, 0, 0, 0, 0), "workflow lies in 0 to 8, not 9"),
        ((-1, 0, 0, 0, 0, 0), "workflow lies in 0 to 8, not -1"),
        ((2, 16, 0, 0, 0, 0), "tools1 lies in 0 to 15, not 16"),
        ((2, 0, -3, 0, 0, 0), "tools2 lies in 0 to 15, not -3"),
        ((2, 0, 0, 0, 0, 3), "budget3 lies in 0 to 2, not 3"),
        ((0, 0, 4, 0, 0, 0), "direct has no second agent: tools2 must be 0, not 4"),
        ((5, 0, 0, 0, 2, 0), "voting has no second agent: budget2 must be 0, not 2"),
        (
            (0, 0, 0),
            "a structure has the 6 numbers workflow, tools1, tools2, budget1, budget2, budget3, not 3",
        ),
    ],
)
def test_an_error_names_the_dimension_the_value_and_what_is_allowed(structure, complaint):
    with pytest.raises(SpaceError) as error:
        action_space.check_structure(structure)
    assert str(error.value) == complaint


# Configurations ------------------------------------------------------------------------------------


def test_a_workflow_has_the_agents_of_the_paper():
    assert action_space.list_agents("direct") == (0,)
    assert {name: action_space.list_agents(name) for name in ("reason", "voting")} == {
        "reason": (0, 2),
        "voting": (0, 2),
    }
    for workflow in set(range(9)) - ALONE:
        assert action_space.list_agents(action_space.WORKFLOWS[workflow]) == (0, 1, 2)


def test_equal_configurations_have_one_digest_and_others_another():
    structure, atoms = (2, 5, 8, 0, 1, 2), (("a",), (), ("b", "c"))
    other_atoms = [((), (), ()), (("a",), (), ("c", "b")), ((), ("a",), ("b", "c"))]
    digests = [Configuration(structure, names).digest for names in (atoms, *other_atoms)]
    assert len({*digests, Configuration((2, 5, 8, 0, 1, 1), atoms).digest}) == 5
    assert Configuration(structure, atoms).digest == digests[0]


def test_each_bit_is_a_tool_and_none_is_the_empty_set():
    assert action_space.list_tools(0) == () and action_space.list_tools(15) == (
        "calculator",
        "search",
        "lookup",
        "python",
    )
    assert [action_space.list_tools(1 << i) for i in range(4)] == [
        ("calculator",),
        ("search",),
        ("lookup",),
        ("python",),
    ]
    assert (
        action_space.encode_tools(["python", "calculator"]) == 9
        and action_space.encode_tools(["search", "search"]) == 2
    )
    assert all(
        action_space.encode_tools(action_space.list_tools(number)[::-1]) == number
        for number in range(16)
    )


def test_an_unknown_tool_is_named_with_those_that_there_are():
    with pytest.raises(
        SpaceError, match="no tool 'browser'; there are calculator, search, lookup, python"
    ):
        action_space.encode_tools(["search", "browser"])


def test_a_configuration_tells_what_each_agent_has():
    configuration = Configuration((2, 5, 8, 0, 1, 2))
    assert configuration.workflow == "verify"
    assert [configuration.tools(agent) for agent in range(3)] == [
        ("calculator", "lookup"),
        ("python",),
        (),
    ]
    assert [configuration.tier(agent) for agent in range(3)] == [0, 1, 2]


@given(STRUCTURE.filter(lambda structure: structure in POSSIBLE))
def test_tools_are_counted_of_agents_that_the_workflow_has(structure):
    both = structure[0] not in ALONE
    expected = bin(structure[1]).count("1") + both * bin(structure[2]).count("1")
    assert Configuration(structure).allocated == expected
