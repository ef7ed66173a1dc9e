"""Traces that teach a team: what each agent says follows from what it is shown, from its tools and from its hints."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import tasks
from lib.language_models.training.agent_traces import BRIEF, CHECK, STEPS
from lib.language_models.training.team_traces import (
    DECOYS,
    NOTHING,
    TOOL_HINTS,
    answer_in_words,
    list_moves,
    split_plan,
    split_work,
    write_notes,
)
from lib.tasks import Item, mixed
from tests.language_models.traces import Shown, noted, of, traces


def everything() -> tuple[Shown, ...]:
    return traces("team")


def test_traces_come_in_every_kind():
    kinds = Counter((shown.role, tuple(shown.kinds)) for shown in everything())
    assert set(kinds) == {
        ("reasoner", ()),
        ("reasoner", ("evidence",)),
        ("reasoner", ("draft", "evidence")),
        ("verifier", ("draft",)),
        ("worker", ("subtask",)),
        ("worker", ("subtask", "evidence")),
        ("router", ()),
        ("answerer", ()),
        ("answerer", ("evidence",)),
        ("answerer", ("draft", "evidence")),
        ("answerer", ("evidence", "evidence")),
        ("answerer", ("votes",)),
    }
    assert min(kinds.values()) > 20


def test_who_has_no_use_for_tools_is_offered_none():
    assert not any(
        s.tools for s in of("team", "router", "answerer") if s.role == "router" or not s.alone
    )


# Thoughts ------------------------------------------------------------------------------------------


def test_a_reasoner_alone_writes_or_calls_every_step():
    whole = 0
    for shown in of("team", "reasoner"):
        if shown.alone and shown.thoughts:
            reckoned = any(name in ("calculator", "python") for name, _ in shown.calls)
            expected = [step for step in shown.needed if not (reckoned and "=" in step)]
            assert sorted(shown.looked_up + shown.thoughts) == sorted(expected), shown.messages
            whole += 1
    assert whole > 200


def test_who_thinks_takes_the_steps_of_the_solution_in_their_order():
    for shown in everything():
        steps = iter(shown.needed)
        if shown.item.group != "passage" or shown.role != "worker":
            assert all(thought in steps for thought in shown.thoughts), shown.messages


# Hints ---------------------------------------------------------------------------------------------


def test_a_hint_to_use_a_tool_makes_sure_that_it_is_used():
    """Of two that find the same record, one is."""
    seen = Counter()
    for shown in everything():
        told = {
            tool for tool, hint in TOOL_HINTS.items() if hint in shown.told and tool in shown.tools
        }
        for alike in ({"calculator"}, {"search", "lookup"}):
            assert not told & alike or told & alike & {name for name, _ in shown.calls}, (
                shown.messages
            )
        seen.update(told)
    assert all(seen[tool] > 10 for tool in TOOL_HINTS)


def test_the_hint_to_be_brief_leaves_thoughts_out_and_step_by_step_writes_them():
    solving = of("team", "reasoner", "worker")
    brief = [s for s in solving if BRIEF in s.told]
    slow = [s for s in solving if STEPS in s.told and s.alone and not s.calls]
    assert len(brief) > 60 and not any(shown.thoughts for shown in brief)
    assert len(slow) > 60 and all(shown.thoughts == shown.needed for shown in slow)
    assert not any(STEPS in shown.told for shown in brief)


def test_the_hint_to_check_makes_a_verifier_work_and_without_it_nobody_does():
    checking = of("team", "verifier")
    for shown in checking:
        if CHECK not in shown.told:
            assert not shown.thoughts, shown.messages
        else:
            assert shown.calls or shown.thoughts == shown.needed, shown.messages
    assert 0.4 < np.mean([CHECK in shown.told for shown in checking]) < 0.8


def test_hints_are_known_to_mean_something_or_nothing():
    """Nobody is told anything else, and each agent is told hints that mean nothing to it."""
    known = sorted([STEPS, BRIEF, CHECK, *TOOL_HINTS.values(), *DECOYS], key=len, reverse=True)
    heard = Counter()
    for shown in everything():
        left = shown.told.removeprefix("split").removeprefix("plan").strip()
        while left:
            hint = next(hint for hint in known if left == hint or left.startswith(f"{hint} "))
            heard[hint] += 1
            left = left.removeprefix(hint).strip()
    assert set(heard) == set(known) and not set(DECOYS) & {
        STEPS,
        BRIEF,
        CHECK,
        *TOOL_HINTS.values(),
    }
    assert len(set(DECOYS)) == len(DECOYS)


# Who goes on from what others left -----------------------------------------------------------------


def test_a_check_says_of_its_draft_whether_it_is_right():
    for shown in everything():
        if shown.kinds == ["draft", "evidence"]:
            assert shown.shown[1][1].endswith(f"answer {'right' if shown.flawless else 'wrong'}"), (
                shown.messages
            )


def test_who_goes_on_takes_up_after_the_last_whole_step():
    ways = Counter()
    for shown in of("team", "reasoner"):
        if shown.kinds == ["evidence"] and shown.item.group in ("chain", "passage"):
            steps, answer = noted(shown.shown[0][1])
            assert answer in ("", shown.item.reference)
            done = next((i for i, step in enumerate(steps) if step != shown.needed[i]), len(steps))
            begun = steps[done:]  # a step that was cut off
            assert not begun or (len(begun) == 1 and shown.needed[done].startswith(f"{begun[0]} "))
            assert shown.thoughts in ([], [] if answer else shown.needed[done:]), shown.messages
            ways[bool(answer), not begun] += 1
    assert len(ways) >= 3 and min(ways.values()) > 3


# Shared work ---------------------------------------------------------------------------------------


def test_a_coordinator_names_both_halves_of_the_work():
    ways = Counter()
    for shown in of("team", "router"):
        if shown.told.startswith(("split", "plan")):
            first, then = split_work(shown.item)
            assert split_plan(shown.answer) == (first.name, then.name)
            ways[shown.told.split()[0]] += 1
    assert min(ways["split"], ways["plan"]) > 20


def test_a_worker_does_its_part_or_says_that_it_cannot():
    seen = Counter()
    for shown in of("team", "worker"):
        first, then = split_work(shown.item)
        (_, name), *evidence = shown.shown
        assert name in (first.name, then.name)
        second = name == then.name
        stuck = second and not evidence and shown.item.group != "passage"
        beyond = shown.item.group == "mixed" and second and not shown.thoughts and not shown.calls
        assert shown.answer == (
            NOTHING if stuck or beyond else then.answer if second else first.answer
        ), shown.messages
        assert not (stuck and (shown.calls or shown.thoughts))
        seen[second, bool(evidence), stuck] += 1
    assert len(seen) == 4 and min(seen.values()) > 5


@pytest.mark.parametrize(
    "prompt, reference, answer, key, category, expected",
    [
        (
            "3 + 4 * 2 - 5 = ?",
            "3 + 4 = 7 ; 7 * 2 = 4 ; 4 - 5 = 9",
            "9",
            "chain/3 + 4 * 2 - 5",
            "chain",
            [("3 + 4 * 2", "4", 2, True), ("- 5", "9", 1, False)],
        ),
        (
            "3 + 4 = ?",
            "3 + 4 = 7",
            "7",
            "chain/3 + 4",
            "chain",
            [("3 + 4", "7", 1, True), ("answer", "7", 0, False)],
        ),
        (
            "Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . Who has most ?",
            "",
            "Bo",
            "passage/",
            "passage",
            [("Ana Bo", "Bo 7", 2, True), ("Cy", "Cy 1", 1, True)],
        ),
        (
            "Ana has 3 pens . Bo has 7 pens . How many people have more than 2 pens ?",
            "",
            "2",
            "passage/",
            "passage",
            [("Ana", "1", 1, True), ("Bo", "1", 1, True)],
        ),
        (
            "Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . How many pens do Cy and Ana have together ?",
            "",
            "4",
            "passage/",
            "passage",
            [("Ana Bo", "3", 1, True), ("Cy", "1", 1, True)],
        ),
        (
            "Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . How many more pens does Bo have than Ana ?",
            "",
            "4",
            "passage/",
            "passage",
            [("Ana Bo", "3 7", 2, True), ("Cy", "nothing", 0, True)],
        ),
    ],
)
def test_halves_by_hand(prompt, reference, answer, key, category, expected):
    found = split_work(Item(prompt, answer, reference, category, 1, key))
    assert [
        (half.name, half.answer, len(half.moves), half.is_independent) for half in found
    ] == expected


@pytest.mark.parametrize(
    "family, skin", [("facts", "plain"), ("facts", "choice"), ("mixed", "plain")]
)
def test_halves_of_a_search_follow_the_records(family, skin):
    for item in map(
        answer_in_words, tasks.draw_items(family, "train", 60, surface_form=skin, seed=2)
    ):
        first, then = split_work(item)
        relations, subject = first.name.rsplit(" of ", 1)
        for relation in reversed(relations.split(" of the ")):
            subject = mixed.build_records()[relation][subject]
        assert first.answer == subject and then.answer == item.reference and not then.is_independent
        if family == "mixed":
            assert item.reference == str(eval(f"{subject} {then.name}"))
        if family == "facts" and then.name != "answer":
            for relation in reversed(then.name.split(" of the ")):
                subject = mixed.build_records()[relation][subject]
            assert subject == item.reference
        assert [move.text for half in (first, then) for move in half.moves] == [
            move.text for move in list_moves(item)
        ]


# Words, notes and plans ----------------------------------------------------------------------------


def test_of_options_a_team_answers_the_words():
    for item in tasks.draw_items("facts", "train", 20, surface_form="choice", seed=4):
        said = answer_in_words(item)
        assert said.reference == item.choices[
            "ABCD".index(item.reference)
        ] and said.worked_solution.endswith(f"is {said.reference}")
        assert (said.prompt, said.id) == (item.prompt, item.id)
    plain = tasks.draw_items("facts", "train", 1, surface_form="plain")[0]
    assert answer_in_words(plain) is plain


def test_notes_are_results_thoughts_and_an_answer():
    assert (
        write_notes([("4 * 8", "32"), ("pet Bo", "cat")], "so", "cat")
        == "4 * 8 : 32 ; pet Bo : cat ; so answer cat"
    )
    assert (
        write_notes([], "3 + 4 = 7", None) == "3 + 4 = 7" and write_notes([], "", "7") == "answer 7"
    )
    assert write_notes([], "", None) == NOTHING


WORDS = st.lists(
    st.sampled_from(["number", "of", "Ana", "+", "38", "friend"]), min_size=1, max_size=5
).map(" ".join)


@given(WORDS, WORDS)
def test_a_plan_is_read_as_it_was_written(first, then):
    assert split_plan(f"first {first} then {then}") == (first, then)
    assert split_plan(f"{first} then {then}") == (first, then)


@pytest.mark.parametrize(
    "planned, expected",
    [
        ("first the pet of Bo", ("the pet of Bo", NOTHING)),
        ("first a then", ("a", NOTHING)),
        ("", (NOTHING, NOTHING)),
        ("nothing", (NOTHING, NOTHING)),
        ("first a then b then c", ("a", "b then c")),
        ("first", (NOTHING, NOTHING)),
        ("first then b", (NOTHING, "b")),
    ],
)
def test_a_plan_that_was_cut_lacks_a_part(planned, expected):
    assert split_plan(planned) == expected
