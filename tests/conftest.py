"""What tests of several rooms need."""

import hypothesis
import pytest
import torch

from lib import config
from lib.language_models import checkpoints

hypothesis.settings.register_profile(
    "bench", deadline=None
)  # a machine under load is slow, not wrong
hypothesis.settings.load_profile("bench")


@pytest.fixture
def one_thread():
    """torch on one thread, where it is bit-reproducible; and as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def denormals():
    """A training in this process flushes denormal numbers to 0, which other tests would notice."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def lab_model_files(tmp_path, monkeypatch):
    """A folder in the place of lesson 03's models, which a fresh clone lacks: files of other content, to be hashed."""
    for name in config.load("laptop").lab.models:
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        for file in ("model.safetensors", "card.json"):
            (folder / file).write_text(f"{file} of {name}")
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
