"""What all tests of this folder share."""

import pytest

from lib.agent_configuration import experiment as configuration
from lib.budgeted_routing import experiment as routing
from lib.budgeted_routing import expert_outcomes


@pytest.fixture(scope="package", autouse=True)
def no_cassettes_of_the_checkout(tmp_path_factory):
    """Recorded replies are neither read from the checkout nor written into it."""
    folder = tmp_path_factory.mktemp("cassettes")
    with pytest.MonkeyPatch.context() as patch:
        for module in (configuration, routing, expert_outcomes):
            patch.setattr(module, "CASSETTES", folder)
        yield
