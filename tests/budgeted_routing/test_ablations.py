"""Ablations of CoRL: which episodes are compared with which, in a made-up study."""

import pandas as pd
import pytest

from lib import config
from lib.budgeted_routing import ablations, experiment
from lib.budgeted_routing.variants import Budgets

SETTINGS = config.load("smoke")
SEEDS, ITEMS = 2, 4
WORDS = ("low", "medium", "high")
CALLS = {  # by arm, style and word: calls to the cheapest and to the dearest expert
    ("start", "soft", "low"): (2, 1), ("start", "hard", "low"): (1, 0),
    ("start", "soft", "medium"): (1, 1), ("start", "hard", "medium"): (1, 1),
    ("start", "soft", "high"): (2, 2), ("start", "hard", "high"): (2, 2),
    ("corl", "soft", "low"): (1, 0), ("corl", "soft", "medium"): (1, 1), ("corl", "soft", "high"): (0, 3),
    ("hard", "hard", "low"): (0, 0), ("hard", "hard", "medium"): (1, 0), ("hard", "hard", "high"): (0, 1),
}  # fmt: skip
CHEAP, *_, DEAR = SETTINGS.routing.experts


def episodes() -> pd.DataFrame:
    """Every arm at the temperature of tests, and with dice, where everything is ten times as much."""
    rows = []
    for (method, style, word), (cheap, dear) in CALLS.items():
        for temperature, times in ((0.0, 1), (1.0, 10)):
            for seed in range(1 if method == "start" else SEEDS):
                for item in range(ITEMS):
                    called = " ".join([CHEAP] * cheap * times + [DEAR] * dear * times)
                    rows.append(
                        {
                            "method": method,
                            "style": style,
                            "condition": word,
                            "temperature": temperature,
                            "seed": seed,
                            "item": item,
                            "calls": times * (cheap + dear),
                            "chosen": called,
                            "correct": float(item < cheap + dear),
                            "cost_usd": 1e-6 * times * (cheap + 10 * dear),
                            "reward": 0.5,
                        }
                    )
    return pd.DataFrame(rows)


def results() -> experiment.BudgetedRoutingResults:
    empty, budgets = pd.DataFrame(), Budgets({}, {}, 1.0)
    return experiment.BudgetedRoutingResults(empty, episodes(), empty, empty, empty, budgets, 0.0)


# CoRL ---------------------------------------------------------------------------------------------


def test_prompts_are_compared_before_and_after_training_under_the_low_budget():
    made = ablations.compare_prompts(SETTINGS, results())
    assert made.baselines == {
        "hard, start": "soft, start",
        "soft, trained": "soft, start",
        "hard, trained": "hard, start",
    }
    calls = made.levels["calls"]["value"].to_dict()
    assert calls == {"soft, start": 3, "hard, start": 1, "soft, trained": 1, "hard, trained": 0}
    assert (
        made.gains["calls"]["value"]["soft, trained"] == -2
        and made.gains["calls"]["value"]["hard, trained"] == -1
    )
    assert made.gains["cost_usd"]["value"]["soft, trained"] == pytest.approx(1 - 12)  # per million
    assert made.backend == "lab"


def test_budgets_are_compared_high_with_low_under_the_training_of_each_prompt():
    made = ablations.compare_budgets(SETTINGS, results())
    assert made.baselines == {"soft, high": "soft, low", "hard, high": "hard, low"}
    assert (
        made.gains["calls"]["value"]["soft, high"] == 3 - 1
        and made.gains["calls"]["value"]["hard, high"] == 1
    )
    assert made.gains["cost_usd"]["value"]["soft, high"] == pytest.approx(30 - 1)


def test_the_trainings_that_are_compared_are_asked_for(monkeypatch):
    monkeypatch.setattr(
        experiment,
        "run",
        lambda params, compared, **where: ([method.name for method in compared], where),
    )
    assert ablations.run_controllers(SETTINGS, runs="r") == (["corl", "hard"], {"runs": "r"})


def test_experts_by_script_make_a_comparison_a_scripted_one():
    experts = dict(SETTINGS.routing.experts) | {CHEAP: "scripted-small"}
    told = SETTINGS.model_copy(
        update={"routing": SETTINGS.routing.model_copy(update={"experts": experts})}
    )
    assert ablations.compare_prompts(told, results()).backend == "scripted"


def box() -> pd.DataFrame:
    """Rows of the synthetic environment: the start, CoRL, an ablation, and trainings with one budget."""
    acts = {
        ("start", "start", 1.0): 4,
        ("CoRL", "paper", 0.0): 2,
        ("budget not in the prompt", "paper", 0.0): 3,
        ("low budget only", "paper", 1.0): 1,
        ("high budget only", "paper", 1.0): 6,
    }
    return pd.DataFrame(
        [
            {
                "method": method,
                "role": role,
                "temperature": temperature,
                "step": -1,
                "condition": budget,
                "seed": seed,
                "cost_usd": cost_usd + seed,
                "reward": 0.5,
                "correct": 0.1 * cost_usd,
                "within": float(cost_usd < 3),
                "mean_calls": 1.0,
                "mean_expensive_calls": 0.0,
            }
            for (method, role, temperature), cost_usd in acts.items()
            for budget in WORDS
            for seed in range(3)
        ]
    )


def test_one_budget_stands_beside_the_start_under_it_and_the_high_one_beside_the_low():
    made = ablations.compare_fixed_budgets(box())
    assert (
        made["low"].gains["cost_usd"]["value"]["trained"] == -3
        and made["high"].gains["cost_usd"]["value"]["trained"] == 2
    )
    assert made["low"].gains["within"]["value"]["trained"] == 1
    assert (
        made["both"].gains["cost_usd"]["value"]["high budget"] == 5
        and made["both"].name == "corl_fixed"
    )


def test_parts_are_held_against_the_whole():
    rows = (
        box()
        .query("method != 'start'")
        .replace({"method": {"high budget only": "whitened over all budgets"}})
    )
    bound = rows[rows["method"] == "CoRL"].assign(method="budget not in the reward")
    made = ablations.compare_parts(pd.concat([rows, bound]).assign(temperature=0.0))
    assert made.gains["cost_usd"]["value"]["budget not in the prompt"] == 1 and set(
        made.baselines.values()
    ) == {"CoRL"}
