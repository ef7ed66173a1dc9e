"""What a router would be worth, estimated from the log of another one, and how far that is from the truth.

A log holds one choice for each item and its outcome; a full table holds all, so every estimate can be compared with
the truth. Of a policy pi, from choices a that were drawn with probabilities p:

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
EXPLORED = 0.3  # share of items on which the log's author throws a die
_RATE, _RIDGE, _SHARP = 0.1, 10.0, 8.0


def estimates(table: OutcomeTable, settings: RecordedSettings) -> pd.DataFrame:
    """One row per log and estimator: table, log, estimator, value, truth.

    The policy is a logistic router, the log's author a softer nearest-neighbour one that throws a die on EXPLORED of
    the items; test items are held out of both.
    """
    fold = model_selection.make_cross_validation_folds(
        model_selection.assign_folds(table, settings.folds, 0)
    )[0]
    seen = headroom.standardize_features(table.features, fold.train_and_dev)
    cost = _RATE * table.cost_usd[fold.train_and_dev].mean(0) / table.cost_usd.mean()
    policy = (methods.logistic(seen, table.correct, fold.train_and_dev) - cost).argmax(1)
    author = probabilities(
        headroom.predict_nearest_neighbours(
            seen, table.correct, fold.train_and_dev, settings.neighbours
        )
        - cost
    )
    at, truth = np.arange(len(table)), table.correct[fold.test, policy[fold.test]].mean()
    rng, made = seeds.rng("meeting", "logged", table.name), []
    for log in range(settings.draws):
        asked = (author.cumsum(1) > rng.random(len(table))[:, None]).argmax(1)
        reward = table.correct[at, asked]
        guess = outcomes(seen, asked, reward, fold.train_and_dev, len(table.models))
        found = estimated(policy, asked, author[at, asked], reward, guess, fold.test)
        made += [(table.name, log, name, value, truth) for name, value in found.items()]
    return pd.DataFrame(made, columns=["table", "log", "estimator", "value", "truth"])


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Choice probabilities (n, m) of a softmax over scores, mixed with a die, so that none is 0."""
    soft = np.exp(_SHARP * (scores - scores.max(1, keepdims=True)))
    return (1 - EXPLORED) * soft / soft.sum(1, keepdims=True) + EXPLORED / scores.shape[1]


def outcomes(
    seen: np.ndarray, asked: np.ndarray, reward: np.ndarray, rows: np.ndarray, models: int
) -> np.ndarray:
    """q (n, m): ridge regression of each model's outcome on the items of the log where it was asked."""
    features = np.column_stack([seen, np.ones(len(seen))])
    penalty = _RIDGE * np.eye(features.shape[1])
    penalty[-1, -1] = 1e-6
    out = np.full((len(seen), models), reward[rows].mean())
    for model in range(models):
        own = rows[asked[rows] == model]
        if len(own) > 1:
            known = features[own]
            out[:, model] = features @ np.linalg.solve(
                known.T @ known + penalty, known.T @ reward[own]
            )
    return np.clip(out, 0, 1)


def estimated(
    policy: np.ndarray,
    asked: np.ndarray,
    chance: np.ndarray,
    reward: np.ndarray,
    guess: np.ndarray,
    rows: np.ndarray,
) -> dict[str, float]:
    """Every estimate of a policy's mean reward on `rows`. policy, asked: (n,) models; chance: (n,) of what was asked;
    reward: (n,) of it; guess: (n, m)."""
    weight = ((policy == asked) / chance)[rows]
    reward, direct = reward[rows], guess[rows, policy[rows]]
    ips = (weight * reward).mean()
    return {
        "naive": float(reward.mean()),
        "direct": float(direct.mean()),
        "ips": float(ips),
        "snips": float(ips / weight.mean()) if weight.any() else float(reward.mean()),
        "dr": float((direct + weight * (reward - guess[rows, asked[rows]])).mean()),
    }
