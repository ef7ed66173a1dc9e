"""Figures as files: PNG, and SVG that is sharp at every size and has a second palette for dark pages.

The same figure gives the same bytes. The text of an SVG stays text, which is small; DejaVu Sans is as wide as Verdana
and wider than the other fonts that a reader may have instead, so that words do not run into each other there.
"""

import io
import re
from collections import Counter

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from lib.plots.theme import DPI, theme

DARK_PAGE = "#161616"  # what white becomes on a dark page
_SVG_OPTIONS = {"svg.fonttype": "none", "svg.hashsalt": "orchestration-bench"}
_FONTS = "'DejaVu Sans', Verdana, sans-serif"

_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_TAG = re.compile(r"<[^<>]*>")
_STYLE = re.compile(r' style="([^"]*)"')
_PAINT = re.compile(r"\b(fill|stroke|stop-color): (#[0-9a-f]{6})\b")

# Linear sRGB to the cone responses of Oklab (Ottosson 2020), and from their cube roots to lightness and two hues.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def render_png(figure: Figure) -> bytes:
    """The figure as PNG bytes, without the version of matplotlib, so that equal figures are equal bytes."""
    buffer = io.BytesIO()
    with theme():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    # A drawing has few colours: with a palette of them the file is a third as large, and looks the same. Other ways to
    # choose the palette lose the colours of small marks.
    with Image.open(buffer) as picture:
        drawing = picture.convert("RGB").quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small_buffer = io.BytesIO()
    drawing.save(small_buffer, format="png", optimize=True, dpi=(DPI, DPI))
    return small_buffer.getvalue()


def render_svg(figure: Figure) -> bytes:
    """Renders a figure as a compact SVG whose colours adapt to light and dark pages.

    Args:
        figure: The figure.

    Returns:
        The SVG as UTF-8; equal figures give equal bytes.
    """
    buffer = io.BytesIO()
    with theme(), matplotlib.rc_context(_SVG_OPTIONS):
        # Without date and version; the ids follow from the salt and the content.
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", _FONTS)
    # A tenth of a point is less than a pixel, and half of the bytes are digits beyond it, blanks and comments. Only
    # coordinates are rounded, which stand in tags: a label such as 0.05 says what it says.
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = _TAG.sub(lambda tag: _LONG_NUMBER.sub(_round_to_tenth, tag.group()), svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    svg = _remove_idle_markup(svg)
    return _name_styles(_follow_page(svg)).encode()


def _round_to_tenth(number: re.Match) -> str:
    return f"{float(number.group()):.1f}".removesuffix(".0")


def _remove_idle_markup(svg: str) -> str:
    """Removes what changes nothing in the picture: rotations by 0, unused ids, and groups without attributes.

    Args:
        svg: The SVG as text.
    """
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    referenced = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r'<g id="([^"]*)"', lambda tag: tag[0] if tag[1] in referenced else "<g", svg)

    kept = []
    is_removed = []  # of the groups that are open, the innermost last
    for piece in re.split(r"(<g(?: [^>]*)?/?>|</g>)", svg):
        if piece == "</g>":
            kept.append("" if is_removed.pop() else piece)
        elif piece.startswith("<g") and not piece.endswith("/>"):
            is_removed.append(piece == "<g>")
            kept.append("" if piece == "<g>" else piece)
        elif piece != "<g/>":
            kept.append(piece)
    return re.sub(r"> +<", "><", "".join(kept))


def _name_styles(svg: str) -> str:
    """Replaces styles that several elements have by classes: they are a third of the bytes of a figure.

    Args:
        svg: The SVG as text, with a style sheet right behind its first tag.
    """
    num_uses = Counter(_STYLE.findall(svg))
    rules = []
    for style, num in num_uses.items():
        if num > 1:
            name = f"s{len(rules)}"
            svg = svg.replace(f' style="{style}"', f' class="{name}"')
            rules.append(f".{name}{{{style}}}")
    return svg.replace("<style>", "<style>" + "".join(rules), 1)


def _follow_page(svg: str) -> str:
    """Replaces each colour of an SVG by a CSS variable with one value for light pages and one for dark pages.

    Args:
        svg: The SVG as text.
    """
    # What has no colour of its own is black in SVG, text above all.
    svg = re.sub(r"(<svg\b[^>]*)>", r'\1 style="fill: #000000">', svg, count=1)
    colours = sorted({colour for _, colour in _PAINT.findall(svg)})
    svg = _PAINT.sub(lambda match: f"{match[1]}: var(--c{match[2][1:]})", svg)
    light = ";".join(f"--c{colour[1:]}:{colour}" for colour in colours)
    dark = ";".join(f"--c{colour[1:]}:{dark_colour(colour)}" for colour in colours)
    style = f"<style>svg{{{light}}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}</style>"
    start = svg.index(">") + 1
    return svg[:start] + style + svg[start:]


def dark_colour(colour: str) -> str:
    """Computes the counterpart of a colour on dark pages: the same hue with its lightness inverted (in Oklab).

    Args:
        colour: Such as "#1f77b4".

    >>> dark_colour("#ffffff"), dark_colour("#000000")
    ('#161616', '#ffffff')
    """
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness, *hues = _TO_OKLAB @ np.cbrt(_TO_CONES @ linear)
    # Dark colours are harder to tell apart than light ones; the exponent lifts what was light.
    page_lightness = 0.2
    turned = page_lightness + (1 - page_lightness) * max(1 - lightness, 0.0) ** 0.7

    # Less colourful until the screen can show it.
    for saturation in np.linspace(1, 0, 21):
        oklab = np.array([turned, *(saturation * np.array(hues))])
        linear = np.linalg.solve(_TO_CONES, np.linalg.solve(_TO_OKLAB, oklab) ** 3)
        if linear.min() >= -1e-3 and linear.max() <= 1 + 1e-3:
            break
    linear = np.clip(linear, 0, 1)
    rgb = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return to_hex(np.clip(rgb, 0, 1))
