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

from lib.experiment import artifacts
from lib.experiment.process_group import die_with_parent
from lib.experiment.seeds import ROOT_SEED

_DASK_SECONDS = 20  # in which a scheduler has to greet
STDERR = "stderr"  # as BENCH_PROGRESS: progress lines for who started a command by hand
MAX_REASONS = 4  # changed settings that are named before the rest is counted
MAX_CHARACTERS = 24  # of a setting's value in a reason


@dataclass(frozen=True)
class Job:
    """One independent piece of a sweep.

    label: path-like name for people, unique in the sweep; it is not part of the key.
    settings: everything that decides the result, as JSON.
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


class Progress:
    """Tells how far a job is, through a small file that the runner's progress line reads."""

    def __init__(self, path: str | Path | None, total: float, every: float = 1.0) -> None:
        self.path, self.total, self.every, self.last = path, total, every, 0.0

    def __call__(self, done: float) -> None:
        now = time.monotonic()
        if self.path is not None and (now - self.last >= self.every or done >= self.total):
            self.last = now
            artifacts.write_json(self.path, {"done": done, "total": self.total})


Work = Callable[[Job, Path, Progress], Any]


def finished(job: Job, root: str | Path) -> dict[str, Any] | None:
    """The receipt of a finished job ({"result", "seconds"}), or None."""
    receipt = job.folder(root) / "done.json"
    return artifacts.read_json(receipt) if receipt.exists() else None


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
    """`run`, where the jobs of a chain follow one another in one process: each finds what those before it wrote.

    Returns the receipts chain by chain.
    """
    root = Path(root)
    jobs = [job for chain in chains for job in chain]
    _check_unique([job.label for job in jobs], "labels")
    _check_unique([job.key for job in jobs], "settings")
    open_chains = [[job for job in chain if finished(job, root) is None] for chain in chains]
    open_chains = [chain for chain in open_chains if chain]
    if open_chains:
        open_jobs = [job for chain in open_chains for job in chain]
        _announce(label, explain_reruns(open_jobs, root))
        with _Watcher(jobs, root, label):
            _run_all(work, open_chains, root, min(count_workers(workers), len(open_chains)))
    return [finished(job, root) for job in jobs]


