"""Tables and figures of lesson 06: users who differ, words for metric keys, what only the recorded run has."""

import json

import pandas as pd
import pytest

from lib.config import ROOT
from lib.experiment import results_table
from lib.reports.lesson_figures import tool_orchestration as lesson_figures

METRICS = json.loads((ROOT / "reports/metrics/06_tool_orchestration.json").read_text("utf-8"))
SAVINGS = {"start": 0.0, "ToolOrchestra": 0.75}


@pytest.fixture
def spending() -> pd.DataFrame:
    """What users who care for one objective only would spend: ToolOrchestra saves what the user cares for."""
    rows = []
    for method, saving in SAVINGS.items():
        for user in ("cost", "latency", "accuracy"):
            for seed in range(3):
                row = {"method": method, "style": user, "seed": seed, "item": "0"}
                row["expected_cost"] = 1 - saving * (user == "cost")
                row["expected_latency"] = 1 - saving * (user == "latency")
                rows.append(row)
    rows = pd.DataFrame(rows).assign(split="steering", role="paper")
    return results_table.make_results("toolorchestra", rows)


def test_what_the_weight_on_cost_changes_is_said_by_method():
    index = pd.MultiIndex.from_product(
        [["weight on cost"], ["ToolOrchestra", "optimum"], [0.0, 0.5, 1.0]],
        names=["objective", "method", "weight"],
    )
    spending = pd.DataFrame({"value": [1.0, 0.9, 0.95, 1.0, 0.8, 0.6]}, index)
    title = lesson_figures.summarize_spending_changes(spending)
    assert title.endswith("in shares of a mean tool: ToolOrchestra -5%, optimum -40%")


def test_spending_is_estimated_for_each_orchestrator_and_user(spending):
    table = lesson_figures.estimate_spending_by_user(spending, ["start", "ToolOrchestra"])
    values = table["value"]
    assert values["start, cost only", "cost"] == pytest.approx(1.0)
    assert values["ToolOrchestra, cost only", "cost"] == pytest.approx(0.25)
    assert values["ToolOrchestra, cost only", "latency"] == pytest.approx(1.0)
    assert values["ToolOrchestra, latency only", "latency"] == pytest.approx(0.25)
    assert len(table) == 2 * 3 * 2


def test_an_orchestrator_that_is_not_named_is_left_out(spending):
    table = lesson_figures.estimate_spending_by_user(spending, ["start"])
    assert all(name.startswith("start, ") for name in table.index.get_level_values(0))


@pytest.mark.parametrize(
    "labels",
    [
        lesson_figures.PRECONDITION_LABELS,
        lesson_figures.CHOICE_LABELS,
        lesson_figures.BOTH_RUNS_LABELS,
        lesson_figures.CONTRAST_LABELS,
    ],
)
def test_every_label_belongs_to_a_committed_metric_and_to_no_other(labels):
    assert set(labels) <= set(METRICS)
    assert len(set(labels.values())) == len(labels)


def test_what_only_the_recorded_run_has_is_kept_under_its_keys():
    recorded = {"steer.cost": pd.Series({"value": 0.8}), "sign_error.cost": pd.Series({"value": 1})}
    this_run = {"steer.cost": pd.Series({"value": 0.7})}
    collected = lesson_figures.collect_recorded_only(recorded, this_run)
    assert list(collected) == ["full.sign_error.cost"]
    assert collected["full.sign_error.cost"]["value"] == 1


def test_spending_by_weight_has_a_panel_for_each_objective():
    weights = [0.0, 1.0]
    index = pd.MultiIndex.from_product(
        [["weight on cost", "weight on latency"], ["optimum", "ToolOrchestra"], weights],
        names=["objective", "method", "weight"],
    )
    spending = pd.DataFrame({"value": 1.0, "ci_low": 0.9, "ci_high": 1.1}, index=index)
    figure = lesson_figures.draw_spending_by_weight(
        spending, "A title", "the user's weight", panels="objective"
    )
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert [title for title in titles if title] == ["weight on cost", "weight on latency"]
