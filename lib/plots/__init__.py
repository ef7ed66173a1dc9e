"""A small grammar of figures: estimates in, one message in the title, a Figure with its alt text out."""

from lib.plots.heatmap import heat, strip
from lib.plots.inputs import alt, note, table
from lib.plots.intervals import points
from lib.plots.lines import binned, lines, shares
from lib.plots.scatter import plane
from lib.plots.sliders import play
from lib.plots.styles import FAINT, GREY, colour, ink, marker, register
from lib.plots.theme import DPI, WIDTH, literal, png, rows_of_names, sheet, theme, tiles
