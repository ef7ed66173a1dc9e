"""The numbers on the first page of README.md, filled from reports/metrics.

`python -m lib readme` writes them between the marks `<!-- NAME -->` and `<!-- /NAME -->`; a test fails where README and
metrics differ. The table of results has a row per paper, in the unit of lesson 10's figure: the share of the headroom
that a method gains. Left out: the words around the numbers, which a person writes.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from lib.config import ROOT
from lib.experiment import artifacts
from lib.scoreboard import summary_figure
from lib.scoreboard.lesson_metrics import REPLICATION_FILE, list_changed_lessons
from lib.scoreboard.metrics import METRICS_FOLDER, read_metrics
from lib.scoreboard.summary_figure import CLOSED, OPEN, ShareWon

README_FILE = ROOT / "README.md"
METHODS = {  # of each row of the table
    "KO, TO, RO (knowledge-, tool-, reflection-based)": ("KO", "TO", "RO"),
    "MAESTRO": ("MAESTRO",),
    "CoRL": ("CoRL",),
    "ToolOrchestra": ("ToolOrchestra",),
    "ARC": ("ARC",),
}
COLUMNS = ("method", "synthetic environment", "small models", "real models, recorded")
ROUTER_COLUMN = "beats a simple router?"


def tabulate_results(shares_won: Sequence[ShareWon]) -> str:
    """Writes what each method gains, and whether it beats a simple router, as a table in Markdown.

    Args:
        shares_won: Result of `summary_figure.measure_shares_won`.

    Returns:
        Lines of the table. Behind "vs" stands the router's share; shares in parentheses are not clearly different
        from 0.
    """
    lines = [
        "| " + " | ".join((*COLUMNS, ROUTER_COLUMN)) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for label, methods in METHODS.items():
        rows = [row for row in shares_won if row.decision_maker.method in methods]
        cells = [label]
        for level in summary_figure.PANELS:
            on_level = [row for row in rows if row.decision_maker.evidence_level == level]
            cells.append(_describe_level(on_level, names_method=len(methods) > 1))
        cells.append(_count_wins_over_router(rows))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _describe_level(rows: Sequence[ShareWon], names_method: bool) -> str:
    """Describes the share of the headroom that a method wins in each setting of a level of evidence.

    Args:
        rows: The method's results at this level.
        names_method: Whether the method is named in place of the setting.

    Returns:
        The shares in settings with headroom; else "not open", "not in this run", or "-".
    """
    open_rows = [row for row in rows if row.state == OPEN]
    if not rows:
        return "-"
    if not open_rows:
        return "not open" if any(row.state == CLOSED for row in rows) else "not in this run"
    descriptions = []
    for row in open_rows:
        setting = row.decision_maker.method if names_method else row.decision_maker.setting
        descriptions.append(f"{setting} {_describe_share(row)}".strip())
    return "; ".join(descriptions)


def _describe_share(row: ShareWon) -> str:
    """A share, in parentheses where it is not clearly different from 0, against that of the simple router."""
    share = f"{row.share.value:z.2f}"
    text = f"({share})" if row.sign == 0 else share
    if row.sign_against_router is not None:
        text += f" vs {row.router_share:z.2f}"
    return text


def _count_wins_over_router(rows: Sequence[ShareWon]) -> str:
    """Describes how often a method clearly beats a simple router, such as "in part, 2 of 3".

    Args:
        rows: The method's results in all settings.
    """
    signs = [row.sign_against_router for row in rows if row.sign_against_router is not None]
    if not signs:
        return "no router fits"
    num_above = signs.count(1)
    answer = "yes" if num_above == len(signs) else "in part" if num_above else "no"
    return f"{answer}, {num_above} of {len(signs)}"


def describe_replication(folder: str | Path = METRICS_FOLDER) -> str:
    """Describes in a sentence how well a second run with another seed agreed with the first.

    Args:
        folder: Folder of the metrics.
    """
    metrics = artifacts.read_json(Path(folder) / REPLICATION_FILE)
    changed_lessons = list_changed_lessons(metrics, folder)
    later_changes = (
        f"; {len(changed_lessons)} lessons have changed since" if changed_lessons else ""
    )
    return (
        f"{metrics['coverage']:.1%} of {metrics['pairs']:,} differences lay within both intervals together "
        f"({metrics['coverage_expected']:.0%} expected); of {metrics['verdicts']} verdicts "
        f"{metrics['contradictions']} turned round and {metrics['changed']} changed{later_changes}"
    )


def fill_readme(text: str, folder: str | Path = METRICS_FOLDER) -> str:
    """Fills the marked parts of a README.

    Args:
        text: The README.
        folder: Holds a JSON file of metrics per lesson.

    Returns:
        The README with today's numbers.

    Raises:
        ValueError: A mark is missing.
    """
    shares_won = summary_figure.measure_shares_won(read_metrics(folder))
    finding = summary_figure.state_finding(summary_figure.count_by_level(shares_won))
    text = _fill_part(text, "finding", finding)
    text = _fill_part(text, "results", f"\n{tabulate_results(shares_won)}\n")
    return _fill_part(text, "replication", describe_replication(folder))


def _fill_part(text: str, name: str, content: str) -> str:
    """Replace what stands between the two marks of a name; there must be exactly one such pair."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the README must have one part between {start} and {end}")
    return pattern.sub(lambda _: f"{start}{content}{end}", text)


def main(arguments: list[str] | None = None) -> int:
    """Write the numbers of README.md from reports/metrics."""
    parser = argparse.ArgumentParser(prog="python -m lib readme", description=main.__doc__)
    parser.add_argument("--readme", type=Path, default=README_FILE, help="default: %(default)s")
    options = parser.parse_args(arguments)
    text = options.readme.read_text(encoding="utf-8")
    artifacts.write_text(options.readme, fill_readme(text))
    return 0
