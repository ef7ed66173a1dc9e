"""Fit a router on a table of outcomes, and keep it: `python -m lib router fit TABLE --budget USD --out DIR`.

TABLE is what `python -m lib router collect` wrote, or any table with item, model, correct, cost_usd and prompt. The
first line that is printed says what choosing gains over the best model that the budget buys, measured on groups that
were not learned from, with a 95 % interval. The folder holds encoder, projection, model, calibrated budgets and
report.json; `lib.routers.load(DIR).route(messages)` reads a new prompt, and `python -m lib router serve DIR` serves it.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.user_tables import read_outcome_table
from lib.routers.fit_router import FOLDS, fit_router
from lib.routers.saved_router import REPORT_FILE, SETTINGS_FILE
from lib.routers.success_model import METHODS

EXAMPLES = """examples:
  python -m lib router fit outcomes.parquet --budget 0.002 --out ROUTER
  python -m lib router fit outcomes.csv --method knn --budget 0.0005 --encoder minilm --out ROUTER
"""


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line of `router fit`.

    Returns:
        The parser.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib router fit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("table", type=Path, help=".parquet, .csv, .tsv, .jsonl or .json")
    add("--method", choices=list(METHODS), default="logistic", help="default: %(default)s")
    add(
        "--budget",
        type=float,
        required=True,
        metavar="USD",
        help="US dollars that a prompt may cost on average",
    )
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the router")
    add(
        "--encoder",
        default="tfidf",
        help="tfidf, minilm (from an installed package) or minilm:FOLDER; default: %(default)s",
    )
    add("--folds", type=int, default=FOLDS, help="of the cross-validation; default: %(default)s")
    add("--seed", type=int, default=0, help="of the folds; default: %(default)s")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Fits and saves a router.

    Args:
        arguments: Arguments of the command line.

    Returns:
        0, or 2 where something is wrong; one line on standard error says what.
    """
    options = make_parser().parse_args(arguments)
    try:
        if not 0 < options.budget < math.inf:
            raise TableError(f"--budget {options.budget}: give US dollars above 0, such as 0.002")
        check_folder(options.out)
        table = read_outcome_table(options.table)
        router = fit_router(
            table, options.method, options.budget, options.encoder, options.folds, options.seed
        )
        router.save(options.out)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print_report(router.report)
    print(f"router: {options.out}; what it promises: {options.out / REPORT_FILE}")
    return 0


def check_folder(folder: Path) -> None:
    """Raises TableError for a folder that holds anything but a router."""
    if folder.is_file():
        raise TableError(f"--out {folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SETTINGS_FILE).is_file():
        raise TableError(f"--out {folder} holds other files and no router; name a new folder")


def print_report(report: dict[str, Any]) -> None:
    """Prints the report of a router: its sentence, then accuracy and cost beside those of simpler methods.

    Args:
        report: As `FittedRouter.report` holds it.
    """
    print(report["sentence"])
    print(
        f"{report['items']} items in {report['groups']} groups, {report['folds']} folds; {report['method']} on "
        f"{report['encoder']}; groups that are scored were not learned from"
    )
    for name, measured in report["methods"].items():
        accuracy = measured["accuracy"]
        cost = measured["cost_usd"]
        print(
            f"  {name:<22} accuracy {_write_interval(accuracy, 3)}   US dollars a prompt "
            f"{_write_interval(cost, 6)}"
        )
    if not report["budget_kept"]:
        print(
            f"warning: the router spent clearly more than the budget of ${report['budget_usd']:g}"
        )
    for note in report["notes"]:
        print(note)


def _write_interval(interval: dict[str, float | None], digits: int) -> str:
    """Formats a number of the report with its interval, rounded to some digits after the point."""
    value = f"{interval['value']:.{digits}f}"
    if interval["ci_low"] is None:
        return value
    return f"{value} [{interval['ci_low']:.{digits}f}, {interval['ci_high']:.{digits}f}]"
