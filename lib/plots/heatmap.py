"""Matrices as colours with their numbers."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.plots.inputs import join_descriptions, require_finite
from lib.plots.styles import contrast_with_white
from lib.plots.theme import (
    MAX_WIDTH,
    escape_dollars,
    new_figure,
    theme,
    wrap_name,
)


@theme()
def heatmap(
    table: pd.DataFrame,
    title: str,
    value: str,
    xlabel: str = "",
    ylabel: str = "",
    note: str = "",
) -> Figure:
    """Draws a matrix as colours, with every number written in its cell.

    Darker is more. Where there are numbers on both sides of zero, white is zero, orange below and purple above.

    Args:
        table: (rows, columns), all finite.
        title: The message of the figure.
        value: What the numbers in the cells are; a small line below says it.
        xlabel: What the columns are.
        ylabel: What the rows are.
        note: What else that line says.
    """
    table = pd.DataFrame(table)
    values = require_finite(table.to_numpy(dtype=float), "the table")
    table = table.rename(columns=lambda name: wrap_name(name, 22))

    # A cell is as wide as its number, or as its column's name where that is short enough to stand upright.
    longest_header = max(len(line) for name in table.columns for line in name.split("\n"))
    cell_texts = [[f"{value:z.2f}" for value in row] for row in values]  # z: no -0.00
    longest_number = max(len(text) for row in cell_texts for text in row)
    header_width = 0.1 * longest_header if longest_header <= 13 else 0
    cell_width = max(0.62, 0.09 * longest_number + 0.2, header_width)
    names_width = 0.085 * max(len(str(name)) for name in table.index)
    num_rows, num_columns = values.shape
    width = cell_width * num_columns + names_width + 1.0
    width = max(4.2, min(width, MAX_WIDTH))
    # Where cells are narrower than their numbers, the numbers get smaller.
    cell_space = (width - names_width - 1.0) / num_columns
    number_size = 10 * min(1.0, cell_space / (0.09 * longest_number + 0.1))
    figure = new_figure(title, width, 0.4 * num_rows + 1.7, f"Numbers: {value}. {note}".strip())
    axes = figure.subplots()

    # The colour scale is symmetric around zero where the numbers have both signs.
    is_signed = values.min() < 0 < values.max()
    if is_signed:
        scale_max = np.abs(values).max()
        scale_min = -scale_max
    else:
        scale_min = values.min()
        all_equal = values.max() == values.min()
        scale_max = values.max() + 1 if all_equal else values.max()
    sns.heatmap(
        table.astype(float).rename(index=escape_dollars, columns=escape_dollars),
        vmin=scale_min,
        vmax=scale_max,
        annot=np.array(cell_texts),
        annot_kws={"fontsize": number_size},
        fmt="",
        cmap="PuOr" if is_signed else "Blues",
        cbar=False,
        ax=axes,
        xticklabels=True,
        yticklabels=True,
    )
    for text, cell_colour in zip(axes.texts, axes.collections[0].get_facecolors(), strict=True):
        is_dark = contrast_with_white(cell_colour[:3]) > 4.5
        text.set_color("white" if is_dark else "black")
    _set_column_labels(axes, slanted=longest_header > cell_width * 10.5)
    axes.tick_params(axis="y", labelrotation=0)
    axes.set(xlabel=escape_dollars(xlabel), ylabel=escape_dollars(ylabel))
    axes.tick_params(length=0)

    row_descriptions = []
    for name, row_texts in zip(table.index, cell_texts, strict=True):
        cells = [f"{column} {text}" for column, text in zip(table.columns, row_texts, strict=True)]
        row_descriptions.append(f"{name}: " + ", ".join(cells))
    figure.alt_text = join_descriptions(title, row_descriptions)
    figure.data = table.rename(columns=lambda name: str(name).replace("\n", " "))
    return figure


def _set_column_labels(axes: Axes, slanted: bool) -> None:
    axes.set_xticks(
        axes.get_xticks(),
        axes.get_xticklabels(),
        rotation=35 if slanted else 0,
        rotation_mode="anchor",
        ha="right" if slanted else "center",
    )
