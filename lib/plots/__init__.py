"""A small grammar of figures: estimates in, one message in the title, a Figure with its alt text out."""

from lib.plots.heatmap import heatmap, image_row
from lib.plots.inputs import describe_estimates, describe_intervals, estimates_table
from lib.plots.intervals import forest_plot
from lib.plots.lines import bin_values, line_plot, stacked_shares
from lib.plots.scatter import tradeoff_plot
from lib.plots.sliders import interactive_figure
from lib.plots.styles import FAINT, GREY, colour, marker, register_styles, text_colour
from lib.plots.theme import (
    DPI,
    WIDTH,
    add_panels,
    escape_dollars,
    label_rows,
    new_figure,
    render_png,
    theme,
)
