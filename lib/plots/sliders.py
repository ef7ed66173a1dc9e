"""Sliders that need no kernel: every position of a few knobs is drawn once, and the reader picks a picture.

The same HTML works in JupyterLab, in the report and in slides, with one mechanism: a row of radio buttons for each
knob, and a style that shows the picture of the chosen positions (the selector `:has(:checked)`). It needs no script,
because a notebook that Jupyter does not trust loses its scripts and a report has none. An untrusted notebook loses the
style, too: it shows the picture of the start and nothing else, because all others carry the attribute `hidden`. Radio
buttons bring the keyboard: Tab reaches a knob, the arrow keys move it. JupyterLab would take the arrow keys to walk
through the cells; an attribute of each button, which its library Lumino reads, leaves them to the button. Left out:
knobs with many positions, whose pictures would make a page heavy, and drawing them
(`lib.reports.lesson.Lesson.slider`).
"""

import os
from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

MAX_POSITIONS = 9  # of one knob: so many stops fit beside one another on a phone
MAX_COMBINATIONS = 200  # of the positions of all knobs; each is drawn in advance
MAX_SIZE = 1_000_000  # characters of one slider's HTML, which is what its page grows by

Knobs = Mapping[str, Sequence[Any] | Mapping[str, Any]]
Indices = tuple[int, ...]  # a position of each knob

# The colours are those of the text around it, so that it can be read in a dark JupyterLab and in a dark report.
# A browser without `:has` shows the start alone, which is the only one without the attribute `hidden`.
_STYLE = """
.knobs{border:0;font:.9rem/1.3 system-ui,sans-serif;margin:0 0 .4rem;padding:0;display:flex;flex-wrap:wrap;min-width:0}
.knobs legend{padding:0;font-weight:600}
.knobs label{position:relative;flex:1 1 2.3rem;padding:.2rem .15rem;text-align:center;cursor:pointer}
.knobs label::before{content:"";position:absolute;top:.9rem;left:0;right:0;border-top:2px solid;opacity:.35}
.knobs input{position:relative;display:block;width:1.4rem;height:1.4rem;margin:0 auto .1rem;accent-color:#b35900}
.knobs :checked+span{font-weight:700}
@supports selector(:has(*)){.frames>*{display:none}}
"""
# JupyterLab looks for its shortcuts from the focused element upwards, so that the attribute must be on that element.
_KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'


def live() -> bool:
    """Whether a reader runs the cells: everywhere but in the runs that make the report."""
    return os.environ.get("BENCH_RUN") != "1"


def list_arguments(knobs: Knobs) -> dict[Indices, dict[str, Any]]:
    """Lists the arguments of a drawing function, one value for each slider.

    Args:
        knobs: The positions of each, such as {"step": range(5)}; or by what the reader sees, such as
            {"weights": {"only cost": (1, 0), "both": (1, 1)}}.

    Returns:
        The arguments of every combination, by the indices of its positions in the order of the knobs.

    Raises:
        ValueError: There is no knob, one has no position, or there are too many combinations.
    """
    label_positions(knobs)  # checks the numbers
    values_by_knob = {}
    for name, positions in knobs.items():
        values = positions.values() if isinstance(positions, Mapping) else positions
        values_by_knob[name] = list(values)
    arguments = {}
    for indices in product(*(range(len(values)) for values in values_by_knob.values())):
        arguments[indices] = {
            name: values[index]
            for (name, values), index in zip(values_by_knob.items(), indices, strict=True)
        }
    return arguments


def describe_position(knobs: Knobs, indices: Indices) -> str:
    """Where the knobs stand, such as "misses 20%, refuses 10%"."""
    labels = label_positions(knobs)
    settings = [
        f"{name} {labels[name][index]}" for name, index in zip(labels, indices, strict=True)
    ]
    return ", ".join(settings)


