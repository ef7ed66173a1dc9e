"""One thread, and what several files need once: a schooled policy on disk and a reward model made from it."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import LlamaForCausalLM

from lib.conductor import reward_model
from lib.language_models import checkpoints
from tests.conductor import small


@pytest.fixture(autouse=True)
def torch_as_usual(one_thread):
    """One thread; and a study in this process flushes denormal numbers to 0, which other tests would notice."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def datasets_elsewhere(tmp_path_factory, monkeypatch):
    """`datasets` copies every file that it reads into a folder of the user's."""
    monkeypatch.setattr(
        "datasets.config.HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets"
    )


@pytest.fixture(scope="session")
def policy() -> LlamaForCausalLM:
    """Tests must not change it."""
    return small.schooled()


@pytest.fixture(scope="session")
def models(policy, tmp_path_factory) -> Path:
    """A folder of lab models with the policy in it."""
    root = tmp_path_factory.mktemp("models")
    checkpoints.save(policy, root / small.SMOKE.policy)
    return root


@pytest.fixture(scope="session")
def place(models) -> Path:
    """The policy's folder."""
    return models / small.SMOKE.policy


@pytest.fixture(scope="session")
def taught(place, tmp_path_factory) -> tuple[Path, pd.DataFrame]:
    """A reward model's folder and its agreement with held-out pairs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("reward") / "model"
    agreement = reward_model.train(place, small.PREFERENCE, 1.0, 0, out)
    torch.set_num_threads(threads)
    return out, agreement
