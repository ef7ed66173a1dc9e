"""Map a function over cells, in processes, one file per finished cell.

A cell is one arm, one seed, one configuration: an independent piece of a sweep. Its result is
whatever files the function writes, its receipt a JSON file written last. A sweep that is run again
skips the cells with a receipt, so it resumes; a cell whose name or settings differ has another
receipt. Processes come from joblib: `loky` here, one thread each, and they die with the process that
started them; or the workers of a dask cluster whose scheduler BENCH_DASK names (tcp://host:port) and
which share this file system. Where a sweep runs is no parameter: it changes no result.
"""

import asyncio
import contextlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from lib import store
from lib.parent import die_with_parent
from lib.seeds import ROOT_SEED

_DASK_SECONDS = 20  # in which a scheduler has to greet
STDERR = "stderr"  # as BENCH_PROGRESS: progress lines for who started a command by hand


@dataclass(frozen=True)
class Cell:
    """name: a path-like label, unique in the sweep; settings: what decides the result (JSON)."""

    name: str
    settings: dict[str, Any]

    @property
    def digest(self) -> str:
        """Sixteen signs of the hash of name, settings and, where it is another than 0, the root seed."""
        root = os.environ.get(ROOT_SEED, "0")
        return store.sha256_json([self.name, self.settings, *([root] if root != "0" else [])])[:16]

    def folder(self, root: Path) -> Path:
        """Where the cell keeps its files: a different place for different settings."""
        return root / f"{self.name.replace('/', '-')}-{self.digest}"


class Progress:
    """Tells how far a cell is, through a small file that the runner's progress line reads."""

    def __init__(self, path: str | Path | None, total: float, every: float = 1.0) -> None:
        self.path, self.total, self.every, self.last = path, total, every, 0.0

    def __call__(self, done: float) -> None:
        now = time.monotonic()
        if self.path is not None and (now - self.last >= self.every or done >= self.total):
            self.last = now
            store.write_json(self.path, {"done": done, "total": self.total})


def _in_worker(work, chain: Sequence[Cell], root: Path) -> None:
    for cell in chain:
        folder = cell.folder(root)
        started = time.perf_counter()
        result = work(cell, folder, Progress(folder / "progress.json", 1.0))
        store.write_json(folder / "done.json", {"result": result, "seconds": time.perf_counter() - started})


def finished(cell: Cell, root: Path) -> dict[str, Any] | None:
    """The receipt of a finished cell ({"result", "seconds"}), or None."""
    receipt = cell.folder(Path(root)) / "done.json"
    return store.read_json(receipt) if receipt.exists() else None


def at_once(jobs: int | None) -> int:
    """Processes of a sweep: one per core unless it is said."""
    return jobs or os.cpu_count() or 1


def run(
    work: Callable[[Cell, Path, Progress], Any],
    cells: Sequence[Cell],
    root: str | Path,
    jobs: int | None = None,
    label: str = "cells",
) -> list[dict[str, Any]]:
    """Receipts of all cells, in order; those not finished yet are run, `jobs` at a time.

    work(cell, folder, progress): writes its files under `folder`, calls progress(fraction), returns
    something JSON can hold. It must be importable by name. Raises ValueError on two cells of one
    name, and whatever `work` raises, after the cells that were running have been stopped.
    """
    return run_chains(work, [[cell] for cell in cells], root, jobs, label)


def run_chains(
    work: Callable[[Cell, Path, Progress], Any],
    chains: Sequence[Sequence[Cell]],
    root: str | Path,
    jobs: int | None = None,
    label: str = "cells",
) -> list[dict[str, Any]]:
    """`run`, where the cells of a chain follow one another in one process: each finds what those before it wrote.
    Receipts come chain by chain."""
    root, cells = Path(root), [cell for chain in chains for cell in chain]
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ValueError(f"cell names must differ, got {sorted(n for n in names if names.count(n) > 1)}")
    left = [[cell for cell in chain if finished(cell, root) is None] for chain in chains]
    todo = [chain for chain in left if chain]
    if todo:
        with _Watcher(cells, root, label):
            _run_all(work, todo, root, min(at_once(jobs), len(todo)))
    return [finished(cell, root) for cell in cells]


