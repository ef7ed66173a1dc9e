"""The record of lesson 05 holds everybody on the same questions, and an oracle that nobody passes."""

from dataclasses import replace

import pytest

from lib import config, stats
from lib.budgeted_routing import results
from lib.budgeted_routing.baselines import ITSELF, ROUTERS
from lib.experiment import results_table
from lib.llm import reply_shares
from tests.budgeted_routing.made import ACTS, PRICE, WORDS, study


@pytest.fixture(scope="module")
def told():
    return results.rows(study())


def test_everybody_meets_the_same_questions_under_every_word(told):
    soft = results_table.select(told, split="test", style="soft", temperature=0.0)
    assert set(soft["method"]) == {
        "CoRL",
        "start",
        ITSELF,
        *PRICE,
        *(f"{name} in pieces" for name in PRICE),
        *ROUTERS,
    }
    for _, part in soft.groupby(["method", "seed", "condition"]):
        assert sorted(part["item"]) == list("012345")
    assert set(soft["condition"]) == set(WORDS)


def test_roles_and_calls_are_those_of_the_study(told):
    roles = told.drop_duplicates("method").set_index("method")["role"]
    assert roles["CoRL"] == "paper" and roles["start"] == "start" and roles["oracle"] == "oracle"
    assert (
        roles[list(PRICE)].eq("expert").all()
        and roles[ITSELF] == roles["best constant"] == "constant"
    )
    mine = results_table.select(
        told, method="CoRL", split="test", temperature=0.0, condition="medium", seed=1
    ).set_index("item")
    assert [" ".join(mine["chosen"][str(i)]) for i in range(6)] == ACTS["medium"][0][1]
    assert (mine["own_cost_usd"] == (20 + 10 * mine["calls"]) * 1e-8).all()


def test_means_are_those_worked_out_by_hand(told):
    mine = results_table.select(told, method="CoRL", split="test", temperature=0.0)
    found = stats.mean(mine, "correct", "condition")["value"]
    assert found["low"] == pytest.approx(4 / 12) and found["medium"] == pytest.approx(9 / 12)
    assert stats.mean(mine, "reward", "condition")["value"]["medium"] == pytest.approx(8 / 12)


def test_trainings_stand_by_update(told):
    train = results_table.select(told, split="train")
    assert sorted(train["step"].unique()) == list(range(10))
    assert "CoRL, hard prompts" in set(train["method"]) and set(train["style"]) == {"soft", "hard"}


def test_nothing_that_chooses_once_passes_the_oracle(told):
    assert results.oracle_dominates(told)
    broken = told.copy()
    broken.loc[(broken["role"] == "oracle") & (broken["item"] == "0"), "reward"] = 0.0
    assert not results.oracle_dominates(broken)


def test_a_question_of_which_a_reply_was_lost_is_compared_for_nobody():
    """And the other questions keep their numbers."""
    made = study()
    lost = (made.experts["split"] == "test") & (made.experts["item"] == 2)
    made.experts.loc[lost & (made.experts["method"] == "lab-mini"), "correct"] = float("nan")
    made.episodes["failed"] = False
    made.episodes.loc[made.episodes.index[0], ["failed", "correct", "reward"]] = [True, None, None]
    record = results.rows(made)
    compared = record[record["role"].isin(["expert", "router", "oracle", "constant"])]
    assert set(compared["item"]) == set("01345")
    large = results_table.select(compared, method="lab-large", condition="high")
    right = dict(zip(large["item"], large["correct"], strict=True))
    assert right == {"0": 1.0, "1": 1.0, "3": 1.0, "4": 1.0, "5": 0.0}
    assert record["failed"].sum() == 1 and record.loc[record["failed"] == 1, "reward"].isna().all()
    assert record["shortened"].eq(0).all()


EXPERTS = {"lab-nano": "nano", "lab-mini": "mini", "lab-large": "large"}
ENDPOINT = {
    "backend": "endpoint",
    "base_url": "https://host/v1",
    "model": "m",
    "price_in": 0.0,
    "price_out": 0.0,
}


def make_params(**models) -> config.Params:
    """Smoke parameters with the experts of the made-up study."""
    params = config.settings(profile="smoke", llm={"models": models})
    return params.model_copy(
        update={"routing": params.routing.model_copy(update={"experts": EXPERTS})}
    )


@pytest.mark.parametrize("num_cut_off", [2, 0])
def test_an_expert_that_is_cut_off_in_two_of_ten_replies_leaves_the_verdicts(num_cut_off):
    params = make_params(large=ENDPOINT)
    tried = study().experts
    is_cut_off = (tried["method"] == "lab-large") & (tried["item"] % 10 < num_cut_off)
    tried = tried.assign(truncated=is_cut_off, failures=is_cut_off.astype(int), failed=False)
    made = replace(study(), experts=tried)
    table = results.rows(made)

    counts = results.count_replies(table, made, params).set_index("method")
    assert counts.loc["lab-large", "model"] == "large" and counts.loc["lab-large", "calls"] == 24
    assert counts.loc["lab-large", "truncated"] == (6 if num_cut_off else 0)
    assert counts.loc["CoRL", "calls"] > 0 and counts.loc["CoRL", "truncated"] == 0
    assert counts.loc["lab-large", "too_many"] == (num_cut_off > 0)
    assert not counts.loc[["lab-nano", "lab-mini", "CoRL"], "too_many"].any()

    marked = reply_shares.mark_rows(table, counts.reset_index())
    soft = results_table.select(marked, split="test", style="soft", temperature=0.0)
    above = stats.paired_difference(
        soft, "reward", {"method": "CoRL"}, {"method": "lab-large"}, "condition"
    )
    assert (stats.verdict(above) == "untestable").all() == (num_cut_off > 0)


def test_a_router_answers_for_the_replies_of_the_experts_that_it_chose():
    tried = study().experts
    is_lost = tried["method"] == "lab-mini"
    made = replace(study(), experts=tried.assign(failures=is_lost.astype(int)))
    table = results.rows(made)
    counts = results.count_replies(table, made, make_params()).set_index("method")
    chosen = results_table.select(table, method="oracle", split="test")["chosen"].explode().dropna()
    num_in_pieces = chosen.str.endswith("in pieces").sum()  # which take two calls
    assert counts.loc["oracle", "calls"] == len(chosen) + num_in_pieces
    assert counts.loc["oracle", "unusable"] == (chosen == "lab-mini").sum() > 0
    assert not counts["too_many"].any()  # errors of lab models are results
