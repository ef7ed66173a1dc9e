"""Who holds a lock keeps other processes out, and nobody after it."""

import subprocess
import sys
import time

import pytest

from lib.experiment.file_lock import LockedError, hold_lock, hold_lock_alone

HOLDER = """
import sys, time
from lib.experiment.file_lock import hold_lock
with hold_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def start_holder(path, seconds):
    command = [sys.executable, "-c", HOLDER, str(path), str(seconds)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_lock_is_waited_for_until_its_holder_is_through(tmp_path):
    holder = start_holder(tmp_path / "made/later.lock", seconds=0.5)
    started = time.monotonic()
    with hold_lock(tmp_path / "made/later.lock"):
        waited = time.monotonic() - started
    assert holder.wait(10) == 0 and waited > 0.3


def test_a_holder_that_is_killed_leaves_no_lock(tmp_path):
    holder = start_holder(tmp_path / "a.lock", seconds=60)
    holder.kill()
    holder.wait()
    started = time.monotonic()
    with hold_lock(tmp_path / "a.lock"):
        assert time.monotonic() - started < 10


def test_a_lock_that_is_to_be_held_alone_is_refused_at_once_while_another_process_holds_it(
    tmp_path,
):
    holder = start_holder(tmp_path / "run.lock", seconds=60)
    started = time.monotonic()
    with (
        pytest.raises(LockedError, match=f"another process works in {tmp_path}"),
        hold_lock_alone(tmp_path / "run.lock"),
    ):
        pass
    assert time.monotonic() - started < 10
    holder.kill()
    holder.wait()
    with hold_lock_alone(tmp_path / "run.lock"):
        pass


def test_who_waits_reads_for_whom_and_how_long(tmp_path, capfd):
    holder = start_holder(tmp_path / "making.lock", seconds=2)
    with hold_lock(tmp_path / "making.lock", "make the zoo"):
        pass
    line = capfd.readouterr().err
    # A long command is shortened.
    assert line.startswith("waiting for -c /")
    assert f"(process {holder.pid}, for 0 min) to end, " in line and line.count("\n") == 1
    assert holder.wait(10) == 0
    assert '"name": "make the zoo"' in (tmp_path / "making.lock").read_text()


def test_who_waits_in_a_lesson_says_so_on_the_terminal_and_not_on_its_page(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setenv("BENCH_PROGRESS", str(tmp_path / "progress.json"))
    holder = start_holder(tmp_path / "making.lock", seconds=1.5)
    with hold_lock(tmp_path / "making.lock"):
        pass
    assert holder.wait(10) == 0 and capfd.readouterr() == ("", "")
    assert "waiting for " in (tmp_path / "progress.json.reasons").read_text()


def test_a_wait_of_a_moment_is_not_worth_a_line(tmp_path, capfd):
    holder = start_holder(tmp_path / "making.lock", seconds=0.1)
    with hold_lock(tmp_path / "making.lock"):
        pass
    assert holder.wait(10) == 0 and capfd.readouterr().err == ""
