"""Figures of the scoreboard: the tally, and how clear each direction is."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import plots
from lib.scoreboard import counts as tally
from lib.scoreboard import multiple_testing
from lib.scoreboard.claim import PAPERS
from lib.scoreboard.claim_cards import SIGNS
from lib.scoreboard.verdicts import (
    COMPARED,
    EQUIVALENT,
    FAILS,
    HOLDS,
    NAMES,
    NOT_OPEN,
    UNDECIDED,
    UNTESTABLE,
    Verdict,
)

_SHADES = {
    HOLDS: "#0072B2",
    FAILS: "#D55E00",
    UNDECIDED: "#E8D9A0",
    UNTESTABLE: "#DDDDDD",
    EQUIVALENT: "#009E73",
    NOT_OPEN: "#AAAAAA",
}
plots.register({f"{SIGNS[key]} {NAMES[key]}": (shade, "o") for key, shade in _SHADES.items()})
_SHADES_DARK = {
    HOLDS: "#0072B2",
    FAILS: "#D55E00",
    UNDECIDED: "#7A7526",
    EQUIVALENT: "#009E73",
    NOT_OPEN: "#777777",
}  # of marks, which are small
_FURTHEST = 10.0  # standard errors; what is clearer is drawn there


def tally_figure(verdicts: Sequence[Verdict]) -> Figure:
    """Verdicts by paper, one panel for formulas and one for directions."""
    there = {key: f"{SIGNS[key]} {NAMES[key]}" for key in NAMES if key != COMPARED}
    counts = {
        (f"{kind}s", PAPERS[paper]): {there[key]: row[key] for key in there}
        for kind in ("formula", "direction")
        for paper, row in tally.counts(verdicts, kind).items()
    }
    table = pd.DataFrame.from_dict(counts, orient="index").rename_axis(["kind", "paper"])
    return plots.shares(
        table,
        tally.message(verdicts),
        "claims",
        panels="kind",
        unit="",
        note="Magnitudes are not judged.",
    )


def clearness_figure(verdicts: Sequence[Verdict]) -> Figure:
    """Every direction by how many standard errors it is met; rings hold with all of them asked at once."""
    kept = multiple_testing.survivors(verdicts)
    note = f"Dashed: an interval of 95 % ends at 0. Ring: holds with all asked at once (Holm). Drawn at {_FURTHEST:g}: "
    note += f"{_FURTHEST:g} and more."
    with plots.theme():
        figure = plots.sheet(clearness_message(verdicts), plots.WIDTH, 3.2, note)
        axes = figure.subplots()
        for place, paper in enumerate(PAPERS):
            mine = sorted(
                (v for v in multiple_testing.asked(verdicts) if v.claim.paper == paper),
                key=multiple_testing.clearness,
            )
            for rank, v in enumerate(mine):
                x = max(-_FURTHEST, min(_FURTHEST, multiple_testing.clearness(v)))
                y = place + 0.5 * ((rank % 5) - 2) / 5
                axes.plot(
                    x, y, "D" if v.stand_in else "o", color=_SHADES_DARK[v.verdict], markersize=6
                )
                if v.claim.id in kept:
                    axes.plot(x, y, "o", color="none", markeredgecolor="black", markersize=11)
        reach = multiple_testing.REACH
        for x, style in ((-reach, "--"), (0, "-"), (reach, "--")):
            axes.axvline(x, color=plots.GREY, linestyle=style, linewidth=1)
        for x, text in ((-_FURTHEST, "against the claim"), (_FURTHEST, "for the claim")):
            side = "left" if x < 0 else "right"
            axes.text(x, -0.75, text, ha=side, va="center", color=plots.GREY, fontsize=9)
        axes.set_yticks(range(len(PAPERS)), list(PAPERS.values()))
        axes.set(xlim=(-_FURTHEST - 0.6, _FURTHEST + 0.6), ylim=(len(PAPERS) - 0.4, -1))
        axes.set_xlabel(
            "distance from 0, in standard errors (diamond: decided by a scripted stand-in)"
        )
    return figure


def clearness_message(verdicts: Sequence[Verdict]) -> str:
    """What asking all at once leaves, as a title."""
    holding = [v for v in multiple_testing.asked(verdicts) if v.verdict == HOLDS]
    kept = len(multiple_testing.survivors(verdicts))
    return f"Of {len(holding)} directions that hold one by one, {kept} hold with all of them asked at once"
