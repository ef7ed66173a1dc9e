"""What experts and the controller alone score and cost on questions, and the prices, budgets and headroom of that."""

import pandas as pd
import pytest

from lib import tasks
from lib.budgeted_routing import expert_outcomes
from lib.llm.chat_model import Failure
from lib.rl.expert_pool import ExpertReply, derive_reply_seed
from tests.budgeted_routing.small_systems import (
    EXPERTS,
    PRICES,
    SMOKE,
    ScriptedExperts,
    answer_chain,
    draw_chains,
)

ITEMS = draw_chains(12, [1, 2, 3, 4, 5, 6])
QUESTION_COLUMNS = ["split", "item", "group", "difficulty", "prompt"]
OUTCOME_COLUMNS = [
    "method", "sample", "correct", "cost_usd", "calls", "reply", "failures", "failed", "truncated",
]  # fmt: skip


def measure(reply, num_samples: int = 1) -> pd.DataFrame:
    return expert_outcomes.measure_experts(ScriptedExperts(reply), ITEMS, "test", num_samples)


# Outcomes -----------------------------------------------------------------------------------------


def test_every_expert_answers_every_question_in_every_sample():
    table = measure(answer_chain, num_samples=2)
    assert list(table) == QUESTION_COLUMNS + OUTCOME_COLUMNS
    assert table["method"].unique().tolist() == list(EXPERTS)
    for _, rows in table.groupby("method"):
        assert rows["sample"].tolist() == [0] * 12 + [1] * 12
        assert rows["item"].tolist() == [*range(12)] * 2
        assert rows["prompt"].tolist() == [item.prompt for item in ITEMS] * 2
        assert rows["difficulty"].tolist() == [item.difficulty for item in ITEMS] * 2
    assert set(table["split"]) == {"test"}
    assert set(table["group"]) == {"chain"}


def test_a_question_is_one_call_whose_reply_is_scored():
    pool = ScriptedExperts("<answer> 4 </answer>")
    table = expert_outcomes.measure_experts(pool, ITEMS, "test")
    for expert, rows in table.groupby("method"):
        assert rows["correct"].tolist() == [float(item.reference == "4") for item in ITEMS]
        assert set(rows["calls"]) == {1}
        assert set(rows["cost_usd"]) == {PRICES[expert]}
        assert set(rows["reply"]) == {"<answer> 4 </answer>"}
    assert [query.text for query in pool.queries] == [item.prompt for item in ITEMS] * len(EXPERTS)


def test_all_experts_answer_a_question_with_the_same_seed_in_a_sample():
    pool = ScriptedExperts(answer_chain)
    expert_outcomes.measure_experts(pool, ITEMS, "test", 2)
    seeds_by_query = {(query.expert, query.text): set() for query in pool.queries}
    for query in pool.queries:
        seeds_by_query[query.expert, query.text].add(query.seed)
    for (_, text), seeds in seeds_by_query.items():
        assert seeds == {derive_reply_seed(text, 0), derive_reply_seed(text, 1)}

    all_seeds = {derive_reply_seed(item.prompt, sample) for item in ITEMS for sample in range(2)}
    assert len(all_seeds) == 2 * len(ITEMS)
    assert all(0 <= seed < 2**63 for seed in all_seeds)


@pytest.mark.parametrize("text", ["nothing", "", "<answer> 12 </answer> so", "<think> 4"])
def test_a_reply_that_is_no_answer_is_wrong_and_costs_what_was_billed(text):
    table = measure(text)
    assert table["correct"].eq(0).all()
    assert set(table["cost_usd"]) == set(PRICES.values())


