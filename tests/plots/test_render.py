"""PNGs have a palette of few colours, and keep those of small marks; SVGs say each style once."""

import io
import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from lib import plots
from lib.plots.render import render_png, render_svg
from lib.plots.tables import more_or_less
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


def test_an_svg_says_each_style_once_and_every_class_and_reference_is_there():
    svg = render_svg(draw_dots_on_shades()).decode()
    repeated = [
        style for style, num in Counter(re.findall(r' style="([^"]*)"', svg)).items() if num > 1
    ]
    assert not repeated
    used = set(re.findall(r' class="(s\d+)"', svg))
    assert used and used == set(re.findall(r"\.(s\d+)\{", svg))
    ids = set(re.findall(r' id="([^"]+)"', svg))
    assert set(re.findall(r"(?:href=\"|url\()#([\w.-]+)", svg)) <= ids
    root = ElementTree.fromstring(svg)
    assert all(group.attrib for group in root.iter("{http://www.w3.org/2000/svg}g"))
    assert "rotate(-0" not in svg


def test_a_difference_says_more_or_less_without_a_sign():
    assert more_or_less(0.234) == "0.23 more"
    assert more_or_less(-0.012) == "0.01 less"
    assert more_or_less(-0.001) == "0.00 more"
