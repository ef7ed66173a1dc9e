"""Prompts and replies as HTML: the sections of a prompt, the model's reply, and the decision read from it.

The styles stand on the elements, so that a prompt looks the same in JupyterLab and in the report, light or dark; a
section is named in words and not by colour alone. Left out: rendering prompts, which is `lib.orchestration.prompts`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from html import escape

from lib import plots
from lib.orchestration.decision_model import ModelExchange, PromptSection
from lib.orchestration.prompts import COMPONENTS
from lib.plots import sliders

MAX_LINES = 12  # a longer section is folded
STEPS_SHOWN = 5  # steps of an episode that can be looked at
_MEANINGS = {component.name: component.meaning for component in COMPONENTS}
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0.3rem 0;font-size:0.85rem;background:transparent"
_ADDED = "text-decoration:underline;text-decoration-thickness:2px;font-weight:600;background:transparent;color:inherit"
_REMOVED = "text-decoration:line-through;opacity:0.75;background:transparent;color:inherit"
_ABSENT = "<p>Not part of this step's prompt.</p>"
_MIN_SIMILARITY = 0.5  # share of common words from which two lines count as one that was changed


def prompt_html(sections: Sequence[PromptSection], caption: str) -> str:
    """Renders a prompt, one block per section: its name, its meaning, the message it belongs to, its text.

    Args:
        sections: Sections of the prompt, in order.
        caption: Stands above.

    Raises:
        ValueError: If there is no section.
    """
    if not sections:
        raise ValueError(
            "there is no prompt to show; a decision has exchanges only where it was asked to keep them"
        )
    blocks = [_section_block(section, _fold_long_text(section.text)) for section in sections]
    return _figure("\n".join(blocks), caption)


def exchange_html(exchanges: Sequence[ModelExchange], caption: str) -> str:
    """Renders the requests behind one decision: what had changed in the prompt, the reply, and its outcome.

    Args:
        exchanges: The requests and replies, in order; several where policies were tried or replies sent back.
        caption: Stands above.

    Raises:
        ValueError: If there is no exchange.
    """
    if not exchanges:
        raise ValueError("there is no exchange to show")
    items = []
    previous_texts: dict[str, str] = {}  # by component, of the last prompt
    for exchange in exchanges:
        texts = {section.component: section.text for section in exchange.parts}
        changed = [name for name in texts if texts[name] != previous_texts.get(name)]
        if not previous_texts:
            note = "new in the prompt: everything"
        elif changed:
            note = f"new in the prompt: {', '.join(changed)}"
        else:
            note = "the same prompt, with the complaint below it"
        items.append(
            f"<li><div>{escape(note)}</div><div>the reply:</div>{_preformatted(exchange.reply)}"
            f"<div>what came of it:</div>{_preformatted(exchange.outcome)}</li>"
        )
        previous_texts = texts
    return _figure(f"<ol>\n{''.join(items)}</ol>", caption)


def explorer(
    prompts_by_system: Mapping[str, Sequence[Sequence[PromptSection]]],
    caption: str,
    component: str = "mem_s",
    slider_name: str = "prompt",
) -> str:
    """Renders the sections of prompts over an episode, with knobs for the system, the step and the component.

    Args:
        prompts_by_system: By KO, TO or RO, the sections of each step's first prompt.
        caption: Stands above.
        component: The component that is shown first.
        slider_name: Names the slider, unique on its page.

    Returns:
        HTML that needs no kernel: the component of the first system at the second of some steps, with additions since
        the step before underlined and deletions struck out.

    Raises:
        ValueError: If a system has no step, or the first one never shows the component.
    """
    empty = [system for system, steps in prompts_by_system.items() if not steps]
    if empty or not prompts_by_system:
        raise ValueError(
            f"there is no decision to explore{' of ' + ', '.join(empty) if empty else ''}"
        )
    num_steps = min(STEPS_SHOWN, max(len(steps) for steps in prompts_by_system.values()))
    all_steps = [sections for steps in prompts_by_system.values() for sections in steps]
    first_system, first_steps = next(iter(prompts_by_system.items()))
    if component not in _list_components(first_steps[:num_steps]):
        raise ValueError(f"{first_system} shows no component {component!r}")

    knobs = {
        "orchestrator": list(prompts_by_system),
        "component": _list_components(all_steps),
        "step": range(1, num_steps + 1),
    }
    blocks = {}
    for indices, position in sliders.list_arguments(knobs).items():
        steps = prompts_by_system[position["orchestrator"]]
        blocks[indices] = _step_block(steps, position["component"], position["step"] - 1)
    # The first step has no memory yet, so the second is the first to show, if there is one.
    start = sliders.find_start(knobs, {"component": component, "step": min(2, num_steps)})
    note = f"{caption}; since the step before, what is new is underlined, what is gone struck out"
    return _figure(sliders.slider_html(slider_name, knobs, blocks, start), note)


def _step_block(steps: Sequence[Sequence[PromptSection]], component: str, step: int) -> str:
    """Renders one section of the prompt at a step, with its changes since the step before marked.

    Args:
        steps: Sections of the prompt at each step.
        component: Name of the section.
        step: Index of the step.

    Returns:
        HTML.
    """
    section = _find_section(steps[step], component) if step < len(steps) else None
    if section is None:
        return _ABSENT
    previous = _find_section(steps[step - 1], component) if step > 0 else None
    body = _mark_changes(previous.text if previous else None, section.text)
    return _section_block(section, body)


def _list_components(steps: Sequence[Sequence[PromptSection]]) -> list[str]:
    """Every component that some step shows, in the order of appearance."""
    names = [section.component for sections in steps for section in sections]
    return list(dict.fromkeys(names))


def _find_section(sections: Sequence[PromptSection], component: str) -> PromptSection | None:
    return next((section for section in sections if section.component == component), None)


def _section_block(section: PromptSection, body: str) -> str:
    """Renders a section of the prompt, with its name and meaning behind a coloured bar.

    Args:
        section: The section.
        body: Its text as HTML.
    """
    color = plots.colour(section.component)
    meaning = _MEANINGS.get(section.component, "")
    name = f"<strong>{escape(section.component)}</strong>"
    label = f"{name} {escape(meaning)} ({escape(section.role)} message)"
    return (
        f'<div style="border-left:0.35rem solid {color};padding:0.2rem 0.8rem;margin:0.5rem 0">'
        f"<div>{label}</div>{body}</div>\n"
    )


def _figure(body: str, caption: str) -> str:
    """A figure with its caption on top, like a table's, because the body is long."""
    return f"<figure><figcaption>{escape(caption, quote=False)}</figcaption>\n{body}</figure>\n"


