"""Kinds of errors: one episode by hand for each, and which kind comes first where several fit."""

from dataclasses import replace

import pytest

from lib.configuration import taxonomy
from lib.configuration.space import Configuration
from lib.configuration.system import Outcome
from lib.configuration.taxonomy import classify
from lib.configuration.team import Note
from lib.tasks import Item
from tests.configuration.small import CHAIN, LONG

FACT = Item(
    "What is the pet of the friend of Ana ?", "cat", "the friend of Ana is Bo ; the pet of Bo is cat", "facts", 2,
    "facts/pet/friend/Ana",
)  # fmt: skip
MIXED = Item(
    "What is the number of Ana + 38 ?", "85", "the number of Ana is 47 ; 40 + 30 = 70 ; 7 + 8 = 15 ; 70 + 15 = 85",
    "mixed", 1, "mixed/number/Ana/+38",
)  # fmt: skip
TOOLS, BARE = Configuration((1, 15, 0, 2, 0, 2)), Configuration((1, 0, 0, 2, 0, 2))


def outcome(*left: tuple[str, str | None], tools: tuple[str, ...] = (), right: bool = False) -> Outcome:
    """What notes of (steps, answer) left; the last one is the answer."""
    trail = tuple(Note("reasoner", 0, steps, answer, "", 0.0) for steps, answer in left)
    return Outcome(right, trail[-1].answer, "", len(trail), 1, 1, 1, 0.0, 0.0, len(tools), tools, 0, (), trail)


# Each kind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item, structure",
    [
        (LONG, (0, 15, 0, 2, 0, 2)),  # one call for three steps
        (LONG, (1, 15, 0, 0, 0, 2)),  # a low budget for three steps
        (FACT, (1, 1, 0, 2, 0, 2)),  # no search for a fact
        (MIXED, (1, 2, 0, 2, 0, 2)),  # no calculator for a sum
        (MIXED, (1, 1, 0, 2, 0, 2)),  # no search for a number
    ],
)
def test_a_workflow_a_budget_or_tools_that_cannot_do_are_an_error_of_configuration(item, structure):
    assert classify(item, Configuration(structure), outcome(("", "5"))) == "configuration"


@pytest.mark.parametrize(
    "item, structure",
    [
        (CHAIN, (0, 0, 0, 0, 0, 0)),  # a single step needs no more
        (LONG, (1, 0, 0, 1, 0, 0)),
        (FACT, (2, 0, 4, 1, 0, 0)),  # the second agent has the records
        (MIXED, (2, 8, 2, 1, 0, 0)),  # Python reckons, too
    ],
)
def test_what_can_do_is_no_error_of_configuration(item, structure):
    assert classify(item, Configuration(structure), outcome(("", "5"))) != "configuration"


def test_a_right_answer_that_was_there_and_not_given_is_one_of_extraction():
    said = "3 + 4 = 7 ; 7 * 2 = 4 ; 4 - 5 = 9"
    assert classify(LONG, BARE, outcome((said, "9"), ("", "4"))) == "extraction"
    assert classify(LONG, BARE, outcome((said, None))) == "extraction"
    assert (
        classify(FACT, TOOLS, outcome(("friend Ana : Bo ; pet Bo : cat", "dog"), tools=("lookup",) * 2)) == "extraction"
    )


def test_an_answer_without_the_steps_that_it_needs_is_one_of_reasoning():
    assert classify(LONG, BARE, outcome(("", "4"))) == "reasoning"


def test_the_right_operations_with_a_wrong_result_are_one_of_arithmetic():
    assert classify(LONG, BARE, outcome(("3 + 4 = 7 ; 7 * 2 = 5 ; 5 - 5 = 0", "0"))) == "arithmetic"
    assert classify(CHAIN, BARE, outcome(("3 + 4 = 8", "8"))) == "arithmetic"


@pytest.mark.parametrize(
    "told, tools",
    [("friend of Ana : The friend of Ana is Bo .", ("search",)), ("the friend of Ana is Bo ; nothing", ())],
)
def test_what_was_searched_for_and_not_found_is_a_gap_in_knowledge(told, tools):
    assert classify(FACT, TOOLS, outcome((told, "dog"), tools=tools)) == "knowledge"


