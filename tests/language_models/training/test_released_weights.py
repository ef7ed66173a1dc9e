"""Shipped models: they come back as they were, fit their recipe, and a file that is not theirs is refused by name."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import build, released_weights
from tests.language_models import tiny

CURVE = pd.DataFrame({"step": [2, 4], "loss": [1.5, 0.25], "accuracy": [0.1, 0.9]})
SETTINGS = config.load("smoke").lab
MEGABYTE = 1e6


@pytest.fixture
def root(tmp_path):
    released_weights.ship(tiny.model(), "m", {"seed": 0}, 2, CURVE, tmp_path)
    return tmp_path


def unpacked(root, **changes):
    return released_weights.unpack("m", tiny.settings(**changes), root)


# The lab's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS.models)
def test_every_lab_model_is_shipped_with_the_recipe_that_it_has_now(name):
    """Who changes params.yaml, a task or the training has to train the zoo again: make lab-zoo SHIP=1."""
    held = released_weights.card(name)
    assert held is not None and build.fits_released(SETTINGS, name)
    model = released_weights.unpack(name, SETTINGS.models[name])
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    target = SETTINGS.models[name].target
    assert released_weights.curve(held)["accuracy"].iloc[-1] >= target.accuracy
    assert released_weights.curve(held)["step"].iloc[-1] == SETTINGS.models[name].steps


def test_shipped_weights_are_small_and_nothing_else_lies_there():
    files = list(released_weights.LAB.iterdir())
    assert max(file.stat().st_size for file in files) <= 1.5 * MEGABYTE
    assert released_weights.size() <= 8 * MEGABYTE
    expected = {f"{name}{end}" for name in SETTINGS.models for end in (".safetensors", ".json")} | {
        "alike.json"
    }
    assert {file.name for file in files} <= expected


@pytest.mark.parametrize("profile", config.PROFILES)
def test_one_zoo_serves_every_profile(profile):
    assert config.load(profile).lab.models == SETTINGS.models


# There and back -------------------------------------------------------------------------------------


def test_a_model_comes_back_as_half_precision_holds_it(root):
    before, after = (
        released_weights.round_weights(tiny.model()).state_dict(),
        unpacked(root).state_dict(),
    )
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not unpacked(root).training and {tensor.dtype for tensor in after.values()} == {
        torch.float32
    }


def test_the_card_tells_recipe_attempt_and_curve(root):
    held = released_weights.card("m", root)
    assert held["recipe"] == {"seed": 0} and held["attempt"] == 2
    pd.testing.assert_frame_equal(released_weights.curve(held), CURVE)
    assert held["sha256"] == artifacts.sha256_file(root / "m.safetensors")
    assert released_weights.size(root) == (root / "m.safetensors").stat().st_size


def test_what_is_not_shipped_has_no_card(tmp_path):
    assert released_weights.card("m", tmp_path) is None
    with pytest.raises(ModelError, match="m.safetensors or its card is missing.*make lab-zoo"):
        unpacked(tmp_path)


def test_weights_that_half_precision_cannot_hold_are_not_shipped(tmp_path):
    model = tiny.model()
    with torch.no_grad():
        model.model.norm.weight[0] = 1e6
    with pytest.raises(ValueError, match="m cannot be shipped.*norm"):
        released_weights.ship(model, "m", "", 1, CURVE, tmp_path)
    assert not list(tmp_path.iterdir())


# Files that are not what they should be -------------------------------------------------------------


def foreign(root) -> None:
    """Whole safetensors of another model, where the card names other bytes."""
    artifacts.write_tensors(root / "m.safetensors", {"model.norm.weight": np.zeros(32, np.float16)})


def recarded(root, **changes) -> None:
    artifacts.write_json(root / "m.json", artifacts.read_json(root / "m.json") | changes)


def of_another_size(root) -> None:
    released_weights.ship(tiny.model(hidden=16), "m", {"seed": 0}, 1, CURVE, root)


def nonsense(root) -> None:
    (root / "m.safetensors").write_bytes(b"pickle? " * 40)
    recarded(root, sha256=artifacts.sha256_file(root / "m.safetensors"))


SPOILED = {
    "cut off": lambda root: (root / "m.safetensors").write_bytes(
        (root / "m.safetensors").read_bytes()[:-50]
    ),
    "empty": lambda root: (root / "m.safetensors").write_bytes(b""),
    "gone": lambda root: (root / "m.safetensors").unlink(),
    "foreign": foreign,
    "another size": of_another_size,
    "no safetensors": nonsense,
    "card no JSON": lambda root: (root / "m.json").write_text("{"),
    "card a list": lambda root: (root / "m.json").write_text("[]"),
    "card without a hash": lambda root: artifacts.write_json(
        root / "m.json", {"recipe": "a", "attempt": 1, "curve": []}
    ),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_file_that_is_not_the_models_is_refused_by_name_with_the_remedy(spoil, root):
    spoil(root)
    with pytest.raises(
        ModelError, match=rf"{re.escape(str(root))}/m\.(safetensors|json).*make lab-zoo"
    ) as caught:
        unpacked(root)
    assert "git checkout data/lab" in str(caught.value)


# In the sweep ---------------------------------------------------------------------------------------


def lab(**changes):
    """A lab of one tiny model."""
    held = SETTINGS.model_dump() | {
        "models": {"m": tiny.settings(**changes).model_dump()},
        "demo_model": "m",
        "jobs": 1,
    }
    return config.validate_settings(held, config.LabSettings, "a test")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """The tiny model of `lab()` on a shelf of its own."""
    monkeypatch.setattr(released_weights, "LAB", tmp_path / "lab")
    for function in (released_weights.card, released_weights.unpack):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "lab",))
    released_weights.ship(
        tiny.model(1), "m", build.make_recipe(lab(), "m"), 1, CURVE, tmp_path / "lab"
    )
    return tmp_path


def test_a_model_whose_recipe_is_shipped_is_unpacked_and_not_trained(shelf):
    built = build.build_models(lab(), shelf / "models", shelf / "runs")
    found = checkpoints.load(shelf / "models/m").state_dict()
    wanted = released_weights.round_weights(tiny.model(1)).state_dict()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted) and built.attempts == {
        "m": 1
    }
    assert built.curves["step"].tolist() == [2, 4]


def test_another_recipe_is_trained_and_so_is_one_that_must_not_be_unpacked(shelf):
    for settings, ships in ((lab(steps=4), True), (lab(), False)):
        built = build.build_models(settings, shelf / "models", shelf / "runs", ships)
        found = checkpoints.load(shelf / "models/m").state_dict()
        assert any(
            not torch.equal(found[k], v)
            for k, v in released_weights.round_weights(tiny.model(1)).state_dict().items()
        )
        assert built.curves["step"].iloc[-1] == settings.models["m"].steps


def test_trained_weights_are_those_that_shipping_would_keep(shelf):
    build.build_models(lab(), shelf / "models", shelf / "runs", use_released=False)
    found = checkpoints.load(shelf / "models/m")
    before = {key: weight.clone() for key, weight in found.state_dict().items()}
    assert all(
        torch.equal(before[key], weight)
        for key, weight in released_weights.round_weights(found).state_dict().items()
    )


def test_a_setting_changes_a_recipe():
    assert (
        build.make_recipe(lab(), "m")
        == build.make_recipe(lab(), "m")
        != build.make_recipe(lab(muon=0.02), "m")
    )
