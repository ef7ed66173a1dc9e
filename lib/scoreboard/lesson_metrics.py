"""What the lessons measured, for a terminal: one metric a line, value and interval, lesson by lesson.

`python -m lib metrics [--lesson 05] [--json]`, or `make metrics`. The files are those that `dvc
metrics` reads, whose own table is as wide as there are metrics. Left out: what a metric means, which its lesson says.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.config import ROOT
from lib.experiment import artifacts

FOLDER = ROOT / "reports/metrics"
REPLICATION = "replication.json"
_ENDS = ("_ci_low", "_ci_high")
Metric = dict[str, Any]


def collected(metrics: Mapping[str, Any]) -> dict[str, Metric]:
    """Metrics by key: {"value"}, with "ci_low" and "ci_high" where `key_lo` and `key_hi` stand beside it."""
    halves = {
        key + end for key in metrics for end in _ENDS if all(key + e in metrics for e in _ENDS)
    }
    out: dict[str, Metric] = {key: {"value": metrics[key]} for key in sorted(set(metrics) - halves)}
    for key, metric in out.items():
        metric |= {end[1:]: metrics[key + end] for end in _ENDS if key + end in halves}
    return out


def read(folder: str | Path = FOLDER, lesson: str = "") -> dict[str, dict[str, Metric]]:
    """Metrics of the lessons whose names begin with `lesson`, all if it is empty. Raises ValueError for none."""
    names = sorted(path.stem for path in Path(folder).glob("*.json"))
    wanted = [name for name in names if name.startswith(lesson)]
    if not wanted:
        raise ValueError(
            f"no lesson {lesson!r} has metrics; there are: {', '.join(names) or 'none, run `make repro`'}"
        )
    return {name: collected(artifacts.read_json(Path(folder) / f"{name}.json")) for name in wanted}


def replicated(folder: str | Path = FOLDER) -> str:
    """What `make replicate` found, in a sentence or two; without its file, that nobody knows. Figures and what to
    expect of them: `lib.scoreboard.replication`."""
    file = Path(folder) / REPLICATION
    told = artifacts.read_json(file) if file.exists() else {}
    if not told.get("pairs"):
        return "Not replicated yet: no second run (`make replicate`) stands beside these numbers."
    return (
        f"Run once more with another root seed and class of processor, {told['lessons']} lessons at "
        f"{told['profile']}: {told['coverage']:.3f} of {told['pairs']:,} differences lie within both intervals taken "
        f"together ({told['coverage_expected']:.2f} expected), {told['disjoint']:.3f} of the intervals do not meet "
        f"({told['disjoint_expected']:.3f}), {told['captured']:.3f} of the new values lie inside the old interval "
        f"({told['captured_expected']:.3f}). Of {told['verdicts']} verdicts {told['contradictions']} turned round and "
        f"{told['changed']} changed."
    )


def lines(lessons: Mapping[str, Mapping[str, Metric]]) -> list[str]:
    """The lessons as text: keys, values and intervals each in a column."""
    out: list[str] = []
    for name, metrics in lessons.items():
        width = max((len(key) for key in metrics), default=0)
        values = {key: _shown(metric["value"]) for key, metric in metrics.items()}
        broad = max(
            (len(values[key]) for key, metric in metrics.items() if "ci_low" in metric), default=0
        )
        out += ["", name] if out else [name]
        for key, metric in metrics.items():
            span = (
                f"  [{_shown(metric['ci_low'])}, {_shown(metric['ci_high'])}]"
                if "ci_low" in metric
                else ""
            )
            out.append(f"  {key:<{width}}  {values[key]:>{broad}}{span}".rstrip())
    return out


def _shown(value: Any) -> str:
    """A number with four digits that count, anything else as it is."""
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
    parser.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        lessons = read(options.folder, options.lesson)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        print(artifacts.to_json(lessons) if options.json else "\n".join(lines(lessons)), flush=True)
    except BrokenPipeError:  # `make metrics | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
