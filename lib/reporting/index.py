"""The front page: what every lesson found, with its key figure and key numbers.

`python -m lib.reporting.index` reads what the lessons left (`reports/lessons`, `reports/metrics`,
`reports/figures`) and writes one file that opens from disk and loads nothing. It computes nothing:
a number on it is a number in a lesson's metrics file.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lib import store
from lib.params import ROOT
from lib.reporting import audit
from lib.reporting.audit import ReportError
from lib.reporting.html import fill
from lib.reporting.tables import number

CARD = {"lesson", "title", "finding", "key_figure", "key_figure_alt", "key_metrics", "profile", "parameters"}


def front_page(reports: str | Path, repository: str | Path = ROOT) -> str:
    """The front page of the lessons under `reports`, in the order of their numbers.

    Raises ReportError if there is no lesson, or naming the lesson whose files do not fit together.
    """
    reports = Path(reports)
    cards = sorted((reports / "lessons").glob("*.json"), key=_order)
    if not cards:
        raise ReportError(f"no lesson in {reports / 'lessons'}; run one first: `make repro`")
    lessons = [_lesson(card, reports) for card in cards]
    made = fill("front.html.j2", lessons=lessons, commit=commit(repository))
    audit.check(made, "the front page")
    return made


def commit(repository: str | Path) -> str:
    """The short commit, `+ changes` where tracked files differ from it, `unknown` without git."""
    try:
        short = _git(repository, "rev-parse", "--short", "HEAD")
        # what the pipeline itself writes says nothing about the code that made the page
        made = (":(exclude)dvc.lock", ":(exclude)reports")
        changed = _git(repository, "status", "--porcelain", "--untracked-files=no", "--", ".", *made)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{short} + changes" if changed else short


def shown(key: str, metrics: dict[str, Any]) -> str:
    """A metric as text, with its interval where the file has one: `0.64 [0.61, 0.66]`."""
    value, bounds = metrics[key], [metrics.get(f"{key}_lo"), metrics.get(f"{key}_hi")]
    if None in bounds:
        return number(value)
    return f"{number(value)} [{number(bounds[0])}, {number(bounds[1])}]"


def _order(path: Path) -> tuple[int, str]:
    digits = re.match(r"\d+", path.stem)
    return (int(digits.group()) if digits else sys.maxsize, path.stem)


def _lesson(path: Path, reports: Path) -> dict[str, Any]:
    """What the template needs of one lesson."""
    card = _read(path)
    missing = sorted(CARD - set(card))
    if missing:
        raise ReportError(f"{path} lacks {', '.join(missing)}; run the lesson again")
    metrics = _read(reports / "metrics" / f"{card['lesson']}.json")
    unknown = [key for key in card["key_metrics"] if key not in metrics]
    if unknown:
        raise ReportError(f"{path} names the metrics {unknown}, which its metrics file does not have")
    figure = reports / card["key_figure"]
    if not figure.is_file():
        raise ReportError(f"{path} names the figure {card['key_figure']}, which is missing; run the lesson again")
    content = base64.b64encode(figure.read_bytes()).decode()
    return {
        "name": card["lesson"],
        "title": card["title"],
        "finding": card["finding"],
        "figure": f"data:image/png;base64,{content}",
        "alt": card["key_figure_alt"],
        "metrics": [(key, shown(key, metrics)) for key in card["key_metrics"]],
        "profile": card["profile"],
        "parameters": card["parameters"],
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return store.read_json(path)
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read ({error}); run the lesson again") from error


def _git(repository: str | Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    """Write the front page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.reporting.index", description="Write the front page.")
    parser.add_argument("--out", type=Path, default=ROOT / "reports/index.html", help="where it goes")
    out = parser.parse_args(arguments).out
    try:
        store.write_text(out, front_page(out.parent))
    except ReportError as error:
        print(f"no front page: {error}", file=sys.stderr)
        return 1
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
