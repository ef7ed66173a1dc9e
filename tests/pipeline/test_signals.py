"""`make repro` that is told to stop, and two at once, in a small pipeline: one lesson, whose cell sleeps in a sweep."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from lib.experiment import leftovers

from .checkout import ROOT, Checkout
from .kills import PROC, at_work

pytestmark = pytest.mark.skipif(not PROC.exists(), reason="finds processes through /proc")

STAGES = """
stages:
  settings:
    cmd: "mkdir -p data && echo '{\\"profile\\": \\"smoke\\"}' > data/settings.json"
  glossary:
    cmd: "true"
  00_tiny:
    cmd: python -m lib.reports.execute 00_tiny
    params:
      - data/settings.json: [profile]
    outs:
      - reports/notebooks/00_tiny.ipynb: {persist: true, cache: false}
      - reports/00_tiny.html: {persist: true, cache: false}
"""
SWEEP = """
import os
from pathlib import Path
from lib.experiment import sweep
sweep.run(naps.nap, [sweep.Job(f"nap {n}", {"n": n}) for n in range(2)], "data/runs/naps", workers=2)
"""
NAPS = """
import os, time
from pathlib import Path

def nap(job, folder, progress):
    Path(f"mark{job.settings['n']}").write_text(f"{os.getppid()} {os.environ['TMPDIR']}")
    while not Path("wake").exists():
        time.sleep(0.1)
"""


@pytest.fixture
def small(tmp_path_factory) -> Iterator[Checkout]:
    """A copy of the project's code and Makefile around one lesson."""
    folder = tmp_path_factory.mktemp("small")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("lib", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements.lock").touch()
    (folder / ".venv").symlink_to(Path(sys.prefix))
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (folder / "dvc.yaml").write_text(STAGES)
    (folder / "naps.py").write_text(NAPS)
    cells = [
        new_code_cell("profile = None", metadata={"tags": ["parameters"]}, id="a"),
        new_code_cell("import naps", id="b"),
        new_code_cell(SWEEP, id="c"),
    ]
    (folder / "data/notebooks").mkdir(parents=True)
    (folder / "notebooks").mkdir()
    for place in ("notebooks", "data/notebooks"):
        nbformat.write(new_notebook(cells=cells), folder / place / "00_tiny.ipynb")
    checkout = Checkout(folder)
    yield checkout
    (folder / "wake").touch()  # whoever is still at work ends
    shutil.rmtree(folder, ignore_errors=True)


COMMAND = (
    "make",
    "repro",
    "LESSON=00_tiny",
    "--old-file=.venv/.stamp",
    "--old-file=requirements.lock",
)


def start_until_at_work(checkout: Checkout) -> tuple[subprocess.Popen, int, Path]:
    """`make repro` whose lesson is in its sweep; with the kernel's process id and the run's scratch folder."""
    process = checkout.start(*COMMAND)
    marks = [checkout.folder / f"mark{n}" for n in range(2)]
    deadline = time.monotonic() + 240
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert process.poll() is None, process.communicate()[0][-4000:]
        assert time.monotonic() < deadline, at_work(checkout.folder)
        time.sleep(0.1)
    kernel, scratch = marks[0].read_text().split(maxsplit=1)
    return process, int(kernel), Path(scratch)


def is_anybody_at_work(checkout: Checkout, seconds: float) -> list[str]:
    """Whoever still works in the copy after some seconds."""
    deadline = time.monotonic() + seconds
    while (working := at_work(checkout.folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return working


@pytest.mark.parametrize("whom", ["make", "group", "Ctrl-C"])
def test_a_signal_to_make_ends_all_of_it_and_leaves_nothing(small, whom):
    process, kernel, scratch = start_until_at_work(small)
    assert scratch.is_dir() and leftovers.list_shared_memory(kernel)
    if whom == "make":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGINT if whom == "Ctrl-C" else signal.SIGTERM)
    printed, _ = process.communicate(timeout=60)
    assert is_anybody_at_work(small, 15) == [], printed
    assert not scratch.exists() and leftovers.list_shared_memory(kernel) == []
    assert list((small.folder / "data/runs/processes").iterdir()) == []
    # Nothing has to be mended, and what was not finished is done now.
    (small.folder / "wake").touch()
    assert "mended" not in small.run(*COMMAND) or whom == "group"
    assert (small.folder / "reports/00_tiny.html").exists()


def test_a_kill_of_all_is_cleared_up_by_the_next_run(small):
    process, kernel, scratch = start_until_at_work(small)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert is_anybody_at_work(small, 20) == []
    (small.folder / "wake").touch()
    small.run(*COMMAND)
    assert not scratch.exists() and leftovers.list_shared_memory(kernel) == []


def test_two_runs_at_once_wait_for_each_other_and_say_so(small):
    first, _, _ = start_until_at_work(small)
    second = small.start(*COMMAND)
    line = second.stdout.readline()
    assert line.startswith("waiting for make repro (process ") and "Ctrl-C stops" in line
    cleaning = small.start("make", "clean")
    assert cleaning.stdout.readline().startswith("waiting for make repro (process ")
    cleaning.terminate()
    cleaning.communicate(timeout=60)
    (small.folder / "wake").touch()
    for process in (first, second):
        printed, _ = process.communicate(timeout=240)
        assert process.returncode == 0, printed[-4000:]
    assert (small.folder / "reports/00_tiny.html").exists()


def test_a_damaged_cache_of_dvc_is_named_and_mended_and_a_home_that_is_none_stops_nobody(small):
    (small.folder / "wake").touch()
    small.run(*COMMAND)
    cache_folder = small.run(
        "python", "-c", "from dvc.repo import Repo; print(Repo('.').site_cache_dir)"
    ).strip()
    databases = sorted(Path(cache_folder).rglob("cache.db"))
    assert databases
    for database in databases:
        for companion in ("-wal", "-shm"):
            Path(f"{database}{companion}").unlink(missing_ok=True)
        database.write_bytes(bytes(range(256)) * 100)
    (small.folder / "no home").write_text("")
    printed = small.run("env", f"HOME={small.folder}/no home", *COMMAND)
    for database in databases:
        assert f"mended: {database}, where DVC remembers hashes, is damaged" in printed
    assert "reports: " in printed
