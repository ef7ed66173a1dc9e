"""Estimates from logs: by hand, without bias where they should have none, and better for it."""

import numpy as np
import pytest

from lib import config
from lib.routers import logged_policies
from tests.recorded_outcomes.small import made


def test_estimates_by_hand():
    policy, logged = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    propensity, reward = np.array([0.5, 0.5, 0.25, 0.5]), np.array([1.0, 1.0, 0.0, 1.0])
    predicted = np.full((4, 2), 0.5)
    estimates = logged_policies.estimate_value(
        policy, logged, propensity, reward, predicted, np.arange(4)
    )
    assert estimates == pytest.approx(
        {"naive": 0.75, "direct": 0.5, "ips": 1.0, "snips": 0.5, "dr": 0.5}
    )


def test_perfect_predictions_make_the_doubly_robust_estimate_exact():
    table, rng = made(), np.random.default_rng(0)
    policy, logged = (rng.integers(3, size=len(table)) for _ in range(2))
    items, propensity = np.arange(len(table)), np.full(len(table), 1 / 3)
    estimates = logged_policies.estimate_value(
        policy, logged, propensity, table.correct[items, logged], table.correct, items
    )
    assert estimates["dr"] == estimates["direct"] == table.correct[items, policy].mean()


def test_ips_and_dr_have_no_bias_and_the_naive_estimate_has():
    settings = config.load("smoke").recorded.model_copy(update={"draws": 300})
    estimates = logged_policies.estimate_from_logs(made(600), settings)
    errors = (estimates["value"] - estimates["truth"]).groupby(estimates["estimator"])
    bias, standard_error = errors.mean(), errors.std() / 300**0.5
    assert abs(bias["ips"]) < 4 * standard_error["ips"]
    assert abs(bias["dr"]) < 4 * standard_error["dr"] + 0.005
    assert abs(bias["naive"]) > 20 * standard_error["naive"]
    assert errors.std()["dr"] < errors.std()["ips"]


def test_every_model_has_a_positive_probability_in_a_log():
    probabilities = logged_policies.compute_logging_probabilities(np.array([[0.0, 5.0, -5.0]]))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities.min() >= logged_policies.EXPLORATION / 3
