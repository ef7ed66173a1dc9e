"""Who holds a lock keeps other processes out, and nobody after it."""

import subprocess
import sys
import time

from lib.experiment.file_lock import hold_lock

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
