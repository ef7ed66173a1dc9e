"""What experts make of questions alone, what that costs, and what a model makes of them without anybody."""

import pandas as pd
import pytest

from lib import tasks
from lib.budgeted_routing import expert_outcomes
from lib.rl.expert_pool import Heard, drawn
from tests.budgeted_routing.small import EXPERTS, PRICES, Choir, items, worked

ITEMS = items(12, [1, 2, 3, 4, 5, 6])
COLUMNS = [
    "split",
    "item",
    "group",
    "difficulty",
    "prompt",
    "method",
    "sample",
    "correct",
    "cost_usd",
    "calls",
    "reply",
]


def tried(reply, wanted=ITEMS, tries: int = 1):
    pool = Choir(reply)
    return expert_outcomes.tried(pool, wanted, "test", tries), pool


def test_every_expert_is_tried_on_every_item_one_try_after_another():
    table, _ = tried(worked, tries=2)
    assert list(table) == COLUMNS and table["method"].drop_duplicates().tolist() == list(EXPERTS)
    for _, mine in table.groupby("method"):
        assert (
            mine["sample"].tolist() == [0] * 12 + [1] * 12
            and mine["item"].tolist() == [*range(12)] * 2
        )
        assert mine["prompt"].tolist() == [i.prompt for i in ITEMS] * 2
        assert mine["difficulty"].tolist() == [i.difficulty for i in ITEMS] * 2
    assert set(table["split"]) == {"test"} and set(table["group"]) == {"chain"}


def test_a_question_is_one_call_that_is_judged():
    table, pool = tried(lambda q: Heard("<answer> 4 </answer>", PRICES[q.expert]))
    for expert, mine in table.groupby("method"):
        assert mine["correct"].tolist() == [float(item.answer == "4") for item in ITEMS] and set(
            mine["calls"]
        ) == {1}
        assert set(mine["cost_usd"]) == {PRICES[expert]} and set(mine["reply"]) == {
            "<answer> 4 </answer>"
        }
    assert [q.text for q in pool.all] == [item.prompt for item in ITEMS] * len(EXPERTS)


def test_whoever_asks_a_question_in_one_try_draws_the_same():
    _, pool = tried(worked, tries=2)
    by_text = {(q.expert, q.text): set() for q in pool.all}
    for q in pool.all:
        by_text[q.expert, q.text].add(q.key)
    assert all(keys == {drawn(text, 0), drawn(text, 1)} for (_, text), keys in by_text.items())
    keys = {drawn(item.prompt, attempt) for item in ITEMS for attempt in range(2)}
    assert len(keys) == 2 * len(ITEMS) and all(0 <= key < 2**63 for key in keys)


@pytest.mark.parametrize("said", ["nothing", "", "<answer> 12 </answer> so", "<think> 4"])
def test_a_reply_that_is_no_answer_is_wrong_and_paid(said):
    table, _ = tried(lambda q: Heard(said, PRICES[q.expert]))
    assert table["correct"].eq(0).all() and set(table["cost_usd"]) == set(PRICES.values())


def test_a_model_by_itself_costs_nothing_and_is_the_same_in_every_try(lab_asker):
    wanted = tasks.spread({"chain": [1], "facts": [1]}, "test", 6)
    table = expert_outcomes.alone(lab_asker, wanted, "test", 2)
    assert list(table) == [
        *COLUMNS[:5],
        "method",
        "correct",
        "cost_usd",
        "calls",
        "reply",
        "tokens",
        "sample",
    ]
    first, second = (
        table[table["sample"] == t].drop(columns="sample").reset_index(drop=True) for t in (0, 1)
    )
    assert first.equals(second) and set(table["cost_usd"]) == {0.0} and (table["tokens"] > 0).all()
    assert set(table["method"]) == {expert_outcomes.ITSELF} and table[
        "group"
    ].unique().tolist() == [
        "chain",
        "facts",
    ]


def test_headroom_is_what_choosing_wins_within_each_budget():
    """Two specialists, each right on its half and always; the second is too dear for the small budget."""
    told = [
        {
            "split": split,
            "item": i,
            "sample": t,
            "method": name,
            "correct": float(i % 2 == of),
            "cost_usd": price,
        }
        for split in ("dev", "test")
        for i in range(8)
        for t in range(2)
        for name, of, price in (("cheap", 0, 1.0), ("dear", 1, 3.0))
    ]
    found = expert_outcomes.headrooms(pd.DataFrame(told), {"low": 2.0, "high": 9.0})
    assert found["value"].tolist() == [0.5, 0.0, 0.5] and list(found.index) == [
        expert_outcomes.FREE,
        "low",
        "high",
    ]
    assert found.loc["low", "constant"] == "cheap"
