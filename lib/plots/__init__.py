"""A small grammar of figures: estimates in, one message in the title, a Figure with its alt text out."""

from lib.plots.heatmap import heatmap
from lib.plots.inputs import (
    describe_estimates,
    describe_intervals,
    estimates_table,
    join_descriptions,
)
from lib.plots.intervals import forest_plot
from lib.plots.lines import bin_values, line_plot, stacked_shares
from lib.plots.name_suffixes import append_suffixes, append_within
from lib.plots.render import render_png, render_svg
from lib.plots.scatter import tradeoff_plot
from lib.plots.styles import EMPHASIS, FAINT, GREY, colour, label_like, marker, text_colour
from lib.plots.theme import (
    DPI,
    MAX_WIDTH,
    WIDTH,
    add_panels,
    escape_dollars,
    has_narrow,
    label_rows,
    new_figure,
    theme,
)
