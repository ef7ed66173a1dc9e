"""The pretrained model beside the lab's: its package is checked, its card is on the lab's scale."""

import pytest

from lib import config
from lib.experiment import artifacts
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.training import smollm_baseline
from lib.llm.chat_model import ChatRequest
from tests.language_models.hugging_face_folders import make_parrot_folder


@pytest.fixture
def folder(tmp_path):
    return make_parrot_folder(tmp_path / "parrot", ["One", " two", " three"])


def test_its_card_is_on_the_lab_s_scale(folder):
    settings = config.load("smoke").lab
    model = HuggingFaceModel(folder, device="cpu")
    card = smollm_baseline.measure_card(model, settings)
    assert card["name"] == "parrot"
    assert card["parameters"] == sum(parameter.numel() for parameter in model.net.parameters())
    assert card["dollars_per_1k_tokens"] == pytest.approx(
        card["flops_per_token"] * settings.dollars_per_teraflop / 1e9
    )
    assert card["measured_tokens_per_second"] > 0


def test_the_command_writes_the_card_that_the_model_shows(folder, monkeypatch, capsys):
    monkeypatch.setattr(smollm_baseline, "FOLDER", folder)
    monkeypatch.setattr(smollm_baseline, "ROOT", folder.parent)
    assert smollm_baseline.main([]) == 0
    assert "models serve --model parrot" in capsys.readouterr().out
    assert HuggingFaceModel(folder, device="cpu").card["tokens_per_second"] > 0


def test_a_package_that_is_missing_is_named_with_the_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(smollm_baseline, "PACKAGE", "no-such-package-here")
    monkeypatch.setattr(smollm_baseline, "FOLDER", tmp_path / "nothing")
    assert smollm_baseline.main([]) == 1
    assert "make pretrained" in capsys.readouterr().err


def test_a_folder_that_is_broken_is_named(folder, monkeypatch, capsys):
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(smollm_baseline, "FOLDER", folder)
    assert smollm_baseline.main([]) == 1
    assert f"error: {folder} is no Hugging Face folder" in capsys.readouterr().err


def test_weights_of_the_package_reply_from_their_folder(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed; `make pretrained` installs it")
    try:
        weights = smollm_baseline.find_packaged_weights()
    except smollm_baseline.ModelError as error:
        pytest.skip(str(error))
    assert artifacts.sha256_file(weights) == smollm_baseline.SHA256

    folder = smollm_baseline.unpack_weights(weights, tmp_path / "unpacked")
    model = HuggingFaceModel(folder, device="cpu")
    question = {"role": "user", "content": "What is the capital of France? One word."}
    [reply] = model.generate([ChatRequest([question], temperature=0.0, max_tokens=16)])
    assert "Paris" in reply.text and reply.finish_reason == "stop"
