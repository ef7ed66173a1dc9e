"""What is wrong with this checkout, and what to do about it: `make doctor`.

Looks for what stops people: no or another Python, packages missing, a notebook kernel that cannot
start, locks whose owner is dead, files of the pipeline that a crash or a merge has broken, kernels
without a runner, a full disk; and for jobs of an earlier version. `--fix` applies the remedies that lose
nothing. Uses the standard library alone and old syntax, because it must run where nothing else does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Callable, Iterator, Optional  # noqa: UP035 - old interpreters have no others

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
FREE = 5  # GB that an installation and a run want
NAMED = 5  # packages named before the rest is counted
_CONFLICT = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
_ALIAS = re.compile(
    r"^[^#'\"\n]*[\s\[{,:]\*\w+\s*[,\]}:]?\s*(#.*)?$", re.MULTILINE
)  # nobody writes them; a few can mean gigabytes
_EARLIER_NAME = re.compile(
    r".+-[0-9a-f]{16}"
)  # label and hash of code; a job is now named by its key alone
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)\s*$")


@dataclass(frozen=True)
class Finding:
    """problem and remedy in words; fix: what `--fix` does, where that is safe.

    harmless: nothing is broken; it is said in quiet runs too, and not counted.
    """

    problem: str
    remedy: str
    fix: Optional[Callable[[], object]] = None  # noqa: UP045
    harmless: bool = False


def interpreter(root: Path) -> Iterator[Finding]:
    """A Python that is new enough, and a .venv made with it."""
    python = root / ".venv/bin/python"
    if not os.path.lexists(python):
        if sys.version_info < OLDEST:
            version = ".".join(map(str, sys.version_info[:2]))
            yield Finding(
                f"python3 is Python {version}, 3.11 or newer is needed",
                "install one, then: make repro PYTHON=python3.12",
            )
        yield Finding("there is no .venv", "make repro (or make test); either installs it")
        return
    if not python.exists():
        yield Finding("the Python that .venv was made with is gone", "rm -rf .venv && make repro")
        return
    version = _venv_version(root)
    if version and version < OLDEST:
        shown = ".".join(map(str, version))
        yield Finding(
            f".venv is Python {shown}, 3.11 or newer is needed",
            "rm -rf .venv && make repro PYTHON=python3.12",
        )


def _venv_version(root: Path) -> tuple:
    config = root / ".venv/pyvenv.cfg"
    found = (
        re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", config.read_text(), re.M)
        if config.exists()
        else None
    )
    return tuple(map(int, found.groups())) if found else ()


def packages(root: Path) -> Iterator[Finding]:
    """Everything that the lock pins, in .venv, and the kernel that JupyterLab starts."""
    places = [str(place) for place in (root / ".venv/lib").glob("python3*/site-packages")]
    lock = root / "requirements.lock"
    if not places or not lock.exists():
        return
    there = {
        _canonical(d.metadata["Name"]): d.version
        for d in metadata.distributions(path=places)
        if d.metadata["Name"]
    }
    pins = filter(
        None, map(_PIN.match, lock.read_text(encoding="utf-8").splitlines())
    )  # lines for all platforms
    missing, other = [], []
    for name, version in (pin.groups() for pin in pins):
        found = there.get(_canonical(name))
        if found is None:
            missing.append(name)
        elif found.split("+")[0] != version:  # a build tag such as +cpu is the same release
            other.append(f"{name} {found} instead of {version}")
    again = "touch requirements.lock && make repro"
    if missing:
        yield Finding(f".venv lacks {_some(missing)}", again)
    if other:
        yield Finding(f".venv has other versions than the lock: {_some(other)}", again)
    if not (root / ".venv/share/jupyter/kernels/python3/kernel.json").exists():
        yield Finding(
            "JupyterLab's kernel is missing in .venv",
            ".venv/bin/python -m ipykernel install --sys-prefix",
        )


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _some(names: list) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def locks(root: Path) -> Iterator[Finding]:
    """DVC's locks: broken files, owners that are dead or still at work."""
    path = root / ".dvc/tmp/rwlock"
    if not path.exists():
        return
    try:
        owners = _owners(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        yield Finding(f".dvc/tmp/rwlock cannot be read ({error.strerror})", "rm -r .dvc/tmp/rwlock")
        return
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError, OverflowError):
        yield Finding(
            ".dvc/tmp/rwlock is not readable: something was killed while it was written",
            "rm .dvc/tmp/rwlock",
            path.unlink,
        )
        return
    working = {pid for pid in owners if _is_dvc(pid)}
    if owners and not working:
        gone = ", ".join(map(str, sorted(owners)))
        yield Finding(
            f".dvc/tmp/rwlock is held by processes that are gone ({gone})",
            "rm .dvc/tmp/rwlock",
            path.unlink,
        )
    for pid in sorted(working):
        yield Finding(
            f"process {pid} is running the pipeline", f"wait for it, or stop it: kill {pid}"
        )


