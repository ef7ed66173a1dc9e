"""Matrices as colours with their numbers, and images in a row."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.plots.inputs import join_descriptions, require_finite
from lib.plots.styles import contrast_with_white
from lib.plots.theme import (
    WIDE,
    WIDTH,
    Layout,
    add_panels,
    escape_dollars,
    new_figure,
    responsive,
    theme,
    wrap_name,
)


@theme()
def heatmap(
    table: pd.DataFrame,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    number_format: str = ".2f",
    note: str = "",
) -> Figure:
    """Draws a matrix as colours, with every number written in its cell.

    Darker is more. Where there are numbers on both sides of zero, white is zero, orange below and purple above.

    Args:
        table: (rows, columns), all finite.
        title: The message of the figure.
        xlabel: What the columns are.
        ylabel: What the rows are.
        number_format: How a number is written, as in `format`.
        note: A small line below.
    """
    table = pd.DataFrame(table)
    values = require_finite(table.to_numpy(dtype=float), "the table")
    table = table.rename(columns=lambda name: wrap_name(name, 22))

    # A cell is as wide as its number, or as its column's name where that is short enough to stand upright.
    longest_header = max(len(line) for name in table.columns for line in name.split("\n"))
    longest_number = max(len(format(value, number_format)) for value in values.ravel())
    header_width = 0.1 * longest_header if longest_header <= 13 else 0
    cell_width = max(0.62, 0.09 * longest_number + 0.2, header_width)
    names_width = 0.085 * max(len(str(name)) for name in table.index)
    num_rows, num_columns = values.shape
    width = max(4.2, min(cell_width * num_columns + names_width + 1.0, 13))
    figure = new_figure(title, width, 0.4 * num_rows + 1.7, note)
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
        annot=True,
        fmt=number_format,
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
    for name, row in table.iterrows():
        cells = [f"{column} {value:{number_format}}" for column, value in row.items()]
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


@responsive
def image_row(
    images: Sequence[np.ndarray], captions: Sequence[str], title: str, *, layout: Layout = WIDE
) -> Figure:
    """Draws images in a row, each under its caption; more than six go on in the next row.

    Args:
        images: Arrays (h, w, 3) or (h, w), of any sizes.
        captions: One for each image.
        title: The message of the figure.
        layout: How much room there is; on a phone two images stand beside each other.

    Raises:
        ValueError: There are no images, or not as many captions.
    """
    if len(images) == 0 or len(images) != len(captions):
        raise ValueError(
            f"each image needs one caption, got {len(images)} images and {len(captions)} captions"
        )
    num_columns = min(2 if layout.is_narrow else 6, len(images))
    num_rows = -(-len(images) // num_columns)
    tile_width = min(2.6, (WIDTH + 1.4) / num_columns, layout.max_width / num_columns)
    wrapped_captions = [
        textwrap.fill(caption, max(8, int(tile_width * 11.5))) for caption in captions
    ]
    caption_lines = max(caption.count("\n") + 1 for caption in wrapped_captions)
    aspect = max(np.shape(image)[0] / np.shape(image)[1] for image in images)  # of the tallest
    height = num_rows * ((tile_width - 0.16) * aspect + 0.16 * caption_lines + 0.15) + 0.42
    figure = new_figure(title, max(tile_width * num_columns, 3.2), height)

    panels = add_panels(figure, len(images), num_columns)
    for axes, image, caption in zip(panels, images, wrapped_captions, strict=True):
        pixels = np.asarray(image)
        require_finite(pixels, f"the frame {caption!r}")
        # A dark image must not be stretched to a bright one.
        brightest = 255 if pixels.dtype.kind in "iu" else 1
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=brightest)
        axes.set_title(escape_dollars(caption), loc="center", fontsize=9)
        axes.set_axis_off()
    figure.alt_text = join_descriptions(title, captions)
    figure.data = pd.DataFrame({"image": range(1, len(captions) + 1), "caption": list(captions)})
    return figure
