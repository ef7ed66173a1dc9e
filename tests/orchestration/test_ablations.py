"""Ablations of policy orchestration: which memory is left out, which rules of the student are changed, and whose gain
it is."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.config import EducationSettings
from lib.envs import make_education_rules
from lib.envs.education import CHALLENGE, EASY, FAILED
from lib.orchestration import ablations, experiment
from lib.orchestration.ablations import MEMORY_VARIANTS, POLICIES, RULES, UNCHANGED
from lib.orchestration.contexts import SYSTEMS, TABLE_1
from lib.orchestration.methods import NAMES_OF_VARIANTS
from lib.policy_zoo import evaluate, simulator_calibration
from tests.orchestration import zoo
from tests.orchestration.small import SCRIPTED, make_params, trained

__all__ = ["trained"]

NUM_STUDENTS = 4


def make_ablation_params(**changes) -> config.Params:
    base = {"ablations": {"model": SCRIPTED, "students": NUM_STUDENTS, "room_seeds": 1}}
    return make_params(**config.overlay_settings(base, changes))


# Memory -------------------------------------------------------------------------------------------


def write_episodes(params, domains, models, zoo_folder, without, label, **folders):
    """Hand-written episodes in place of played ones: the less memory, the longer."""
    rows = []
    for components in without[::-1]:  # in any order
        for system in SYSTEMS:
            method = f"{system} {models[0]}{NAMES_OF_VARIANTS[components]}"
            for seed in range(params.zoo.seeds):
                row = {"method": method, "orchestrator": system, "seed": seed, "item": f"{seed}-0"}
                row |= {"reward": 0.5, "d1": 0.1, "d2": 0.2, "d3": 0.3, "cost_usd": 0.01}
                rows.append(row | {"length": 10 + len(components)})
    return pd.DataFrame(rows), pd.DataFrame()


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_every_variant_is_compared_with_its_own_system_that_has_all_memory(
    domain, monkeypatch, tmp_path
):
    monkeypatch.setattr(experiment, "run_prompted", write_episodes)
    comparison = ablations.compare_memory(make_ablation_params(), domain, tmp_path)
    suffixes = (", no short-term", ", no long-term", ", no memory")
    expected = [f"{system}{suffix}" for system in SYSTEMS for suffix in ("", *suffixes)]
    assert list(comparison.levels["length"].index) == expected
    assert comparison.baselines == {
        f"{system}{suffix}": system for system in SYSTEMS for suffix in suffixes
    }
    gains = comparison.gains["length"]["value"]
    assert gains["TO, no short-term"] == 1 and gains["RO, no memory"] == 2
    assert (comparison.name, comparison.backend) == (f"memory_{domain}", "scripted")
    assert comparison.main.column == "utility"
    objectives = {"education": ["aptitude", "gap", "performance"]}
    objectives["minigrid"] = ["goal", "no-lava", "gold"]
    assert [measure.label for measure in comparison.measures[1:4]] == objectives[domain]


def test_rooms_have_fewer_seeds(monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "run_prompted", write_episodes)
    for domain, num_seeds in (("education", 2), ("minigrid", 1)):
        comparison = ablations.compare_memory(make_ablation_params(), domain, tmp_path)
        assert comparison.frame["seed"].nunique() == num_seeds


def test_what_is_left_out_is_what_every_system_has():
    for components in MEMORY_VARIANTS:
        for system in SYSTEMS:
            assert set(components) <= TABLE_1[system]


def test_real_episodes_make_a_comparison(trained, tmp_path):
    comparison = ablations.compare_memory(
        make_ablation_params(), "education", trained, runs=tmp_path
    )
    assert len(comparison.frame) == 3 * 4 * 2 * 2  # systems, variants, seeds, students
    assert (comparison.frame["cost_usd"] > 0).all()
    no_effect = comparison.gains["utility"].loc[["KO, no memory"]]
    assert no_effect["num_runs"].item() == 2


# The student's rules ------------------------------------------------------------------------------


def change(education: EducationSettings, **changes) -> EducationSettings:
    return EducationSettings(**education.model_dump() | changes)


@pytest.mark.parametrize(
    ("rule", "value"), [(rule, value) for rule, values in RULES.items() for value in values]
)
def test_a_rule_is_changed_and_nothing_else(rule, value):
    usual = make_ablation_params().education
    changed = change(usual, **{rule: value})
    if getattr(usual, rule) == value:
        assert changed == usual
        return
    before, after = (make_education_rules(each) for each in (usual, changed))
    names = [field.name for field in fields(before) if field.init]
    assert [name for name in names if getattr(before, name) != getattr(after, name)] == [rule]


def test_rules_are_changed_one_at_a_time_and_never_to_what_they_are():
    usual = make_ablation_params().education
    changes = ablations.list_rule_changes(usual)
    assert all(len(changed) == 1 for changed in changes.values())
    for name, changed in changes.items():
        ((rule, value),) = changed.items()
        assert name == simulator_calibration.describe_rule(rule, value)
        assert getattr(usual, rule) != value
    assert changes["solved questions: never asked again"] == {"solved": "retire"}
    assert changes["first questions: may raise mastery"] == {"warmup": "ncc"}
    num_values = sum(len(values) for values in RULES.values())
    assert len(changes) == num_values - len(RULES)  # every rule has one value that is in force


def test_a_rule_that_is_in_force_already_is_left_out():
    usual = make_ablation_params().education
    changes = ablations.list_rule_changes(change(usual, ncc_rule="exact", initial=0.2))
    assert {"ncc_rule": "exact"} not in changes.values()
    assert {"initial": 0.2} not in changes.values()
    assert changes["questions that count: at or above mastery"] == {"ncc_rule": "at_or_above"}
    assert changes["mastery begins at: 0.4"] == {"initial": 0.4}


def test_difficulties_are_calibrated_where_there_are_answers(tmp_path):
    usual = make_ablation_params().education
    with_answers = change(usual, answers=str(tmp_path / "answers.csv"))
    assert "difficulties: calibrated from answers" in ablations.list_rule_changes(with_answers)
    calibrated = change(with_answers, difficulty="calibrated")
    assert "difficulties: as labelled" in ablations.list_rule_changes(calibrated)
    assert not any("difficulties" in name for name in ablations.list_rule_changes(usual))


def always(action: int):
    return lambda observation, draws: np.full(len(draws), action)


def test_everybody_meets_the_same_students_and_they_are_as_many_as_settings_say():
    params = make_ablation_params(education={"horizon": 20})
    actors = {"hard": [always(CHALLENGE)], "failed": [always(FAILED)], "easy": [always(EASY)]}
    episodes = ablations.play_students(params, {}, actors)
    assert episodes.groupby("method").size().tolist() == [NUM_STUDENTS] * 3
    assert (episodes.groupby("unit").size() == 3).all()
    pd.testing.assert_frame_equal(episodes, ablations.play_students(params, {}, actors))
    means = episodes[evaluate.front_columns("education")].mean(axis=1)
    assert episodes["utility"].tolist() == means.tolist()


def test_a_changed_rule_changes_what_students_do():
    params = make_ablation_params(education={"horizon": 40})
    actors = {"random": evaluate.make_baselines("education", 2)["random"]}
    lengths = {
        number: ablations.play_students(params, {"consecutive": number}, actors)["length"].mean()
        for number in (2, 3)
    }
    assert lengths[2] < lengths[3]  # three right answers in a row are rarer than two


def test_each_policy_has_a_comparison_with_a_variant_for_each_rule(trained):
    params = make_ablation_params()
    comparisons = ablations.compare_rules(params, trained)
    assert list(comparisons) == list(POLICIES)
    changes = ablations.list_rule_changes(params.education)
    for name, comparison in comparisons.items():
        assert comparison.baselines == dict.fromkeys(changes, UNCHANGED)
        assert set(comparison.frame["method"]) == {name} and name in comparison.about
        assert comparison.main.column == "length"
        # Two seeds with students of their own, under every rule.
        assert len(comparison.frame) == 2 * NUM_STUDENTS * (1 + len(changes))
        assert comparison.gains["length"]["num_runs"].tolist() == [2] * len(changes)
