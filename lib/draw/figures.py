"""Every figure of the lessons: one theme, one colour and marker for each method, one message each.

Each function takes the message as its title, draws the intervals it was given or says that one run gives
none, prefers labels at the marks to legends, and returns a `matplotlib.figure.Figure` made without pyplot,
so that a notebook never shows it twice and nothing stays open. The same input gives the same PNG bytes.
Colours are those of Okabe and Ito (2008) and, for the orchestrators, of Paul Tol's muted scheme; the
specialist of an objective has the colour of its objective.

Left out: alt text, which the lesson gives because only the lesson knows what to notice; and statistics,
which are `lib.stats`: an interval is drawn as given and called 95%, the level that `lib.stats` uses.
"""

from __future__ import annotations

import hashlib
import io
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from matplotlib.transforms import Bbox

from lib import stats
from lib.stats import Interval

DPI = 110
WIDTH = 7.6  # inches; about the width of a notebook's text
GREY = "#595959"  # notes and marks of no method
FAINT = "#b5b5b5"
NAME = 26  # characters of a name on one line

_STYLES = {  # name: (colour, marker)
    "SO-d1": ("#0072B2", "o"),
    "SO-d2": ("#E69F00", "s"),
    "SO-d3": ("#009E73", "^"),
    "MO-S": ("#56B4E9", "D"),
    "MO-RM": ("#D55E00", "v"),
    "MO-MGDA": ("#CC79A7", "P"),
    "MO-pseudoS": ("#8C6239", "p"),
    "random": ("#8A8A8A", "x"),
    "oracle": ("#000000", "*"),
    "KO": ("#332288", "<"),
    "TO": ("#999933", ">"),
    "RO": ("#AA2255", "h"),
    "greedy look-ahead": ("#117733", "d"),
    "LinUCB": ("#B997E5", "H"),
    "round-robin": ("#C2A878", "X"),
    "oracle look-ahead": ("#000000", "*"),
    "aptitude": ("#0072B2", "o"),
    "gap": ("#E69F00", "s"),
    "performance": ("#009E73", "^"),
    "goal": ("#0072B2", "o"),
    "no-lava": ("#E69F00", "s"),
    "gold": ("#009E73", "^"),
    "failed": ("#8C6239", "X"),
    "easy": ("#44AA99", "8"),
    "challenge": ("#5B3A8E", "d"),
    "lab-nano": ("#56B4E9", "o"),
    "lab-mini": ("#E69F00", "s"),
    "lab-large": ("#AA2255", "^"),
    "lab-control": ("#8C6239", "v"),
    "lab-facts": ("#CC79A7", "p"),
    "lab-caller": ("#44AA99", "X"),
    "lab-policy": ("#009E73", "D"),
    "lab-agent": ("#332288", "P"),
    "reasoning": ("#0072B2", "o"),
    "social": ("#E69F00", "s"),
    "story": ("#AA2255", "^"),
    "translation": ("#117733", "D"),
    "fmt": ("#8A8A8A", "x"),
    "ppl": ("#0072B2", "o"),
    "ent": ("#D55E00", "s"),
    "len": ("#009E73", "^"),
    "pref": ("#CC79A7", "D"),
    "Base": ("#8A8A8A", "x"),
    "CoT": ("#C2A878", "X"),
    "SFT": ("#8C6239", "p"),
    "NOVER (ppl)": ("#0072B2", "o"),
    "EM (-ent)": ("#D55E00", "s"),
    "Pref": ("#CC79A7", "D"),
    "Equal": ("#56B4E9", "v"),
    "Random": ("#999933", "<"),
    "GDPO": ("#E69F00", ">"),
    "Conductor": ("#332288", "P"),
    "Judge (scripted stand-in)": ("#117733", "d"),
    "Oracle (verifier)": ("#000000", "*"),
    "low": ("#56B4E9", "o"),
    "medium": ("#E69F00", "s"),
    "high": ("#AA2255", "^"),
    "CoRL": ("#332288", "P"),
    "CoRL, low": ("#56B4E9", "P"),
    "CoRL, medium": ("#E69F00", "P"),
    "CoRL, high": ("#AA2255", "P"),
    "controller alone": ("#8C6239", "x"),
    "lab-nano in pieces": ("#0072B2", "d"),
    "lab-mini in pieces": ("#D55E00", "D"),
    "lab-large in pieces": ("#CC79A7", "v"),
    "best constant": ("#C2A878", "p"),
    "nearest neighbours": ("#117733", "<"),
    "logistic": ("#009E73", ">"),
    "cascade": ("#999933", "h"),
    "CoRL's reward, budget given": ("#332288", "P"),
    "right - price, price given": ("#D55E00", "D"),
    "B affords the cheapest expert": ("#56B4E9", "o"),
    "B affords the dearest expert": ("#AA2255", "^"),
    "calculator": ("#0072B2", "s"),
    "search": ("#009E73", "d"),
    "lookup": ("#B997E5", "v"),
    "python": ("#D55E00", "<"),
    "reasoner": ("#8C6239", "8"),
    "answerer": ("#CC79A7", "h"),
    "start": ("#C2A878", "X"),
    "ToolOrchestra": ("#332288", "P"),
    "sign error": ("#D55E00", "v"),
    "CoRL's reward": ("#117733", "D"),
    "failures kept": ("#999933", ">"),
    "best always": ("#E69F00", "p"),
    "one a kind": ("#44AA99", "H"),
    "always calculator": ("#0072B2", "s"),
    "always search": ("#009E73", "d"),
    "always lookup": ("#B997E5", "v"),
    "always python": ("#D55E00", "<"),
    "always lab-nano": ("#56B4E9", "o"),
    "always lab-mini": ("#E69F00", "s"),
    "always lab-large": ("#AA2255", "^"),
    "ARC": ("#332288", "P"),
    "ARC without SFT": ("#0072B2", "o"),
    "ARC with DPO": ("#56B4E9", "D"),
    "ARC by GRPO": ("#AA2255", "h"),
    "RL bandit": ("#E69F00", "s"),
    "RL episodes": ("#009E73", "^"),
    "all tools, one call": ("#D55E00", "v"),
    "grid search": ("#999933", ">"),
    "greedy search": ("#117733", "d"),
    "best constant per kind": ("#44AA99", "H"),
    "prompted, zero-shot": ("#CC79A7", "X"),
    "prompted, zero-shot (scripted stand-in)": ("#CC79A7", "X"),
    "prompted, few-shot": ("#8C6239", "8"),
    "prompted, few-shot (scripted stand-in)": ("#8C6239", "8"),
    "oracle of those tried": ("#000000", "*"),
    "direct": ("#8A8A8A", "x"),
    "reason": ("#56B4E9", "o"),
    "verify": ("#0072B2", "s"),
    "routing": ("#D4C420", "^"),
    "sectioning": ("#C2A878", "D"),
    "voting": ("#8C6239", "v"),
    "orchestrator": ("#004D66", "P"),
    "evaluator": ("#D55E00", "d"),
    "autonomous": ("#332288", "H"),
    "chain": ("#0072B2", "o"),
    "passage": ("#E69F00", "s"),
    "choice": ("#AA2255", "^"),
    "hops": ("#44AA99", "D"),
    "mixed": ("#8C6239", "v"),
    "first agent": ("#0072B2", "o"),
    "second agent": ("#D55E00", "s"),
    "third agent": ("#009E73", "^"),
    "policy configuration": ("#D55E00", "v"),
    "execution": ("#56B4E9", "s"),
    "knowledge gap": ("#D4C420", "D"),
    "unclassified": ("#B5B5B5", "x"),
    "threshold tau": ("#000000", "*"),
    "elite, as it was paid": ("#E69F00", "s"),
    "refined, paid once more": ("#332288", "P"),
    "buffer": ("#8A8A8A", "x"),
}
_OTHERS = ("#117733", "#EE6677", "#66657A", "#B997E5", "#A3B92B", "#004D66", "#44AA99")  # for other names
_MARKERS = ("d", "H", "8", "X", "o", "s", "^", "v")

