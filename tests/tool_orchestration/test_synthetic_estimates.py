"""Steering and headroom in the synthetic environment, on results whose slopes and differences are known."""

import pandas as pd
import pytest

from lib.experiment import results_table
from lib.tool_orchestration import synthetic_estimates
from lib.tool_orchestration.synthetic_evaluation import WEIGHTS, list_users_of_grid

SLOPES = {"ToolOrchestra": -0.3, "sign error": 0.4, "optimum": -0.5, "best constant": 0.0}
REWARDS = {"ToolOrchestra": 1.4, "sign error": 0.9, "optimum": 1.5, "best constant": 1.2}
SEEDS = 3


def make_rows() -> pd.DataFrame:
    """Users of the grid, whose spending is a line in their weight; latency changes half as much as cost."""
    rows = []
    for method, slope in SLOPES.items():
        for seed in range(SEEDS):
            for user, preference in list_users_of_grid().items():
                objective, weight = user.split()
                row = {"method": method, "seed": seed, "item": user, "group": objective}
                row |= {"weight": float(weight), "cost_usd": 1.0 + slope * preference.cost}
                row |= {"seconds": 1.0 + 0.5 * slope * preference.latency}
                rows.append(row)
            row = {"method": method, "seed": seed, "item": "user 0", "group": "user"}
            row |= {"reward": REWARDS[method] + 0.1 * seed, "regret": 1.5 - REWARDS[method]}
            rows.append(row)
    return results_table.make_results(
        "toolorchestra_synthetic", pd.DataFrame(rows).assign(role="paper")
    )


@pytest.fixture
def rows() -> pd.DataFrame:
    return make_rows()


@pytest.mark.parametrize("objective", ["cost", "latency"])
def test_both_grids_begin_with_the_user_who_weighs_accuracy_alone(rows, objective):
    users = synthetic_estimates.select_users_of_grid(rows, objective)
    assert sorted(users["weight"].unique()) == list(WEIGHTS)
    assert set(users.loc[users["weight"] == 0, "item"]) == {"cost 0"}
    assert len(users) == len(SLOPES) * SEEDS * len(WEIGHTS)


def test_spending_at_a_weight_is_the_mean_over_environments(rows):
    spending = synthetic_estimates.estimate_spending_by_weight(rows)["value"]
    assert spending["weight on cost", "ToolOrchestra", 0.0] == pytest.approx(1.0)
    assert spending["weight on cost", "ToolOrchestra", 1.0] == pytest.approx(0.7)
    assert spending["weight on latency", "sign error", 0.5] == pytest.approx(1.1)


def test_the_slope_of_spending_is_below_zero_where_preferences_steer(rows):
    slopes = synthetic_estimates.estimate_spending_slopes(rows)["value"]
    for method, slope in SLOPES.items():
        assert slopes["cost", method] == pytest.approx(slope)
        assert slopes["latency", method] == pytest.approx(0.5 * slope)


def test_the_lesson_keeps_headroom_regret_and_slopes(rows):
    metrics = synthetic_estimates.estimate_lesson_metrics(rows)
    values = {key: estimate["value"] for key, estimate in metrics.items()}
    assert values == pytest.approx(
        {
            "synthetic.headroom": 0.3,
            "synthetic.above_constant": 0.2,
            "synthetic.regret": 0.1,
            "synthetic.steer.cost": -0.3,
            "synthetic.steer.latency": -0.15,
            "synthetic.sign_error.cost": 0.4,
            "synthetic.sign_error.latency": 0.2,
        }
    )
