"""How good an encoder's vectors are for choosing configurations (ARC, appendix D): four tests, without any agent.

overall = 0.15 ARI + 0.25 classification + 0.25 complexity + 0.35 decision
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.neural_network import MLPClassifier

from lib.agent_configuration import encoders
from lib.agent_configuration.questions import questions
from lib.language_models import checkpoints

# Rows of the table beside encoders.
FEATURES = "f_q alone"
COMMONEST = "the commonest label"
WEIGHTS = {"ari": 0.15, "classification": 0.25, "complexity": 0.25, "decision": 0.35}
NUM_FOLDS = 4
DECISIONS = ["workflow", "tools", "budget"]


# The four tests ------------------------------------------------------------------------------------


def score_clusters(vectors: np.ndarray, labels: Sequence[str]) -> float:
    """Score how well clusters of vectors agree with labels.

    Args:
        vectors: (n, d) of questions.
        labels: One for each question.

    Returns:
        The adjusted Rand index of k-means clusters, one cluster for each label: 1 is agreement, 0 is chance.
    """
    clusters = KMeans(len(set(labels)), n_init=4, random_state=0).fit_predict(vectors)
    return float(adjusted_rand_score(labels, clusters))


def score_classification(vectors: np.ndarray, labels: Sequence[str]) -> float:
    """Score how well labels follow from vectors: cross-validated accuracy of a logistic regression.

    Args:
        vectors: (n, d) of questions.
        labels: One for each question.

    Returns:
        The accuracy.
    """
    model = LogisticRegression(max_iter=500)
    return float(cross_val_score(model, vectors, np.asarray(labels), cv=_make_folds()).mean())


def score_complexity(vectors: np.ndarray, num_steps: Sequence[float]) -> float:
    """Score how well the steps of a solution follow from vectors.

    Args:
        vectors: (n, d) of questions.
        num_steps: Steps of each question's solution.

    Returns:
        Spearman's correlation with the cross-validated predictions of a ridge regression; 0 where they are constant.
    """
    targets = np.asarray(num_steps, float)
    predictions = cross_val_predict(Ridge(), vectors, targets, cv=_make_folds())
    return float(np.nan_to_num(spearmanr(predictions, num_steps).statistic))


def score_decisions(vectors: np.ndarray, labels: np.ndarray) -> float:
    """Score how well the best workflow, tools and budget follow from vectors, by a small network for each.

    Args:
        vectors: (n, d) of questions.
        labels: (n, 3) the best workflow, tools and budget.

    Returns:
        Two shares of held-out questions, averaged: of correct predictions, and of questions for which all three are
        correct (the paper's "combined accuracy").
    """
    columns = []
    for labels_of_decision in labels.T:
        predictions = cross_val_predict(
            _make_network(), vectors, labels_of_decision, cv=_make_folds()
        )
        columns.append(predictions == labels_of_decision)
    return _average_with_combined(np.column_stack(columns))


def _average_with_combined(is_correct: np.ndarray) -> float:
    """Average accuracy and combined accuracy of (n, 3) predictions."""
    return float((is_correct.mean() + is_correct.all(1).mean()) / 2)


def compute_overall(scores: dict[str, float]) -> float:
    """Compute the weighted sum of appendix D."""
    return sum(weight * scores[name] for name, weight in WEIGHTS.items())


def _make_folds() -> KFold:
    return KFold(NUM_FOLDS, shuffle=True, random_state=0)


def _make_network() -> MLPClassifier:
    return MLPClassifier((64,), max_iter=300, random_state=0)


# Labels and scores ---------------------------------------------------------------------------------


def label_questions(tried: pd.DataFrame) -> pd.DataFrame:
    """Label each question with what is to be predicted from its vector.

    Args:
        tried: Rows of sampled configurations on training questions, one try each: labels are noisy, and so is every
            encoder's score.

    Returns:
        A row for each prompt: group (its kind), steps (of the worked solution), and the workflow, the use of tools and
        the first agent's budget with the highest reward, each averaged over everything else.
    """
    uses_tools = np.where(tried["allocated"] > 0, "tools", "none")
    tried = tried.assign(tools=uses_tools, budget=tried["budget1"].astype(str))
    by_prompt = tried.groupby("prompt", sort=False)
    num_steps = {}
    for kind in tried["group"].unique():
        for item in questions(kind, "train", by_prompt.ngroups):
            num_steps[item.prompt] = float(len(item.worked_solution.split(" ; ")))
    labels = by_prompt["group"].first().to_frame()
    labels["steps"] = [num_steps[prompt] for prompt in by_prompt.groups]
    for column in DECISIONS:
        mean_rewards = tried.pivot_table(
            index="prompt", columns=column, values="reward", sort=False
        )
        labels[column] = mean_rewards.idxmax(axis=1).astype(str)
    return labels.reset_index()


def score_vectors(vectors: np.ndarray, labels: pd.DataFrame) -> dict[str, float]:
    """Score vectors by the four tests of appendix D and their weighted sum.

    Args:
        vectors: (n, d) of questions.
        labels: Labels of the same n questions, by `label_questions`.

    Returns:
        Scores by name. Clusters are compared with kind and tools, classification is the mean of both.
    """
    with warnings.catch_warnings():
        # With few questions a network may not converge, and a fold may lack a label.
        warnings.simplefilter("ignore")
        accuracies = [
            score_classification(vectors, labels[name]) if labels[name].nunique() > 1 else 1.0
            for name in ("group", "tools")
        ]
        kinds_and_tools = (labels["group"] + ", " + labels["tools"]).tolist()
        scores = {
            "ari": score_clusters(vectors, kinds_and_tools),
            "classification": float(np.mean(accuracies)),
            "complexity": score_complexity(vectors, labels["steps"]),
            "decision": score_decisions(vectors, labels[DECISIONS].to_numpy(str)),
        }
    return scores | {"overall": compute_overall(scores)}


def score_commonest_label(labels: pd.DataFrame) -> dict[str, float]:
    """Score a prediction that ignores the question: always the most frequent label.

    Args:
        labels: Labels by `label_questions`.

    Returns:
        Scores by name, as of `score_vectors`.
    """
    accuracies = [
        float(labels[name].value_counts(normalize=True).iloc[0]) for name in ("group", "tools")
    ]
    is_correct = np.column_stack([labels[name] == labels[name].mode()[0] for name in DECISIONS])
    scores = {
        "ari": 0.0,
        "classification": float(np.mean(accuracies)),
        "complexity": 0.0,
        "decision": _average_with_combined(is_correct),
    }
    return scores | {"overall": compute_overall(scores)}


def compare_encoders(
    labels: pd.DataFrame, names: Sequence[str], models: str | Path = checkpoints.MODELS
) -> pd.DataFrame:
    """Compare encoders by appendix D, beside the features that need no encoder and the commonest label.

    Args:
        labels: Labels by `label_questions`.
        names: Names of the encoders, see `encoders.make_encoder`.
        models: Folder of the lab models.

    Returns:
        A row for each encoder, the best first: numbers (the length of a vector) and the scores.

    Raises:
        EncoderError: An encoder is not here.
    """
    prompts = labels["prompt"].tolist()
    vectors_by_encoder = {name: encoders.make_encoder(name, models)(prompts) for name in names}
    vectors_by_encoder[FEATURES] = encoders.compute_features(prompts)
    rows = {}
    for name, vectors in vectors_by_encoder.items():
        rows[name] = {"numbers": vectors.shape[1], **score_vectors(vectors, labels)}
    rows[COMMONEST] = {"numbers": 0, **score_commonest_label(labels)}
    table = pd.DataFrame(rows).T.rename_axis("encoder")
    table = table.sort_values("overall", ascending=False, kind="stable")
    return table.astype({"numbers": int})


# How similar kinds are ------------------------------------------------------------------------------

NUM_COMPARED = 8  # training questions of each kind, of which every encoder has vectors


def list_compared_questions(kind: str) -> list[str]:
    """The training questions of a kind whose mean vector stands for it."""
    return [question.prompt for question in questions(kind, "train", NUM_COMPARED)]


def measure_similarity(
    kinds: Sequence[str], encoder_name: str, models: str | Path = checkpoints.MODELS
) -> pd.DataFrame:
    """Measure how similar the questions of two kinds are (D_sim of Table 3): the cosine of their mean vectors.

    Args:
        kinds: Names of kinds of questions.
        encoder_name: Name of the encoder, as of `encoders.make_encoder`.
        models: Folder of the lab models.

    Returns:
        (kinds, kinds) of -1 to 1, with 1 on the diagonal.
    """
    encode = encoders.make_encoder(encoder_name, models)
    mean_vectors = []
    for kind in kinds:
        mean = encode(list_compared_questions(kind)).mean(axis=0)
        mean_vectors.append(mean / np.linalg.norm(mean))
    vectors = np.stack(mean_vectors).astype(float)  # (kinds, d)
    return pd.DataFrame(vectors @ vectors.T, index=list(kinds), columns=list(kinds))
