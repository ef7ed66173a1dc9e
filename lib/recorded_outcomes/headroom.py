"""What a router could gain at most on a table, estimated before any router is tried: its headroom.

Each item was tried once, so an oracle that sees who was correct also sees random luck: of three models that guess, one
is right on an item by chance, and no router can predict which. The oracle's gain is therefore printed as such and
decides nothing. Headroom is estimated by an *informed router*: it sees more than any method may see, the outcomes of
other models on the same item among it, and is scored on items that it did not learn from. Three questions are asked,
each with the least gain that is worth having (`MIN_WORTHWHILE_GAIN`):

    accuracy   how much more often it is correct than the best constant      from .05 on
    money      the fraction of cost that it saves at equal quality           from .10 on
    check      the same for pairs of models with a perfect check between     from .10 on

The best constant is the most accurate single model, asked for every item. A question is *open* (some method may win)
where the lower end of its interval reaches the least gain and no constant's accuracy is above .95. Otherwise it is *not
open*: a method that wins nothing there has not failed.
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
    ItemOutcomes,
    add_repeat_variance,
    find_best_constant,
    make_cross_validation_folds,
    score_best_constant,
    score_choices,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.stats.verdicts import NOT_OPEN

VERSION = 2  # of the estimated headroom; 2: "not open" is the word for a question below the bound
# By question, the least gain that is worth having: accuracy, and fractions of the best constant's cost.
MIN_WORTHWHILE_GAIN = {"accuracy": stats.MIN_HEADROOM, "money": 0.10, "check": 0.10}
MAX_CONSTANT_ACCURACY = 0.95  # a single model above it leaves no difference to detect
OPEN = "open"
POOL = 5  # best models on the train items, among which the informed router chooses
# Prices at which costs are weighed against accuracy: accuracy that one mean cost of a call is worth.
RATES = np.concatenate([[0.0], np.geomspace(2e-3, 3, 20)])
_RIDGE_PENALTY = 30.0
_NUM_NEIGHBOURS = 30
_MAX_DEVIATIONS = 3.0  # standard deviations


def describe_table(table: OutcomeTable) -> dict[str, float]:
    """Describes a table by its size, its best constant, its oracle, and how similar the models' errors are.

    Args:
        table: The recorded outcomes.

    Returns:
        items, groups, models: their numbers.
        constant, constant_cost_usd: accuracy and mean cost of the best constant, the most accurate single model.
        oracle, oracle_cost_usd: accuracy and mean cost of the oracle, which knows all outcomes and asks the cheapest
            of the models that do best on an item.
        phi: correlation of two models' outcomes over items, averaged over all pairs of models.
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
    """The name of the best constant: the model with the highest accuracy on all items of the table."""
    return table.models[find_best_constant(table, np.arange(len(table)))]


@dataclass(frozen=True)
class InformedRouter:
    """Predictions of a router that sees more than any real one, so that its gain is a bound on theirs.

    Its features are those of real routers, `OutcomeTable.privileged_features`, and the outcomes on the same item of the
    models outside its pool. The outcomes of models in the pool are what it predicts, and are hidden from it.

    Attributes:
        pool: Indices of the models that it may ask.
        chances: (items, models), predicted probabilities of being correct; 0 outside the pool.
    """

    pool: np.ndarray
    chances: np.ndarray


