"""The paper that figures are drawn on: one theme, a message on top, a note below, and labels clear of each other.

A figure is a `matplotlib.figure.Figure` made without pyplot, so that a notebook never shows it twice and nothing
stays open. The same input gives the same PNG bytes. Left out: kinds of figures, which stand on this.
"""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from scipy.optimize import isotonic_regression

from lib.plots.styles import GREY, ink

DPI = 110
WIDTH = 7.6  # inches; about the width of a notebook's text
NAME = 26  # characters of a name on one line

_RC = {  # DejaVu Sans ships with matplotlib, so that every machine draws the same
    "font.family": ["DejaVu Sans"], "font.size": 10, "axes.titlesize": 10.5, "axes.labelsize": 10,
    "xtick.labelsize": 9.5, "ytick.labelsize": 9.5, "legend.fontsize": 9, "legend.frameon": False,
    "figure.dpi": DPI, "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
    "axes.edgecolor": "#8c8c8c", "xtick.color": "#8c8c8c", "ytick.color": "#8c8c8c", "xtick.labelcolor": "black",
    "ytick.labelcolor": "black", "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.8,
    "lines.linewidth": 1.9, "lines.markersize": 6,
}  # fmt: skip


@contextmanager
def theme() -> Iterator[None]:
    """The look of every figure, as a context or a decorator; a reader's own matplotlibrc is ignored."""
    plain = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context({**plain, **_RC}):
        yield


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes, without the version of matplotlib, so that equal figures are equal bytes."""
    buffer = io.BytesIO()
    with theme():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def literal(text: object) -> str:
    """`text` for matplotlib, where what stands between two dollar signs would be read as mathematics."""
    return re.sub(r"(?<!\\)\$", r"\\$", str(text))


@theme()
def sheet(title: str, width: float = WIDTH, height: float = 4.0, note: str = "") -> Figure:
    """An empty figure with its message on top and, small, a note on what the marks mean below.

    width, height: inches, without the lines of a long title or note. What is drawn on it belongs under `theme` too.
    Raises ValueError without a title.
    """
    if not title.strip():
        raise ValueError("a figure needs a title that states its message")
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # text can be measured before anything is saved
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.07)
    message = figure.suptitle(
        title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False
    )
    lines = _wrapped(message)
    if note:
        lines += _wrapped(
            figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=GREY, parse_math=False)
        )
    figure.set_size_inches(width, height + 0.18 * lines)
    figure.alt_text = title
    return figure


def _wrapped(text: Text) -> int:
    """Break the text into lines that the page is wide enough for; returns how many more than one."""
    words, page = text.get_text(), text.figure.bbox.width * 0.98
    for characters in range(len(words) + 1, 7, -2):
        text.set_text(textwrap.fill(words, characters, break_long_words=False))
        if text.get_window_extent().width <= page:
            break
    return text.get_text().count("\n")


def tiles(figure: Figure, count: int, across: int = 3, **shared) -> list[Axes]:
    """`count` axes in rows of at most `across`; shared: what `Figure.subplots` takes, such as sharey=True."""
    across = min(count, across)
    grid = figure.subplots(-(-count // across), across, squeeze=False, **shared).ravel()
    for spare in grid[count:]:
        spare.remove()
        above = grid[list(grid).index(spare) - across]
        above.xaxis.set_tick_params(labelbottom=True)  # its own, as nothing stands below any more
    return list(grid[:count])


def rows_of_names(axes: Axes, names: Sequence[str], width: int = NAME) -> None:
    """A name for each row, the first on top; width: characters on a line."""
    axes.set_yticks(range(len(names)), [literal(folded(name, width)) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def folded(name: str, width: int = NAME) -> str:
    """A name in lines of `width` characters; lines of its own stay."""
    return "\n".join(textwrap.fill(line, width) for line in str(name).split("\n"))


def span(axes: Axes, values: np.ndarray, axis: str = "x", share: float = 0.08) -> None:
    """Limits around the values with a margin, also where all of them are equal; round ticks."""
    lo, hi = float(np.min(values)), float(np.max(values))
    margin = (hi - lo) * share or max(abs(hi), 1.0) * 0.1
    axes.set(**{f"{axis}lim": (lo - margin, hi + margin)})
    getattr(axes, f"{axis}axis").set_major_locator(MaxNLocator(5))


# Labels


def spread(wanted: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Positions as near to `wanted` (n,) as a gap between neighbours allows, within [low, high]: (n,).

    With the gaps taken out it is a least-squares fit that must not decrease. Where n labels do not fit, the gap
    shrinks until they do.
    """
    wanted = np.asarray(wanted, dtype=float)
    if len(wanted) == 0:
        return wanted
    order = np.argsort(wanted, kind="stable")
    steps = min(gap, (high - low) / max(len(wanted) - 1, 1)) * np.arange(len(wanted))
    placed = np.empty(len(wanted))
    fitted = isotonic_regression(wanted[order] - steps).x
    placed[order] = np.clip(fitted, low, max(low, high - steps[-1])) + steps
    return placed


