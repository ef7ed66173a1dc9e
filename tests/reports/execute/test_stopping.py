"""However a run is stopped, its scratch folder and its shared memory go, at once or with the next run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .test_execute_lesson import ROOT, SWEEPING, asleep, gone, project, start, wait_for


def is_empty(folder: Path, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not list(folder.iterdir()):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_come_while_a_run_clears_up_change_nothing(tmp_path, scratch, first):
    runner, pids, _ = asleep(tmp_path, env={**os.environ, "TMPDIR": str(scratch)})
    for number in (first, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        runner.send_signal(number)
        time.sleep(0.2)
    printed, _ = runner.communicate(timeout=60)
    assert runner.returncode == 128 + first and "Traceback" not in printed
    assert all(gone(pid) for pid in pids) and is_empty(scratch)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's signal at a parent's death")
def test_a_run_whose_dvc_is_killed_clears_up(tmp_path, scratch):
    mark = tmp_path / "pids"
    sleeps = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    root = project(tmp_path / "p", sleeps)
    runner = f"{sys.executable} -m lib.reports.execute 00_tiny --root {root}; true"
    parent = subprocess.Popen(
        ["sh", "-c", runner],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch), "DVC_STAGE": "00_tiny"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    kernel = int(wait_for(mark))
    parent.kill()
    parent.wait()
    assert gone(kernel) and is_empty(scratch)


def test_what_a_killed_run_left_goes_with_the_next_one(tmp_path, scratch):
    mark = str(tmp_path / "pid")
    root = project(tmp_path / "p", SWEEPING.format(mark=mark))
    environment = {**os.environ, "TMPDIR": str(scratch)}
    killed = start(root, env=environment, start_new_session=True)
    for n in range(2):
        wait_for(Path(mark + str(n)))
    killed.kill()
    killed.communicate(timeout=60)
    left = [path.name for path in scratch.iterdir()]
    assert len(left) == 1
    following = start(root, env=environment)
    deadline = time.monotonic() + 60
    while (names := [path.name for path in scratch.iterdir()]) == left or len(names) != 1:
        assert time.monotonic() < deadline and following.poll() is None
        time.sleep(0.1)
    following.terminate()
    following.communicate(timeout=60)
    assert is_empty(scratch) and list((root / "data/runs/processes").iterdir()) == []