def fit_informed_router(table: OutcomeTable, fold: Fold) -> InformedRouter:
    """Fits the informed router, which bounds what real routers can gain, on the train items of a fold.

    It predicts the outcomes of the models in a pool, by ridge regression or by nearest neighbours, whichever chooses a
    correct model more often on the dev items. The pool holds the most accurate models and the Pareto front of accuracy
    and cost. Where a table has few models, all are in the pool, and no other model's outcome is left to look at. The
    router then knows more than a real one by `privileged_features`, and by having seen other items of the same group.

    Args:
        table: The recorded outcomes.
        fold: Train, dev and test items.

    Returns:
        Its pool, and its predictions for all items.
    """
    # The pool: the most accurate models, and those that no cheaper model beats.
    accuracy = table.correct[fold.train].mean(0)  # (models,)
    by_price = np.argsort(table.cost_usd[fold.train].mean(0), kind="stable")
    front = []
    for rank, model in enumerate(by_price):
        best_of_cheaper = accuracy[by_price[:rank]].max(initial=-1.0)
        if accuracy[model] > best_of_cheaper:
            front.append(model)
    most_accurate = np.argsort(-accuracy, kind="stable")[:POOL]
    pool = np.unique([*most_accurate, *front[-POOL:]])

    features = _make_informed_features(table, fold, pool)
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


def _make_informed_features(table: OutcomeTable, fold: Fold, pool: np.ndarray) -> np.ndarray:
    """Makes the features of the informed router, which sees more than a real router could.

    They are the outcomes and costs of the models outside the pool, and all features of the table.

    Args:
        table: The recorded outcomes.
        fold: Its train items standardize the features.
        pool: Indices of the models that the router chooses from.

    Returns:
        (items, d).
    """
    outside_pool = np.setdiff1d(np.arange(len(table.models)), pool)
    columns = [
        table.correct[:, outside_pool],
        table.cost_usd[:, outside_pool],
        table.features,
    ]
    if len(table.privileged_features):
        columns.append(table.privileged_features)
    features = np.column_stack(columns).astype(float)
    return standardize_features(features, fold.train)


