"""Baselines without an orchestrator, and the preference benchmark, by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from lib.routing.toolorchestra import benchmark
from lib.routing.toolorchestra.benchmark import ALWAYS, BEST, BY_KIND, ORACLE, RANDOM

TOOLS = ("search", "lookup", "mini")


def tried(*rows) -> pd.DataFrame:
    """split, item, kind, difficulty, tool, right, dollars"""
    columns = ["split", "item", "kind", "difficulty", "tool", "right", "dollars"]
    return pd.DataFrame(rows, columns=columns).assign(seconds=lambda t: 10 * t["dollars"], calls=1)


TRIED = tried(
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
)
EXAM = pd.DataFrame(
    [
        {"item": 0, "kind": "facts", "difficulty": 1, "menu": "search mini"},
        {"item": 1, "kind": "facts", "difficulty": 1, "menu": "search lookup"},
        {"item": 2, "kind": "chain", "difficulty": 1, "menu": "mini search"},
        {"item": 3, "kind": "office", "difficulty": 1, "menu": "search lookup moves"},
    ]
)


@pytest.fixture(scope="module")
def told():
    return benchmark.baselines(TRIED, EXAM, TOOLS)


def numbers(frame: pd.DataFrame) -> list[tuple]:
    return list(frame[["item", "right", "dollars", "tool"]].itertuples(index=False, name=None))


def test_always_one_tool_gives_way_to_the_next_best_where_it_cannot_be_asked(told):
    """In training search was right twice, mini and lookup once, mini for less; no arm is off a menu and then lost."""
    assert benchmark.ordered(TRIED[TRIED["split"] == "train"]) == ["search", "mini", "lookup"]
    assert numbers(told[ALWAYS + "search"]) == [(0, 1.0, 2.0, "search"), (1, 0.0, 3.0, "search"), (2, 0.0, 0.7, "mini")]
    assert numbers(told[ALWAYS + "lookup"]) == [(0, 1.0, 2.0, "search"), (1, 1.0, 1.0, "lookup"), (2, 0.0, 0.7, "mini")]


def test_the_best_tool_is_chosen_on_training_questions(told):
    assert benchmark.best(TRIED[TRIED["split"] == "train"]) == "search"
    assert told[BEST].equals(told[ALWAYS + "search"])


def test_one_a_kind_takes_the_first_of_its_order_that_is_on_the_menu(told):
    """Facts: search and lookup are as often right, lookup is cheaper."""
    assert numbers(told[BY_KIND]) == [(0, 1.0, 2.0, "search"), (1, 1.0, 1.0, "lookup"), (2, 0.0, 0.7, "mini")]
    assert benchmark.first(["a", "b"], ["b", "c"]) == "b" and benchmark.first(["a"], ["c"]) == ""


def test_random_is_in_expectation_over_tools_that_can_be_asked(told):
    assert numbers(told[RANDOM]) == [(0, 0.5, 1.25, ""), (1, 0.5, 2.0, ""), (2, 0.0, 0.7, "")]


def test_the_oracle_takes_the_cheapest_that_is_right_and_pays_nothing_where_none_is(told):
    assert numbers(told[ORACLE]) == [(0, 1.0, 2.0, "search"), (1, 1.0, 1.0, "lookup"), (2, 0.0, 0.0, "")]
    for name, frame in told.items():
        assert (told[ORACLE]["right"] >= frame["right"]).all(), name


def episodes(*rows) -> pd.DataFrame:
    """Rows of (M, P)."""
    m, p = ([json.dumps(vector) for vector in column] for column in zip(*rows, strict=True))
    return pd.DataFrame({"item": range(len(rows)), "m": m, "p": p})


START = episodes(
    ([0, 2, 1, 0, -4e-6, -0.5], [0, 1, 0, 1, 0.5, 0]),
    ([1, 0, 0, 1, -2e-6, -0.2], [1, 0, 0, 1, 0, 1.0]),
)
AFTER = episodes(
    ([0, 1, 0, 1, -2e-6, -0.1], [0, 1, 0, 1, 0.5, 0]),
    ([2, 0, 0, 0, -1e-6, -0.1], [1, 0, 0, 1, 0, 1.0]),
)


def test_scores_are_against_the_start_on_the_same_example_by_hand():
    assert benchmark.scores(AFTER, START).tolist() == pytest.approx([1 / 2 + 1 / 1 + 0.5 * 4 / 2, 0.0])
    assert benchmark.scores(START, START).tolist() == pytest.approx([0.0, 1 + 1 + 1])
    literal = benchmark.scores(AFTER, START, (1.0, 1.0))
    assert literal.tolist() == pytest.approx([1 / 2 + 1 + 0.5 * 4e-6, 0.0])


def test_a_baseline_is_scored_as_an_orchestrator_that_calls_one_tool():
    table = pd.DataFrame(
        {"item": [1, 0], "right": [1.0, 1.0], "dollars": [1e-6, 8e-6], "seconds": [0.1, 0.5], "calls": [1, 2],
         "tool": ["search", "lookup"]}
    )  # fmt: skip
    told = benchmark.baseline_scores(table, START, TOOLS)
    assert told.tolist() == pytest.approx([1 / 1 + 1 / 1 + 200 / 100, 2 / 2 + 1 / 1 + 0.5 * 4 / 8])


def test_office_tasks_are_not_for_single_tools(told):
    assert all(frame["item"].tolist() == [0, 1, 2] for frame in told.values())


def test_the_best_tool_may_be_on_no_menu_of_the_exam():
    """With few questions that can happen; then the next best answers."""
    left = TRIED[(TRIED["split"] == "train") | (TRIED["tool"] != "search")]
    assert benchmark.baselines(left, EXAM, TOOLS)[BEST]["tool"].tolist() == ["mini", "lookup", "mini"]


def test_scores_go_by_item_in_whatever_order_the_rows_stand():
    told = benchmark.scores(AFTER, START).tolist()
    assert told == benchmark.scores(AFTER.iloc[::-1], START).tolist()
    assert told == benchmark.scores(AFTER, START.iloc[::-1]).tolist()


def test_vectors_are_read_as_they_were_written():
    assert benchmark.vectors(START).shape == (2, 6) and benchmark.vectors(START, "p")[1].tolist() == [1, 0, 0, 1, 0, 1]
    assert np.array_equal(benchmark.vectors(AFTER)[0], [0, 1, 0, 1, -2e-6, -0.1])
