"""The progress line: which cell, how long so far, what the sweep inside it does, how long still.

The estimate comes from the wall times of the last run of the same profile, or, inside a cell that
reports its own progress, from that. On a terminal the line rewrites itself; in a log it is printed
anew every few seconds. Why a sweep runs finished jobs again stands above it, a line for each reason.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lib.experiment import artifacts

# Seconds between lines.
EVERY_LOG = 5.0
EVERY_TERMINAL = 1.0


def duration(seconds: float) -> str:
    """Formats seconds as 12 s, 3 min 05 s or 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """Follows the cells of one notebook and prints a line every few seconds from a thread.

    Args:
        name: The lesson.
        cells: Ids of the code cells in order.
        known: Seconds by cell id of an earlier run, for the estimate.
        report: The file that a sweep writes {"label", "done", "total"} to; beside it, with ".reasons" at the end of
            its name, the file to which sweeps append why they run jobs again, one reason a line.
        stream: Where lines are printed; standard error by default.
        clock: Returns seconds.
    """

    def __init__(
        self,
        name: str,
        cells: list[str],
        known: dict[str, float],
        report: Path,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.cells, self.known, self.report = name, cells, known, report
        self.stream, self.clock = stream or sys.stderr, clock
        self.seconds: dict[str, float] = {}
        self.started = self.cell_started = clock()
        self.current: str | None = None
        # Of the sweep in the current cell: its label, when it was first seen, and its progress then.
        self._sweep: tuple[str, float, float] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._width = 0  # characters of the longest line on the terminal so far
        self._reasons_printed = 0

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._stop.set()
        self._thread.join()
        self._print_reasons()  # those of a sweep that took less time than lines are apart
        self._erase_line()
        self.stream.flush()

    def begin(self, cell: str) -> None:
        """A cell starts."""
        self.current, self.cell_started, self._sweep = cell, self.clock(), None

    def end(self, cell: str) -> None:
        """A cell is through, with or without an error."""
        self.seconds[cell] = self.clock() - self.cell_started

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started

    def line(self) -> str:
        """Formats the progress of a run as a line: cell, time, progress of a sweep, and remaining time."""
        if self.current is None:
            return f"[{self.name}] starting the kernel, {duration(self.total)}"
        index = self.cells.index(self.current)
        entries = [f"[{self.name}] cell {index + 1}/{len(self.cells)}", duration(self.total)]
        sweep_progress = self._read_sweep_progress()
        if sweep_progress is not None:
            label, fraction = sweep_progress
            entries.append(f"{label} {fraction:.0%}")
        in_cell = self._estimate_remaining_in_cell(sweep_progress)
        if in_cell is not None:
            in_later_cells = sum(self.known.get(cell, 0.0) for cell in self.cells[index + 1 :])
            entries.append(f"about {duration(in_cell + in_later_cells)} left")
        return ", ".join(entries)

    def _read_sweep_progress(self) -> tuple[str, float] | None:
        """Label and progress in [0, 1] of the sweep that runs; None where there is none."""
        try:
            content = artifacts.read_json(self.report)
            return str(content["label"]), min(1.0, content["done"] / content["total"])
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
            return None  # nothing reported yet, or the sweep is over

    def _estimate_remaining_in_cell(self, sweep_progress: tuple[str, float] | None) -> float | None:
        """Estimates the seconds until the current cell ends, from its sweep or else from an earlier run.

        Args:
            sweep_progress: Name of the sweep in the cell and the fraction that is done; None without one.

        Returns:
            Seconds; None where nothing is known.
        """
        now = self.clock()
        if sweep_progress is not None:
            label, fraction = sweep_progress
            if self._sweep is None or self._sweep[0] != label:
                self._sweep = (label, now, fraction)  # a resumed sweep starts with most of it done
            _, first_seen, fraction_then = self._sweep
            if fraction > fraction_then:
                return (now - first_seen) * (1 - fraction) / (fraction - fraction_then)
        earlier_seconds = self.known.get(self.current or "")
        if earlier_seconds is None:
            return None
        return max(0.0, earlier_seconds - (now - self.cell_started))

    def _loop(self) -> None:
        """Prints the progress from time to time until the run ends; runs in a thread."""
        terminal = self.stream.isatty()
        while not self._stop.wait(EVERY_TERMINAL if terminal else EVERY_LOG):
            self._print_reasons()
            text = self.line()
            if terminal:
                self._width = max(self._width, len(text))
                self.stream.write("\r" + text.ljust(self._width))
            else:
                self.stream.write(text + "\n")
            self.stream.flush()

    def _print_reasons(self) -> None:
        """Print what sweeps have said since the last call, above the progress line."""
        reasons = self._read_reasons()[self._reasons_printed :]
        if reasons:
            self._erase_line()
            self.stream.writelines(f"[{self.name}] {reason}\n" for reason in reasons)
        self._reasons_printed += len(reasons)

    def _read_reasons(self) -> list[str]:
        """All whole lines; one that is still being written comes later."""
        try:
            text = Path(f"{self.report}.reasons").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []  # no sweep runs a job again
        return text.split("\n")[:-1]

    def _erase_line(self) -> None:
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
