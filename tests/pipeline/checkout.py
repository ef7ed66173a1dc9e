"""Clean copies of the working tree, and `make repro` in them as a user would type it.

A copy has the files that git tracks or would add, as they are now, and a link to this checkout's
virtual environment: nothing is installed a second time.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".lock", "__pycache__", ".ipynb_checkpoints", ".*_cache", ".hypothesis"
)
MADE = ("data/notebooks", "data/models", "data/zoo", "data/settings.json", "reports")
WALL_TIME = ("reports/timings", "reports/failed")  # two runs differ here, and may
INHERITED = (
    "PROFILE",
    "MAKE",
    "MFLAGS",
    "DVC_",
    "GIT_",
    "PYTEST",
    "BENCH_",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Checkout:
    """A copy of the project; `command` and `repro` are what one types in its folder."""

    folder: Path

    def start(self, *command: str, **options) -> subprocess.Popen:
        """A command in a session of its own, without what `make` or pytest left in the environment."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(INHERITED)
        }
        environment["PATH"] = f"{self.folder}/.venv/bin{os.pathsep}{environment['PATH']}"
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True, **options
        )

    def run(self, *command: str) -> str:
        """What a command prints; the test fails with it if the command does."""
        process = self.start(*command)
        printed, _ = process.communicate()
        assert process.returncode == 0, (
            f"{' '.join(command)} ended with {process.returncode}:\n{printed[-6000:]}"
        )
        return printed

    def repro(self, *lessons: str) -> str:
        return self.run(*repro_command(*lessons))

    def dvc(self, *arguments: str) -> str:
        return self.run("python", "-m", "dvc", *arguments)

    def hashes(self, *places: str) -> dict[str, str]:
        """SHA-256 of every file that the pipeline makes, wall times aside."""
        files = [f for place in places or MADE for f in files_at(self.folder / place)]
        names = {file.relative_to(self.folder).as_posix(): file for file in files}
        return {
            name: hashlib.sha256(file.read_bytes()).hexdigest()
            for name, file in sorted(names.items())
            if not name.startswith(WALL_TIME)
        }


def repro_command(*lessons: str) -> tuple[str, ...]:
    # the environment was set up by this checkout: `make` must not look whether it is up to date
    return (
        "make",
        "repro",
        "PROFILE=smoke",
        f"LESSON={' '.join(lessons)}",
        "--old-file=.venv/.stamp",
    )


def files_at(place: Path) -> Iterator[Path]:
    return filter(Path.is_file, [place] if place.is_file() else place.rglob("*"))


def listed_by_git() -> list[str] | None:
    """Files that are tracked or would be added and exist; None without git."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def snapshot(folder: Path) -> None:
    """The working tree as it is now; with git it has the commit, and the changes since as changes."""
    names = listed_by_git()
    if names is None:
        shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    else:
        subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
        for gone in set(files_at(folder)) - {folder / name for name in names}:
            if ".git" not in gone.relative_to(folder).parts:
                gone.unlink()
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))


@dataclass(frozen=True)
class Built:
    """A copy in which the pipeline ran: what it printed, how long it took beside the other, what it made."""

    checkout: Checkout
    printed: str
    seconds: float
    hashes: dict[str, str]


def build(checkout: Checkout, say: Say) -> Built:
    say(f"make repro PROFILE=smoke, in the {checkout.folder.name} copy")
    started = time.monotonic()
    printed = checkout.repro()
    seconds = time.monotonic() - started
    say(f"the {checkout.folder.name} copy took {seconds:.0f} s")
    return Built(checkout, printed, seconds, checkout.hashes())
