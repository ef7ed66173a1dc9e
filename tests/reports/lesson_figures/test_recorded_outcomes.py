"""Tables, titles and metrics of lesson 08: counts and titles say what the estimates say."""

import numpy as np
import pandas as pd

from lib import stats
from lib.recorded_outcomes import headroom, tables
from lib.recorded_outcomes.model_selection import Choices
from lib.reports.lesson_figures import recorded_outcomes as lesson_tables
from lib.routers.methods import (
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    ORACLE,
    PERFECT_CHECK,
    RANDOM_MODEL,
    READERS,
    STOP_OR_ESCALATE,
)

GATE = pd.DataFrame(
    {
        "table": ["a", "a", "a", "b", "b", "b"],
        "question": ["accuracy", "money", "check"] * 2,
        "value": [0.0, 0.2, 0.5, 0.1, 0.0, 0.4],
        "ci_low": [-0.1, 0.15, 0.4, 0.06, -0.1, 0.3],
        "ci_high": [0.1, 0.25, 0.6, 0.14, 0.1, 0.5],
        "question is": ["not open", "open", "open", "open", "not open", "open"],
    }
)


def make_comparison(verdicts: dict[tuple[str, str], str]) -> pd.DataFrame:
    """Rows of `experiment.compare_tables`, in which only the verdicts differ."""
    interval = stats.Interval(0.5, 0.4, 0.6)
    rows = {}
    for key, verdict in verdicts.items():
        rows[key] = {
            "quality": stats.Interval(0.0, -0.01, 0.01),
            "cost_ratio": interval,
            "gain_over_mixtures": interval,
            "half_quality": interval,
            "verdict": verdict,
        }
    return pd.DataFrame(rows).T.rename_axis(["table", "method"])


def test_open_questions_are_coloured_and_kept():
    styles = lesson_tables.style_by_gate(GATE)
    panel = lesson_tables.QUESTION_LABELS["money"]
    assert styles["a", panel] == "holds"
    assert styles["b", panel] == headroom.NOT_OPEN
    metrics = lesson_tables.collect_gate_metrics(GATE)
    assert metrics["gate.a.money.is"] == "open"
    assert metrics["gate.b.accuracy.headroom"]["ci_low"] == 0.06


def test_the_title_of_a_tradeoff_is_the_gain_over_mixtures():
    accuracy = {
        (CONSTANT_MIXTURES, 0.5): 0.51,
        (LOGISTIC, 0.5): 0.55,
        (PERFECT_CHECK, 0.5): 0.71,
        (ORACLE, 0.5): 0.91,
    }
    index = pd.MultiIndex.from_tuples(accuracy, names=["method", "level"])
    title = lesson_tables.summarize_tradeoff(pd.DataFrame({"value": accuracy.values()}, index))
    assert "logistic gains 4.0 points" in title
    assert "perfect check 20.0, the oracle 40.0" in title


def test_metrics_leave_out_mixtures_and_random_choices():
    comparison = make_comparison(
        {
            ("t", CONSTANT_MIXTURES): "undecided",
            ("t", RANDOM_MODEL): "worse",
            ("t", CORL): "cheaper",
        }
    )
    metrics = lesson_tables.collect_comparison_metrics(comparison)
    assert set(metrics) == {
        "t.corl.cost_usd_at_constant_quality",
        "t.corl.quality_gap",
        "t.corl.half_gap",
        "t.corl_verdict",
    }


def test_the_title_on_known_and_new_tasks_counts_intervals_above_zero():
    panels = list(lesson_tables.TASK_LABELS.values())
    index = pd.MultiIndex.from_product([panels, READERS], names=["table", "method"])
    gains = pd.DataFrame({"value": 0.5, "ci_low": 0.4, "ci_high": 0.6}, index)
    gains.loc[("new tasks", LOGISTIC), "ci_low"] = -0.1
    title = lesson_tables.summarize_gains_by_novelty(gains)
    assert title.startswith("5 of 5 routers clearly beat mixtures")
    assert title.endswith("4 on new tasks")


