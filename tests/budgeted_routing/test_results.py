"""The results table of CoRL has all methods on the same questions, and an oracle that nothing surpasses."""

from dataclasses import replace

import pytest

from lib import config, stats
from lib.budgeted_routing import results
from lib.budgeted_routing.baselines import ROUTERS
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER
from lib.experiment import results_table
from lib.llm import reply_shares
from tests.budgeted_routing.worked_example import (
    BUDGETS,
    CALL_PRICES,
    CALLS_AND_SCORES,
    make_study,
)

MODELS = {"lab-nano": "nano", "lab-mini": "mini", "lab-large": "large"}
ENDPOINT = {
    "backend": "endpoint",
    "base_url": "https://host/v1",
    "model": "m",
    "price_in": 0.0,
    "price_out": 0.0,
}


@pytest.fixture(scope="module")
def rows():
    return results.make_rows({COMPLEMENTARY: make_study()})


def test_all_methods_meet_the_same_questions_under_every_budget(rows):
    test_rows = results_table.select(rows, split="test", style="soft", temperature=0.0)
    in_pieces = [f"{expert} in pieces" for expert in CALL_PRICES]
    methods = {"CoRL", "start", CONTROLLER_ALONE, *CALL_PRICES, *in_pieces, *ROUTERS}
    assert set(test_rows["method"]) == methods
    for _, method_rows in test_rows.groupby(["method", "seed", "condition"]):
        assert sorted(method_rows["item"]) == list("012345")
    assert set(test_rows["condition"]) == set(BUDGETS)


def test_roles_and_calls_are_those_of_the_experiment(rows):
    roles = rows.drop_duplicates("method").set_index("method")["role"]
    assert (roles["CoRL"], roles["start"], roles["oracle"]) == ("paper", "start", "oracle")
    assert roles[list(CALL_PRICES)].eq("expert").all()
    assert roles[CONTROLLER_ALONE] == roles["best constant"] == "constant"

    corl_rows = results_table.select(
        rows, method="CoRL", split="test", temperature=0.0, condition="medium", seed=1
    )
    chosen = corl_rows.set_index("item")["chosen"]
    calls, _ = CALLS_AND_SCORES["medium"]
    assert [" ".join(chosen[str(item)]) for item in range(6)] == calls[1]
    num_tokens = 20 + 10 * corl_rows["calls"]
    assert (corl_rows["own_cost_usd"] == num_tokens * 1e-8).all()


def test_means_are_those_worked_out_by_hand(rows):
    corl_rows = results_table.select(rows, method="CoRL", split="test", temperature=0.0)
    accuracy = stats.mean(corl_rows, "correct", "condition")["value"]
    assert accuracy["low"] == pytest.approx(4 / 12)
    assert accuracy["medium"] == pytest.approx(9 / 12)
    reward = stats.mean(corl_rows, "reward", "condition")["value"]
    assert reward["medium"] == pytest.approx(8 / 12)


def test_rows_of_several_worlds_stand_under_the_names_of_their_worlds():
    rows = results.make_rows({COMPLEMENTARY: make_study(), LADDER: make_study()})
    by_world = rows.groupby("world").size()
    assert by_world[COMPLEMENTARY] == by_world[LADDER] == len(rows) / 2


def test_training_episodes_are_listed_by_update(rows):
    training_rows = results_table.select(rows, split="train")
    assert sorted(training_rows["step"].unique()) == list(range(10))
    assert "CoRL, hard prompts" in set(training_rows["method"])
    assert set(training_rows["style"]) == {"soft", "hard"}


def test_nothing_that_chooses_once_surpasses_the_oracle(rows):
    assert results.oracle_dominates(rows)
    broken = rows.copy()
    broken.loc[(broken["role"] == "oracle") & (broken["item"] == "0"), "reward"] = 0.0
    assert not results.oracle_dominates(broken)


def test_the_setup_says_how_long_was_trained_and_whether_the_oracle_is_a_bound(rows):
    params = config.load("smoke")
    setup = results.describe_setup(rows, params)
    assert setup["oracle.dominates"] is True
    assert setup["corl.updates"] == params.routing.updates["soft"]
    assert setup["corl.seeds"] == params.routing.seeds
    broken = rows.assign(reward=rows["reward"].where(rows["role"] != "oracle", 0.0))
    assert results.describe_setup(broken, params)["oracle.dominates"] is False


