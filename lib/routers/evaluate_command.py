"""Does routing beat the best constant here? `python -m lib router evaluate TABLE.csv` answers for anybody's table.

A row for each item and model: item, group, model, correct, cost_usd, and either embeddings e0, e1, ... or a prompt.
Printed are what choosing could win at most, what each decision maker wins at equal quality and at half the money, with
intervals, and a sentence; quality against money is drawn beside the table, or where --out says.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lib import config, plots, stats
from lib.experiment import artifacts, results_table
from lib.recorded_outcomes import headroom, tables
from lib.recorded_outcomes.model_selection import EQUAL
from lib.routers import experiment
from lib.routers.methods import CHECK, MIXTURES, ORACLE, POOR, RANDOM, ROLES

FREE = (
    CHECK,
    POOR,
    ORACLE,
    RANDOM,
    MIXTURES,
)  # no routers: a check is assumed, an oracle knows, a die does not look


def draw_tradeoff(rows: pd.DataFrame, name: str):
    """Quality against dollars per thousand items, of everybody at equal quality."""
    shown = results_table.select(rows, condition=EQUAL)
    shown = shown.assign(cost_usd=shown["cost_usd"] * 1e3)
    x, y = (stats.mean(shown, column, "method") for column in ("cost_usd", "correct"))
    roles = {method: ROLES[method] for method in x.index}
    title = f"{name}: who is as right as the best constant, and for how much"
    return plots.tradeoff_plot(
        x, y, title, "dollars for a thousand items", "share right", roles=roles, size=(8.5, 5)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a table, let everybody meet on it, say what came of it; 2 where the table cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m lib router evaluate", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "table",
        type=Path,
        help=".csv or .parquet: item, group, model, correct, cost_usd [, e0 ... | prompt]",
    )
    parser.add_argument(
        "--out", type=Path, help="the picture; TABLE.png beside the table unless told otherwise"
    )
    parser.add_argument(
        "--partings", type=int, default=1, help="of the items into folds; more are surer and slower"
    )
    parser.add_argument("--profile", choices=config.PROFILES, default="laptop")
    options = parser.parse_args(arguments)
    settings = config.load(options.profile).recorded
    settings = settings.model_copy(
        update={"seeds": options.partings, "items": sys.maxsize, "draws": 100}
    )
    try:
        table = tables.read_table(options.table)
        folds = min(settings.folds, len(set(table.groups)))
        gate = headroom.gate(table, settings.folds, range(options.partings), settings.min_dev_gain)
        made = experiment.replayed(table, settings.model_copy(update={"folds": folds}))
        rows = made["rows"]
    except tables.TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = results_table.make_results("recorded", rows)
    report(
        table,
        gate,
        experiment.compared(rows, made["drawn"], settings.equivalence_margin, gate["question is"]),
    )
    out = options.out or options.table.with_suffix(".png")
    artifacts.write_bytes(out, plots.render_png(draw_tradeoff(rows, table.name)))
    print(f"\npicture: {out}")
    return 0


def report(table: tables.OutcomeTable, gate: pd.DataFrame, found: pd.DataFrame) -> None:
    """Print what there is to win, who won what, and the answer."""
    told = headroom.describe_table(table)
    print(
        f"{told['items']} items in {told['groups']} groups, {told['models']} models; best constant: "
        f"{headroom.name_best_constant(table)}, right {told['constant']:.3f}, "
        f"${told['constant_cost_usd']:.4g} an item; one try each, "
        f"so the oracle's {told['oracle']:.3f} counts luck as skill"
    )
    print("\nWhat a choice could win (cross-fitted, by who sees more than any router):")
    print(gate.round(3).to_string())
    print(
        "\nEverybody, less the best constant, with intervals over groups. quality, ratio: right answers and dollars at"
    )
    print(
        "equal quality; half, half_quality: right answers at half the money, less mixtures and less the constant:"
    )
    print(found.to_string())
    won = [
        method
        for method in found.index[found["verdict"] == experiment.CHEAPER]
        if method not in FREE
    ]
    asked = {name: gate.loc[name, "question is"] for name in gate.index}
    if won:
        print(f"\nYes: {', '.join(won)} cost less than the best constant at equal quality.")
    elif asked["money"] == headroom.NOT_OPEN and asked["accuracy"] == headroom.NOT_OPEN:
        print(
            "\nNo, and no router is likely to: what could be won without a check is too little to ask for."
        )
    else:
        print("\nNot these routers, though there is something to win.")
    checked = [
        method for method in (CHECK, POOR) if found.loc[method, "verdict"] == experiment.CHEAPER
    ]
    print(
        f"With a check between a cheap and a dear model: {', '.join(checked) or 'none'} would be cheaper."
    )