def test_a_ranking_changes_where_another_method_is_cheapest_than_before():
    ratios = pd.DataFrame(
        [
            ("t", 0.5, PERFECT_CHECK, 0.9), ("t", 0.5, STOP_OR_ESCALATE, 0.8),
            ("t", 1.0, PERFECT_CHECK, 0.3), ("t", 1.0, STOP_OR_ESCALATE, 0.8),
            ("t", 2.0, PERFECT_CHECK, 0.2), ("t", 2.0, STOP_OR_ESCALATE, 0.7),
        ],
        columns=["table", "factor", "method", "cost_ratio"],
    )  # fmt: skip
    cheapest, num_changes = lesson_tables.count_ranking_changes(ratios)
    assert cheapest.loc["t"].tolist() == [STOP_OR_ESCALATE, PERFECT_CHECK, PERFECT_CHECK]
    assert num_changes == {"t": 1}


def test_of_choices_those_that_cost_more_and_solve_less_are_left_out():
    choices = Choices(
        correct=np.array([[0.5, 0.5], [0.4, 0.4], [1.0, 1.0]]),
        cost_usd=np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
        names=("a", "b", "c"),
    )
    cost, accuracy = lesson_tables.find_undominated({"kind": choices})
    assert cost["value"].tolist() == [1.0, 3.0]
    assert accuracy["value"].tolist() == [0.5, 1.0]


def test_a_check_is_summed_up_by_the_cheapest_pair_that_is_as_accurate_as_the_best_agent():
    index = pd.MultiIndex.from_tuples([("pair", 0), ("pair", 1), ("agent", 0), ("agent", 1)])
    cost = pd.DataFrame({"value": [0.5, 1.0, 0.2, 2.0]}, index)
    accuracy = pd.DataFrame({"value": [0.4, 0.6, 0.3, 0.6]}, index)
    title = lesson_tables.summarize_check(cost, accuracy, "pair", "agent", 0.2, 0.1)
    assert title.startswith("20% of the wrong pass, 10% of the correct are refused: ")
    assert title.endswith("as accurate as the best agent for 50% of its cost")
    accuracy.loc[("pair", 1), "value"] = 0.59
    title = lesson_tables.summarize_check(cost, accuracy, "pair", "agent", 0.2, 0.1)
    assert title.endswith("no pair is as accurate as the best agent")


def test_the_metrics_of_the_appendix_are_gains_of_aiq_broken_budgets_and_changed_rankings():
    aiq = pd.DataFrame([{"table": "t", "method": LOGISTIC, "value": 0.02}])
    transfers = pd.DataFrame({"table": ["a_to_b", "a_to_b"], "overspending": [1.04, 1.06]})
    metrics = lesson_tables.collect_appendix_metrics(aiq, transfers, {"t": 3})
    assert metrics["t.logistic.aiq_gap"]["value"] == 0.02
    assert metrics["budget.a_to_b.violations"] == 0.5
    assert metrics["prices.t.flips"] == 3


def test_overspending_is_shown_at_half_the_cost_with_benchmarks_in_words():
    columns = ["table", "method", "level", "overspending"]
    rows = [
        ("swe-bench_to_gaia", LOGISTIC, 0.5, 1.3),
        ("swe-bench_to_gaia", LOGISTIC, 1.0, 9.0),
        ("mmlu_to_gsm8k", LOGISTIC, 0.5, 0.9),
        ("mmlu_to_gsm8k", CORL, 0.5, 1.1),
    ]
    table = lesson_tables.tabulate_overspending(pd.DataFrame(rows, columns=columns))
    assert table.loc["swe-bench, then gaia", LOGISTIC] == 1.3
    assert table.loc["swe-bench, then gaia", CORL] == "-"
    assert table.loc["mmlu, then gsm8k", CORL] == 1.1


def test_every_variant_of_the_agents_has_words():
    assert tuple(lesson_tables.AGENT_VARIANTS) == tables.VARIANTS
