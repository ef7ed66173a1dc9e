"""How results on recorded outcomes depend on what was assumed: the studies of the appendix of lesson 08.

Each replays a few methods of `methods` on one table: with a check that errs, at other prices, on another benchmark than
the one it learned from, and between two models alone.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from lib import stats
from lib.config import RecordedSettings
from lib.experiment import results_table
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import EQUAL
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import experiment
from lib.routers import methods as router_methods
from lib.routers.methods import CONSTANT, MIXTURES, RANDOM


def estimate_success_by_spending(
    table: OutcomeTable, model: str, num_bins: int = 5
) -> pd.DataFrame:
    """How often a model is correct, by how much it spent on an item compared with its other items.

    Args:
        table: The recorded outcomes; costs that tell how long the model worked.
        model: Its name in the table.
        num_bins: Groups of items of equal size, by cost.

    Returns:
        Estimates with their intervals, and the columns spent (0 for the items that cost least, 1 for those that cost
        most) and table.
    """
    index = table.models.index(model)
    # Bins of equal size, by the rank of the cost.
    rank = pd.Series(table.cost_usd[:, index]).rank(pct=True)
    bins = np.minimum((rank * num_bins).astype(int), num_bins - 1)
    spent = bins / (num_bins - 1)
    outcomes = {"item": table.items, "correct": table.correct[:, index], "spent": spent}
    estimates = stats.mean(pd.DataFrame(outcomes), "correct", "spent")
    return estimates.reset_index().assign(table=table.name)


def score_imperfect_check(
    table: OutcomeTable, settings: RecordedSettings, miss: float, alarm: float
) -> float:
    """The cost of a pair with a check between its models over the best constant's cost, at equal quality.

    Args:
        table: The recorded outcomes.
        settings: Of lesson 08.
        miss: Fraction of wrong answers that the check lets pass.
        alarm: Fraction of correct answers that it refuses.

    Returns:
        The ratio, of pairs that dev chose; 1 where no pair is better than the best constant there.
    """
    fold_of_item = model_selection.assign_folds(table, settings.folds, 0)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    choices = [headroom.choose_with_checker(table, miss, alarm)] * len(folds)
    scores = model_selection.score_choices(table, folds, choices, settings.min_dev_gain)
    # Rows are correctness and cost, by item.
    _, constant_cost = experiment.score_without_knob(table, folds)[CONSTANT].equal
    _, cost_usd = scores.equal
    return float((cost_usd - constant_cost).mean() / constant_cost.mean() + 1)


def measure_strong_calls(
    table: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> pd.DataFrame:
    """APGR and CPT (RouteLLM) of routers between the two models of a table.

    Returns:
        One row per router: table, router, APGR, and CPT at half the gap, or why there is none.
    """
    fold_of_item = model_selection.assign_folds(table, settings.folds, 0)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    choices_by_method = router_methods.make_choices(table, settings, 0, folds, methods)
    rows = []
    for method, choices in choices_by_method.items():
        curve = experiment.trace_strong_calls(table, choices, folds)
        weak_accuracy, strong_accuracy = curve["correct"].iloc[[0, -1]].tolist()
        apgr = stats.apgr(curve["share"], curve["correct"], weak_accuracy, strong_accuracy)
        threshold = experiment.find_call_threshold(curve)
        rows.append({"table": table.name, "router": method, "APGR": apgr, "CPT(50 %)": threshold})
    return pd.DataFrame(rows)


def replay_transfer(
    source: OutcomeTable, target: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> pd.DataFrame:
    """What methods promise on one table, where they learn and choose, and spend on another one.

    Returns:
        One row per method and level: method, level, promised, cost_usd, table (both names), and overspending,
        cost_usd over promised.
    """
    table, folds = experiment.join_for_transfer(source, target)
    budgets = experiment.replay_table(table, settings, methods, folds)["budgets"]
    budgets = budgets.dropna(subset="level")
    overspending = budgets["cost_usd"] / budgets["promised"]
    return budgets.assign(table=table.name, overspending=overspending)


def replay_with_prices(
    table: OutcomeTable,
    settings: RecordedSettings,
    factors: Iterable[float],
    methods: Sequence[str],
) -> pd.DataFrame:
    """Lets methods choose again after the price of the best constant's model has changed; outcomes stay.

    Returns:
        One row per factor on its price and method: table, factor, method, and cost_ratio, the cost at equal quality
        over the best constant's.
    """
    best_constant = headroom.name_best_constant(table)
    # One repeat: every factor is a replay of its own.
    one_repeat = settings.model_copy(update={"seeds": 1})
    rows = []
    for factor in factors:
        repriced = table.scale_costs({best_constant: factor})
        results = experiment.replay_table(repriced, one_repeat, methods)["rows"]
        at_equal_quality = results_table.select(results, condition=EQUAL)
        mean_cost = at_equal_quality.groupby("method")["cost_usd"].mean()
        for method in mean_cost.index.drop([CONSTANT, RANDOM]):
            cost_ratio = mean_cost[method] / mean_cost[CONSTANT]
            rows.append((table.name, factor, method, cost_ratio))
    return pd.DataFrame(rows, columns=["table", "factor", "method", "cost_ratio"])


def compare_cost_ratios(
    table: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> dict[str, stats.Interval]:
    """By method, the cost at equal quality over the best constant's; without methods that cannot play on the table."""
    one_repeat = settings.model_copy(update={"seeds": 1})
    frames = experiment.replay_table(table, one_repeat, [MIXTURES, *methods])
    rows = results_table.make_results("recorded", frames["rows"])
    at_equal_quality = results_table.select(rows, condition=EQUAL)
    repeat_averages = frames["repeat_averages"].query("condition == @EQUAL")
    ratios = {}
    for method in methods:
        if method in set(at_equal_quality["method"]):
            comparison = experiment.compare_pair(
                at_equal_quality, repeat_averages, method, CONSTANT
            )
            ratios[method] = comparison["cost_ratio"]
    return ratios
