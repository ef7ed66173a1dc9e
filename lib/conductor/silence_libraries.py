"""TRL and datasets without their progress bars, notices and experimental warnings: reports show results only."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


@contextmanager
def quiet() -> Iterator[None]:
    """Within, nothing but errors is said."""
    import datasets
    import transformers

    said = transformers.utils.logging
    level, loading, bars = (
        said.get_verbosity(),
        said.is_progress_bar_enabled(),
        datasets.is_progress_bar_enabled(),
    )
    levels = {name: logging.getLogger(name).level for name in ("trl", "accelerate")}
    said.set_verbosity_error()
    said.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        said.set_verbosity(level)
        if loading:
            said.enable_progress_bar()
        if bars:
            datasets.enable_progress_bars()
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
