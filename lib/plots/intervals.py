"""Estimates beside one another, as dots with their intervals."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.plots.inputs import Estimates, alt, ends, table
from lib.plots.inputs import note as interval_note
from lib.plots.styles import GREY, Style, looks
from lib.plots.theme import NAME, WIDTH, folded, literal, rows_of_names, sheet, span, theme, tiles


@theme()
def points(
    est: Estimates,
    title: str,
    xlabel: str | Mapping[str, str] = "",
    *,
    rows: str | None = None,
    panels: str | None = None,
    beside: tuple[str, Estimates] | None = None,
    line: float | None = None,
    smaller: Collection[str] = (),
    limits: tuple[float, float] | None = None,
    like: Mapping | None = None,
    roles: Mapping[str, str] | None = None,
    across: int = 3,
    wide: float | None = None,
    name: int = NAME,
    note: str = "",
) -> Figure:
    """A dot with its interval for each row, and a panel for each value of a second group.

    est: by rows, or by rows and panels (see `table`); what is missing is shown as not measured. xlabel: the axis with
    its unit, by panel where panels differ, whose order and choice it then makes; a panel is its own label otherwise.
    beside: (what it is, estimates of the same groups), hollow marks on the same row. line: a reference to draw, such
    as 0 for differences. smaller: panels where less is better. A ring marks the row whose interval lies beyond all
    others of its panel, unless there is a line or a second estimate. limits: of every x axis. like: {row: the name
    whose look it takes}, or {(row, panel): name}; roles: {row: role}. wide: inches; name: characters of a row's name on
    a line. note: what else a reader must know, below.
    """
    found = _two_levels(est, rows, panels)
    names, parts = (list(dict.fromkeys(found.index.get_level_values(level))) for level in (0, 1))
    labels = (
        dict(xlabel)
        if isinstance(xlabel, Mapping)
        else {part: xlabel or str(part) for part in parts}
    )
    other = None if beside is None else _two_levels(beside[1], rows, panels)
    best = (
        {}
        if other is not None or line is not None
        else {part: _clearly_best(found.xs(part, level=1), part in smaller) for part in labels}
    )
    told = [interval_note(found) if other is None else interval_note(found, other)]
    told += ["Ring: beyond every other interval."] * any(b is not None for b in best.values())
    told += [f"Hollow: {beside[0]}."] if beside else []
    deep = sum(1.0 + 0.57 * folded(row, name).count("\n") for row in names)
    across = min(len(labels), across)
    high = -(-len(labels) // across) * (0.3 * deep + 0.9) + 0.7
    figure = sheet(title, wide or WIDTH + 0.8 * (across - 1), high, " ".join([*told, note]).strip())
    styles = looks(names, like, roles)
    for place, (axes, (part, label)) in enumerate(
        zip(tiles(figure, len(labels), across), labels.items(), strict=True)
    ):
        own = looks([like[row, part] for row in names if (row, part) in like]) if like else {}
        shown = {row: own.get((like or {}).get((row, part)), styles[row]) for row in names}
        drawn = [
            each.xs(part, level=1).reindex(names) for each in (found, other) if each is not None
        ]
        _panel(axes, drawn, shown, line, best.get(part))
        axes.set_xlabel(literal(label))
        axes.set_xlim(limits)
        if isinstance(xlabel, str) and xlabel and part != "":
            axes.set_title(literal(part))
        rows_of_names(axes, names if place % across == 0 else [""] * len(names), name)
    figure.alt_text = alt(found.droplevel(1) if parts == [""] else found, title)
    return figure


def _two_levels(est: Estimates, rows: str | None, panels: str | None) -> pd.DataFrame:
    found = table(est, None if rows is None else [rows, *([panels] if panels else [])])
    if found.index.nlevels == 1:
        found = pd.concat({"": found}).swaplevel()
    if found.index.nlevels != 2:
        raise ValueError(
            f"points takes rows and panels, got groups {list(found.index.names)}; name two"
        )
    return found


def _panel(
    axes: Axes,
    drawn: list[pd.DataFrame],
    styles: Mapping[str, Style],
    line: float | None,
    best: str | None,
) -> None:
    """One panel: filled the first estimates, hollow the second; rows from top to bottom."""
    colours, shapes = ({row: style[i] for row, style in styles.items()} for i in (0, 1))
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.8, zorder=1)
    for hollow, part in reversed(list(enumerate(drawn))):
        for row, (ci_low, ci_high) in enumerate(zip(part["ci_low"], part["ci_high"], strict=True)):
            if np.isfinite(
                ci_low
            ):  # ends that stay visible above and below a mark that is wider than the interval
                axes.plot(
                    [ci_low, ci_high],
                    [row, row],
                    color=colours[part.index[row]],
                    marker="|",
                    markersize=11,
                    markeredgewidth=1.5,
                    linewidth=2,
                    gid="interval",
                    solid_capstyle="butt",
                    zorder=3,
                )
        flat = part.assign(row=range(len(part)), name=list(part.index)).dropna(subset="value")
        sizes = {
            row: 130 if shape == "*" else 62 for row, shape in shapes.items()
        }  # a star is mostly gaps
        sns.scatterplot(
            flat,
            x="value",
            y="row",
            hue="name",
            style="name",
            size="name",
            sizes=sizes,
            palette=colours,
            markers=shapes,
            legend=False,
            ax=axes,
            zorder=4,
            clip_on=False,
            linewidth=0.8,
        )
        marks = axes.collections[-1]
        if hollow:
            marks.set(
                edgecolor=[colours[row] for row in flat["name"]], facecolor="white", linewidth=1.5
            )
    for row in np.flatnonzero(drawn[0]["value"].isna()):
        axes.annotate(
            "not measured",
            (0.02, row),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            color=GREY,
        )
    if best is not None:
        at = [drawn[0].loc[best, "value"]], [list(drawn[0].index).index(best)]
        axes.plot(
            *at,
            "o",
            markersize=15,
            mfc="none",
            mec="black",
            mew=1.2,
            clip_on=False,
            zorder=5,
            gid="ring",
        )
    inked = np.concatenate([ends(part.dropna(subset="value")).to_numpy().ravel() for part in drawn])
    if len(inked):
        span(axes, inked if line is None else np.append(inked, line))
    axes.set_ylabel("")


def _clearly_best(part: pd.DataFrame, smaller: bool) -> str | None:
    """The row whose interval lies beyond all others; None where intervals touch or are not known."""
    if len(part) < 2 or part["ci_low"].isna().any():
        return None
    near, far = (
        (-part["ci_high"], -part["ci_low"]) if smaller else (part["ci_low"], part["ci_high"])
    )
    best = near.idxmax()
    return best if (near[best] > far.drop(best)).all() else None
