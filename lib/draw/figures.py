"""The old names, only until lesson 03 and the page have moved to the grammar of `lib.draw`; then this goes."""

from lib.draw import FAINT, GREY, WIDTH, colour, heat, ink, literal, marker, plane, png, sheet, theme, tiles

__all__ = ["FAINT", "GREY", "WIDTH", "colour", "heat", "ink", "literal", "marker", "png", "sheet", "theme", "tiles"]


def cost_quality(found, title, xlabel, ylabel):
    x, y = ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    return plane(x, y, title, xlabel, ylabel, line="mixtures")
