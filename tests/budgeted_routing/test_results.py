"""The record of lesson 05 holds everybody on the same questions, and an oracle that nobody passes."""

import pytest

from lib import stats
from lib.budgeted_routing import results
from lib.budgeted_routing.baselines import ITSELF, ROUTERS
from lib.experiment import results_table
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
