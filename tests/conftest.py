"""What tests of several rooms need."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """torch on one thread, where it is bit-reproducible; and as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
