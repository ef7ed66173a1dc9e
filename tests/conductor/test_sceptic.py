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
    plain = sceptic.bandit(HEAD, 0, saturated=True, updates=60)
    centred = sceptic.bandit(HEAD.model_copy(update={"centred": True}), 0, saturated=True, updates=60)
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


def table(action):
    rng = np.random.default_rng(1)
    made = pd.DataFrame(rng.random((50, 5)), columns=[f"r_{name}" for name in COMPONENTS])
    made["r_fmt"] += 1  # a level that one reward has over the others
    made["action"], made["quality"] = action(rng), rng.random(50)
    made["step"], made["seed"] = np.repeat([0, 1], 25), 7
    return made


def test_what_was_observed_tells_level_and_own_score_apart():
    made = table(lambda rng: rng.integers(5, size=50))
    scores = made[[f"r_{n}" for n in COMPONENTS]].to_numpy()
    level = made.groupby("step")[[f"r_{n}" for n in COMPONENTS]].transform("mean").to_numpy()
    here = np.arange(50), made["action"]
    (row,) = sceptic.observed(made.assign(advantage=scores[here] - level[here]), 5).to_dict("records")
    assert row["own"] == pytest.approx(1.0) and abs(row["level"]) < 0.5 and row["seed"] == 7
    (row,) = sceptic.observed(made.assign(advantage=level[here]), 5).to_dict("records")
    assert row["level"] == pytest.approx(1.0) and abs(row["own"]) < 0.5


def test_with_the_category_alone_there_is_nothing_to_learn():
    found = sceptic.bandit(HEAD, 0, blind=True, updates=60)
    assert abs(found["chosen"] - 0.2) < 0.03 and abs(found["own"]) < 0.01


def test_without_drawn_emphases_only_quality_is_observed():
    made = table(lambda rng: -1)
    (row,) = sceptic.observed(made.assign(advantage=made["quality"]), 5).to_dict("records")
    assert row == {"seed": 7, "quality": pytest.approx(1.0)}
