"""Rules without an orchestrator on held-out questions, by hand."""

import math

import pandas as pd
import pytest

from lib.tool_orchestration import user_evaluation
from lib.tool_orchestration.user_evaluation import BEST, BY_KIND, ORACLE, PREFER, RANDOM

TRIES = pd.DataFrame(
    [  # split, item, group, difficulty, tool, correct, cost_usd
        ("train", 0, "facts", 1, "small", 1.0, 2.0),
        ("train", 0, "facts", 1, "large", 1.0, 1.0),
        ("train", 0, "facts", 1, "mini", 0.0, 0.5),
        ("train", 1, "chain", 1, "mini", 1.0, 0.5),
        ("train", 2, "facts", 1, "small", 1.0, 2.0),
        ("test", 0, "facts", 1, "small", 1.0, 2.0),
        ("test", 0, "facts", 1, "mini", 0.0, 0.5),
        ("test", 1, "facts", 1, "large", 1.0, 1.0),
        ("test", 1, "facts", 1, "small", 0.0, 3.0),
        ("test", 2, "chain", 1, "mini", 0.0, 0.7),
    ],
    columns=["split", "item", "group", "difficulty", "tool", "correct", "cost_usd"],
)
TRAIN_TRIES = TRIES[TRIES["split"] == "train"]
TEST_TRIES = TRIES[TRIES["split"] == "test"].assign(
    seconds=1.0, calls=1, score=0.0, reward=lambda rows: rows["correct"] - 0.1 * rows["cost_usd"]
)
START = pd.DataFrame(  # of four questions, the last one of a kind that nobody can be asked
    {
        "number": [0, 1, 2, 3],
        "item": ["a", "b", "c", "d"],
        "sample": 0,
        "group": ["facts", "facts", "chain", "story"],
        "difficulty": 1,
    }
)


@pytest.fixture(scope="module")
def choices() -> dict[str, pd.DataFrame]:
    rows = user_evaluation.apply_rules(TRAIN_TRIES, TEST_TRIES, START)
    return dict(list(rows.groupby("method")))


def read(rows: pd.DataFrame) -> list[tuple]:
    columns = ["item", "correct", "cost_usd", "tool"]
    return list(rows[columns].itertuples(index=False, name=None))


NOTHING = ("d", 0.0, 0.0, "")


def test_a_preferred_tool_gives_way_to_the_next_best_where_it_is_not_on_the_menu(choices):
    """In training small was correct twice, mini and large once, mini for less."""
    assert user_evaluation.rank_tools(TRAIN_TRIES) == ["small", "mini", "large"]
    by_order = [("a", 1.0, 2.0, "small"), ("b", 0.0, 3.0, "small"), ("c", 0.0, 0.7, "mini")]
    assert read(choices[BEST]) == read(choices[PREFER + "small"]) == [*by_order, NOTHING]
    assert read(choices[PREFER + "large"]) == [
        ("a", 1.0, 2.0, "small"),
        ("b", 1.0, 1.0, "large"),
        ("c", 0.0, 0.7, "mini"),
        NOTHING,
    ]


def test_other_rules_by_hand(choices):
    """Of facts, small and large are as often correct, large for less; a random choice is an expectation."""
    by_kind = [("a", 1.0, 2.0, "small"), ("b", 1.0, 1.0, "large"), ("c", 0.0, 0.7, "mini")]
    assert read(choices[BY_KIND]) == [*by_kind, NOTHING]
    random = [("a", 0.5, 1.25, ""), ("b", 0.5, 2.0, ""), ("c", 0.0, 0.7, "")]
    assert read(choices[RANDOM]) == [*random, NOTHING]
    assert read(choices[ORACLE]) == [*by_kind, NOTHING]


def test_no_choice_is_rewarded_more_than_the_oracle(choices):
    best = choices[ORACLE]["reward"].to_numpy()
    assert all((best >= rows["reward"].to_numpy()).all() for rows in choices.values())


def test_every_rule_answers_every_question_under_a_role_of_its_own(choices):
    roles = {method: set(rows["role"]) for method, rows in choices.items()}
    assert roles[ORACLE] == {"oracle"} and roles[BY_KIND] == {"router"}
    assert roles[RANDOM] == roles[BEST] == {"constant"} and roles[PREFER + "mini"] == {"expert"}
    assert all(rows["item"].tolist() == ["a", "b", "c", "d"] for rows in choices.values())


def test_a_question_with_a_lost_reply_has_no_expectation():
    lost = TEST_TRIES.assign(
        reward=TEST_TRIES["reward"].where(TEST_TRIES["tool"] != "large", math.nan)
    )
    rows = user_evaluation.apply_rules(TRAIN_TRIES, lost, START)
    random = rows[rows["method"] == RANDOM].set_index("item")["reward"]
    assert math.isnan(random["b"]) and not math.isnan(random["a"])
