"""Does choosing a model for each item pay here? `python -m lib router evaluate TABLE` answers for anybody's outcomes.

TABLE has a row for each item and model: item, model, correct, cost_usd, and either embeddings e0, e1, ... or a prompt;
with a column group, such as a repository, whole groups are held out. Several samples (a column sample) are averaged,
and items that some model has not met are left out. A log with a column propensity, one choice for each item, is
estimated off-policy (IPS, SNIPS, DR). TABLE may also be a folder, or the name of a shipped table.

Printed are a sentence first, then what each router wins over the best constant; a page and tables are left in a folder.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lib import config
from lib.config import RecordedSettings
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.recorded_outcomes.published_formats import PUBLISHED_FORMATS
from lib.recorded_outcomes.tables import OutcomeTable, TableError
from lib.recorded_outcomes.token_prices import TokenPrices, read_prices
from lib.recorded_outcomes.user_tables import (
    ChoiceTable,
    read_choice_table,
    read_outcome_table,
)
from lib.routers import evaluation_page, log_evaluation
from lib.routers.compare_methods import MethodComparison, compare_methods
from lib.routers.evaluation_sentence import RoutingAnswer, answer_question


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line of `router evaluate`.

    Returns:
        The parser.
    """
    formats = "\n".join(f"  {entry.name}: {entry.description}" for entry in PUBLISHED_FORMATS)
    parser = argparse.ArgumentParser(
        prog="python -m lib router evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            f"published outcomes that are read as they are:\n{formats}\n\n"
            f"shipped tables: {', '.join(tables.SHIPPED)}\n\n"
            "examples:\n"
            "  python -m lib router evaluate outcomes.csv --repeats 5 --out evaluation\n"
            "  python -m lib router evaluate train.jsonl test.jsonl --prices prices.csv\n"
            "  python -m lib router evaluate lm-eval-results/ --prices prices.csv --hold-out items\n"
            "  python -m lib router evaluate routerarena"
        ),
    )
    parser.add_argument(
        "table",
        type=Path,
        nargs="+",
        help=".csv, .tsv, .jsonl, .json or .parquet; a folder of them; or the name of a shipped table",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="for the page and the tables; default: TABLE-evaluation beside the table",
    )
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="of tokens, for outcomes without costs: a CSV with model, usd_per_million_in, usd_per_million_out, or "
        "LLMRouter's JSON of models",
    )
    parser.add_argument(
        "--hold-out",
        choices=("groups", "items"),
        default="groups",
        help="groups: what is said holds for new groups; items: for new items of the same groups; default: %(default)s",
    )
    parser.add_argument(
        "--repeats",
        type=_read_count,
        default=1,
        help="of the cross-validation; more are more precise and slower; default: %(default)s",
    )
    parser.add_argument("--profile", choices=config.PROFILES, default="laptop")
    return parser


def _read_count(text: str) -> int:
    """Parses a number of repeats from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of repeats; give 1 or more")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluates every router on a table of outcomes.

    Args:
        arguments: Arguments of the command line.

    Returns:
        0, or 2 where the table or --out cannot be used; one line on standard error says why.
    """
    options = make_parser().parse_args(arguments)
    settings = config.load(options.profile).recorded
    try:
        folder = find_output_folder(options.out, options.table[0])
        outcomes = read_outcomes(options, settings)
        if isinstance(outcomes, ChoiceTable):
            page = evaluate_log(outcomes, folder)
        else:
            page = evaluate_table(outcomes, folder, settings, options.repeats)
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\npage: {page}")
    return 0


def find_output_folder(out: Path | None, table: Path) -> Path:
    """Chooses the output folder before any work is done.

    Args:
        out: Option --out; None for a folder beside the table.
        table: Path of the table.

    Returns:
        The folder.

    Raises:
        TableError: --out is a file.
    """
    if out is None:
        # A shipped table has no folder of a user, so that its evaluation lies where the command runs.
        return table.with_name(f"{table.stem}-evaluation")
    if out.exists() and not out.is_dir():
        raise TableError(f"--out {out} is a file; name a folder for the page and the tables")
    return out


