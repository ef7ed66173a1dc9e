"""Episodes as text segments by author: solid bars for what a controller wrote and learns from, dotted for all else."""

from collections.abc import Iterable, Sequence
from html import escape

from lib import plots

Rendered = tuple[str, str]  # HTML, and the same as plain text


def render_segment(author: str, text: str, method: str, note: str = "") -> Rendered:
    """Renders a segment of an episode that one author wrote.

    Args:
        author: Who wrote it, such as a model, a tool, or "prompt".
        text: What was written.
        method: The method whose controller wrote it; "" for any other author.
        note: Stands behind the loss mask, such as a price.

    Returns:
        HTML and plain text.
    """
    mask = "mask 1, learned" if method else "mask 0, read only"
    bar_style = "solid" if method else "dotted"
    # Only the bar has a colour: no colour of text can be read on both a light and a dark ground.
    bar_color = (
        plots.GREY if author == "prompt" else plots.text_colour(plots.colour(method or author))
    )
    css = f"border-left:5px {bar_style} {bar_color};padding-left:.6em;margin:.3em 0"
    content = f"<strong>{escape(text)}</strong>" if method else escape(text)
    label = f"<small>{escape(author)} ({mask}{escape(note)})</small>"
    markup = f'<p style="{css}">{label}<br><code>{content}</code></p>'
    return markup, f"{author:12} {mask[:6]} {text}"


def join_episodes(
    caption: str, episodes: Iterable[tuple[str, Sequence[Rendered], str]]
) -> Rendered:
    """Puts episodes one below the other.

    Args:
        caption: Stands above all of them.
        episodes: Of each the heading, its segments, and how it ended.

    Returns:
        HTML and plain text.
    """
    html_blocks, text_lines = [], []
    for heading, segments, outcome in episodes:
        segments_html = "".join(markup for markup, _ in segments)
        html_blocks.append(f"<h3>{escape(heading)}</h3>{segments_html}<p>{escape(outcome)}</p>")
        text_lines += [heading, *(text for _, text in segments), outcome]
    heading_html = f"<p><em>{escape(caption)}</em></p>"
    group = f'<div role="group" aria-label="{escape(caption)}">'
    markup = f"{group}{heading_html}{''.join(html_blocks)}</div>\n"
    return markup, "\n".join(text_lines)