def _fold_long_text(text: str) -> str:
    """Renders a text as HTML; a long one is folded behind its first line."""
    lines = text.splitlines()
    if len(lines) <= MAX_LINES:
        return _preformatted(text)
    first_line = next((line for line in lines if line.strip()), "")
    summary = f"<summary>{escape(first_line)} … ({len(lines)} lines)</summary>"
    return f"<details>{summary}{_preformatted(text)}</details>"


def _preformatted(text: str) -> str:
    return f'<pre style="{_PRE}">{escape(text, quote=False)}</pre>'


def _mark_changes(previous_text: str | None, text: str) -> str:
    """Marks what changed in a text: additions are underlined, deletions struck out.

    Texts are compared by lines first; a line that was changed in part is compared by words.

    Args:
        previous_text: The earlier text; None where there is none.
        text: The later text.

    Returns:
        HTML.
    """
    if previous_text is None:
        return _preformatted(text)
    old_lines = previous_text.splitlines()
    new_lines = text.splitlines()
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    lines = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        new_block = new_lines[new_start:new_end]
        if tag == "equal":
            lines += [escape(line, quote=False) for line in new_block]
        else:
            lines += _mark_changed_lines(old_lines[old_start:old_end], new_block)
    return f'<pre style="{_PRE}">{chr(10).join(lines)}</pre>'


def _mark_changed_lines(old_lines: Sequence[str], new_lines: Sequence[str]) -> list[str]:
    """Marks the changes in a block of lines: similar lines are compared by words, others replaced as a whole.

    Args:
        old_lines: Lines of the earlier text.
        new_lines: Lines of the later text.

    Returns:
        Lines of HTML.
    """
    if old_lines and len(old_lines) == len(new_lines):
        word_pairs = [
            (_split_words(old), _split_words(new))
            for old, new in zip(old_lines, new_lines, strict=True)
        ]
        matchers = [
            difflib.SequenceMatcher(None, old, new, autojunk=False) for old, new in word_pairs
        ]
        if all(matcher.ratio() >= _MIN_SIMILARITY for matcher in matchers):
            return [
                _mark_changed_words(matcher, old, new)
                for matcher, (old, new) in zip(matchers, word_pairs, strict=True)
            ]
    deletions = [_mark_text("del", line) for line in old_lines]
    insertions = [_mark_text("ins", line) for line in new_lines]
    return deletions + insertions


def _mark_changed_words(
    matcher: difflib.SequenceMatcher, old_words: Sequence[str], new_words: Sequence[str]
) -> str:
    """Marks the changes within a line.

    Args:
        matcher: Has compared the words.
        old_words: Words of the earlier line, blanks included.
        new_words: Words of the later line.

    Returns:
        HTML.
    """
    pieces = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        new_text = "".join(new_words[new_start:new_end])
        if tag == "equal":
            pieces.append(escape(new_text, quote=False))
        else:
            pieces.append(_mark_text("del", "".join(old_words[old_start:old_end])))
            pieces.append(_mark_text("ins", new_text))
    return "".join(pieces)


def _split_words(line: str) -> list[str]:
    """Words, blanks and single signs, which together are the line."""
    return re.findall(r"\s+|\w+(?:[.-]\w+)*|[^\w\s]", line)


def _mark_text(tag: str, text: str) -> str:
    """A text within <ins> or <del>."""
    if not text.strip():
        return text if tag == "ins" else ""  # blanks: nothing to underline, nothing to miss
    style = _ADDED if tag == "ins" else _REMOVED
    return f'<{tag} style="{style}">{escape(text, quote=False)}</{tag}>'
