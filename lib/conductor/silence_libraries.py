"""TRL and datasets without their progress bars, notices and experimental warnings: reports show results only."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
_LOGGERS = ("trl", "accelerate")


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence warnings and progress bars of transformers and datasets inside a `with` block; errors are still shown."""
    import datasets
    import transformers

    transformers_logging = transformers.utils.logging

    # What to restore.
    verbosity = transformers_logging.get_verbosity()
    had_loading_bar = transformers_logging.is_progress_bar_enabled()
    had_dataset_bars = datasets.is_progress_bar_enabled()
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_loading_bar:
            transformers_logging.enable_progress_bar()
        if had_dataset_bars:
            datasets.enable_progress_bars()
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
