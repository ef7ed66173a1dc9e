"""The process in which `pydantic-monty` interprets code: bare, bounded, and gone with its host.

Monty is an interpreter of its own, written in Rust, that has no files, network, processes or clock to give
to the code. This module is the second fence, in case the first has a gap. The worker is started by a
shell script that empties its environment, puts it into an empty folder, throws away its error stream and
sets limits of the operating system; script and folder are deleted as soon as it runs. A thread of the
host kills a worker that overstays, by a clock that has nothing to do with Monty's. A worker ends when
the pipe to its host closes; one that is too busy to notice is ended by its limit of processor time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

REMEDY = "model-written code runs in a sandbox or not at all; `pip install 'pydantic-monty>=1.4'` brings it"
SERVED = 10.0  # seconds of work after which a worker is replaced, so that its processor time can be bounded
_PATIENCE = 3.0  # seconds in which a worker has to have started
_FILES = 64  # open files of a worker
_TICK = 0.05  # seconds between two looks of the watchdog
_SCRIPT = """#!/bin/sh
# each limit on its own: macOS has no limit of address space
trap '' INT
cd {folder} || exit 1
for limit in '-c 0' '-f 0' '-n {files}' '-t {cpu}' '-v {address}'; do
  ulimit $limit 2>/dev/null || true
done
exec /usr/bin/env -i {binary} "$@" 2>/dev/null
"""
_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()  # those of this process
_begun = False  # whether this process, or one that it was forked from, has started a worker
# Whether Monty's threads were left behind in the process that this one was forked from.
_forked = False


class SandboxUnavailable(RuntimeError):
    """No sandbox works here, so no code is run. The message says why and what helps."""


class Worker:
    """One worker process and its watchdog.

    Args:
        seconds: How long a call may last.
        address: Bytes of address space of the process.

    Raises:
        SandboxUnavailable: The process cannot be started.
    """

    def __init__(self, seconds: float, address: int):
        self.host_pid = os.getpid()
        self.seconds_used = 0.0  # of work so far
        self._pool = _Pool(seconds, address)
        self._watchdog = _Watchdog()
        weakref.finalize(self, self._watchdog.stop)
        self.pid = self._pool.pid

    @property
    def usable(self) -> bool:
        """Whether it belongs to this process, not to one that this was forked from, and is not worn out."""
        return self.host_pid == os.getpid() and self.seconds_used < SERVED

    def open_session(self, **settings: Any) -> Any:
        """A fresh session of Monty; settings: as `Monty.checkout` takes them."""
        return self._pool.monty.checkout(**settings)

    # A clock of the host's own, in case Monty's limit of time has a gap.
    def watch(self, seconds: float) -> _Watch:
        """A context that kills the worker if it is not left within so many seconds."""
        return self._watchdog.make_watch(self.pid, seconds)

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Stops the watchdog and the worker process; does nothing in a process that was forked from this one."""
        if self.host_pid == os.getpid():
            self._watchdog.stop()
            self._pool.close()