def _run_all(work, todo: list[list[Cell]], root: Path, jobs: int) -> None:
    scheduler = os.environ.get("BENCH_DASK")
    if scheduler:
        _run_on_dask(work, todo, root, scheduler)
    elif jobs == 1:
        for chain in todo:
            _in_worker(work, chain, root)
    else:
        bond = {"initializer": die_with_parent, "initargs": (os.getpid(),), "inner_max_num_threads": 1}
        with joblib.parallel_config(backend="loky", n_jobs=jobs, **bond):
            _in_parallel(work, todo, root)


def _run_on_dask(work, todo: list[list[Cell]], root: Path, scheduler: str) -> None:
    from distributed import Client  # imported here: only a cluster needs it

    try:
        _greet(scheduler)
        cluster = Client(scheduler, timeout=_DASK_SECONDS, set_as_default=True)
    except Exception as error:  # what is no scheduler may answer anything: 8 bytes of it are read as a size
        told = str(error)[:200] or type(error).__name__
        raise RuntimeError(f"BENCH_DASK: no dask scheduler answers at {scheduler!r} ({told})") from error
    with cluster, joblib.parallel_config(backend="dask", n_jobs=-1, wait_for_workers_timeout=60):
        _in_parallel(work, todo, root.resolve())


def _greet(scheduler: str) -> None:
    """Ask before there is a client: one that never connects may block the next one, or wait for ever.

    Raises whatever goes wrong, TimeoutError after _DASK_SECONDS.
    """
    from distributed import comm

    socket.create_connection(comm.get_address_host_port(scheduler), timeout=_DASK_SECONDS).close()

    async def greeted() -> None:
        (await asyncio.wait_for(comm.connect(scheduler, timeout=_DASK_SECONDS), _DASK_SECONDS)).abort()

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
        thread.submit(asyncio.run, greeted()).result(2 * _DASK_SECONDS)


def _in_parallel(work, todo: list[list[Cell]], root: Path) -> None:
    with warnings.catch_warnings():  # loky renews a worker whose memory grew, which changes no result
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor")
        run_chain = joblib.delayed(_in_worker)
        joblib.Parallel(batch_size=1, pre_dispatch="all")(run_chain(work, chain, root) for chain in todo)


class _Watcher:
    """Adds up the cells' progress files for the runner's progress line (the file that BENCH_PROGRESS names), or, where
    that is STDERR, for somebody who started the command by hand: a line every ten seconds."""

    def __init__(self, cells: Sequence[Cell], root: Path, label: str) -> None:
        self.cells, self.root, self.label = cells, root, label
        self.target = os.environ.get("BENCH_PROGRESS")

    def __enter__(self):
        import threading

        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        if self.target:
            self.thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop.set()
        if self.target:
            self.thread.join()
            if self.target != STDERR:
                Path(self.target).unlink(missing_ok=True)

    def _loop(self) -> None:
        began, pause = time.monotonic(), 10.0 if self.target == STDERR else 1.0
        while True:
            done = sum(self._fraction(cell) for cell in self.cells)
            if self.target == STDERR:
                line = f"{self.label}: {done:.1f} of {len(self.cells)}, {time.monotonic() - began:.0f} s"
                print(line, file=sys.stderr, flush=True)
            else:
                with contextlib.suppress(OSError):  # a disk that is full stops the cells, not the line about them
                    store.write_json(self.target, {"label": self.label, "done": done, "total": len(self.cells)})
            if self.stop.wait(pause):
                return

    def _fraction(self, cell: Cell) -> float:
        if finished(cell, self.root) is not None:
            return 1.0
        progress = cell.folder(self.root) / "progress.json"
        if not progress.exists():
            return 0.0
        report = store.read_json(progress)
        return min(1.0, report["done"] / report["total"])
