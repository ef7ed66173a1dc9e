"""The sceptic's experiment says what it claims to say, and its correlations are correlations."""

import numpy as np
import pandas as pd
import pytest

from lib import params
from lib.conductor import sceptic
from lib.conductor.rewards import COMPONENTS

pytestmark = pytest.mark.usefixtures("one_thread")
HEAD = params.load("laptop").conductor.head.model_copy(update={"learning_rate": 0.02})


def test_emphasis_follows_the_own_score_and_not_the_truth():
    found = sceptic.bandit(HEAD, 0, updates=60)
    assert found["own"] > 0.4
    assert abs(found["truth"]) < 0.15
    assert found == sceptic.bandit(HEAD, 0, updates=60)


def test_a_reward_that_everybody_gets_takes_the_weight_unless_rewards_are_centred():
    plain = sceptic.bandit(HEAD, 0, "saturated", updates=60)
    centred = sceptic.bandit(HEAD.model_copy(update={"centred": True}), 0, "saturated", updates=60)
    assert plain["first"] > 0.8
    assert centred["first"] < 0.5


def test_correlations_within_groups_forget_what_groups_have_in_common():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    common = np.repeat(rng.normal(size=8) * 10, 5)
    assert sceptic.within(x, 2 * x + common, 5) == pytest.approx(1.0)
    assert sceptic.within(x, common, 5) == 0.0
    a, b = x.reshape(8, 5), (x**2).reshape(8, 5)
    expected = np.corrcoef((a - a.mean(1, keepdims=True)).ravel(), (b - b.mean(1, keepdims=True)).ravel())[0, 1]
    assert sceptic.within(x, x**2, 5) == pytest.approx(expected)


def test_what_was_observed_reads_the_emphasised_reward():
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.random((50, 5)), columns=[f"r_{name}" for name in COMPONENTS])
    table["action"] = rng.integers(5, size=50)
    table["advantage"] = table[[f"r_{n}" for n in COMPONENTS]].to_numpy()[np.arange(50), table["action"]]
    table["quality"], table["step"], table["seed"] = rng.random(50), np.repeat([0, 1], 25), 7
    (row,) = sceptic.observed(table, 5).to_dict("records")
    assert row["seed"] == 7
    assert row["own"] == pytest.approx(1.0)
    assert abs(row["quality"]) < 0.5
