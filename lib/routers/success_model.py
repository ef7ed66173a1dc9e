"""How likely each model is right on a prompt, from the prompt's vector: logistic regression, neighbours, or a constant.

    model = fit_success_model("logistic", features, correct)
    chances = model.predict(new_features)        # (prompts, models)

A model is its arrays, so that it is saved without pickles and needs NumPy only to predict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

VERSION = 1  # of the predicted chances
INVERSE_PENALTY = 0.1  # C of the logistic regression, as in `methods.logistic`
MAX_NEIGHBOURS = 30
MAX_DEVIATIONS = 3.0  # at which a standardized feature is clipped


class SuccessModel(ABC):
    """Predicts for each model the probability that it answers a prompt correctly.

    Attributes:
        method: One of METHODS.
        arrays: Everything that `predict` needs, by name.
    """

    method: str

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = {name: np.asarray(array, dtype=float) for name, array in arrays.items()}

    @classmethod
    @abstractmethod
    def fit(cls, features: np.ndarray, correct: np.ndarray) -> SuccessModel:
        """Fits on features (items, d) and outcomes (items, models) in [0, 1]."""

    @abstractmethod
    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicts probabilities of being correct, (prompts, models), from features (prompts, d)."""


class ConstantSuccess(SuccessModel):
    """Predicts each model's accuracy whatever the prompt is: the baseline of every router."""

    method = "constant"

    @classmethod
    def fit(cls, features: np.ndarray, correct: np.ndarray) -> ConstantSuccess:
        return cls({"rate": correct.mean(0)})

    def predict(self, features: np.ndarray) -> np.ndarray:
        return np.tile(self.arrays["rate"], (len(features), 1))


class LogisticSuccess(SuccessModel):
    """A logistic regression for each model; for one that was always right, or never, its accuracy is predicted.

    P(right) = 1 / (1 + exp(-(w z + b))), z standardized. An outcome that is a mean over samples counts as a right and a
    wrong answer with those weights.
    """

    method = "logistic"

    @classmethod
    def fit(cls, features: np.ndarray, correct: np.ndarray) -> LogisticSuccess:
        """Fits one logistic regression per model; a model that is always or never correct keeps its rate.

        Args:
            features: (items, d).
            correct: (items, models) mean outcomes in [0, 1].

        Returns:
            The success model.
        """
        from sklearn.linear_model import LogisticRegression

        mean, scale = _measure_scale(features)
        standardized = _standardize(features, mean, scale)
        num_items, num_models = correct.shape
        rate = correct.mean(0)
        weights = np.zeros((num_models, features.shape[1]))
        bias = np.zeros(num_models)
        is_fitted = np.zeros(num_models)
        # Every item stands there twice, as a right and as a wrong answer, weighted by its mean outcome.
        both_outcomes = np.concatenate([np.ones(num_items), np.zeros(num_items)])
        for model in range(num_models):
            if not 0 < rate[model] < 1:
                continue
            outcome_weights = np.concatenate([correct[:, model], 1 - correct[:, model]])
            is_possible = outcome_weights > 0
            regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=500).fit(
                np.vstack([standardized, standardized])[is_possible],
                both_outcomes[is_possible],
                sample_weight=outcome_weights[is_possible],
            )
            weights[model] = regression.coef_[0]
            bias[model] = regression.intercept_[0]
            is_fitted[model] = 1
        return cls(
            {
                "mean": mean,
                "scale": scale,
                "weights": weights,
                "bias": bias,
                "rate": rate,
                "is_fitted": is_fitted,
            }
        )

    def predict(self, features: np.ndarray) -> np.ndarray:
        arrays = self.arrays
        standardized = _standardize(features, arrays["mean"], arrays["scale"])
        logits = standardized @ arrays["weights"].T + arrays["bias"]  # (prompts, models)
        chances = 1 / (1 + np.exp(-logits))
        return np.where(arrays["is_fitted"] > 0, chances, arrays["rate"])


class NeighbourSuccess(SuccessModel):
    """Predicts each model's accuracy on the nearest train items."""

    method = "knn"

    @classmethod
    def fit(cls, features: np.ndarray, correct: np.ndarray) -> NeighbourSuccess:
        mean, scale = _measure_scale(features)
        return cls(
            {
                "mean": mean,
                "scale": scale,
                "items": _standardize(features, mean, scale),
                "correct": correct,
            }
        )

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicts success by the mean outcome of the nearest train items.

        Args:
            features: (items, d).

        Returns:
            (items, models) probabilities of being correct.
        """
        arrays = self.arrays
        num_neighbours = min(MAX_NEIGHBOURS, len(arrays["items"]))
        chances = []
        for vector in _standardize(features, arrays["mean"], arrays["scale"]):
            distances = ((arrays["items"] - vector) ** 2).sum(1)  # (items,)
            # Stable, so that equally near items are the same ones everywhere.
            nearest = np.argsort(distances, kind="stable")[:num_neighbours]
            chances.append(arrays["correct"][nearest].mean(0))
        return np.array(chances)


METHODS: dict[str, type[SuccessModel]] = {
    model.method: model for model in (LogisticSuccess, NeighbourSuccess, ConstantSuccess)
}


def fit_success_model(method: str, features: np.ndarray, correct: np.ndarray) -> SuccessModel:
    """Fits a model by its name.

    Args:
        method: One of METHODS.
        features: (items, d).
        correct: (items, models) in [0, 1].

    Returns:
        The fitted model.

    Raises:
        ValueError: There is no such method.
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    return METHODS[method].fit(features, correct)


def _measure_scale(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (d,) of features; a feature that never changes has the deviation 1."""
    deviation = features.std(0)
    return features.mean(0), np.where(deviation > 1e-12, deviation, 1.0)


def _standardize(features: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Standardizes features and clips them, so that an unusual prompt is not far beyond the train items."""
    return np.clip((features - mean) / scale, -MAX_DEVIATIONS, MAX_DEVIATIONS)
