"""Chains with prices: everybody on the same questions, every token charged, from made-up results of the studies."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from lib import params, tasks
from lib.meeting import chains
from lib.meeting.chains import EXPERT, MILLION, ORACLE, PAPER, ROUTER, USERS
from lib.routing.baselines import ITSELF
from lib.routing.toolorchestra.menu import Preference
from tests.routing.made import PRICE, WORDS, study
from tests.routing.toolorchestra.common import offers

SETTINGS = params.load("smoke")
ITEMS = tasks.draw("chain", "test", 6, SETTINGS.routing.questions["chain"])
TOKEN = 1e-8  # dollars of a controller's token in the made-up study
ALONE = 20 * TOKEN * MILLION  # of a question that the controller answers itself


@pytest.fixture(scope="module")
def results():
    return study()


@pytest.fixture
def asked(results, monkeypatch):
    """Made-up studies; what they were asked."""
    told = {}

    def orchestra(params, assigned):
        told["assigned"] = wanted = assigned(offers())
        rows = [{"seed": s, "item": i, "right": s, "dollars": 1e-6 * i} for s in (0, 1) for i in range(len(wanted))]
        return pd.DataFrame(rows)

    def arc(params, items):
        told["arc"] = list(items)
        return pd.DataFrame({"seed": 0, "number": range(len(items)), "right": 1.0, "dollars": 3e-6})

    def maestro(params, items):
        told["maestro"] = list(items)
        return pd.DataFrame({"seed": 0, "number": range(len(items)), "right": 0.0, "tokens": 40})

    monkeypatch.setattr(chains.corl, "test_items", lambda settings: ITEMS)
    monkeypatch.setattr(chains.corl, "run", lambda params, compared, label: told.update(corl=compared) or results)
    monkeypatch.setattr(chains.orchestra, "asked", orchestra)
    monkeypatch.setattr(chains.arc, "asked", arc)
    monkeypatch.setattr(chains.maestro, "asked", maestro)
    monkeypatch.setattr(chains.cards, "read", lambda name, models: {"dollars_per_1k_tokens": 0.002})
    return told


@pytest.fixture
def table(asked, one_thread):
    with threadpool_limits(1):
        return chains.play(SETTINGS)


def of(table: pd.DataFrame, maker: str, point: str = "", seed: int = 0) -> pd.DataFrame:
    rows = table[(table["maker"] == maker) & (table["point"] == point) & (table["seed"] == seed)]
    return rows.sort_values("unit").reset_index(drop=True)


# Everybody ----------------------------------------------------------------------------------------


def test_everybody_meets_the_same_questions_once_per_point_and_seed(table):
    assert list(table.columns) == chains.COLUMNS and not table.isna().any(axis=None)
    for _, rows in table.groupby(["maker", "point", "seed"]):
        assert sorted(rows["unit"]) == list(range(6))
    assert set(table["quality"]) <= {0.0, 1.0} and (table["dollars"] >= 0).all()


def test_makers_are_papers_experts_routers_or_the_oracle(table):
    kinds = table.groupby("maker")["kind"].unique().map(list).to_dict()
    assert [name for name, kind in kinds.items() if kind == [PAPER]] == [
        "ARC", "CoRL", "MAESTRO's policy", "ToolOrchestra"
    ]  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == [EXPERT]} == set(PRICE) and kinds["oracle"] == [ORACLE]
    assert {name for name, kind in kinds.items() if kind == [ROUTER]} == {
        "random expert", "best constant", "nearest neighbours", "logistic", "cascade"
    }  # fmt: skip


def test_who_does_not_look_at_the_budget_has_one_point_and_others_one_for_each(table):
    points = table.groupby("maker")["point"].unique().map(list).to_dict()
    for maker in (*PRICE, "random expert", "ARC", "MAESTRO's policy"):
        assert points[maker] == [""], maker
    for maker in ("CoRL", "best constant", "nearest neighbours", "logistic", "cascade", "oracle"):
        assert points[maker] == list(WORDS), maker
    assert points["ToolOrchestra"] == list(USERS)


# Every token ----------------------------------------------------------------------------------------


def test_corl_pays_for_its_experts_and_for_its_own_tokens(table):
    """Under the low budget it calls the small expert, a dollar per million, on questions 1 and 2 of the first seed, and
    reads and writes ten tokens more for each call."""
    rows = of(table, "CoRL", "low")
    called = np.array([0, 1, 1, 0, 0, 0])
    assert rows["dollars"].to_numpy() == pytest.approx(ALONE + called * (1 + 10 * TOKEN * MILLION))
    assert rows["quality"].tolist() == [1, 1, 0, 0, 0, 0]
    assert of(table, "CoRL", "low", 1)["dollars"].tolist()[3] == pytest.approx(ALONE + 1.1)


def test_experts_with_whole_questions_cost_what_they_cost(table):
    for name, price in PRICE.items():
        assert of(table, name)["dollars"].to_numpy() == pytest.approx(price * MILLION)


def test_only_tests_without_dice_under_soft_prompts_count(results):
    frame = results.episodes
    mine = chains._corl(results)
    told = frame[(frame["arm"] == "corl") & (frame["style"] == "soft") & (frame["temperature"] == 0)]
    assert len(mine) == len(told) < (frame["arm"] == "corl").sum() and set(mine["point"]) == set(WORDS)


def test_a_router_that_lets_the_controller_work_pays_for_its_tokens(results):
    """As many as it needs for the whole question; a cascade always."""
    longer = results.alone.assign(tokens=[10 * (i + 1) for i in range(len(results.alone))])
    results = dataclasses.replace(results, alone=longer)
    tests = chains.baselines.tried_on(results.experts, results.alone, "test", list(PRICE))
    rows = [("best constant", ITSELF), ("logistic", ITSELF), ("best constant", "lab-mini"),
            ("logistic", "lab-nano"), ("cascade", "lab-nano"), ("cascade", ITSELF)]  # fmt: skip
    table = pd.DataFrame([{"router": r, "chosen": c, "item": i} for i, (r, c) in enumerate(rows)])
    own = longer[longer["split"] == "test"].sort_values("item")["tokens"].to_numpy() * TOKEN
    assert own[1] - own[0] == pytest.approx(10 * TOKEN)
    assert chains._own(table, results, tests).to_numpy() == pytest.approx(own * [1, 1, 0, 0, 1, 1])


def test_a_conductors_policy_pays_for_what_it_reads_and_writes(table):
    assert of(table, "MAESTRO's policy")["dollars"].tolist() == pytest.approx([40 * 0.002 / 1000 * MILLION] * 6)
    assert of(table, "ARC")["dollars"].tolist() == pytest.approx([3] * 6)


# What is asked --------------------------------------------------------------------------------------


def test_orchestrators_have_the_models_that_do_chains_at_list_prices_and_users_who_weigh_cost_more_and_more(
    asked, table
):
    wanted = asked["assigned"]
    assert len(wanted) == 3 * 6 and [one.work for one in wanted] == ITEMS * 3
    for one in wanted:
        assert one.menu.names == ("lab-nano", "lab-mini", "lab-large")
        assert all(offer == offers()[offer.name] for offer in one.menu.offers)
    weights = [(one.preference.accuracy, one.preference.cost) for one in wanted[::6]]
    assert weights == list(USERS.values()) and [c / a for a, c in weights] == sorted(c / a for a, c in weights)
    assert {type(one.preference) for one in wanted} == {Preference} and not any(p.preference.latency for p in wanted)


def test_what_orchestrators_did_for_a_user_stands_under_that_user(table):
    for place, user in enumerate(USERS):
        for seed in (0, 1):
            rows = of(table, "ToolOrchestra", user, seed)
            assert rows["dollars"].to_numpy() == pytest.approx(np.arange(6) + 6.0 * place)
            assert set(rows["quality"]) == {float(seed)}


def test_the_conductors_policy_is_asked_the_same_chains_in_words(asked, table):
    assert asked["arc"] == ITEMS and [arm.name for arm in asked["corl"]] == ["corl"]
    for item, told in zip(ITEMS, asked["maestro"], strict=True):
        assert told.prompt.startswith("A dial shows") and (told.answer, told.key) == (item.answer, item.key)