_RC = {
    "font.family": ["DejaVu Sans"],  # ships with matplotlib, so that every machine draws the same
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.edgecolor": "#8c8c8c",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.9,
    "lines.markersize": 6,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "xtick.color": "#8c8c8c",
    "ytick.color": "#8c8c8c",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
}


# The theme, and what a name looks like


@contextmanager
def theme() -> Iterator[None]:
    """The look of every figure, as a context or a decorator; a reader's own matplotlibrc is ignored."""
    plain = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context({**plain, **_RC}):
        yield


def colour(name: str) -> str:
    """The colour of a method, objective or action, "#rrggbb": the same in every figure and process."""
    return _style(name)[0]


def marker(name: str) -> str:
    """The marker of a method, so that no figure depends on colour alone."""
    return _style(name)[1]


def ink(name_colour: str) -> str:
    """`name_colour` darkened until text in it has the contrast of 4.5 on white that WCAG asks for."""
    rgb = np.array(to_rgb(name_colour))
    while _contrast_on_white(rgb) < 4.5:
        rgb = rgb * 0.95
    return to_hex(rgb)


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes, without the version of matplotlib, so that equal figures are equal bytes."""
    buffer = io.BytesIO()
    with theme():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def _style(name: str) -> tuple[str, str]:
    if name in _STYLES:
        return _STYLES[name]
    digest = hashlib.sha256(str(name).encode()).digest()  # hash() of a string differs between processes
    return _OTHERS[digest[0] % len(_OTHERS)], _MARKERS[digest[1] % len(_MARKERS)]


def _colours(names: Iterable[str]) -> dict[str, str]:
    """The colour of each name; an unknown name steps aside where another name of the figure has its colour."""
    names = list(names)
    found = {name: colour(name) for name in names if name in _STYLES}
    for name in sorted(set(names) - set(found)):
        start = _OTHERS.index(colour(name))
        ring = [*_OTHERS[start:], *_OTHERS[:start]]
        found[name] = next((c for c in ring if c not in found.values()), ring[0])
    return {name: found[name] for name in names}


def _contrast_on_white(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 1.05 / (float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)


# What every figure starts and ends with


@theme()
def sheet(title: str, width: float, height: float, note: str = "") -> Figure:
    """An empty figure with its message and note, for a kind of figure that only one lesson has.

    width, height: inches. What is drawn on it belongs under `theme` too. Raises ValueError without a title.
    """
    return _figure(title, width, height, note)


def tiles(figure: Figure, count: int, across: int = 3, **shared) -> list[Axes]:
    """`count` axes in rows of at most `across`; shared: what `Figure.subplots` takes, such as sharey=True."""
    return _panels(figure, count, across, **shared)


def literal(text: str) -> str:
    """`text` for matplotlib, where what stands between two dollar signs would be read as mathematics."""
    return text.replace("$", r"\$")


def name_points(axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str], drawn: np.ndarray) -> None:
    """Write a name beside each point of xy (n, 2), clear of `drawn` (m, 2): what else is there, in data units.

    To be called last of all, when every panel of the figure is drawn: it lays the figure out.
    """
    axes.figure.draw_without_rendering()
    _point_labels(axes, names, np.asarray(xy, dtype=float), shades, np.asarray(drawn, dtype=float))


def _figure(title: str, width: float, height: float, note: str = "") -> Figure:
    """An empty figure with its message on top and, small, a note on what the marks mean below."""
    if not title.strip():
        raise ValueError("a figure needs a title that states its message")
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # text can be measured before anything is saved
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.07)
    message = figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False)
    lines = _wrapped(message)
    if note:
        lines += _wrapped(figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=GREY))
    figure.set_size_inches(width, height + 0.18 * lines)
    return figure


def _wrapped(text: Text) -> int:
    """Break the text into lines that the page is wide enough for; returns how many more than one."""
    words, page = text.get_text(), text.figure.bbox.width * 0.98
    for characters in range(len(words) + 1, 7, -2):
        text.set_text(textwrap.fill(words, characters, break_long_words=False))
        if text.get_window_extent().width <= page:
            break
    return text.get_text().count("\n")


def _finite(values, what: str) -> np.ndarray:
    """`values` as a float array. Raises ValueError, naming `what`, if it is empty or not finite."""
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError(f"{what} is empty; there is nothing to draw")
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise ValueError(f"{what} has {bad} of {array.size} values that are nan or infinite")
    return array


def _checked(interval: Interval, what: str) -> Interval:
    """The interval itself, with a finite value; lo and hi are finite or, after one run, both nan."""
    _finite(interval.value, what)
    if np.isfinite(interval.lo) != np.isfinite(interval.hi):
        raise ValueError(f"{what} has half an interval: lo {interval.lo}, hi {interval.hi}")
    return interval


def _columns(frame: pd.DataFrame, names: Iterable[str | None]) -> None:
    missing = [name for name in names if name is not None and name not in frame.columns]
    if missing:
        raise ValueError(f"the frame has no column {missing}; it has {sorted(map(str, frame.columns))}")
    if frame.empty:
        raise ValueError("the frame has no rows; there is nothing to draw")


def _panels(figure: Figure, count: int, across: int = 3, **shared) -> list[Axes]:
    """`count` axes in rows of at most `across`."""
    across = min(count, across)
    grid = figure.subplots(-(-count // across), across, squeeze=False, **shared).ravel()
    for spare in grid[count:]:
        spare.remove()
        above = grid[list(grid).index(spare) - across]
        above.xaxis.set_tick_params(labelbottom=True)  # its own, as nothing stands below any more
    return list(grid[:count])


def _flat(interval: Interval) -> tuple[float, float]:
    """Both ends, which are the value itself where one run gives no interval."""
    return (interval.lo, interval.hi) if interval.known else (interval.value, interval.value)


def _span(axes: Axes, values: Iterable[float], axis: str = "x", share: float = 0.08) -> None:
    """Limits around the values with a margin, also where all of them are equal."""
    values = list(values)
    lo, hi = min(values), max(values)
    margin = (hi - lo) * share or max(abs(hi), 1.0) * 0.1
    axes.set(**{f"{axis}lim": (lo - margin, hi + margin)})


def _mark(axes: Axes, x: float, y: float, name: str, shade: str, size: float = 8) -> None:
    edge = {"markeredgewidth": 2.2} if marker(name) == "x" else {"markeredgecolor": "white", "markeredgewidth": 0.8}
    size *= 1.5 if marker(name) == "*" else 1.0  # a star is mostly gaps
    axes.plot([x], [y], marker(name), color=shade, markersize=size, zorder=4, clip_on=False, **edge)


def _line(axes: Axes, row: float, interval: Interval, shade: str) -> None:
    """A horizontal interval with ends that stay visible above and below a mark that is wider than it."""
    if not interval.known:
        return
    style = {"color": shade, "marker": "|", "markersize": 11, "markeredgewidth": 1.5, "linewidth": 2}
    axes.plot([interval.lo, interval.hi], [row, row], gid="interval", solid_capstyle="butt", zorder=3, **style)


def _spread(wanted: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Positions as near to `wanted` (n,) as a gap between neighbours allows, within [low, high]: (n,).

    Where n labels do not fit, the gap shrinks until they do.
    """
    wanted = np.asarray(wanted, dtype=float)
    n = len(wanted)
    gap = min(gap, (high - low) / max(n - 1, 1))
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(n)
    # with the gaps taken out it is a least-squares fit that must not decrease: pool the neighbours that do
    blocks: list[list[float]] = []
    for value in wanted[order] - steps:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    fitted = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks])
    placed = np.empty(n)
    placed[order] = np.clip(fitted, low, high - steps[-1]) + steps
    return placed


