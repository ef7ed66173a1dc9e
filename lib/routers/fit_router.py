"""Fits a router on a table of outcomes, calibrates its budget, and says what choosing gains.

    router = fit_router(read_outcome_table("outcomes.parquet"), "logistic", budget_usd=0.002)
    print(router.report["sentence"])

A data frame at hand becomes such a table by `recorded_outcomes.user_tables.make_outcome_table(frame, "my table")`.

What is promised is measured by cross-validation over whole groups: encoder and model are fitted on some groups, the
budget is calibrated on others, and accuracy and cost are those of third ones. The router that is kept is fitted the
same way, on all groups but those of its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib import stats
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import Fold, ItemOutcomes
from lib.recorded_outcomes.tables import OutcomeTable, TableError
from lib.routers.prompt_encoder import PromptEncoder, fit_encoder
from lib.routers.saved_router import OperatingPoint, Router
from lib.routers.success_model import SuccessModel, fit_success_model

VERSION = 1  # of what is promised
FOLDS = 5
ROUTER, CONSTANT, MIXTURE = "router", "best constant", "mixture of constants"
RANDOM, ORACLE = "random", "oracle"
MIN_DEV_GAIN = 0.01  # by which a mixture must beat the best constant on dev to replace it


@dataclass(frozen=True)
class FittedParts:
    """A router without its budget.

    Attributes:
        encoder: Converts prompts to vectors; fitted on the prompts of the train items.
        success: Predicts from a vector how likely each model is correct; fitted on the train items.
        chances: (items, models), predicted probabilities of being correct for all items of the table.
        cost_usd: (models,), mean cost in USD over the train items.
    """

    encoder: PromptEncoder
    success: SuccessModel
    chances: np.ndarray
    cost_usd: np.ndarray


def fit_router(
    table: OutcomeTable,
    method: str,
    budget_usd: float,
    encoder: str = "tfidf",
    num_folds: int = FOLDS,
    seed: int = 0,
) -> Router:
    """Fits a router that chooses a model for each prompt within a mean budget, and measures it on held-out items.

    Args:
        table: Outcomes with prompts.
        method: How success is predicted, one of `success_model.METHODS`.
        budget_usd: Mean cost of a prompt in USD that is allowed.
        encoder: Name of an encoder, as `prompt_encoder.fit_encoder` takes it.
        num_folds: Number of folds of the cross-validation; fewer where there are fewer groups.
        seed: Seed of the division into folds.

    Returns:
        The router, with a report of its accuracy and cost on held-out items.

    Raises:
        TableError: The table has no prompts or too few groups, or the budget buys no model.
    """
    _check_prompts(table)
    _check_budget(table, budget_usd)
    fold_of_item = model_selection.assign_folds(table, num_folds, seed)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    scores = score_held_out(table, method, budget_usd, encoder, folds)

    # The router that is kept learns from everything but the items of its calibration.
    calibration = folds[0].dev
    learned_from = np.concatenate([folds[0].train, folds[0].test])
    parts = fit_parts(table, method, encoder, learned_from)
    return Router(
        models=table.models,
        cost_usd=parts.cost_usd,
        encoder=parts.encoder,
        success=parts.success,
        points=calibrate(table, parts, calibration),
        budget_usd=budget_usd,
        report=make_report(table, scores, method, encoder, budget_usd, len(folds), seed),
    )


def fit_parts(
    table: OutcomeTable, method: str, encoder: str, learned_from: np.ndarray
) -> FittedParts:
    """Fits the encoder and the success model on some items, and predicts success for all items.

    Args:
        table: Outcomes with prompts.
        method: How success is predicted, one of `success_model.METHODS`.
        encoder: Name of an encoder, as `prompt_encoder.fit_encoder` takes it.
        learned_from: Indices of the items to learn from.

    Returns:
        Encoder and model, the predicted probabilities of being correct, and each model's mean cost.
    """
    fitted_encoder = fit_encoder(encoder, [table.prompts[index] for index in learned_from])
    features = fitted_encoder.encode(table.prompts)  # (items, d)
    success = fit_success_model(method, features[learned_from], table.correct[learned_from])
    return FittedParts(
        encoder=fitted_encoder,
        success=success,
        chances=success.predict(features),
        cost_usd=table.cost_usd[learned_from].mean(0),
    )


def make_options(table: OutcomeTable, parts: FittedParts) -> model_selection.Choices:
    """Lists the choices that may be mixed for a budget: the router at every rate, and each model for every item.

    The rate is the price at which expected cost is weighed against the probability of being correct, see
    `headroom.choose_at_rates`.

    Args:
        table: The recorded outcomes.
        parts: The fitted model, with its predictions.

    Returns:
        Outcomes (rates + models, items).
    """
    all_models = np.arange(len(table.models))
    by_rate = headroom.choose_at_rates(table, parts.chances, all_models, parts.cost_usd)
    return model_selection.join_choices(by_rate, model_selection.constant_choices(table))


def calibrate(
    table: OutcomeTable, parts: FittedParts, calibration: np.ndarray
) -> tuple[OperatingPoint, ...]:
    """Finds the corners of the hull of accuracy over mean cost, on items that were not learned from.

    Args:
        table: Outcomes with prompts.
        parts: The encoder and success model, fitted on other items.
        calibration: Indices of the items on which accuracy and cost are measured.

    Returns:
        The corners in the order of rising cost: the router at some rate, or one model for every prompt.
    """
    options = make_options(table, parts)
    frontier = model_selection.compute_frontier(options, calibration)
    num_rates = len(headroom.RATES)
    points = []
    for option, cost_usd, accuracy in zip(
        frontier.knobs, frontier.cost_usd, frontier.correct, strict=True
    ):
        # Options are rates first, then models.
        rate = None
        model = None
        if option < num_rates:
            rate = float(headroom.RATES[option])
        else:
            model = table.models[option - num_rates]
        points.append(OperatingPoint(float(cost_usd), float(accuracy), rate=rate, model=model))
    return tuple(points)


def score_held_out(
    table: OutcomeTable, method: str, budget_usd: float, encoder: str, folds: list[Fold]
) -> dict[str, ItemOutcomes]:
    """Scores the router and its baselines at one budget by cross-validation.

    Args:
        table: Outcomes with prompts.
        method: How success is predicted, one of `success_model.METHODS`.
        budget_usd: Mean cost of a prompt in USD that is allowed.
        encoder: Name of an encoder, as `prompt_encoder.fit_encoder` takes it.
        folds: Folds of the cross-validation.

    Returns:
        Correctness and cost of every item, by name: ROUTER; CONSTANT, the most accurate model within the budget, for
        every item; MIXTURE, a random mixture of models within the budget; RANDOM, a uniformly random model; ORACLE,
        the cheapest of the models that do best on the item.
    """
    scores = {}
    for name in (ROUTER, CONSTANT, MIXTURE):
        scores[name] = ItemOutcomes(np.zeros(len(table)), np.zeros(len(table)))
    constants = model_selection.constant_choices(table)
    for fold in folds:
        parts = fit_parts(table, method, encoder, fold.train)
        options = make_options(table, parts)
        weights = model_selection.compute_frontier(options, fold.dev).mix_for_cost(budget_usd)
        correct, cost_usd = model_selection.expect_mixture(options, weights, fold.test)
        scores[ROUTER].correct[fold.test] = correct
        scores[ROUTER].cost_usd[fold.test] = cost_usd

        # Baselines learn nothing from prompts, so that they may be chosen on all items that are not scored.
        known = fold.train_and_dev
        best = find_affordable_constant(table.take(known), budget_usd)
        scores[CONSTANT].correct[fold.test] = table.correct[fold.test, best]
        scores[CONSTANT].cost_usd[fold.test] = table.cost_usd[fold.test, best]
        weights = model_selection.compute_frontier(constants, known).mix_for_cost(budget_usd)
        correct, cost_usd = model_selection.expect_mixture(constants, weights, fold.test)
        scores[MIXTURE].correct[fold.test] = correct
        scores[MIXTURE].cost_usd[fold.test] = cost_usd

    scores[RANDOM] = ItemOutcomes(table.correct.mean(1), table.cost_usd.mean(1))
    is_best = table.correct >= table.correct.max(1, keepdims=True) - 1e-9
    oracle_cost = np.where(is_best, table.cost_usd, np.inf).min(1)
    scores[ORACLE] = ItemOutcomes(table.correct.max(1), oracle_cost)
    return scores


@dataclass(frozen=True)
class AverageQuality:
    """AIQ: the mean accuracy of a curve of accuracy over cost, from the cheapest model's cost to the best one's.

    Attributes:
        router: AIQ of the router, on held-out items.
        mixtures: AIQ of random mixtures of models.
        best_constant: Accuracy of the best model, the AIQ of a curve that reaches it at every cost.
        gain: router minus mixtures, with an interval over groups of items.
    """

    router: float
    mixtures: float
    best_constant: float
    gain: stats.Interval


def measure_average_quality(
    table: OutcomeTable,
    method: str,
    encoder: str = "tfidf",
    num_folds: int = FOLDS,
    seed: int = 0,
    draws: int = 200,
) -> AverageQuality:
    """Measures a router at all budgets at once, by cross-validation over whole groups.

    Args:
        table: Outcomes with prompts.
        method: One of `success_model.METHODS`.
        encoder: As `prompt_encoder.fit_encoder` takes it.
        num_folds: Number of folds of the cross-validation; never more than groups.
        seed: Seed of the division into folds.
        draws: Bootstrap resamples of the interval.

    Returns:
        The AIQ of the router and of mixtures, in accuracy.

    Raises:
        TableError: The table has no prompts or too few groups.
    """
    _check_prompts(table)
    fold_of_item = model_selection.assign_folds(table, num_folds, seed)
    folds = model_selection.make_cross_validation_folds(fold_of_item)
    all_models = np.arange(len(table.models))
    choices = []
    for fold in folds:
        parts = fit_parts(table, method, encoder, fold.train)
        by_rate = headroom.choose_at_rates(table, parts.chances, all_models, parts.cost_usd)
        choices.append(by_rate)
    constants = [model_selection.constant_choices(table)] * len(folds)
    router = model_selection.score_choices(table, folds, choices, MIN_DEV_GAIN)
    mixtures = model_selection.score_choices(table, folds, constants, MIN_DEV_GAIN)

    # Both curves between the same two costs.
    costs = model_selection.promised_costs(table, np.arange(len(table)))
    heights = []
    for scores in (router, mixtures):
        accuracy = scores.correct.mean(1)  # (levels,)
        mean_cost = scores.cost_usd.mean(1)
        height = model_selection.curve_height(accuracy, mean_cost, costs[0], costs[-1])
        heights.append(float(height[0]))
    return AverageQuality(
        router=heights[0],
        mixtures=heights[1],
        best_constant=float(table.correct.mean(0).max()),
        gain=model_selection.aiq_gap(table, [router], [mixtures], draws),
    )


def find_affordable_constant(table: OutcomeTable, budget_usd: float) -> int:
    """Finds the most accurate model whose mean cost is within a budget; the cheapest model if none is.

    Args:
        table: The recorded outcomes.
        budget_usd: Mean cost of a prompt that is allowed.

    Returns:
        Index of the model.
    """
    mean_cost = table.cost_usd.mean(0)
    affordable = np.flatnonzero(mean_cost <= budget_usd)
    if not len(affordable):
        return int(mean_cost.argmin())
    accuracy = table.correct.mean(0)[affordable]
    return int(affordable[accuracy.argmax()])


def make_report(
    table: OutcomeTable,
    scores: dict[str, ItemOutcomes],
    method: str,
    encoder: str,
    budget_usd: float,
    num_folds: int,
    seed: int,
) -> dict[str, Any]:
    """Makes the report of a router as JSON: its accuracy and cost on held-out items, beside baselines.

    Args:
        table: The outcomes.
        scores: Outcomes by ROUTER and its baselines, as `score_held_out` returns them.
        method: How success is predicted.
        encoder: Name of the encoder.
        budget_usd: Mean cost of a prompt in USD that is allowed.
        num_folds: Number of folds of the cross-validation.
        seed: Seed of its folds.

    Returns:
        The settings; accuracy and cost_usd by method, with intervals over groups; the gains in accuracy over the best
        affordable model and over mixtures; whether the budget was kept; and a sentence.
    """
    best = table.models[find_affordable_constant(table, budget_usd)]
    methods = {}
    for name, outcomes in scores.items():
        accuracy = stats.grouped_interval(outcomes.correct, table.groups)
        mean_cost = stats.grouped_interval(outcomes.cost_usd, table.groups)
        methods[name] = {
            "accuracy": _to_json(accuracy, (0.0, 1.0)),
            "cost_usd": _to_json(mean_cost, (0.0, np.inf)),
        }
    gains = {}
    for name in (CONSTANT, MIXTURE):
        difference = scores[ROUTER].correct - scores[name].correct
        gains[name] = _to_json(stats.grouped_interval(difference, table.groups))
    cost = methods[ROUTER]["cost_usd"]
    return {
        "version": VERSION,
        "table": table.name,
        "items": len(table),
        "groups": len(np.unique(table.groups)),
        "models": list(table.models),
        "method": method,
        "encoder": encoder,
        "budget_usd": budget_usd,
        "folds": num_folds,
        "seed": seed,
        "best_constant": best,
        "methods": methods,
        "gain_over": gains,
        # Kept, unless it is clear that more was spent.
        "budget_kept": bool(cost["ci_low"] is None or cost["ci_low"] <= budget_usd),
        "sentence": write_sentence(gains[CONSTANT], gains[MIXTURE], best, budget_usd),
        "notes": list(table.notes),
    }


def _to_json(
    interval: stats.Interval, possible: tuple[float, float] = (-np.inf, np.inf)
) -> dict[str, float | None]:
    """Converts an interval to JSON, clipped to the possible range.

    Args:
        interval: Value and 95 % interval.
        possible: Smallest and largest possible value.

    Returns:
        value, ci_low, ci_high; ends that are not known are None.
    """
    if not interval.known:
        return {"value": float(interval.value), "ci_low": None, "ci_high": None}
    ci_low, ci_high = np.clip([interval.ci_low, interval.ci_high], *possible)
    return {"value": float(interval.value), "ci_low": float(ci_low), "ci_high": float(ci_high)}


def write_sentence(
    over_constant: dict[str, float | None],
    over_mixture: dict[str, float | None],
    best: str,
    budget_usd: float,
) -> str:
    """Writes a sentence on whether choosing a model for each prompt pays at a budget.

    Args:
        over_constant: Gain in accuracy over the best model that the budget affords; value, ci_low, ci_high.
        over_mixture: Gain in accuracy over a random mixture of models within the budget.
        best: Name of that model.
        budget_usd: Mean cost of a prompt in USD that is allowed.

    Returns:
        The sentence.
    """
    points = _write_points(over_constant)
    where = f"always {best} at ${budget_usd:g} a prompt"
    if over_constant["ci_low"] is None:
        return f"Choosing: {points} against {where}; one group gives no interval."
    if over_constant["ci_low"] > 0:
        sentence = f"Choosing gains {points} over {where}"
        if over_mixture["ci_low"] > 0:
            return f"{sentence}, and {_write_points(over_mixture)} over a random mixture of models."
        return (
            f"{sentence}; a random mixture of models does as well "
            f"(difference {_write_points(over_mixture)})."
        )
    if over_constant["ci_high"] < 0:
        return f"Choosing does not pay here: it loses, {points} against {where}."
    return f"Choosing does not pay here as far as these items tell: {points} against {where}."


def _write_points(gain: dict[str, float | None]) -> str:
    """Formats a gain in percentage points with its interval, such as 3.1 points [1.0, 5.2]."""
    if gain["ci_low"] is None:
        return f"{100 * gain['value']:.1f} points"
    return f"{100 * gain['value']:.1f} points [{100 * gain['ci_low']:.1f}, {100 * gain['ci_high']:.1f}]"


def _check_prompts(table: OutcomeTable) -> None:
    """Raises TableError for a table without prompts."""
    if not table.prompts:
        raise TableError(
            f"{table.name} has no prompts, so that no router could read a new one; add a column prompt, or collect the "
            "table with `python -m lib router collect`"
        )


def _check_budget(table: OutcomeTable, budget_usd: float) -> None:
    """Checks that a budget buys the cheapest model.

    Args:
        table: The recorded outcomes.
        budget_usd: Mean cost of a prompt that is allowed.

    Raises:
        TableError: It does not.
    """
    mean_cost = table.cost_usd.mean(0)
    cheapest = int(mean_cost.argmin())
    if budget_usd < mean_cost[cheapest]:
        raise TableError(
            f"--budget {budget_usd:g} buys no model: the cheapest, {table.models[cheapest]}, costs "
            f"${mean_cost[cheapest]:.3g} a prompt; give that or more"
        )
