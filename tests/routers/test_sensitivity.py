"""Studies of the appendix of lesson 08: checks that err, other prices, other benchmarks, two models."""

from dataclasses import replace

import numpy as np
import pytest

from lib import config
from lib.experiment import results_table
from lib.recorded_outcomes import model_selection
from lib.routers import experiment, sensitivity
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    LOGISTIC,
    NEAREST,
    PERFECT_CHECK,
    RANDOM_MODEL,
    STOP_OR_ESCALATE,
)
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded.model_copy(update={"updates": 5, "draws": 20, "seeds": 2})
TABLE = made()


def test_success_by_spending_falls_where_failures_are_expensive():
    table = made()
    # The first model spends more where it fails.
    table.cost_usd[:, 0] += 5 * (1 - table.correct[:, 0])
    estimates = sensitivity.estimate_success_by_spending(table, "cheap", num_bins=4)
    estimates = estimates.sort_values("spent")
    assert estimates["spent"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert estimates["value"].iloc[0] == 1.0
    assert estimates["value"].iloc[-1] == 0.0


def test_a_worse_check_costs_no_less_and_a_useless_one_is_not_used():
    perfect = sensitivity.score_imperfect_check(TABLE, SETTINGS, miss=0.0, alarm=0.0)
    poor = sensitivity.score_imperfect_check(TABLE, SETTINGS, miss=0.2, alarm=0.1)
    useless = sensitivity.score_imperfect_check(TABLE, SETTINGS, miss=1.0, alarm=1.0)
    assert perfect < poor <= 1.0
    assert useless == pytest.approx(1.0)


def test_a_perfect_check_costs_what_the_replay_of_one_repeat_says():
    one_repeat = SETTINGS.model_copy(update={"seeds": 1})
    rows = experiment.replay_table(TABLE, one_repeat, [CONSTANT_MIXTURES, PERFECT_CHECK])["rows"]
    rows = results_table.select(rows, condition=model_selection.EQUAL_QUALITY)
    mean_cost = rows.groupby("method")["cost_usd"].mean()
    expected = mean_cost[PERFECT_CHECK] / mean_cost[BEST_CONSTANT]
    assert sensitivity.score_imperfect_check(TABLE, SETTINGS, 0.0, 0.0) == pytest.approx(expected)


def test_a_router_with_skill_recovers_more_of_the_gap_than_random_calls():
    pair = TABLE.select_models(["cheap", "dear"])
    measures = sensitivity.measure_strong_calls(pair, SETTINGS, [NEAREST, LOGISTIC])
    assert measures["router"].tolist() == [NEAREST, LOGISTIC]
    assert (measures["APGR"] > 0.6).all()


def test_overspending_is_the_ratio_of_the_second_tables_prices():
    source, target = made(), made(120)
    target.items[:] = [f"x{i}" for i in range(120)]
    same_prices = sensitivity.replay_transfer(
        source, target, SETTINGS, [CONSTANT_MIXTURES, LOGISTIC]
    )
    target.cost_usd[:] *= 3
    higher_prices = sensitivity.replay_transfer(
        source, target, SETTINGS, [CONSTANT_MIXTURES, LOGISTIC]
    )
    ratio = higher_prices["overspending"] / same_prices["overspending"]
    assert np.allclose(ratio, 3)
    assert set(higher_prices["table"]) == {"made_to_made"}


def test_a_price_that_does_not_change_changes_no_ratio_and_a_higher_one_lowers_a_routers():
    methods = [CONSTANT_MIXTURES, LOGISTIC, STOP_OR_ESCALATE]
    ratios = sensitivity.replay_with_prices(TABLE, SETTINGS, [1.0, 4.0], methods)
    assert set(ratios["method"]).isdisjoint({BEST_CONSTANT, RANDOM_MODEL})
    by_factor = ratios.pivot(index="method", columns="factor", values="cost_ratio")
    unchanged = sensitivity.compare_cost_ratios(TABLE, SETTINGS, methods)
    for method in methods:
        assert by_factor.loc[method, 1.0] == pytest.approx(unchanged[method].value)
    assert by_factor.loc[LOGISTIC, 4.0] < by_factor.loc[LOGISTIC, 1.0]


def test_a_method_that_cannot_play_on_a_table_is_left_out_of_the_ratios():
    blind = replace(TABLE, features=np.zeros((len(TABLE), 1)))
    assert set(sensitivity.compare_cost_ratios(blind, SETTINGS, [LOGISTIC, PERFECT_CHECK])) == {
        PERFECT_CHECK
    }
