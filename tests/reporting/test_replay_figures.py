"""The replay's figures by budget, and its made-up curve, say what their numbers say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lib import stats
from lib.draw import colour
from lib.reporting import replay as replayed
from lib.routing import replay
from lib.stats import Interval

BUDGETS = (1e-6, 1e-5, 1e-4, 1e-3)
GAPS = (Interval(0.0, 0.0, 0.0), Interval(0.1, 0.05, 0.15), Interval(-0.1, -0.15, -0.05), Interval(0.1, -0.05, 0.25))


def known(value: float) -> Interval:
    return Interval(value, value, value)


def by_budget(gaps=GAPS) -> dict[float, dict[str, Interval]]:
    """As `replay.by_budget`: constant 0.5 and oracle 0.8 everywhere, a tenth over budget."""
    return {
        budget: {
            "reward": known(0.5 + gap.value), "constant": known(0.5), "ceiling": known(0.8),
            "gap": gap, "short": known(0.3 - gap.value), "over": known(0.1),
        }
        for budget, gap in zip(BUDGETS, gaps, strict=True)
    }  # fmt: skip


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def test_a_panel_for_every_table_holds_the_learned_router_the_constant_and_the_oracle():
    figure = replayed.budgets_figure({"lab": by_budget(), "gsm8k": by_budget(GAPS[:1] * 4)})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["lab experts", "GSM8K: Mixtral and GPT-4"]
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    lines = {line.get_color(): line for line in axes.lines[:-1]}
    assert lines[colour("best constant")].get_xdata() == pytest.approx(np.array([1, 10, 100, 1000]))
    assert lines[colour(replayed.NAMES["corl"])].get_ydata() == pytest.approx([0.5, 0.6, 0.4, 0.6])
    assert lines[colour("oracle")].get_ydata() == pytest.approx([0.8] * 4)
    dots = axes.lines[-1]
    assert dots.get_linestyle() == "None" and dots.get_xdata() == pytest.approx([10, 100])


def test_the_metric_is_the_gap_in_reward_of_every_table():
    rows = pd.DataFrame(
        {
            "router": "corl", "table": ["lab"] * 2 + ["mmlu"] * 2, "seed": [0, 1] * 2, "knob": 1.0, "over_budget": 0.0,
            "reward": [0.5, 0.7, 0.4, 0.4], "constant": 0.4, "ceiling": 0.9,
        }
    )  # fmt: skip
    found = replayed.budget_metrics(rows)
    assert list(found) == ["replay.lab.corl.reward_gap", "replay.mmlu.corl.reward_gap"]
    assert [gap.value for gap in found.values()] == pytest.approx([0.2, 0.0])
    assert found["replay.lab.corl.reward_gap"].known


def test_the_refused_curve_is_made_up_and_its_reason_is_that_of_the_measure():
    figure, told = replayed.refusal_example()
    assert title(figure).startswith("Made up")
    shares, qualities = (np.array(replayed.MADE_UP[key]) for key in ("shares", "qualities"))
    ends, target = (qualities[0], qualities[-1]), replay.TARGETS[0]
    with pytest.raises(ValueError) as refused:
        stats.cpt(shares, qualities, *ends, target)
    assert told.startswith(f"Refused: {refused.value}.")
    found = stats.cpt(shares, stats.monotone(qualities), *ends, target)
    assert f"{found:.2f}" in told and f"{found:.2f}" in title(figure)
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    assert drawn["as measured (made up)"].get_ydata() == pytest.approx(qualities)
    assert drawn["its CPT"].get_xdata() == pytest.approx([found])
