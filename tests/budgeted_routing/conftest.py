"""One thread, folders of a test's own, and a lab model that says anything."""

import pytest
import torch

from lib.budgeted_routing import experiment as study
from lib.conductor.silence_libraries import silence_libraries
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.lab_model import LabModel
from lib.language_models.serving.chat_completions import ServedModel
from lib.tool_orchestration import lab_experiment, tool_outcomes
from tests.language_models import tiny


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_fixtures():
    """Fixtures of whole files compute before those of a test set the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def nothing_of_the_checkout(tmp_path_factory):
    """Its cassettes are left alone."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (study, lab_experiment, tool_outcomes):
            patch.setattr(module, "CASSETTES", tmp_path_factory.getbasetemp() / "cassettes")
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Where the jobs of a study lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def words_model():
    """A lab model that writes words at random, at a price."""
    card = {"dollars_per_1k_tokens": 0.001}
    model = LabModel(ServedModel("lab-nano", Forward(tiny.model(0)), card, max_tokens=24))
    yield model
    model.stop()


@pytest.fixture
def silence():
    """Neither bars nor warnings of the libraries that train."""
    with silence_libraries():
        yield
