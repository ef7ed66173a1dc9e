"""One thread, one seed, and torch left as it was."""

import pytest
import torch

from lib.llm.loop import Loop


@pytest.fixture(autouse=True)
def torch_as_usual(one_thread):
    """One thread, a seed; and a study in this process flushes denormal numbers to 0, which other tests would notice."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_flush_denormal(False)


@pytest.fixture
def loop():
    """An event loop of one's own."""
    made = Loop()
    yield made
    made.close()
