"""Estimates from logs: by hand, without bias where they should have none, and better for it."""

import numpy as np
import pytest

from lib import config
from lib.routers import logged_policies
from tests.recorded_outcomes.small import made


def test_estimates_by_hand():
    policy, asked = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    chance, reward = np.array([0.5, 0.5, 0.25, 0.5]), np.array([1.0, 1.0, 0.0, 1.0])
    guess = np.full((4, 2), 0.5)
    found = logged_policies.estimated(policy, asked, chance, reward, guess, np.arange(4))
    assert found == pytest.approx(
        {"naive": 0.75, "direct": 0.5, "ips": 1.0, "snips": 0.5, "dr": 0.5}
    )


def test_a_perfect_guess_makes_the_doubly_robust_estimate_exact():
    table, draw = made(), np.random.default_rng(0)
    policy, asked = (draw.integers(3, size=len(table)) for _ in range(2))
    at, chance = np.arange(len(table)), np.full(len(table), 1 / 3)
    found = logged_policies.estimated(
        policy, asked, chance, table.correct[at, asked], table.correct, at
    )
    assert found["dr"] == found["direct"] == table.correct[at, policy].mean()


def test_ips_and_dr_have_no_bias_and_the_naive_estimate_has():
    settings = config.load("smoke").recorded.model_copy(update={"draws": 300})
    found = logged_policies.estimates(made(600), settings)
    error = (found["value"] - found["truth"]).groupby(found["estimator"])
    mean, spread = error.mean(), error.std() / 300**0.5
    assert abs(mean["ips"]) < 4 * spread["ips"] and abs(mean["dr"]) < 4 * spread["dr"] + 0.005
    assert abs(mean["naive"]) > 20 * spread["naive"]
    assert error.std()["dr"] < error.std()["ips"]


def test_every_choice_of_the_author_had_a_chance():
    chances = logged_policies.probabilities(np.array([[0.0, 5.0, -5.0]]))
    assert chances.sum() == pytest.approx(1) and chances.min() >= logged_policies.EXPLORED / 3
