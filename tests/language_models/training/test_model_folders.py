"""The lab models are made where they are missing, once, by the jobs of lesson 03."""

import pytest

from lib import config
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import build, model_cards, model_folders
from lib.language_models.training.model_folders import (
    add_released_models,
    ensure_models,
    has_models,
)

SMOKE = config.load("smoke").lab


@pytest.fixture(scope="module")
def settings():
    """The smallest of the released models, measured on few items."""
    models = {"lab-nano": SMOKE.models["lab-nano"]}
    return SMOKE.model_copy(update={"models": models, "test_items": 2, "jobs": 1})


@pytest.fixture(scope="module")
def root(settings, tmp_path_factory):
    """Where a later lesson, opened first, has made what it needs."""
    root = tmp_path_factory.mktemp("alone")
    ensure_models(settings, out=root / "models", runs=root / "runs")
    return root


def stamp(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def receipts(root):
    return {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")}


def test_released_weights_are_unpacked_and_measured_where_they_are_missing(settings, root):
    assert has_models(settings, root / "models", root / "runs")
    card = model_cards.read_card("lab-nano", root / "models")
    assert card["dollars_per_1k_tokens"] > 0 and card["accuracy"]


def test_a_folder_that_is_complete_is_left_alone(settings, root, capsys):
    before = stamp(root)
    assert ensure_models(settings, out=root / "models", runs=root / "runs") == root / "models"
    assert stamp(root) == before and capsys.readouterr().out == ""


def test_lesson_03_finds_the_work_done_and_leaves_the_same_bytes(settings, root):
    jobs, published = receipts(root), {p: p.read_bytes() for p in stamp(root / "models")}
    build.build_models(settings, root / "models", root / "runs")
    model_cards.measure_models(settings, root / "models", root / "runs")
    assert receipts(root) == jobs and len(jobs) == 2
    assert {path: path.read_bytes() for path in stamp(root / "models")} == published
    assert has_models(settings, root / "models", root / "runs")


@pytest.mark.parametrize("name", ["model.safetensors", "card.json"])
def test_a_file_that_is_lost_comes_back_without_a_job(settings, root, name):
    jobs = receipts(root)
    (root / "models/lab-nano" / name).unlink()
    assert not has_models(settings, root / "models", root / "runs")
    ensure_models(settings, out=root / "models", runs=root / "runs")
    assert has_models(settings, root / "models", root / "runs") and receipts(root) == jobs


def test_cards_of_another_profile_are_replaced_and_come_back(settings, root):
    first = (root / "models/lab-nano/card.json").read_bytes()
    more_items = settings.model_copy(update={"test_items": 3})
    ensure_models(more_items, out=root / "models", runs=root / "runs")
    assert (root / "models/lab-nano/card.json").read_bytes() != first
    assert not has_models(settings, root / "models", root / "runs")
    ensure_models(settings, out=root / "models", runs=root / "runs")
    assert (root / "models/lab-nano/card.json").read_bytes() == first


def test_some_models_are_made_with_those_that_they_start_from_and_no_others(tmp_path):
    team = model_folders.select_models(SMOKE, ["lab-team"])
    assert set(team.models) == {"lab-team", SMOKE.models["lab-team"].base}
    few_items = SMOKE.model_copy(update={"test_items": 1, "jobs": 1})
    folder = ensure_models(
        few_items, names=["lab-nano"], out=tmp_path / "models", runs=tmp_path / "runs"
    )
    assert [path.name for path in folder.iterdir()] == ["lab-nano"]
    assert not has_models(few_items, folder, tmp_path / "runs")


def test_a_command_adds_released_models_and_leaves_those_that_are_there_alone(
    settings, tmp_path, capsys
):
    out = tmp_path / "models"
    assert add_released_models(settings, ["lab-nano"], out, tmp_path / "runs") == ["lab-nano"]
    printed = capsys.readouterr()
    assert printed.out == "" and f"{out} lacks lab-nano" in printed.err
    assert has_models(settings, out, tmp_path / "runs")

    # Another profile's card would be measured anew by `ensure_models`.
    before = stamp(out)
    more_items = settings.model_copy(update={"test_items": 3})
    assert add_released_models(more_items, ["lab-nano"], out, tmp_path / "runs") == []
    assert stamp(out) == before and capsys.readouterr() == ("", "")


def test_a_command_does_not_train_a_model_whose_settings_have_changed(settings, tmp_path, capsys):
    longer = settings.models["lab-nano"].model_copy(update={"steps": 10})
    changed = settings.model_copy(update={"models": {"lab-nano": longer}})
    assert add_released_models(changed, ["lab-nano"], tmp_path / "models", tmp_path / "runs") == []
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr() == ("", "")


def test_a_folder_of_ones_own_is_taken_as_it_is(settings, tmp_path):
    assert ensure_models(settings, tmp_path / "mine", out=tmp_path / "out") == tmp_path / "mine"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError, match="card.json is missing"):
        model_cards.read_card("lab-nano", tmp_path / "mine")
