"""What lesson 05 measures: differences of the worked example come out under their keys."""

import pytest

from lib import config
from lib.budgeted_routing import lesson_estimates, results
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER
from lib.reports.lesson import METRIC_KEY
from tests.budgeted_routing.worked_example import make_study

SETTINGS = config.load("smoke").routing


@pytest.fixture(scope="module")
def rows():
    return results.make_rows({COMPLEMENTARY: make_study(), LADDER: make_study()})


@pytest.fixture(scope="module")
def estimates(rows):
    return lesson_estimates.collect_estimates(rows, SETTINGS)


def test_every_key_is_a_key_of_a_metric(estimates):
    assert all(METRIC_KEY.fullmatch(key) for key in estimates)


def test_a_difference_is_that_of_mean_rewards(estimates):
    """The best constant under the medium budget is the middle expert, which solves four of six questions."""
    for prefix in ("corl", "ladder"):
        difference = estimates[f"{prefix}.medium.minus_best_constant"]
        assert difference["value"] == pytest.approx(8 / 12 - 4 / 6)
    assert estimates["corl.medium.accuracy"]["value"] == pytest.approx(9 / 12)


def test_the_main_world_has_no_prefix_where_budgets_are_kept_is_measured(estimates):
    assert "control.low.over_budget" in estimates
    assert "ladder.control.low.over_budget" in estimates


def test_the_order_of_budgets_has_a_difference_for_every_pair_and_quantity(estimates):
    pairs = {"medium_low", "high_medium", "high_low"}
    assert {key.split(".")[2] for key in estimates if key.startswith("order.")} == pairs
    assert estimates["order.correct.high_low"]["value"] >= 0


def test_a_world_that_was_not_run_has_no_estimates(estimates):
    assert not any(key.startswith("two.") for key in estimates)
