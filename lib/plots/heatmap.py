"""Matrices as colours with their numbers, and images in a row."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib.plots.inputs import finite
from lib.plots.styles import contrast
from lib.plots.theme import WIDTH, folded, literal, sheet, theme, tiles


@theme()
def heat(
    table: pd.DataFrame,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    form: str = ".2f",
    note: str = "",
) -> Figure:
    """A matrix as colours with every number written in its cell.

    table: rows by columns, all finite. Darker is more; where there are numbers on both sides of zero, white is zero,
    orange below and purple above. form: how a number is written.
    """
    table = pd.DataFrame(table)
    values = finite(table.to_numpy(dtype=float), "the table")
    table = table.rename(columns=lambda name: folded(name, 22))
    heads = max(len(line) for name in table.columns for line in name.split("\n"))
    longest = max(len(format(value, form)) for value in values.ravel())
    wide = max(0.62, 0.09 * longest + 0.2, 0.1 * heads if heads <= 13 else 0)
    names = 0.085 * max(len(str(name)) for name in table.index)
    rows, columns = values.shape
    figure = sheet(title, max(4.2, min(wide * columns + names + 1.0, 13)), 0.4 * rows + 1.7, note)
    axes, top = figure.subplots(), np.abs(values).max()
    signed = values.min() < 0 < values.max()
    low, high = (
        (-top, top) if signed else (values.min(), values.max() + (values.max() == values.min()))
    )
    sns.heatmap(
        table.astype(float).rename(index=literal, columns=literal),
        vmin=low,
        vmax=high,
        annot=True,
        fmt=form,
        cmap="PuOr" if signed else "Blues",
        cbar=False,
        ax=axes,
        xticklabels=True,
        yticklabels=True,
    )
    for text, shade in zip(axes.texts, axes.collections[0].get_facecolors(), strict=True):
        text.set_color("white" if contrast(shade[:3]) > 4.5 else "black")
    slanted = heads > wide * 10.5
    axes.set_xticks(
        axes.get_xticks(),
        axes.get_xticklabels(),
        rotation=35 * slanted,
        rotation_mode="anchor",
        ha="right" if slanted else "center",
    )
    axes.tick_params(axis="y", labelrotation=0)
    axes.set(xlabel=literal(xlabel), ylabel=literal(ylabel))
    axes.tick_params(length=0)
    told = (
        f"{row}: " + ", ".join(f"{name} {value:{form}}" for name, value in cells.items())
        for row, cells in table.iterrows()
    )
    figure.alt_text = f"{title}. {'; '.join(told)}."
    return figure


@theme()
def strip(frames: Sequence[np.ndarray], captions: Sequence[str], title: str) -> Figure:
    """Images in a row, each under its caption; more than six go on in the next row.

    frames: arrays (h, w, 3) or (h, w), of any sizes. Raises ValueError unless there is a caption for each.
    """
    if len(frames) == 0 or len(frames) != len(captions):
        raise ValueError(
            f"a strip needs one caption for each frame, got {len(frames)} and {len(captions)}"
        )
    across = min(6, len(frames))
    wide = min(2.6, (WIDTH + 1.4) / across)
    folded = [textwrap.fill(caption, max(8, int(wide * 11.5))) for caption in captions]
    lines = max(caption.count("\n") + 1 for caption in folded)
    tall = max(np.shape(frame)[0] / np.shape(frame)[1] for frame in frames)
    high = -(-len(frames) // across) * ((wide - 0.16) * tall + 0.16 * lines + 0.15) + 0.42
    figure = sheet(title, max(wide * across, 3.2), high)
    for axes, frame, caption in zip(
        tiles(figure, len(frames), across), frames, folded, strict=True
    ):
        pixels = np.asarray(frame)
        finite(pixels, f"the frame {caption!r}")
        brightest = (
            255 if pixels.dtype.kind in "iu" else 1
        )  # a dark frame must not be stretched to a bright one
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=brightest)
        axes.set_title(literal(caption), loc="center", fontsize=9)
        axes.set_axis_off()
    figure.alt_text = f"{title}. {'; '.join(captions)}."
    return figure
