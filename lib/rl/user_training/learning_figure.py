"""The figure of a training: one small panel for each quantity that was measured at every update.

Every panel has a scale of its own, since rewards, dollars and divergences have nothing in common. Left out: bands over
seeds, of which a run has one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lib import plots
from lib.plots.theme import WIDE, Layout, responsive

MAX_POINTS = 25  # of a line: more updates than this are averaged in bins of equal width
_PANEL_HEIGHT = 2.0  # inches
_ACROSS = {"wide": 3, "narrow": 2}  # panels in a row
_TITLE_WIDTH = {"wide": 28, "narrow": 17}  # characters of a panel's title on a line


@responsive
def draw_learning(
    learning: pd.DataFrame, curves: Mapping[str, str], layout: Layout = WIDE
) -> Figure:
    """Draw what was measured at every update.

    Args:
        learning: A row per update, with `step`.
        curves: The title of a panel by the column that it shows; missing values are left out.
        layout: How much room there is.

    Returns:
        The figure, with its alt text.
    """
    kind = "narrow" if layout.is_narrow else "wide"
    across = min(_ACROSS[kind], len(curves))
    num_panel_rows = -(-len(curves) // across)
    figure = plots.new_figure(
        "Training, update by update",
        min(9.0, layout.max_width),
        num_panel_rows * _PANEL_HEIGHT + 0.9,
        _describe_points(learning),
    )
    grid = plots.add_panels(figure, len(curves), across, sharex=True)

    descriptions = []
    for index, (axes, (column, title)) in enumerate(zip(grid, curves.items(), strict=True)):
        steps, values = average_neighbours(learning, column)
        # Single updates can be told apart as long as they are few.
        marker = "o" if len(steps) <= 10 else ""
        axes.plot(steps, values, color=plots.colour("CoRL"), marker=marker, markersize=4)
        axes.set_title(
            textwrap.fill(title, _TITLE_WIDTH[kind]), loc="left", fontsize=10, parse_math=False
        )
        _set_ticks(axes, values)
        is_lowest = index + across >= len(curves)
        axes.set_xlabel("update" if is_lowest else "")
        descriptions.append(f"{title} {values[0]:.3g} at first, {values[-1]:.3g} at last")
    figure.alt_text = plots.join_descriptions("Training, update by update", descriptions)
    return figure


def average_neighbours(learning: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Averages neighbouring updates of a learning curve, so that at most MAX_POINTS points remain.

    Args:
        learning: A row per update, with `step`.
        column: Its missing values are left out.

    Returns:
        Updates and means, (points,) each.
    """
    rows = learning.loc[learning[column].notna(), ["step", column]].sort_values("step")
    steps = plots.bin_values(rows["step"].to_numpy(dtype=float), MAX_POINTS)
    means = rows[column].groupby(steps).mean()
    return means.index.to_numpy(), means.to_numpy(dtype=float)


def _describe_points(learning: pd.DataFrame) -> str:
    if learning["step"].nunique() > MAX_POINTS:
        return "Each point is the mean over the episodes of neighbouring updates."
    return "Each point is the mean over the episodes of one update."


def _set_ticks(axes: Axes, values: np.ndarray) -> None:
    """Sets limits and few round ticks of both axes; the vertical one begins at about 0 where no value is negative.

    Args:
        axes: The panel.
        values: All values that are drawn in it.
    """
    low, high = float(values.min()), float(values.max())
    # A line that stays where it is gets a scale too, or its ticks would be rounding errors.
    margin = 0.08 * (high - low) or max(0.1 * abs(high), 0.1)
    bottom = low - margin
    if low >= 0:
        bottom = max(bottom, -0.02 * (high + margin))
    axes.set_ylim(bottom, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: format_tick(tick, high + margin)))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def format_tick(tick: float, largest: float) -> str:
    """A tick in as few digits as it has; 0 for what is only a rounding error beside the largest value."""
    if abs(tick) < 1e-6 * abs(largest):
        return "0"
    return f"{tick:.4g}"
