"""Episodes in parts, by who wrote them: solid bars for what a controller wrote and learns from, dotted for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def part(name: str, text: str, own: bool, shade: str, note: str = "") -> tuple[str, str]:
    """One part as HTML and as plain text. own: whether the controller wrote it; note: behind the mask, such as a
    price. The colour is the bar's alone: no colour can be read on both a light and a dark ground."""
    mask = "mask 1, learned" if own else "mask 0, read only"
    style = f"border-left:5px {'solid' if own else 'dotted'} {shade};padding-left:.6em;margin:.3em 0"
    told = f"<strong>{escape(text)}</strong>" if own else escape(text)
    markup = f'<p style="{style}"><small>{escape(name)} ({mask}{escape(note)})</small><br><code>{told}</code></p>'
    return markup, f"{name:12} {mask[:6]} {text}"


def episode(heading: str, parts: Sequence[str], verdict: str) -> str:
    """One episode: its parts (HTML) between a heading and how it ended."""
    return f"<h3>{escape(heading)}</h3>{''.join(parts)}<p>{escape(verdict)}</p>"


def together(caption: str, episodes: Sequence[str]) -> str:
    """Episodes one below the other."""
    head = f"<p><em>{escape(caption)}</em></p>"
    return f'<div role="group" aria-label="{escape(caption)}">{head}{"".join(episodes)}</div>\n'
