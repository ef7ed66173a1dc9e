"""One thread, and torch left as it was."""

import pytest
import torch

from lib.conductor.quiet import quiet
from lib.models.answering import Model
from lib.models.asking import Asker
from lib.models.forward import Forward
from tests.models import tiny


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_fixtures():
    """Fixtures of whole files compute before the usual fixture sets the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def torch_as_usual(one_thread):
    """One thread; and a study in this process flushes denormal numbers to 0, which other tests would notice."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="module")
def lab_asker():
    """A lab model that writes words at random, at a price."""
    made = Asker(Model("lab-nano", Forward(tiny.model(0)), {"dollars_per_1k_tokens": 0.001}, max_tokens=24))
    yield made
    made.close()


@pytest.fixture
def silence():
    """Neither bars nor warnings of the libraries that train."""
    with quiet():
        yield
