"""What experts make of questions alone, what that costs, and what a model makes of them without anybody."""

import pandas as pd
import pytest

from lib import tasks
from lib.budgeted_routing import expert_outcomes
from lib.llm.chat_model import Failure
from lib.rl.expert_pool import ExpertReply, derive_reply_seed
from tests.budgeted_routing.small import EXPERTS, PRICES, SMOKE, Choir, items, worked

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
    "failures",
    "failed",
    "truncated",
]


def tried(reply, wanted=ITEMS, tries: int = 1):
    pool = Choir(reply)
    return expert_outcomes.try_experts(pool, wanted, "test", tries), pool


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
    table, pool = tried(lambda q: ExpertReply("<answer> 4 </answer>", PRICES[q.expert]))
    for expert, mine in table.groupby("method"):
        assert mine["correct"].tolist() == [float(item.reference == "4") for item in ITEMS] and set(
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
        by_text[q.expert, q.text].add(q.seed)
    assert all(
        keys == {derive_reply_seed(text, 0), derive_reply_seed(text, 1)}
        for (_, text), keys in by_text.items()
    )
    keys = {derive_reply_seed(item.prompt, attempt) for item in ITEMS for attempt in range(2)}
    assert len(keys) == 2 * len(ITEMS) and all(0 <= key < 2**63 for key in keys)


@pytest.mark.parametrize("said", ["nothing", "", "<answer> 12 </answer> so", "<think> 4"])
def test_a_reply_that_is_no_answer_is_wrong_and_paid(said):
    table, _ = tried(lambda q: ExpertReply(said, PRICES[q.expert]))
    assert table["correct"].eq(0).all() and set(table["cost_usd"]) == set(PRICES.values())


def test_a_lost_reply_is_neither_right_nor_wrong_and_decides_no_price():
    def reply(query):
        if query.text == ITEMS[0].prompt:
            return ExpertReply("", 0.0, failure=Failure("timeout"))
        return worked(query)

    table, _ = tried(reply)
    lost = table["item"] == 0
    assert table[lost]["correct"].isna().all() and table[lost]["failed"].all()
    assert table[lost]["failures"].eq(1).all() and table[~lost]["correct"].eq(1).all()
    expected = {expert: pytest.approx(price) for expert, price in PRICES.items()}
    assert expert_outcomes.prices(table, EXPERTS, SMOKE) == expected


def test_an_expert_that_only_fails_by_itself_is_wrong():
    cut_off = ExpertReply("<think> 4", 1e-5, failure=Failure("truncated"))
    table, _ = tried(lambda query: cut_off)
    assert table["correct"].eq(0).all() and table["truncated"].all() and not table["failed"].any()


def test_a_model_by_itself_costs_nothing_and_is_the_same_in_every_try(words_model):
    wanted = tasks.draw_evenly({"chain": [1], "facts": [1]}, "test", 6)
    table = expert_outcomes.try_alone(words_model, wanted, "test", 2)
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


def test_a_budget_names_the_expert_whose_price_it_is():
    price = {"dear": 3e-5, "cheap": 1e-5, "middle": 2e-5}
    words = expert_outcomes.budgets(price, SMOKE)
    table = expert_outcomes.tabulate_budgets(words, price, SMOKE).set_index("budget")
    assert table["affords one call to"].tolist() == ["cheap", "middle", "anybody"]
    assert table["$ per million questions"].tolist() == ["10.0", "20.0", "no limit"]
