"""Folders of any name: make works in them, or refuses before anything runs. A stand-in takes the place of Python."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What supervises a command is the real one, so that the command is run.
STAND_IN = f"""#!/bin/sh
if [ "$2" = lib.experiment.supervise ]; then
  PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"
fi
printf '%s|%s|%s\\n' "$PYTHONPATH" "${{PATH%%:*}}" "$*" >> told
"""


def made(folder: Path, *goals: str) -> subprocess.CompletedProcess:
    """`make` in a folder with the project's Makefile and a .venv of nothing but a script."""
    (folder / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    python = folder / ".venv/bin/python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    (folder / "requirements.lock").touch()
    # `make test` runs this file: what it hands to a make inside it (level, flags) is not for a make of its own.
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    command = ["make", *goals, "--old-file=requirements.lock"]
    return subprocess.run(
        command, cwd=folder, env=alone, capture_output=True, text=True, timeout=60
    )


NAMES = (
    "with  blanks",
    "it's",
    "\u00fcn\u00ef \u2192 \u6587",
    "&",
    "(a, b)",
    "a*b?",
    "100%",
    "a=b",
    "-n",
    "#1",
    "~",
    "[x]",
    250 * "x",
)


@pytest.mark.parametrize("name", NAMES)
def test_make_works_in_a_folder_of_any_name(tmp_path, name):
    folder = tmp_path / name
    done = made(folder, "repro", "LESSON=00_tour")
    assert done.returncode == 0, done.stderr
    lines = (folder / "told").read_text().splitlines()
    asked = [line for line in lines if "dvc repro 00_tour" in line]
    assert asked == [f"{folder}|{folder}/.venv/bin|-m dvc repro 00_tour glossary"]
    assert done.stdout.splitlines()[-1] == f"reports: {folder}/reports/00_tour.html"


@pytest.mark.parametrize(
    "name", ["$(touch ran)", "`touch ran`", "$HOME", "a:b", 'a"b', "a\\b", "a;touch ran"]
)
@pytest.mark.parametrize("goal", ["repro", "help"])
def test_make_refuses_a_folder_that_no_search_path_can_hold(tmp_path, name, goal):
    folder = tmp_path / name
    done = made(folder, goal)
    assert done.returncode != 0 and "please rename it" in done.stderr
    assert not (folder / "told").exists() and not (folder / "ran").exists()


def test_who_replicates_reads_what_came_of_it_on_the_pages(tmp_path):
    assert made(tmp_path, "replicate", "LESSONS=05").returncode == 0
    asked = [line.split("|")[-1] for line in (tmp_path / "told").read_text().splitlines()]
    pages = "-m dvc repro --quiet --single-item --force 10_scoreboard index"
    assert asked[-2:] == ["-m lib replicate 05", pages]