def _end_labels(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Label (x, y, text, colour) to the right of the axes, each tied to its end by a thin line.

    The figure must be laid out already: it decides how high a line of text is in data units. The labels
    change only the width of the axes.
    """
    labels = [
        axes.annotate(
            text,
            (x, y),
            xytext=(1.06, y),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            color=ink(shade),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.9, "shrinkA": 1, "shrinkB": 1, "relpos": (0, 0.5)},
        )
        for x, y, text, shade in ends
    ]
    box = axes.get_window_extent()
    tall = labels[0].get_fontsize() * 1.3 * DPI / 72
    heights = axes.transData.transform([(x, y) for x, y, _, _ in ends])[:, 1]
    placed = _spread(heights, tall, box.y0 + tall / 2, box.y1 - tall / 2)
    levels = axes.transData.inverted().transform([(box.x0, y) for y in placed])[:, 1]
    for label, level in zip(labels, levels, strict=True):
        label.set_position((1.06, level))


_AROUND = ((1, 0), (0.8, 0.8), (0.8, -0.8), (0, 1), (0, -1), (-0.8, 0.8), (-0.8, -0.8), (-1, 0))


def _point_labels(axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str], avoid: np.ndarray) -> None:
    """Label each point of xy (n, 2) close by, where it covers no other label, no mark and no edge.

    avoid: (m, 2) in data units, what else is drawn there. The figure must be laid out already. Greedy from
    right to left: the cheapest of eight directions at six distances.
    """
    renderer = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent()
    marks, points = axes.transData.transform(avoid), axes.transData.transform(xy)
    rings = [Bbox.from_bounds(x - 13, y - 13, 26, 26) for x, y in points]
    taken: list[Bbox] = []
    for row in np.argsort(-points[:, 0], kind="stable"):
        text = axes.annotate(
            names[row], xy[row], xytext=(0, 0), textcoords="offset pixels", va="center", ha="center",
            fontsize=9.5, color=ink(shades[row]), zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": shades[row], "lw": 0.8, "shrinkA": 0, "shrinkB": 3},
        )  # fmt: skip
        text.set_in_layout(False)  # it lies inside the axes; otherwise it would move what it was placed by
        width, height, _ = renderer.get_text_width_height_descent(names[row], text.get_fontproperties(), False)
        others = [ring for place, ring in enumerate(rings) if place != row]
        best, box = _best_place(points[row], width, height, frame, marks, taken + others)
        text.set_position(tuple(best))
        if np.hypot(best[0] - np.sign(best[0]) * width / 2, best[1]) < 28:
            text.arrow_patch.set_visible(False)  # near enough to need no line
        taken.append(box)


def _best_place(
    point: np.ndarray, width: float, height: float, frame: Bbox, marks: np.ndarray, taken: list[Bbox]
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
            cost += 12.0 * (box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1)
            choices.append((cost, len(choices), offset, box))
    _, _, offset, box = min(choices, key=lambda choice: choice[:2])
    return offset, box


def _cross(x: float, y: float, x_ends: Sequence[float], y_ends: Sequence[float]) -> np.ndarray:
    """Points (18, 2) along both intervals through (x, y), for labels to avoid."""
    along, level = np.linspace(*x_ends, 9), np.full(9, float(y))
    up, place = np.linspace(*y_ends, 9), np.full(9, float(x))
    return np.concatenate([np.column_stack([along, level]), np.column_stack([place, up])])


# Learning curves


@theme()
def curves(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    seed: str,
    title: str,
    xlabel: str,
    ylabel: str,
    panels: str | None = None,
    bins: int = 25,
    rng: np.random.Generator | None = None,
    same_scale: bool = True,
    dashed: Collection[str] = (),
    note: str = "",
) -> Figure:
    """Means over seeds along x, one line for each value of column `by`, with a band over the seeds.

    frame: one row for each measurement, with columns x, y, by, seed and, for small multiples, `panels`.
    More than `bins` different x are put into that many bins of equal width; each seed counts once in a
    bin. The band goes from the worst seed to the best, or with `rng` it is the 95% interval of their mean.
    same_scale: whether small multiples share their y axis. dashed: the lines that others are held against.
    note: what else a reader must know, after the sentence on lines and bands.
    Raises ValueError for a missing column, no rows, or an x or y that is not finite.
    """
    _columns(frame, [x, y, by, seed, panels])
    _finite(frame[x], f"column {x!r}")
    _finite(frame[y], f"column {y!r}")
    frame = frame.assign(**{x: _binned(frame[x].to_numpy(dtype=float), bins)})
    parts = [("", frame)] if panels is None else list(frame.groupby(panels, sort=False))
    names = [str(who) for who in dict.fromkeys(frame[by])]
    across = 3 if panels == by or len(parts) % 3 == 0 else 2
    down = -(-len(parts) // across)
    height = max(4.0, 0.24 * len(names) + 1.4) if len(parts) == 1 else 2.4 * down + 0.9
    width = WIDTH + 2.0 * (min(len(parts), across) - 1) * (panels != by)
    figure = _figure(title, width, height, f"{_band_note(frame, by, seed, panels, rng)} {note}".strip())
    grid = _panels(figure, len(parts), across, sharex=True, sharey=same_scale)
    shades, ends = _colours(names), []
    for place, (axes, (name, part)) in enumerate(zip(grid, parts, strict=True)):
        bands = {str(who): _band(rows, x, y, seed, rng) for who, rows in part.groupby(by, sort=False)}
        ends.append([_curve(axes, who, band, shades[who], who in dashed) for who, band in bands.items()])
        if panels is not None:
            _panel_title(axes, str(name), ends[-1] if panels == by else None)
        axes.set_xlabel(xlabel if place + across >= len(grid) else "")
        axes.set_ylabel(ylabel if place % across == 0 else "")
        _readable_steps(axes)
    if panels != by:  # otherwise a panel's title names its only line
        figure.draw_without_rendering()
        for axes, labels in zip(grid, ends, strict=True):
            _end_labels(axes, labels)
    return figure


def _panel_title(axes: Axes, name: str, only: list[tuple] | None) -> None:
    """The panel's name; where the panel holds one method, its label in its own colour."""
    if only is None:
        axes.set_title(name)
    else:
        _, _, label, shade = only[0]
        axes.set_title(label, color=ink(shade))


def _readable_steps(axes: Axes) -> None:
    lo, hi = axes.dataLim.intervalx
    if hi > lo:
        axes.margins(x=0)
    alone = len(axes.figure.axes) == 1
    axes.xaxis.set_major_locator(MaxNLocator(5 if alone else 3, steps=[1, 2, 5, 10]))
    if hi >= 10_000:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _binned(values: np.ndarray, bins: int, round_edges: bool = False) -> np.ndarray:
    """The middle of each value's bin, (n,); the values themselves where there are few different ones.

    With `round_edges` the bins begin and end at round numbers, and there may be fewer of them.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if len(np.unique(values)) <= bins:
        return values
    edges = np.linspace(values.min(), values.max(), bins + 1)
    if round_edges:
        edges = MaxNLocator(bins).tick_values(values.min(), values.max())
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return ((edges[place] + edges[place + 1]) / 2).round(12)  # 0.15, not 0.15000000000000002


def _band(
    part: pd.DataFrame, x: str, y: str, seed: str, rng: np.random.Generator | None
) -> tuple[np.ndarray, list[Interval], int]:
    """Bins (b,), the mean over seeds in each with its interval, and the number of seeds."""
    means = part.groupby([x, seed])[y].mean()
    places, found = [], []
    for place, values in means.groupby(level=0):
        seeds = values.to_numpy(dtype=float)
        if rng is not None:
            found.append(stats.mean_interval(seeds, rng))
        elif len(seeds) == 1:
            found.append(Interval(float(seeds[0]), np.nan, np.nan))
        else:
            found.append(Interval(float(seeds.mean()), float(seeds.min()), float(seeds.max())))
        places.append(place)
    return np.array(places), found, part[seed].nunique()


def _curve(
    axes: Axes, name: str, band: tuple[np.ndarray, list[Interval], int], shade: str, dashed: bool = False
) -> tuple:
    """Draw a line with its band; returns the (x, y, text, colour) of the label at its end."""
    places, found, seeds = band
    values = np.array([interval.value for interval in found])
    lo, hi = np.array([_flat(interval) for interval in found]).T
    alone = len(places) == 1  # a line of one point is invisible
    axes.fill_between(places, lo, hi, color=shade, alpha=0.16, linewidth=0)
    axes.plot(places, values, "--" if dashed else "-", color=shade, marker=marker(name) if alone else None)
    if alone:
        axes.plot(places.repeat(2), [lo[0], hi[0]], color=shade)
    return places[-1], values[-1], f"{name} (1 seed)" if seeds == 1 else name, shade


def _band_note(frame: pd.DataFrame, by: str, seed: str, panels: str | None, rng: np.random.Generator | None) -> str:
    """What line and band are, in words that are true for the number of seeds there are."""
    keys = [by] if panels is None else [panels, by]
    seeds = frame.groupby(keys)[seed].nunique()
    fewest, most = int(seeds.min()), int(seeds.max())
    if most == 1:
        return "One seed each: no interval can be drawn."
    count = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    band = "from the worst seed to the best" if rng is None else "95% interval of the mean"
    return f"Line: mean over {count}. Band: {band}" + ("; one seed has none." if fewest == 1 else ".")


# Intervals beside one another


@theme()
def bars(table: Mapping[str, Interval], title: str, ylabel: str) -> Figure:
    """One horizontal bar for each name, from zero, with its interval and its numbers written beside it.

    table: {name: Interval}, drawn from top to bottom. ylabel: what the value is, with its unit; the bars
    lie so that long names stay readable, and so it stands below them.
    """
    if not table:
        raise ValueError("the table is empty; there is nothing to draw")
    wrapped = sum(textwrap.fill(name, NAME).count("\n") for name in table)
    shades = _colours(table)
    figure = _figure(title, WIDTH, 0.36 * len(table) + 0.17 * wrapped + 1.5, _interval_note(table.values()))
    axes = figure.subplots()
    for row, (name, interval) in enumerate(table.items()):
        _checked(interval, f"the value of {name!r}")
        axes.barh(row, interval.value, height=0.62, color=shades[name], alpha=0.5)
        _line(axes, row, interval, ink(shades[name]))
        axes.annotate(
            str(interval), (1.02, row), xycoords=axes.get_yaxis_transform(), va="center", color=ink(shades[name])
        )
    ends = [end for interval in table.values() for end in (*_flat(interval), interval.value)]
    _span(axes, [0.0, *ends])
    if min(ends) >= 0:
        axes.set_xlim(left=0)
    _rows_of_names(axes, list(table))
    axes.set_xlabel(ylabel)
    return figure


@theme()
def grouped_points(
    rows: Mapping[str, Mapping[str, Interval]],
    title: str,
    columns_labels: Mapping[str, str] | Sequence[str],
    smaller_is_better: Collection[str] = (),
) -> Figure:
    """One panel for each metric, one row for each method: a dot with its interval.

    rows: {method: {column: Interval}}; a method without a column is shown as not measured.
    columns_labels: {column: axis label with unit} in the order of the panels, or columns that are their own
    labels. A ring marks the method whose interval lies beyond all others of the panel: above them, or below
    them for the columns in `smaller_is_better`.
    """
    if not rows or not columns_labels:
        raise ValueError("grouped_points needs at least one method and one column")
    shades, names = _colours(rows), list(rows)
    if not isinstance(columns_labels, Mapping):
        columns_labels = {column: column for column in columns_labels}
    across = min(len(columns_labels), 3)
    down = -(-len(columns_labels) // across)
    every = [interval for columns in rows.values() for interval in columns.values()]
    best = {column: _clearly_best(rows, column, column in smaller_is_better) for column in columns_labels}
    note = _interval_note(every) + (" Ring: beyond every other interval." if any(best.values()) else "")
    figure = _figure(title, WIDTH + 0.8 * (across - 1), down * (0.3 * len(rows) + 0.9) + 0.7, note)
    for place, (axes, column) in enumerate(zip(_panels(figure, len(columns_labels)), columns_labels, strict=True)):
        _dots(axes, {name: rows[name].get(column) for name in names}, shades, best[column], column)
        axes.set_xlabel(columns_labels[column])
        _rows_of_names(axes, names if place % across == 0 else [""] * len(names))
    return figure


def _dots(
    axes: Axes, column: Mapping[str, Interval | None], shades: Mapping[str, str], best: str | None, what: str
) -> None:
    """Dots and intervals of one metric from top to bottom, and a ring around the best if there is one."""
    ends = []
    for row, (name, interval) in enumerate(column.items()):
        if interval is None:
            axes.annotate("not measured", (0.02, row), xycoords=axes.get_yaxis_transform(), va="center", color=GREY)
            continue
        lo, hi = _flat(_checked(interval, f"{what!r} of {name!r}"))
        _line(axes, row, interval, shades[name])
        _mark(axes, interval.value, row, name, shades[name])
        if name == best:
            _ring(axes, interval.value, row)
        ends += [lo, hi, interval.value]
    if ends:
        _span(axes, ends)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _ring(axes: Axes, *place: float, size: float = 15) -> None:
    axes.plot(
        *([coordinate] for coordinate in place), "o", markersize=size, markerfacecolor="none",
        markeredgecolor="black", markeredgewidth=1.2, clip_on=False, zorder=5, gid="ring",
    )  # fmt: skip


def _clearly_best(rows: Mapping[str, Mapping[str, Interval]], column: str, smaller: bool) -> str | None:
    """The method whose interval lies beyond all others; None where intervals touch or are not known."""
    known = {name: columns[column] for name, columns in rows.items() if column in columns}
    if len(known) < 2 or not all(interval.known for interval in known.values()):
        return None
    near = {name: -interval.hi if smaller else interval.lo for name, interval in known.items()}
    far = {name: -interval.lo if smaller else interval.hi for name, interval in known.items()}
    best = max(near, key=near.__getitem__)
    return best if all(near[best] > far[name] for name in known if name != best) else None


def _rows_of_names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [textwrap.fill(name, NAME) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def _interval_note(intervals: Iterable[Interval]) -> str:
    """Which marks are without an interval, so that no one reads a missing one as a narrow one."""
    known = [interval.known for interval in intervals]
    if all(known):
        return "Lines: 95% intervals."
    return "One run each: no intervals." if not any(known) else "Lines: 95% intervals; what has none is one run."


# What was chosen


@theme()
def action_shares(
    frame: pd.DataFrame,
    x: str,
    action: str,
    names: Sequence[str] | Mapping[object, str],
    title: str,
    by: str,
    xlabel: str | None = None,
    bins: int = 12,
    note: str = "",
) -> Figure:
    """Share of each action among the decisions at each x, stacked to 100%, one panel for each `by`.

    frame: one row for each decision. x: a column of numbers (more than `bins` different ones are binned)
    or of categories; action: a column of places in `names`, or of keys if names is a mapping. The panel
    titles count the decisions. note: what else a reader must know, below.
    """
    _columns(frame, [x, action, by])
    names = dict(names) if isinstance(names, Mapping) else dict(enumerate(names))
    unknown = sorted({str(value) for value in set(frame[action]) - set(names)})
    if unknown:
        raise ValueError(f"column {action!r} has actions {unknown} that names does not name")
    if pd.api.types.is_numeric_dtype(frame[x]):
        _finite(frame[x], f"column {x!r}")
        frame = frame.assign(**{x: _binned(frame[x].to_numpy(dtype=float), bins, round_edges=True)})
    places = {value: place for place, value in enumerate(sorted(frame[x].unique()))}
    parts = list(frame.groupby(by, sort=False))
    rows = -(-len(parts) // 3)
    figure = _figure(title, WIDTH + 0.9 * (min(len(parts), 3) - 1), 2.8 * rows + 0.7, note)
    grid = _panels(figure, len(parts), sharex=True, sharey=True)
    shades, last = _colours(names.values()), []
    for place, (axes, (who, part)) in enumerate(zip(grid, parts, strict=True)):
        axes.set_title(f"{who} ({len(part):,} decisions)")
        middles = _stack(axes, part, x, action, names, places, shades)
        axes.set_xlabel((xlabel or x) if place + 3 >= len(grid) else "")
        axes.set_ylabel("share of decisions, %" if place % 3 == 0 else "")
        last.append(middles)
    figure.draw_without_rendering()
    for place, axes in enumerate(grid):
        if place % 3 == 2 or place == len(grid) - 1 < 2:  # once in a row; narrow panels would gape
            _end_labels(axes, last[place])
    return figure


def _stack(
    axes: Axes,
    part: pd.DataFrame,
    x: str,
    action: str,
    names: Mapping[object, str],
    places: Mapping[object, int],
    shades: Mapping[str, str],
) -> list[tuple[float, float, str, str]]:
    """Stacked bars of one panel; returns (x, y, text, colour) for labels at the middle of the last bar."""
    counts = pd.crosstab(part[x], part[action]).reindex(columns=list(names), fill_value=0)
    shares = 100 * counts.div(counts.sum(axis=1), axis=0)
    at = [places[value] for value in shares.index]
    floor, middles = np.zeros(len(at)), []
    for key, name in names.items():
        share = shares[key].to_numpy()
        axes.bar(at, share, bottom=floor, width=0.92, color=shades[name], edgecolor="white", linewidth=0.6)
        middles.append((at[-1] + 0.46, float(floor[-1] + share[-1] / 2), name, shades[name]))
        floor = floor + share
    shown = list(places)[:: -(-len(places) // 6)]
    axes.set_xticks([places[value] for value in shown], [f"{v:.3g}" if isinstance(v, float) else str(v) for v in shown])
    axes.set(xlim=(-0.6, len(places) - 0.4), ylim=(0, 100))
    axes.grid(False)
    return middles


# Objectives against one another


@theme()
def pareto(
    points: Mapping[str, np.ndarray],
    labels: Sequence[str],
    title: str,
    seeds: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Mean vectors of each method in three objectives, all maximised: in space and in three projections.

    points: {method: (n, 3)}, one row for each seed; or one for each episode with `seeds` {method: (n,)},
    which are averaged for each seed first. The small points are seeds, the large one is their mean, the
    lines reach from the worst seed to the best. A ring marks a mean that no other mean dominates in all
    three objectives (section 2.1), which a projection alone cannot show.
    """
    if len(labels) != 3:
        raise ValueError(f"pareto draws three objectives, got labels {list(labels)}")
    if not points:
        raise ValueError("pareto needs the points of at least one method")
    vectors = {name: _seed_means(name, rows, (seeds or {}).get(name)) for name, rows in points.items()}
    means = np.array([rows.mean(axis=0) for rows in vectors.values()])
    on_front = _undominated(means)
    counts = {len(rows) for rows in vectors.values()}
    note = "Ring: not dominated by another mean."
    spread = "One seed each: no interval." if counts == {1} else "Small: one seed each; lines: worst to best seed."
    figure = _figure(title, WIDTH + 1.4, 7.4, f"{spread} {note}")
    shades = _colours(vectors)
    _space(figure.add_subplot(2, 2, 1, projection="3d"), vectors, means, on_front, labels, shades)
    flat = [(figure.add_subplot(2, 2, place), pair) for place, pair in ((2, (0, 1)), (3, (0, 2)), (4, (1, 2)))]
    for axes, (i, j) in flat:
        _projection(axes, {name: rows[:, [i, j]] for name, rows in vectors.items()}, on_front, shades)
        axes.set(xlabel=labels[i], ylabel=labels[j])
    names = [f"{name} (1 seed)" if len(rows) == 1 < max(counts) else name for name, rows in vectors.items()]
    figure.draw_without_rendering()
    for axes, (i, j) in flat:
        flat_means = means[:, [i, j]]
        ends = [(rows[:, i], rows[:, j]) for rows in vectors.values()]
        lines = [
            _cross(*mean, (x.min(), x.max()), (y.min(), y.max())) for mean, (x, y) in zip(flat_means, ends, strict=True)
        ]
        drawn = np.concatenate([*lines, *(rows[:, [i, j]] for rows in vectors.values())])
        _point_labels(axes, names, flat_means, [shades[name] for name in vectors], drawn)
    return figure


def _seed_means(name: str, rows: np.ndarray, seeds: np.ndarray | None) -> np.ndarray:
    """One mean vector for each seed, (s, 3)."""
    rows = _finite(rows, f"the points of {name!r}")
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"the points of {name!r} must be (n, 3), got shape {rows.shape}")
    if seeds is None:
        return rows
    seeds = np.asarray(seeds)
    if seeds.shape != (len(rows),):
        raise ValueError(f"{name!r} has {len(rows)} points but seeds of shape {seeds.shape}")
    return np.array([rows[seeds == seed].mean(axis=0) for seed in np.unique(seeds)])


