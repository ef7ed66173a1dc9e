"""Run independent jobs in processes, and keep one folder per finished job.

A job is one method, one seed, one configuration. Its result is whatever files its work writes, and a
receipt (`done.json`) that is written last. A sweep that is run again skips jobs with a receipt, so it resumes.

The folder of a job is named by its key, a hash of its settings: what the work reads, the hashes of its input files,
and the `VERSION` of the functions that decide its numbers. No name of a function, module or label is in a key, so
code may be renamed freely; whoever changes a number raises the VERSION beside it. `explain_reruns` says which of
these changed where a job that was finished is run again.

Processes come from joblib: `loky` here, one thread each, and they die with the process that started them; or the
workers of a dask cluster whose scheduler BENCH_DASK names (tcp://host:port) and which share this file system. Where
a sweep runs is no setting: it changes no result.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from lib.experiment import artifacts, leftovers
from lib.experiment.process_group import die_with_parent
from lib.experiment.seeds import ROOT_SEED

_DASK_SECONDS = 20  # in which a scheduler has to greet
STDERR = "stderr"  # as BENCH_PROGRESS: progress lines for somebody who started a command by hand
_NOTEBOOK = "notebook"  # without BENCH_PROGRESS: one line below the cell that somebody runs
_LINE_WIDTH = 78  # characters that the line of a notebook overwrites
MAX_REASONS = 4  # changed settings that are named before the rest is counted
MAX_CHARACTERS = 24  # of a setting's value in a reason


@dataclass(frozen=True)
class Job:
    """One independent piece of a sweep.

    Attributes:
        label: Path-like name for people, unique in the sweep; it is not part of the key.
        settings: Everything that decides the result, as JSON.
    """

    label: str
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits: the hash of the settings and, where it is another than 0, the root seed."""
        root_seed = os.environ.get(ROOT_SEED, "0")
        decided_by = [self.settings] if root_seed == "0" else [self.settings, root_seed]
        return artifacts.sha256_json(decided_by)[:16]

    def folder(self, root: str | Path) -> Path:
        """Where the job keeps its files under `root`."""
        return Path(root) / self.key


class JobProgress:
    """Tells how far a job is, through a small file that the runner's progress line reads."""

    def __init__(self, path: str | Path | None, total: float, every: float = 1.0) -> None:
        self.path = path
        self.total = total
        self.every = every  # seconds between two writes
        self.last_write = 0.0

    def __call__(self, amount: float) -> None:
        """Reports the amount of work so far, of `total`; the end is written at once."""
        if self.path is None:
            return
        now = time.monotonic()
        is_due = now - self.last_write >= self.every
        if is_due or amount >= self.total:
            self.last_write = now
            artifacts.write_json(self.path, {"done": amount, "total": self.total})


Work = Callable[[Job, Path, JobProgress], Any]


def read_receipt(job: Job, root: str | Path) -> dict[str, Any] | None:
    """Reads the receipt of a job, {"result", "seconds"}; None where the job is not finished."""
    path = job.folder(root) / "done.json"
    return artifacts.read_json(path) if path.exists() else None


def count_workers(workers: int | None) -> int:
    """Processes of a sweep: one per core unless a number is given."""
    return workers or os.cpu_count() or 1


def run(
    work: Work,
    jobs: Sequence[Job],
    root: str | Path,
    workers: int | None = None,
    label: str = "jobs",
) -> list[dict[str, Any]]:
    """Run the jobs that are not finished yet.

    Args:
        work: work(job, folder, progress) writes its files under `folder`, calls progress(fraction) and returns
            something that JSON can hold. It must be importable by name.
        jobs: Their labels and their keys must be unique.
        root: Folder of the jobs' folders.
        workers: Processes at a time; one per core by default.
        label: What the progress line calls the sweep.

    Returns:
        The receipts of all jobs, in order.

    Raises:
        ValueError: Two jobs have one label or one key.
        Exception: Whatever `work` raises, after the jobs that were running have been stopped.
    """
    return run_chains(work, [[job] for job in jobs], root, workers, label)


