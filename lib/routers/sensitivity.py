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
from lib.recorded_outcomes.model_selection import EQUAL_QUALITY
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import experiment
from lib.routers import methods as router_methods
from lib.routers.methods import BEST_CONSTANT, CONSTANT_MIXTURES, RANDOM_MODEL


def estimate_success_by_spending(
    table: OutcomeTable, model: str, num_bins: int = 5
) -> pd.DataFrame:
    """Estimates how often a model is correct, by how much it spent on an item compared with its other items.

    Args:
        table: The recorded outcomes, of which costs tell how long the model worked on an item.
        model: Name of the model in the table.
        num_bins: Number of bins, of equally many items each, into which items are sorted by their cost.

    Returns:
        A row for each bin: the accuracy with its interval as `stats.mean` returns it, spent (0 for the items that cost
        least, 1 for those that cost most) and the name of the table.
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
    """Computes the relative cost of a cascade whose check of the first answer errs.

    A cheaper model is asked first, and a more expensive one where the check refuses its answer. The pair of models is
    chosen on dev, at equal quality: as accurate as the best constant, the most accurate single model.

    Args:
        table: The recorded outcomes.
        settings: Settings of lesson 08; folds and min_dev_gain are read.
        miss: Fraction of wrong answers that the check lets pass.
        alarm: Fraction of correct answers that it refuses.

    Returns:
        The cascade's mean cost divided by the best constant's, on test items; 1 where no pair was better on dev.
    """
    fold_of_item = model_selection.assign_folds(table, settings.folds, 0)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    choices = [headroom.choose_with_checker(table, miss, alarm)] * len(folds)
    scores = model_selection.score_choices(table, folds, choices, settings.min_dev_gain)
    constant_cost = model_selection.score_best_constant(table, folds).cost_usd  # (items,)
    cost_usd = scores.at_equal_quality.cost_usd
    return float((cost_usd - constant_cost).mean() / constant_cost.mean() + 1)


def measure_strong_calls(
    table: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> pd.DataFrame:
    """Computes RouteLLM's two metrics of routers between a weak, cheap and a strong, expensive model.

    APGR is the fraction of the accuracy gap between the two models that a router recovers, averaged over the fraction
    of calls to the strong one. CPT(50 %) is the least fraction of such calls that recovers half of the gap.

    Args:
        table: The recorded outcomes of two models.
        settings: Settings of lesson 08.
        methods: Names of the routers.

    Returns:
        A row for each router: table, router, APGR, and "CPT(50 %)", a fraction or a text that says why there is none.
    """
    fold_of_item = model_selection.assign_folds(table, settings.folds, 0)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    choices_by_method = router_methods.make_choices(table, settings, 0, folds, methods)
    rows = []
    for method, choices in choices_by_method.items():
        curve = experiment.trace_strong_calls(table, choices, folds)
        weak_accuracy = curve["correct"].iloc[0]
        strong_accuracy = curve["correct"].iloc[-1]
        apgr = stats.apgr(curve["share"], curve["correct"], weak_accuracy, strong_accuracy)
        threshold = experiment.find_call_threshold(curve)
        rows.append({"table": table.name, "router": method, "APGR": apgr, "CPT(50 %)": threshold})
    return pd.DataFrame(rows)


def replay_transfer(
    source: OutcomeTable, target: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> pd.DataFrame:
    """Compares what methods promise to spend on one table with what they spend on another one.

    Args:
        source: Table on which they learn and choose their knob, the parameter that trades accuracy for cost.
        target: Table of the same models on which they are scored.
        settings: Settings of lesson 08.
        methods: Names of the methods.

    Returns:
        A row for each method and budget level: method, level, promised and cost_usd (USD per item), table (both names),
        and overspending, cost_usd divided by promised.
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
    """Replays methods after the price of the best constant, the most accurate single model, has changed.

    Args:
        table: The recorded outcomes, which stay as they are.
        settings: Settings of lesson 08.
        factors: Factors by which the costs of that model are multiplied, one replay each.
        methods: Names of the methods.

    Returns:
        A row for each factor and method: table, factor, method, and cost_ratio, the method's mean cost at equal quality
        divided by the best constant's.
    """
    best_constant = headroom.name_best_constant(table)
    # One repeat: every factor is a replay of its own.
    one_repeat = settings.model_copy(update={"seeds": 1})
    rows = []
    for factor in factors:
        repriced = table.scale_costs({best_constant: factor})
        results = experiment.replay_table(repriced, one_repeat, methods)["rows"]
        at_equal_quality = results_table.select(results, condition=EQUAL_QUALITY)
        mean_cost = at_equal_quality.groupby("method")["cost_usd"].mean()
        for method in mean_cost.index.drop([BEST_CONSTANT, RANDOM_MODEL]):
            cost_ratio = mean_cost[method] / mean_cost[BEST_CONSTANT]
            rows.append((table.name, factor, method, cost_ratio))
    return pd.DataFrame(rows, columns=["table", "factor", "method", "cost_ratio"])


def compare_cost_ratios(
    table: OutcomeTable, settings: RecordedSettings, methods: Sequence[str]
) -> dict[str, stats.Interval]:
    """Estimates what methods cost relative to the best constant, the most accurate single model.

    Costs are compared at equal quality: each method chooses on dev the cheapest mixture that is as accurate as the best
    constant. One repeat of cross-validation is made.

    Args:
        table: The recorded outcomes.
        settings: Settings of lesson 08.
        methods: Names of the methods.

    Returns:
        By method, its mean cost divided by the best constant's, with a 95 % interval over groups of items. Methods that
        the table does not allow are missing, such as a router where nothing describes the items.
    """
    one_repeat = settings.model_copy(update={"seeds": 1})
    frames = experiment.replay_table(table, one_repeat, [CONSTANT_MIXTURES, *methods])
    results = results_table.make_results("recorded", frames["rows"])
    rows = results_table.select(results, condition=EQUAL_QUALITY)
    repeat_averages = frames["repeat_averages"]
    repeat_averages = repeat_averages[repeat_averages["condition"] == EQUAL_QUALITY]

    ratios = {}
    replayed_methods = set(rows["method"])
    for method in methods:
        if method in replayed_methods:
            comparison = experiment.compare_pair(rows, repeat_averages, method, BEST_CONSTANT)
            ratios[method] = comparison["cost_ratio"]
    return ratios
