"""Prompts and replies as HTML: which component said what, what the model answered, what came of it.

The styles stand on the elements, so that a prompt looks the same in JupyterLab and in the report, light
or dark; a component is named in words and not by colour alone. Left out: rendering prompts, which is
`lib.orchestration.components`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from html import escape

from lib.orchestration.components import ORDER, Part
from lib.orchestration.decisions import Exchange
from lib.reporting.play import live

LONG = 14  # lines; a longer part is folded
_MEANING = {each.name: each.meaning for each in ORDER}
_COLOURS = {  # Okabe and Ito
    "instr": "#0072B2", "mem_l": "#CC79A7", "query": "#D55E00", "know": "#009E73",
    "tools": "#009E73", "state": "#E69F00", "reflect": "#56B4E9", "mem_s": "#CC79A7",
}  # fmt: skip
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0.3rem 0;font-size:0.85rem;background:transparent"
_ADDED = "text-decoration:underline;text-decoration-thickness:2px;font-weight:600;background:transparent;color:inherit"


def prompt_html(parts: Sequence[Part], caption: str) -> str:
    """A prompt, one block per component: its name, its meaning, the message it belongs to, its text.

    Raises ValueError without a part.
    """
    if not parts:
        raise ValueError("there is no prompt to show; a decision has exchanges only where it was asked to keep them")
    blocks = "\n".join(_block(part, _text(part.text)) for part in parts)
    return f"<figure>\n{blocks}\n<figcaption>{escape(caption, quote=False)}</figcaption></figure>\n"


def exchange_html(exchanges: Sequence[Exchange], caption: str) -> str:
    """A decision reply by reply: what had changed in the prompt, what was said, what came of it."""
    if not exchanges:
        raise ValueError("there is no exchange to show")
    items, before = [], {}
    for exchange in exchanges:
        now = {part.component: part.text for part in exchange.parts}
        changed = [name for name in now if now[name] != before.get(name)] if before else ["everything"]
        told = f"new in the prompt: {', '.join(changed)}" if changed else "the same prompt, with the complaint below it"
        items.append(
            f"<li><div>{escape(told)}</div><div>the reply:</div>{_pre(exchange.reply)}"
            f"<div>what came of it:</div>{_pre(exchange.outcome)}</li>"
        )
        before = now
    return f"<figure><ol>\n{''.join(items)}</ol><figcaption>{escape(caption, quote=False)}</figcaption></figure>\n"


def explorer(decisions: Mapping[str, Sequence[Sequence[Part]]], caption: str, component: str = "mem_s") -> str:
    """One component over an episode, changes marked; with controls to pick another in a live session.

    decisions: the parts of each step's first prompt, by orchestrator. Returns the still HTML: `component`
    of the last orchestrator at four steps. Raises ValueError where that one never shows it.
    """
    if not decisions:
        raise ValueError("there is no decision to explore")
    if live():
        from IPython.display import display  # imported here: a report needs neither of the two

        display(controls(decisions))
    kind, steps = list(decisions.items())[-1]
    shown = sorted({round(i * (len(steps) - 1) / 3) for i in range(4)})
    blocks, before = [], None
    for step in shown:
        part = _find(steps[step], component)
        if part is None:
            raise ValueError(f"{kind} shows no component {component!r} at step {step + 1}")
        blocks.append(_block(part, _marked(before, part.text), f"{kind}, step {step + 1}: "))
        before = part.text
    note = f"{caption}: {component} of {kind}; what is new since the block above is underlined"
    return f"<figure>\n{''.join(blocks)}<figcaption>{escape(note, quote=False)}</figcaption></figure>\n"


def controls(decisions: Mapping[str, Sequence[Sequence[Part]]]):
    """Orchestrator, step and component to pick, above the text that they choose; an `ipywidgets.VBox`."""
    import ipywidgets as widgets

    kind = widgets.Dropdown(options=list(decisions), description="who")
    step = widgets.IntSlider(1, 1, len(decisions[kind.value]), description="step", continuous_update=False)
    component = widgets.Dropdown(options=_names(decisions[kind.value]), description="component")
    text = widgets.HTML()

    def redraw(_change=None) -> None:
        steps = decisions[kind.value]
        part = _find(steps[min(step.value, len(steps)) - 1], component.value)
        previous = _find(steps[step.value - 2], component.value) if 2 <= step.value <= len(steps) else None
        text.value = _block(part, _marked(previous.text if previous else None, part.text)) if part else ""

    def another(_change) -> None:
        step.max = len(decisions[kind.value])
        component.options = _names(decisions[kind.value])
        redraw()

    kind.observe(another, names="value")
    for control in (step, component):
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([kind, component]), step, text])


def _names(steps: Sequence[Sequence[Part]]) -> list[str]:
    return [part.component for part in steps[0]]


def _find(parts: Sequence[Part], component: str) -> Part | None:
    return next((part for part in parts if part.component == component), None)


def _block(part: Part, body: str, before: str = "") -> str:
    shade = _COLOURS.get(part.component, "#595959")
    meaning = _MEANING.get(part.component, "")
    label = f"<strong>{escape(before + part.component)}</strong> {escape(meaning)} ({escape(part.role)} message)"
    return (
        f'<div style="border-left:0.35rem solid {shade};padding:0.2rem 0.8rem;margin:0.5rem 0">'
        f"<div>{label}</div>{body}</div>\n"
    )


def _text(text: str) -> str:
    """A part's text; a long one is folded behind its first line."""
    lines = text.splitlines()
    if len(lines) <= LONG:
        return _pre(text)
    first = next((line for line in lines if line.strip()), "")
    return f"<details><summary>{escape(first)} … ({len(lines)} lines)</summary>{_pre(text)}</details>"


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}">{escape(text, quote=False)}</pre>'


def _marked(before: str | None, text: str) -> str:
    """The text with what is new since `before` marked word by word."""
    if before is None:
        return _pre(text)
    old, new = (re.findall(r"\s+|\S+", each) for each in (before, text))
    parts = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        said = escape("".join(new[start:end]), quote=False)
        if said:
            parts.append(said if tag == "equal" else f'<ins style="{_ADDED}">{said}</ins>')
    return f'<pre style="{_PRE}">{"".join(parts)}</pre>'
