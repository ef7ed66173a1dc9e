"""Tables and figures of lesson 06: users who differ, words for metric keys, what only the recorded run has."""

import json

import pandas as pd
import pytest

from lib.config import ROOT
from lib.reports.lesson_figures import tool_orchestration as lesson_figures

METRICS = json.loads((ROOT / "reports/metrics/06_tool_orchestration.json").read_text("utf-8"))


def test_what_the_weight_on_cost_changes_is_said_by_method():
    index = pd.MultiIndex.from_product(
        [["weight on cost"], ["ToolOrchestra", "optimum"], [0.0, 0.5, 1.0]],
        names=["objective", "method", "weight"],
    )
    spending = pd.DataFrame({"value": [1.0, 0.9, 0.95, 1.0, 0.8, 0.6]}, index)
    title = lesson_figures.summarize_spending_changes(spending)
    assert title.endswith("in shares of a mean tool: ToolOrchestra -5%, optimum -40%")
    position_title = lesson_figures.summarize_price_map(spending, prices=4.0, updates=50)
    assert position_title.startswith("Prices up to 4 times apart, 50 updates:")
    assert position_title.endswith("by -5% of a mean tool, with the optimum by -40%")


@pytest.mark.parametrize(
    "labels",
    [
        lesson_figures.CHOICE_LABELS,
        lesson_figures.CONTRAST_LABELS,
    ],
)
def test_every_label_belongs_to_a_committed_metric_and_to_no_other(labels):
    assert set(labels) <= set(METRICS)
    assert len(set(labels.values())) == len(labels)


def test_verdicts_stand_under_the_metric_of_their_contrast():
    contrasts = pd.DataFrame(
        {"verdict": ["holds", "undecided"], "mde": [0.1, 0.2]},
        index=["ToolOrchestra minus start", "ToolOrchestra minus oracle"],
    )
    assert lesson_figures.collect_verdicts(contrasts) == {
        "trained.gain_verdict": "holds",
        "trained.gain_mde": 0.1,
        "trained.minus_oracle_verdict": "undecided",
        "trained.minus_oracle_mde": 0.2,
    }


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
