"""The three criteria and the three filters, each by a case where it alone decides."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib.tasks.synthesis import (
    CallError,
    Database,
    Task,
    VerificationResult,
    filter_tasks,
    find_fault,
    list_steps,
    mentions,
    synthesize,
    verify_trajectory,
)
from tests.tasks.synthesis.handmade import SHELF, task

# Bo gets the job that the friend of Bo has, and the pet of Ana is told
TASK = task("lookup friend Bo", "lookup job Cy", "draft Bo nurse", "lookup pet Ana", info="cat")
CORPUS = synthesize(databases=16, tasks_per_database=6, seed=11)


def verdict(which: Task, calls: list, said: str) -> VerificationResult:
    database = carried_out(which, calls)
    return verify_trajectory(which, database, said)


def carried_out(which: Task, calls: list) -> Database:
    database = which.open()
    for name, *arguments in calls:
        database.call(name, arguments)
    return database


def lines(*calls: str) -> list:
    return [tuple(line.split()) for line in calls]


def test_the_golden_calls_or_another_way_to_the_same_and_the_information_solve_a_task():
    assert verdict(TASK, list(TASK.calls), "the pet is cat .").solved
    other = lines("lookup pet Ana", "lookup pet Cy", "draft Bo miner", "draft Bo nurse")
    assert verdict(TASK, other, "it is cat").solved
    assert list_steps(TASK) == [
        ("lookup friend Bo", "Cy"),
        ("lookup job Cy", "nurse"),
        ("draft Bo nurse", "done"),
        ("lookup pet Ana", "cat"),
    ]
    assert TASK.answer == "cat" and task("draft Bo pilot").answer == "done"
    both = task(
        "lookup job Ana", "lookup pet Ana", info="baker cat"
    )  # all of the information has to be mentioned
    assert both.answer == "baker and cat" and verdict(both, list(both.calls), both.answer).solved
    assert not verdict(both, list(both.calls), "baker").fidelity


@pytest.mark.parametrize(
    "calls, said, failed",
    [
        (lines("lookup job Cy", "draft Bo pilot", "lookup pet Ana"), "cat", "execution"),
        (lines("lookup job Cy", "lookup job Bo", "lookup pet Ana"), "cat", "execution"),
        (lines("lookup pet Cy", "draft Bo nurse", "draft Ana pilot"), "cat", "execution"),
        (list(TASK.calls), "dog", "fidelity"),
        (list(TASK.calls), "", "fidelity"),
        (list(TASK.calls), "cats", "fidelity"),
        (lines("draft Bo nurse", "lookup pet Ana"), "cat", "completeness"),
        # Every entry is read, but nobody asked for the pet: "cat" is a guess.
        (lines("lookup job Cy", "draft Bo nurse", "lookup job Ana"), "cat", "fidelity"),
        # Cy has a cat, too: the information is looked up, at another record than Ana's.
        (lines("lookup pet Cy", "draft Bo nurse"), "cat", "completeness"),
    ],
)
def test_each_criterion_can_fail_alone(calls, said, failed):
    found = verdict(TASK, calls, said)
    assert not found.solved
    assert {
        name for name in ("execution", "fidelity", "completeness") if not getattr(found, name)
    } == {failed}


def test_information_counts_where_a_call_gave_it_and_not_where_text_does():
    """A report in another order or with other words around it is as good; no text makes up for a call."""
    calls = list(TASK.calls)
    without_pet = [call for call in calls if call[1] != "pet"]
    everything = "cat dog bird fish owl fox"
    assert verdict(TASK, calls, "I think it is a cat .").fidelity
    assert not verdict(TASK, without_pet, everything).fidelity
    refused = TASK.open()
    with pytest.raises(CallError):
        refused.call("lookup", ["pet", "Nobody"])
    assert refused.completed_calls == [] and not verify_trajectory(TASK, refused, "cat").fidelity


MENTIONED = {
    "Loro": ["the home is Loro .", "Loro."],
    "3": ["3", "it is 3."],
    "4": ["3 and 4"],
    "Ana Bo": ["Ana  Bo"],
}
NOT_MENTIONED = {
    "Loro": ["loro", "Loros"],
    "mini": ["lab-mini"],
    "3": ["13", "3.5"],
    "5": ["3.5"],
    "Ana Bo": ["Bo Ana"],
    "a+b": ["a.b"],
}


@pytest.mark.parametrize("told, held", [(MENTIONED, True), (NOT_MENTIONED, False)])
def test_what_counts_as_mentioned(told, held):
    for information, texts in told.items():
        for said in texts:
            assert mentions(said, information) is held, (said, information)


def test_a_task_whose_golden_calls_fail_is_dropped_and_cannot_be_judged():
    broken = task("took Ana coins", source=SHELF)
    found = find_fault(broken)
    assert (
        found and (found.reason, found.task) == ("error", broken) and "number low" in found.detail
    )
    with pytest.raises(CallError):
        verify_trajectory(broken, broken.open(), "")


@pytest.mark.parametrize(
    "which, idle",
    [
        (task("draft Ana baker"), True),  # is a baker already
        (task("lookup job Ana"), True),  # nothing has to be told
        (task("draft Ana pilot", "draft Ana baker"), True),
        (task("draft Ana pilot"), False),
        (task("lookup job Ana", info="baker"), False),
        (task("draft Ana baker", "lookup pet Ana", info="cat"), False),
    ],
)
def test_a_task_that_needs_no_action_is_dropped(which, idle):
    found = find_fault(which)
    assert (found is not None) is idle and (found is None or found.reason == "idle")


def test_what_no_try_solves_is_dropped_and_what_one_solves_is_kept():
    hard, late, soon = task("draft Ana pilot"), task("draft Bo pilot"), task("draft Cy pilot")
    asked = []

    def solver(tasks, attempt):
        asked.append(len(tasks))
        return [each is soon or (each is late and attempt == 7) for each in tasks]

    kept, dropped = filter_tasks([hard, late, soon, task("draft Ana baker")], solver)
    assert kept == [late, soon] and dropped[0].task is hard
    assert [each.reason for each in dropped] == ["unsolved", "idle"]
    assert asked == [3, 2, 2, 2, 2, 2, 2, 2]  # once for each task still open, eight times at most


any_task = st.sampled_from(CORPUS.tasks)


@given(any_task)
def test_golden_calls_solve_their_own_task(which):
    assert verdict(which, list(which.calls), which.answer).solved
    assert all(any(mentions(reply, told) for _, reply in list_steps(which)) for told in which.info)


@given(any_task, st.data())
def test_without_one_golden_change_a_task_is_not_solved(which, data):
    writes = [i for i, call in enumerate(which.calls) if which.domain.find_function(call[0]).writes]
    assume(writes)
    i = data.draw(st.sampled_from(writes))
    assert not verdict(which, [*which.calls[:i], *which.calls[i + 1 :]], which.answer).execution


@given(any_task, st.data())
def test_more_reading_never_hurts(which, data):
    calls = list(which.calls)
    for _ in range(data.draw(st.integers(1, 3))):
        read = which.domain.functions[0]
        field = data.draw(st.sampled_from(read.columns))
        table, _ = which.domain.find_column(read, field)
        call = (read.name, field, data.draw(st.sampled_from(sorted(which.records[table.name]))))
        calls.insert(data.draw(st.integers(0, len(calls))), call)
    assert verdict(which, calls, which.answer).solved


@settings(max_examples=150)
@given(any_task, st.data())
def test_one_change_too_many_hurts_unless_it_writes_what_is_there(which, data):
    function = data.draw(st.sampled_from([f for f in which.domain.functions if f.writes]))
    key = data.draw(st.sampled_from(sorted(which.records[function.tables[0]])))
    column = which.domain.get_table(function.tables[0]).find_column(function.columns[0])
    more = (
        which.domain.list_values(column, which.domain.get_table(function.tables[0]))
        if function.effect == "set"
        else None
    )
    words = [data.draw(st.sampled_from(more))] if more else []
    words += [data.draw(st.sampled_from(function.columns))] if function.names_field else []
    database = carried_out(which, list(which.calls))
    before = database.serialize()
    try:
        database.call(function.name, [key, *words])
    except CallError:
        assume(False)
    same = database.serialize() == before
    assert verify_trajectory(which, database, which.answer).solved is same


def test_a_solver_that_judges_another_number_of_tasks_is_an_error():
    with pytest.raises(ValueError, match="judged 0 of 1"):
        filter_tasks([task("draft Ana pilot")], lambda tasks, attempt: [])
