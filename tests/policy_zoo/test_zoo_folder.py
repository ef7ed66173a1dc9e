"""The zoo is made where it is missing, once, by the jobs of lesson 01; its cards are of its own episodes."""

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
    single = {"timesteps": 256, "rollout": 256}
    short = {"jobs": 1, "episodes": 3, "education": {"single": single, "mgda": single}}
    return config.validate_settings(
        content | {"zoo": config.overlay_settings(content["zoo"], short | zoo)}
    )


SETTINGS = make_settings()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where a later lesson, opened first, has made what it needs."""
    root = tmp_path_factory.mktemp("alone")
    zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], out=root / "zoo", runs=root / "runs")
    return root


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stamp(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def receipts(root):
    return {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")}


def test_policies_and_cards_are_made_where_they_are_missing(root):
    zoo = train.load(DOMAIN, root / "zoo")
    assert list(zoo) == sorted(recipe.name for recipe in recipes.recipes(SETTINGS, DOMAIN))
    for name, by_seed in zoo.items():
        assert len(by_seed) == SETTINGS.zoo.seeds
        card = artifacts.read_json(root / "zoo" / DOMAIN / name / "card.json")
        assert policy_cards.Card(**card).name == name


def test_a_zoo_that_is_complete_is_left_alone(root, capsys):
    before = stamp(root)
    folder = zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], out=root / "zoo", runs=root / "runs")
    assert folder == root / "zoo" and stamp(root) == before and capsys.readouterr().out == ""


def test_lesson_01_finds_the_work_done_and_leaves_the_same_bytes(root):
    jobs, published = receipts(root), contents(root / "zoo")
    built = train.build(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    steps = zoo_folder.play_zoo(SETTINGS, DOMAIN, root / "runs")
    zoo_folder.write_cards(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    assert receipts(root) == jobs and contents(root / "zoo") == published

    # What is read are the episodes that these policies play, row by row.
    baselines = evaluate.baselines(DOMAIN, SETTINGS.zoo.seeds)
    actors = evaluate.actors(built.policies) | baselines
    played = evaluate.evaluate(SETTINGS, actors, DOMAIN, SETTINGS.education.topic)
    pd.testing.assert_frame_equal(steps, played)
    card = policy_cards.make_card(played, DOMAIN, "SO-d1").model_dump()
    assert artifacts.read_json(root / "zoo" / DOMAIN / "SO-d1/card.json") == card


@pytest.mark.parametrize(
    "name", ["SO-d1/seed-0.safetensors", "SO-d2/seed-1.json", "MO-S/card.json"]
)
def test_a_file_that_is_lost_comes_back_without_a_job(root, name):
    jobs, published = receipts(root), contents(root / "zoo")
    (root / "zoo" / DOMAIN / name).unlink()
    assert not zoo_folder.has_zoo(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], out=root / "zoo", runs=root / "runs")
    assert contents(root / "zoo") == published and receipts(root) == jobs


def test_policies_of_more_seeds_do_not_stay_beside_those_of_few(root):
    published = contents(root / "zoo")
    more_seeds = make_settings(seeds=SETTINGS.zoo.seeds + 1)
    zoo_folder.ensure_zoo(more_seeds, [DOMAIN], out=root / "zoo", runs=root / "runs")
    assert set(contents(root / "zoo")) > set(published)
    assert not zoo_folder.has_zoo(SETTINGS, DOMAIN, root / "zoo", root / "runs")
    zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], out=root / "zoo", runs=root / "runs")
    assert contents(root / "zoo") == published


def test_a_folder_of_ones_own_is_taken_as_it_is(tmp_path):
    folder = zoo_folder.ensure_zoo(SETTINGS, [DOMAIN], tmp_path / "mine", out=tmp_path / "out")
    assert folder == tmp_path / "mine" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "module", [seeds, envs, recipes, networks, policies, evaluate, policy_cards, zoo_folder]
)
def test_whoever_changes_what_decides_the_episodes_has_them_played_again(module, monkeypatch):
    before = zoo_folder.make_playing_job(SETTINGS, DOMAIN).key
    monkeypatch.setattr(module, "VERSION", 99)
    assert zoo_folder.make_playing_job(SETTINGS, DOMAIN).key != before


@pytest.mark.parametrize("changes", [{"episodes": 4}, {"seeds": 3}])
def test_other_settings_are_another_job(changes):
    job, other = (
        zoo_folder.make_playing_job(s, DOMAIN) for s in (SETTINGS, make_settings(**changes))
    )
    assert job.key != other.key
