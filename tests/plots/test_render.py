"""PNGs have a palette of few colours, and keep those of small marks."""

import io

import numpy as np
import pytest
from PIL import Image

from lib import plots
from lib.plots.render import render_png
from lib.plots.theme import new_figure, theme

METHODS = ("KO", "TO", "RO", "Conductor", "CoRL", "ToolOrchestra", "ARC", "cascade")
LARGEST_CHANGE = 8  # of 255, in each channel


@theme()
def draw_dots_on_shades():
    """A dot per method on a picture of many shades, which compete for the palette."""
    figure = new_figure("Dots", 6, 4)
    axes = figure.subplots()
    shades = np.linspace(0, 1, 300)
    axes.imshow(shades[:, None] * shades, cmap="viridis", aspect="auto", extent=(0, 9, 0, 9))
    for index, method in enumerate(METHODS):
        axes.plot(index + 0.5, 4.5, "o", color=plots.colour(method), markersize=5)
    return figure


@pytest.mark.parametrize("method", METHODS)
def test_a_small_mark_keeps_its_colour(method):
    with Image.open(io.BytesIO(render_png(draw_dots_on_shades()))) as image:
        assert image.mode == "P"
        pixels = np.asarray(image.convert("RGB")).astype(int)
    colour = np.array([int(plots.colour(method)[i : i + 2], 16) for i in (1, 3, 5)])
    assert np.abs(pixels - colour).max(axis=-1).min() <= LARGEST_CHANGE
