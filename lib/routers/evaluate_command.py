"""Does routing beat the best constant here? `python -m lib router evaluate TABLE.csv` answers for anybody's table.

TABLE has a row for each item and model: item, model, correct, cost_usd, and either embeddings e0, e1, ... or a prompt;
with a column group, such as a repository, whole groups are held out. Several samples (a column sample) are averaged. A
log with a column propensity, one choice for each item, is estimated off-policy. Printed are what choosing could win at
most, what each router wins at equal quality and at half the money, with intervals, and first of all a sentence; quality
against money is drawn beside the table, or where --out says.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lib import config, plots, stats
from lib.experiment import artifacts, results_table
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import EQUAL
from lib.recorded_outcomes.tables import OutcomeTable, TableError
from lib.recorded_outcomes.user_tables import (
    ChoiceTable,
    read_choice_table,
    read_outcome_table,
)
from lib.routers import experiment, log_evaluation
from lib.routers.methods import CHECK, MIXTURES, ORACLE, POOR, RANDOM, ROLES
from lib.stats.random_effects import mde_from_interval

# Methods that are no routers: a check is assumed, an oracle knows the outcomes, chance does not look at the item.
NO_ROUTERS = (CHECK, POOR, ORACLE, RANDOM, MIXTURES)
# What is known of a question that is not open, beside `headroom.NOT_OPEN`; see `decide_question`.
WORSE, TOO_FEW, CLOSE = "worse", "too few items", "close"
CHANCE_DRAWS = 100  # of a bootstrap, fewer than a lesson has


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lib router evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m lib router evaluate outcomes.csv --repeats 5 --out outcomes.png",
    )
    parser.add_argument("table", type=Path, help=".csv, .tsv, .jsonl, .json or .parquet")
    parser.add_argument("--out", type=Path, help="picture; default: TABLE.png beside the table")
    parser.add_argument(
        "--repeats",
        type=_read_count,
        default=1,
        help="of the cross-validation; more are more precise and slower; default: %(default)s",
    )
    parser.add_argument("--profile", choices=config.PROFILES, default="laptop")
    return parser


def _read_count(text: str) -> int:
    """A number of repeats from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of repeats; give 1 or more")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluates every router on a user's table.

    Args:
        arguments: Of the command line.

    Returns:
        0, or 2 where the table or --out cannot be used; one line on standard error says why.
    """
    options = make_parser().parse_args(arguments)
    settings = config.load(options.profile).recorded
    settings = settings.model_copy(
        update={"seeds": options.repeats, "items": sys.maxsize, "draws": CHANCE_DRAWS}
    )
    try:
        picture = _check_picture_path(options.out or options.table.with_suffix(".png"))
        choices = read_choice_table(options.table)
        if choices is not None:
            print_log_estimates(choices)
            return 0
        table = read_outcome_table(options.table)
        model_selection.assign_folds(table, settings.folds, 0)  # refuses too few groups
        folds = min(settings.folds, len(set(table.groups)))
        settings = settings.model_copy(update={"folds": folds})
        gate = headroom.gate(table, folds, range(options.repeats), settings.min_dev_gain)
        results = experiment.replayed(table, settings)
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = results_table.make_results("recorded", results["rows"])
    comparison = experiment.compared(
        rows, results["drawn"], settings.equivalence_margin, gate["question is"]
    )
    print_report(table, gate, comparison)
    artifacts.write_bytes(picture, plots.render_png(draw_tradeoff(rows, table.name)))
    print(f"\npicture: {picture}")
    return 0


def print_log_estimates(choices: ChoiceTable) -> None:
    """Prints what a log with propensities says of every model, and of a router."""
    for note in choices.notes:
        print(note)
    estimates = log_evaluation.estimate_policies(choices)
    print(log_evaluation.write_sentence(estimates))
    print(
        f"\n{len(choices)} items, one choice each; accuracy by inverse propensities (ips), self-normalized (snips) and "
        "doubly robust (dr), with 95 % intervals over groups; matches: items on which the log made that choice"
    )
    print(estimates.set_index("policy").round(6).T.to_string())


def _check_picture_path(path: Path) -> Path:
    """The path, where a picture can be written; TableError where not, before any work is done."""
    if path.is_dir():
        raise TableError(
            f"--out {path} is a folder; name a file in it, such as {path / 'outcomes.png'}"
        )
    if not path.parent.is_dir():
        raise TableError(
            f"--out {path}: there is no folder {path.parent}; make it, or name another"
        )
    return path


def draw_tradeoff(rows: pd.DataFrame, name: str):
    """Draws quality against money at equal quality.

    Args:
        rows: A results table of all methods.
        name: Of the table of outcomes.

    Returns:
        The figure: accuracy against US dollars per thousand items, a point for each method.
    """
    at_equal_quality = results_table.select(rows, condition=EQUAL)
    at_equal_quality = at_equal_quality.assign(cost_usd=at_equal_quality["cost_usd"] * 1e3)
    cost_usd = stats.mean(at_equal_quality, "cost_usd", "method")
    accuracy = stats.mean(at_equal_quality, "correct", "method")
    return plots.tradeoff_plot(
        cost_usd,
        accuracy,
        f"{name}: accuracy and cost of routers that keep the best constant's quality",
        "US dollars per thousand items",
        "accuracy",
        roles={method: ROLES[method] for method in cost_usd.index},
        size=(8.5, 5),
    )


def print_report(table: OutcomeTable, gate: pd.DataFrame, comparison: pd.DataFrame) -> None:
    """Prints the answer, what there is to win, and what each method won.

    Args:
        table: The outcomes.
        gate: Of `headroom.gate`.
        comparison: Of `experiment.compared`.
    """
    for note in table.notes:
        print(note)
    print(answer_question(table, gate, comparison))
    by_check = [
        method
        for method in (CHECK, POOR)
        if comparison.loc[method, "verdict"] == experiment.CHEAPER
    ]
    print(
        f"With a check between a cheap and an expensive model: {', '.join(by_check) or 'none'} would be cheaper."
    )
    summary = headroom.describe_table(table)
    print(
        f"\n{summary['items']} items in {summary['groups']} groups, {summary['models']} models; best constant: "
        f"{headroom.name_best_constant(table)}, accuracy {summary['constant']:.3f}, "
        f"${summary['constant_cost_usd']:.4g} an item; one sample each, so that the oracle's {summary['oracle']:.3f} "
        "counts luck as skill"
    )
    print(
        "\nHeadroom of choosing by item (cross-fitted, by a router that sees more than any method):"
    )
    print(
        gate.assign(mde=[find_mde(gate, question) for question in gate.index]).round(3).to_string()
    )
    print(
        "\nMethods minus the best constant, with 95 % intervals over groups. quality, ratio: accuracy and dollars at"
    )
    print(
        "equal quality; half, half_quality: accuracy at half the money, minus mixtures and minus the constant:"
    )
    print(comparison.to_string())


def answer_question(table: OutcomeTable, gate: pd.DataFrame, comparison: pd.DataFrame) -> str:
    """Says whether routing pays on a table.

    "No" needs an upper end of the interval below what would be worth having, and enough items to have detected that
    much; otherwise the items are too few to tell.

    Args:
        table: The outcomes.
        gate: Of `headroom.gate`.
        comparison: Of `experiment.compared`.

    Returns:
        A sentence.
    """
    is_cheaper = comparison["verdict"] == experiment.CHEAPER
    winners = [method for method in comparison.index[is_cheaper] if method not in NO_ROUTERS]
    if winners:
        return f"Yes: {', '.join(winners)} cost less than the best constant at equal quality."
    is_open = gate["question is"] == headroom.OPEN
    if is_open["money"] or is_open["accuracy"]:
        return "Not by these routers, though there is something to win."
    best_accuracy = table.correct.mean(0).max()
    if best_accuracy > headroom.CEILING:
        return (
            f"No: {headroom.name_best_constant(table)} is correct on {best_accuracy:.1%} of the items, so that "
            "choosing can hardly add to it."
        )
    decisions = {question: decide_question(gate, question) for question in ("accuracy", "money")}
    too_few = [question for question, word in decisions.items() if word == TOO_FEW]
    if too_few:
        num_needed = max(count_items_needed(len(table), gate, question) for question in too_few)
        details = " and ".join(
            f"{find_mde(gate, question):.2f} of {question}, where {headroom.QUESTIONS[question]:.2f} would be worth "
            "having"
            for question in too_few
        )
        return (
            f"Too few items to tell ({len(table):,}; about {num_needed:,} would do): the minimum detectable effect is "
            f"{details}."
        )
    amounts = ", ".join(
        f"{question} {gate.loc[question, 'value']:.3f} [{gate.loc[question, 'ci_low']:.3f}, "
        f"{gate.loc[question, 'ci_high']:.3f}], worth having from {headroom.QUESTIONS[question]:.2f}"
        for question in decisions
    )
    if CLOSE in decisions.values():
        return f"Undecided: what could be won lies near the least that is worth having ({amounts})."
    if WORSE in decisions.values():
        return f"No: money can be saved here only with fewer correct answers ({amounts})."
    return (
        "No, and no router is likely to: what could be won without a check is less than is worth having "
        f"({amounts})."
    )


def decide_question(gate: pd.DataFrame, question: str) -> str:
    """What is known of a question of `headroom.gate` that is not open.

    Args:
        gate: Of `headroom.gate`.
        question: One of `headroom.QUESTIONS`.

    Returns:
        WORSE (enough would be saved, but quality fell), TOO_FEW (the least gain worth having could not have been
        detected), CLOSE (it could, and the interval holds it), or `headroom.NOT_OPEN` (less could be won).
    """
    least = headroom.QUESTIONS[question]
    if gate.loc[question, "ci_low"] >= least:
        return WORSE
    if find_mde(gate, question) >= least:
        return TOO_FEW
    return CLOSE if gate.loc[question, "ci_high"] >= least else headroom.NOT_OPEN


def find_mde(gate: pd.DataFrame, question: str) -> float:
    """The minimum detectable effect of one question of `headroom.gate` at 80 % power."""
    return mde_from_interval(gate.loc[question, "ci_low"], gate.loc[question, "ci_high"])


def count_items_needed(num_items: int, gate: pd.DataFrame, question: str) -> int:
    """Items at which the least gain worth having could be detected.

    Args:
        num_items: Of the table.
        gate: Of `headroom.gate`.
        question: One of `headroom.QUESTIONS`.

    Returns:
        Items, rounded up to two digits and more than the table has: the detectable effect falls with their square root.
    """
    ratio = find_mde(gate, question) / headroom.QUESTIONS[question]
    needed = max(num_items * ratio**2, num_items + 1)
    unit = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return math.ceil(needed / unit) * unit
