"""The fixtures of all trainings with experts and tools."""

from tests.budgeted_routing.conftest import (  # noqa: F401
    nothing_of_the_checkout,
    one_thread_for_fixtures,
    runs,
    silence,
    words_model,
)
