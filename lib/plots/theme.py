"""What all figures share: one theme, a message on top, a note below, and labels clear of each other.

A figure is a `matplotlib.figure.Figure` made without pyplot, so that a notebook never shows it twice and nothing
stays open. Functions that are `responsive` can draw it once more for the screen of a phone. Left out: the kinds of
figures, and files (`render`).
"""

import copy
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from scipy.optimize import isotonic_regression

from lib.plots.styles import GREY, text_colour

DPI = 110
WIDTH = 7.6  # inches; about the width of a notebook's text
MAX_WIDTH = 8.1  # inches of any figure: 891 pixels as PNG, which a page shows without making the text smaller
NAME_WIDTH = 26  # characters of a name on one line
PHONE_WIDTH = 3.6  # inches; what a phone of 390 pixels shows at its natural size


@dataclass(frozen=True)
class Layout:
    """How much room a figure has.

    Attributes:
        max_across: Panels in a row, at most.
        max_width: Inches of the whole figure, at most.
        max_name_width: Characters of a name or label on one line, at most.
    """

    max_across: int
    max_width: float
    max_name_width: int

    @property
    def is_narrow(self) -> bool:
        """Whether it is for a phone, where there is no room beside the panels."""
        return self.max_width < WIDTH

    def wrap_label(self, label: object) -> str:
        """An axis label or the title of a panel, on more lines where there is little room; safe for matplotlib."""
        text = escape_dollars(label)
        return wrap_name(text, 2 * self.max_name_width) if self.is_narrow else text


WIDE = Layout(max_across=100, max_width=MAX_WIDTH, max_name_width=100)
NARROW = Layout(max_across=1, max_width=PHONE_WIDTH, max_name_width=15)

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
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context({**defaults, **_RC}):
        yield


