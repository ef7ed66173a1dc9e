"""One thread, one seed, and an event loop."""

import pytest
import torch

from lib.agent_configuration import experiment, workbench
from lib.llm.event_loop import EventLoopThread


@pytest.fixture(autouse=True)
def torch_as_usual(one_thread):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def isolated_files(tmp_path_factory):
    """For studies of a whole file: cassettes of the checkout are left alone, and torch has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cassettes")
        for module in (experiment, workbench):
            patch.setattr(module, "CASSETTES", folder)
        yield
    torch.set_num_threads(before)


@pytest.fixture
def loop():
    """An event loop of one's own."""
    event_loop = EventLoopThread()
    yield event_loop
    event_loop.close()