def run_chains(
    work: Work,
    chains: Sequence[Sequence[Job]],
    root: str | Path,
    workers: int | None = None,
    label: str = "jobs",
) -> list[dict[str, Any]]:
    """Runs jobs of which some build on others; otherwise as `run`.

    Args:
        work: As in `run`.
        chains: The jobs of a chain follow one another in one process, so a job finds what those before it wrote.
        root: As in `run`.
        workers: As in `run`.
        label: As in `run`.

    Returns:
        The receipts of all jobs, chain by chain.
    """
    root = Path(root)
    jobs = [job for chain in chains for job in chain]
    _check_unique([job.label for job in jobs], "labels")
    _check_unique([job.key for job in jobs], "settings")

    # Leave out the jobs that have a receipt.
    open_chains = []
    for chain in chains:
        open_chain = [job for job in chain if read_receipt(job, root) is None]
        if open_chain:
            open_chains.append(open_chain)

    if open_chains:
        _mark_new_copy(root)
        open_jobs = [job for chain in open_chains for job in chain]
        _print_reasons(label, explain_reruns(open_jobs, root))
        num_processes = min(count_workers(workers), len(open_chains))
        with _ProgressWatcher(jobs, root, label):
            _run_all(work, open_chains, root, num_processes)
    return [read_receipt(job, root) for job in jobs]


def _mark_new_copy(root: Path) -> None:
    """See `earlier_jobs.mark_new_copy`; folders of jobs elsewhere are no business of the pipeline."""
    from lib.experiment import earlier_jobs  # imported late: it imports this module

    if root.resolve().is_relative_to(earlier_jobs.RUNS):
        earlier_jobs.mark_new_copy(earlier_jobs.RUNS)