def test_a_question_of_which_a_reply_was_lost_is_left_out_for_all_baselines():
    """And the other questions keep their numbers."""
    study = make_study()
    is_lost = (study.experts["split"] == "test") & (study.experts["item"] == 2)
    is_lost &= study.experts["method"] == "lab-mini"
    study.experts.loc[is_lost, "correct"] = float("nan")
    study.episodes["failed"] = False
    first_episode = study.episodes.index[0]
    study.episodes.loc[first_episode, ["failed", "correct", "reward"]] = [True, None, None]

    rows = results.make_world_rows(study, COMPLEMENTARY)
    baseline_rows = rows[rows["role"].isin(["expert", "router", "oracle", "constant"])]
    assert set(baseline_rows["item"]) == set("01345")
    large_rows = results_table.select(baseline_rows, method="lab-large", condition="high")
    scores = dict(zip(large_rows["item"], large_rows["correct"], strict=True))
    assert scores == {"0": 1.0, "1": 1.0, "3": 1.0, "4": 1.0, "5": 0.0}
    assert rows["failed"].sum() == 1
    assert rows.loc[rows["failed"] == 1, "reward"].isna().all()
    assert rows["shortened"].eq(0).all()


# Counts of replies --------------------------------------------------------------------------------


def make_params(**models) -> config.Params:
    """Smoke parameters with the experts of the worked example."""
    params = config.settings(profile="smoke", llm={"models": models})
    routing = params.routing.model_copy(update={"experts": MODELS})
    return params.model_copy(update={"routing": routing})


@pytest.mark.parametrize("num_cut_off", [2, 0])
def test_a_comparison_with_an_expert_that_is_cut_off_in_two_of_ten_replies_is_untestable(
    num_cut_off,
):
    params = make_params(large=ENDPOINT)
    outcomes = make_study().experts
    is_cut_off = (outcomes["method"] == "lab-large") & (outcomes["item"] % 10 < num_cut_off)
    outcomes = outcomes.assign(truncated=is_cut_off, failures=is_cut_off.astype(int), failed=False)
    study = replace(make_study(), experts=outcomes)
    rows = results.make_world_rows(study, COMPLEMENTARY)

    counts = results.count_replies(rows, study, params).set_index("method")
    assert counts.loc["lab-large", "model"] == "large"
    assert counts.loc["lab-large", "calls"] == 24
    assert counts.loc["lab-large", "truncated"] == (6 if num_cut_off else 0)
    assert counts.loc["CoRL", "calls"] > 0
    assert counts.loc["CoRL", "truncated"] == 0
    assert counts.loc["lab-large", "too_many"] == (num_cut_off > 0)
    assert not counts.loc[["lab-nano", "lab-mini", "CoRL"], "too_many"].any()

    marked = reply_shares.mark_rows(rows, counts.reset_index())
    test_rows = results_table.select(marked, split="test", style="soft", temperature=0.0)
    differences = stats.paired_difference(
        test_rows, "reward", {"method": "CoRL"}, {"method": "lab-large"}, "condition"
    )
    assert (stats.verdict(differences) == "untestable").all() == (num_cut_off > 0)


def test_a_router_is_charged_with_the_failures_of_the_experts_that_it_chose():
    outcomes = make_study().experts
    failures = (outcomes["method"] == "lab-mini").astype(int)
    study = replace(make_study(), experts=outcomes.assign(failures=failures))
    rows = results.make_world_rows(study, COMPLEMENTARY)
    counts = results.count_replies(rows, study, make_params()).set_index("method")
    oracle_rows = results_table.select(rows, method="oracle", split="test")
    chosen = oracle_rows["chosen"].explode().dropna()
    num_in_pieces = chosen.str.endswith("in pieces").sum()  # which take two calls
    assert counts.loc["oracle", "calls"] == len(chosen) + num_in_pieces
    assert counts.loc["oracle", "unusable"] == (chosen == "lab-mini").sum() > 0
    assert not counts["too_many"].any()  # errors of lab models are results