def _undominated(points: np.ndarray) -> np.ndarray:
    """Which points (n, k) no other dominates, (n,) bool; unlike a front, it keeps all of several equals."""
    front = points[stats.pareto_front(points)]
    return (points[:, None] == front).all(axis=-1).any(axis=1)


def _space(
    axes: Axes,
    vectors: Mapping[str, np.ndarray],
    means: np.ndarray,
    on_front: np.ndarray,
    labels: Sequence[str],
    shades: Mapping[str, str],
) -> None:
    """The three objectives at once; the projections beside it carry the names."""
    for (name, rows), mean, ringed in zip(vectors.items(), means, on_front, strict=True):
        edge = {} if marker(name) == "x" else {"markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(*rows.T, marker(name), color=shades[name], markersize=3.5, alpha=0.55, linestyle="none")
        axes.plot(*mean[:, None], marker(name), color=shades[name], markersize=9, linestyle="none", **edge)
        if ringed:
            _ring(axes, *mean)
    axes.set(xlabel=labels[0], ylabel=labels[1], zlabel=labels[2])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(4))
    axes.tick_params(labelsize=8, pad=0)
    axes.view_init(elev=22, azim=-55)
    axes.set_box_aspect(None, zoom=0.92)  # room for the labels inside the axes,
    axes.set_in_layout(False)  # because a box in space confuses the layout of the flat panels


