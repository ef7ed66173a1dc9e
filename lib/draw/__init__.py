"""A small grammar of figures: estimates in, one message in the title, a Figure with its alt text out."""

from lib.draw.estimates import alt, note, table
from lib.draw.lines import binned, lines, shares
from lib.draw.pictures import heat, strip
from lib.draw.plane import plane
from lib.draw.play import play
from lib.draw.points import points
from lib.draw.styles import FAINT, GREY, colour, ink, marker, register
from lib.draw.theme import DPI, WIDTH, literal, png, rows_of_names, sheet, theme, tiles
