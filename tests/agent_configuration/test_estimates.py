"""Estimates of lesson 07 from rows that are made up so that they can be worked out on paper."""

import numpy as np
import pandas as pd
import pytest

from lib.agent_configuration import estimates
from lib.agent_configuration.results import BY_WORKFLOW, GATE, LARGER, OTHER, OWN, TEST, TRAIN
from lib.stats.verdicts import HOLDS

KINDS = ("chain", "hops")
NUM_ITEMS = 20


def make_tests(rates: dict[str, float], seeds: dict[str, int]) -> pd.DataFrame:
    """Of each method the first questions of a kind are right, as many as its rate says."""
    rows = []
    for method, rate in rates.items():
        for seed in range(seeds.get(method, 1)):
            for kind in KINDS:
                for number in range(NUM_ITEMS):
                    is_right = number < rate * NUM_ITEMS
                    rows.append(
                        {
                            "method": method, "seed": seed, "split": TEST, "style": OWN, "group": kind, "sample": 0,
                            "item": f"{kind} {number}", "correct": float(is_right), "reward": 5.0 * is_right - 0.1,
                            "cost_usd": 1e-6, "tokens_out": 10, "only": kind, "step": -1, "calls": 1,
                            "workflow": ("direct", "reason")[number % 2], "error": "" if is_right else "reasoning",
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


RATES = {"arc": 0.9, "bandit": 0.5, "by_kind": 0.6, "random": 0.2, "sparse": 0.9, "oracle": 1.0}
TESTS = make_tests(RATES, {"arc": 3, "bandit": 3, "sparse": 2})


def test_contrasts_are_differences_on_the_same_questions_with_a_verdict_each():
    contrasts = estimates.estimate_contrasts(TESTS)
    assert contrasts["contrast.arc_bandit.accuracy"]["value"] == pytest.approx(0.4)
    assert contrasts["contrast.arc_random.reward"]["value"] == pytest.approx(3.5)
    assert contrasts["arc.gain"]["value"] == pytest.approx(1.5)
    table = estimates.decide_contrasts(contrasts)
    assert table.loc["random", "verdict"] == HOLDS and table.loc["oracle", "value"] < 0
    assert table.loc["bandit", "mde"] > 0


def test_a_method_with_fewer_trainings_is_compared_under_the_seeds_that_both_have():
    difference = estimates.estimate_difference(TESTS, "correct", "arc", "sparse")
    assert difference["num_runs"] == 2 and difference["value"] == 0


def test_a_method_with_one_run_is_the_same_under_every_seed():
    difference = estimates.estimate_difference(TESTS, "correct", "arc", "random")
    assert difference["num_runs"] == 3 and difference["value"] == pytest.approx(0.7)


def test_the_interval_of_a_difference_of_accuracies_ends_at_one():
    """Two seeds that disagree leave an interval that would go far beyond."""
    rows = make_tests({"arc": 1.0, "bandit": 0.0}, {"arc": 2, "bandit": 2})
    is_flipped = (rows["seed"] == 1) & (rows["method"] == "arc")
    rows.loc[is_flipped, "correct"] = 0.0
    difference = estimates.estimate_difference(rows, "correct", "arc", "bandit")
    assert -1 <= difference["ci_low"] < difference["ci_high"] <= 1
    in_reward = estimates.estimate_difference(rows, "reward", "arc", "bandit")
    assert in_reward["ci_high"] >= in_reward["value"]


def test_regret_is_what_the_oracle_has_more_and_nobody_is_above_it():
    estimated = estimates.estimate_oracle(TESTS)
    assert estimated["oracle.dominates"] is True
    assert estimated["regret.arc"]["value"] == pytest.approx(0.5)
    above = TESTS.copy()
    above.loc[above["method"] == "random", "reward"] = 9.0
    assert estimates.estimate_oracle(above)["oracle.dominates"] is False


def test_the_gate_says_what_choosing_gains_and_saves():
    rows = []
    for method, rate, cost in (
        ("best per question", 1.0, 0.6), ("best constant per kind", 0.75, 0.8), ("best constant", 0.5, 1.0),
        ("most accurate constant", 0.6, 9.0),
    ):  # fmt: skip
        table = make_tests({method: rate}, {}).assign(split=GATE, cost_usd=cost)
        rows += [table, table.assign(sample=1)]
    gate = estimates.estimate_gate(pd.concat(rows, ignore_index=True))
    assert gate["gate.configuration.headroom"]["value"] == pytest.approx(0.5)
    assert gate["gate.configuration.headroom_in_kind"]["value"] == pytest.approx(0.25)
    assert gate["gate.configuration.headroom_at_any_cost"]["value"] == pytest.approx(0.4)
    assert gate["gate.configuration.saving"]["value"] == pytest.approx(0.4)


def test_transfer_and_larger_agents_are_compared_with_the_policy_at_home():
    arc = make_tests({"arc": 0.9}, {"arc": 3})
    away = make_tests({"arc": 0.4}, {"arc": 3}).assign(style=OTHER)
    away["only"] = np.where(away["group"] == "chain", "hops", "chain")
    larger = make_tests({"arc": 0.7}, {"arc": 3}).assign(style=LARGER)
    rows = pd.concat([arc, away, larger], ignore_index=True)
    transfer = estimates.estimate_transfer(rows)
    assert set(transfer) == {"transfer.hops.chain.gap", "transfer.chain.hops.gap"}
    assert transfer["transfer.hops.chain.gap"]["value"] == pytest.approx(-0.5)
    larger_agents = estimates.estimate_larger_agents(rows)
    assert larger_agents["larger.gap"]["value"] == pytest.approx(-0.2)


def test_episodes_are_counted_for_the_policy_that_had_fewest():
    train = pd.DataFrame(
        {
            "method": "arc", "split": TRAIN, "seed": [0, 0, 1, 1], "only": ["chain", "hops"] * 2,
            "calls": [64, 64, 64, 32],
        }
    )  # fmt: skip
    assert estimates.count_training(train) == {"arc.episodes": 32, "arc.seeds": 2}


def test_the_best_workflow_of_each_kind_leads_the_next():
    table = make_tests({"reason": 0.9, "direct": 0.5}, {}).assign(split=BY_WORKFLOW, style="")
    metrics = estimates.estimate_workflows(table)
    assert metrics["workflows.best.chain"] == "reason"
    assert metrics["workflows.lead.chain"]["value"] == pytest.approx(0.4)
    assert metrics["workflows.none_wins_everywhere"] == "does not hold"


def test_every_contrast_has_a_verdict_and_the_effect_that_it_could_have_told():
    contrasts = estimates.estimate_contrasts(TESTS)
    values = estimates.collect_verdicts(contrasts)
    assert values["contrast.arc_random.reward_verdict"] == HOLDS
    of_accuracy = {key.split(".")[1] for key in contrasts if key.endswith(".accuracy")}
    keys = {
        f"contrast.{name}.{column}" for name in of_accuracy for column in ("accuracy", "reward")
    }
    assert set(values) == {f"{key}_{end}" for key in keys for end in ("verdict", "mde")}
    assert values["contrast.arc_bandit.accuracy_mde"] > 0


def test_the_configuration_is_to_blame_for_its_share_of_wrong_answers():
    rows = TESTS.copy()
    wrong = rows.index[(rows["method"] == "random") & (rows["correct"] == 0)]
    rows.loc[wrong[::4], "error"] = "configuration"
    shares = estimates.estimate_errors(rows)
    assert shares["errors.random.configuration"]["value"] == pytest.approx(0.25)
    assert shares["errors.arc.configuration"]["value"] == 0
    assert "errors.oracle.configuration" not in shares  # nothing of the oracle is wrong


def test_the_entropy_of_workflows_is_that_of_the_policy_of_a_kind():
    """Two workflows in turn on one kind are a bit; one workflow on each kind is none, however they differ."""
    before = TESTS[TESTS["method"] == "arc"].assign(method="arc_no_sft")
    chain = before["group"] == "chain"
    before["workflow"] = np.where(chain, before["workflow"], "voting")
    entropy = estimates.estimate_workflow_entropy(before)
    assert entropy["arc_no_sft.workflow_entropy.chain"]["value"] == pytest.approx(1.0)
    assert entropy["arc_no_sft.workflow_entropy.hops"]["value"] == 0
