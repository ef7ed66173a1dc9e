"""Sliders for a live notebook, and a still strip of figures for the report.

`play` shows widgets only where a reader can move them. An executed report (BENCH_RUN=1) gets no widget,
because a widget there is a dead control and its state differs between runs; the strip carries the message
instead, and a live session gets it as well. Left out: animation, and anything that draws random numbers.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from matplotlib.figure import Figure

from lib.plots.theme import png

KEPT = 64  # drawn positions that are remembered, so that moving back costs nothing


def live() -> bool:
    """Whether a reader may move sliders: everywhere but in the runs that make the report."""
    return os.environ.get("BENCH_RUN") != "1"


def play(
    make: Callable[..., Figure], slider: Mapping[str, Sequence[Any]], strip: Callable[[], Figure]
) -> Figure:
    """Show one slider for each name in a live session; return the still figure in either case.

    make: called with one keyword for each slider, returns the figure of that position. slider: the
    positions of each, such as {"step": range(50), "weight": [0.0, 0.5, 1.0]}; the first is shown first.
    strip: returns the figure that stands in the report.
    Raises ValueError where a slider has no positions, TypeError where strip returns no figure.
    """
    positions = _positions(slider)
    if live():
        from IPython.display import display  # imported here: a report needs neither of the two

        display(controls(make, positions))
    still = strip()
    if not isinstance(still, Figure):
        raise TypeError(f"strip must return a matplotlib Figure, got {type(still).__name__}")
    return still


def controls(make: Callable[..., Figure], slider: Mapping[str, Sequence[Any]]):
    """The sliders above the picture that they redraw, an `ipywidgets.VBox`; the last child holds errors.

    The picture is an Image widget: its bytes are replaced at once, so that nothing flickers or piles up.
    """
    import ipywidgets as widgets

    positions = _positions(slider)
    sliders = {
        name: widgets.SelectionSlider(
            # pairs of label and place: a value may itself be a pair, which ipywidgets would take apart
            options=[(_label(value), place) for place, value in enumerate(values)],
            description=name,
            continuous_update=False,  # a figure takes a moment: draw where the reader lets go
            style={"description_width": "initial"},
        )
        for name, values in positions.items()
    }

    @lru_cache(maxsize=KEPT)
    def drawn(*places: int) -> bytes:
        chosen = {
            name: positions[name][place] for name, place in zip(positions, places, strict=True)
        }
        return png(make(**chosen))

    def current() -> bytes:
        return drawn(*(control.value for control in sliders.values()))

    picture = widgets.Image(value=current(), format="png")
    trouble = widgets.HTML()

    def redraw(_change) -> None:
        try:
            picture.value, trouble.value = current(), ""
        except Exception as error:  # Jupyter drops what a callback raises into a log nobody reads
            trouble.value = f"<pre>{escape(type(error).__name__)}: {escape(str(error))}</pre>"

    for control in sliders.values():
        control.observe(redraw, names="value")
    return widgets.VBox([*sliders.values(), picture, trouble])


def _positions(slider: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    if not slider:
        raise ValueError("play needs at least one slider, such as {'step': range(50)}")
    positions = {name: list(values) for name, values in slider.items()}
    for name, values in positions.items():
        if not values:
            raise ValueError(f"slider {name!r} has no positions; give it at least one value")
    return positions


def _label(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