def test_no_answer_at_all_is_one_of_reasoning_and_the_rest_is_unclassified():
    assert classify(FACT, TOOLS, outcome(("the friend of Ana is Bo", None))) == "reasoning"
    assert classify(FACT, TOOLS, outcome(("the friend of Ana is Bo ; the pet of Bo is dog", "dog"))) == "unclassified"


# Priority -----------------------------------------------------------------------------------------


def test_configuration_comes_before_everything():
    """Everything else fits as well: the right answer was there, steps are missing, nothing was found."""
    left = (("the friend of Ana is Bo ; nothing", "cat"), ("", "dog"))
    assert classify(FACT, BARE, outcome(*left)) == "configuration"
    assert classify(FACT, TOOLS, outcome(*left)) == "extraction"


def test_the_right_sum_given_to_a_tool_with_a_wrong_number_is_a_gap_in_knowledge():
    said = "number Bo : 12 ; 12 + 38 : 50"
    assert classify(MIXED, TOOLS, outcome((said, "50"), tools=("lookup", "calculator"))) == "knowledge"
    other = "number Ana : 47 ; 47 + 83 : 130"  # another sum than the question's
    assert classify(MIXED, TOOLS, outcome((other, "130"), tools=("lookup", "calculator"))) == "reasoning"


def test_every_kind_belongs_to_one_of_the_papers_four_or_to_none():
    assert set(taxonomy.GROUPS) == set(taxonomy.KINDS) and taxonomy.GROUPS["arithmetic"] == "execution"
    papers = {"policy configuration", "reasoning", "knowledge gap", "execution", "unclassified"}
    assert set(taxonomy.GROUPS.values()) == papers


def test_another_operation_or_a_missing_one_is_one_of_reasoning():
    assert classify(LONG, BARE, outcome(("3 + 4 = 7 ; 7 + 2 = 9 ; 9 - 5 = 4", "4"))) == "reasoning"
    assert classify(LONG, BARE, outcome(("3 + 4 = 7 ; 7 * 3 = 1 ; 1 - 5 = 6", "6"))) == "reasoning"
    assert classify(LONG, BARE, outcome(("3 + 4 = 7 ; 7 * 2 = 4", "4"))) == "reasoning"


def test_operations_that_are_spread_over_several_notes_count_together():
    left = (("3 + 4 = 7", None), ("7 * 2 = 4 ; 4 - 5 = 8", "8"))
    assert classify(LONG, BARE, outcome(*left)) == "arithmetic"


def test_a_right_answer_has_no_kind_of_error():
    with pytest.raises(ValueError, match="the answer '7' is right"):
        classify(CHAIN, BARE, outcome(("", "7"), right=True))


def test_extraction_comes_before_reasoning_and_arithmetic():
    said = "3 + 4 = 8 ; 8 * 2 = 6"
    assert classify(LONG, BARE, outcome((said, "1"))) == "reasoning"
    assert classify(LONG, BARE, outcome((said, "9"), ("", "1"))) == "extraction"


def test_reasoning_comes_before_arithmetic():
    """The first step slipped, and the third one is missing."""
    assert classify(LONG, BARE, outcome(("3 + 4 = 8 ; 8 * 2 = 6", "6"))) == "reasoning"
    assert classify(LONG, BARE, outcome(("3 + 4 = 8 ; 8 * 2 = 6 ; 6 - 5 = 1", "1"))) == "arithmetic"


def test_arithmetic_comes_before_knowledge():
    said = "number Ana : 47 ; 40 + 30 = 70 ; 7 + 8 = 16 ; 70 + 15 = 86"
    assert classify(MIXED, TOOLS, outcome((said, "86"), tools=("lookup",))) == "arithmetic"


def test_items_of_other_families_have_no_gap_in_knowledge():
    passage = replace(CHAIN, reference="Ana 3 so Ana ; Bo 7 so Bo", answer="Bo", category="passage")
    assert classify(passage, TOOLS, outcome(("Ana 3 so Ana ; nothing", "Ana"), tools=("search",))) == "unclassified"
