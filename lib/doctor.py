"""What is wrong with this checkout, and what to do about it: `make doctor`.

Looks for what stops people: no or another Python, packages missing, a notebook kernel that cannot
start, locks whose owner is dead, files of the pipeline that a crash or a merge has broken, a full
disk. Uses the standard library alone, because it must run where nothing else does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("dvc", "papermill", "ipykernel", "torch", "stable_baselines3", "minigrid", "pydantic")
FREE = 5  # GB that an installation and a run want


@dataclass(frozen=True)
class Finding:
    """problem and remedy in words; fix: what `--fix` does, where that is safe."""

    problem: str
    remedy: str
    fix: Callable[[], None] | None = None


def python(root: Path) -> Iterator[Finding]:
    """The interpreter and its packages."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs on whatever python there is
        found = ".".join(map(str, sys.version_info[:2]))
        yield Finding(f"this is Python {found}, 3.11 or newer is needed", "make setup PYTHON=python3.12")
    if not (root / ".venv/bin/python").exists():
        yield Finding("there is no .venv", "make setup")
        return
    if Path(sys.prefix).resolve() != (root / ".venv").resolve():
        return  # asked about another interpreter: its packages say nothing
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding(f".venv lacks {', '.join(missing)}", "rm -rf .venv && make setup")
    if not (root / ".venv/share/jupyter/kernels/python3/kernel.json").exists():
        yield Finding("JupyterLab's kernel is missing in .venv", "rm -rf .venv && make setup")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def locks(root: Path) -> Iterator[Finding]:
    """DVC's locks: broken files, and owners that are dead or still at work."""
    rwlock = root / ".dvc/tmp/rwlock"
    if not rwlock.exists():
        return
    try:
        owners = _owners(json.loads(rwlock.read_text() or "{}"))
    except (ValueError, AttributeError, TypeError, KeyError):
        yield Finding(".dvc/tmp/rwlock is not readable (a crash while it was written)", f"rm {rwlock}", rwlock.unlink)
        return
    dead = sorted({pid for pid in owners if not _alive(pid)})
    if dead and len(dead) == len(set(owners)):
        yield Finding(f"locks of processes that are gone: {dead}", f"rm {rwlock}", rwlock.unlink)
    for pid in sorted(set(owners) - set(dead)):
        yield Finding(f"process {pid} is running the pipeline", f"wait for it, or stop it with `kill {pid}`")


def _owners(content: dict) -> list[int]:
    """Process ids in {path: {"write": {"pid": ..}, "read": [{"pid": ..}]}}."""
    pids = []
    for entry in content.values():
        holders = [entry["write"]] if entry.get("write") else []
        pids += [int(holder["pid"]) for holder in holders + list(entry.get("read") or [])]
    return pids


def pipeline_files(root: Path) -> Iterator[Finding]:
    """Files of the pipeline that a merge or a crash has broken."""
    for name in ("dvc.lock", "dvc.yaml", "params.yaml"):
        path = root / name
        if not path.exists():
            if name != "dvc.lock":
                yield Finding(f"{name} is missing", f"git checkout {name}")
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        remedy = f"git checkout {name}" + (", or rm it to rebuild everything" if name == "dvc.lock" else "")
        if re.search(r"^(<<<<<<<|>>>>>>>|=======$)", text, re.M):
            yield Finding(f"{name} holds merge conflict marks", remedy)
        elif "\x00" in text or "\ufffd" in text or not _parses(text):
            yield Finding(f"{name} is not valid YAML", remedy)


def _parses(text: str) -> bool:
    if not text.strip():
        return False
    try:
        from ruamel.yaml import YAML
    except ImportError:  # no .venv yet: the first line has to do
        return re.match(r"(#.*\n)*\s*[\w.]+:", text) is not None
    try:
        return isinstance(YAML(typ="safe", pure=True).load(text), dict)
    except Exception:  # any way in which a parser can fail means the same here
        return False


def orphans(root: Path) -> Iterator[Finding]:
    """Kernels of this checkout whose runner is gone (Linux only: reads /proc)."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            place = (entry / "cwd").resolve()
        except (OSError, ValueError, IndexError):
            continue
        if b"lib.kernel" in command and parent == 1 and place == root:
            yield Finding(f"kernel {entry.name} has lost its runner", f"kill {entry.name}")


def disk(root: Path) -> Iterator[Finding]:
    """Room for the installation and a run."""
    free = shutil.disk_usage(root).free / 1e9
    if free < FREE:
        yield Finding(f"only {free:.1f} GB are free here", f"make room: {FREE} GB are wanted")


CHECKS = (python, locks, pipeline_files, orphans, disk)


def examine(root: Path = ROOT) -> list[Finding]:
    """Everything that is wrong, in the order in which it should be mended."""
    return [finding for check in CHECKS for finding in check(root)]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print findings with remedies; 0 if there are none (or all were fixed), 1 otherwise."""
    parser = argparse.ArgumentParser(prog="make doctor", description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="apply the remedies that are safe: remove dead locks")
    parser.add_argument("--quiet", action="store_true", help="say nothing; exit 0 whatever is found")
    options = parser.parse_args(arguments)
    left = []
    for finding in examine(root):
        if options.fix and finding.fix:
            finding.fix()
        else:
            left.append(finding)
    if options.quiet:
        return 0
    for finding in left:
        print(f"- {finding.problem}\n  remedy: {finding.remedy}")
    print("nothing wrong was found" if not left else f"{len(left)} to mend")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
