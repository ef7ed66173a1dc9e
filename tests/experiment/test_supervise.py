"""A command of the Makefile ends with all that it started, and works alone in its folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPERVISE = [sys.executable, "-m", "lib.experiment.supervise"]
# Starts a process that starts another, of which the last clears up when it is told to stop.
CLEARS_UP = """
import os, pathlib, signal, sys, time
mark = pathlib.Path(sys.argv[1])
def stop(*_):
    mark.with_suffix(".clear").write_text("cleared up")
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
mark.write_text(str(os.getpid()))
time.sleep(600)
"""
STUBBORN = CLEARS_UP.replace("sys.exit(1)", "pass")


def start(tmp_path: Path, *arguments: str, **options) -> subprocess.Popen:
    """A supervisor whose folder is `tmp_path`."""
    environment = {name: value for name, value in os.environ.items() if name != "BENCH_ALONE"}
    return subprocess.Popen(
        [*SUPERVISE, *arguments],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def start_nested(
    tmp_path: Path, script: str = CLEARS_UP, **options
) -> tuple[subprocess.Popen, int]:
    """A supervisor of a shell in a shell that runs a script, and the script's process id."""
    (tmp_path / "script.py").write_text(script)
    command = f"sh -c '{sys.executable} script.py mark; true'; true"
    supervisor = start(tmp_path, "--", "sh", "-c", command, **options)
    return supervisor, int(wait_for(tmp_path / "mark"))


def wait_for(path: Path, seconds: float = 60.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path.name} did not appear")


def is_gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("command", [["true"], ["sh", "-c", "exit 7"], ["sh", "-c", "kill -9 $$"]])
def test_a_command_that_ends_alone_ends_with_its_own_status(tmp_path, command):
    supervisor = start(tmp_path, "--", *command)
    expected = subprocess.run(command, check=False).returncode
    assert supervisor.wait(60) == (expected if expected >= 0 else 128 - expected)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_what_the_command_started_and_lets_it_clear_up(tmp_path, number):
    supervisor, pid = start_nested(tmp_path)
    began = time.monotonic()
    supervisor.send_signal(number)
    printed, _ = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 128 + number and time.monotonic() - began < 10
    assert is_gone(pid) and (tmp_path / "mark.clear").exists()
    assert f"stopping ({number.name}); finished work is kept" in printed


def test_a_signal_to_the_whole_group_is_one_signal(tmp_path):
    supervisor, pid = start_nested(tmp_path, start_new_session=True)
    os.killpg(supervisor.pid, signal.SIGTERM)
    printed, _ = supervisor.communicate(timeout=60)
    assert is_gone(pid) and (tmp_path / "mark.clear").exists() and printed.count("stopping") == 1


def test_a_process_that_does_not_end_is_killed(tmp_path, monkeypatch):
    short = tmp_path / "short.py"
    short.write_text(
        "import sys\nfrom lib.experiment import supervise\n"
        "supervise.GRACE_SECONDS = 1.0\nsys.exit(supervise.main(sys.argv[1:]))\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "SUPERVISE", [sys.executable, str(short)])
    supervisor, pid = start_nested(tmp_path, STUBBORN)
    supervisor.terminate()
    assert supervisor.wait(30) == 143 and is_gone(pid)
    assert (tmp_path / "mark.clear").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's signal at a parent's death")
def test_a_supervisor_that_is_killed_leaves_nobody(tmp_path):
    supervisor = start(tmp_path, "--", sys.executable, "-c", CLEARS_UP, "mark")
    pid = int(wait_for(tmp_path / "mark"))
    supervisor.kill()
    supervisor.communicate(timeout=60)
    assert is_gone(pid) and (tmp_path / "mark.clear").exists()


def test_who_comes_second_waits_and_reads_for_whom_and_how_long(tmp_path):
    first = start(
        tmp_path, "--alone", "--name", "make repro", "--", "sh", "-c", "echo > in; sleep 3"
    )
    wait_for(tmp_path / "in")
    second = start(tmp_path, "--alone", "--name", "make clean", "--", "rm", "in")
    printed, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and first.poll() == 0 and not (tmp_path / "in").exists()
    line = f"waiting for make repro (process {first.pid}, for 0 min) to end, "
    assert printed.startswith(line) and "Ctrl-C stops the waiting" in printed
    first.communicate()


def test_who_waits_can_be_stopped(tmp_path):
    first = start(tmp_path, "--alone", "--", "sh", "-c", "echo > in; sleep 600")
    wait_for(tmp_path / "in")
    second = start(tmp_path, "--alone", "--", "true")
    assert second.stdout.readline().startswith("waiting for ")
    second.send_signal(signal.SIGINT)
    assert second.wait(20) == 130 and first.poll() is None
    first.terminate()
    first.communicate(timeout=60)


def test_a_command_inside_one_that_works_alone_does_not_wait_for_it(tmp_path):
    inner = [*SUPERVISE, "--alone", "--", "echo", "through"]
    outer = start(tmp_path, "--alone", "--", *inner)
    assert outer.communicate(timeout=60)[0] == "through\n" and outer.returncode == 0
