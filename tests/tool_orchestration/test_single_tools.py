"""Every single tool by a fixed procedure, against the real tools."""

import pytest
from lib.tool_orchestration.single_tool_baselines import list_golden_calls, make_strategy

from lib import tasks
from lib.rl import call_protocol
from lib.tasks import multi_hop_facts
from lib.tasks.synthesis import verify_trajectory
from lib.tool_orchestration.tool_environment import try_single_tools
from tests.tool_orchestration import common
from tests.tool_orchestration.common import at_work, given, item, offices


@pytest.mark.parametrize(
    ("tool", "kind", "least"),
    [
        ("calculator", "big", 1),
        ("python", "big", 1),
        ("lookup", "facts", 1),
        ("search", "facts", 0.8),
    ],
)
def test_a_tool_does_what_its_description_says(tool, kind, least):
    wanted = [given(work, tool) for work in tasks.draw_items(kind, "train", 60, seed=1)]
    with at_work() as desk:
        told = try_single_tools(desk, wanted, [tool], "a test")
    assert [row["item"] for row in told] == list(range(60))
    assert sum(row["correct"] for row in told) / 60 >= least


def walked(tool: str, work, *replies: str) -> tuple[list[tuple[str, int]], str]:
    """What a strategy asks, with the calls left, and its answer."""
    plan, asked = make_strategy(tool, work), []
    asked.append(next(plan))
    for reply in replies:
        try:
            asked.append(plan.send(reply))
        except StopIteration as ended:
            return asked, ended.value
    raise AssertionError("it is not done")


def test_functions_for_numbers_get_the_expression_and_models_the_question_as_it_stands():
    work = item("big", 3)
    expression = work.prompt.removesuffix(" = ?")
    for tool in ("python", "calculator"):
        assert walked(tool, work, "5") == ([(expression, 1)], "5")
    for tool in common.MODELS:
        assert walked(tool, item("chain", 3), "7") == ([(call_protocol.USER_QUESTION, 1)], "7")


def test_lookup_and_search_go_hop_by_hop_from_what_they_heard():
    work = item("facts", 3)
    *relations, place = work.id.split("/")[1:]  # from the last to the first that is asked
    relations.reverse()
    asked, answer = walked("lookup", work, "Ana", "Bo", "Cy")
    assert asked == [
        (f"{relations[0]} {place}", 3),
        (f"{relations[1]} Ana", 2),
        (f"{relations[2]} Bo", 1),
    ]
    assert answer == "Cy"
    known = zip(relations, (place, "Ana", "Bo"), ("Ana", "Bo", "Cy"), strict=True)
    said = [
        multi_hop_facts.RELATIONS[relation][2].format(subject, value)
        for relation, subject, value in known
    ]
    asked, answer = walked("search", work, *said)
    assert asked == [
        (f"{relations[0]} of {place}", 3),
        (f"{relations[1]} of Ana", 2),
        (f"{relations[2]} of Bo", 1),
    ]
    assert answer == "Cy"


def test_golden_calls_solve_their_office_task():
    for task in offices():
        database = task.open()
        for function, argument, reply in list_golden_calls(task):
            assert database.call(function, argument.split()) == reply
        assert verify_trajectory(task, database, task.answer).solved
    assert len(offices()) >= 24
