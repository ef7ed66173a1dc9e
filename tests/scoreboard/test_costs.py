"""Costs of the orchestration lesson: the paper's tables recomputed, and ours by its formulas."""

import pytest

from lib.llm import cost_ledger
from lib.orchestration import prompted_experiment, results, variants
from lib.scoreboard import costs
from tests.orchestration.test_prompted_experiment import SCRIPTED, small, trained

__all__ = ["trained"]

RO = f"RO {SCRIPTED}"


@pytest.fixture(scope="module")
def record(trained, tmp_path_factory):
    todo = variants.orchestrators(small()) + variants.rivals()
    return prompted_experiment.run(
        small(), "education", todo, tmp_path_factory.mktemp("runs"), trained
    )


def test_results_come_in_the_order_of_the_methods(record):
    rows = list(results.results(record))
    assert rows == [*(f"{kind} {SCRIPTED}" for kind in variants.KINDS), "MO-MGDA", "random"]


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


def test_costs_by_the_papers_assumptions_charge_fifty_decisions(record):
    row = costs.tabulate_assumed_costs(record).set_index("method").loc[RO]
    per_decision = record.loc[record["method"] == RO, "cost_usd"].mean()
    assert float(row["infer $"]) == pytest.approx(50 * per_decision, rel=0.01)
    assert float(row["total $"]) == pytest.approx(0.972 + 50 * per_decision, abs=0.002)
