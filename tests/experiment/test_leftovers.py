"""What a killed process left is removed by whoever comes next; what belongs to a living one stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib.experiment import leftovers

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import os, sys, time
from pathlib import Path
from lib.experiment import leftovers
folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
with leftovers.announce(folder, paths=[scratch]) as announce_process:
    announce_process(os.getpid())
    scratch.mkdir()
    (scratch / "a file").write_text("words")
    print("announced", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def start(tmp_path: Path, seconds: float) -> subprocess.Popen:
    """A process that announces the folder `scratch`, and makes it."""
    arguments = [str(tmp_path / "processes"), str(tmp_path / "scratch"), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "announced\n"
    return process


@pytest.fixture
def shared_memory(tmp_path, monkeypatch) -> Path:
    """A folder in the place of /dev/shm."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", folder)
    return folder


def test_what_a_killed_process_left_is_removed_with_its_announcement(tmp_path, shared_memory):
    process = start(tmp_path, 600)
    folder = shared_memory / f"joblib_memmapping_folder_{process.pid}_a_b"
    semaphore = shared_memory / f"sem.loky-{process.pid}-c"
    others = [shared_memory / f"sem.loky-{process.pid}1-c", shared_memory / f"psm_{process.pid}"]
    folder.mkdir()
    for path in (folder / "array.pkl", semaphore, *others):
        path.write_text("")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    removed = leftovers.remove(tmp_path / "processes")
    assert removed == [tmp_path / "scratch", folder, semaphore]
    assert not any(path.exists() for path in removed) and all(path.exists() for path in others)
    assert list((tmp_path / "processes").iterdir()) == []


def test_what_a_living_process_uses_is_left_alone(tmp_path, shared_memory):
    process = start(tmp_path, 600)
    assert leftovers.remove(tmp_path / "processes") == []
    assert (tmp_path / "scratch/a file").exists()
    process.kill()
    process.wait()
    assert leftovers.remove(tmp_path / "processes") == [tmp_path / "scratch"]


def test_a_process_that_ends_well_leaves_no_announcement(tmp_path):
    assert start(tmp_path, 0).wait(20) == 0
    assert list((tmp_path / "processes").iterdir()) == []
    assert leftovers.remove(tmp_path / "processes") == []


@pytest.mark.parametrize("text", ["", "{", '{"pids": ["x"], "paths": []}', "[]"])
def test_an_announcement_that_was_half_written_removes_nothing(tmp_path, text):
    (tmp_path / "1-a.json").write_text(text)
    assert leftovers.remove(tmp_path) == [] and list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_announced_the_work_is_done_all_the_same(tmp_path):
    (tmp_path / "a file").write_text("")
    with leftovers.announce(tmp_path / "a file/processes") as announce_process:
        announce_process(1)


SWEEPING = """
import sys, time
from pathlib import Path
import numpy as np
from lib.experiment import leftovers, sweep
leftovers.FOLDER = Path(sys.argv[1]) / "processes"

def nap(job, folder, progress):
    Path(sys.argv[1], f"mark{job.settings['n']}").write_text("at work")
    time.sleep(job.settings["seconds"])

def main(seconds):
    jobs = [sweep.Job(f"nap {n}", {"n": n, "seconds": seconds}) for n in range(2)]
    sweep.run(nap, jobs, Path(sys.argv[1]) / f"runs{seconds}", workers=2)

main(float(sys.argv[2]))
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks where Linux keeps shared memory")
def test_the_next_sweep_clears_the_shared_memory_of_one_that_was_killed_with_all_its_group(
    tmp_path,
):
    (tmp_path / "sweeping.py").write_text(SWEEPING)

    def start_sweep(seconds: float) -> subprocess.Popen:
        command = [sys.executable, str(tmp_path / "sweeping.py"), str(tmp_path), str(seconds)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
        return subprocess.Popen(command, env=environment, start_new_session=True)

    killed = start_sweep(600)
    deadline = time.monotonic() + 60
    while not (tmp_path / "mark1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert leftovers.list_shared_memory(killed.pid) != []
    following = start_sweep(0)
    assert following.wait(60) == 0
    for pid in (killed.pid, following.pid):
        assert leftovers.list_shared_memory(pid) == []
