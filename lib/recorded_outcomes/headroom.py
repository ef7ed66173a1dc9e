"""What choosing per item could win, before any method is tried: the gate of every question.

Each item was tried once, so an oracle that sees who was correct also sees the luck: of three fair coins it wins one
that no router can. Its gap is printed as such. Whether a question is *open* is decided by a cross-fitted router that
sees more than any method does, the outcomes of all other models on the same item among it, and is scored on items that
it did not learn from:

    accuracy   how much more often it is correct than the best constant      open from .05 on
    money      the fraction of cost that it saves at equal quality           open from .10 on
    check      the same for a pair with a perfect check between the two      open from .10 on

The lower end of the interval must reach the bound, and no constant lie above .95; otherwise the question is *not open*.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes.model_selection import (
    Choices,
    Fold,
    add_repeat_variance,
    find_best_constant,
    make_cross_validation_folds,
    score_best_constant,
    score_choices,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.stats.verdicts import NOT_OPEN

VERSION = 2  # of what could be won; 2: "not open" is the word for a question below the bound
# The least gain with which a question is worth asking.
QUESTIONS = {"accuracy": stats.MIN_HEADROOM, "money": 0.10, "check": 0.10}
CEILING = 0.95  # a constant above it leaves no difference to detect
OPEN = "open"
POOL = 5  # best models on the train items, among which the gate's router chooses
# Correct answers that the mean model's cost is worth.
RATES = np.concatenate([[0.0], np.geomspace(2e-3, 3, 20)])
_RIDGE_PENALTY = 30.0
_NUM_NEIGHBOURS = 30
_MAX_DEVIATIONS = 3.0  # standard deviations


def describe_table(table: OutcomeTable) -> dict[str, float]:
    """Describes a table in hindsight: its size, the best constant, the oracle and how alike errors are.

    Returns:
        items, groups, models: their numbers.
        constant, constant_cost_usd: accuracy and mean cost of the best constant.
        oracle, oracle_cost_usd: the same of asking the cheapest model that is correct (all wrong: the cheapest).
        phi: mean correlation of two models' outcomes.
    """
    correct = table.correct  # (items, models)
    best_model = find_best_constant(table, np.arange(len(table)))
    is_best_of_item = correct >= correct.max(1, keepdims=True) - 1e-9
    oracle_cost = np.where(is_best_of_item, table.cost_usd, np.inf).min(1)

    # A model that is always correct, or never, has no correlation.
    varied = correct[:, correct.std(0) > 0]
    num_varied = varied.shape[1]
    correlations = np.array([np.nan])
    if num_varied > 1:
        above_diagonal = np.triu_indices(num_varied, 1)  # each pair once
        correlations = np.corrcoef(varied.T)[above_diagonal]
    return {
        "items": len(table),
        "groups": len(np.unique(table.groups)),
        "models": len(table.models),
        "constant": float(correct[:, best_model].mean()),
        "constant_cost_usd": float(table.cost_usd[:, best_model].mean()),
        "oracle": float(correct.max(1).mean()),
        "oracle_cost_usd": float(oracle_cost.mean()),
        "phi": float(correlations.mean()),
    }


def name_best_constant(table: OutcomeTable) -> str:
    """The name of the best constant, in hindsight."""
    return table.models[find_best_constant(table, np.arange(len(table)))]


@dataclass(frozen=True)
class InformedRouter:
    """Cross-fitted predictions of a router that sees more than any method does.

    It sees every other model's outcome, the features of methods, and what only the gate may see. A model that the
    router could ask is no feature.

    Attributes:
        pool: Indices of the models that it may ask.
        chances: (items, models), probabilities of being correct; 0 outside the pool.
    """

    pool: np.ndarray
    chances: np.ndarray


def fit_informed_router(table: OutcomeTable, fold: Fold) -> InformedRouter:
    """Predicts the outcomes of the models in a pool from those outside it, learned from `fold.train`.

    By ridge regression or by nearest neighbours, whichever is correct more often on `fold.dev`. In the pool are the
    best models and those on the front of quality and price. If there are few models, all are in it; the router then
    sees what methods see, and `gate_features`, but has met the item's group.
    """
    # The pool: the most accurate models, and those that no cheaper one beats.
    accuracy = table.correct[fold.train].mean(0)  # (models,)
    by_price = np.argsort(table.cost_usd[fold.train].mean(0), kind="stable")
    front = []
    for rank, model in enumerate(by_price):
        best_of_cheaper = accuracy[by_price[:rank]].max(initial=-1.0)
        if accuracy[model] > best_of_cheaper:
            front.append(model)
    most_accurate = np.argsort(-accuracy, kind="stable")[:POOL]
    pool = np.unique([*most_accurate, *front[-POOL:]])

    features = _make_gate_features(table, fold, pool)
    pool_correct = table.correct[:, pool]
    predictions = [
        _predict_ridge(features, pool_correct[fold.train], fold.train),
        predict_nearest_neighbours(features, pool_correct, fold.train, _NUM_NEIGHBOURS),
    ]

    # The better predictor on dev.
    chosen_models = [pool[prediction[fold.dev].argmax(1)] for prediction in predictions]
    dev_rows = fold.dev[:, None]
    dev_choices = np.stack(chosen_models, axis=1)  # (dev, predictors)
    dev_accuracy = table.correct[dev_rows, dev_choices].mean(0)  # (predictors,)
    best_predictor = int(dev_accuracy.argmax())
    chances = np.zeros_like(table.correct)
    chances[:, pool] = predictions[best_predictor]
    return InformedRouter(pool, chances)


def _make_gate_features(table: OutcomeTable, fold: Fold, pool: np.ndarray) -> np.ndarray:
    """Outcomes and costs of the models outside the pool, and all features, standardized on train: (items, d)."""
    outside_pool = np.setdiff1d(np.arange(len(table.models)), pool)
    columns = [
        table.correct[:, outside_pool],
        table.cost_usd[:, outside_pool],
        table.features,
    ]
    if len(table.gate_features):
        columns.append(table.gate_features)
    features = np.column_stack(columns).astype(float)
    return standardize_features(features, fold.train)


def standardize_features(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Features (items, d) by the mean and standard deviation of the train items, clipped at three deviations."""
    train_features = features[train]
    deviation = train_features.std(0)  # (d,)
    # A feature that is the same in every item is 0.
    scale = np.where(deviation > 0, deviation, 1.0)
    standardized = (features - train_features.mean(0)) / scale
    return np.clip(standardized, -_MAX_DEVIATIONS, _MAX_DEVIATIONS)