def _projection(axes: Axes, vectors: Mapping[str, np.ndarray], on_front: np.ndarray, shades: Mapping[str, str]) -> None:
    """Two of the three objectives: seeds small, means large, worst to best seed as a cross."""
    for (name, rows), ringed in zip(vectors.items(), on_front, strict=True):
        (x, y), (x_lo, y_lo), (x_hi, y_hi) = rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0)
        axes.plot(*rows.T, marker(name), color=shades[name], markersize=3.5, alpha=0.5, linestyle="none")
        axes.plot([x_lo, x_hi], [y, y], color=shades[name], linewidth=1.1)
        axes.plot([x, x], [y_lo, y_hi], color=shades[name], linewidth=1.1)
        _mark(axes, x, y, name, shades[name], size=9)
        if ringed:
            _ring(axes, x, y)
    every = np.concatenate(list(vectors.values()))
    _span(axes, every[:, 0], "x", share=0.2)
    _span(axes, every[:, 1], "y", share=0.16)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6))


@theme()
def cost_quality(
    points: Mapping[str, tuple[Interval, Interval]], title: str, xlabel: str, ylabel: str, judged: Collection[str] = ()
) -> Figure:
    """Cost against quality with both intervals, and the best quality that each cost can buy.

    points: {name: (cost, quality)}. The line is the upper hull of the values: between two of its corners
    lies what sending a share of the queries to either would reach. judged: names that are held against the
    line, hence do not span it.
    """
    if not points:
        raise ValueError("cost_quality needs at least one point")
    for name, (cost, quality) in points.items():
        _checked(cost, f"the cost of {name!r}")
        _checked(quality, f"the quality of {name!r}")
    shades = _colours(points)
    values = np.array([(cost.value, quality.value) for cost, quality in points.values()])
    every = [interval for pair in points.values() for interval in pair]
    which = f"all but {'; '.join(judged)}" if judged else "methods"
    note = f"{_interval_note(every)} Dashed: the best that a mixture of {which} buys at each cost."
    figure = _figure(title, WIDTH, 4.6, note)
    axes = figure.subplots()
    for name, (cost, quality) in points.items():
        axes.plot(_flat(cost), [quality.value] * 2, color=shades[name], linewidth=1.6, alpha=0.8)
        axes.plot([cost.value] * 2, _flat(quality), color=shades[name], linewidth=1.6, alpha=0.8)
        _mark(axes, cost.value, quality.value, name, shades[name], size=9)
    _span(axes, [end for cost, _ in points.values() for end in (*_flat(cost), cost.value)], "x", share=0.14)
    _span(axes, [end for _, quality in points.values() for end in (*_flat(quality), quality.value)], "y", share=0.12)
    corners = upper_hull(values[[name not in judged for name in points]])
    left, right = axes.get_xlim()
    if values[:, 0].min() >= 0:
        left = max(left, 0.0)  # nothing costs less than nothing
    axes.plot([*corners[:, 0], right], [*corners[:, 1], corners[-1, 1]], "--", color=GREY, linewidth=1.3, zorder=1)
    axes.set_xlim(left, right)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    figure.draw_without_rendering()
    lines = [_cross(c.value, q.value, _flat(c), _flat(q)) for c, q in points.values()]
    _point_labels(axes, list(points), values, [shades[name] for name in points], np.concatenate(lines))
    return figure


