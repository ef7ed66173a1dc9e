"""How good an encoder's vectors are: perfect ones score about 1, random ones about nothing."""

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from lib.agent_configuration import embeddings

GROUPS, N = 4, 48
LABELS = [f"group {i % GROUPS}" for i in range(N)]
STEPS = [i % GROUPS + 1 for i in range(N)]
# Workflow, tools and budget that a question wants: all three follow from its group.
WANTED = np.array([[i % GROUPS, i % 2, i % GROUPS // 2] for i in range(N)])
# One place for each group, with a little noise; and nothing but noise.
PERFECT = 4 * np.eye(GROUPS)[np.arange(N) % GROUPS] + np.random.default_rng(0).normal(
    0, 0.05, (N, GROUPS)
)
NOISE = np.random.default_rng(1).normal(size=(N, GROUPS))


def test_vectors_that_tell_groups_apart_score_one():
    scores = {
        "ari": embeddings.score_clusters(PERFECT, LABELS),
        "classification": embeddings.score_classification(PERFECT, LABELS),
        "complexity": embeddings.score_complexity(PERFECT, STEPS),
        "decision": embeddings.score_decisions(PERFECT, WANTED),
    }
    assert (
        scores["ari"] == pytest.approx(1.0)
        and scores["classification"] == 1.0
        and scores["decision"] == 1.0
    )
    assert scores["complexity"] > 0.9 and embeddings.compute_overall(scores) > 0.97


def test_random_vectors_score_no_more_than_guessing():
    """One of four groups by chance; vectors that are all alike say nothing of steps."""
    assert (
        abs(embeddings.score_clusters(NOISE, LABELS)) < 0.15
        and embeddings.score_classification(NOISE, LABELS) < 0.5
    )
    assert (
        abs(embeddings.score_complexity(NOISE, STEPS)) < 0.4
        and abs(embeddings.score_complexity(np.ones((N, 3)), STEPS)) < 0.5
    )


def test_the_overall_score_has_the_weights_of_appendix_d():
    scores = {"ari": 1.0, "classification": 10.0, "complexity": 100.0, "decision": 1000.0}
    assert embeddings.compute_overall(scores) == pytest.approx(0.15 + 2.5 + 25 + 350)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_a_decision_is_judged_by_each_part_and_by_all_together(monkeypatch):
    """Workflow and budget can be told from the vectors, the tool cannot, for it is drawn."""
    monkeypatch.setattr(
        embeddings, "_make_network", lambda: MLPClassifier((32,), max_iter=100, random_state=0)
    )
    random_labels = np.random.default_rng(5).integers(2, size=N)
    scores = embeddings.score_decisions(
        PERFECT, np.column_stack([WANTED[:, 0], random_labels, WANTED[:, 2]])
    )
    guessed = (scores * 2 - 2 / 3) / (1 / 3 + 1)  # ((1 + g + 1) / 3 + g) / 2 = told
    assert 0.2 < guessed < 0.8
