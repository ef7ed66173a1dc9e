"""The zoo is made where it is missing, once, by the jobs of lesson 01; its cards describe its policies."""

import pandas as pd
import pytest

from lib import config, envs
from lib.experiment import artifacts, seeds
from lib.policy_zoo import (
    evaluate,
    networks,
    policies,
    policy_cards,
    recipes,
    train,
    zoo_folder,
)

DOMAIN = "education"


def make_settings(**zoo):
    content = config.load("smoke").model_dump()
    training = {"timesteps": 256, "rollout": 256}
    short = {"jobs": 1, "episodes": 3, "education": {"single": training, "mgda": training}}
    short_zoo = config.overlay_settings(content["zoo"], short | zoo)
    return config.validate_settings(content | {"zoo": short_zoo})


SETTINGS = make_settings()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where a later lesson, opened first, has made the zoo that it needs."""
    root = tmp_path_factory.mktemp("root")
    ensure_zoo(root, SETTINGS)
    return root


def ensure_zoo(root, settings):
    return zoo_folder.ensure_zoo(settings, [DOMAIN], out=root / "zoo", runs=root / "runs")


def read_files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_file_times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def read_receipt_times(root):
    return {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")}


def test_policies_and_cards_are_made_where_they_are_missing(root):
    zoo = train.load_zoo(DOMAIN, root / "zoo")
    assert list(zoo) == sorted(recipe.name for recipe in recipes.list_recipes(SETTINGS, DOMAIN))
    for name, by_seed in zoo.items():
        assert len(by_seed) == SETTINGS.zoo.seeds
        card = artifacts.read_json(root / "zoo" / DOMAIN / name / "card.json")
        assert policy_cards.Card(**card).name == name


def test_a_zoo_that_is_complete_is_not_made_again(root, capsys):
    times_before = read_file_times(root)
    assert ensure_zoo(root, SETTINGS) == root / "zoo"
    assert read_file_times(root) == times_before
    assert capsys.readouterr().out == ""


def test_lesson_01_finds_the_work_done_and_leaves_the_same_bytes(root):
    receipt_times = read_receipt_times(root)
    files = read_files(root / "zoo")
    zoo = train.build_zoo(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    steps = zoo_folder.evaluate_zoo(SETTINGS, DOMAIN, root / "runs")
    zoo_folder.write_cards(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    assert read_receipt_times(root) == receipt_times
    assert read_files(root / "zoo") == files

    # The steps that were read are those of these policies, row by row.
    baselines = evaluate.make_baselines(DOMAIN, SETTINGS.zoo.seeds)
    actors = evaluate.make_actors(zoo.policies) | baselines
    expected_steps = evaluate.evaluate(SETTINGS, actors, DOMAIN, SETTINGS.education.topic)
    pd.testing.assert_frame_equal(steps, expected_steps)


def test_cards_describe_other_students_than_those_that_methods_are_tested_on(root):
    actors = evaluate.make_actors(train.load_zoo(DOMAIN, root / "zoo"))
    steps = evaluate.evaluate(SETTINGS, actors, DOMAIN, SETTINGS.education.topic, "cards")
    card = policy_cards.make_card(steps, DOMAIN, "SO-d1").model_dump()
    assert artifacts.read_json(root / "zoo" / DOMAIN / "SO-d1/card.json") == card

    evaluation_streams = evaluate.evaluation_streams(DOMAIN, 0, 1_000, "evaluation")
    card_streams = evaluate.evaluation_streams(DOMAIN, 0, 1_000, "cards")
    assert not set(evaluation_streams) & set(card_streams)


@pytest.mark.parametrize(
    "name", ["SO-d1/seed-0.safetensors", "SO-d2/seed-1.json", "MO-S/card.json"]
)
def test_a_file_that_is_lost_comes_back_without_a_job(root, name):
    receipt_times = read_receipt_times(root)
    files = read_files(root / "zoo")
    (root / "zoo" / DOMAIN / name).unlink()
    assert not zoo_folder.has_zoo(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    ensure_zoo(root, SETTINGS)
    assert read_files(root / "zoo") == files
    assert read_receipt_times(root) == receipt_times


def test_policies_of_more_seeds_do_not_stay_beside_those_of_few(root):
    files = read_files(root / "zoo")
    ensure_zoo(root, make_settings(seeds=SETTINGS.zoo.seeds + 1))
    assert set(read_files(root / "zoo")) > set(files)
    assert not zoo_folder.has_zoo(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    ensure_zoo(root, SETTINGS)
    assert read_files(root / "zoo") == files


def test_a_folder_that_the_user_brings_is_returned_as_it_is(tmp_path):
    brought = tmp_path / "brought"
    assert zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], brought, out=tmp_path / "out") == brought
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "module", [seeds, envs, recipes, networks, policies, evaluate, policy_cards, zoo_folder]
)
def test_a_version_that_is_raised_has_the_episodes_played_again(module, monkeypatch):
    before = zoo_folder.make_evaluation_job(SETTINGS, DOMAIN).key
    monkeypatch.setattr(module, "VERSION", 99)
    assert zoo_folder.make_evaluation_job(SETTINGS, DOMAIN).key != before


@pytest.mark.parametrize("changes", [{"episodes": 4}, {"seeds": 3}])
def test_other_settings_are_another_job(changes):
    job = zoo_folder.make_evaluation_job(SETTINGS, DOMAIN)
    job_of_other_settings = zoo_folder.make_evaluation_job(make_settings(**changes), DOMAIN)
    assert job.key != job_of_other_settings.key
