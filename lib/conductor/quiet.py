"""TRL and datasets without their progress bars, notices and experimental warnings: reports show results only."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any of them is imported: nothing is fetched
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


@contextmanager
def quiet() -> Iterator[None]:
    """Within, nothing but errors is said."""
    import datasets
    import transformers

    level, bars = transformers.utils.logging.get_verbosity(), datasets.is_progress_bar_enabled()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in ("trl", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.utils.logging.set_verbosity(level)
        transformers.utils.logging.enable_progress_bar()
        if bars:
            datasets.enable_progress_bars()
