"""What a router would be worth, estimated from the log of another one, and how far that is from the truth.

A log holds one choice for each item and its outcome; a full table holds all, so every estimate can be compared with
the truth. Of a policy pi, from logged choices a that were made with probabilities p, and their outcomes r:

    direct    mean of q(x, pi(x))                                 q: outcomes predicted from the log of other items
    IPS       mean of 1[a = pi(x)] / p(a) r                       Horvitz and Thompson 1952
    SNIPS     IPS / mean of 1[a = pi(x)] / p(a)                   Swaminathan and Joachims 2015
    DR        direct + mean of 1[a = pi(x)] / p(a) (r - q(x, a))  Dudik, Langford and Li 2011
"""

import numpy as np
import pandas as pd

from lib.config import RecordedSettings
from lib.experiment import seeds
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import methods

VERSION = 1  # of estimates from logs
ESTIMATORS = ("naive", "direct", "ips", "snips", "dr")
EXPLORATION = 0.3  # fraction of items on which the logging policy chooses at random
_RATE = 0.1  # accuracy that one mean cost of a call is worth to both policies
_RIDGE_PENALTY = 10.0
_SHARPNESS = 8.0  # inverse temperature of the logging policy's softmax


def estimate_from_logs(table: OutcomeTable, settings: RecordedSettings) -> pd.DataFrame:
    """Simulates logs of one router on a table, and estimates another router's accuracy from each.

    The policy is a logistic router. The logging policy is a nearest-neighbour router with a softmax, which explores on
    a fraction EXPLORATION of the items. Test items are held out of both.

    Args:
        table: The recorded outcomes.
        settings: Settings of lesson 08; `draws` logs are simulated.

    Returns:
        A row for each log and estimator: table, log (its index), estimator, value (the estimated accuracy), truth (the
        policy's accuracy on the test items).
    """
    fold_of_item = model_selection.assign_folds(table, settings.folds, 0)
    fold = model_selection.make_cross_validation_folds(fold_of_item)[0]
    train_rows = fold.train_and_dev
    features = headroom.standardize_features(table.features, train_rows)
    price = _RATE * table.cost_usd[train_rows].mean(0) / table.cost_usd.mean()  # (models,)
    policy = (methods.predict_logistic(features, table.correct, train_rows) - price).argmax(1)
    nearest = headroom.predict_nearest_neighbours(
        features, table.correct, train_rows, settings.neighbours
    )
    probabilities = compute_logging_probabilities(nearest - price)  # (items, models)
    truth = table.correct[fold.test, policy[fold.test]].mean()

    items = np.arange(len(table))
    rng = seeds.rng("meeting", "logged", table.name)
    rows = []
    for log in range(settings.draws):
        # Inverse transform sampling of one choice for each item.
        uniform = rng.random(len(table))[:, None]
        logged = (probabilities.cumsum(1) > uniform).argmax(1)
        reward = table.correct[items, logged]
        predicted = predict_outcomes(features, logged, reward, train_rows, len(table.models))
        propensity = probabilities[items, logged]
        estimates = estimate_value(policy, logged, propensity, reward, predicted, fold.test)
        for estimator, value in estimates.items():
            rows.append((table.name, log, estimator, value, truth))
    return pd.DataFrame(rows, columns=["table", "log", "estimator", "value", "truth"])


def compute_logging_probabilities(scores: np.ndarray) -> np.ndarray:
    """Probabilities (items, models) of a softmax over scores, mixed with uniform choices so that none is 0."""
    exponentials = np.exp(_SHARPNESS * (scores - scores.max(1, keepdims=True)))
    softmax = exponentials / exponentials.sum(1, keepdims=True)
    return (1 - EXPLORATION) * softmax + EXPLORATION / scores.shape[1]


def predict_outcomes(
    features: np.ndarray,
    logged: np.ndarray,
    reward: np.ndarray,
    rows: np.ndarray,
    num_models: int,
) -> np.ndarray:
    """Predicts outcomes q by a ridge regression for each model, on the items for which the log chose it.

    Args:
        features: (items, d).
        logged: (items,), index of the model that was chosen.
        reward: (items,), its outcome in [0, 1].
        rows: Indices of the items to learn from.
        num_models: Number of models.

    Returns:
        (items, models) in [0, 1]; the mean reward for a model that was logged less than twice.
    """
    design = np.column_stack([features, np.ones(len(features))])
    penalty = _RIDGE_PENALTY * np.eye(design.shape[1])
    penalty[-1, -1] = 1e-6  # the intercept is not shrunk
    predicted = np.full((len(features), num_models), reward[rows].mean())
    for model in range(num_models):
        model_rows = rows[logged[rows] == model]
        if len(model_rows) > 1:
            inputs = design[model_rows]
            # w = (X'X + penalty)^-1 X'r
            weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ reward[model_rows])
            predicted[:, model] = design @ weights
    return np.clip(predicted, 0, 1)


def estimate_value(
    policy: np.ndarray,
    logged: np.ndarray,
    propensity: np.ndarray,
    reward: np.ndarray,
    predicted: np.ndarray,
    rows: np.ndarray,
) -> dict[str, float]:
    """Estimates a policy's mean reward on `rows` by every estimator of ESTIMATORS.

    Args:
        policy: (items,), the model that the policy chooses.
        logged: (items,), the model that was chosen in the log.
        propensity: (items,), the probability of the logged choice.
        reward: (items,), the reward of the logged choice.
        predicted: (items, models), predicted rewards q.
        rows: Indices of the items that count.

    Returns:
        Estimates by name of the estimator.
    """
    # w = 1[a = pi(x)] / p(a)
    weight = ((policy == logged) / propensity)[rows]
    reward = reward[rows]
    direct = predicted[rows, policy[rows]]
    residual = reward - predicted[rows, logged[rows]]
    ips = (weight * reward).mean()
    snips = reward.mean()  # where no logged choice is the policy's, nothing else is known
    if weight.any():
        snips = ips / weight.mean()
    return {
        "naive": float(reward.mean()),
        "direct": float(direct.mean()),
        "ips": float(ips),
        "snips": float(snips),
        "dr": float((direct + weight * residual).mean()),
    }
