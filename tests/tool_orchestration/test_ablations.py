"""Ablation of ToolOrchestra: which episodes are compared with which, in a made-up study."""

import pandas as pd
import pytest

from lib import config
from lib.tool_orchestration import ablations, experiment, variants

SETTINGS = config.load("smoke")
SEEDS, ITEMS = 2, 4
COSTS = {"start": 5.0, "paper": 4.0, "published": 9.0, "listed": 6.0}  # micro-dollars of a question


@pytest.fixture
def priced(monkeypatch):
    """The exams that each arm sits; those of another list cost ten times as much."""
    asked = []

    def run(params, compared, label=""):
        asked.extend(compared)
        sat = {method.name: method.exams for method in compared} | {
            experiment.START: ("test", "outage", "unseen_prices")
        }
        rows = [
            {
                "method": method,
                "style": exam,
                "seed": seed,
                "item": item,
                "correct": 1.0,
                "seconds": 0.001 * COSTS[method],
                "cost_usd": 1e-6 * COSTS[method] * (10 if exam == "unseen_prices" else 1),
            }
            for method, told in sat.items()
            for exam in told
            for seed in range(1 if method == experiment.START else SEEDS)
            for item in range(ITEMS)
        ]
        return type("Results", (), {"episodes": pd.DataFrame(rows)})

    monkeypatch.setattr(experiment, "run", run)
    return asked


def test_trainings_at_other_prices_are_held_against_prices_by_lot(priced):
    made = ablations.pricing(SETTINGS)
    assert [method.name for method in priced] == ["paper", "published", "listed"] and priced[
        2
    ] is variants.LIST_PRICES
    test, unseen = made["test"], made["unseen_prices"]
    assert test.baselines == {"sign error": "prices by lot", "list prices only": "prices by lot"}
    assert unseen.baselines == {
        "list prices only": "prices by lot"
    }  # the other sits the main exams alone
    assert test.gains["cost_usd"]["value"]["sign error"] == pytest.approx(5)
    assert test.gains["milliseconds"]["value"]["list prices only"] == pytest.approx(2)
    assert unseen.gains["cost_usd"]["value"]["list prices only"] == pytest.approx(20)
    assert (
        test.levels["cost_usd"]["value"]["start"] == pytest.approx(5)
        and "start" in unseen.levels["cost_usd"].index
    )
    assert test.name == "tool_pricing.test" and unseen.name == "tool_pricing.unseen_prices"