def test_a_lost_reply_is_neither_correct_nor_wrong_and_decides_no_price():
    def reply(query):
        if query.text == ITEMS[0].prompt:
            return ExpertReply("", 0.0, failure=Failure("timeout"))
        return answer_chain(query)

    table = measure(reply)
    is_lost = table["item"] == 0
    assert table[is_lost]["correct"].isna().all()
    assert table[is_lost]["failed"].all()
    assert table[is_lost]["failures"].eq(1).all()
    assert table[~is_lost]["correct"].eq(1).all()
    prices = expert_outcomes.measure_call_prices(table, EXPERTS, SMOKE)
    assert prices == {expert: pytest.approx(price) for expert, price in PRICES.items()}


def test_an_expert_whose_own_limit_cuts_it_off_is_wrong():
    cut_off = ExpertReply("<think> 4", 1e-5, failure=Failure("truncated"))
    table = measure(lambda query: cut_off)
    assert table["correct"].eq(0).all()
    assert table["truncated"].all()
    assert not table["failed"].any()


def test_the_controller_alone_costs_nothing_and_answers_alike_in_every_sample(words_model):
    items = tasks.draw_evenly({"chain": [1], "facts": [1]}, "test", 6)
    table = expert_outcomes.measure_controller_alone(words_model, items, "test", 2)
    own_columns = ["method", "correct", "cost_usd", "calls", "reply", "tokens", "sample"]
    assert list(table) == QUESTION_COLUMNS + own_columns
    samples = []
    for _, rows in table.groupby("sample"):
        samples.append(rows.drop(columns="sample").reset_index(drop=True))
    pd.testing.assert_frame_equal(*samples)
    assert set(table["cost_usd"]) == {0.0}
    assert (table["tokens"] > 0).all()
    assert set(table["method"]) == {expert_outcomes.CONTROLLER_ALONE}
    assert table["group"].unique().tolist() == ["chain", "facts"]


# Budgets and headroom -----------------------------------------------------------------------------


def test_low_affords_the_cheapest_expert_and_medium_the_one_in_the_middle():
    prices = {"expensive": 3e-5, "cheap": 1e-5, "middle": 2e-5}
    budgets = expert_outcomes.derive_budgets(prices, SMOKE)
    table = expert_outcomes.tabulate_budgets(budgets, prices, SMOKE).set_index("budget")
    assert table["affords one call to"].tolist() == ["cheap", "middle", "any expert"]
    assert table["$ per million questions"].tolist() == ["10.0", "20.0", "no limit"]


def make_outcomes(solves, prices) -> pd.DataFrame:
    """Eight questions of dev and of test, in two samples; solves: by method, a function of the question's number."""
    rows = []
    for split in ("dev", "test"):
        for item in range(8):
            for sample in range(2):
                for method, is_solved in solves.items():
                    row = {"split": split, "item": item, "sample": sample, "method": method}
                    row |= {"correct": float(is_solved(item)), "cost_usd": prices[method]}
                    rows.append(row)
    return pd.DataFrame(rows)


def test_headroom_of_two_specialists_is_what_the_budget_affords():
    """Each is correct on its half of the questions; the second costs more than the low budget."""
    solves = {"cheap": lambda item: item % 2 == 0, "expensive": lambda item: item % 2 == 1}
    outcomes = make_outcomes(solves, {"cheap": 1.0, "expensive": 3.0})
    headroom = expert_outcomes.estimate_headroom(outcomes, {"low": 2.0, "high": 9.0})
    assert headroom["value"].tolist() == [0.5, 0.0, 0.5]
    assert list(headroom.index) == [expert_outcomes.NO_LIMIT, "low", "high"]
    assert headroom.loc["low", "constant"] == "cheap"


def test_where_one_expert_is_better_on_all_questions_choosing_wins_nothing():
    """Reward does not count what is saved within the budget."""
    solves = {"small": lambda item: item < 4, "large": lambda item: item < 7}
    outcomes = make_outcomes(solves, {"small": 1.0, "large": 3.0})
    headroom = expert_outcomes.estimate_headroom(outcomes, {"low": 2.0, "high": 9.0})
    assert headroom["value"].tolist() == [0.0, 0.0, 0.0]
    assert headroom["constant"].tolist() == ["large", "small", "large"]
