"""How good an encoder's vectors are: perfect ones score about 1, random ones about nothing."""

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from lib.configuration import embeddings

GROUPS, EACH = 4, 12
LABELS = [f"group {i % GROUPS}" for i in range(GROUPS * EACH)]
STEPS = [i % GROUPS + 1 for i in range(GROUPS * EACH)]
# Workflow, tools and budget that a question wants: all three follow from its group.
WANTED = np.array([[i % GROUPS, i % 2, i % GROUPS // 2] for i in range(GROUPS * EACH)])


def perfect() -> np.ndarray:
    """One place for each group, with a little noise."""
    return 4 * np.eye(GROUPS)[np.arange(GROUPS * EACH) % GROUPS] + np.random.default_rng(0).normal(
        0, 0.05, (48, GROUPS)
    )


def noise() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(GROUPS * EACH, GROUPS))


def scores(vectors: np.ndarray) -> dict[str, float]:
    """All but the decision, which takes longest."""
    return {
        "ari": embeddings.clustering(vectors, LABELS),
        "classification": embeddings.classification(vectors, LABELS),
        "complexity": embeddings.complexity(vectors, STEPS),
    }


def test_vectors_that_tell_groups_apart_score_one():
    told = scores(perfect()) | {"decision": embeddings.decision(perfect(), WANTED)}
    assert told["ari"] == pytest.approx(1.0) and told["classification"] == 1.0 and told["decision"] == 1.0
    assert told["complexity"] > 0.9 and embeddings.overall(told) > 0.97


def test_random_vectors_score_no_more_than_guessing():
    """One of four groups by chance."""
    told = scores(noise())
    assert abs(told["ari"]) < 0.15 and told["classification"] < 0.5 and abs(told["complexity"]) < 0.4


def test_the_overall_score_has_the_weights_of_appendix_d():
    told = {"ari": 1.0, "classification": 10.0, "complexity": 100.0, "decision": 1000.0}
    assert embeddings.overall(told) == pytest.approx(0.15 + 2.5 + 25 + 350)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_a_decision_is_judged_by_each_part_and_by_all_together(monkeypatch):
    """Workflow and budget can be told from the vectors, the tool cannot, for it is drawn."""
    monkeypatch.setattr(embeddings, "_network", lambda: MLPClassifier((32,), max_iter=100, random_state=0))
    drawn = np.random.default_rng(5).integers(2, size=48)
    told = embeddings.decision(perfect(), np.column_stack([WANTED[:, 0], drawn, WANTED[:, 2]]))
    guessed = (told * 2 - 2 / 3) / (1 / 3 + 1)  # ((1 + g + 1) / 3 + g) / 2 = told
    assert 0.2 < guessed < 0.8


def test_vectors_that_say_nothing_have_no_correlation_with_steps():
    assert abs(embeddings.complexity(np.ones((48, 3)), STEPS)) < 0.5
