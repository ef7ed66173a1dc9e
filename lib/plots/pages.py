"""Pages of HTML in the project's one style, complete in one file: they load nothing.

    side_page(body, title)            a small page, for a frame of a report or for a folder of the user's
    fill_template(template, ...)      a page from one of the templates beside this module
    stylesheet()                      the style of all pages, in a light and a dark palette

Left out: pages of executed notebooks (`lib.reports.html`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from pygments.formatters import HtmlFormatter

from lib.plots import accessibility_check

TEMPLATES = Path(__file__).with_name("template")
# Pygments styles with a contrast of at least 4.5 on our background of code.
LIGHT = "xcode"
DARK = "lightbulb"


def side_page(body: str, title: str) -> str:
    """Renders a small complete page in the same style, for what a report shows in a frame."""
    html = fill_template("side.html.j2", body=body, title=title)
    accessibility_check.check(html, f"the page {title!r}")
    return html


def fill_template(template: str, **values: Any) -> str:
    """Fills a template of this project with `values` and the style sheet; `body` is taken as it is."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(css=stylesheet(), **values) + "\n"


def stylesheet() -> str:
    """The one style of all pages, with both palettes of code."""
    light = HtmlFormatter(style=LIGHT).get_token_style_defs("pre.code")
    dark = HtmlFormatter(style=DARK).get_token_style_defs("pre.code")
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return "\n".join([css.rstrip(), *light, "@media (prefers-color-scheme: dark) {", *dark, "}"])
