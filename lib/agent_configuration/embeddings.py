"""How good an encoder's vectors are for choosing configurations (ARC, appendix D): four tests, without any agent.

overall = 0.15 ARI + 0.25 classification + 0.25 complexity + 0.35 decision
"""

import warnings
from collections.abc import Sequence

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

FEATURES, COMMONEST = "f_q alone", "the commonest label"
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
    heads = [
        cross_val_predict(_network(), vectors, column, cv=_folds()) == column for column in wanted.T
    ]
    correct = np.column_stack(heads)
    return float((correct.mean() + correct.all(1).mean()) / 2)


def overall(scores: dict[str, float]) -> float:
    """The weighted sum of appendix D."""
    return sum(weight * scores[name] for name, weight in WEIGHTS.items())


def _folds() -> KFold:
    return KFold(FOLDS, shuffle=True, random_state=0)


def _network() -> MLPClassifier:
    return MLPClassifier((64,), max_iter=300, random_state=0)


# What a question wants ------------------------------------------------------------------------------


def labels(tried: pd.DataFrame) -> pd.DataFrame:
    """What is to be told from each question: prompt, kind, steps (of the worked solution), and the workflow, the use of
    tools and the first agent's budget that are paid best on it, each averaged over everything else. One try each: the
    labels are noisy, and so is every encoder's score. tried: rows of `recorded.sampled` on training questions."""
    tried = tried.assign(
        tools=np.where(tried["allocated"] > 0, "tools", "none"), budget=tried["budget1"].astype(str)
    )
    paid = tried.groupby("prompt", sort=False)
    steps = {
        i.prompt: len(i.worked_solution.split(" ; "))
        for kind in tried["group"].unique()
        for i in questions(kind, "train", paid.ngroups)
    }
    out = (
        paid["group"]
        .first()
        .to_frame()
        .assign(steps=[float(steps[prompt]) for prompt in paid.groups])
    )
    for column in ("workflow", "tools", "budget"):
        means = tried.pivot_table(index="prompt", columns=column, values="reward", sort=False)
        out[column] = means.idxmax(axis=1).astype(str)
    return out.reset_index()


def scored(vectors: np.ndarray, wanted: pd.DataFrame) -> dict[str, float]:
    """The four tests of appendix D and their weighted sum. Clusters are held against kind and tools, classification is
    the mean of both. vectors: (n, d), of the prompts of `labels`."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # few questions: a network may not settle, a label may miss from a fold
        told = [
            classification(vectors, wanted[name]) if wanted[name].nunique() > 1 else 1.0
            for name in ("group", "tools")
        ]
        found = {
            "ari": clustering(vectors, (wanted["group"] + ", " + wanted["tools"]).tolist()),
            "classification": float(np.mean(told)),
            "complexity": complexity(vectors, wanted["steps"]),
            "decision": decision(vectors, wanted[["workflow", "tools", "budget"]].to_numpy(str)),
        }
    return found | {"overall": overall(found)}


def commonest(wanted: pd.DataFrame) -> dict[str, float]:
    """What who knows only how common each label is would score."""
    share = [
        float(wanted[name].value_counts(normalize=True).iloc[0]) for name in ("group", "tools")
    ]
    heads = np.column_stack(
        [wanted[name] == wanted[name].mode()[0] for name in ("workflow", "tools", "budget")]
    )
    found = {"ari": 0.0, "classification": float(np.mean(share)), "complexity": 0.0}
    found["decision"] = float((heads.mean() + heads.all(1).mean()) / 2)
    return found | {"overall": overall(found)}


def scores(tried: pd.DataFrame, names: Sequence[str], *where: str) -> pd.DataFrame:
    """Appendix D by encoder, the best first: numbers (of a vector) and the tests. What needs no encoder stands beside
    them. where: the folder of lab models, the repository's own by default. Raises EncoderError for an encoder that is
    not here."""
    wanted = labels(tried)
    prompts = wanted["prompt"].tolist()
    vectors = {name: encoders.encoder(name, *where)(prompts) for name in names}
    vectors[FEATURES] = encoders.features(prompts)
    out = {
        name: {"numbers": each.shape[1], **scored(each, wanted)} for name, each in vectors.items()
    }
    out[COMMONEST] = {"numbers": 0, **commonest(wanted)}
    table = (
        pd.DataFrame(out)
        .T.rename_axis("encoder")
        .sort_values("overall", ascending=False, kind="stable")
    )
    return table.astype({"numbers": int})
