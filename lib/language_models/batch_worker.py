"""A thread that answers jobs in batches: those that arrive side by side go together.

Calls come one at a time from an event loop, while a network is several times as fast on a batch. The thread waits a
moment after the first job, takes all that have arrived, sorts them by length, and answers them batch by batch. It ends
when nothing waits, and starts with the next job. Left out: jobs that join a batch under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Job = TypeVar("Job")

COLLECT_SECONDS = 0.005  # the moment; calls of one loop iteration arrive within a fraction of it


class BatchWorker(Generic[Job]):
    """Answers jobs, such as requests to a language model, in batches, in a thread of its own."""

    def __init__(
        self,
        measure_length: Callable[[Job], int | None],
        answer_batch: Callable[[Sequence[Job]], None],
        batch_size: int,
    ) -> None:
        """
        Args:
            measure_length: Prepares a job and returns its length, such as the tokens of its prompt; None if the job
                is over already.
            answer_batch: Answers a batch of jobs; it must not raise.
            batch_size: Number of jobs in a batch at most, at least 1.
        """
        self._measure_length = measure_length
        self._answer_batch = answer_batch
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._arrived: list[Job] = []
        self._sorted: list[Job] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; returns at once.

        Args:
            jobs: They are answered in batches of like lengths, after those that arrived before.
        """
        with self._lock:
            self._arrived += jobs
            if self._thread is None and self._arrived:
                self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until nothing is left to answer."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        """Answer jobs batch by batch until none waits; runs in the thread."""
        while True:
            if len(self._sorted) < self._batch_size:
                time.sleep(COLLECT_SECONDS)
            with self._lock:
                arrived = self._arrived
                self._arrived = []
                if not arrived and not self._sorted:
                    self._thread = None
                    return

            # Like lengths go together, so that little of a batch is padding; who came first is not overtaken by
            # those who come later.
            lengths = [(self._measure_length(job), job) for job in arrived]
            waiting = [(length, job) for length, job in lengths if length is not None]
            waiting.sort(key=lambda pair: pair[0], reverse=True)
            self._sorted += [job for _, job in waiting]

            batch = self._sorted[: self._batch_size]
            self._sorted = self._sorted[self._batch_size :]
            if batch:
                self._answer_batch(batch)
