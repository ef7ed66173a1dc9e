"""Traces that teach the agent model: it obeys hints, uses tools where they help, and checks drafts step by step."""

import pytest

from lib import tasks
from lib.experiment import seeds
from lib.language_models.chat_template import format_tool_call
from lib.language_models.training.agent_traces import (
    BRIEF,
    CHECK,
    STEPS,
    agrees_with_trace,
    insert_mistake,
)
from lib.tasks import format_reply
from tests.language_models.traces import Shown, noted, of


@pytest.fixture(scope="module")
def solving() -> list[Shown]:
    return of("agent", "reasoner", "worker")


# Reasoner and worker ------------------------------------------------------------------------------


def test_be_brief_is_obeyed_and_otherwise_the_agent_thinks_what_no_tool_tells(solving):
    seen = set()
    for shown in solving:
        assert shown.alone and shown.told in ("", BRIEF, STEPS)
        brief, used = shown.told == BRIEF, bool(shown.calls)
        assert shown.thoughts == ([] if brief or used else shown.needed), shown.messages
        seen.add((brief, used))
    assert len(seen) == 4


def test_tools_are_used_exactly_where_they_are_on_offer_and_help(solving):
    seen = set()
    for shown in solving:
        helpful = {"big": {"calculator"}, "facts": {"lookup", "search"}}.get(
            shown.item.group, set()
        )
        offered = helpful & set(shown.tools)
        preferred = offered - {"search"} if "lookup" in offered else offered
        assert {name for name, _ in shown.calls} == preferred, shown.messages
        seen.add((shown.item.group, bool(offered)))
    assert (
        len(seen) == 6
    )  # big numbers and facts with a tool and without, chains and passages without


def test_the_calculator_is_asked_for_the_sum_and_facts_are_looked_up_hop_by_hop(solving):
    for shown in solving:
        if shown.looked_up:
            assert shown.looked_up == shown.needed[: shown.item.difficulty]
        elif shown.calls:
            assert shown.calls == [("calculator", shown.item.prompt.removesuffix(" = ?"))]
            assert shown.results == [shown.answer]


# Verifier -----------------------------------------------------------------------------------------


def test_the_checked_steps_are_right_and_end_at_the_first_slip():
    careful = 0
    for shown in of("agent", "verifier"):
        assert bool(shown.thoughts) == (shown.told == CHECK) and shown.tools == []
        if shown.thoughts:
            steps = zip(noted(shown.shown[0][1])[0], shown.needed, strict=True)
            slips = [i for i, (drafted, correct) in enumerate(steps) if drafted != correct]
            assert shown.thoughts == shown.needed[: slips[0] + 1 if slips else None], shown.messages
            careful += 1
    assert careful > 50


def test_a_slip_of_a_chain_is_one_false_step_and_the_others_reckon_on_from_it():
    for item in tasks.draw_items("chain", "train", 100, seed=9):
        steps = item.worked_solution.split(" ; ")
        for at in range(len(steps)):
            out = insert_mistake(steps, at, seeds.rng("test", "slip", seed=at), follow=True)
            assert out[:at] == steps[:at]
            false = []
            for i, step in enumerate(out):
                a, sign, b, _, result = step.split()
                false += [i] if eval(f"{a} {sign} {b}") % 10 != int(result) else []
                assert i == 0 or a == out[i - 1].split()[-1]
                assert step.split()[1:3] == steps[i].split()[1:3]
            assert false == [at]


def test_a_slip_elsewhere_changes_one_result_into_another_of_its_kind():
    for name in ("big", "facts", "passage"):
        for number, item in enumerate(tasks.draw_items(name, "train", 60, surface_form="any")):
            steps = item.worked_solution.split(" ; ")
            at = number % len(steps)
            out = insert_mistake(steps, at, seeds.rng("test", "slip", seed=number), follow=False)
            before, after = steps[at].split(), out[at].split()
            assert before[:-1] == after[:-1] and before[-1] != after[-1]
            assert before[-1].isdigit() == after[-1].isdigit() and len(out) == len(steps)
            assert [s for i, s in enumerate(out) if i != at] == [
                s for i, s in enumerate(steps) if i != at
            ]


# Answerer, and what counts as the same turn -------------------------------------------------------


def test_the_answerer_is_shown_votes_or_the_evidence_and_no_tools():
    kinds = set()
    for shown in of("agent", "answerer"):
        ((kind, given),) = shown.shown
        assert (
            kind == "votes" or given == shown.item.worked_solution
        ) and shown.tools == [] == shown.thoughts
        kinds.add(kind)
    assert kinds == {"votes", "evidence"}


def test_a_turn_agrees_with_a_trace_in_what_it_does_and_not_in_its_words():
    asked = format_tool_call("calculator", "4 + 7")
    assert agrees_with_trace(asked, asked) and not agrees_with_trace(
        format_tool_call("calculator", "4 + 8"), asked
    )
    assert not agrees_with_trace(format_reply("11"), asked) and not agrees_with_trace(
        asked, format_reply("11")
    )
    assert agrees_with_trace(format_reply("11", "4 + 7 = 11"), format_reply("11"))
    assert not agrees_with_trace("11", format_reply("11"))
