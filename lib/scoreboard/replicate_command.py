"""`make replicate`: the lessons once more under another root seed and another class of processor instructions.

The work copy lies in `data/replica/seed-N` and is a project of its own (lib, notebooks, parameters, inputs, the same
lab zoo), so nothing of the first run is touched. DVC runs it: it knows what a lesson needs, and what is up to date when
an interrupted replication goes on. A lesson is compared as soon as it is done; `lib.scoreboard.replication` does that.
Left out: replies of endpoints, which are asked, and paid, anew.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lib.config import ROOT, from_yaml
from lib.experiment import artifacts
from lib.experiment.seeds import ROOT_SEED
from lib.scoreboard import lesson_metrics, replication

INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}
SKIPPED = ("11_bring_your_own",)  # one's own parts: nothing is claimed there
REPLACED = ("lib", "notebooks")  # whole folders; of data/ only what is there takes its place
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.sqlite*")
INTERRUPTED = 130


def lessons(root: Path, wanted: list[str]) -> list[str]:
    """Lessons by the beginnings of their names, in order; all but `SKIPPED` for none. Raises ReplicationError."""
    stages = from_yaml((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    known = [name for name in stages if name[:2].isdigit() and (wanted or name not in SKIPPED)]
    wrong = [start for start in wanted if not any(name.startswith(start) for name in known)]
    if wrong:
        raise replication.ReplicationError(
            f"no lesson {', '.join(wrong)}; there are: {', '.join(known)}"
        )
    return [name for name in known if not wanted or name.startswith(tuple(wanted))]


def work_copy(root: Path, place: Path) -> Path:
    """Everything that the pipeline reads, in a project of its own; what was made there already stays."""
    made = {
        line[len("/data/") :]
        for line in (root / ".gitignore").read_text().split()
        if line.startswith("/data/")
    }
    for name in REPLACED:
        shutil.rmtree(place / name, ignore_errors=True)
    inputs = [path.relative_to(root) for path in (root / "data").iterdir() if path.name not in made]
    files = ["params.yaml", "dvc.yaml", ".dvcignore", ".dvc/config", "README.md", "reports/timings"]
    for name in [*REPLACED, *inputs, *files]:
        source, target = root / name, place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, target)
    (place / ".dvc/config.local").write_text("[core]\n    no_scm = true\n", encoding="utf-8")
    return place


def replicate(root: Path, wanted: list[str], seed: int) -> dict:
    """Run lessons in the work copy of a root seed, comparing after each. Returns the metrics of the replication."""
    names, place = lessons(root, wanted), root / f"data/replica/seed-{seed}"
    work_copy(root, place)
    _dvc(place, seed, "repro", "--quiet", "--single-item", "--force", "settings")
    profile = artifacts.read_json(place / "data/settings.json")["profile"]
    replication.comparable(replication.read(root), dict.fromkeys(names, profile))
    told, started = {}, time.monotonic()
    for n, name in enumerate(names):
        minutes = f"{(time.monotonic() - started) / 60:.0f} min"
        print(
            f"[replicate] {n + 1} of {len(names)}: {name}, {minutes} so far{_left(root, profile, names[n:])}",
            flush=True,
        )
        _dvc(place, seed, "repro", "--quiet", name)
        told = replication.compared(replication.read(root), replication.read(place))
        told |= {"root_seed": seed, "instructions": INSTRUCTIONS["ATEN_CPU_CAPABILITY"]}
        artifacts.write_json(
            root / "reports/metrics" / lesson_metrics.REPLICATION, dict(sorted(told.items()))
        )
        print(f"[replicate] {line(told, name)}", flush=True)
    return told


def line(told: dict, name: str) -> str:
    """What the comparison of one lesson found."""
    held = {
        key.removesuffix(f".{name}"): value
        for key, value in told.items()
        if key.endswith(f".{name}")
    }
    shares = [
        f"{key} {held[key]:.3f}" for key in ("coverage", "disjoint", "captured") if key in held
    ]
    counts = [f"{held[key]} {key}" for key in ("pairs", "verdicts", "changed", "contradictions")]
    return f"{name}: {', '.join(shares + counts)}"


def _left(root: Path, profile: str, names: list[str]) -> str:
    """How long lessons took in the first run, where it is known."""
    files = [root / "reports/timings" / f"{name}.json" for name in names]
    known = [
        artifacts.read_json(file).get(profile, {}).get("total") for file in files if file.exists()
    ]
    return (
        f", about {sum(known) / 60:.0f} min left"
        if len(known) == len(names) and None not in known
        else ""
    )


def _dvc(place: Path, seed: int, *arguments: str) -> None:
    """A command of DVC in the work copy. Raises ReplicationError where it fails."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    told |= INSTRUCTIONS | {ROOT_SEED: str(seed), "PYTHONPATH": str(place), "DVC_NO_ANALYTICS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "dvc", *arguments], cwd=place, env=told)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # it heard Ctrl-C too, and gives its locks back
        raise
    if code:
        raise replication.ReplicationError(
            f"dvc {arguments[-1]} failed in {place}; what is done is kept, run again"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the lessons once more under another root seed, and compare."""
    parser = argparse.ArgumentParser(prog="python -m lib replicate", description=main.__doc__)
    parser.add_argument(
        "lessons", nargs="*", help="beginnings of lessons' names, such as 05 08; default all"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="the other root seed, default %(default)s"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.seed < 1:
        parser.error(f"--seed must be at least 1, got {options.seed}: 0 is the first run's")
    try:
        replicate(options.root.resolve(), options.lessons, options.seed)
    except replication.ReplicationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished lessons are kept, run again to go on", file=sys.stderr)
        return INTERRUPTED
    print(lesson_metrics.replicated(options.root / "reports/metrics"))
    return 0
