"""Prompts and replies as HTML: which component said what, what the model answered, what came of it.

The styles stand on the elements, so that a prompt looks the same in JupyterLab and in the report, light
or dark; a component is named in words and not by colour alone. Left out: rendering prompts, which is
`lib.orchestration.prompt_components`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from html import escape

from lib.orchestration.decisions import Exchange
from lib.orchestration.prompt_components import ORDER, Part
from lib.plots.sliders import live

LONG = 12  # lines; a longer part is folded
STRIP = 4  # steps that a report shows one below the other
_MEANING = {each.name: each.meaning for each in ORDER}
_COLOURS = {  # Okabe and Ito
    "instr": "#0072B2", "mem_l": "#CC79A7", "query": "#D55E00", "know": "#009E73",
    "tools": "#009E73", "state": "#E69F00", "reflect": "#56B4E9", "mem_s": "#CC79A7",
}  # fmt: skip
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0.3rem 0;font-size:0.85rem;background:transparent"
_ADDED = "text-decoration:underline;text-decoration-thickness:2px;font-weight:600;background:transparent;color:inherit"
_GONE = "text-decoration:line-through;opacity:0.75;background:transparent;color:inherit"
_ABSENT = "<p>Not part of this step's prompt.</p>"
_ALIKE = 0.5  # share of common words from which two lines count as one that was changed


def prompt_html(parts: Sequence[Part], caption: str) -> str:
    """A prompt, one block per component: its name, its meaning, the message it belongs to, its text.

    Raises ValueError without a part.
    """
    if not parts:
        raise ValueError(
            "there is no prompt to show; a decision has exchanges only where it was asked to keep them"
        )
    blocks = "\n".join(_block(part, _text(part.text)) for part in parts)
    return _figure(blocks, caption)


def exchange_html(exchanges: Sequence[Exchange], caption: str) -> str:
    """A decision reply by reply: what had changed in the prompt, what was said, what came of it."""
    if not exchanges:
        raise ValueError("there is no exchange to show")
    items, before = [], {}
    for exchange in exchanges:
        now = {part.component: part.text for part in exchange.parts}
        changed = (
            [name for name in now if now[name] != before.get(name)] if before else ["everything"]
        )
        told = (
            f"new in the prompt: {', '.join(changed)}"
            if changed
            else "the same prompt, with the complaint below it"
        )
        items.append(
            f"<li><div>{escape(told)}</div><div>the reply:</div>{_pre(exchange.reply)}"
            f"<div>what came of it:</div>{_pre(exchange.outcome)}</li>"
        )
        before = now
    return _figure(f"<ol>\n{''.join(items)}</ol>", caption)


def explorer(
    decisions: Mapping[str, Sequence[Sequence[Part]]], caption: str, component: str = "mem_s"
) -> str:
    """One component over an episode, changes marked; with controls to pick another in a live session.

    decisions: the parts of each step's first prompt, by orchestrator. Returns the still HTML: `component`
    of the last orchestrator at four steps in a row, what is new underlined, what is gone struck out. Raises ValueError
    where that one never shows it, and where an orchestrator has no step.
    """
    empty = [kind for kind, steps in decisions.items() if not steps]
    if empty or not decisions:
        raise ValueError(
            f"there is no decision to explore{' of ' + ', '.join(empty) if empty else ''}"
        )
    if live():
        from IPython.display import display  # imported here: a report needs neither of the two

        display(controls(decisions))
    kind, steps = list(decisions.items())[-1]
    first = min(1, max(len(steps) - STRIP, 0))  # the first step has nothing to remember
    shown = range(first, min(first + STRIP, len(steps)))
    blocks, before = [], None
    for step in shown:
        part = _find(steps[step], component)
        if part is None:
            raise ValueError(f"{kind} shows no component {component!r} at step {step + 1}")
        blocks.append(_block(part, _marked(before, part.text), f"{kind}, step {step + 1}: "))
        before = part.text
    note = (
        f"{caption}: {component} of {kind}; since the block above, "
        "what is new is underlined, what is gone struck out"
    )
    return _figure("".join(blocks), note)


def controls(decisions: Mapping[str, Sequence[Sequence[Part]]]):
    """Orchestrator, step and component to pick, above the text that they choose; an `ipywidgets.VBox`."""
    import ipywidgets as widgets

    kind = widgets.Dropdown(options=list(decisions), description="who")
    step = widgets.IntSlider(
        1, 1, len(decisions[kind.value]), description="step", continuous_update=False
    )
    component = widgets.Dropdown(options=_names(decisions[kind.value]), description="component")
    text = widgets.HTML()

    def redraw(_change=None) -> None:
        steps, place = decisions[kind.value], step.value - 1
        part = _find(steps[place], component.value) if place < len(steps) else None
        previous = _find(steps[place - 1], component.value) if 0 < place < len(steps) else None
        text.value = (
            _block(part, _marked(previous.text if previous else None, part.text))
            if part
            else _ABSENT
        )

    def another(_change) -> None:
        names, kept = _names(decisions[kind.value]), component.value
        step.max = len(decisions[kind.value])
        component.options = names
        component.value = kept if kept in names else names[0]
        redraw()

    kind.observe(another, names="value")
    for control in (step, component):
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([kind, component]), step, text])


def _names(steps: Sequence[Sequence[Part]]) -> list[str]:
    """Every component that some step shows, in the order of appearance."""
    return list(dict.fromkeys(part.component for parts in steps for part in parts))


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


def _figure(body: str, caption: str) -> str:
    """The caption stands on top, like a table's: what follows it is long."""
    return f"<figure><figcaption>{escape(caption, quote=False)}</figcaption>\n{body}</figure>\n"


