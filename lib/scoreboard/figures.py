"""Figures of the scoreboard: verdict counts, by paper and by level of evidence, and how clear each direction is."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import plots
from lib.scoreboard import counts, multiple_testing
from lib.scoreboard.claim import EVIDENCE_LEVELS, PAPERS
from lib.scoreboard.claim_cards import SIGNS
from lib.scoreboard.verdicts import (
    COMPARED,
    HOLDS,
    VERDICT_LABELS,
    Verdict,
)

# Labels of verdicts behind their signs; magnitudes, which are compared only, get none.
_SIGNED_LABELS = {
    verdict: f"{SIGNS[verdict]} {label}"
    for verdict, label in VERDICT_LABELS.items()
    if verdict != COMPARED
}
for _verdict, _label in _SIGNED_LABELS.items():
    plots.label_like(_label, _verdict)
_MAX_CLEARNESS = 10.0  # standard errors; what is clearer is drawn there


def plot_verdict_counts(verdicts: Sequence[Verdict]) -> Figure:
    """Draws stacked bars of the verdicts of each paper: a panel for formulas, one for directions."""
    rows = {}
    for kind in ("formula", "direction"):
        for paper, paper_counts in counts.count_by_paper(verdicts, kind).items():
            row = {label: paper_counts[verdict] for verdict, label in _SIGNED_LABELS.items()}
            rows[f"{kind}s", PAPERS[paper]] = row
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["kind", "paper"])
    return plots.stacked_shares(
        table,
        counts.title_verdict_counts(verdicts),
        "claims",
        panels="kind",
        unit="",
        note="Magnitudes are not judged.",
    )


def plot_directions_by_level(verdicts: Sequence[Verdict]) -> Figure:
    """Verdicts on directions, a row for each level of evidence."""
    directions = [v for v in verdicts if v.claim.kind == "direction"]
    rows = {}
    num_holding = {}
    for level in EVIDENCE_LEVELS:
        on_level = [v for v in directions if v.claim.evidence_level == level]
        row = {}
        for verdict, label in _SIGNED_LABELS.items():
            row[label] = counts.count_verdicts(on_level, verdict)
        rows[level] = row
        num_holding[level] = f"{level} {counts.count_verdicts(on_level, HOLDS)} of {len(on_level)}"
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("evidence level")
    title = f"Directions that hold: {', '.join(num_holding.values())}"
    return plots.stacked_shares(table, title, "directions", unit="")


def plot_clearness(verdicts: Sequence[Verdict]) -> Figure:
    """Draws every tested direction by its distance from 0 in standard errors, a row per paper.

    A ring marks the directions that hold after Holm's correction for multiple testing. The colour is the verdict; grey
    ones, whose question is not open, have no ring. Distances are clipped at _MAX_CLEARNESS.
    """
    survivors = multiple_testing.select_survivors(verdicts)
    family = multiple_testing.select_family(verdicts)
    note = (
        "Dashed: an interval of 95 % ends at 0. Ring: holds with all tested at once (Holm). "
        f"Drawn at {_MAX_CLEARNESS:g}: {_MAX_CLEARNESS:g} and more."
    )
    with plots.theme():
        figure = plots.new_figure(title_clearness(verdicts), plots.WIDTH, 3.5, note)
        axes = figure.subplots()

        # A line of markers per paper, from the least clear direction to the clearest.
        for row, paper in enumerate(PAPERS):
            of_paper = [verdict for verdict in family if verdict.claim.paper == paper]
            of_paper.sort(key=multiple_testing.compute_clearness)
            for rank, verdict in enumerate(of_paper):
                clearness = multiple_testing.compute_clearness(verdict)
                x = max(-_MAX_CLEARNESS, min(_MAX_CLEARNESS, clearness))
                # Five heights in turn, so that markers do not hide each other.
                y = row + 0.1 * (rank % 5 - 2)
                shade = plots.text_colour(plots.colour(verdict.verdict))  # markers are small
                axes.plot(x, y, "o", color=shade, markersize=6)
                if verdict.claim.id in survivors:
                    axes.plot(x, y, "o", color="none", markeredgecolor="black", markersize=11)

        drawn_verdicts = [name for name in VERDICT_LABELS if any(v.verdict == name for v in family)]
        for name in drawn_verdicts:
            shade = plots.text_colour(plots.colour(name))
            axes.plot([], [], "o", color=shade, markersize=6, label=VERDICT_LABELS[name])
        layout = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0), "ncols": len(drawn_verdicts)}
        if drawn_verdicts:
            axes.legend(**layout, fontsize=9, columnspacing=1.0, handletextpad=0.1)

        # Zero, and where an interval of 95 % ends at zero.
        z_alpha = multiple_testing.Z_ALPHA
        for x, style in ((-z_alpha, "--"), (0, "-"), (z_alpha, "--")):
            axes.axvline(x, color=plots.GREY, linestyle=style, linewidth=1)
        y_text = -0.75
        text_style = {"va": "center", "color": plots.GREY, "fontsize": 9}
        axes.text(-_MAX_CLEARNESS, y_text, "against the claim", ha="left", **text_style)
        axes.text(_MAX_CLEARNESS, y_text, "for the claim", ha="right", **text_style)

        axes.set_yticks(range(len(PAPERS)), list(PAPERS.values()))
        axes.set(xlim=(-_MAX_CLEARNESS - 0.6, _MAX_CLEARNESS + 0.6), ylim=(len(PAPERS) - 0.4, -1))
        axes.set_xlabel("distance from 0, in standard errors")
    return figure


def title_clearness(verdicts: Sequence[Verdict]) -> str:
    """Writes the title of the figure: how many directions hold before and after Holm's correction."""
    family = multiple_testing.select_family(verdicts)
    num_holding = sum(verdict.verdict == HOLDS for verdict in family)
    num_survivors = len(multiple_testing.select_survivors(verdicts))
    return (
        f"Of {num_holding} directions that hold one by one, {num_survivors} hold with all of them "
        "tested at once"
    )
