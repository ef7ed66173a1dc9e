"""Runs a command of the Makefile, and ends it with all that it started: `python -m lib.experiment.supervise COMMAND`.

A SIGTERM to make reaches its own child alone. So that child is this process: it passes the signal on to every process
that the command started, gives them time to clear up, and kills what is left. With --alone it first waits for another
command that works in this folder, and says for which one. Left out: what a command does on its own.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from lib.experiment.file_lock import hold_lock
from lib.experiment.process_group import die_with_parent

LOCK = ".dvc/tmp/pipeline.lock"
HELD = "BENCH_ALONE"  # environment variable: the lock that a process around this one holds
GRACE_SECONDS = 15.0  # in which processes may clear up after a signal
_LOOK_SECONDS = 1.0  # between two looks at what the command started
_REPEAT_SECONDS = 4.0  # after which a process that has not ended gets the signal again
_PR_SET_CHILD_SUBREAPER = 36
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """One command and all processes that it started, also those whose own parent is gone."""

    def __init__(self) -> None:
        self.stopped_by = 0  # the signal that ended the run
        self._processes: set[psutil.Process] = set()
        if sys.platform == "linux":  # processes that lose their parent become children of this one
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def run(self, command: Sequence[str]) -> int:
        """Runs a command and, once it has ended or this process was told to stop, ends all that it started.

        Args:
            command: Program and arguments.

        Returns:
            Its exit status; 128 and the number of the signal where one ended it.
        """
        for number in _STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._note_signal)
        die_with_parent(number=signal.SIGTERM)
        child = subprocess.Popen(command, preexec_fn=_end_with_supervisor)
        while child.poll() is None and not self.stopped_by:
            self._find_processes()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_SECONDS)
        self._end_processes(child)
        if self.stopped_by:
            return 128 + self.stopped_by
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def _note_signal(self, number: int, *_) -> None:
        if not self.stopped_by:
            self.stopped_by = number
            name = signal.Signals(number).name
            print(f"stopping ({name}); finished work is kept, run again to go on", file=sys.stderr)

    def _find_processes(self) -> list[psutil.Process]:
        """All processes of the command that are alive."""
        with contextlib.suppress(psutil.Error):
            self._processes |= set(psutil.Process().children(recursive=True))
        self._processes = {process for process in self._processes if _is_alive(process)}
        return list(self._processes)

    def _end_processes(self, child: subprocess.Popen) -> None:
        """Ends all processes that a command left running: by a signal first, by SIGKILL after GRACE_SECONDS.

        Args:
            child: The process of the command itself.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        # A terminal sends Ctrl-C to all of them itself, so wait a second before the first signal.
        first_signal_at = time.monotonic() + (1.0 if self.stopped_by == signal.SIGINT else 0.0)
        last_signal: dict[psutil.Process, float] = {}
        while True:
            processes = self._find_processes()
            child.poll()  # or it would stay, dead
            now = time.monotonic()
            if not processes:
                return
            for process in processes:
                was_signalled = now - last_signal.get(process, -_REPEAT_SECONDS) < _REPEAT_SECONDS
                if now > deadline:
                    number = signal.SIGKILL
                elif now < first_signal_at or was_signalled:
                    continue
                else:
                    number = _choose_signal(process)
                    last_signal[process] = now
                if number:
                    with contextlib.suppress(psutil.Error):
                        process.send_signal(number)
            time.sleep(0.05)


def _end_with_supervisor() -> None:
    """Runs in the child, before its command."""
    if sys.platform == "linux":
        die_with_parent(number=signal.SIGTERM)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _choose_signal(process: psutil.Process) -> int:
    """Chooses the signal that lets a process clean up before it ends.

    Returns:
        SIGINT for DVC, SIGTERM for most others; 0 for a process that ends by itself once its children have.
    """
    try:
        command = process.cmdline()
        leads_own_group = os.getpgid(process.pid) != os.getpgid(0)
    except (psutil.Error, OSError):
        return 0
    name = os.path.basename(command[0]) if command else ""
    # A kernel is ended by its runner, and a tracker ends once it has cleared shared memory.
    if leads_own_group or "resource_tracker" in " ".join(command):
        return 0
    if "make" in name:  # it would pass the signal on to a DVC that has locks to give back
        return 0
    if "dvc" in command and name not in _SHELLS:
        return signal.SIGINT  # gives its locks back, which it does not do at SIGTERM
    return signal.SIGTERM


def _replace_home() -> None:
    """Gives DVC a folder for its settings where it cannot use the home folder, at which it would stop."""
    home = os.path.expanduser("~")
    if not (os.path.isdir(home) and os.access(home, os.R_OK | os.W_OK | os.X_OK)):
        folder = str(Path.cwd().resolve() / ".dvc/tmp/home")
        os.environ.setdefault("DVC_GLOBAL_CONFIG_DIR", folder)
        os.environ.setdefault("XDG_CONFIG_HOME", folder)


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and end it with all that it started."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.experiment.supervise", description=main.__doc__
    )
    parser.add_argument(
        "--alone", action="store_true", help="wait for another command that works in this folder"
    )
    parser.add_argument("--name", default="", help="what somebody who waits reads")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("a command is missing")

    _replace_home()
    lock = str(Path.cwd().resolve() / LOCK)
    with contextlib.ExitStack() as stack:
        # A command that holds the lock starts others here; they inherit the mark and must not wait for it.
        if options.alone and os.environ.get(HELD) != lock:
            try:
                stack.enter_context(hold_lock(lock, options.name or " ".join(command)))
            except KeyboardInterrupt:
                return 128 + signal.SIGINT
            os.environ[HELD] = lock
        return Supervisor().run(command)


if __name__ == "__main__":
    sys.exit(main())
