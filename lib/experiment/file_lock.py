"""A lock between processes, so that notebooks which are open at once do not make the same folder twice.

    with hold_lock(runs / "publishing.lock"):
        ...

`hold_lock` waits for it and says for whom, `hold_lock_alone` refuses where it would have to wait.

The operating system frees it when its holder dies, however. Left out: file systems without locks (some of those that
clusters share), where nobody waits.
"""

import contextlib
import fcntl
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

SILENT_SECONDS = 0.5  # of a wait that nobody is told of
LINE_SECONDS = 60.0  # between two lines of a longer one
_LOOK_SECONDS = 0.05  # between two looks whether the lock is free


class LockedError(RuntimeError):
    """A lock that another process holds."""


@contextlib.contextmanager
def hold_lock(path: str | Path, name: str = "") -> Iterator[None]:
    """Waits until no other process holds the lock, and holds it inside the `with` block.

    A line on the terminal says for whom this process waits and how long it has waited.

    Args:
        path: A file, made if it is not there; its holder writes into it who he is.
        name: What the holder does, for whoever waits; by default this process's command line.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        with contextlib.suppress(OSError):  # this file system has no locks, or the disk is full
            _wait_for_lock(file, path)
            holder = {"pid": os.getpid(), "name": name or _describe_command(), "since": time.time()}
            file.truncate(0)
            file.write(json.dumps(holder))
            file.flush()
        yield


def _wait_for_lock(file: TextIO, path: Path) -> None:
    """Waits until this process holds the lock, and prints a line from time to time about who holds it.

    Args:
        file: The open lock file.
        path: Its path.
    """
    started = time.monotonic()
    next_report = started + SILENT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + LINE_SECONDS
                _print_wait(path, time.monotonic() - started)
            time.sleep(_LOOK_SECONDS)


def _print_wait(path: Path, seconds: float) -> None:
    from lib.experiment.sweep import print_to_terminal  # imported late: few have to wait

    print_to_terminal(
        f"waiting for {_read_holder(path)} to end, {seconds:.0f} s so far; Ctrl-C stops the waiting"
    )


def _read_holder(path: Path) -> str:
    """Describes the process that holds a lock, such as "make repro (process 12, for 3 min)"."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        minutes = (time.time() - holder["since"]) / 60
        return f"{holder['name']} (process {holder['pid']}, for {minutes:.0f} min)"
    except (OSError, ValueError, KeyError, TypeError):  # it has only just begun
        return f"the process that holds {path.name}"


def _describe_command() -> str:
    """This process's command line, as far as a line of a terminal has room for it."""
    return textwrap.shorten(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), 80)


@contextlib.contextmanager
def hold_lock_alone(path: str | Path) -> Iterator[None]:
    """Holds a lock inside the `with` block, or refuses at once where somebody else holds it.

    Args:
        path: An empty file, made if it is not there.

    Raises:
        LockedError: Another process holds the lock.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"another process works in {path.parent}") from error
        except OSError:  # this file system has no locks
            pass
        yield