def standardize_features(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Standardizes features by the mean and standard deviation of the train items.

    Values beyond three standard deviations are clipped.

    Args:
        features: (items, d).
        train: Indices of the train items.

    Returns:
        (items, d), clipped at _MAX_DEVIATIONS standard deviations.
    """
    train_features = features[train]
    deviation = train_features.std(0)  # (d,)
    # A feature that is the same in every item is 0.
    scale = np.where(deviation > 0, deviation, 1.0)
    standardized = (features - train_features.mean(0)) / scale
    return np.clip(standardized, -_MAX_DEVIATIONS, _MAX_DEVIATIONS)


def _predict_ridge(features: np.ndarray, target: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Predicts by ridge regression.

    Args:
        features: (items, d), standardized.
        target: (train items, models), outcomes to learn from.
        train: Indices of the train items.

    Returns:
        (items, models), predicted outcomes of all items.
    """
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
    """Predicts a model's probability of being correct by its accuracy on the k nearest train items.

    Args:
        features: (items, d).
        correct: (items, models).
        train: Indices of the items to learn from.
        k: Number of neighbours.

    Returns:
        (items, models), probabilities of being correct.
    """
    index = NearestNeighbors(n_neighbors=min(k, len(train))).fit(features[train])
    neighbours = index.kneighbors(features, return_distance=False)  # (items, k)
    return correct[train][neighbours].mean(1)


def choose_at_rates(
    table: OutcomeTable, chances: np.ndarray, pool: np.ndarray, cost_usd: np.ndarray
) -> Choices:
    """Chooses for each item the model with the largest utility, at every rate of `RATES`.

        utility = probability of being correct - rate x expected cost / mean expected cost

    The rate is the knob of such a router: the larger it is, the cheaper are the models that are chosen.

    Args:
        table: The recorded outcomes.
        chances: (items, models), probabilities of being correct.
        pool: Indices of the models that may be asked.
        cost_usd: (models,), expected costs of a call in USD.

    Returns:
        The recorded outcomes of the chosen models, (rates, items).
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
    """Asks a cheaper model first, and a more expensive one only where a check of the first answer refuses it.

    Every pair of models is a knob setting. The check is assumed to exist and to cost nothing; correctness and cost are
    expectations over its errors.

    Args:
        table: The recorded outcomes.
        miss: Fraction of wrong answers that the check lets pass.
        alarm: Fraction of correct answers that it refuses.
        most: Largest number of models that are paired, those on the Pareto front of accuracy and cost first. The
            number of pairs grows as its square.

    Returns:
        The expected outcomes, (pairs, items).
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
    names = []
    for first_model, second_model in pairs:
        names.append(f"{table.models[first_model]} > {table.models[second_model]}")
    return Choices(
        correct=rightly_passed + refused * correct[second],
        cost_usd=cost_usd[first] + refused * cost_usd[second],
        names=tuple(names),
    )


def sort_by_dominance(table: OutcomeTable) -> list[int]:
    """Sorts model indices by the number of models that dominate them, which are cheaper and at least as accurate.

    The Pareto front, which no model dominates, comes first. Among equals the cheaper model comes first.

    Args:
        table: The recorded outcomes.

    Returns:
        Indices of all models.
    """
    accuracy = table.correct.mean(0)
    mean_cost = table.cost_usd.mean(0)
    # [i, j]: model j is cheaper than model i, and at least as accurate; (models, models)
    is_cheaper = mean_cost[None] < mean_cost[:, None]
    is_as_accurate = accuracy[None] >= accuracy[:, None]
    num_dominating = (is_cheaper & is_as_accurate).sum(1)
    return np.lexsort((mean_cost, num_dominating)).tolist()


def estimate_headroom(
    table: OutcomeTable, folds: int, runs: Sequence[int], min_dev_gain: float
) -> pd.DataFrame:
    """Estimates what a router could gain at most, and decides whether that is worth trying to win.

    Three gains over the best constant (the most accurate single model) are estimated with an informed router, which
    sees more than a real one: "accuracy", the accuracy that it adds; "money", the fraction of cost that it saves at
    equal quality; "check", the saving of a pair of models with a perfect check between them. Items are divided into
    folds without regard to groups, because this too helps the informed router.

    Args:
        table: The recorded outcomes.
        folds: Number of folds of the cross-validation.
        runs: Seeds of its repeats, each of which divides the items anew.
        min_dev_gain: Accuracy by which a mixture must beat the best constant on dev, see `score_choices`.

    Returns:
        A row for each question, accuracy, money and check: value, ci_low and ci_high (95 %, over items and repeats),
        and the column "question is": OPEN where the gain is worth having by `MIN_WORTHWHILE_GAIN`, or NOT_OPEN.
    """
    gains = []  # by run, (items,)
    constant_outcomes = []  # by run, of the best constant
    equal_quality_outcomes = {"money": [], "check": []}  # by run
    for run in runs:
        order = seeds.rng("outcomes", "gate", table.name, seed=run).permutation(len(table))
        run_folds = make_cross_validation_folds(order % folds)
        routers = [fit_informed_router(table, fold) for fold in run_folds]
        constant = score_best_constant(table, run_folds)
        constant_outcomes.append(constant)
        gains.append(_score_by_accuracy(table, run_folds, routers) - constant.correct)

        # Savings: of the informed router, and of pairs with a check, both at the quality of the best constant.
        router_choices = []
        for router, fold in zip(routers, run_folds, strict=True):
            expected_cost = table.cost_usd[fold.train].mean(0)
            router_choices.append(
                choose_at_rates(table, router.chances, router.pool, expected_cost)
            )
        checker_choices = [choose_with_checker(table)] * folds
        by_router = score_choices(table, run_folds, router_choices, min_dev_gain)
        by_checker = score_choices(table, run_folds, checker_choices, min_dev_gain)
        equal_quality_outcomes["money"].append(by_router.at_equal_quality)
        equal_quality_outcomes["check"].append(by_checker.at_equal_quality)

    over_items = stats.t_interval(np.mean(gains, axis=0))
    gain = add_repeat_variance(over_items, np.mean(gains, axis=1))
    rows = {"accuracy": [gain.value, gain.ci_low, gain.ci_high, 0.0]}
    for question, outcomes in equal_quality_outcomes.items():
        saving, quality = _estimate_saving(outcomes, constant_outcomes)
        rows[question] = [saving.value, saving.ci_low, saving.ci_high, quality.ci_high]
    columns = ["value", "ci_low", "ci_high", "quality_ci_high"]
    estimates = pd.DataFrame(rows, index=columns).T.rename_axis("question")

    # A saving counts where quality did not clearly fall; nothing counts where a single model is nearly perfect.
    reaches_bound = estimates["ci_low"] >= pd.Series(MIN_WORTHWHILE_GAIN)
    keeps_quality = estimates["quality_ci_high"] >= 0
    has_room = table.correct.mean(0).max() <= MAX_CONSTANT_ACCURACY
    is_open = reaches_bound & keeps_quality & has_room
    estimates["question is"] = np.where(is_open, OPEN, NOT_OPEN)
    return estimates.drop(columns="quality_ci_high")


def widen_degenerate_intervals(table: OutcomeTable, questions: pd.DataFrame) -> pd.DataFrame:
    """Replaces intervals of width 0, which arise where the informed router asked the best constant for every item.

    Such a router found no gain, but few items say little about the gain that exists. Its interval becomes as wide as
    that of an oracle's gain, which varies about as much as a real gain would. For accuracy this is the oracle's lead
    over the best constant; for money and check it is the fraction of cost that the oracle saves by asking the cheapest
    model that does as well. Where the oracle gains nothing, the width stays 0.

    Args:
        table: The recorded outcomes.
        questions: The table that `estimate_headroom` returned.

    Returns:
        The same table with the wider intervals; the column "question is" is unchanged.
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
    """Scores the informed router where it asks the most promising model at any cost.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.
        routers: The router of each fold.

    Returns:
        (items,) correctness on the test items.
    """
    correct = np.zeros(len(table))
    for fold, router in zip(folds, routers, strict=True):
        pool_chances = router.chances[fold.test][:, router.pool]
        chosen_models = router.pool[pool_chances.argmax(1)]
        correct[fold.test] = table.correct[fold.test, chosen_models]
    return correct


def _estimate_saving(
    treatment: Sequence[ItemOutcomes], baseline: Sequence[ItemOutcomes]
) -> tuple[stats.Interval, stats.Interval]:
    """Estimates the fraction of the baseline's cost that was saved, 1 - cost / its cost, and the change in accuracy.

    Both are needed: where accuracy fell, money was saved by being wrong.

    Args:
        treatment: Outcomes at equal quality, one for each repeat.
        baseline: Outcomes of the best constant, in the same repeats.

    Returns:
        The saving and the difference of accuracies, with intervals over items and repeats; that of the saving is by the
        delta method for a ratio of paired means.
    """
    correct = np.stack([outcomes.correct for outcomes in treatment])  # (repeats, items)
    cost_usd = np.stack([outcomes.cost_usd for outcomes in treatment])
    baseline_correct = np.stack([outcomes.correct for outcomes in baseline])
    baseline_cost = np.stack([outcomes.cost_usd for outcomes in baseline])

    # Delta method: the ratio varies as the mean of these terms.
    item_cost = cost_usd.mean(0)
    item_baseline_cost = baseline_cost.mean(0)
    ratio = item_cost.mean() / item_baseline_cost.mean()
    linearized = (item_cost - ratio * item_baseline_cost) / item_baseline_cost.mean()
    ratio_interval = stats.t_interval(linearized)
    half_width = (ratio_interval.ci_high - ratio_interval.ci_low) / 2
    saved = 1 - ratio
    saving = stats.Interval(saved, saved - half_width, saved + half_width)
    repeat_savings = 1 - cost_usd.mean(1) / baseline_cost.mean(1)  # (repeats,)
    saving = add_repeat_variance(saving, repeat_savings)

    quality = stats.t_interval(correct.mean(0) - baseline_correct.mean(0))
    repeat_changes = (correct - baseline_correct).mean(1)
    quality = add_repeat_variance(quality, repeat_changes)
    return saving, quality
