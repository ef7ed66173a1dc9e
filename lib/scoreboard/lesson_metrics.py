"""What the lessons measured, for a terminal: one metric a line, value and interval, lesson by lesson.

`python -m lib metrics [--lesson 05] [--json]`, or `make metrics`. The files are those that `dvc
metrics` reads, whose own table is as wide as there are metrics. Left out: what a metric means, which its lesson says.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lib.config import ROOT
from lib.experiment import artifacts

METRICS_FOLDER = ROOT / "reports/metrics"
CARDS_FOLDER = (
    ROOT / "reports/lessons"
)  # what runs in this folder left; metrics come with the project, these do not
REPLICATION_FILE = "replication.json"
Metric = dict[str, Any]  # value, and ci_low and ci_high where it has an interval


def attach_intervals(metrics: Mapping[str, Any]) -> dict[str, Metric]:
    """Joins metrics with the ends of their intervals.

    Args:
        metrics: Flat metrics of a lesson; an interval stands as `key_ci_low` and `key_ci_high` beside `key`.

    Returns:
        Metrics by key, in alphabetical order: {"value"}, with "ci_low" and "ci_high" where both ends stand beside it.
    """
    keys_with_interval = {
        key for key in metrics if f"{key}_ci_low" in metrics and f"{key}_ci_high" in metrics
    }
    # Ends of intervals are no metrics of their own.
    interval_ends = {f"{key}_{end}" for key in keys_with_interval for end in ("ci_low", "ci_high")}
    metric_by_key: dict[str, Metric] = {}
    for key in sorted(set(metrics) - interval_ends):
        metric = {"value": metrics[key]}
        if key in keys_with_interval:
            metric["ci_low"] = metrics[f"{key}_ci_low"]
            metric["ci_high"] = metrics[f"{key}_ci_high"]
        metric_by_key[key] = metric
    return metric_by_key


def read_lesson_metrics(
    folder: str | Path = METRICS_FOLDER, lesson: str = ""
) -> dict[str, dict[str, Metric]]:
    """Reads metrics of lessons.

    Args:
        folder: Holds one JSON file per lesson.
        lesson: How the names of the lessons begin; all if it is empty.

    Returns:
        {lesson: {key: metric}}.

    Raises:
        ValueError: No such lesson has metrics.
    """
    lessons = sorted(path.stem for path in Path(folder).glob("*.json"))
    selected = [name for name in lessons if name.startswith(lesson)]
    if not selected:
        available = ", ".join(lessons) or "none, run `make repro`"
        raise ValueError(f"no lesson {lesson!r} has metrics; there are: {available}")
    return {
        name: attach_intervals(artifacts.read_json(Path(folder) / f"{name}.json"))
        for name in selected
    }


def describe_sources(
    names: Iterable[str],
    metrics_folder: str | Path = METRICS_FOLDER,
    cards_folder: str | Path = CARDS_FOLDER,
) -> str:
    """Says which metrics are of runs here, which come with the project, and which lessons have none.

    Args:
        names: Names of the lessons that are asked about.
        metrics_folder: Holds a JSON file for each lesson that has metrics.
        cards_folder: Holds a JSON file for each lesson that was run here.

    Returns:
        A sentence for each of the three that there are.
    """
    runs_by_profile: dict[str, list[str]] = {}
    committed, missing = [], []
    for name in sorted(names):
        number = name.split("_")[0]
        card = Path(cards_folder) / f"{name}.json"
        if not (Path(metrics_folder) / f"{name}.json").exists():
            missing.append(number)
        elif card.exists():
            runs_by_profile.setdefault(artifacts.read_json(card)["profile"], []).append(number)
        else:
            committed.append(number)

    sentences = []
    for profile, numbers in runs_by_profile.items():
        sentences.append(f"Metrics of runs here, at {profile}: lessons {', '.join(numbers)}.")
    if committed:
        numbers = ", ".join(committed)
        sentences.append(
            f"Metrics that come with the project, of its last run at laptop: lessons {numbers}; run them for your own."
        )
    if missing:
        numbers = ", ".join(missing)
        sentences.append(f"No metrics: lessons {numbers}; run them to test their claims.")
    return " ".join(sentences)


def hash_compared_names(metrics: Mapping[str, Any]) -> str:
    """The hash of the names of everything in a lesson's metrics that a replication compares: estimates and verdicts."""
    endings = ("_ci_low", "_verdict")
    names = [key for key in metrics if key.endswith(endings) or key.startswith("claims.by_id.")]
    return artifacts.sha256_json(sorted(names))


