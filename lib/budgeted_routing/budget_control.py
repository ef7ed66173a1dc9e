"""Are budgets kept? Overspending, the slope of spending on the budget, and what a larger budget buys.

CoRL promises a controller whose spending is controlled by the budget in its prompt. Three questions, each a metric:

    WORLD.control.BUDGET.over_budget              share of questions whose calls cost more than the budget
    WORLD.control.slope                           cents spent more for each further cent of a budget that is a number
    WORLD.control.accuracy_high_minus_low         what a high budget buys over a low one

They belong together: a controller that never calls keeps every budget and is no success.

The reward (eq. 7) pays nothing for a question that no affordable call answers, whatever is spent on it. So overspending
is also measured apart, on questions that some single call within the budget answers, and on the others.
"""

from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.experiment import results_table
from lib.rl.call_protocol import BUDGET_WORDS

Estimate = pd.Series  # a row of `lib.stats`
ORACLE = "oracle"


def estimate_control(rows: pd.DataFrame, method: str, numeric_method: str) -> dict[str, Estimate]:
    """Estimate how well a method controls its spending, by metric key without the world.

    Args:
        rows: Test rows of one world, without sampling (temperature 0).
        method: Its budgets are words, such as "CoRL".
        numeric_method: The same with budgets that are numbers.

    Returns:
        `control.BUDGET.over_budget` for each word that limits anything, the same with `_answerable` and
        `_unanswerable` behind it, `control.accuracy_high_minus_low`, and, where the rows hold numbers, `control.slope`.
    """
    word_rows = results_table.select(rows, style="soft")
    estimates = {}
    for budget in BUDGET_WORDS[:-1]:  # high affords anything
        spending = measure_overspending(word_rows, method, budget)
        key = f"control.{budget}.over_budget"
        estimates[key] = stats.mean(spending, "over_budget", bounds=stats.UNIT).iloc[0]
        for name, part in spending.groupby("is_answerable"):
            suffix = "answerable" if name else "unanswerable"
            estimates[f"{key}_{suffix}"] = stats.mean(part, "over_budget", bounds=stats.UNIT).iloc[
                0
            ]

    low, *_, high = BUDGET_WORDS
    of_method = results_table.select(word_rows, method=method)
    estimates["control.accuracy_high_minus_low"] = stats.paired_difference(
        of_method, "correct", {"condition": high}, {"condition": low}
    ).iloc[0]

    numeric_rows = results_table.select(rows, style="number", method=numeric_method)
    if not numeric_rows.empty:
        estimates["control.slope"] = estimate_slope(numeric_rows)
    return estimates


def measure_overspending(rows: pd.DataFrame, method: str, budget: str) -> pd.DataFrame:
    """Mark the questions on which a method spent more than its budget.

    Args:
        rows: Test rows of one world whose budgets are words, those of the oracle among them.
        method: Whose spending is measured.
        budget: A budget word.

    Returns:
        The method's rows with over_budget (0 or 1) and is_answerable (whether the oracle, the best single call within
        the budget, answers the question).
    """
    under_budget = results_table.select(rows, condition=budget)
    oracle = results_table.select(under_budget, method=ORACLE).set_index("item")["reward"]
    spending = results_table.select(under_budget, method=method)
    return spending.assign(
        over_budget=1.0 - spending["within"],
        is_answerable=spending["item"].map(oracle).gt(0),
    )


def estimate_slope(rows: pd.DataFrame) -> Estimate:
    """Estimate how much more is spent for each further dollar of budget: 0 where budgets are ignored.

    Args:
        rows: Rows of one method, every question under every numeric budget; columns seed, item, budget and cost_usd
            (US dollars).

    Returns:
        The mean slope of the least-squares lines of cost on budget, one line for each seed and question.
    """
    lines = []
    for (seed, item), line_rows in rows.groupby(["seed", "item"], sort=False):
        budget = line_rows["budget"].to_numpy()
        cost = line_rows["cost_usd"].to_numpy()
        centred = budget - budget.mean()
        # slope = sum_b (b - mean b) c_b / sum_b (b - mean b)^2
        slope = float(centred @ cost / (centred @ centred))
        lines.append({"seed": seed, "item": item, "sample": 0, "slope": slope})
    return stats.mean(pd.DataFrame(lines), "slope").iloc[0]


def tabulate_control(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """What each method spends, how often that is over the budget, and what it gets for it, by budget word.

    Args:
        rows: Test rows of one world, without sampling.
        methods: In the order of the table.

    Returns:
        A row per method and budget word: dollars per million questions, and shares of questions over the budget,
        correct, and rewarded.
    """
    word_rows = results_table.select(rows, style="soft", method=list(methods))
    table = word_rows.assign(
        usd_per_million=1e6 * word_rows["cost_usd"], over_budget=1.0 - word_rows["within"]
    )
    columns = ["usd_per_million", "over_budget", "correct", "reward"]
    means = table.groupby(["method", "condition"])[columns].mean()
    order = pd.MultiIndex.from_product([methods, BUDGET_WORDS], names=["method", "budget"])
    return means.rename_axis(["method", "budget"]).reindex(order).dropna(how="all")


def tabulate_spending(rows: pd.DataFrame) -> pd.DataFrame:
    """Spending under each budget that is a number, for a figure: a row per method, seed and budget.

    Args:
        rows: Test rows whose budgets are numbers, without sampling.

    Returns:
        Columns method, seed, budget and spent (both US dollars per million questions), over_budget and reward.
    """
    numeric_rows = results_table.select(rows, style="number")
    table = numeric_rows.assign(
        budget=(1e6 * numeric_rows["budget"]).round(6),
        spent=1e6 * numeric_rows["cost_usd"],
        over_budget=1.0 - numeric_rows["within"],
    )
    columns = ["spent", "over_budget", "reward"]
    return table.groupby(["method", "seed", "budget"], sort=False)[columns].mean().reset_index()
