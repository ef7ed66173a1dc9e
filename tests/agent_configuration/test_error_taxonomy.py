"""Kinds of errors: one episode by hand for each, and which kind comes first where several fit."""

from dataclasses import replace

import pytest

from lib.agent_configuration import error_taxonomy
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer
from lib.agent_configuration.agent_team import Note
from lib.agent_configuration.error_taxonomy import classify
from lib.tasks import Item
from tests.agent_configuration.small import CHAIN, LONG

FACT = Item(
    "What is the pet of the friend of Ana ?",
    "cat",
    "the friend of Ana is Bo ; the pet of Bo is cat",
    "facts",
    2,
    "facts/pet/friend/Ana",
)
MIXED = Item(
    "What is the number of Ana + 38 ?",
    "85",
    "the number of Ana is 47 ; 40 + 30 = 70 ; 7 + 8 = 15 ; 70 + 15 = 85",
    "mixed",
    1,
    "mixed/number/Ana/+38",
)
PASSAGE = replace(
    CHAIN, worked_solution="Ana 3 so Ana ; Bo 7 so Bo", reference="Bo", group="passage"
)
TOOLS, BARE = Configuration((1, 15, 0, 2, 0, 2)), Configuration((1, 0, 0, 2, 0, 2))
SOLVED = "3 + 4 = 7 ; 7 * 2 = 4 ; 4 - 5 = 9"
SLIPPED = "number Ana : 47 ; 40 + 30 = 70 ; 7 + 8 = 16 ; 70 + 15 = 86"
NOT_FOUND = "the friend of Ana is Bo ; nothing"


def classified(
    item: Item, made: Configuration, *notes: tuple[str, str | None], tools=(), right: bool = False
) -> str:
    """The kind of error of an episode whose notes left these (steps, answer); the last one is the answer."""
    trail = tuple(Note("reasoner", 0, steps, answer, "", 0.0) for steps, answer in notes)
    answer, n = trail[-1].answer, len(tools)
    return classify(
        item,
        made,
        ConfiguredAnswer(right, answer, "", len(trail), 1, 1, 1, 0.0, 0.0, n, tools, 0, (), trail),
    )


@pytest.mark.parametrize(
    "item, structure, misconfigured",
    [
        (LONG, (0, 15, 0, 2, 0, 2), True),  # one call for three steps
        (LONG, (1, 15, 0, 0, 0, 2), True),  # a low budget for three steps
        (FACT, (1, 1, 0, 2, 0, 2), True),  # no search for a fact
        (MIXED, (1, 2, 0, 2, 0, 2), True),  # no calculator for a sum
        (MIXED, (1, 1, 0, 2, 0, 2), True),  # no search for a number
        (CHAIN, (0, 0, 0, 0, 0, 0), False),  # a single step needs no more
        (LONG, (1, 0, 0, 1, 0, 0), False),
        (FACT, (2, 0, 4, 1, 0, 0), False),  # the second agent has the records
        (MIXED, (2, 8, 2, 1, 0, 0), False),  # Python reckons, too
    ],
)
def test_a_workflow_a_budget_or_tools_that_cannot_do_are_an_error_of_configuration(
    item, structure, misconfigured
):
    assert (
        classified(item, Configuration(structure), ("", "5")) == "configuration"
    ) == misconfigured


@pytest.mark.parametrize(
    "kind, item, made, notes, tools",
    [
        # the right answer was there, and another one was given
        ("extraction", LONG, BARE, [(SOLVED, "9"), ("", "4")], ()),
        ("extraction", LONG, BARE, [(SOLVED, None)], ()),
        (
            "extraction",
            FACT,
            TOOLS,
            [("friend Ana : Bo ; pet Bo : cat", "dog")],
            ("lookup", "lookup"),
        ),
        # no answer, no steps, another sign, another number, a step that is missing
        ("reasoning", FACT, TOOLS, [("the friend of Ana is Bo", None)], ()),
        ("reasoning", LONG, BARE, [("", "4")], ()),
        ("reasoning", LONG, BARE, [("3 + 4 = 7 ; 7 + 2 = 9 ; 9 - 5 = 4", "4")], ()),
        ("reasoning", LONG, BARE, [("3 + 4 = 7 ; 7 * 3 = 1 ; 1 - 5 = 6", "6")], ()),
        ("reasoning", LONG, BARE, [("3 + 4 = 7 ; 7 * 2 = 4", "4")], ()),
        # the right operations with a wrong result, also where they are spread over several notes
        ("arithmetic", LONG, BARE, [("3 + 4 = 7 ; 7 * 2 = 5 ; 5 - 5 = 0", "0")], ()),
        ("arithmetic", CHAIN, BARE, [("3 + 4 = 8", "8")], ()),
        ("arithmetic", LONG, BARE, [("3 + 4 = 7", None), ("7 * 2 = 4 ; 4 - 5 = 8", "8")], ()),
        # what was searched for and not found
        (
            "knowledge",
            FACT,
            TOOLS,
            [("friend of Ana : The friend of Ana is Bo .", "dog")],
            ("search",),
        ),
        ("knowledge", FACT, TOOLS, [(NOT_FOUND, "dog")], ()),
        # the question's sum given to a tool with a wrong number; another sum than the question's
        (
            "knowledge",
            MIXED,
            TOOLS,
            [("number Bo : 12 ; 12 + 38 : 50", "50")],
            ("lookup", "calculator"),
        ),
        (
            "reasoning",
            MIXED,
            TOOLS,
            [("number Ana : 47 ; 47 + 83 : 130", "130")],
            ("lookup", "calculator"),
        ),
        # no rule fits; items of other families have no gap in knowledge
        (
            "unclassified",
            FACT,
            TOOLS,
            [("the friend of Ana is Bo ; the pet of Bo is dog", "dog")],
            (),
        ),
        ("unclassified", PASSAGE, TOOLS, [("Ana 3 so Ana ; nothing", "Ana")], ("search",)),
        # several fit: configuration, extraction, reasoning, arithmetic, knowledge
        ("configuration", FACT, BARE, [(NOT_FOUND, "cat"), ("", "dog")], ()),
        ("extraction", FACT, TOOLS, [(NOT_FOUND, "cat"), ("", "dog")], ()),
        ("extraction", LONG, BARE, [("3 + 4 = 8 ; 8 * 2 = 6", "9"), ("", "1")], ()),
        ("reasoning", LONG, BARE, [("3 + 4 = 8 ; 8 * 2 = 6", "1")], ()),
        ("reasoning", LONG, BARE, [("3 + 4 = 8 ; 8 * 2 = 6", "6")], ()),
        ("arithmetic", LONG, BARE, [("3 + 4 = 8 ; 8 * 2 = 6 ; 6 - 5 = 1", "1")], ()),
        ("arithmetic", MIXED, TOOLS, [(SLIPPED, "86")], ("lookup",)),
    ],
)
def test_an_error_is_of_the_first_kind_that_fits(kind, item, made, notes, tools):
    assert classified(item, made, *notes, tools=tools) == kind


def test_every_kind_belongs_to_one_of_the_papers_four_or_to_none():
    assert (
        set(error_taxonomy.GROUPS) == set(error_taxonomy.KINDS)
        and error_taxonomy.GROUPS["arithmetic"] == "execution"
    )
    papers = {"policy configuration", "reasoning", "knowledge gap", "execution", "unclassified"}
    assert set(error_taxonomy.GROUPS.values()) == papers


def test_a_right_answer_has_no_kind_of_error():
    with pytest.raises(ValueError, match="the answer '7' is right"):
        classified(CHAIN, BARE, ("", "7"), right=True)
