"""Ablations of policy orchestration: what is left out, how far is looked, whose dice, and which rules."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.config import EducationSettings
from lib.envs import make_education_rules
from lib.orchestration import ablations, prompted_experiment, variants
from lib.orchestration.ablations import PROXY, SHOWN, SWITCHES, TABLE_2
from lib.orchestration.prompt_components import components
from lib.policy_zoo import evaluate
from tests.orchestration import zoo

MODEL = "scripted-medium"
ZOO = Path("policies of one's own")
SEEDS, EPISODES = 2, 3


def settings(**changes) -> config.Params:
    base = {"ablations": {"model": MODEL, "students": 4}, "zoo": {"seeds": SEEDS}}
    return config.settings(profile="smoke", **base | changes)


def record(compared, domain: str) -> pd.DataFrame:
    """Everybody takes as many steps as its place among the methods says, at a dollar each, for rewards of a half."""
    lines = [
        {
            "method": method.name,
            "seed": seed,
            "episode": episode,
            "step": step,
            "reward_0": 0.5,
            "reward_1": 0.5,
            "reward_2": 0.5,
            "cost_usd": 1.0,
            "done": step == place,
        }
        for place, method in enumerate(compared)
        for seed in range(SEEDS)
        for episode in range(EPISODES)
        for step in range(place + 1)
    ]
    return pd.DataFrame(lines)


@pytest.fixture
def asked(monkeypatch):
    """The methods that the study was asked for."""
    told = []

    def run(params, domain, compared, zoo, label=""):
        assert zoo == ZOO
        told.extend(compared)
        return record(compared, domain)

    monkeypatch.setattr(prompted_experiment, "run", run)
    return told


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_memory_is_left_out_part_by_part_of_each_orchestrator(asked, domain):
    made = ablations.memory(settings(), domain, ZOO)
    left = {method.name.replace(f" {MODEL}", ""): tuple(method.without) for method in asked}
    for kind in variants.KINDS:
        assert left[kind] == () and left[f"{kind}, no short-term"] == ("mem_s",)
        assert left[f"{kind}, no long-term"] == ("mem_l",) and left[f"{kind}, no memory"] == (
            "mem_s",
            "mem_l",
        )
        for what in ("no short-term", "no long-term", "no memory"):
            assert made.baselines[f"{kind}, {what}"] == kind
    assert (
        len(left) == len(asked) == 12
        and list(made.levels["length"].index) == list(left)
        and made.name == f"memory_{domain}"
    )
    assert {method.model for method in asked} == {MODEL} and made.backend == "scripted"


@pytest.mark.parametrize("kind", variants.KINDS)
def test_what_is_left_out_is_a_component_that_the_orchestrator_would_have(kind):
    whole = {component.name for component in components(kind)}
    for method in variants.forgetful(MODEL)[kind]:
        assert whole - {component.name for component in components(kind, method.without)} == set(
            method.without
        )


def test_episodes_are_summed_up_by_hand(asked):
    made = ablations.memory(settings(), "education", ZOO)
    for place, method in enumerate(asked):
        row = {
            c: found["value"][method.name.replace(f" {MODEL}", "")]
            for c, found in made.levels.items()
        }
        assert row["length"] == place + 1 == row["cost_usd"] and row["utility"] == 0.5
    assert made.gains["length"]["value"]["KO, no memory"] == 3
    assert made.main.column == "utility"
    assert [m.label for m in made.measures][1:4] == ["aptitude", "gap", "performance"]
    assert made.levels["mean_gap"]["value"]["RO"] == 0.5


# The student's rules --------------------------------------------------------------------------------


def changed(education: EducationSettings, **told) -> EducationSettings:
    return EducationSettings(**education.model_dump() | told)


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in SWITCHES.items() for value in values]
)
def test_every_switch_changes_the_rules_and_nothing_else(key, value):
    usual = settings().education
    other = changed(usual, **{key: value})
    if getattr(usual, key) == value:
        assert other == usual
        return
    before, after = (make_education_rules(each) for each in (usual, other))
    told = [each.name for each in fields(before) if each.init]
    assert before != after and [
        name for name in told if getattr(before, name) != getattr(after, name)
    ] == [key]


@pytest.fixture
def students(monkeypatch):
    """Made-up students: everybody takes ten steps, one more under any changed rule; and the changes that were asked."""
    told = {}

    def made(params, changes, who, variant):
        told[variant] = dict(changes)
        lines = [
            {
                "method": name,
                "seed": seed,
                "episode": episode,
                "length": 10.0 + bool(changes),
                "variant": variant,
                "unit": episode,
                "utility": 0.5,
            }
            for name in SHOWN
            for seed in range(SEEDS)
            for episode in range(EPISODES)
        ]
        return pd.DataFrame(lines)

    monkeypatch.setattr(ablations, "_students", made)
    monkeypatch.setattr(ablations.train, "load", lambda domain, zoo: {})
    return told


def test_rules_are_changed_one_at_a_time_and_never_to_what_they_are(students):
    usual = settings().education
    made = ablations.rules(settings(), ZOO)
    assert list(made) == list(SHOWN)
    expected = {
        f"{k} {v}": {k: v}
        for k, values in SWITCHES.items()
        for v in values
        if getattr(usual, k) != v
    }
    assert students == {"as it is": {}} | expected
    for policy, compared in made.items():
        assert (
            compared.baselines == dict.fromkeys(expected, "as it is") and policy in compared.about
        )
        assert (compared.gains["length"]["value"] == 1).all() and (
            compared.gains["utility"]["value"] == 0
        ).all()


def test_a_switch_that_is_on_already_is_left_out(students):
    told = settings(education={"ncc_rule": "exact", "initial": 0.2})
    ablations.rules(told, ZOO)
    assert not {"ncc_rule exact", "initial 0.2"} & set(students) and "ncc_scope set" in students


def test_students_of_changed_rules_are_played_with_as_many_episodes_as_settings_say():
    """The real simulator, for a moment."""
    told = settings(education={"horizon": 40})
    who = {"random": evaluate.baselines("education", 1)["random"]}
    usual, same, slow = (
        ablations._students(told, c, who, "v") for c in ({}, {}, {"consecutive": 3})
    )
    assert len(usual) == told.ablations.students == 4 and usual["unit"].is_unique
    pd.testing.assert_frame_equal(usual, same)
    assert (
        usual["length"].mean() != slow["length"].mean()
        or usual["utility"].mean() != slow["utility"].mean()
    )


def lengths(values: dict[str, float]):
    def made(params, changes, who, variant):
        assert set(who) == set(PROXY)
        return pd.DataFrame([{"method": name, "length": value} for name, value in values.items()])

    return made


def test_the_search_finds_no_distance_where_lengths_are_those_of_the_paper(monkeypatch):
    monkeypatch.setattr(ablations, "_students", lengths(TABLE_2))
    found = ablations.search(settings())
    assert (found["distance"] == 0).all() and len(found) == 2 * 3 * 3 * 2


@pytest.mark.parametrize("name", TABLE_2)
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_search_finds_a_distance_where_one_length_is_off(monkeypatch, name, factor):
    monkeypatch.setattr(ablations, "_students", lengths(TABLE_2 | {name: factor * TABLE_2[name]}))
    assert ablations.search(settings())["distance"].to_numpy() == pytest.approx(
        abs(np.log(factor)) / 3
    )


def test_the_search_knows_our_rules_and_puts_the_nearest_first(monkeypatch):
    """The more steps a level takes, the longer the episodes here."""

    def made(params, changes, who, variant):
        return lengths(
            {name: steps * changes["steps_per_level"] for name, steps in TABLE_2.items()}
        )(params, changes, who, variant)

    monkeypatch.setattr(ablations, "_students", made)
    found, usual = ablations.search(settings()), settings().education
    (mine,) = found[found["ours"]].to_dict("records")
    assert all(
        mine[key] == getattr(usual, key)
        for key in ("steps_per_level", "warmup", "repeats", "ncc_rule")
    )
    assert found["distance"].is_monotonic_increasing and (found["steps_per_level"][:18] == 1).all()
    assert found["distance"].iloc[-1] == pytest.approx(np.log(2))
    other = ablations.search(settings(education={"steps_per_level": 3}))
    assert not other["ours"].any()  # three steps are not among those tried
