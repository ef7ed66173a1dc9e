"""Where the server's models come from."""

import json
import re

import pytest

from lib.config import ROOT
from lib.language_models import checkpoints
from lib.language_models.checkpoints import ModelError
from lib.language_models.serving import model_sources
from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.language_models.serving.chat_completions.service import CompletionService
from lib.language_models.serving.model_sources import (
    load_lab_models,
    load_models,
    load_released_model,
)
from tests.language_models import tiny
from tests.language_models.serving.folders import follow, make_folder
from tests.language_models.serving.requests import complete

RELEASED = sorted(path.stem for path in (ROOT / "data/lab").glob("*.safetensors"))


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The project's folder of lab models, as it is before anything ran."""
    folder = tmp_path / "models"
    monkeypatch.setattr(checkpoints, "MODELS", folder)
    return folder


def test_in_a_fresh_clone_all_released_models_are_served(clone, capsys):
    models = load_lab_models(clone)
    (progress,) = capsys.readouterr().err.splitlines()
    assert f"{clone} lacks {len(RELEASED)} lab models; loading their released weights" in progress
    assert sorted(models) == RELEASED
    assert "lab-nano" in models
    assert models["lab-nano"].card["parameters"] > 10_000


def test_a_model_that_was_trained_here_goes_before_its_released_weights(clone):
    network = tiny.model(0)
    checkpoints.save(network, clone / "lab-nano")
    models = load_lab_models(clone)
    assert sorted(models) == RELEASED
    assert models["lab-nano"].forward.window == tiny.WINDOW
    released = load_released_model("lab-nano")
    assert models["lab-nano"].fingerprint != released.fingerprint


def test_another_folder_is_served_as_it_is(clone, tmp_path):
    checkpoints.save(tiny.model(0), tmp_path / "others" / "mine")
    assert list(load_lab_models(tmp_path / "others")) == ["mine"]
    with pytest.raises(ModelError, match="holds no models"):
        load_lab_models(tmp_path / "nothing")


def test_the_released_models_answer_the_examples_of_the_documentation(capsys):
    """The curl lines of the server's docstring and of --help."""
    from lib.language_models.serving import server

    with pytest.raises(SystemExit):
        server.main(["--help"])
    shown = capsys.readouterr().out
    examples = re.findall(r"-d '(\{.*\})'", shown + server.__doc__)
    assert len(examples) == 2
    service = CompletionService([LabCompletionModel(load_released_model("lab-nano"))])
    for example in examples:
        (choice,) = complete(service, json.loads(example))["choices"]
        content = choice["message"]["content"]
        assert content == "<think> 3 + 4 = 7 </think> <answer> 7 </answer>"
        assert content in server.__doc__
    service.get_model("lab-nano").batcher.close()


def test_folders_are_served_beside_lab_models_under_their_names(clone, tmp_path, monkeypatch):
    monkeypatch.setattr(model_sources, "load_lab_models", lambda folder: {})
    folders = [make_folder(tmp_path / name, follow("yes")) for name in ("one", "two")]
    models = load_models(clone, folders, max_queue_length=4)
    assert [model.name for model in models] == ["one", "two"]
    service = CompletionService(models)
    messages = [{"role": "user", "content": "Is it?"}]
    for name in ("one", "two"):
        (choice,) = complete(service, {"model": name, "messages": messages})["choices"]
        assert choice["message"]["content"] == "yes"


def test_two_models_of_one_name_are_refused(tmp_path):
    folders = [make_folder(tmp_path / parent / "same", follow("yes")) for parent in "ab"]
    with pytest.raises(ValueError, match="two models are called same"):
        load_models(None, folders, max_queue_length=4)


def test_a_folder_that_holds_no_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path.name}"):
        load_models(None, [tmp_path], max_queue_length=4)
