"""Removes what a process that was killed left in temporary folders and in shared memory.

    leftovers.remove(folder)
    with leftovers.announce(folder, paths=[scratch]) as announce_process:
        announce_process(kernel_pid)

A process that is killed with SIGKILL, with all that it started, clears nothing up: joblib's folders and semaphores stay
in /dev/shm until the machine restarts. So who makes them announces himself in a file that he keeps locked, and whoever
comes next removes what belongs to files that nobody locks any more. Left out: systems without /dev/shm, which have no
names to remove.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lib.config import ROOT

FOLDER = ROOT / "data/runs/processes"
SHARED_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def announce(
    folder: str | Path, pids: Sequence[int] = (), paths: Sequence[str | Path] = ()
) -> Iterator[Callable[[int], None]]:
    """Announces, inside the `with` block, what is to be removed if this process is killed.

    Args:
        folder: Folder of the announcements; made if it is not there.
        pids: Processes that make names in shared memory.
        paths: Temporary folders.

    Yields:
        A function that adds a process.
    """
    content = {"pids": list(pids), "paths": [str(path) for path in paths]}
    path = Path(folder) / f"{os.getpid()}-{os.urandom(4).hex()}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
    except OSError:  # a folder that cannot be written must not stop any work
        yield lambda pid: None
        return

    def write() -> None:
        file.seek(0)
        file.write(json.dumps(content))
        file.flush()

    def add_process(pid: int) -> None:
        content["pids"].append(pid)
        write()

    with file:
        with contextlib.suppress(OSError):  # a file system without locks, or a full disk
            fcntl.flock(file, fcntl.LOCK_EX)
            write()
        try:
            yield add_process
        finally:
            path.unlink(missing_ok=True)


def remove(folder: str | Path) -> list[Path]:
    """Removes what processes left that announced it and are gone.

    Args:
        folder: Folder of the announcements.

    Returns:
        Every path that was removed, announcements aside.
    """
    removed = []
    for path in sorted(Path(folder).glob("*.json")):
        with contextlib.suppress(OSError), path.open(encoding="utf-8") as file:
            # Where somebody holds the lock, this raises: that process lives.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed += _remove_announced(file.read())
            path.unlink(missing_ok=True)
    return removed


def _remove_announced(text: str) -> list[Path]:
    """Removes the files and shared memory that a killed process had announced.

    Args:
        text: Its announcement, JSON with `paths` and `pids`.

    Returns:
        Every path that was removed.
    """
    try:
        content = json.loads(text)
        candidates = [Path(path) for path in content["paths"]]
        pids = [int(pid) for pid in content["pids"]]
    except (ValueError, KeyError, TypeError):
        return []  # killed while it was written
    for pid in pids:
        candidates += list_shared_memory(pid)
    removed = []
    for path in candidates:
        if not path.exists():
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed.append(path)
    return removed


def list_shared_memory(pid: int) -> list[Path]:
    """Names in shared memory that joblib and loky made for a process."""
    if not SHARED_MEMORY.is_dir():
        return []
    patterns = (f"joblib_memmapping_folder_{pid}_*", f"sem.loky-{pid}-*", f"loky-{pid}-*")
    return [path for pattern in patterns for path in sorted(SHARED_MEMORY.glob(pattern))]