def _owners(content: dict) -> set:
    """Process ids in {"write": {path: {"pid", "cmd"}}, "read": {path: [{"pid", "cmd"}]}}."""
    holders = list(content.get("write", {}).values())
    holders += [holder for readers in content.get("read", {}).values() for holder in readers]
    return {int(holder["pid"]) for holder in holders}


def _is_dvc(pid: int) -> bool:
    """Whether a process lives and is DVC: numbers are given again after a while."""
    command = next((args for other, _, args in _processes() if other == pid), None)
    return command is not None and "dvc" in command


def _processes() -> list:
    """(pid, parent, command line) of all processes; empty where there is no `ps`."""
    try:
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,ppid=,args="],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.CalledProcessError):
        return _from_proc()
    fields = (line.split(None, 2) for line in listed.splitlines())
    return [(int(field[0]), int(field[1]), field[2]) for field in fields if len(field) == 3]


def _from_proc() -> list:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
        found.append((int(entry.name), parent, command))
    return found


def dvc_caches(root: Path) -> Iterator[Finding]:
    """What DVC remembers of hashes, outside this folder; of a damaged file its own message says no name."""
    if not (root / ".dvc").is_dir():
        return
    try:
        from dvc.repo import Repo
    except ImportError:
        return
    repo = Repo.__new__(Repo)
    with contextlib.suppress(Exception):  # a damaged cache stops it, when it knows the folder
        repo.__init__(str(root))
    folder = getattr(repo, "__dict__", {}).get("site_cache_dir")
    for path in sorted(Path(folder).rglob("cache.db")) if folder else []:
        reason = _find_damage(path)
        if reason:
            names = [path, Path(str(path) + "-wal"), Path(str(path) + "-shm")]
            yield Finding(
                f"{path}, where DVC remembers hashes, is damaged ({reason})",
                f"rm {path}*; DVC reads the files again",
                lambda names=names: [name.unlink() for name in names if name.exists()],
            )


def _find_damage(path: Path) -> str:
    """What is wrong with a SQLite file; empty where nothing is, or where another process uses it."""
    try:
        connection = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True)
        try:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if answer == "ok" else "pages are unreadable"


def pipeline_files(root: Path) -> Iterator[Finding]:
    """Files of the pipeline that a merge or a crash has broken."""
    for name in ("dvc.lock", "dvc.yaml", "params.yaml"):
        path = root / name
        if not path.exists():
            if name != "dvc.lock":  # the first run writes it
                yield Finding(f"{name} is missing", f"git checkout {name}")
            continue
        remedy = f"git checkout {name}"
        try:
            text = path.read_bytes().decode("utf-8", errors="replace")
        except OSError as error:
            yield Finding(f"{name} cannot be read ({error.strerror})", remedy)
            continue
        if _CONFLICT.search(text):
            rebuild = (
                " (or git rm --cached and rm it: everything is rebuilt)"
                if name == "dvc.lock"
                else ""
            )
            yield Finding(
                f"{name} holds marks of a merge conflict",
                f"settle the conflict, or {remedy}{rebuild}",
            )
        elif wrong := _wrong(name, text):
            aside = root / "dvc.lock.broken"
            fix = (
                (lambda path=path, aside=aside: path.replace(aside)) if name == "dvc.lock" else None
            )
            other = ", or mv dvc.lock dvc.lock.broken: what it knew is rebuilt" if fix else ""
            yield Finding(f"{name} is {wrong}", remedy + other, fix)


