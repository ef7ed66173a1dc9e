"""Sliders exist where someone can move them, and the report gets a still figure."""

import io

import numpy as np
import pytest
from PIL import Image

from lib.plots import png, points
from lib.plots.sliders import controls, play
from lib.stats import Interval


def bar(step: int, weight: float = 0.5):
    return points({"RO": Interval(step * weight, np.nan, np.nan)}, f"Step {step}", "value")


def strip():
    return points({"RO": Interval(7.0, np.nan, np.nan)}, "The strip", "value")


SLIDERS = {"step": range(1, 4), "weight": [0.5, 1.0]}


def test_the_report_gets_the_strip_and_no_widget(monkeypatch, capsys):
    monkeypatch.setenv("BENCH_RUN", "1")
    still = play(lambda **_: pytest.fail("the report moves no slider"), SLIDERS, strip)
    assert still.get_suptitle() == "The strip" and capsys.readouterr().out == ""


def test_a_live_session_shows_the_sliders_and_gets_the_strip_too(monkeypatch, capsys):
    monkeypatch.delenv("BENCH_RUN", raising=False)
    still = play(bar, SLIDERS, strip)
    assert "VBox" in capsys.readouterr().out  # outside a kernel, display prints what it would show
    assert still.get_suptitle() == "The strip"


def test_there_is_one_slider_for_each_name_at_its_first_position():
    *sliders, picture, trouble = controls(bar, SLIDERS).children
    assert [slider.description for slider in sliders] == ["step", "weight"]
    assert [slider.label for slider in sliders] == ["1", "0.5"]
    assert bytes(picture.value) == png(bar(1, 0.5)) and trouble.value == ""


def test_moving_a_slider_redraws_the_picture():
    step, weight, picture, _ = controls(bar, SLIDERS).children
    step.label, weight.label = "3", "1"
    assert bytes(picture.value) == png(bar(3, 1.0))
    assert Image.open(io.BytesIO(picture.value)).format == "PNG"


def test_a_failing_redraw_says_so_and_keeps_the_last_picture():
    def make(step):
        if step == 2:
            raise ValueError("step <2> is broken")
        return bar(step)

    step, picture, trouble = controls(make, {"step": [1, 2]}).children
    before = picture.value
    step.label = "2"
    assert picture.value == before and "ValueError: step &lt;2&gt; is broken" in trouble.value
    step.label = "1"
    assert trouble.value == ""


def test_positions_may_be_pairs_arrays_or_alike():
    seen = []
    pairs = [(1.0, 0.0), (0.0, 1.0)]
    weights, step, *_ = controls(
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
            play(bar, slider, strip)
