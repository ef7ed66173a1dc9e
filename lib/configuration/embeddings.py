"""How good an encoder's vectors are for choosing configurations (ARC, appendix D): four tests, without any agent.

overall = 0.15 ARI + 0.25 classification + 0.25 complexity + 0.35 decision
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.neural_network import MLPClassifier

WEIGHTS = {"ari": 0.15, "classification": 0.25, "complexity": 0.25, "decision": 0.35}
FOLDS = 4


def clustering(vectors: np.ndarray, labels: Sequence[str]) -> float:
    """Adjusted Rand index of k-means clusters against labels; vectors: (n, d)."""
    found = KMeans(len(set(labels)), n_init=4, random_state=0).fit_predict(vectors)
    return float(adjusted_rand_score(labels, found))


def classification(vectors: np.ndarray, labels: Sequence[str]) -> float:
    """Cross-validated accuracy of a linear classifier."""
    model = LogisticRegression(max_iter=500)
    return float(cross_val_score(model, vectors, np.asarray(labels), cv=_folds()).mean())


def complexity(vectors: np.ndarray, steps: Sequence[float]) -> float:
    """Spearman correlation of a ridge regression's cross-validated guesses with how many steps a solution has."""
    guessed = cross_val_predict(Ridge(), vectors, np.asarray(steps, float), cv=_folds())
    return float(np.nan_to_num(spearmanr(guessed, steps).statistic))


def decision(vectors: np.ndarray, wanted: np.ndarray) -> float:
    """Share of held-out questions for which a small network predicts workflow, tools and budget, averaged with the
    share for which all three are right at once (the paper's "combined accuracy"). wanted: (n, 3) of labels."""
    heads = [cross_val_predict(_network(), vectors, column, cv=_folds()) == column for column in wanted.T]
    right = np.column_stack(heads)
    return float((right.mean() + right.all(1).mean()) / 2)


def overall(scores: dict[str, float]) -> float:
    """The weighted sum of appendix D."""
    return sum(weight * scores[name] for name, weight in WEIGHTS.items())


def _folds() -> KFold:
    return KFold(FOLDS, shuffle=True, random_state=0)


def _network() -> MLPClassifier:
    return MLPClassifier((64,), max_iter=300, random_state=0)
