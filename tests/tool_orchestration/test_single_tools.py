"""Every single tool by a fixed procedure, against the real tools."""

import math

import pytest

from lib import tasks
from lib.llm.chat_model import Failure
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertReply
from lib.tasks import multi_hop_facts
from lib.tool_orchestration.single_tools import make_strategy, try_single_tools
from tests.tool_orchestration import common
from tests.tool_orchestration.common import at_work, given, item, offers


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


def walked(tool: str, work, *replies: str) -> tuple[list[str], str]:
    """What a strategy asks, and its answer."""
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
        assert walked(tool, work, "5") == ([expression], "5")
    for tool in common.MODELS:
        assert walked(tool, item("chain", 3), "7") == ([call_protocol.USER_QUESTION], "7")


def test_lookup_and_search_go_hop_by_hop_from_what_they_heard():
    work = item("facts", 3)
    *relations, place = work.id.split("/")[1:]  # from the last to the first that is asked
    relations.reverse()
    asked, answer = walked("lookup", work, "Ana", "Bo", "Cy")
    assert asked == [
        f"{relations[0]} {place}",
        f"{relations[1]} Ana",
        f"{relations[2]} Bo",
    ]
    assert answer == "Cy"
    known = zip(relations, (place, "Ana", "Bo"), ("Ana", "Bo", "Cy"), strict=True)
    said = [
        multi_hop_facts.RELATIONS[relation][2].format(subject, value)
        for relation, subject, value in known
    ]
    asked, answer = walked("search", work, *said)
    assert asked == [
        f"{relations[0]} of {place}",
        f"{relations[1]} of Ana",
        f"{relations[2]} of Bo",
    ]
    assert answer == "Cy"


CHAIN, BIG = item("chain", 3), item("big", 3)
FACTORS = (2.5, 0.5)  # of the menu's prices to the list's


def menu_of(work, *names):
    return given(work, *names, factors=FACTORS)


@pytest.fixture
def desk():
    """Its models say 4."""
    with at_work() as environment:
        yield environment


def test_outcomes_of_single_tools_by_hand(desk):
    """Rows for every tool and question that it can be asked, at the menu's prices, and nobody else is paid."""
    work = item("facts", 2)
    wanted = [
        menu_of(BIG, "calculator", "lab-mini"),
        menu_of(work, "lookup", "lab-mini"),
        menu_of(CHAIN, "lab-mini"),
    ]
    rows = try_single_tools(desk, wanted, ("calculator", "lookup", "lab-mini"), "a test")
    assert [(r["item"], r["tool"], r["correct"], r["calls"]) for r in rows] == [
        (0, "calculator", 1.0, 1),
        (1, "lookup", 1.0, 2),
        (1, "lab-mini", 0.0, 1),
        (2, "lab-mini", float(CHAIN.reference == "4"), 1),
    ]
    assert [r["cost_usd"] for r in rows[:2]] == pytest.approx(
        [2.5 * offers()["calculator"].cost_usd, 2 * 2.5 * offers()["lookup"].cost_usd]
    )
    assert rows[1]["seconds"] == pytest.approx(2 * 0.5 * offers()["lookup"].seconds)
    assert {q.text for q in desk.pool.queries} == {work.prompt, CHAIN.prompt}


def test_single_tools_say_the_same_again_and_every_question_has_a_seed_of_its_own():
    with at_work(lambda query: ExpertReply(str(query.seed % 10), 1e-5, 1, 1)) as made:
        wanted = [menu_of(item("chain", 2, seed), "lab-mini") for seed in range(12)]
        one, two = (try_single_tools(made, wanted, ["lab-mini"], "a test") for _ in range(2))
        other = try_single_tools(made, wanted, ["lab-mini"], "another")
    keys = [query.seed for query in made.pool.queries]
    assert one == two and keys[:12] == keys[12:24] and len(set(keys[:12])) == 12
    assert not set(keys[24:]) & set(keys[:12]) and len(other) == 12


@pytest.mark.parametrize(
    "kind, counted_as",
    [("truncated", "truncated"), ("refusal", "unusable"), ("moderation", "failed")],
)
def test_a_trial_counts_what_became_of_replies_that_hold_no_answer(kind, counted_as):
    with at_work(lambda query: ExpertReply("", 1e-5, 1, 1, failure=Failure(kind))) as made:
        (row,) = try_single_tools(made, [menu_of(CHAIN, "lab-mini")], ["lab-mini"], "a test")
    counts = {name: row[name] for name in ("failed", "truncated", "unusable")}
    assert counts == dict.fromkeys(counts, 0) | {counted_as: 1}
    assert math.isnan(row["correct"]) == (kind == "moderation")
