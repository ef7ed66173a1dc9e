"""Execute one lesson: `python -m lib.run 01_policy_zoo`.

The cleaned notebook runs through papermill with the parameters that its stage in `dvc.yaml` declares
and nothing else, in a kernel of this interpreter. What differs between two equal runs is taken out,
the rest becomes `reports/notebooks/NAME.ipynb` and `reports/NAME.html`. Wall times go to
`reports/timings/NAME.json`, which no stage depends on; they only feed the estimate of the next run.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from ruamel.yaml import YAML

from lib import notebooks, store
from lib.notebooks import NotebookError
from lib.params import ROOT
from lib.parent import die_with_parent
from lib.reporting import html

TIMEOUT = 3_600  # seconds a cell may take
SETTINGS = "data/settings.json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Progress:
    """One line every few seconds: cell, time spent, what a sweep says, what is left."""

    def __init__(self, name: str, cells: int, report: Path, every: float = 5.0) -> None:
        self.name, self.cells, self.report, self.every = name, cells, report, every
        self.started = self.cell_started = time.monotonic()
        self.current, self.times = 0, {}
        timings = ROOT / "reports/timings" / f"{name}.json"
        self.before = store.read_json(timings)["cells"] if timings.exists() else {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Progress:
        self.thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop.set()
        self.thread.join()
        self._clear()

    def cell_start(self, cell, cell_index: int) -> None:
        self.current, self.cell_started = cell_index, time.monotonic()

    def cell_done(self, cell, cell_index: int, **_) -> None:
        self.times[str(cell_index)] = round(time.monotonic() - self.cell_started, 3)

    def _loop(self) -> None:
        while not self.stop.wait(self.every):
            self._clear()
            print(self.line(), end="" if sys.stdout.isatty() else "\n", flush=True)

    def _clear(self) -> None:
        if sys.stdout.isatty():
            print("\r\x1b[K", end="", flush=True)

    def line(self) -> str:
        """`[01_policy_zoo] cell 7/40, 35 s, training the minigrid zoo 42 %, about 50 s left`."""
        parts = [f"cell {self.current + 1}/{self.cells}", _duration(time.monotonic() - self.started)]
        label, share = self._sweep()
        if label:
            parts.append(f"{label} {share:.0%}")
        left = self._left(share)
        return f"[{self.name}] " + ", ".join(parts + ([f"about {_duration(left)} left"] if left else []))

    def _sweep(self) -> tuple[str, float]:
        try:
            report = store.read_json(self.report)
            return report["label"], report["done"] / report["total"]
        except (OSError, ValueError):
            return "", 0.0

    def _left(self, share: float) -> float | None:
        """Seconds left: by the last run's times, or by how fast the sweep in this cell moves."""
        spent = time.monotonic() - self.cell_started
        after = sum(t for cell, t in self.before.items() if int(cell) > self.current)
        if share > 0.02:
            return spent * (1 - share) / share + after
        known = self.before.get(str(self.current))
        return max(known - spent, 0.0) + after if known is not None else None


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