def read_outcomes(
    options: argparse.Namespace, settings: RecordedSettings
) -> OutcomeTable | ChoiceTable:
    """Reads the table of outcomes that the command line names: a file, a log of choices, or a shipped table.

    Args:
        options: Options of the command line.
        settings: Prices of tokens, for tables without costs.

    Returns:
        The outcomes of all models on every item, or of one chosen model an item where the file is a log.

    Raises:
        TableError: As in `read_outcome_table`.
    """
    name = str(options.table[0])
    # A file of the user's comes before a shipped table of the same name.
    is_shipped = name in tables.SHIPPED and not options.table[0].exists()
    if is_shipped and len(options.table) == 1:
        table = tables.SHIPPED[name](settings.prices)
        return replace(table, groups=table.items) if options.hold_out == "items" else table
    prices = _choose_prices(options.prices, settings)
    # A log with one choice an item knows no outcome of the other models, and is evaluated in another way.
    log = read_choice_table(options.table)
    if log is not None:
        return log
    return read_outcome_table(options.table, prices, options.hold_out)


def _choose_prices(path: Path | None, settings: RecordedSettings) -> TokenPrices:
    """Reads prices from a file; without one, only those of RouteLLM's two models are known."""
    reply_tokens = settings.prices.reply_tokens
    if path is not None:
        return read_prices(path, reply_tokens)
    listed = settings.prices.routellm
    return TokenPrices(listed, listed, "the list prices of RouteLLM", reply_tokens)


def evaluate_table(
    table: OutcomeTable, folder: Path, settings: RecordedSettings, num_repeats: int
) -> Path:
    """Compares all methods on a table, prints the answer, and writes page and tables.

    Args:
        table: The recorded outcomes.
        folder: Output folder.
        settings: Settings of lesson 08.
        num_repeats: Number of repeats of the cross-validation.

    Returns:
        Path of the page.

    Raises:
        TableError: There are too few groups.
    """
    model_selection.assign_folds(table, settings.folds, 0)  # refuses too few groups
    num_folds = min(settings.folds, len(set(table.groups)))
    settings = settings.model_copy(update={"folds": num_folds})
    headroom_table = headroom.estimate_headroom(
        table, num_folds, range(num_repeats), settings.min_dev_gain
    )
    headroom_table = headroom.widen_degenerate_intervals(table, headroom_table)
    comparison = compare_methods(table, settings, num_repeats)
    answer = answer_question(table, headroom_table, comparison, settings)
    print_report(table, headroom_table, comparison, answer)
    return evaluation_page.write_evaluation(folder, table, headroom_table, comparison, answer)


def evaluate_log(log: ChoiceTable, folder: Path) -> Path:
    """Estimates models and a router from a log with propensities, prints, and writes page and table.

    Args:
        log: The log, one choice for each item with its probability.
        folder: Output folder.

    Returns:
        Path of the page.
    """
    estimates = log_evaluation.estimate_policies(log)
    sentence = log_evaluation.write_sentence(estimates)
    print(sentence)
    _print_notes(log.notes)
    print(
        f"\n{len(log):,} items, one choice each; accuracy by inverse propensities (IPS), self-normalized (SNIPS) and "
        "doubly robust (DR), with 95 % intervals over groups; matches: items on which the log made that choice"
    )
    _print_table(evaluation_page.format_policies(estimates))
    return evaluation_page.write_log_evaluation(folder, log, estimates, sentence)


def print_report(
    table: OutcomeTable,
    headroom_table: pd.DataFrame,
    comparison: MethodComparison,
    answer: RoutingAnswer,
) -> None:
    """Prints the answer, what was read, what could be won, and what each method won.

    Args:
        table: The outcomes.
        headroom_table: What a router could gain at most, as `headroom.estimate_headroom` returns it.
        comparison: Estimates of all methods, as `compare_methods` returns them.
        answer: The answer and its sentence, as `answer_question` returns them.
    """
    print(answer.sentence)
    for detail in answer.details:
        print(detail)
    print(f"\n{evaluation_page.describe_table(table)}")
    _print_notes(table.notes)
    print("\nWhat could be won, by a router that sees more than any method:")
    _print_table(evaluation_page.format_headroom(headroom_table))
    print(
        "\nMethods: accuracy minus the best constant's in points, cost as a multiple of its, with 95 % intervals:"
    )
    _print_table(evaluation_page.format_methods(comparison))
    for sentence in evaluation_page.explain_unavailable(comparison):
        print(sentence)
    print(
        "\nBudgets: what was spent on held-out items over what was promised on dev, by the budget:"
    )
    _print_table(evaluation_page.format_budgets(comparison))


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"- {note}")


def _print_table(frame: pd.DataFrame) -> None:
    print(frame.reset_index().to_string(index=False, justify="left"))