def _predict_ridge(features: np.ndarray, target: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Ridge regression of targets (train items, models) on features (items, d): (items, models)."""
    train_features = features[train]
    penalty = _RIDGE_PENALTY * np.eye(train_features.shape[1])
    mean = target.mean(0)
    # w = (X'X + penalty)^-1 X'(y - mean)
    covariance = train_features.T @ train_features + penalty  # (d, d)
    moments = train_features.T @ (target - mean)  # (d, models)
    weights = np.linalg.solve(covariance, moments)
    return features @ weights + mean


def predict_nearest_neighbours(
    features: np.ndarray, correct: np.ndarray, train: np.ndarray, k: int
) -> np.ndarray:
    """How often each model was correct on the k nearest train items.

    Args:
        features: (items, d).
        correct: (items, models).
        train: Indices of the items to learn from.
        k: Neighbours.

    Returns:
        (items, models), probabilities of being correct.
    """
    index = NearestNeighbors(n_neighbors=min(k, len(train))).fit(features[train])
    neighbours = index.kneighbors(features, return_distance=False)  # (items, k)
    return correct[train][neighbours].mean(1)


def choose_at_rates(
    table: OutcomeTable, chances: np.ndarray, pool: np.ndarray, cost_usd: np.ndarray
) -> Choices:
    """Asks argmax over the pool of (probability of being correct - rate x expected cost), at every rate.

    Args:
        table: The recorded outcomes.
        chances: (items, models), probabilities of being correct.
        pool: Indices of the models that may be asked.
        cost_usd: (models,), expected costs; the mean of the pool is the unit of the rates.
    """
    items = np.arange(len(table))
    unit = float(cost_usd[pool].mean()) or 1.0
    correct = []
    costs = []
    for rate in RATES:
        price = rate * cost_usd[pool] / unit  # (pool,)
        utility = chances[:, pool] - price  # (items, pool)
        chosen_models = pool[utility.argmax(1)]
        correct.append(table.correct[items, chosen_models])
        costs.append(table.cost_usd[items, chosen_models])
    names = tuple(f"rate {rate:.3g}" for rate in RATES)
    return Choices(np.stack(correct), np.stack(costs), names, learned=True)


def choose_with_checker(
    table: OutcomeTable, miss: float = 0.0, alarm: float = 0.0, most: int = 24
) -> Choices:
    """Asks a cheaper model first, and a more expensive one where a check refuses the answer, for every such pair.

    Correctness and cost are expectations; the check itself is free.

    Args:
        table: The recorded outcomes.
        miss: Fraction of wrong answers that the check lets pass.
        alarm: Fraction of correct answers that it refuses.
        most: Models to pair, those on the front of quality and price first, because pairs grow as their square.
    """
    candidates = sort_by_dominance(table)[:most]
    mean_cost = table.cost_usd.mean(0)  # (models,)
    pairs = []
    for first_model, second_model in itertools.permutations(candidates, 2):
        if mean_cost[first_model] <= mean_cost[second_model]:
            pairs.append((first_model, second_model))
    first, second = np.array(pairs, dtype=int).T

    # What passes is answered by the first model, the rest by the second; (pairs, items) each.
    correct = table.correct.T
    cost_usd = table.cost_usd.T
    rightly_passed = correct[first] * (1 - alarm)
    refused = 1 - (rightly_passed + (1 - correct[first]) * miss)
    names = [f"{table.models[a]} > {table.models[b]}" for a, b in pairs]
    return Choices(
        correct=rightly_passed + refused * correct[second],
        cost_usd=cost_usd[first] + refused * cost_usd[second],
        names=tuple(names),
    )


def sort_by_dominance(table: OutcomeTable) -> list[int]:
    """Model indices by how few others are cheaper and at least as accurate; of equals the cheaper one first."""
    accuracy = table.correct.mean(0)
    mean_cost = table.cost_usd.mean(0)
    # [i, j]: model j is cheaper than model i, and at least as accurate; (models, models)
    is_cheaper = mean_cost[None] < mean_cost[:, None]
    is_as_accurate = accuracy[None] >= accuracy[:, None]
    num_dominating = (is_cheaper & is_as_accurate).sum(1)
    return np.lexsort((mean_cost, num_dominating)).tolist()


def gate(table: OutcomeTable, folds: int, runs: Sequence[int], min_dev_gain: float) -> pd.DataFrame:
    """Decides by question whether there is enough to win.

    Items are divided without regard to groups, which tells the gate's router more, and every run divides them anew;
    intervals are over items and runs.

    Args:
        table: The recorded outcomes.
        folds: Folds of the cross-validation.
        runs: Seeds of its repeats.
        min_dev_gain: As for `score_choices`.

    Returns:
        By question (`QUESTIONS`): value, ci_low, ci_high, and "question is", open or not open.
    """
    gains = []  # by run, (items,)
    constant_scores = []  # by run, (2, items)
    equal_scores = {"money": [], "check": []}  # by run, (2, items)
    for run in runs:
        order = seeds.rng("outcomes", "gate", table.name, seed=run).permutation(len(table))
        run_folds = make_cross_validation_folds(order % folds)
        routers = [fit_informed_router(table, fold) for fold in run_folds]
        constant = score_best_constant(table, run_folds)
        constant_scores.append(constant)
        gains.append(_score_by_accuracy(table, run_folds, routers) - constant[0])

        router_choices = []
        for router, fold in zip(routers, run_folds, strict=True):
            expected_cost = table.cost_usd[fold.train].mean(0)
            router_choices.append(
                choose_at_rates(table, router.chances, router.pool, expected_cost)
            )
        checker_choices = [choose_with_checker(table)] * folds
        by_router = score_choices(table, run_folds, router_choices, min_dev_gain)
        by_checker = score_choices(table, run_folds, checker_choices, min_dev_gain)
        equal_scores["money"].append(by_router.equal)
        equal_scores["check"].append(by_checker.equal)

    over_items = stats.t_interval(np.mean(gains, axis=0))
    gain = add_repeat_variance(over_items, np.mean(gains, axis=1))
    rows = {"accuracy": [gain.value, gain.ci_low, gain.ci_high, 0.0]}
    for question, scores in equal_scores.items():
        rows[question] = _estimate_saving(np.array(scores), np.array(constant_scores))
    columns = ["value", "ci_low", "ci_high", "quality_ci_high"]
    table_of_questions = pd.DataFrame(rows, index=columns).T.rename_axis("question")

    # A saving counts where quality did not fall; nothing counts where a constant is nearly perfect.
    reaches_bound = table_of_questions["ci_low"] >= pd.Series(QUESTIONS)
    keeps_quality = table_of_questions["quality_ci_high"] >= 0
    has_room = table.correct.mean(0).max() <= CEILING
    is_open = reaches_bound & keeps_quality & has_room
    table_of_questions["question is"] = np.where(is_open, OPEN, NOT_OPEN)
    return table_of_questions.drop(columns="quality_ci_high")


def widen_degenerate_intervals(table: OutcomeTable, questions: pd.DataFrame) -> pd.DataFrame:
    """Replaces intervals of no width, which come from a router that asked the best constant everywhere.

    Such a router has found nothing, which on few items says little about what there is to find. Its interval becomes as
    wide as that of an oracle's gain, which is about what a gain would have varied by: for accuracy the oracle's lead
    over the best constant, for money the share that it saves by asking the cheapest model that does as well. Where the
    oracle gains nothing the width stays 0.

    Args:
        table: The recorded outcomes.
        questions: Of `gate`.

    Returns:
        The questions with these intervals; what is open stays so.
    """
    best_model = find_best_constant(table, np.arange(len(table)))
    constant_correct = table.correct[:, best_model]
    constant_cost = table.cost_usd[:, best_model]
    lead = table.correct.max(1) - constant_correct  # (items,)
    does_as_well = table.correct >= constant_correct[:, None]  # (items, models)
    oracle_cost = np.where(does_as_well, table.cost_usd, np.inf).min(1)
    mean_cost = float(constant_cost.mean()) or 1.0  # a constant that is free leaves nothing to save
    saving = (constant_cost - oracle_cost) / mean_cost
    oracle_gains = {"accuracy": lead, "money": saving, "check": saving}

    widened = questions.copy()
    for question, gain in oracle_gains.items():
        if questions.loc[question, "ci_low"] == questions.loc[question, "ci_high"]:
            interval = stats.t_interval(gain)
            half_width = (interval.ci_high - interval.ci_low) / 2
            widened.loc[question, "ci_low"] -= half_width
            widened.loc[question, "ci_high"] += half_width
    return widened


def _score_by_accuracy(
    table: OutcomeTable, folds: Sequence[Fold], routers: Sequence[InformedRouter]
) -> np.ndarray:
    """Correctness (items,) where the informed router chooses by accuracy alone."""
    correct = np.zeros(len(table))
    for fold, router in zip(folds, routers, strict=True):
        pool_chances = router.chances[fold.test][:, router.pool]
        chosen_models = router.pool[pool_chances.argmax(1)]
        correct[fold.test] = table.correct[fold.test, chosen_models]
    return correct


def _estimate_saving(equal: np.ndarray, constant: np.ndarray) -> list[float]:
    """Estimates the fraction of the best constant's cost that was saved, 1 - cost / its cost.

    Args:
        equal: (repeats, 2, items), correctness and cost at equal quality.
        constant: (repeats, 2, items), the same of the best constant.

    Returns:
        The saving, both ends of its interval (delta method, paired items), and the upper end of the change in quality:
        where that lies below 0, money was saved by being wrong.
    """
    correct, cost_usd = equal.mean(0)
    constant_correct, constant_cost = constant.mean(0)
    ratio = cost_usd.mean() / constant_cost.mean()

    # Delta method: the ratio varies as the mean of these terms.
    linearized = (cost_usd - ratio * constant_cost) / constant_cost.mean()
    ratio_interval = stats.t_interval(linearized)
    half_width = (ratio_interval.ci_high - ratio_interval.ci_low) / 2
    saved = 1 - ratio
    saving = stats.Interval(saved, saved - half_width, saved + half_width)
    repeat_costs = equal[:, 1].mean(1)  # (repeats,)
    repeat_constant_costs = constant[:, 1].mean(1)
    repeat_savings = 1 - repeat_costs / repeat_constant_costs
    saving = add_repeat_variance(saving, repeat_savings)

    quality = stats.t_interval(correct - constant_correct)
    repeat_changes = (equal[:, 0] - constant[:, 0]).mean(1)
    quality = add_repeat_variance(quality, repeat_changes)
    return [saving.value, saving.ci_low, saving.ci_high, quality.ci_high]