def list_changed_lessons(
    replication_metrics: Mapping[str, Any], folder: str | Path = METRICS_FOLDER
) -> list[str]:
    """Lists the lessons that measure something else now than when they were replicated.

    Args:
        replication_metrics: What `make replicate` wrote.
        folder: Holds one JSON file per lesson.

    Returns:
        Names of lessons, those of a replication that kept no names included.
    """
    changed = []
    for key in sorted(replication_metrics):
        if not key.startswith("pairs."):
            continue
        lesson = key.removeprefix("pairs.")
        path = Path(folder) / f"{lesson}.json"
        names_hash = hash_compared_names(artifacts.read_json(path)) if path.exists() else None
        if replication_metrics.get(f"names_hash.{lesson}") != names_hash:
            changed.append(lesson)
    return changed


def describe_replication(folder: str | Path = METRICS_FOLDER) -> str:
    """Says what `make replicate` found; what to expect of the fractions: `lib.scoreboard.replication`.

    Args:
        folder: Holds the file that `make replicate` writes.

    Returns:
        A few sentences; without the file, that no second run was made.
    """
    path = Path(folder) / REPLICATION_FILE
    metrics = artifacts.read_json(path) if path.exists() else {}
    if not metrics.get("pairs"):
        return "Not replicated yet: no second run (`make replicate`) stands beside these numbers."
    sentences = [
        f"Run once more with another root seed and class of processor, {metrics['lessons']} notebooks at "
        f"{metrics['profile']}: {metrics['coverage']:.3f} of {metrics['pairs']:,} differences lie within both "
        f"intervals taken together ({metrics['coverage_expected']:.2f} expected), {metrics['disjoint']:.3f} of the "
        f"intervals do not meet ({metrics['disjoint_expected']:.3f} expected), {metrics['captured']:.3f} of the new "
        f"values lie inside the old interval ({metrics['captured_expected']:.3f} expected). "
        f"Of {metrics['verdicts']} verdicts {metrics['contradictions']} turned round and {metrics['changed']} changed."
    ]
    changed_lessons = list_changed_lessons(metrics, folder)
    if changed_lessons:
        numbers = ", ".join(name.split("_")[0] for name in changed_lessons)
        sentences.append(
            f"This is of an earlier state: what lessons {numbers} measure has changed since."
        )
    return " ".join(sentences)


def format_lines(lessons: Mapping[str, Mapping[str, Metric]]) -> list[str]:
    """Formats metrics for a terminal.

    Args:
        lessons: {lesson: {key: metric}}.

    Returns:
        Lines of text: keys, values and intervals each in a column.
    """
    lines: list[str] = []
    for lesson, metrics in lessons.items():
        if lines:
            lines.append("")
        lines.append(lesson)

        # Values are right-aligned as far as those with an interval are wide.
        values = {key: _format_value(metric["value"]) for key, metric in metrics.items()}
        keys_with_interval = [key for key, metric in metrics.items() if "ci_low" in metric]
        key_width = max((len(key) for key in metrics), default=0)
        value_width = max((len(values[key]) for key in keys_with_interval), default=0)

        for key, metric in metrics.items():
            # Key left-aligned, value right-aligned, interval where there is one.
            line = f"  {key:<{key_width}}  {values[key]:>{value_width}}"
            if key in keys_with_interval:
                line += f"  [{_format_value(metric['ci_low'])}, {_format_value(metric['ci_high'])}]"
            lines.append(line.rstrip())
    return lines


def _format_value(value: Any) -> str:
    """A number with four significant digits, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    """Print what the lessons measured, one metric a line."""
    parser = argparse.ArgumentParser(prog="python -m lib metrics", description=main.__doc__)
    parser.add_argument(
        "--lesson", default="", help="only lessons whose names begin so, such as 05"
    )
    parser.add_argument(
        "--json", action="store_true", help="for a program: {lesson: {key: {value, lo, hi}}}"
    )
    parser.add_argument("--folder", type=Path, default=METRICS_FOLDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        lessons = read_lesson_metrics(options.folder, options.lesson)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = artifacts.to_json(lessons) if options.json else "\n".join(format_lines(lessons))
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader is gone, as in `make metrics | head`; nothing more may be written to stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
