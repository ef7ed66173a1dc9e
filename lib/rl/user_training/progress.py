"""A line about what is under way, at once and every ten seconds: a large model takes minutes to one update."""

from __future__ import annotations

import threading
import time

INTERVAL = 10.0  # seconds between two lines


class ProgressLine:
    """Prints what is under way. A context manager, since it owns a thread.

        with ProgressLine("reading the model") as progress:
            ...
            progress.activity = "update 3/20"

    Attributes:
        activity: What is under way, in a few words; it may be changed at any time.
        is_silent: Whether nothing is printed, as in all processes but the first.
    """

    def __init__(self, activity: str, is_silent: bool = False) -> None:
        self.activity = activity
        self.is_silent = is_silent
        self._started = time.monotonic()
        self._ended = threading.Event()
        # A daemon: a run that ends by an error does not wait for its next line.
        self._thread = threading.Thread(target=self._print_repeatedly, daemon=True)

    def __enter__(self) -> ProgressLine:
        if not self.is_silent:
            print(f"{self.activity} ...", flush=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if not self.is_silent:
            self._thread.join()

    def say(self, sentence: str) -> None:
        """Print a sentence that stays, in the process that prints."""
        if not self.is_silent:
            print(sentence, flush=True)

    def _print_repeatedly(self) -> None:
        while not self._ended.wait(INTERVAL):
            print(f"{self.activity}, {time.monotonic() - self._started:.0f} s", flush=True)