def _check_unique(values: Sequence[str], kind: str) -> None:
    repeated = sorted(value for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise ValueError(f"the {kind} of jobs must differ, got {repeated} more than once")


# Why a job is run again ---------------------------------------------------------------------------


def explain_reruns(jobs: Sequence[Job], root: str | Path) -> list[str]:
    """Explains why jobs that were finished under `root` before are run again.

    Args:
        jobs: Those that are about to run.
        root: Folder of the sweep; its folders hold the settings of earlier jobs.

    Returns:
        One line per set of changes: how many jobs, and what changed in their settings since the last job of the same
        label, such as "4 of 12 jobs: versions.losses 1 -> 2". Empty where no such job was finished before.
    """
    earlier_settings = _read_latest_settings(Path(root))
    num_jobs = Counter()  # by set of changes
    for job in jobs:
        if job.label in earlier_settings:
            settings = json.loads(
                artifacts.to_json(job.settings)
            )  # tuples become lists, as in the file
            # The key has the root seed besides the settings, so equal settings leave only that.
            changes = describe_changes(earlier_settings[job.label], settings)
            changes = changes or ["another root seed"]
            num_jobs["; ".join(changes)] += 1
    return [f"{count} of {len(jobs)} jobs: {changes}" for changes, count in num_jobs.most_common()]


def _read_latest_settings(root: Path) -> dict[str, Any]:
    """Reads the settings of the last finished job of each label.

    Args:
        root: Folder with a folder per job.

    Returns:
        {label: settings}.
    """
    latest = {}
    # Oldest first, so that the latest settings of a label remain.
    for path in sorted(root.glob("*/job.json"), key=lambda path: path.stat().st_mtime_ns):
        if (path.parent / "done.json").exists():
            content = artifacts.read_json(path)
            latest[content["label"]] = content["settings"]
    return latest


def describe_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Describes what differs between two nested dictionaries.

    Args:
        before: Settings as JSON holds them.
        after: The settings to compare with.

    Returns:
        One text per difference, such as "versions.losses 1 -> 2"; from MAX_REASONS on they are only counted.
    """
    old = dict(_list_leaves(before))
    new = dict(_list_leaves(after))
    changed_paths = []
    # A dictionary of both keeps the order of the settings, which a set would lose.
    for path in {**old, **new}:
        if old.get(path, "absent") != new.get(path, "absent"):
            changed_paths.append(path)

    descriptions = []
    for path in changed_paths[:MAX_REASONS]:
        descriptions.append(f"{path} {_shorten(old, path)} -> {_shorten(new, path)}")
    if len(changed_paths) > MAX_REASONS:
        descriptions.append(f"and {len(changed_paths) - MAX_REASONS} more")
    return descriptions


def _list_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of everything in nested dictionaries, such as ("versions.losses", 1)."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _list_leaves(inner, f"{path}.{name}" if path else str(name))


def _shorten(leaves: dict[str, Any], path: str) -> str:
    """The value at a path as text of at most MAX_CHARACTERS."""
    text = str(leaves.get(path, "absent"))
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


def _print_reasons(label: str, reasons: Sequence[str]) -> None:
    """Says why jobs run again, to whoever follows the progress."""
    if os.environ.get("BENCH_PROGRESS"):
        for reason in reasons:
            print_to_terminal(f"{label}: {reason}")


def print_to_terminal(line: str) -> None:
    """Print a line where somebody sees it while jobs run, and never into a lesson's page.

    The runner, which executes lessons, prints it above its progress line. In a notebook that somebody runs by hand it
    stands below the cell, for a command on stderr.

    Args:
        line: What is printed; nothing where it is empty.
    """
    if not line:
        return
    target = os.environ.get("BENCH_PROGRESS") or _find_notebook()
    if target is None or target == STDERR:
        print(line, file=sys.stderr, flush=True)
    elif target == _NOTEBOOK:
        print(line, flush=True)
    else:
        # A disk that is full stops the jobs, not the line about them.
        with contextlib.suppress(OSError), open(f"{target}.reasons", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


# Processes ----------------------------------------------------------------------------------------


def _run_chain(work: Work, chain: Sequence[Job], root: Path) -> None:
    """Runs a chain of jobs one after another in this process, and writes the result of each into its folder.

    Args:
        work: Does a job; returns its result.
        chain: The jobs; a later one may build on an earlier one.
        root: Folder with a folder per job. The file done.json is written last, and marks a job as finished.
    """
    for job in chain:
        folder = job.folder(root)
        artifacts.write_json(folder / "job.json", {"label": job.label, "settings": job.settings})
        started = time.perf_counter()
        result = work(job, folder, JobProgress(folder / "progress.json", 1.0))
        receipt = {"result": result, "seconds": time.perf_counter() - started}
        artifacts.write_json(folder / "done.json", receipt)


def _run_all(work, chains: list[list[Job]], root: Path, workers: int) -> None:
    """Runs chains of jobs: on a dask cluster where BENCH_DASK names one, in this process, or in several.

    Args:
        work: Does a job; returns its result.
        chains: Independent chains of jobs.
        root: Folder with a folder per job.
        workers: Number of processes.
    """
    scheduler = os.environ.get("BENCH_DASK")
    if scheduler:
        _run_on_dask(work, chains, root, scheduler)
    elif workers == 1:
        for chain in chains:
            _run_chain(work, chain, root)
    else:
        # One thread each: there is a process for every core already.
        process_settings = {
            "initializer": die_with_parent,
            "initargs": (os.getpid(),),
            "inner_max_num_threads": 1,
        }
        leftovers.remove(leftovers.FOLDER)
        with (
            leftovers.announce(leftovers.FOLDER, pids=[os.getpid()]),
            joblib.parallel_config(backend="loky", n_jobs=workers, **process_settings),
        ):
            _run_in_parallel(work, chains, root)


def _run_on_dask(work, chains: list[list[Job]], root: Path, scheduler: str) -> None:
    """Runs chains of jobs on a dask cluster.

    Args:
        work: Does a job; returns its result.
        chains: Independent chains of jobs.
        root: Folder with a folder per job, which all workers of the cluster can reach.
        scheduler: Address of the dask scheduler.

    Raises:
        RuntimeError: No scheduler answers there.
    """
    from distributed import Client  # imported here: only a cluster needs it

    try:
        _check_scheduler(scheduler)
        cluster = Client(scheduler, timeout=_DASK_SECONDS, set_as_default=True)
    # Any exception: what is no scheduler may answer anything, of which 8 bytes are read as a size.
    except Exception as error:
        reason = str(error)[:200] or type(error).__name__
        raise RuntimeError(
            f"BENCH_DASK: no dask scheduler answers at {scheduler!r} ({reason})"
        ) from error
    with cluster, joblib.parallel_config(backend="dask", n_jobs=-1, wait_for_workers_timeout=60):
        _run_in_parallel(work, chains, root.resolve())


def _check_scheduler(scheduler: str) -> None:
    """Connects to a dask scheduler once, with a time limit, because a client without one may wait for ever.

    Args:
        scheduler: Its address.

    Raises:
        Exception: Whatever goes wrong; TimeoutError after _DASK_SECONDS.
    """
    from distributed import comm

    # A plain connection first, since it fails fast where nothing listens.
    address = comm.get_address_host_port(scheduler)
    socket.create_connection(address, timeout=_DASK_SECONDS).close()

    async def connect_once() -> None:
        connecting = comm.connect(scheduler, timeout=_DASK_SECONDS)
        connection = await asyncio.wait_for(connecting, _DASK_SECONDS)
        connection.abort()

    with ThreadPoolExecutor(1) as executor:  # a notebook's own thread has an event loop already
        executor.submit(asyncio.run, connect_once()).result(2 * _DASK_SECONDS)


def _run_in_parallel(work, chains: list[list[Job]], root: Path) -> None:
    """Runs chains of jobs side by side with joblib, under the backend that is configured around the call.

    Args:
        work: Does a job; returns its result.
        chains: Independent chains of jobs.
        root: Folder with a folder per job.
    """
    with warnings.catch_warnings():
        # loky renews a worker whose memory grew, which changes no result.
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given to the executor"
        )
        delayed_run = joblib.delayed(_run_chain)
        joblib.Parallel(batch_size=1, pre_dispatch="all")(
            delayed_run(work, chain, root) for chain in chains
        )


def _find_notebook() -> str | None:
    """_NOTEBOOK in a cell that somebody runs in Jupyter, None anywhere else."""
    ipython = sys.modules.get("IPython")  # whoever has not imported it is in no notebook
    shell = ipython.get_ipython() if ipython else None
    return _NOTEBOOK if hasattr(shell, "kernel") else None


class _ProgressWatcher:
    """Adds up the jobs' progress files for the runner's progress line (the file that BENCH_PROGRESS names), or, where
    that is STDERR, for somebody who started the command by hand: a line every ten seconds. In a notebook that runs
    without the runner one line below the cell keeps up."""

    def __init__(self, jobs: Sequence[Job], root: Path, label: str) -> None:
        self.jobs = jobs
        self.root = root
        self.label = label
        self.started = time.monotonic()
        self.target = os.environ.get("BENCH_PROGRESS") or _find_notebook()

    def __enter__(self):
        import threading

        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._report, daemon=True)
        if self.target:
            self.thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop.set()
        if self.target:
            self.thread.join()
            if self.target == _NOTEBOOK:
                self._print_in_place(self._count_finished(), end="\n")
            elif self.target != STDERR:
                Path(self.target).unlink(missing_ok=True)

    def _report(self) -> None:
        """Reports the progress of the jobs until the sweep ends, to a terminal, a notebook or a file; runs in a
        thread.
        """
        pause = 10.0 if self.target == STDERR else 1.0  # seconds
        while True:
            num_finished = self._count_finished()
            if self.target == STDERR:
                print(self._make_line(num_finished), file=sys.stderr, flush=True)
            elif self.target == _NOTEBOOK:
                self._print_in_place(num_finished)
            else:
                report = {"label": self.label, "done": num_finished, "total": len(self.jobs)}
                # A disk that is full stops the jobs, not the line about them.
                with contextlib.suppress(OSError):
                    artifacts.write_json(self.target, report)
            if self.stop.wait(pause):
                return

    def _make_line(self, num_finished: float) -> str:
        seconds = time.monotonic() - self.started
        return f"{self.label}: {num_finished:.1f} of {len(self.jobs)}, {seconds:.0f} s"

    def _print_in_place(self, num_finished: float, end: str = "") -> None:
        """Writes over the line of a second ago: Jupyter goes back to the start of a line at a carriage return."""
        print(f"\r{self._make_line(num_finished):<{_LINE_WIDTH}}", end=end, flush=True)

    def _count_finished(self) -> float:
        """Jobs that are done, those that run by the part of them that is done."""
        return sum(self._read_fraction(job) for job in self.jobs)

    def _read_fraction(self, job: Job) -> float:
        """Reads which fraction of a job is done, 0 to 1, from the progress file in its folder."""
        if read_receipt(job, self.root) is not None:
            return 1.0
        path = job.folder(self.root) / "progress.json"
        if not path.exists():
            return 0.0
        report = artifacts.read_json(path)
        return min(1.0, report["done"] / report["total"])
