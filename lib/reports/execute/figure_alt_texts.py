"""Texts for screen readers where a notebook shows a picture without one, such as a plain `plt.plot(...)`.

The kernel describes a matplotlib figure by its titles and labels (`make_metadata`); the runner gives any other picture
the first line of its cell (`complete_alt_texts`) and says on the terminal which pictures want a better text. Such a
text begins with "Generated", and the page marks it too. Left out: what a figure shows, which only its author knows;
`lesson.figure(fig, name, alt=...)` takes that. Left out as well: HTML that a cell writes itself.
"""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

from lib.plots.accessibility_check import GENERATED_ALT, IMAGES

if TYPE_CHECKING:  # a kernel needs no notebook
    from nbformat import NotebookNode

MAX_CHARACTERS = 300  # of a generated text
REMEDY = "lesson.figure(fig, name, alt=...) takes a better one"
_MAX_AXES = 4  # of a figure, before the rest is counted


def describe_figure(figure: Any) -> str:
    """Describes a matplotlib figure by its titles, axis labels and legends.

    Args:
        figure: Any figure; titles and labels may be missing.

    Returns:
        Such as "Generated: line plot “Reward”; x axis: step; y axis: mean reward; legend: a, b.", of at most
        MAX_CHARACTERS characters.
    """
    descriptions = []
    if figure.get_suptitle():
        descriptions.append(f"figure “{figure.get_suptitle()}”")
    all_axes = figure.get_axes()
    descriptions += [_describe_axes(axes) for axes in all_axes[:_MAX_AXES]]
    if len(all_axes) > _MAX_AXES:
        descriptions.append(f"and {len(all_axes) - _MAX_AXES} more plots")
    text = "; ".join(descriptions) or "figure without axes"
    return textwrap.shorten(f"Generated: {text}.", MAX_CHARACTERS, placeholder=" …")


def _describe_axes(axes: Any) -> str:
    """Describes one panel of a figure in words: kind of plot, title, labels and legend.

    Args:
        axes: Axes of matplotlib.
    """
    title = next(filter(None, (axes.get_title(loc) for loc in ("center", "left", "right"))), "")
    description = [f"{_name_plot(axes)} “{title}”" if title else _name_plot(axes)]
    for axis, label in (("x axis", axes.get_xlabel()), ("y axis", axes.get_ylabel())):
        if label:
            description.append(f"{axis}: {label}")
    legend = axes.get_legend()
    if legend is not None:
        description.append("legend: " + ", ".join(text.get_text() for text in legend.get_texts()))
    return "; ".join(description)


def _name_plot(axes: Any) -> str:
    """Names the kind of plot by what was drawn: "image", "bar chart", "line plot", "scatter plot" or "plot".

    Args:
        axes: Axes of matplotlib.
    """
    kinds = (
        ("image", axes.images),
        ("bar chart", axes.containers),
        ("line plot", axes.lines),
        ("scatter plot", axes.collections),
    )
    return next((name for name, artists in kinds if len(artists)), "plot")


def make_metadata(value: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Makes the metadata of a displayed value, with an alternative text for each of its pictures.

    Args:
        value: Anything that a cell shows.
        data: Its forms by media type.

    Returns:
        By media type; empty for what is no matplotlib figure.
    """
    figure_module = sys.modules.get("matplotlib.figure")
    if figure_module is None or not isinstance(value, figure_module.Figure):
        return {}
    # Figures of `lib.plots` carry a text that was written from their estimates.
    authored_text = getattr(value, "alt_text", "")
    entry = {"alt": authored_text} if authored_text else _make_entry(describe_figure(value))
    return {media_type: dict(entry) for media_type in data if media_type in IMAGES}


def _make_entry(text: str) -> dict[str, Any]:
    return {"alt": text, GENERATED_ALT: True}


def complete_alt_texts(notebook: NotebookNode) -> list[str]:
    """Gives every picture of an executed notebook a text.

    Args:
        notebook: It is changed: pictures without a text get one made from the first line of their cell.

    Returns:
        A line for each picture whose text was generated, in the kernel or here, with the cell and the remedy.
    """
    warnings = []
    for number, cell in enumerate(notebook.cells, start=1):
        first_line = next((line for line in cell.source.splitlines() if line.strip()), "").strip()
        for output in cell.get("outputs", []):
            media_type = _find_picture(output)
            if media_type is None:
                continue
            metadata = output.setdefault("metadata", {})
            entry = metadata.get(media_type, {})
            if not (entry.get("alt") or metadata.get("alt") or _has_label(output, media_type)):
                shown = textwrap.shorten(first_line, MAX_CHARACTERS // 2, placeholder=" …")
                metadata[media_type] = entry | _make_entry(
                    f"Generated: picture shown by the cell that begins with “{shown}”."
                )
            # The kernel may have generated a text before; that one is reported as well.
            if metadata.get(media_type, {}).get(GENERATED_ALT):
                warnings.append(
                    f"cell {number} ({first_line[:60]!r}): a picture has no alt text; the page says "
                    f"{metadata[media_type]['alt']!r}; {REMEDY}"
                )
    return warnings


def _find_picture(output: NotebookNode) -> str | None:
    """The media type under which the page shows an output as a picture; None where it shows none."""
    data = output.get("data", {})
    if "text/html" in data:
        return None
    return next((media_type for media_type in IMAGES if media_type in data), None)


def _has_label(output: NotebookNode, media_type: str) -> bool:
    """Whether an SVG says itself what it shows."""
    return media_type == "image/svg+xml" and 'aria-label="' in output.data[media_type]