def upper_hull(points: np.ndarray) -> np.ndarray:
    """Corners of the best quality for each cost: concave and rising, from the cheapest to the best.

    points: (n, 2) as (cost, quality). Returns (h, 2) sorted by cost; a point that a mixture of two others
    beats at its own cost is no corner.
    """
    points = _finite(points, "the points of the hull")
    return points[stats.hull(points[:, 0], points[:, 1])]


@theme()
def front_2d(
    points: np.ndarray,
    chosen: Sequence[bool] | Sequence[int] | None,
    labels: Sequence[str],
    title: str,
    names: Sequence[str] | None = None,
) -> Figure:
    """A small Pareto front of two objectives, both maximised, with dominated points greyed.

    points: (n, 2). chosen: the points in colour, as a mask (n,) or as places; None is the front of these two
    objectives. A mask from `stats.pareto_front` of more objectives colours points that only the others
    save. labels: the two axis labels with units. names: (n,), written beside the chosen points.
    """
    points = _finite(points, "points")
    if points.ndim != 2 or points.shape[1] != 2 or len(labels) != 2:
        raise ValueError(f"front_2d needs (n, 2) points and two labels, got {points.shape} and {list(labels)}")
    kept = _undominated(points) if chosen is None else _mask(chosen, len(points))
    front = np.unique(points[_undominated(points)], axis=0)
    greyed = "" if kept.all() else " Grey: dominated." if chosen is None else " Grey: the others."
    note = f"Blue: {kept.sum()} of {len(points)}.{greyed} No point lies beyond the line."
    figure = _figure(title, 6.4, 4.6, note)
    axes = figure.subplots()
    _span(axes, points[:, 0], "x", share=0.16)
    _span(axes, points[:, 1], "y", share=0.16)
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    xs, ys = [left, *front[:, 0], front[-1, 0]], [front[0, 1], *front[:, 1], bottom]
    axes.fill_between(xs, bottom, ys, step="pre", color="#0072B2", alpha=0.07, linewidth=0)
    axes.step(xs, ys, where="pre", color="#0072B2", linewidth=1.2, alpha=0.7)
    axes.plot(*points[~kept].T, "o", color=FAINT, markersize=6.5, linestyle="none")
    axes.plot(*points[kept].T, "o", color="#0072B2", markersize=8, linestyle="none")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    if names is not None and kept.any():
        texts = [str(name) for name, keep in zip(names, kept, strict=True) if keep]
        figure.draw_without_rendering()
        _point_labels(axes, texts, points[kept], ["#0072B2"] * len(texts), points)
    return figure


