"""Rules without an orchestrator, and the score of the preference benchmark that each would have, by hand."""

import pandas as pd
import pytest

from lib.tool_orchestration import rule_baselines
from lib.tool_orchestration.rule_baselines import ALWAYS, BEST, BY_KIND, ORACLE, RANDOM

TOOLS = ("search", "lookup", "mini")


TRIED = pd.DataFrame(
    [
        ("train", 0, "facts", 1, "search", 1.0, 2.0),
        ("train", 0, "facts", 1, "lookup", 1.0, 1.0),
        ("train", 0, "facts", 1, "mini", 0.0, 0.5),
        ("train", 1, "chain", 1, "mini", 1.0, 0.5),
        ("train", 2, "facts", 1, "search", 1.0, 2.0),
        ("test", 0, "facts", 1, "search", 1.0, 2.0),
        ("test", 0, "facts", 1, "mini", 0.0, 0.5),
        ("test", 1, "facts", 1, "lookup", 1.0, 1.0),
        ("test", 1, "facts", 1, "search", 0.0, 3.0),
        ("test", 2, "chain", 1, "mini", 0.0, 0.7),
    ],
    columns=["split", "item", "group", "difficulty", "tool", "correct", "cost_usd"],
)
TRIED = TRIED.assign(seconds=10 * TRIED["cost_usd"], calls=1)
START = pd.DataFrame(
    {
        "item": [0, 1, 2],
        "group": ["facts", "facts", "chain"],
        "difficulty": 1,
        "offered": ["search mini", "search lookup", "mini search"],
        "m": [[0, 2, 1, 0, -4e-6, -0.5], [1, 0, 0, 1, -2e-6, -0.2], [0] * 6],
        "p": [[0, 1, 0, 1, 0.5, 0], [1, 0, 0, 1, 0, 1.0], [0] * 6],
    }
)


@pytest.fixture(scope="module")
def told():
    return rule_baselines.apply_baselines(TRIED, START, TOOLS)


def numbers(frame: pd.DataFrame) -> list[tuple]:
    return list(frame[["item", "correct", "cost_usd", "tool"]].itertuples(index=False, name=None))


def test_always_one_tool_gives_way_to_the_next_best_where_it_cannot_be_asked(told):
    """In training search was right twice, mini and lookup once, mini for less; no arm is off a menu and then lost."""
    assert rule_baselines.order_tools(TRIED[TRIED["split"] == "train"]) == [
        "search",
        "mini",
        "lookup",
    ]
    assert numbers(told[ALWAYS + "search"]) == [
        (0, 1.0, 2.0, "search"),
        (1, 0.0, 3.0, "search"),
        (2, 0.0, 0.7, "mini"),
    ]
    assert numbers(told[ALWAYS + "lookup"]) == [
        (0, 1.0, 2.0, "search"),
        (1, 1.0, 1.0, "lookup"),
        (2, 0.0, 0.7, "mini"),
    ]
    assert told[BEST].equals(told[ALWAYS + "search"])


def test_other_rules_by_hand(told):
    """Of facts, search and lookup are as often right, lookup for less; random is in expectation over tools that can be
    asked; the oracle pays nothing where none is right."""
    assert numbers(told[BY_KIND]) == [
        (0, 1.0, 2.0, "search"),
        (1, 1.0, 1.0, "lookup"),
        (2, 0.0, 0.7, "mini"),
    ]
    assert numbers(told[RANDOM]) == [(0, 0.5, 1.25, ""), (1, 0.5, 2.0, ""), (2, 0.0, 0.7, "")]
    assert numbers(told[ORACLE]) == [
        (0, 1.0, 2.0, "search"),
        (1, 1.0, 1.0, "lookup"),
        (2, 0.0, 0.0, ""),
    ]
    assert all((told[ORACLE]["correct"] >= frame["correct"]).all() for frame in told.values())


def test_the_best_tool_may_be_on_no_menu_of_the_exam():
    """With few questions that can happen; then the next best answers."""
    left = TRIED[(TRIED["split"] == "train") | (TRIED["tool"] != "search")]
    assert rule_baselines.apply_baselines(left, START, TOOLS)[BEST]["tool"].tolist() == [
        "mini",
        "lookup",
        "mini",
    ]


def test_a_rule_is_scored_as_an_orchestrator_that_calls_one_tool():
    table = pd.DataFrame(
        {
            "item": [1, 0],
            "correct": [1.0, 1.0],
            "cost_usd": [1e-6, 8e-6],
            "seconds": [0.1, 0.5],
            "calls": [1, 2],
            "tool": ["search", "lookup"],
        }
    )
    found = rule_baselines.add_scores(table, START, TOOLS)["score"].tolist()
    assert found == pytest.approx([1 / 1 + 1 / 1 + 200 / 100, 2 / 2 + 1 / 1 + 0.5 * 4 / 8])
