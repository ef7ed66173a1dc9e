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
# A reader's own parts: nothing is claimed there.
SKIPPED_LESSONS = ("11_bring_your_own", "11a_own_parts")
REPLACED_FOLDERS = ("lib", "notebooks")  # replaced whole; of data/ only inputs are replaced
_IGNORED_FILES = shutil.ignore_patterns("__pycache__", ".*", "*.sqlite*")
EXIT_INTERRUPTED = 130  # what shells report for Ctrl-C


def select_lessons(root: Path, prefixes: list[str]) -> list[str]:
    """Selects lessons of the pipeline.

    Args:
        root: The project's folder.
        prefixes: How the names of the lessons begin; all but `SKIPPED_LESSONS` if it is empty.

    Returns:
        Names of lessons, in the order of the pipeline.

    Raises:
        ReplicationError: No lesson begins with one of the prefixes.
    """
    stages = from_yaml((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    lessons = [name for name in stages if name[:2].isdigit()]
    if not prefixes:
        return [name for name in lessons if name not in SKIPPED_LESSONS]
    unknown = [
        prefix for prefix in prefixes if not any(name.startswith(prefix) for name in lessons)
    ]
    if unknown:
        raise replication.ReplicationError(
            f"no lesson {', '.join(unknown)}; there are: {', '.join(lessons)}"
        )
    return [name for name in lessons if name.startswith(tuple(prefixes))]


def make_work_copy(root: Path, copy_root: Path) -> Path:
    """Copies everything that the pipeline reads into a project of its own.

    Args:
        root: The project's folder.
        copy_root: The folder of the copy. Outputs of an earlier replication there stay.

    Returns:
        `copy_root`.
    """
    # What git ignores in data/ is an output, everything else an input.
    ignored_paths = (root / ".gitignore").read_text().split()
    outputs = {path.removeprefix("/data/") for path in ignored_paths if path.startswith("/data/")}
    inputs = [
        path.relative_to(root) for path in (root / "data").iterdir() if path.name not in outputs
    ]
    files = ["params.yaml", "dvc.yaml", ".dvcignore", ".dvc/config", "README.md", "reports/timings"]

    # Code is replaced whole, so that a deleted file does not live on in the copy.
    for name in REPLACED_FOLDERS:
        shutil.rmtree(copy_root / name, ignore_errors=True)
    for name in [*REPLACED_FOLDERS, *inputs, *files]:
        source = root / name
        target = copy_root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_IGNORED_FILES, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, target)
    # The copy is no git repository.
    dvc_config = copy_root / ".dvc/config.local"
    dvc_config.write_text("[core]\n    no_scm = true\n", encoding="utf-8")
    return copy_root


def replicate_lessons(root: Path, prefixes: list[str], seed: int) -> dict:
    """Runs lessons in the work copy of a root seed, comparing after each.

    Args:
        root: The project's folder.
        prefixes: How the names of the lessons begin; see `select_lessons`.
        seed: The other root seed.

    Returns:
        The metrics of the replication, which are also written to the metrics folder.

    Raises:
        ReplicationError: A lesson is unknown or fails, or the runs cannot be compared.
    """
    lessons = select_lessons(root, prefixes)
    copy_root = root / f"data/replica/seed-{seed}"
    make_work_copy(root, copy_root)

    # Whether the runs can be compared is known before hours of work.
    _run_dvc(copy_root, seed, "repro", "--quiet", "--single-item", "--force", "settings")
    profile = artifacts.read_json(copy_root / "data/settings.json")["profile"]
    replication.check_comparable(replication.read_run(root), dict.fromkeys(lessons, profile))

    metrics: dict = {}
    start_time = time.monotonic()
    for index, lesson in enumerate(lessons):
        elapsed = f"{(time.monotonic() - start_time) / 60:.0f} min so far"
        remaining = _describe_remaining_time(root, profile, lessons[index:])
        progress = f"{index + 1} of {len(lessons)}: {lesson}, {elapsed}{remaining}"
        print(f"[replicate] {progress}", flush=True)
        _run_dvc(copy_root, seed, "repro", "--quiet", lesson)

        # Written after every lesson, so that an interrupted replication leaves its numbers.
        metrics = replication.compare_runs(
            replication.read_run(root), replication.read_run(copy_root)
        )
        metrics["root_seed"] = seed
        metrics["instructions"] = INSTRUCTIONS["ATEN_CPU_CAPABILITY"]
        path = root / "reports/metrics" / lesson_metrics.REPLICATION_FILE
        artifacts.write_json(path, dict(sorted(metrics.items())))
        print(f"[replicate] {format_lesson_line(metrics, lesson)}", flush=True)
    return metrics


def format_lesson_line(metrics: dict, lesson: str) -> str:
    """Formats the comparison of two runs of one lesson as a line.

    Args:
        metrics: Fractions such as "coverage.LESSON", and counts such as "pairs.LESSON".
        lesson: Name of the lesson.
    """
    fractions = []
    for name in ("coverage", "disjoint", "captured"):
        key = f"{name}.{lesson}"
        if key in metrics:
            fractions.append(f"{name} {metrics[key]:.3f}")
    counts = [
        f"{metrics[f'{name}.{lesson}']} {name}"
        for name in ("pairs", "verdicts", "changed", "contradictions")
    ]
    return f"{lesson}: {', '.join(fractions + counts)}"


def _describe_remaining_time(root: Path, profile: str, lessons: list[str]) -> str:
    """Estimates the running time of lessons from their recorded timings.

    Args:
        root: The project's folder.
        profile: Scale of the run whose timings are read.
        lessons: Names of the lessons that are still to run.

    Returns:
        Such as ", about 12 min left"; empty where the time of a lesson is unknown.
    """
    total_seconds = 0.0
    for lesson in lessons:
        path = root / "reports/timings" / f"{lesson}.json"
        timings = artifacts.read_json(path) if path.exists() else {}
        seconds = timings.get(profile, {}).get("total")
        if seconds is None:
            return ""
        total_seconds += seconds
    return f", about {total_seconds / 60:.0f} min left"


def _run_dvc(copy_root: Path, seed: int, *arguments: str) -> None:
    """Runs a DVC command in a copy of the project, under another root seed.

    Args:
        copy_root: Folder of the copy.
        seed: Root seed of all random numbers.
        arguments: Arguments of DVC, such as "repro" and the name of a stage.

    Raises:
        ReplicationError: The command fails.
    """
    # Settings of a DVC that runs around this process do not reach the inner one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    environment |= INSTRUCTIONS
    environment[ROOT_SEED] = str(seed)
    environment["PYTHONPATH"] = str(copy_root)
    environment["DVC_NO_ANALYTICS"] = "1"
    command = [sys.executable, "-m", "dvc", *arguments]
    process = subprocess.Popen(command, cwd=copy_root, env=environment)
    try:
        exit_code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # it received Ctrl-C too, and gives its locks back
        raise
    if exit_code:
        raise replication.ReplicationError(
            f"dvc {arguments[-1]} failed in {copy_root}; what is done is kept, run again"
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
        replicate_lessons(options.root.resolve(), options.lessons, options.seed)
    except replication.ReplicationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished lessons are kept, run again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(lesson_metrics.describe_replication(options.root / "reports/metrics"))
    return 0
