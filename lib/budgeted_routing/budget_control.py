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


def estimate_control(
    rows: pd.DataFrame, word_method: str, numeric_method: str
) -> dict[str, Estimate]:
    """Estimate how well a controller keeps the cost of its calls within the budget in its prompt.

    A controller is a language model that answers a question itself or calls experts, models that cost money. The budget
    is the most that the calls for one question may cost: a word (low, medium, high; style "soft" of the prompt) or a
    number (style "number").

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding (temperature 0), those of the
            oracle among them.
        word_method: Name of the controller whose budgets are words, such as "CoRL".
        numeric_method: Name of the one whose budgets are numbers.

    Returns:
        Estimates, rows of `lib.stats` (value, ci_low, ci_high, ...), by metric key:
        `control.BUDGET.over_budget`, for low and medium: share of questions whose calls cost more than the budget;
        `control.BUDGET.over_budget_answerable`, `..._unanswerable`: the same on questions that some single call within
        the budget answers, and on the others;
        `control.accuracy_high_minus_low`: accuracy under the high budget minus that under the low one;
        `control.slope`: see `estimate_slope`; only where rows have budgets that are numbers.
    """
    word_rows = results_table.select(rows, style="soft")
    estimates = {}
    for budget in ("low", "medium"):  # the high budget affords any call
        spending = mark_overspending(word_rows, word_method, budget)
        key = f"control.{budget}.over_budget"
        estimates[key] = _estimate_share_over_budget(spending)
        for suffix, is_answerable in (("unanswerable", False), ("answerable", True)):
            selected = spending[spending["is_answerable"] == is_answerable]
            if not selected.empty:
                estimates[f"{key}_{suffix}"] = _estimate_share_over_budget(selected)

    method_rows = results_table.select(word_rows, method=word_method)
    estimates["control.accuracy_high_minus_low"] = stats.paired_difference(
        method_rows, "correct", {"condition": "high"}, {"condition": "low"}
    ).iloc[0]

    numeric_rows = results_table.select(rows, style="number", method=numeric_method)
    if not numeric_rows.empty:
        estimates["control.slope"] = estimate_slope(numeric_rows)
    return estimates


def _estimate_share_over_budget(spending: pd.DataFrame) -> Estimate:
    """Estimate the share of questions whose calls cost more than the budget.

    Args:
        spending: A row per seed and question, with the column over_budget (0 or 1).

    Returns:
        One estimate, a row of `lib.stats`; its interval lies in [0, 1].
    """
    return stats.mean(spending, "over_budget", bounds=stats.UNIT).iloc[0]


def mark_overspending(rows: pd.DataFrame, method: str, budget: str) -> pd.DataFrame:
    """Mark the questions on which a method spent more than its budget, and those that the budget can answer.

    Args:
        rows: Test rows of one world (one set of experts and questions) whose budgets are words, those of the method and
            of the oracle among them. The oracle makes the best single call within the budget, in hindsight.
        method: Name of the method whose spending is measured.
        budget: A budget word: low, medium or high.

    Returns:
        The method's rows under this budget with two more columns: over_budget (1.0 where the calls cost more than the
        budget, else 0.0) and is_answerable (whether the oracle's call answers the question correctly).
    """
    budget_rows = results_table.select(rows, condition=budget)
    oracle_rows = results_table.select(budget_rows, method=ORACLE)
    oracle_reward_by_item = oracle_rows.set_index("item")["reward"]
    method_rows = results_table.select(budget_rows, method=method)
    oracle_rewards = method_rows["item"].map(oracle_reward_by_item)
    return method_rows.assign(
        over_budget=1.0 - method_rows["within"],
        is_answerable=oracle_rewards > 0,
    )


def estimate_slope(rows: pd.DataFrame) -> Estimate:
    """Estimate how much more a controller spends for each further dollar of budget: 0 where it ignores budgets.

    Args:
        rows: Rows of one method, every question under every budget that is a number; columns seed, item (the question),
            budget and cost_usd (both US dollars).

    Returns:
        One estimate, a row of `lib.stats`: the mean slope of the least-squares lines of cost on budget, one line for
        each seed and question.
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
    """Tabulate what each method spends, how often that is over the budget, and how often it is correct, by budget word.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding.
        methods: Names of the methods, in the order of the table.

    Returns:
        A row per method and budget word (low, medium, high), with means over seeds and questions: usd_per_million (cost
        of calls, US dollars per million questions), over_budget (share of questions that cost more than the budget),
        correct and reward (correct and within the budget).
    """
    word_rows = results_table.select(rows, style="soft", method=list(methods))
    table = word_rows.assign(
        usd_per_million=1e6 * word_rows["cost_usd"],
        over_budget=1.0 - word_rows["within"],
    )
    columns = ["usd_per_million", "over_budget", "correct", "reward"]
    means = table.groupby(["method", "condition"])[columns].mean()

    # In the given order of methods; a method may lack rows under some budget.
    names = ["method", "budget"]
    order = pd.MultiIndex.from_product([methods, BUDGET_WORDS], names=names)
    return means.rename_axis(names).reindex(order).dropna(how="all")


def tabulate_spending(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what methods spend under each budget that is a number, for a figure.

    Args:
        rows: Test rows of the results table, greedy decoding; only those whose prompts give the budget in digits (style
            "number") are used.

    Returns:
        A row per method, seed and budget, with means over questions: budget and spent (both US dollars per million
        questions), over_budget (share of questions that cost more than the budget) and reward.
    """
    numeric_rows = results_table.select(rows, style="number")
    table = numeric_rows.assign(
        budget=(1e6 * numeric_rows["budget"]).round(6),
        spent=1e6 * numeric_rows["cost_usd"],
        over_budget=1.0 - numeric_rows["within"],
    )
    columns = ["spent", "over_budget", "reward"]
    return table.groupby(["method", "seed", "budget"], sort=False)[columns].mean().reset_index()
