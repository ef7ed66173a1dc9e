"""Methods are compared inside items: estimates by hand, an oracle above all, budgets that are kept or broken."""

from dataclasses import replace

import numpy as np
import pytest

from lib import config, stats
from lib.routers.compare_methods import (
    BROKEN,
    CONDITIONS,
    KEPT,
    MATRIX,
    ROUTERS,
    SAME_MONEY,
    compare_methods,
    decide_budget,
    estimate_cost_ratio,
    estimate_gain,
    widen_for_comparisons,
)
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    CORL,
    NEAREST,
    ORACLE,
    STOP_OR_ESCALATE,
)
from lib.stats import Interval
from lib.stats.verdicts import UNDECIDED
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded


@pytest.fixture(scope="module")
def comparison():
    return compare_methods(made(300), SETTINGS, num_repeats=2)


def test_every_router_is_compared_and_the_oracle_is_above_all(comparison):
    assert set(comparison.routers) == set(ROUTERS) and not comparison.unavailable
    for method in comparison.methods:
        best = comparison.at(ORACLE, SAME_MONEY).accuracy.value
        assert comparison.at(method, SAME_MONEY).accuracy.value <= best + 1e-9


def test_the_constant_gains_nothing_over_itself_and_mixtures_nothing_at_its_money(comparison):
    for condition in CONDITIONS:
        own = comparison.at(BEST_CONSTANT, condition)
        assert own.gain == Interval(0.0, 0.0, 0.0) and own.cost_ratio.value == pytest.approx(1)
    assert comparison.at(CONSTANT_MIXTURES, SAME_MONEY).gain.value == pytest.approx(0, abs=0.02)


def test_a_router_that_sees_who_is_right_gains_at_the_same_money(comparison):
    for method in (NEAREST, MATRIX):
        assert comparison.at(method, SAME_MONEY).gain.ci_low > 0.03


def test_what_cannot_be_compared_has_its_reason():
    table = replace(made(60), features=np.zeros((60, 1)), cost_measures_work=False)
    blind = compare_methods(table, SETTINGS, num_repeats=1)
    assert blind.routers == [CORL]
    assert "nothing describes the items" in blind.unavailable[MATRIX]
    assert "does not tell" in blind.unavailable[STOP_OR_ESCALATE]


def test_estimates_by_hand():
    treatment, baseline = np.array([[1.0, 1.0, 0.0, 1.0]]), np.array([[1.0, 0.0, 0.0, 0.0]])
    groups = np.arange(4)
    expected = stats.t_interval(np.array([0.0, 1.0, 0.0, 1.0]))
    assert estimate_gain(treatment, baseline, groups) == expected
    ratio = estimate_cost_ratio(np.array([[1.0, 3.0]]), np.array([[2.0, 6.0]]), np.arange(2))
    assert ratio.value == ratio.ci_low == ratio.ci_high == 0.5
    assert np.isnan(estimate_cost_ratio(np.zeros((1, 2)), np.ones((1, 2)), np.arange(2)).value)


def test_repeats_that_differ_widen_an_interval():
    draw = np.random.default_rng(0)
    once = draw.normal(size=(1, 200))
    baseline, groups = np.zeros((3, 200)), np.arange(200)
    same = estimate_gain(np.repeat(once, 3, axis=0), baseline, groups)
    shifted = estimate_gain(once + np.array([[-0.3], [0.0], [0.3]]), baseline, groups)
    assert shifted.value == pytest.approx(same.value)
    assert shifted.ci_high - shifted.ci_low > same.ci_high - same.ci_low


def test_intervals_of_several_comparisons_hold_together():
    draw = np.random.default_rng(0)
    num_samples, num_comparisons, num_groups = 400, 8, 30
    all_hold = []
    for _ in range(num_samples):
        values = draw.normal(size=(num_comparisons, num_groups))
        intervals = [
            widen_for_comparisons(
                stats.grouped_interval(row, np.arange(num_groups)), num_comparisons, num_groups
            )
            for row in values
        ]
        all_hold.append(not any(interval.excludes(0.0) for interval in intervals))
    assert 0.92 < np.mean(all_hold) < 0.985
    single = Interval(1.0, 0.0, 2.0)
    assert widen_for_comparisons(single, 1, num_groups) == single


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Interval(1.0, 0.97, 1.03), KEPT),
        (Interval(1.2, 1.1, 1.3), BROKEN),
        (Interval(1.0, 0.8, 1.2), UNDECIDED),
    ],
)
def test_a_budget_is_kept_or_broken_only_where_its_interval_says_so(ratio, verdict):
    assert decide_budget(ratio) == verdict


def test_budgets_of_mixtures_are_promised_from_the_cheapest_model_to_the_best(comparison):
    budgets = comparison.budgets[comparison.budgets["method"] == "mixture of constants"]
    assert budgets["promised_usd"].is_monotonic_increasing
    table = made(300)
    best = table.cost_usd[:, table.correct.mean(0).argmax()].mean()
    assert budgets["promised_usd"].iloc[-1] == pytest.approx(best, rel=0.02)
    assert (budgets["ratio"] - 1).abs().max() < 0.15
