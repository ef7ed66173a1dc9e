"""Costs of the orchestration lesson: the paper's tables recomputed, and ours by its formulas."""

import numpy as np
import pandas as pd
import pytest

from lib.experiment.results_table import UNUSABLE_SHARE, make_results
from lib.llm import cost_ledger
from lib.orchestration.contexts import SYSTEMS
from lib.scoreboard import costs

CALLS = {"KO": 1, "TO": 4, "RO": 2}  # per decision
NUM_DECISIONS = 20


@pytest.fixture(scope="module")
def episodes() -> pd.DataFrame:
    """Episodes of 20 decisions by a model of known prices, and of chance."""
    rows = []
    for seed in range(3):
        for system, calls in CALLS.items():
            num_calls = calls * NUM_DECISIONS
            rows.append(
                {
                    "method": f"{system} claude",
                    "model": "claude",
                    "backend": "endpoint",
                    "seed": seed,
                    "item": f"{seed}-0",
                    "decisions": NUM_DECISIONS,
                    "calls": num_calls,
                    "tokens_in": 700 * num_calls,
                    "tokens_out": 60 * num_calls,
                    "cost_usd": 0.003 * num_calls + 1e-4 * seed,
                }
            )
        chance = dict.fromkeys(("calls", "tokens_in", "tokens_out", "cost_usd"), 0)
        chance |= {"method": "random", "model": "", "backend": "policy"}
        rows.append(chance | {"seed": seed, "item": f"{seed}-0", "decisions": NUM_DECISIONS})
    return make_results("orchestration", pd.DataFrame(rows).assign(role="router", reward=0.5))


def mark(episodes: pd.DataFrame, method: str, share: float) -> pd.DataFrame:
    shares = np.where(episodes["method"] == method, share, 0.0)
    return episodes.assign(**{UNUSABLE_SHARE: shares})


@pytest.mark.parametrize(
    ("cost_usd", "zoo_usd", "description"),
    [
        (0.001, 0.0, "never"),  # asking costs less than serving
        (0.102, 0.0, "from 97,000 runs on"),  # 9,700 / 0.1
        (0.102, 29_100.0, "always"),
        (0.001, 29_100.0, "up to 19,400,000 runs"),  # 19,400 / 0.001
    ],
)
def test_the_break_even_is_the_one_of_the_formula(cost_usd, zoo_usd, description):
    assert costs.describe_break_even(cost_usd, zoo_usd) == description
    if description.startswith("from"):
        assert cost_ledger.break_even_runs(cost_usd, zoo_usd) == pytest.approx(97_000)


def test_costs_by_the_papers_assumptions_charge_fifty_decisions(episodes):
    table = costs.tabulate_assumed_costs(episodes).set_index("method")
    assert list(table.index) == [*(f"{system} claude" for system in SYSTEMS), "a trained MO policy"]
    for system, calls in CALLS.items():
        row = table.loc[f"{system} claude"]
        per_decision = 0.003 * calls + 1e-4 / NUM_DECISIONS  # the mean of three seeds
        assert float(row["infer $"]) == pytest.approx(50 * per_decision, rel=0.01)
        assert float(row["total $"]) == pytest.approx(0.972 + 50 * per_decision, abs=0.002)
        assert (row["tokens in"], row["tokens out"]) == (700 * calls, 60 * calls)
        expected = cost_ledger.llm_co2e(50, 700 * calls, 60 * calls)
        assert row["kg CO2e, inference"] == pytest.approx(expected)
    assert table.loc["a trained MO policy", "share of MO"] == "100%"


def test_a_decision_that_holds_for_several_steps_is_paid_once(episodes):
    """Half the decisions at the same price per decision are half the price of an episode."""
    sparing = episodes.assign(
        decisions=episodes["decisions"] // 2, cost_usd=episodes["cost_usd"] / 2
    )
    prices = [
        costs.tabulate_assumed_costs(table).set_index("method").loc["RO claude", "infer $"]
        for table in (episodes, sparing)
    ]
    assert prices[0] == prices[1]


def test_measured_costs_are_means_per_episode_with_intervals(episodes):
    table = costs.tabulate_measured_costs(episodes)
    assert list(table.index) == [f"{system} claude" for system in SYSTEMS]
    assert list(table) == ["backend", "calls", "tokens in", "tokens out", "cost usd", "kg CO2e"]
    row = table.loc["TO claude"]
    assert row["calls"].startswith("80.0") and row["tokens in"].startswith("56000")
    assert row["cost usd"].startswith("0.2401 [0.23") and row["backend"] == "endpoint"
    expected = cost_ledger.co2e(cost_ledger.token_energy(760 * 80))
    assert row["kg CO2e"] == pytest.approx(expected)


def test_the_break_even_of_an_orchestrator_is_that_of_its_mean_price(episodes):
    table = costs.tabulate_break_even(episodes).set_index("method")
    for system, calls in CALLS.items():
        row = table.loc[f"{system} claude"]
        cost_usd = 0.003 * calls * NUM_DECISIONS + 1e-4
        assert row["$ per episode, measured"] == pytest.approx(cost_usd)
        assert row["the zoo is there"] == costs.describe_break_even(cost_usd, 0.0)
    assert table.loc["KO claude", "the zoo is trained for it"] == "always"


def test_a_model_that_gave_too_few_answers_has_a_reason_in_place_of_its_costs(episodes):
    marked = mark(episodes, "TO claude", 0.2)
    reason = "left out: a model gave no usable reply in 20% of its calls"
    assumed = costs.tabulate_assumed_costs(marked).set_index("method")
    assert assumed.loc["TO claude", "total $"] == reason
    assert pd.isna(assumed.loc["TO claude", "infer $"])
    assert float(assumed.loc["KO claude", "infer $"]) > 0

    measured = costs.tabulate_measured_costs(marked)
    assert measured.loc["TO claude", "cost usd"] == ""
    assert pd.isna(measured.loc["TO claude", "kg CO2e"])
    assert measured["no usable reply"].tolist() == ["", "20% of calls", ""]

    break_even = costs.tabulate_break_even(marked).set_index("method")
    assert break_even.loc["TO claude", "the zoo is there"] == reason
    assert pd.isna(break_even.loc["TO claude", "$ per episode, measured"])