def responsive(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorates a function that draws a figure, so that the figure can be drawn again for narrow screens.

    Args:
        draw: Draws a figure; takes the keyword `layout`.

    Returns:
        The function; its figures have a method `draw_narrow`, which draws the same data with the narrow layout.
    """

    @wraps(draw)
    def draw_wide(*args, **options) -> Figure:
        """Draws the figure, and gives it a method that draws the same data for a narrow screen."""
        # Drawing consumes random numbers; both figures get the same ones.
        same_options = {
            name: copy.deepcopy(value) if isinstance(value, np.random.Generator) else value
            for name, value in options.items()
        }
        with theme():
            figure = draw(*args, **options)
        figure.draw_narrow = partial(theme()(draw), *args, **same_options, layout=NARROW)
        figure.stale = False  # matplotlib sets it as soon as anything in the figure changes
        return figure

    return draw_wide


def has_narrow(figure: Figure) -> bool:
    """Whether `figure.draw_narrow` draws all that this figure shows."""
    return hasattr(figure, "draw_narrow") and not figure.stale


def escape_dollars(text: object) -> str:
    """`text` for matplotlib, which would read what stands between two dollar signs as mathematics."""
    return re.sub(r"(?<!\\)\$", r"\\$", str(text))


class _RoundedLayoutEngine(ConstrainedLayoutEngine):
    """Constrained layout that gives the same positions in every process.

    Its solver orders variables by their addresses in memory, so the last digits of a position vary from process to
    process. Matplotlib hashes all digits to make ids in an SVG.
    """

    def execute(self, fig: Figure) -> dict:
        """Lays out a figure, and rounds the position of everything in it.

        Args:
            fig: The figure; named as in matplotlib.

        Returns:
            The grids of the layout, as matplotlib returns them.
        """
        grids = super().execute(fig)
        _round_subfigures(fig)
        for axes in fig.axes:
            axes._set_position(_round_box(axes.get_position(original=True)))
        return grids


def _round_subfigures(figure: Figure | SubFigure) -> None:
    """Rounds the positions of the parts of a figure, and of their parts."""
    for part in figure.subfigs:
        part._redo_transform_rel_fig(_round_box(part.bbox_relative))
        _round_subfigures(part)


def _round_box(box: Bbox) -> Bbox:
    """A box with its corners rounded; coordinates are fractions of a figure, so that a millionth is no pixel."""
    return Bbox(np.round(box.get_points(), 6))


@theme()
def new_figure(title: str, width: float = WIDTH, height: float = 4.0, note: str = "") -> Figure:
    """Makes an empty figure with its message on top and a small note below. Draw on it under `theme`, too.

    Args:
        title: The message.
        width: Inches; a figure is never wider than `MAX_WIDTH`.
        height: Inches, without the second and later lines of a long title or note.
        note: What the marks mean.

    Raises:
        ValueError: There is no title.
    """
    if not title.strip():
        raise ValueError("a figure needs a title that states its message")
    width = min(width, MAX_WIDTH)
    layout_engine = _RoundedLayoutEngine(w_pad=0.08, h_pad=0.07)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout_engine)
    FigureCanvasAgg(figure)  # text can be measured before anything is saved
    message = figure.suptitle(
        title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False
    )
    extra_lines = _wrap_to_figure(message)
    if note:
        note_text = figure.supxlabel(
            note, x=0.01, ha="left", fontsize=9, color=GREY, parse_math=False
        )
        extra_lines += _wrap_to_figure(note_text)
    figure.set_size_inches(width, height + 0.18 * extra_lines)
    figure.alt_text = title
    return figure


def rewrite_title(figure: Figure, rewrite: Callable[[str], str]) -> None:
    """Rewrites the title of a figure, and enlarges the figure where the title needs more lines.

    Args:
        figure: The figure, which is changed.
        rewrite: From the old title to the new one.
    """
    message = figure._suptitle
    if message is None:
        return
    wrapped = message.get_text()
    title = " ".join(wrapped.split())
    rewritten = rewrite(title)
    if rewritten == title:
        return
    message.set_text(rewritten)
    extra_lines = _wrap_to_figure(message) - wrapped.count("\n")
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.18 * extra_lines)


def _wrap_to_figure(text: Text) -> int:
    """Wraps a text to the width of its figure.

    Args:
        text: The text, which is changed.

    Returns:
        The number of line breaks.
    """
    words = text.get_text()
    max_width = text.figure.bbox.width * 0.98
    for num_characters in range(len(words) + 1, 7, -2):
        text.set_text(textwrap.fill(words, num_characters, break_long_words=False))
        if text.get_window_extent().width <= max_width:
            break
    return text.get_text().count("\n")


def add_panels(figure: Figure, count: int, across: int = 3, **subplot_options) -> list[Axes]:
    """Adds axes in rows to a figure.

    Args:
        figure: An empty figure.
        count: Axes in all.
        across: Axes in a row, at most.
        **subplot_options: What `Figure.subplots` takes, such as sharey=True.
    """
    across = min(count, across)
    num_rows = -(-count // across)
    grid = figure.subplots(num_rows, across, squeeze=False, **subplot_options).ravel()
    for index in range(count, len(grid)):
        grid[index].remove()
        # With a shared x axis only the lowest panel has tick labels; now this one is the lowest.
        grid[index - across].xaxis.set_tick_params(labelbottom=True)
    return list(grid[:count])


def add_legend_panel(
    figure: Figure, handles: Sequence[Artist], count: int, **subplot_options
) -> list[Axes]:
    """Adds panels one above the other, and a legend below them, where there is no room beside them.

    Args:
        figure: An empty figure.
        handles: What the legend names; without any there is no legend.
        count: Panels.
        **subplot_options: What `Figure.subplots` takes, such as sharey=True.
    """
    if not handles:
        return add_panels(figure, count, 1, **subplot_options)
    panel_part, legend_part = figure.subfigures(
        2, 1, height_ratios=[1, 0.22 * len(handles) / figure.get_figheight()]
    )
    legend_part.legend(handles=handles, loc="center left", frameon=False)
    return list(panel_part.subplots(count, 1, squeeze=False, **subplot_options).ravel())


def label_rows(axes: Axes, names: Sequence[str], width: int = NAME_WIDTH) -> None:
    """Writes a name beside each row, the first on top; width: characters on a line."""
    axes.set_yticks(range(len(names)), [escape_dollars(wrap_name(name, width)) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def wrap_name(name: str, width: int = NAME_WIDTH) -> str:
    """Breaks a name into lines of `width` characters; line breaks in it stay."""
    return "\n".join(textwrap.fill(line, width) for line in str(name).split("\n"))


def set_limits(axes: Axes, values: np.ndarray, axis: str = "x", padding: float = 0.08) -> None:
    """Sets the limits of an axis around values, with round ticks.

    Args:
        axes: Where.
        values: What must be inside; all of them may be equal.
        axis: "x" or "y".
        padding: Space on either side, as a fraction of the range of the values.
    """
    low = float(np.min(values))
    high = float(np.max(values))
    margin = (high - low) * padding
    if margin == 0:
        margin = max(abs(high), 1.0) * 0.1
    limits = (low - margin, high + margin)
    if axis == "x":
        axes.set_xlim(*limits)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.set_ylim(*limits)
        axes.yaxis.set_major_locator(MaxNLocator(5))


# Labels


def spread_positions(targets: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Moves positions apart until neighbours do not overlap.

    With the gaps taken out this is a least-squares fit that must not decrease (isotonic regression). Where the labels
    do not fit, the gap shrinks until they do.

    Args:
        targets: (n,), where labels would stand best.
        gap: Least distance between neighbours.
        low: Smallest position.
        high: Largest position.

    Returns:
        (n,), as near to the targets as gap and bounds allow, in the same order.
    """
    targets = np.asarray(targets, dtype=float)
    if len(targets) == 0:
        return targets
    order = np.argsort(targets, kind="stable")
    largest_gap = (high - low) / max(len(targets) - 1, 1)
    offsets = min(gap, largest_gap) * np.arange(len(targets))
    fitted = isotonic_regression(targets[order] - offsets).x
    positions = np.empty(len(targets))
    positions[order] = np.clip(fitted, low, max(low, high - offsets[-1])) + offsets
    return positions


def end_labels(axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str]) -> None:
    """Writes names in a column to the right, each tied to its point by a thin line.

    The figure must be laid out already: it decides how high a line of text is. The labels change only the width of the
    axes.

    Args:
        axes: Where.
        names: One for each point.
        xy: (n, 2) points in data units.
        shades: The colour of each point.
    """
    if len(names) == 0:
        return
    num_lines = 1 + max(name.count("\n") for name in names)
    label_height = num_lines * 13 * DPI / 72  # pixels
    box = axes.get_window_extent()
    targets = axes.transData.transform(np.asarray(xy, dtype=float))[:, 1]
    lowest = box.y0 + label_height / 2
    highest = box.y1 - label_height / 2
    pixels = spread_positions(targets, label_height, lowest, highest)
    heights = (pixels - box.y0) / box.height  # fractions of the axes
    for name, point, shade, height in zip(names, xy, shades, heights, strict=True):
        line_style = {
            "arrowstyle": "-",
            "color": shade,
            "lw": 0.9,
            "shrinkA": 1,
            "shrinkB": 1,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            escape_dollars(name),
            point,
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            fontsize=10,
            color=text_colour(shade),
            zorder=6,
            annotation_clip=False,
            arrowprops=line_style,
        )


