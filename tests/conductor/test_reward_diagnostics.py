"""Correlations within groups are correlations, and level and own score of an emphasis are told apart."""

import numpy as np
import pandas as pd
import pytest

from lib.conductor import reward_diagnostics
from lib.conductor.rewards import COMPONENTS


def test_correlations_within_groups_forget_what_groups_have_in_common():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    common = np.repeat(rng.normal(size=8) * 10, 5)
    assert reward_diagnostics.correlate_within_groups(x, 2 * x + common, 5) == pytest.approx(1.0)
    assert reward_diagnostics.correlate_within_groups(x, common, 5) == 0.0
    a, b = x.reshape(8, 5), (x**2).reshape(8, 5)
    expected = np.corrcoef(
        (a - a.mean(1, keepdims=True)).ravel(), (b - b.mean(1, keepdims=True)).ravel()
    )[0, 1]
    assert reward_diagnostics.correlate_within_groups(x, x**2, 5) == pytest.approx(expected)


def table(action):
    rng = np.random.default_rng(1)
    made = pd.DataFrame(rng.random((50, 5)), columns=[f"r_{name}" for name in COMPONENTS])
    made["r_fmt"] += 1  # a level that one reward has over the others
    made["action"], made["correct"] = action(rng), rng.random(50)
    made["step"], made["seed"], made["method"] = np.repeat([0, 1], 25), 7, "Conductor"
    return made


def test_what_was_observed_tells_level_and_own_score_apart():
    made = table(lambda rng: rng.choice(COMPONENTS, size=50))
    names = [f"r_{name}" for name in COMPONENTS]
    here = np.arange(50), [COMPONENTS.index(name) for name in made["action"]]
    level = made.groupby("step")[names].transform("mean").to_numpy()[here]
    (row,) = reward_diagnostics.correlate_advantages(
        made.assign(advantage=made[names].to_numpy()[here] - level), 5
    ).to_dict("records")
    assert row["above_level"] == pytest.approx(1.0) and abs(row["level"]) < 0.5 and row["seed"] == 7
    (row,) = reward_diagnostics.correlate_advantages(made.assign(advantage=level), 5).to_dict(
        "records"
    )
    assert row["level"] == pytest.approx(1.0) and abs(row["above_level"]) < 0.5


def test_without_drawn_emphases_only_quality_is_observed():
    made = table(lambda rng: "")
    (row,) = reward_diagnostics.correlate_advantages(
        made.assign(advantage=made["correct"]), 5
    ).to_dict("records")
    assert row == {"method": "Conductor", "seed": 7, "quality": pytest.approx(1.0)}
