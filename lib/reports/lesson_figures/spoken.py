"""Episodes in parts, by who wrote them: solid bars for what a controller wrote and learns from, dotted for the rest."""

from collections.abc import Iterable, Sequence
from html import escape

from lib import plots

Shown = tuple[str, str]  # as HTML and as plain text


def part(name: str, text: str, own: str, note: str = "") -> Shown:
    """One part. name: who wrote it; own: the method whose controller did, "" for anybody else; note: behind the mask,
    such as a price. The colour is the bar's alone: no colour can be read on both a light and a dark ground."""
    mask = "mask 1, learned" if own else "mask 0, read only"
    shade = plots.GREY if name == "prompt" else plots.ink(plots.colour(own or name))
    css = f"border-left:5px {'solid' if own else 'dotted'} {shade};padding-left:.6em;margin:.3em 0"
    told = f"<strong>{escape(text)}</strong>" if own else escape(text)
    markup = f'<p style="{css}"><small>{escape(name)} ({mask}{escape(note)})</small><br><code>{told}</code></p>'
    return markup, f"{name:12} {mask[:6]} {text}"


def together(caption: str, episodes: Iterable[tuple[str, Sequence[Shown], str]]) -> Shown:
    """Episodes one below the other: each its heading, its parts, and how it ended."""
    blocks, plain = [], []
    for heading, parts, verdict in episodes:
        inside = "".join(markup for markup, _ in parts)
        blocks.append(f"<h3>{escape(heading)}</h3>{inside}<p>{escape(verdict)}</p>")
        plain += [heading, *(text for _, text in parts), verdict]
    head = f"<p><em>{escape(caption)}</em></p>"
    return (
        f'<div role="group" aria-label="{escape(caption)}">{head}{"".join(blocks)}</div>\n',
        "\n".join(plain),
    )