# Where a label may stand, seen from its point (right, up), best first.
_DIRECTIONS = (
    (1, 0),
    (0.8, 0.8),
    (0.8, -0.8),
    (0, 1),
    (0, -1),
    (-0.8, 0.8),
    (-0.8, -0.8),
    (-1, 0),
)


def point_labels(
    axes: Axes, names: Sequence[str], xy: np.ndarray, shades: Sequence[str], obstacles: np.ndarray
) -> None:
    """Writes a name close to each point, where it covers no other label, no mark and no edge.

    Greedy from right to left: the cheapest of eight directions at six distances. The figure must be laid out already.

    Args:
        axes: Where.
        names: One for each point.
        xy: (n, 2) points in data units.
        shades: The colour of each point.
        obstacles: (m, 2) in data units, what else is drawn.
    """
    xy = np.asarray(xy, dtype=float)
    renderer = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent()
    obstacle_pixels = axes.transData.transform(np.asarray(obstacles, dtype=float))
    points = axes.transData.transform(xy)
    mark_boxes = [Bbox.from_bounds(x - 13, y - 13, 26, 26) for x, y in points]
    label_boxes: list[Bbox] = []
    for row in np.argsort(-points[:, 0], kind="stable"):
        text = axes.annotate(
            escape_dollars(names[row]),
            xy[row],
            xytext=(0, 0),
            textcoords="offset points",
            va="center",
            ha="center",
            fontsize=9.5,
            color=text_colour(shades[row]),
            zorder=6,
            # Lines behind the text do not cross its letters. (An outline would turn the text of an SVG into paths.)
            bbox={"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.75},
            arrowprops={
                "arrowstyle": "-",
                "color": shades[row],
                "lw": 0.8,
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
        # It lies inside the axes; in the layout it would move what it was positioned by.
        text.set_in_layout(False)
        text_box = Text.get_window_extent(text, renderer)  # without the line to the point
        width, height = text_box.width, text_box.height
        other_marks = [box for index, box in enumerate(mark_boxes) if index != row]
        offset, label_box = _best_offset(
            points[row], width, height, frame, obstacle_pixels, label_boxes + other_marks
        )
        # In points: an SVG has 72 pixels an inch, whatever the resolution that the label was placed in.
        text.set_position(tuple(offset * 72 / axes.figure.dpi))
        label_boxes.append(label_box)

        # A label near its point needs no line.
        horizontal_distance = offset[0] - np.sign(offset[0]) * width / 2
        if np.hypot(horizontal_distance, offset[1]) < 28:
            text.arrow_patch.set_visible(False)


def _best_offset(
    point: np.ndarray,
    width: float,
    height: float,
    frame: Bbox,
    obstacles: np.ndarray,
    occupied: list[Bbox],
) -> tuple[np.ndarray, Bbox]:
    """Finds where a label of this size covers least.

    Args:
        point: (2,), what is labelled; this and all below in pixels.
        width: Width of the label.
        height: Height of the label.
        frame: The axes.
        obstacles: (m, 2), single points that should stay visible.
        occupied: Boxes of marks and of labels that stand already.

    Returns:
        The offset (2,) of the label's centre from its point, and the box that it fills.
    """
    best_cost = np.inf
    for distance in (16, 24, 34, 48, 66, 90):
        for preference, (right, up) in enumerate(_DIRECTIONS):
            offset = np.array([right * distance, up * distance * 1.1])
            offset += [np.sign(right) * width / 2, np.sign(up) * height * 0.3]
            x, y = point + offset
            box = Bbox.from_bounds(x - width / 2 - 2, y - height / 2 - 1, width + 4, height + 2)

            # Leaving the axes is worst, then covering a label or a mark, then covering single points.
            num_overlaps = sum(box.overlaps(occupied_box) for occupied_box in occupied)
            is_outside = (
                box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            )
            cost = distance * 0.02 + preference * 0.01 + 3 * num_overlaps
            cost += 0.4 * min(box.count_contains(obstacles), 4)
            cost += 12.0 * is_outside
            if cost < best_cost:
                best_cost = cost
                best_offset = offset
                best_box = box
    return best_offset, best_box