def slider_html(
    name: str, knobs: Knobs, contents: Mapping[Indices, str], start: Indices | None = None
) -> str:
    """Puts the knobs above what they choose.

    Args:
        name: Names the slider, unique on its page; small letters, digits, _ and -.
        knobs: As for `list_arguments`.
        contents: HTML for each combination of positions.
        start: The combination that is shown first; by default the first position of each knob.

    Returns:
        HTML that needs neither a kernel nor a script.

    Raises:
        ValueError: The knobs are out of range (see `list_arguments`), a combination has no content, or all of them
            together are too heavy for a page.
    """
    labels = label_positions(knobs)
    combinations = list(product(*(range(len(stops)) for stops in labels.values())))
    if set(combinations) != set(contents):
        raise ValueError(
            f"slider {name!r} needs one content for each of its {len(combinations)} combinations"
        )
    start = start or combinations[0]

    # One row of radio buttons for each knob; a browser moves within a row by the arrow keys.
    rows = []
    for knob_index, (knob, stops) in enumerate(labels.items()):
        buttons = []
        for index, stop in enumerate(stops):
            checked = " checked" if index == start[knob_index] else ""
            button = (
                f'<input type="radio" name="{name}-{knob_index}" '
                f'id="{_button_id(name, knob_index, index)}"{checked} {_KEEP_KEYS}>'
            )
            buttons.append(f"<label>{button}<span>{escape(stop)}</span></label>")
        legend = f"<legend>{escape(knob)}</legend>"
        rows.append(f'<fieldset class="knobs">{legend}{"".join(buttons)}</fieldset>\n')

    # One rule for each picture: it is visible while its button is checked in every row.
    rules = []
    elements = []
    for indices in combinations:
        conditions = "".join(
            f":has(#{_button_id(name, knob_index, index)}:checked)"
            for knob_index, index in enumerate(indices)
        )
        frame_class = f"{name}-at-{'-'.join(map(str, indices))}"
        rules.append(f".slider{conditions} .{frame_class}{{display:block}}")
        hidden = "" if indices == start else " hidden"
        elements.append(f'<div class="{frame_class}"{hidden}>{contents[indices]}</div>\n')

    style = f"<style>{_STYLE}{chr(10).join(rules)}</style>\n"
    frames = f'<div class="frames" aria-live="polite">\n{"".join(elements)}</div>'
    markup = f'<figure class="slider drawn">\n{style}{"".join(rows)}{frames}</figure>\n'
    if len(markup) > MAX_SIZE:
        raise ValueError(
            f"slider {name!r} has {len(markup):,} characters, {MAX_SIZE:,} at most; draw fewer positions or marks"
        )
    return markup


def label_positions(knobs: Knobs) -> dict[str, list[str]]:
    """Writes the label of each position of each slider.

    Args:
        knobs: The positions by the name of the slider.

    Raises:
        ValueError: There is no slider, one has no position, or there are too many to draw.
    """
    if not knobs:
        raise ValueError("a slider needs at least one knob, such as {'step': range(5)}")
    labels = {}
    num_combinations = 1
    for name, positions in knobs.items():
        if not len(positions):
            raise ValueError(f"knob {name!r} has no positions; give it at least one value")
        if len(positions) > MAX_POSITIONS:
            raise ValueError(
                f"knob {name!r} has {len(positions)} positions; {MAX_POSITIONS} at most"
            )
        labels[name] = [_format_position(position) for position in positions]
        num_combinations *= len(positions)
    if num_combinations > MAX_COMBINATIONS:
        raise ValueError(
            f"the knobs have {num_combinations} combinations; {MAX_COMBINATIONS} at most"
        )
    return labels


def find_start(knobs: Knobs, start: Mapping[str, Any]) -> Indices:
    """Finds the indices of the positions that are shown first; sliders that `start` does not name stand at their
    first.

    Args:
        knobs: As for `list_arguments`.
        start: By knob, the value, or what the reader sees of it.

    Raises:
        ValueError: A knob has no such position.
    """
    unknown = sorted(set(start) - set(knobs))
    if unknown:
        raise ValueError(f"there is no knob {unknown[0]!r}; there are {', '.join(knobs)}")
    indices = []
    for name, positions in knobs.items():
        position = start.get(name, next(iter(positions)))
        indices.append(list(positions).index(position))
    return tuple(indices)


def _format_position(position: Any) -> str:
    return f"{position:.3g}" if isinstance(position, float) else str(position)


def _button_id(name: str, knob_index: int, index: int) -> str:
    return f"{name}-{knob_index}-{index}"
