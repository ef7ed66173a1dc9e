"""Matrix factorization learns which model is good at what, from train items only."""

import numpy as np

from lib.recorded_outcomes import headroom
from lib.routers.matrix_factorization import predict_matrix_factorization
from tests.recorded_outcomes.small import made


def predict(table, train, correct=None):
    features = headroom.standardize_features(table.features, train)
    outcomes = table.correct if correct is None else correct
    return predict_matrix_factorization(features, outcomes, train, "test")


def test_it_predicts_the_model_that_is_good_at_the_item():
    table = made(600)
    train, test = np.arange(400), np.arange(400, 600)
    probabilities = predict(table, train)
    # The cheap model is right where the feature is positive, the middle one elsewhere.
    prefers_cheap = probabilities[test, 0] > probabilities[test, 1]
    assert (prefers_cheap == (table.features[test, 0] > 0)).mean() > 0.95
    # The expensive model is right on .8 of the items, wherever they lie.
    assert abs(probabilities[test, 2].mean() - 0.8) < 0.06


def test_what_it_has_not_learned_from_does_not_matter():
    table = made(300)
    train = np.arange(200)
    turned = table.correct.copy()
    turned[200:] = 1 - turned[200:]
    np.testing.assert_array_equal(predict(table, train), predict(table, train, turned))


def test_a_model_that_is_always_right_is_predicted_so():
    table = made(200)
    correct = table.correct.copy()
    correct[:, 0] = 1.0
    probabilities = predict(table, np.arange(150), correct)
    assert np.isfinite(probabilities).all() and probabilities[:, 0].min() > 0.95
