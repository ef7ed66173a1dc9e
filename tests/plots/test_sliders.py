"""Sliders exist where someone can move them, and the report gets a still figure."""

import io

import numpy as np
import pytest
from PIL import Image

from lib.plots import forest_plot, render_png
from lib.plots.sliders import interactive_figure, make_controls
from lib.stats import Interval


def bar(step: int, weight: float = 0.5):
    return forest_plot({"RO": Interval(step * weight, np.nan, np.nan)}, f"Step {step}", "value")


def make_static_figure():
    return forest_plot({"RO": Interval(7.0, np.nan, np.nan)}, "The static figure", "value")


SLIDERS = {"step": range(1, 4), "weight": [0.5, 1.0]}


def test_the_report_gets_the_static_figure_and_no_widget(monkeypatch, capsys):
    monkeypatch.setenv("BENCH_RUN", "1")
    still = interactive_figure(
        lambda **_: pytest.fail("the report moves no slider"), SLIDERS, make_static_figure
    )
    assert still.get_suptitle() == "The static figure" and capsys.readouterr().out == ""


def test_a_live_session_shows_the_sliders_and_gets_the_static_figure_too(monkeypatch, capsys):
    monkeypatch.delenv("BENCH_RUN", raising=False)
    still = interactive_figure(bar, SLIDERS, make_static_figure)
    assert "VBox" in capsys.readouterr().out  # outside a kernel, display prints what it would show
    assert still.get_suptitle() == "The static figure"


def test_there_is_one_slider_for_each_name_at_its_first_position():
    *sliders, picture, trouble = make_controls(bar, SLIDERS).children
    assert [slider.description for slider in sliders] == ["step", "weight"]
    assert [slider.label for slider in sliders] == ["1", "0.5"]
    assert bytes(picture.value) == render_png(bar(1, 0.5)) and trouble.value == ""


def test_moving_a_slider_redraws_the_picture():
    step, weight, picture, _ = make_controls(bar, SLIDERS).children
    step.label, weight.label = "3", "1"
    assert bytes(picture.value) == render_png(bar(3, 1.0))
    assert Image.open(io.BytesIO(picture.value)).format == "PNG"


def test_a_failing_redraw_says_so_and_keeps_the_last_picture():
    def make(step):
        if step == 2:
            raise ValueError("step <2> is broken")
        return bar(step)

    step, picture, trouble = make_controls(make, {"step": [1, 2]}).children
    before = picture.value
    step.label = "2"
    assert picture.value == before and "ValueError: step &lt;2&gt; is broken" in trouble.value
    step.label = "1"
    assert trouble.value == ""


def test_positions_may_be_pairs_arrays_or_alike():
    seen = []
    pairs = [(1.0, 0.0), (0.0, 1.0)]
    weights, step, *_ = make_controls(
        lambda weights, step: seen.append((weights, int(step))) or bar(step),
        {"weights": pairs, "step": np.array([2, 2, 3])},
    ).children
    weights.index, step.index = 1, 2
    assert seen == [(pairs[0], 2), (pairs[1], 2), (pairs[1], 3)]


@pytest.mark.parametrize(
    ("slider", "message"), [({}, "at least one slider"), ({"step": []}, "'step' has no positions")]
)
def test_sliders_that_cannot_move_are_refused_in_either_mode(slider, message, monkeypatch):
    for mode in ("0", "1"):
        monkeypatch.setenv("BENCH_RUN", mode)
        with pytest.raises(ValueError, match=message):
            interactive_figure(bar, slider, make_static_figure)
