"""Routers beside constants, mixtures and an oracle on one table of outcomes, each scored on items that it has not met.

    comparison = compare_methods(table, settings, num_repeats=5)
    comparison.at("logistic", SAME_MONEY).gain      # accuracy minus the best constant's, with its interval

Whole groups are held out. A method's knob is chosen on dev and scored on test (`model_selection`), in three conditions:
at the cost of the best constant, at half of it, and at equal quality. Differences are taken inside an item; intervals
are over groups of items and repeats of the cross-validation. Left out: what could be won at most (`headroom`), and what
it means (`evaluation_sentence`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from lib import stats
from lib.config import RecordedSettings
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import (
    EQUAL_QUALITY,
    HALF_COST,
    Choices,
    Fold,
    HeldOutScores,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import methods
from lib.routers.matrix_factorization import predict_matrix_factorization
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    NEAREST,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    RANDOM_MODEL,
    STOP_OR_ESCALATE,
)
from lib.stats import Interval
from lib.stats.verdicts import UNDECIDED

MATRIX = "matrix factorization"
# What a user can run: it looks at the item, or at what a first call has cost, and at nothing else.
ROUTERS = (NEAREST, LOGISTIC, MATRIX, CORL, STOP_OR_ESCALATE)
# A check of the first answer is assumed; an oracle knows all outcomes; the others do not look at the item.
CONTROLS = (PERFECT_CHECK, POOR_CHECK, CONSTANT_MIXTURES, RANDOM_MODEL, ORACLE)
LABELS = {
    BEST_CONSTANT: "best constant",
    RANDOM_MODEL: "a model at random",
    CONSTANT_MIXTURES: "mixture of constants",
    NEAREST: "nearest neighbours",
    LOGISTIC: "logistic regression",
    MATRIX: "matrix factorization as in RouteLLM",
    CORL: "policy trained with CoRL's reward",
    STOP_OR_ESCALATE: "cascade without a check",
    POOR_CHECK: "cascade with a poor check",
    PERFECT_CHECK: "cascade with a perfect check",
    ORACLE: "oracle",
}
SAME_MONEY = "the same money"
CONDITIONS = (SAME_MONEY, HALF_COST, EQUAL_QUALITY)
MAX_SPENDING_RATIO = 1.05  # a budget is broken where more than this share of it is spent
KEPT, BROKEN = "kept", "broken"
_MIN_ITEMS_OF_GROUP = 10  # of a group whose mean cost is looked at


@dataclass(frozen=True)
class MethodEstimate:
    """A method in one condition, beside the best constant on the same items.

    Attributes:
        method: One of the names in `LABELS`.
        condition: One of `CONDITIONS`.
        accuracy: Mean over held-out items, with its interval.
        cost_usd: Mean cost of an item, with its interval.
        gain: Accuracy minus the best constant's.
        gain_over_mixtures: Accuracy minus that of the mixture of constants in the same condition.
        cost_ratio: Cost over the best constant's cost.
    """

    method: str
    condition: str
    accuracy: Interval
    cost_usd: Interval
    gain: Interval
    gain_over_mixtures: Interval
    cost_ratio: Interval


@dataclass(frozen=True)
class Comparison:
    """All methods on one table.

    Attributes:
        estimates: By method and condition.
        budgets: A row for each method and budget: method, level, promised_usd, spent_usd, ratio, ratio_ci_low,
            ratio_ci_high, accuracy with its interval, groups_over, budget (kept, broken or undecided).
        num_groups: Groups over which intervals are taken.
        unavailable: By method, why it could not be compared.
    """

    estimates: Mapping[tuple[str, str], MethodEstimate]
    budgets: pd.DataFrame
    num_groups: int
    unavailable: Mapping[str, str]

    @property
    def methods(self) -> list[str]:
        """All methods, in the order of `LABELS`."""
        names = {method for method, _ in self.estimates}
        return [method for method in LABELS if method in names]

    @property
    def routers(self) -> list[str]:
        """The methods that a user could run."""
        return [method for method in self.methods if method in ROUTERS]

    def at(self, method: str, condition: str) -> MethodEstimate:
        """The estimate of a method in a condition."""
        return self.estimates[method, condition]

    def to_frame(self) -> pd.DataFrame:
        """A row for each method and condition; intervals as NAME, NAME_ci_low and NAME_ci_high."""
        rows = []
        for method, condition in itertools.product(self.methods, CONDITIONS):
            estimate = self.at(method, condition)
            row = {"method": LABELS[estimate.method], "condition": estimate.condition}
            for name in ("accuracy", "cost_usd", "gain", "gain_over_mixtures", "cost_ratio"):
                row |= getattr(estimate, name).as_metrics(name)
            rows.append(row)
        return pd.DataFrame(rows)


def compare_methods(
    table: OutcomeTable, settings: RecordedSettings, num_repeats: int
) -> Comparison:
    """Lets every method choose on every item while it is held out.

    Args:
        table: The recorded outcomes.
        settings: folds, updates, batch, learning_rate, neighbours and min_dev_gain are read.
        num_repeats: Of the cross-validation, each with other folds.

    Returns:
        The comparison.
    """
    # (2, items), correctness and cost, by method and condition in each repeat.
    outcomes_by_repeat: list[dict[tuple[str, str], np.ndarray]] = []
    scores_by_repeat: list[dict[str, HeldOutScores]] = []
    for cv_repeat in range(num_repeats):
        fold_of_item = model_selection.assign_folds(table, settings.folds, cv_repeat)
        folds = model_selection.make_cross_validation_folds(fold_of_item)
        choices = make_choices(table, settings, cv_repeat, folds)
        scores = {
            method: model_selection.score_choices(
                table, folds, method_choices, settings.min_dev_gain
            )
            for method, method_choices in choices.items()
        }
        outcomes_by_repeat.append(_collect_outcomes(table, folds, scores))
        scores_by_repeat.append(scores)

    # (repeats, 2, items) by method and condition.
    outcomes_by_method = {
        key: np.stack([outcomes[key] for outcomes in outcomes_by_repeat])
        for key in outcomes_by_repeat[0]
    }
    return Comparison(
        estimates=_estimate_all(outcomes_by_method, table.groups),
        budgets=compare_budgets(scores_by_repeat, table.groups),
        num_groups=len(np.unique(table.groups)),
        unavailable=_explain_unavailable(table, scores_by_repeat[0]),
    )


def make_choices(
    table: OutcomeTable, settings: RecordedSettings, cv_repeat: int, folds: Sequence[Fold]
) -> dict[str, list[Choices]]:
    """What each method would do at each setting of its knob, by method, for each fold."""
    names = [*ROUTERS, *CONTROLS]
    choices = methods.make_choices(table, settings, cv_repeat, folds, names)
    if NEAREST in choices:  # items are described
        choices[MATRIX] = [choose_by_matrix_factorization(table, fold, cv_repeat) for fold in folds]
    return choices


def choose_by_matrix_factorization(table: OutcomeTable, fold: Fold, cv_repeat: int) -> Choices:
    """argmax of probability - rate x expected cost, by matrix factorization that learned from `fold.train`."""
    features = headroom.standardize_features(table.features, fold.train)
    # Folds of a repeat differ in their test items, so that the first one names them.
    stream = (table.name, cv_repeat, int(fold.test[0]))
    probabilities = predict_matrix_factorization(features, table.correct, fold.train, *stream)
    all_models = np.arange(len(table.models))
    expected_cost = table.cost_usd[fold.train].mean(0)
    return headroom.choose_at_rates(table, probabilities, all_models, expected_cost)


def _collect_outcomes(
    table: OutcomeTable, folds: Sequence[Fold], scores: Mapping[str, HeldOutScores]
) -> dict[tuple[str, str], np.ndarray]:
    """Correctness and cost, (2, items), by method and condition; constants have the same in every condition."""
    outcomes = {}
    for method, method_scores in scores.items():
        for condition, pair in _select_conditions(method_scores).items():
            outcomes[method, condition] = pair
    constant = model_selection.score_best_constant(table, folds)
    random_model = np.stack([table.correct.mean(1), table.cost_usd.mean(1)])
    for condition in CONDITIONS:
        outcomes[BEST_CONSTANT, condition] = constant
        outcomes[RANDOM_MODEL, condition] = random_model
    return outcomes


def _select_conditions(scores: HeldOutScores) -> dict[str, np.ndarray]:
    """Correctness and cost, (2, items), by condition."""
    same = model_selection.LEVELS.index(1.0)
    half = model_selection.LEVELS.index(0.5)
    return {
        SAME_MONEY: np.stack([scores.correct[same], scores.cost_usd[same]]),
        HALF_COST: np.stack([scores.correct[half], scores.cost_usd[half]]),
        EQUAL_QUALITY: scores.equal,
    }


def _explain_unavailable(
    table: OutcomeTable, scores: Mapping[str, HeldOutScores]
) -> dict[str, str]:
    reasons = {}
    if STOP_OR_ESCALATE not in scores:
        reasons[STOP_OR_ESCALATE] = (
            "what a call costs does not tell here how long the model worked on the item"
        )
    for method in (NEAREST, LOGISTIC, MATRIX):
        if method not in scores:
            reasons[method] = "nothing describes the items"
    return reasons


# Estimates -----------------------------------------------------------------------------------------


def _estimate_all(
    outcomes: Mapping[tuple[str, str], np.ndarray], groups: np.ndarray
) -> dict[tuple[str, str], MethodEstimate]:
    estimates = {}
    for (method, condition), treatment in outcomes.items():
        constant = outcomes[BEST_CONSTANT, condition]
        mixtures = outcomes[CONSTANT_MIXTURES, condition]
        estimates[method, condition] = MethodEstimate(
            method=method,
            condition=condition,
            accuracy=estimate_mean(treatment[:, 0], groups),
            cost_usd=estimate_mean(treatment[:, 1], groups),
            gain=estimate_gain(treatment[:, 0], constant[:, 0], groups),
            gain_over_mixtures=estimate_gain(treatment[:, 0], mixtures[:, 0], groups),
            cost_ratio=estimate_cost_ratio(treatment[:, 1], constant[:, 1], groups),
        )
    return estimates


def estimate_mean(values: np.ndarray, groups: np.ndarray) -> Interval:
    """The mean of (repeats, items) values, with an interval over groups (items,) and repeats."""
    over_items = stats.grouped_interval(values.mean(0), groups)
    return model_selection.add_repeat_variance(over_items, values.mean(1))


def estimate_gain(treatment: np.ndarray, baseline: np.ndarray, groups: np.ndarray) -> Interval:
    """The mean difference inside items.

    Args:
        treatment: (repeats, items), correctness.
        baseline: (repeats, items), of what it is compared with.
        groups: (items,) what is sampled together.

    Returns:
        The difference, with an interval over groups and repeats.
    """
    return estimate_mean(treatment - baseline, groups)


def estimate_cost_ratio(
    treatment: np.ndarray, baseline: np.ndarray, groups: np.ndarray
) -> Interval:
    """The ratio of two mean costs, by the delta method on its logarithm.

    Args:
        treatment: (repeats, items), costs.
        baseline: (repeats, items), costs of what it is compared with.
        groups: (items,) what is sampled together.

    Returns:
        The ratio, with an interval over groups and repeats; nan where one of them is free.
    """
    mean_cost = treatment.mean()
    mean_baseline = baseline.mean()
    if not (mean_cost > 0 and mean_baseline > 0):
        return Interval(float("nan"), float("nan"), float("nan"))
    # log(a / b) varies as a / mean(a) - b / mean(b), which is 0 on average.
    relative = treatment.mean(0) / mean_cost - baseline.mean(0) / mean_baseline
    over_items = stats.grouped_interval(relative, groups)
    log_ratios = np.log(treatment.mean(1) / baseline.mean(1))  # (repeats,)
    half_width = model_selection.add_repeat_variance(over_items, log_ratios).ci_high
    ratio = float(mean_cost / mean_baseline)
    return Interval(ratio, ratio * np.exp(-half_width), ratio * np.exp(half_width))


def widen_for_comparisons(interval: Interval, num_comparisons: int, num_groups: int) -> Interval:
    """An interval that holds together with those of all comparisons in 95 % of all samples (Bonferroni).

    Args:
        interval: At 95 %, for a difference.
        num_comparisons: That are made beside each other, so that the best of them may be named.
        num_groups: Over which the interval was taken.
    """
    degrees = max(num_groups - 1, 1)
    tail = (1 - stats.LEVEL) / 2
    single_quantile = scipy_stats.t.ppf(1 - tail, degrees)
    joint_quantile = scipy_stats.t.ppf(1 - tail / num_comparisons, degrees)
    factor = float(joint_quantile / single_quantile)
    return Interval(
        interval.value,
        interval.value - factor * (interval.value - interval.ci_low),
        interval.value + factor * (interval.ci_high - interval.value),
    )


def widen_ratio_for_comparisons(ratio: Interval, num_comparisons: int, num_groups: int) -> Interval:
    """The same for a ratio, whose interval is symmetric in its logarithm."""
    logarithm = Interval(np.log(ratio.value), np.log(ratio.ci_low), np.log(ratio.ci_high))
    widened = widen_for_comparisons(logarithm, num_comparisons, num_groups)
    return Interval(ratio.value, float(np.exp(widened.ci_low)), float(np.exp(widened.ci_high)))


# Budgets -------------------------------------------------------------------------------------------


def compare_budgets(
    scores_by_repeat: Sequence[Mapping[str, HeldOutScores]], groups: np.ndarray
) -> pd.DataFrame:
    """What was spent on held-out items where so much was promised on dev; see `Comparison.budgets`."""
    rows = []
    for method in scores_by_repeat[0]:
        for level, level_share in enumerate(model_selection.LEVELS):
            # (repeats, items) each.
            spent = np.stack([scores[method].cost_usd[level] for scores in scores_by_repeat])
            promised = np.stack([scores[method].promised[level] for scores in scores_by_repeat])
            correct = np.stack([scores[method].correct[level] for scores in scores_by_repeat])
            ratio = estimate_cost_ratio(spent, promised, groups)
            rows.append(
                {
                    "method": LABELS[method],
                    "level": level_share,
                    "promised_usd": promised.mean(),
                    **estimate_mean(spent, groups).as_metrics("spent_usd"),
                    **ratio.as_metrics("ratio"),
                    **estimate_mean(correct, groups).as_metrics("accuracy"),
                    "groups_over": _share_of_groups_over(spent.mean(0), promised.mean(0), groups),
                    "budget": decide_budget(ratio),
                }
            )
    return pd.DataFrame(rows)


def _share_of_groups_over(spent: np.ndarray, promised: np.ndarray, groups: np.ndarray) -> float:
    """The share of large groups whose mean cost exceeds what was promised for it; nan without such groups.

    Args:
        spent: (items,) costs.
        promised: (items,) promised costs.
        groups: (items,) the group of each item.
    """
    frame = pd.DataFrame({"group": groups, "spent": spent, "promised": promised})
    group_size = frame.groupby("group")["spent"].transform("size")
    means = frame[group_size >= _MIN_ITEMS_OF_GROUP].groupby("group").mean()
    is_over = means["spent"] > MAX_SPENDING_RATIO * means["promised"]
    return float(is_over.mean()) if len(is_over) else float("nan")


def decide_budget(ratio: Interval) -> str:
    """Whether a budget was kept: KEPT, BROKEN, or undecided where the interval holds `MAX_SPENDING_RATIO`."""
    if ratio.ci_high <= MAX_SPENDING_RATIO:
        return KEPT
    if ratio.ci_low > MAX_SPENDING_RATIO:
        return BROKEN
    return UNDECIDED