def _mask(chosen: Sequence[bool] | Sequence[int], n: int) -> np.ndarray:
    """The chosen points as (n,) bool, given a mask or places."""
    chosen = np.asarray(chosen)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise ValueError(f"the mask of chosen points must be ({n},), got shape {chosen.shape}")
        return chosen
    outside = [int(place) for place in chosen if not 0 <= place < n]
    if outside:
        raise ValueError(f"chosen {outside} are no places among {n} points")
    mask = np.zeros(n, dtype=bool)
    mask[chosen.astype(int)] = True
    return mask


# Pictures and tables


@theme()
def film_strip(
    frames: Sequence[np.ndarray], titles: Sequence[str], suptitle: str, across: int = 6, note: str = ""
) -> Figure:
    """Images in a row, each under its caption; more than `across` go on in the next row.

    frames: arrays (h, w, 3) or (h, w), of any sizes; titles: a caption each. note: a small line below.
    """
    if len(frames) == 0 or len(frames) != len(titles):
        raise ValueError(f"film_strip needs one caption for each frame, got {len(frames)} and {len(titles)}")
    across = min(across, len(frames))
    down = -(-len(frames) // across)
    wide = min(2.6, (WIDTH + 1.4) / across)
    captions = [textwrap.fill(caption, max(8, int(wide * 11.5))) for caption in titles]
    lines = max(caption.count("\n") + 1 for caption in captions)
    tall = max(np.shape(frame)[0] / np.shape(frame)[1] for frame in frames)
    figure = _figure(
        suptitle, max(wide * across, 3.2), down * ((wide - 0.16) * tall + 0.16 * lines + 0.15) + 0.42, note
    )
    for axes, frame, caption in zip(_panels(figure, len(frames), across), frames, captions, strict=True):
        pixels = np.asarray(frame)
        _finite(pixels, f"the frame {caption!r}")
        brightest = 255 if pixels.dtype.kind in "iu" else 1  # a dark frame must not be stretched to a bright one
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=brightest)
        axes.set_title(caption, loc="center", fontsize=9)
        axes.set_axis_off()
    return figure