class LessonKernel(AsyncKernelManager):
    """A kernel of this very interpreter, whatever kernelspecs are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "lib.kernel", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class LessonEngine(NBClientEngine):
    """Papermill engine: our kernel, our environment variables, progress by cell."""

    progress: Progress
    timeout: int

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **_):
        client = PapermillNotebookClient(
            nb_man,
            km=LessonKernel(),
            timeout=cls.timeout,
            kernel_name=kernel_name,
            coalesce_streams=True,  # how output is cut into messages differs between runs
            store_widget_state=False,
            resources={"metadata": {"path": str(ROOT)}},
            on_cell_start=cls.progress.cell_start,
            on_cell_complete=cls.progress.cell_done,
        )
        return client.execute(env=_environment(cls.progress.report))


papermill_engines.register("lesson", LessonEngine)


def _environment(report: Path) -> dict[str, str]:
    """Deterministic and not interactive; one thread for each process, sweeps start the processes."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ours = {"BENCH_RUN": "1", "BENCH_PROGRESS": str(report), "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    return {**os.environ, **threads, **ours, "COLUMNS": "100", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def stage_parameters(name: str, root: Path = ROOT) -> dict[str, Any]:
    """The resolved sections that the lesson's stage declares, {section: values}.

    Raises NotebookError for an unknown lesson or a section that the settings do not have.
    """
    stages = YAML(typ="safe").load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    if name not in stages:
        lessons = [stage for stage in stages if stage[:1].isdigit()]
        raise NotebookError(f"there is no lesson {name!r}; dvc.yaml has {', '.join(lessons)}")
    declared = [section for entry in stages[name].get("params", []) for section in entry.get(SETTINGS, [])]
    if not (root / SETTINGS).exists():
        raise NotebookError(f"{SETTINGS} is missing; make it with `python -m lib.params`")
    settings = store.read_json(root / SETTINGS)
    missing = set(declared) - set(settings)
    if missing:
        raise NotebookError(f"stage {name} declares {sorted(missing)}, which {SETTINGS} does not have")
    return {section: settings[section] for section in declared}


def check_parameters(name: str, declared: set[str], given: set[str]) -> None:
    """Raise NotebookError unless notebook and stage agree on the parameters, name by name."""
    if given - declared:
        raise NotebookError(
            f"{name}: its stage passes {sorted(given - declared)}, which its `parameters` cell does not declare"
        )
    if declared - given:
        raise NotebookError(
            f"{name}: its `parameters` cell declares {sorted(declared - given)}, which its stage in dvc.yaml "
            f"does not pass"
        )


def execute(name: str, timeout: int = TIMEOUT, root: Path = ROOT) -> None:
    """Run the lesson `name` and write its notebook, HTML and timings.

    Raises NotebookError before the kernel starts, and papermill's or nbclient's errors from it; the
    half-executed notebook then is in `reports/failed`.
    """
    source = root / "data/notebooks" / f"{name}.ipynb"
    given = stage_parameters(name, root)
    notebook = notebooks.read(source)
    check_parameters(name, notebooks.declared_parameters(notebook, name), set(given))
    half = root / "reports/failed" / f"{name}.ipynb"
    half.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "progress.json"
        with Progress(name, len(notebook.cells) + 1, report) as progress:
            LessonEngine.progress, LessonEngine.timeout = progress, timeout
            executed = papermill.execute_notebook(
                str(source), str(half), given, engine_name="lesson", kernel_name="python3", language="python",
                progress_bar=False, log_output=False,
            )  # fmt: skip
    target = root / "reports/notebooks" / f"{name}.ipynb"
    notebooks.write(target, notebooks.scrub(executed))
    html.write(target, root / "reports" / f"{name}.html")
    half.unlink()
    total = round(time.monotonic() - progress.started, 3)
    store.write_json(root / "reports/timings" / f"{name}.json", {"total": total, "cells": progress.times})
    print(f"[{name}] done in {_duration(total)}: reports/{name}.html", flush=True)


def _excerpt(error: PapermillExecutionError) -> str:
    """The failing cell and the end of its traceback."""
    source = "\n".join(f"    {line}" for line in error.source.splitlines()[:15])
    trace = [_ANSI.sub("", line) for part in error.traceback for line in part.splitlines()]
    tail = "\n".join(f"    {line}" for line in trace[-12:])
    return f"cell {error.cell_index + 1} failed with {error.ename}: {error.evalue}\n{source}\n\n{tail}"


def _explain(name: str, error: Exception) -> str:
    half = f"the half-executed notebook is reports/failed/{name}.ipynb"
    if isinstance(error, PapermillExecutionError):
        return f"{_excerpt(error)}\n{half}"
    if isinstance(error, CellTimeoutError):
        return f"a cell took longer than --timeout allows: {error}\n{half}"
    if isinstance(error, DeadKernelError):
        return f"the kernel died (out of memory, or killed); {half}. Run again: finished work is kept"
    return str(error)


def main(arguments: list[str] | None = None) -> int:
    """Execute a lesson, or clean the notebooks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.run", description="Execute one lesson.")
    parser.add_argument("lesson", nargs="?", help="its name, such as 01_policy_zoo")
    parser.add_argument("--clean", action="store_true", help="write cleaned copies of all notebooks instead")
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help="seconds a cell may take (%(default)s)")
    options = parser.parse_args(arguments)
    if bool(options.lesson) == options.clean:
        parser.error("give a lesson, or --clean")
    die_with_parent()
    try:
        notebooks.clean_all() if options.clean else execute(options.lesson, options.timeout)
    except KeyboardInterrupt:
        print(f"\n[{options.lesson}] interrupted; finished work is kept, run again to go on", file=sys.stderr)
        return 130
    except (NotebookError, html.ReportError, PapermillExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"\n[{options.lesson}] {_explain(options.lesson, error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
