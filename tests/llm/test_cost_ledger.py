import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.llm import cost_ledger
from lib.llm.cost_ledger import BudgetExceeded

# Table 10 as printed: dollars and kg CO2e per run in the regimes S, M, L
KILOGRAMS = {"S": 0.0159, "M": 0.0466, "L": 0.1225}
TABLE_10 = {
    "Claude 3.7 Sonnet": {"S": 0.1875, "M": 0.5250, "L": 1.3500},
    "Mistral 24B": {"S": 0.001375, "M": 0.00375, "L": 0.00950},
    "LLaMA 3 8B": {"S": 0.00120, "M": 0.00345, "L": 0.00900},
}

amounts = st.floats(0, 1e6)


def cells():
    return [(model, regime) for model in TABLE_10 for regime in KILOGRAMS]


@pytest.mark.parametrize("model, regime", cells())
def test_every_cell_of_table_10_follows_from_its_formula(model, regime):
    tokens = cost_ledger.REGIMES[regime]
    cost_usd = cost_ledger.llm_cost(
        cost_ledger.HORIZON, tokens.tokens_in, tokens.tokens_out, cost_ledger.PRICES[model]
    )
    kilograms = cost_ledger.llm_co2e(cost_ledger.HORIZON, tokens.tokens_in, tokens.tokens_out)
    assert cost_usd == pytest.approx(TABLE_10[model][regime], rel=1e-12)
    assert kilograms == pytest.approx(
        KILOGRAMS[regime], abs=0.5e-4 + 1e-12
    )  # four decimals in print


def test_both_amortisations_yield_what_the_formulas_say_and_not_what_one_text_says():
    assert cost_ledger.rl_cost(cost_ledger.RUNS_SO) == pytest.approx(0.972)
    assert cost_ledger.rl_cost(cost_ledger.RUNS_MO) == pytest.approx(9.702)
    assert cost_ledger.rl_co2e(cost_ledger.RUNS_SO) == pytest.approx(0.168035)
    assert cost_ledger.rl_co2e(cost_ledger.RUNS_MO) == pytest.approx(1.680035)
    printed = cost_ledger.rl_amortisations().set_index("runs")
    assert (
        abs(printed.loc[10_000, "$/run"] - printed.loc[10_000, "printed $/run"]) > 0.02
    )  # 1.002 is wrong
    assert abs(printed.loc[1_000, "$/run"] - printed.loc[1_000, "printed $/run"]) < 0.01
    assert (printed["kg/run"] - printed["printed kg/run"]).abs().max() < 1e-3


def test_the_printed_1_002_dollars_come_from_a_training_of_10_000_dollars():
    assert cost_ledger.rl_cost(
        10_000, training=cost_ledger.TrainingCost(train_dollars=10_000)
    ) == pytest.approx(1.002)


def test_table_9_does_not_multiply_out():
    assert pytest.approx(9_680) == 8_000 * 1.21 and cost_ledger.TABLE_9.train_dollars == 9_700
    assert 3 * cost_ledger.TABLE_9.train_dollars == 29_100  # printed: 29,000
    assert cost_ledger.TABLE_9.train_kwh == pytest.approx(0.6 * 8_000)


def test_at_equal_amortisation_no_orchestrator_of_table_3_is_cheaper_than_morl():
    cheapest = (
        cost_ledger.TABLE_9.train_dollars / cost_ledger.RUNS_SO
    )  # one policy's training, inference at 0.00
    assert cost_ledger.rl_cost(cost_ledger.RUNS_SO) - cheapest == pytest.approx(
        cost_ledger.TABLE_9.serve_dollars
    )
    assert 3 * cheapest == pytest.approx(2.91)  # the zoo holds three


def test_break_even_is_where_both_cost_the_same():
    claude = TABLE_10["Claude 3.7 Sonnet"]["M"]
    runs = cost_ledger.break_even_runs(claude)
    assert runs == pytest.approx(18_546.85, abs=0.01)
    assert cost_ledger.rl_cost(runs) == pytest.approx(claude)


def test_break_even_with_a_zoo_to_train_first():
    zoo = 2 * cost_ledger.TABLE_9.train_dollars / 3
    runs = cost_ledger.break_even_runs(0.5, rival_train=zoo)
    assert cost_ledger.rl_cost(runs) == pytest.approx(0.5 + zoo / runs)
    assert cost_ledger.break_even_runs(0.5, rival_train=3 * cost_ledger.TABLE_9.train_dollars) == 0


def test_a_cheap_enough_rival_is_never_overtaken():
    assert cost_ledger.break_even_runs(TABLE_10["LLaMA 3 8B"]["S"]) == math.inf
    assert cost_ledger.break_even_runs(0.001, rival_train=1e9) == math.inf


@given(amounts, amounts, st.integers(0, 1000))
def test_cost_grows_with_tokens_and_steps(tokens_in, tokens_out, steps):
    price = cost_ledger.PRICES["Mistral 24B"]
    cost = cost_ledger.llm_cost(steps, tokens_in, tokens_out, price)
    assert cost_ledger.llm_cost(steps + 1, tokens_in, tokens_out, price) >= cost
    assert cost_ledger.llm_cost(steps, tokens_in + 1, tokens_out + 1, price) >= cost


def test_a_broken_budget_travels_between_processes():
    error = pickle.loads(pickle.dumps(BudgetExceeded("RO", 1.0, 0.9, 0.2)))
    assert (error.who, error.budget, error.spent, error.next) == ("RO", 1.0, 0.9, 0.2)


def test_an_hour_of_a_hundred_cores_is_a_kilowatt_hour():
    assert cost_ledger.measured_energy(100 * 3600) == pytest.approx(1.0)
    assert cost_ledger.measured_energy(3600, watts_per_core=1000) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: cost_ledger.rl_cost(0), "runs > 0, got 0"),
        (lambda: cost_ledger.llm_co2e(50, -5, 0), "tokens_in"),
        (lambda: cost_ledger.measured_energy(-1), "cpu_seconds must be finite and >= 0, got -1"),
        (lambda: cost_ledger.measured_energy(math.inf), "cpu_seconds"),
    ],
)
def test_impossible_amounts_are_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