@theme()
def heat(table: pd.DataFrame, title: str, xlabel: str, ylabel: str, form: str = "{:.2f}") -> Figure:
    """A matrix as colours with every number written in its cell.

    table: rows by columns, all finite. Darker is more; where there are numbers on both sides of zero,
    white is zero, orange below and purple above. form: how a number is written.
    """
    table = pd.DataFrame(table)
    values = _finite(table.to_numpy(dtype=float), "the table")
    rows, columns = values.shape
    longest = max(len(form.format(value)) for value in values.ravel())
    heads = max(len(str(name)) for name in table.columns)
    wide = max(0.62, 0.09 * longest + 0.2, 0.1 * heads if heads <= 13 else 0)
    names = 0.085 * max(len(str(name)) for name in table.index)
    figure = _figure(title, max(4.2, min(wide * columns + names + 1.0, 13)), 0.4 * rows + 1.7)
    axes = figure.subplots()
    signed = values.min() < 0 < values.max()
    top = np.abs(values).max()
    limits = (-top, top) if signed else (values.min(), values.max() + (values.max() == values.min()))
    image = axes.imshow(values, cmap="PuOr" if signed else "Blues", vmin=limits[0], vmax=limits[1], aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        dark = _contrast_on_white(np.array(image.cmap(image.norm(value))[:3])) > 4.5
        axes.text(column, row, form.format(value), ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(columns), [str(name) for name in table.columns])
    axes.set_yticks(range(rows), [str(name) for name in table.index])
    if heads > wide * 10.5:
        axes.tick_params(axis="x", labelrotation=35)
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return figure