def _wrong(name: str, text: str) -> str:
    """What is wrong with a YAML mapping, judged by its lines where no parser is installed; empty where nothing is."""
    broken = "not valid YAML"
    if not text.strip() or "\0" in text or "\ufffd" in text or _ALIAS.search(text):
        return broken
    try:
        from ruamel.yaml import YAML
    except ImportError:
        lines = [
            line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
        fine = (
            text.endswith("\n")
            and all(re.match(r"\s*(- )?\s*[^\s].*", line) for line in lines)
            and ":" in lines[0]
        )
        return "" if fine else broken
    try:
        # The parser in Python: the one in C ends the process where a broken file nests too deep.
        content = YAML(typ="safe", pure=True).load(text)
    except Exception:  # any way in which a parser can fail means the same here
        return broken
    if not isinstance(content, dict):
        return broken
    return "cut off" if name == "dvc.lock" and not _is_whole(content) else ""


def _is_whole(content: dict) -> bool:
    """Whether DVC would take this as its lock: a file that is cut off between two lines is valid YAML all the same."""
    try:
        from dvc.schema import COMPILED_LOCKFILE_SCHEMA

        COMPILED_LOCKFILE_SCHEMA(content)
    except ImportError:
        return True
    except Exception:  # likewise
        return False
    return True


def version_control(root: Path) -> Iterator[Finding]:
    """DVC wants git or to be told that there is none, as in a downloaded archive."""
    local = root / ".dvc/config.local"
    told = local.exists() and re.search(r"no_scm\s*=\s*true", local.read_text(), re.IGNORECASE)
    git = (root / ".git").exists()
    if not git and not told:
        command = "dvc config --local core.no_scm true"
        yield Finding(
            "this folder is no git checkout, and DVC has not been told",
            command,
            lambda: _no_scm(local),
        )
    if git and told:
        yield Finding(
            "DVC has been told that there is no git, but there is",
            "dvc config --local -u core.no_scm",
        )


def _no_scm(local: Path) -> None:
    before = local.read_text() if local.exists() else ""
    local.write_text(before + "[core]\n    no_scm = true\n")


def orphans(root: Path) -> Iterator[Finding]:
    """Kernels of lessons whose runner is gone."""
    listed = _processes()
    commands = {pid: command for pid, _, command in listed}
    for pid, parent, command in listed:
        if "-m lib.reports.execute.kernel" not in command or "lib.reports.execute" in commands.get(
            parent, ""
        ):
            continue
        place = Path(
            f"/proc/{pid}/cwd"
        )  # where there is /proc, other checkouts are their own business
        if not os.path.lexists(place) or os.path.realpath(place) == str(root):
            yield Finding(f"kernel {pid} has lost its runner", f"kill -9 {pid}")


def earlier_jobs(root: Path) -> Iterator[Finding]:
    """Jobs that an earlier version of the project kept under names with a hash of its code, by folder of data/runs."""
    for folder in sorted(path for path in (root / "data/runs").glob("*") if path.is_dir()):
        sizes = [
            _size(Path(place))
            for place, _, files in os.walk(folder)
            if _is_earlier_job(Path(place), files)
        ]
        if sizes:
            name, megabytes = folder.relative_to(root).as_posix(), sum(sizes) / 1e6
            yield Finding(
                f"{name} has jobs under names of an earlier version: {len(sizes)} ({megabytes:.1f} MB)",
                "they cannot be used any more and are made again; `make clean` removes them with all that was made",
                harmless=True,
            )


def _is_earlier_job(folder: Path, files: list) -> bool:
    finished = "done.json" in files and "job.json" not in files
    return finished and _EARLIER_NAME.fullmatch(folder.name) is not None


def _size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def disk(root: Path) -> Iterator[Finding]:
    """Room for the installation and a run."""
    free = shutil.disk_usage(root).free / 1e9
    if free < FREE:
        yield Finding(
            f"only {free:.1f} GB are free on this disk", f"make room: {FREE} GB are wanted"
        )


CHECKS = (
    interpreter,
    packages,
    locks,
    pipeline_files,
    version_control,
    orphans,
    earlier_jobs,
    disk,
)


def examine(root: Path = ROOT, caches: bool = False) -> list:
    """Everything that is wrong, in the order in which it should be mended; caches: in DVC's too."""
    checks = (*CHECKS, dvc_caches) if caches else CHECKS
    return [finding for check in checks for finding in check(root)]


def main(arguments: Optional[list] = None, root: Path = ROOT) -> int:  # noqa: UP045
    """Print what is wrong, with remedies; 0 if there is nothing (left), 1 otherwise."""
    parser = argparse.ArgumentParser(prog="make doctor", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply the remedies that lose nothing, such as dead locks",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="tell only what was mended or is harmless; exit 0 whatever is left",
    )
    parser.add_argument(
        "--caches", action="store_true", help="look at DVC's caches in a quiet run too"
    )
    options = parser.parse_args(arguments)
    left = []
    for finding in examine(root, caches=options.caches or not options.quiet):
        if finding.harmless:
            print(f"{finding.problem}; {finding.remedy}")
        elif options.fix and finding.fix:
            finding.fix()
            print(f"mended: {finding.problem}")
        else:
            left.append(finding)
    if options.quiet:
        return 0
    for finding in left:
        print(f"- {finding.problem}\n  remedy: {finding.remedy}")
    print(f"{len(left)} to mend" if left else "nothing wrong was found")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