def _check_unique(values: Sequence[str], what: str) -> None:
    repeated = sorted(value for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise ValueError(f"the {what} of jobs must differ, got {repeated} more than once")


# Why a job is run again ---------------------------------------------------------------------------


def explain_reruns(jobs: Sequence[Job], root: str | Path) -> list[str]:
    """Why jobs that were finished under `root` before are run again.

    Args:
        jobs: Those that are about to run.
        root: Folder of the sweep; its folders hold the settings of earlier jobs.

    Returns:
        One line per set of changes: how many jobs, and what changed in their settings since the last job of the same
        label, such as "4 of 12 jobs: versions.losses 1 -> 2". Empty where no such job was finished before.
    """
    earlier = _latest_settings(Path(root))
    changes = Counter()
    for job in jobs:
        if job.label in earlier:
            now = json.loads(artifacts.to_json(job.settings))
            lines = describe_changes(earlier[job.label], now) or ["another root seed"]
            changes["; ".join(lines)] += 1
    return [f"{times} of {len(jobs)} jobs: {change}" for change, times in changes.most_common()]


def _latest_settings(root: Path) -> dict[str, Any]:
    """The settings of the last finished job of each label."""
    records = sorted(root.glob("*/job.json"), key=lambda path: path.stat().st_mtime_ns)
    contents = [
        artifacts.read_json(path) for path in records if (path.parent / "done.json").exists()
    ]
    return {content["label"]: content["settings"] for content in contents}


def describe_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs between two nested dictionaries of JSON, such as ["versions.losses 1 -> 2"].

    At most MAX_REASONS differences are named, the rest is counted.
    """
    old, new = dict(_leaves(before)), dict(_leaves(after))
    changed = [
        path for path in {**old, **new} if old.get(path, "absent") != new.get(path, "absent")
    ]
    lines = [
        f"{path} {_shorten(old, path)} -> {_shorten(new, path)}" for path in changed[:MAX_REASONS]
    ]
    if len(changed) > MAX_REASONS:
        lines.append(f"and {len(changed) - MAX_REASONS} more")
    return lines


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of everything in nested dictionaries, such as ("versions.losses", 1)."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _leaves(inner, f"{path}.{name}" if path else str(name))


def _shorten(leaves: dict[str, Any], path: str) -> str:
    text = str(leaves.get(path, "absent"))
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


def _announce(label: str, reasons: Sequence[str]) -> None:
    """Hand the reasons to the runner, which prints them, or print them where somebody started a command by hand."""
    target = os.environ.get("BENCH_PROGRESS")
    lines = [f"{label}: {reason}" for reason in reasons]
    if target == STDERR:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
    elif target and lines:
        with contextlib.suppress(OSError), open(f"{target}.reasons", "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


# Processes ----------------------------------------------------------------------------------------


def _in_worker(work: Work, chain: Sequence[Job], root: Path) -> None:
    for job in chain:
        folder = job.folder(root)
        artifacts.write_json(folder / "job.json", {"label": job.label, "settings": job.settings})
        started = time.perf_counter()
        result = work(job, folder, Progress(folder / "progress.json", 1.0))
        artifacts.write_json(
            folder / "done.json", {"result": result, "seconds": time.perf_counter() - started}
        )


def _run_all(work, chains: list[list[Job]], root: Path, workers: int) -> None:
    scheduler = os.environ.get("BENCH_DASK")
    if scheduler:
        _run_on_dask(work, chains, root, scheduler)
    elif workers == 1:
        for chain in chains:
            _in_worker(work, chain, root)
    else:
        bond = {
            "initializer": die_with_parent,
            "initargs": (os.getpid(),),
            "inner_max_num_threads": 1,
        }
        with joblib.parallel_config(backend="loky", n_jobs=workers, **bond):
            _in_parallel(work, chains, root)


def _run_on_dask(work, chains: list[list[Job]], root: Path, scheduler: str) -> None:
    from distributed import Client  # imported here: only a cluster needs it

    try:
        _greet(scheduler)
        cluster = Client(scheduler, timeout=_DASK_SECONDS, set_as_default=True)
    except (
        Exception
    ) as error:  # what is no scheduler may answer anything: 8 bytes of it are read as a size
        told = str(error)[:200] or type(error).__name__
        raise RuntimeError(
            f"BENCH_DASK: no dask scheduler answers at {scheduler!r} ({told})"
        ) from error
    with cluster, joblib.parallel_config(backend="dask", n_jobs=-1, wait_for_workers_timeout=60):
        _in_parallel(work, chains, root.resolve())


def _greet(scheduler: str) -> None:
    """Ask before there is a client: one that never connects may block the next one, or wait for ever.

    Raises whatever goes wrong, TimeoutError after _DASK_SECONDS.
    """
    from distributed import comm

    socket.create_connection(comm.get_address_host_port(scheduler), timeout=_DASK_SECONDS).close()

    async def greeted() -> None:
        (
            await asyncio.wait_for(comm.connect(scheduler, timeout=_DASK_SECONDS), _DASK_SECONDS)
        ).abort()

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
        thread.submit(asyncio.run, greeted()).result(2 * _DASK_SECONDS)


def _in_parallel(work, chains: list[list[Job]], root: Path) -> None:
    with (
        warnings.catch_warnings()
    ):  # loky renews a worker whose memory grew, which changes no result
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given to the executor"
        )
        run_chain = joblib.delayed(_in_worker)
        joblib.Parallel(batch_size=1, pre_dispatch="all")(
            run_chain(work, chain, root) for chain in chains
        )


class _Watcher:
    """Adds up the jobs' progress files for the runner's progress line (the file that BENCH_PROGRESS names), or, where
    that is STDERR, for somebody who started the command by hand: a line every ten seconds."""

    def __init__(self, jobs: Sequence[Job], root: Path, label: str) -> None:
        self.jobs, self.root, self.label = jobs, root, label
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
            done = sum(self._fraction(job) for job in self.jobs)
            if self.target == STDERR:
                line = f"{self.label}: {done:.1f} of {len(self.jobs)}, {time.monotonic() - began:.0f} s"
                print(line, file=sys.stderr, flush=True)
            else:
                with contextlib.suppress(
                    OSError
                ):  # a disk that is full stops the jobs, not the line about them
                    artifacts.write_json(
                        self.target, {"label": self.label, "done": done, "total": len(self.jobs)}
                    )
            if self.stop.wait(pause):
                return

    def _fraction(self, job: Job) -> float:
        if finished(job, self.root) is not None:
            return 1.0
        progress = job.folder(self.root) / "progress.json"
        if not progress.exists():
            return 0.0
        report = artifacts.read_json(progress)
        return min(1.0, report["done"] / report["total"])
