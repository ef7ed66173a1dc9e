"""Sliders for a live notebook, and a static figure for the report.

`interactive_figure` shows widgets only where a reader can move them. An executed report (BENCH_RUN=1) gets no widget,
because a widget there is inactive and its state differs between runs; the static figure carries the message instead,
and a live session gets it as well. Left out: animation, and anything that draws random numbers.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from matplotlib.figure import Figure

from lib.plots.theme import render_png

CACHE_SIZE = 64  # pictures that are remembered, so that moving back costs nothing


def live() -> bool:
    """Whether a reader may move sliders: everywhere but in the runs that make the report."""
    return os.environ.get("BENCH_RUN") != "1"


def interactive_figure(
    make_figure: Callable[..., Figure],
    sliders: Mapping[str, Sequence[Any]],
    make_static_figure: Callable[[], Figure],
) -> Figure:
    """Shows sliders in a live session, and returns the static figure in either case.

    Args:
        make_figure: Called with one keyword for each slider, returns the figure of that position.
        sliders: The positions of each, such as {"step": range(50), "weight": [0.0, 0.5, 1.0]}; the first is shown
            first.
        make_static_figure: Returns the figure that stands in the report.

    Returns:
        The static figure.

    Raises:
        ValueError: There is no slider, or one has no positions.
        TypeError: make_static_figure returns no figure.
    """
    positions = _check_positions(sliders)
    if live():
        from IPython.display import display  # imported here: a report needs neither of the two

        display(make_controls(make_figure, positions))
    static_figure = make_static_figure()
    if not isinstance(static_figure, Figure):
        raise TypeError(
            f"make_static_figure must return a matplotlib Figure, got {type(static_figure).__name__}"
        )
    return static_figure


def make_controls(make_figure: Callable[..., Figure], sliders: Mapping[str, Sequence[Any]]):
    """Builds the sliders above the picture that they redraw.

    The picture is an Image widget: its bytes are replaced at once, so that nothing flickers or piles up.

    Args:
        make_figure: As for `interactive_figure`.
        sliders: As for `interactive_figure`.

    Returns:
        An `ipywidgets.VBox` of the sliders, the picture and a line for errors.
    """
    import ipywidgets as widgets

    positions = _check_positions(sliders)
    slider_widgets = {}
    for name, values in positions.items():
        slider_widgets[name] = widgets.SelectionSlider(
            # pairs of label and index: a value may itself be a pair, which ipywidgets would unpack
            options=[(_format_position(value), index) for index, value in enumerate(values)],
            description=name,
            continuous_update=False,  # a figure takes a moment: draw where the reader lets go
            style={"description_width": "initial"},
        )

    @lru_cache(maxsize=CACHE_SIZE)
    def render_at(*indices: int) -> bytes:
        arguments = {
            name: positions[name][index] for name, index in zip(positions, indices, strict=True)
        }
        return render_png(make_figure(**arguments))

    def render_current() -> bytes:
        return render_at(*(slider.value for slider in slider_widgets.values()))

    picture = widgets.Image(value=render_current(), format="png")
    error_line = widgets.HTML()

    def redraw(_change) -> None:
        try:
            picture.value = render_current()
            error_line.value = ""
        except Exception as error:  # Jupyter drops what a callback raises into a log nobody reads
            message = f"{escape(type(error).__name__)}: {escape(str(error))}"
            error_line.value = f"<pre>{message}</pre>"

    for slider in slider_widgets.values():
        slider.observe(redraw, names="value")
    return widgets.VBox([*slider_widgets.values(), picture, error_line])


def _check_positions(sliders: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    if not sliders:
        raise ValueError(
            "an interactive figure needs at least one slider, such as {'step': range(50)}"
        )
    positions = {name: list(values) for name, values in sliders.items()}
    for name, values in positions.items():
        if not values:
            raise ValueError(f"slider {name!r} has no positions; give it at least one value")
    return positions


def _format_position(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
