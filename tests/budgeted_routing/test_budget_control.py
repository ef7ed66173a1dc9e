"""Whether budgets are kept: overspending, the slope of spending, and what a larger budget buys, on tables by hand."""

import pandas as pd
import pytest

from lib.budgeted_routing import budget_control

NUM_ITEMS = 8
BUDGETS = {"low": 10e-6, "medium": 100e-6, "high": 1000.0}
UNITS = (3, 30, 300)
SEEDS = range(4)


def make_row(method, seed, item, style, label, budget, cost_usd, correct) -> dict:
    within = float(cost_usd <= budget)
    return {
        "method": method,
        "seed": seed,
        "item": str(item),
        "sample": 0,
        "style": style,
        "condition": label,
        "budget": budget,
        "cost_usd": cost_usd,
        "correct": float(correct),
        "within": within,
        "reward": correct * within,
    }


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Even questions are answered by a cheap call (5), odd ones by an expensive one (500) only.

    CoRL makes the right call whatever the budget. With numbers it spends half of the budget.
    """
    rows = []
    for item in range(NUM_ITEMS):
        cost_usd = 5e-6 if item % 2 == 0 else 500e-6
        for label, budget in BUDGETS.items():
            is_affordable = cost_usd <= budget
            rows.append(
                make_row("oracle", 0, item, "soft", label, budget, 0.0, float(is_affordable))
            )
            for seed in SEEDS:
                rows.append(make_row("CoRL", seed, item, "soft", label, budget, cost_usd, 1.0))
        for units in UNITS:
            budget = units * 1e-6
            for seed in SEEDS:
                label = f"{units:03d}"
                rows.append(
                    make_row("number", seed, item, "number", label, budget, budget / 2, 1.0)
                )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def estimates(rows) -> dict[str, pd.Series]:
    return budget_control.estimate_control(rows, "CoRL", "number")


def test_overspending_is_the_share_of_questions_whose_calls_cost_more_than_the_budget(estimates):
    for budget in ("low", "medium"):
        assert estimates[f"control.{budget}.over_budget"]["value"] == pytest.approx(0.5)
    assert not any("high.over" in key for key in estimates)


def test_overspending_is_told_apart_by_whether_an_affordable_call_answers(estimates):
    assert estimates["control.low.over_budget_answerable"]["value"] == 0
    assert estimates["control.low.over_budget_unanswerable"]["value"] == 1


def test_the_slope_is_the_dollars_spent_for_a_further_dollar_of_budget(estimates):
    assert estimates["control.slope"]["value"] == pytest.approx(0.5)


def test_without_numeric_budgets_there_is_no_slope(rows):
    words = rows[rows["style"] == "soft"]
    assert "control.slope" not in budget_control.estimate_control(words, "CoRL", "number")


def test_a_larger_budget_that_buys_nothing_gains_nothing(estimates):
    assert estimates["control.accuracy_high_minus_low"]["value"] == 0


def test_the_table_has_a_row_per_method_and_budget_in_order(rows):
    table = budget_control.tabulate_control(rows, ["CoRL", "oracle"])
    assert list(table.index) == [
        (method, budget) for method in ("CoRL", "oracle") for budget in BUDGETS
    ]
    assert table.loc[("CoRL", "low"), "usd_per_million"] == pytest.approx(252.5)
    assert table.loc[("CoRL", "low"), "over_budget"] == 0.5


def test_spending_is_in_dollars_per_million_questions_by_seed(rows):
    spending = budget_control.tabulate_spending(rows)
    assert len(spending) == len(UNITS) * len(SEEDS)
    assert list(spending["spent"]) == pytest.approx(list(spending["budget"] / 2))
    assert set(spending["over_budget"]) == {0.0}