def _text(text: str) -> str:
    """A part's text; a long one is folded behind its first line."""
    lines = text.splitlines()
    if len(lines) <= LONG:
        return _pre(text)
    first = next((line for line in lines if line.strip()), "")
    return (
        f"<details><summary>{escape(first)} … ({len(lines)} lines)</summary>{_pre(text)}</details>"
    )


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}">{escape(text, quote=False)}</pre>'


def _marked(before: str | None, text: str) -> str:
    """The text with what is new since `before` underlined and what is gone struck out.

    Compared by lines first, so that a line that moved out of the memory is not mixed with the one that came;
    a line that was changed in part is compared by words.
    """
    if before is None:
        return _pre(text)
    old, new = before.splitlines(), text.splitlines()
    lines = []
    for tag, start, end, first, last in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            lines += [escape(line, quote=False) for line in new[first:last]]
        else:
            lines += _changed(old[start:end], new[first:last])
    return f'<pre style="{_PRE}">{chr(10).join(lines)}</pre>'


def _changed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Lines for a place where the texts differ: pairs of similar lines merged, others whole."""
    pairs = (
        [(_words(a), _words(b)) for a, b in zip(old, new, strict=False)]
        if len(old) == len(new)
        else []
    )
    matchers = [difflib.SequenceMatcher(None, a, b, autojunk=False) for a, b in pairs]
    if pairs and all(matcher.ratio() >= _ALIKE for matcher in matchers):
        return [_merged(matcher, *pair) for matcher, pair in zip(matchers, pairs, strict=True)]
    return [_mark("del", line) for line in old] + [_mark("ins", line) for line in new]


def _merged(matcher: difflib.SequenceMatcher, old: Sequence[str], new: Sequence[str]) -> str:
    parts = []
    for tag, start, end, first, last in matcher.get_opcodes():
        said = "".join(new[first:last])
        parts += [escape(said, quote=False)] if tag == "equal" else []
        parts += (
            [_mark("del", "".join(old[start:end])), _mark("ins", said)] if tag != "equal" else []
        )
    return "".join(parts)


def _words(line: str) -> list[str]:
    return re.findall(r"\s+|\w+(?:[.-]\w+)*|[^\w\s]", line)


def _mark(tag: str, text: str) -> str:
    if not text.strip():
        return text if tag == "ins" else ""  # blanks: nothing to underline, nothing to miss
    style = _ADDED if tag == "ins" else _GONE
    return f'<{tag} style="{style}">{escape(text, quote=False)}</{tag}>'