class _Pool:
    """A pool of Monty with one worker. (A class, because Monty's own has no weak references.)"""

    def __init__(self, seconds: float, address: int):
        try:
            import pydantic_monty
        except ImportError as error:
            raise SandboxUnavailable(
                f"pydantic_monty cannot be imported ({error}); {REMEDY}"
            ) from error
        if os.name != "posix":
            raise SandboxUnavailable(
                f"the sandbox needs Linux or macOS, not {sys.platform}; {REMEDY}"
            )
        if _forked:
            raise SandboxUnavailable(
                "this process was forked from one that has used a sandbox, and Monty would hang in it; start processes "
                "by spawn, as loky does, or fork before the first use"
            )
        global _begun
        _begun = True
        with tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
            try:
                script = _write_start_script(Path(folder), SERVED + seconds, address)
                # What starts and does not answer is no worker; calls are the watchdog's business.
                self.monty = pydantic_monty.Monty(
                    binary_path=script,
                    min_processes=1,
                    max_processes=1,
                    request_timeout=_PATIENCE + seconds,
                )
                self.monty.__enter__()
                self.pid = self._wait_until_started()
            except (OSError, RuntimeError, pydantic_monty.MontyError) as error:
                raise SandboxUnavailable(
                    f"no worker of pydantic_monty can be started ({error}); {REMEDY}"
                ) from error
        _pools.add(self)

    def _wait_until_started(self) -> int:
        """The worker's id, once it has answered."""
        with self.monty.checkout() as session:
            if session.feed_run("6 * 7") != 42:
                raise RuntimeError("the worker miscalculates")
            _forbid_new_processes(session.worker_pid)
            return session.worker_pid

    def close(self) -> None:
        """Ends the worker process, by force where it still runs."""
        self.monty.__exit__(None, None, None)
        # A session that an interrupt cut off still holds the process.
        with contextlib.suppress(ChildProcessError):  # there is none any more, as it should be
            still_runs = os.waitpid(self.pid, os.WNOHANG)[0] == 0
            if still_runs:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)


def _write_start_script(folder: Path, cpu_seconds: float, address: int) -> Path:
    """Writes the shell script that starts a worker process under limits of CPU time and memory.

    Args:
        folder: Where it is written.
        cpu_seconds: Limit of CPU time.
        address: Limit of the address space, in bytes.

    Raises:
        FileNotFoundError: The program of Monty, the sandbox's interpreter, is missing.
    """
    from pydantic_monty._binary import find_monty_binary

    (folder / "empty").mkdir()
    script = folder / "start"
    text = _SCRIPT.format(
        folder=shlex.quote(str(folder / "empty")),
        binary=shlex.quote(str(Path(find_monty_binary()).absolute())),
        files=_FILES,
        cpu=math.ceil(cpu_seconds),
        address=address // 1024,  # ulimit counts kilobytes
    )
    script.write_text(text)
    script.chmod(0o700)
    return script


def _forbid_new_processes(pid: int) -> None:
    """Forbid the worker new processes and threads. Only Linux can do so once it has those that it needs."""
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError):  # the other fences stand without it
            resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))


class _Watchdog:
    """A thread that kills the watched process once its time is up."""

    def __init__(self):
        self._lock = threading.Lock()
        self._stopped = False
        self._watch: _Watch | None = None
        threading.Thread(target=self._kill_overdue, name="sandbox watchdog", daemon=True).start()

    def make_watch(self, pid: int, seconds: float) -> _Watch:
        return _Watch(self, pid, deadline=time.monotonic() + seconds)

    def set_watch(self, watch: _Watch | None) -> None:
        with self._lock:  # so that nothing is killed that has just come back
            self._watch = watch

    def stop(self) -> None:
        self._stopped = True

    def _kill_overdue(self) -> None:
        """Kills the watched process once its deadline has passed; runs in a thread until the watchdog stops."""
        while not self._stopped:
            time.sleep(_TICK)
            with self._lock:
                watch = self._watch
                if watch and not watch.has_killed and time.monotonic() > watch.deadline:
                    watch.has_killed = True
                    os.kill(watch.pid, signal.SIGKILL)


class _Watch:
    """One stretch of time that the watchdog watches; `has_killed` says whether it had to kill."""

    def __init__(self, watchdog: _Watchdog, pid: int, deadline: float):
        self.pid = pid
        self.deadline = deadline
        self.has_killed = False
        self._watchdog = watchdog

    def __enter__(self) -> _Watch:
        self._watchdog.set_watch(self)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.set_watch(None)


def _after_fork() -> None:
    """Runs in a forked child, so that the parent's worker lives on."""
    global _forked
    _forked = _begun
    # A pool that Python drops kills its worker, and these are the parent's: one more reference keeps them for ever.
    for pool in _pools:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool.monty))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
