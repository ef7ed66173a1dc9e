"""What a context holds: Table 1, the numbers that each system decides by, and what is left to try."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.orchestration.contexts import (
    TABLE_1,
    DecisionContext,
    PolicyKnowledge,
    Query,
    State,
    ToolResult,
    compute_utilities,
)
from lib.orchestration.domain_descriptions import EDUCATION
from lib.orchestration.system_options import SystemOptions

POLICIES = ("SO-d1", "SO-d2")
CARDS = (
    PolicyKnowledge({}, {"calm": (0.5, 0.1, 0.0, 0.0), "dark": (0.0, 1.0, 0.0, 0.0)}),
    PolicyKnowledge({}, {"calm": (0.2, 0.9, 0.0, 0.0), "dark": (0.9, 0.0, 0.0, 0.0)}),
)
RESULTS = (
    ToolResult("SO-d2", 1, 8, (0.8, 0.1, 0.0, 0.0)),
    ToolResult("SO-d1", 1, 8, (0.4, 0.8, 0.0, 0.0)),
)
KO = DecisionContext(
    system="KO",
    domain=EDUCATION,
    policies=POLICIES,
    query=Query((0.75, 0.25, 0.0, 0.0), 1, 50),
    state=State({}, {}, "dark"),
    knowledge=CARDS,
)
TO = replace(KO, system="TO", knowledge=(), tool_results=RESULTS)


def test_the_systems_have_the_components_of_the_papers_table_1():
    shared = {"query", "state", "instr", "mem_s", "mem_l"}
    assert TABLE_1["KO"] == shared | {"know"}
    assert TABLE_1["TO"] == shared | {"tools"}
    assert TABLE_1["RO"] == shared | {"tools", "reflect"}
    for system, components in TABLE_1.items():
        assert SystemOptions(system).components == components
    assert SystemOptions().components == {"query", "state"}


def test_ko_decides_by_the_row_of_the_cards_that_applies():
    assert KO.results_by_policy() == {
        "SO-d1": CARDS[0].results["dark"],
        "SO-d2": CARDS[1].results["dark"],
    }
    calm = replace(KO, state=State({}, {}, "calm"))
    assert calm.results_by_policy()["SO-d2"] == (0.2, 0.9, 0.0, 0.0)


def test_to_and_ro_decide_by_what_their_calls_gave_and_by_no_card():
    results = {result.policy: result.results for result in RESULTS}
    for system in ("TO", "RO"):
        context = replace(TO, system=system, knowledge=CARDS)
        assert context.results_by_policy() == results


def test_utilities_are_the_weighted_results_in_the_order_of_the_menu():
    assert compute_utilities(KO) == pytest.approx([0.25, 0.675])
    assert compute_utilities(TO) == pytest.approx(
        [0.75 * 0.4 + 0.25 * 0.8, 0.75 * 0.8 + 0.25 * 0.1]
    )


def test_utilities_need_a_result_of_every_policy():
    with pytest.raises(KeyError, match="SO-d1"):
        compute_utilities(replace(TO, tool_results=RESULTS[:1]))


@given(st.permutations(range(2)), st.floats(0.1, 5.0))
def test_utilities_follow_the_menu_and_the_scale_of_the_weights(order, factor):
    weights = tuple(factor * weight for weight in TO.query.weights)
    shuffled = replace(
        TO,
        policies=tuple(POLICIES[i] for i in order),
        query=replace(TO.query, weights=weights),
    )
    np.testing.assert_allclose(
        compute_utilities(shuffled), factor * compute_utilities(TO)[list(order)]
    )


def test_a_system_must_decide_when_no_call_or_no_policy_is_left():
    assert KO.must_decide
    fresh = replace(TO, tool_results=(), calls_left=2)
    assert fresh.untried == POLICIES and not fresh.must_decide
    once = replace(TO, tool_results=RESULTS[:1], calls_left=1)
    assert once.untried == ("SO-d1",) and not once.must_decide
    assert replace(once, calls_left=0).must_decide
    assert replace(TO, calls_left=1).must_decide  # both were tried


@pytest.mark.parametrize(
    ("system", "without", "message"),
    [
        ("XO", (), "unknown system 'XO'; there are KO, TO, RO"),
        ("KO", ("tools",), "KO has no component"),
        ("TO", ("reflect",), "TO has no component"),
        ("RO", ("know", "mem_s"), r"RO has no component \['know'\]"),
        ("", ("mem_s",), "a baseline has no component"),
    ],
)
def test_a_system_or_component_that_is_not_in_table_1_is_refused(system, without, message):
    with pytest.raises(ValueError, match=message):
        SystemOptions(system, without=without)
