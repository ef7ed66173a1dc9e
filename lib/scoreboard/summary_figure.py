"""Everybody in one picture: how much of what choosing could win each paper's decision maker wins, a panel a rung.

    share = (the decision maker - the best constant) / (the best that there is - the best constant)

0 is the best that needs no choice, 1 the optimum of a glass box, or the oracle of a lab or a recorded table, which
looks back. The interval is the one of the numerator: what there was to win is taken as known. Who is asked a closed
question is named and not drawn. Left out: lessons 06 and 07 in the lab, whose runs are weak; the claims say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from lib import plots
from lib.plots.tables import listed
from lib.plots.theme import rows_of_names
from lib.scoreboard import verdicts
from lib.scoreboard.metrics import Metrics, Missing
from lib.stats import Interval, interval_arithmetic

PANELS = {  # rung: its title, what 0 is, and what 1 is
    "glass": ("Glass box: the optimum is known", "best constant", "optimum"),
    "lab": ("Lab: small models and policies that are trained here", "best constant", "oracle"),
    "recorded": (
        "Recorded: real models and agents, at half the money",
        "best mixture of constants",
        "oracle",
    ),
}
_ORCHESTRATION, _ROUTING, _RECORDED = (
    "02_orchestration",
    "05_budgeted_routing",
    "08_recorded_outcomes",
)
CASCADE = "checked cascade"  # ask the cheap one, see whether it was right, ask the dear one; nothing is learned
_SHORTEST = -1.5  # share; what is worse is drawn there


@dataclass(frozen=True)
class Row:
    """Who is drawn where. above, top, rival: keys of `lesson` joined by ` - `: the decision maker above the best
    constant, the best there is above it, and a plain rival above it; gate: (lesson, key) of what says it is open."""

    rung: str
    who: str
    lesson: str
    above: str
    top: str
    rival: str = ""
    gate: tuple[str, str] | None = None


def _orchestrators() -> list[Row]:
    rows = []
    for domain, where, gate in (
        ("education", "students", "education"),
        ("minigrid", "rooms", "rooms"),
    ):
        key, top = f"contrast.{domain}", f"gate.{gate}.headroom"
        rival = f"{key}.KO_best-policy.utility - {key}.KO_LinUCB.utility"
        rows += [
            Row(
                "lab",
                f"{who}, {where}",
                _ORCHESTRATION,
                f"{key}.{who}_best-policy.utility",
                top,
                rival,
                (_ORCHESTRATION, top),
            )
            for who in ("KO", "TO", "RO")
        ]
    return rows


def _routers() -> list[Row]:
    rows = []
    for money in ("low", "medium", "high"):
        who, glass, lab = f"CoRL, {money} budget", f"glass.{money}", f"corl.{money}.minus"
        rows.append(
            Row(
                "glass",
                who,
                _ROUTING,
                f"{glass}.minus_best_blind",
                f"{glass}.headroom",
                gate=(_ROUTING, f"{glass}.headroom"),
            )
        )
        constant = f"{lab}_best_constant"
        rows.append(
            Row(
                "lab",
                who,
                _ROUTING,
                constant,
                f"{constant} - {lab}_oracle",
                f"{constant} - {lab}_logistic",
                (_ROUTING, f"gate.routing.{money}.headroom"),
            )
        )
    return rows


def _replayed() -> list[Row]:
    places = (
        ("llmrouter", "known tasks"),
        ("llmrouter-new", "new tasks"),
        ("swe-multimodal", "agents on bugs"),
    )
    return [
        Row(
            "recorded",
            f"{who}, {where}",
            _RECORDED,
            f"{table}.{method}.half_gap",
            f"{table}.oracle.half_gap",
            f"{table}.knn.half_gap",
            (_RECORDED, f"gate.{table}.{'check' if method == 'check' else 'money'}.is"),
        )
        for table, where in places
        for who, method in (
            ("CoRL", "corl"),
            ("ToolOrchestra", "toolorchestra"),
            ("ARC", "arc"),
            (CASCADE, "check"),
        )
    ]


def _others() -> list[Row]:
    maestro, static = "04_conductor", "glass.conductor_minus_best_static"
    tools, arc = "06_tool_orchestration", "07_agent_configuration"
    top = f"{static} - glass.conductor_minus_oracle"
    return [
        Row("glass", "MAESTRO's Conductor", maestro, static, top),
        Row(
            "glass",
            "ToolOrchestra",
            tools,
            "glass.above_constant",
            "glass.headroom",
            gate=(tools, "glass.headroom"),
        ),
        Row(
            "glass",
            "ARC",
            arc,
            "glass.above_constant",
            "glass.headroom",
            gate=(arc, "glass.headroom"),
        ),
    ]


ROWS = (*_others(), *_orchestrators(), *_routers(), *_replayed())


@dataclass(frozen=True)
class Place:
    """A row as measured: the share won, that of its rival (nan for none), or that its question is closed."""

    row: Row
    share: Interval
    rival: float
    closed: bool


def places(metrics: Metrics, rows: Sequence[Row] = ROWS) -> list[Place]:
    """Every row whose metrics there are, panel after panel."""
    found = []
    for row in sorted(rows, key=lambda each: list(PANELS).index(each.rung)):
        try:
            above, top = (_sum(metrics, row.lesson, text) for text in (row.above, row.top))
            rival = _sum(metrics, row.lesson, row.rival).value if row.rival else np.nan
        except Missing:
            continue
        closed = bool(row.gate and verdicts.shut(metrics, *row.gate)) or not top.value > 0
        scale = 1 / top.value if top.value > 0 else np.nan
        share = Interval(above.value * scale, above.ci_low * scale, above.ci_high * scale)
        found.append(Place(row, share, rival * scale, closed))
    return found


def _sum(metrics: Metrics, lesson: str, text: str) -> Interval:
    """Keys joined by ` - `; of several only the value counts."""
    parts = [metrics.estimate(lesson, key) for key in text.split(" - ")]
    return (
        parts[0]
        if len(parts) == 1
        else interval_arithmetic.exact(parts[0].value - sum(part.value for part in parts[1:]))
    )


def figure(found: Sequence[Place]) -> Figure:
    """A panel a rung, one above the other."""
    told, shut = (
        [each for each in found if not each.closed],
        [each.row.who for each in found if each.closed],
    )
    rungs = {rung: [each for each in told if each.row.rung == rung] for rung in PANELS}
    rungs = {rung: mine for rung, mine in rungs.items() if mine}
    note = "Bars: intervals of 95 %. Hollow square: a plain router, or LinUCB, on the same items. "
    note += "KO, TO, RO: policy orchestration. Checked cascade: asks the cheap one, then the dear one if it was wrong. "
    note += f"Closed, so not drawn: {listed(shut, 'nobody')}."
    with plots.theme():
        heights = [len(mine) + 2.2 for mine in rungs.values()]
        sheet = plots.sheet(message(found), plots.WIDTH, 0.27 * sum(heights) + 0.6, note)
        if not rungs:
            return sheet
        panels = sheet.subplots(
            len(rungs), 1, sharex=True, squeeze=False, height_ratios=heights
        ).ravel()
        for axes, (rung, mine) in zip(panels, rungs.items(), strict=True):
            _panel(axes, rung, mine)
        panels[-1].set_xlim(_SHORTEST - 0.05, 1.15)
        panels[-1].set_xlabel("share won of what choosing could win")
    return sheet


def _panel(axes, rung: str, mine: Sequence[Place]) -> None:
    title, *ends = PANELS[rung]
    for x, text in enumerate(ends):
        axes.axvline(x, color=plots.GREY, linewidth=1, linestyle="-" if x else "--")
        axes.text(
            x, len(mine) - 0.1, f"{text} ", ha="right", va="center", fontsize=9, color=plots.GREY
        )
    for y, place in enumerate(mine):
        who = place.row.who.split(",")[0]
        shade = plots.GREY if who == CASCADE else plots.colour(who.removeprefix("MAESTRO's "))
        ends = np.clip(
            [place.share.ci_low, place.share.value, place.share.ci_high], _SHORTEST, None
        )
        axes.plot(ends[[0, 2]], [y, y], color=shade, linewidth=2.2, solid_capstyle="butt")
        axes.plot(ends[1], y, "o", color=shade, markersize=7)
        if np.isfinite(place.rival):
            axes.plot(
                max(place.rival, _SHORTEST),
                y,
                "s",
                color="none",
                markeredgecolor=plots.GREY,
                markersize=8,
            )
    rows_of_names(axes, [place.row.who for place in mine], 30)
    axes.set_ylim(len(mine) + 0.3, -0.6)
    axes.set_title(title, fontsize=10, loc="left", x=0.0)


def message(found: Sequence[Place]) -> str:
    """The picture as a title."""
    told = [each for each in found if not each.closed and not each.row.who.startswith(CASCADE)]
    said = [
        f"{sum(each.share.ci_low > 0 for each in mine)} of {len(mine)} {where}"
        for rung, where in (
            ("glass", "in the glass box"),
            ("lab", "in the lab"),
            ("recorded", "on recorded outcomes"),
        )
        if (mine := [each for each in told if each.row.rung == rung])
    ]
    return f"Who beats the best constant clearly: {listed(said, 'nobody was measured')}"


def known(found: Sequence[Place]) -> dict[str, str]:
    """What is known at each rung, by `rung.word` of `index.KNOWN`: who is clearly above what 0 is, not told apart from
    it or clearly below, each with the share won, and whose question is closed. Words that hold for nobody are left out.
    """
    out = {}
    for rung in PANELS:
        mine = [each for each in found if each.row.rung == rung]
        lots = {
            word: [f"{each.row.who} ({each.share.value:.2f})" for each in mine if _up(each) == sign]
            for word, sign in (("above", 1), ("level", 0), ("below", -1))
        }
        lots["not_open"] = [each.row.who for each in mine if each.closed]
        out |= {f"{rung}.{word}": "; ".join(who) for word, who in lots.items() if who}
    return out


def _up(place: Place) -> float:
    """1, 0 or -1: above the best constant, not told apart from it, below it; nan where the question is closed."""
    return (
        np.nan if place.closed else float(place.share.ci_low > 0) - float(place.share.ci_high < 0)
    )
