"""What tests of several rooms need."""

import hypothesis
import pytest
import torch

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