def end_labels(axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str]) -> None:
    """Names in a column beside their points xy (n, 2), in the order of the points, each tied to its own by a thin line.

    The figure must be laid out already: it decides how high a line of text is. The labels change only the width of the
    axes.
    """
    if len(names) == 0:
        return
    lines = 1 + max(name.count("\n") for name in names)
    box, tall = axes.get_window_extent(), lines * 13 * DPI / 72
    heights = axes.transData.transform(np.asarray(xy, dtype=float))[:, 1]
    placed = (spread(heights, tall, box.y0 + tall / 2, box.y1 - tall / 2) - box.y0) / box.height
    for name, point, shade, height in zip(names, xy, shades, placed, strict=True):
        line = {
            "arrowstyle": "-",
            "color": shade,
            "lw": 0.9,
            "shrinkA": 1,
            "shrinkB": 1,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            literal(name),
            point,
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            fontsize=10,
            color=ink(shade),
            zorder=6,
            annotation_clip=False,
            arrowprops=line,
        )


_AROUND = ((1, 0), (0.8, 0.8), (0.8, -0.8), (0, 1), (0, -1), (-0.8, 0.8), (-0.8, -0.8), (-1, 0))


def point_labels(
    axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str], drawn: np.ndarray
) -> None:
    """A name close to each point of xy (n, 2), where it covers no other label, no mark and no edge.

    drawn: (m, 2) in data units, what else is there. The figure must be laid out already. Greedy from right to left:
    the cheapest of eight directions at six distances.
    """
    xy, drawn = np.asarray(xy, dtype=float), np.asarray(drawn, dtype=float)
    renderer, frame = axes.figure.canvas.get_renderer(), axes.get_window_extent()
    marks, points = axes.transData.transform(drawn), axes.transData.transform(xy)
    rings = [Bbox.from_bounds(x - 13, y - 13, 26, 26) for x, y in points]
    taken: list[Bbox] = []
    for row in np.argsort(-points[:, 0], kind="stable"):
        text = axes.annotate(
            literal(names[row]),
            xy[row],
            xytext=(0, 0),
            textcoords="offset pixels",
            va="center",
            ha="center",
            fontsize=9.5,
            color=ink(shades[row]),
            zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            arrowprops={
                "arrowstyle": "-",
                "color": shades[row],
                "lw": 0.8,
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
        text.set_in_layout(
            False
        )  # it lies inside the axes; otherwise it would move what it was placed by
        width, height, _ = renderer.get_text_width_height_descent(
            str(names[row]), text.get_fontproperties(), False
        )
        others = [ring for place, ring in enumerate(rings) if place != row]
        best, box = _best_place(points[row], width, height, frame, marks, taken + others)
        text.set_position(tuple(best))
        if np.hypot(best[0] - np.sign(best[0]) * width / 2, best[1]) < 28:
            text.arrow_patch.set_visible(False)  # near enough to need no line
        taken.append(box)


def _best_place(
    point: np.ndarray,
    width: float,
    height: float,
    frame: Bbox,
    marks: np.ndarray,
    taken: list[Bbox],
) -> tuple[np.ndarray, Bbox]:
    """Offset (2,) in pixels of a label's centre from its point, and the box it fills there."""
    choices = []
    for distance in (16, 24, 34, 48, 66, 90):
        for place, (right, up) in enumerate(_AROUND):
            offset = np.array([right * distance, up * distance * 1.1])
            offset += [np.sign(right) * width / 2, np.sign(up) * height * 0.3]
            x, y = point + offset
            box = Bbox.from_bounds(x - width / 2 - 2, y - height / 2 - 1, width + 4, height + 2)
            cost = distance * 0.02 + place * 0.01 + 3 * sum(box.overlaps(other) for other in taken)
            cost += 0.4 * min(box.count_contains(marks), 4)
            cost += 12.0 * (
                box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            )
            choices.append((cost, len(choices), offset, box))
    _, _, offset, box = min(choices, key=lambda choice: choice[:2])
    return offset, box
