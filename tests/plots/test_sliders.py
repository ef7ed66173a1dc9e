"""Sliders move without a kernel: every position is drawn, one is shown, and a style shows the others."""

import numpy as np
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from lib.plots import accessibility_check, forest_plot, sliders
from lib.reports import lesson
from lib.reports.lesson import Lesson
from lib.stats import Interval

KNOBS = {"step": range(1, 4), "weight": {"half": 0.5, "whole": 1.0}}
CONTENTS = {(step, weight): f"<p>{step} {weight}</p>" for step in range(3) for weight in range(2)}


def draw_bar(step: int, weight: float = 0.5):
    estimate = Interval(step * weight, np.nan, np.nan)
    return forest_plot({"RO": estimate}, f"Step {step}, weight {weight}", "value")


def parse_slider(**options) -> BeautifulSoup:
    return BeautifulSoup(sliders.slider_html("bar", KNOBS, CONTENTS, **options), "html.parser")


def test_every_knob_is_a_group_of_buttons_that_bears_its_name():
    groups = parse_slider().find_all("fieldset")
    assert [group.legend.get_text() for group in groups] == ["step", "weight"]
    assert [label.get_text() for label in groups[1].find_all("label")] == ["half", "whole"]
    names_by_group = [{button["name"] for button in group.find_all("input")} for group in groups]
    assert all(len(names) == 1 for names in names_by_group)  # the arrow keys move within a name
    assert names_by_group[0] != names_by_group[1]


def test_a_slider_begins_at_its_start_and_hides_everything_else():
    slider = parse_slider(start=(2, 1))
    checked = [button.parent.get_text() for button in slider.select("input[checked]")]
    assert checked == ["3", "whole"]
    visible = [
        frame.get_text() for frame in slider.select(".frames > div") if "hidden" not in frame.attrs
    ]
    assert visible == ["2 1"]


def test_the_style_shows_each_content_at_its_own_positions():
    slider = parse_slider()
    buttons = {button["id"]: button for button in slider.find_all("input")}
    rules = [
        line for line in slider.style.get_text().splitlines() if line.startswith(".slider:has")
    ]
    assert len(rules) == len(CONTENTS)
    # A rule names the buttons that must be checked, and the content that it then shows.
    for rule in rules:
        selector, frame_class = rule.split("{")[0].split(" .")
        conditions = [part.split(":checked")[0] for part in selector.split(":has(#")[1:]]
        labels = [buttons[condition].parent.get_text() for condition in conditions]
        step, weight = slider.find(class_=frame_class).get_text().split()
        assert labels == [str(int(step) + 1), ["half", "whole"][int(weight)]]


def test_a_slider_has_no_script_and_loads_nothing():
    markup = sliders.slider_html("bar", KNOBS, CONTENTS)
    assert accessibility_check.problems(markup) == []
    assert not [word for word in ("<script", "onclick", "onchange", "oninput") if word in markup]


def test_names_of_knobs_and_positions_are_text():
    markup = sliders.slider_html("bar", {"a < b": ["<i>"]}, {(0,): "x"})
    assert "<legend>a &lt; b</legend>" in markup and "<span>&lt;i&gt;</span>" in markup


def test_drawing_gets_the_values_behind_the_names():
    arguments = sliders.list_arguments(KNOBS)
    assert arguments[(0, 1)] == {"step": 1, "weight": 1.0} and list(arguments) == list(CONTENTS)
    pairs = [(1.0, 0.0), (0.0, 1.0)]
    # Positions may be pairs, and arrays with equal values.
    arguments = sliders.list_arguments({"weights": pairs, "step": np.array([2, 2])})
    assert arguments[(1, 0)] == {"weights": (0.0, 1.0), "step": 2}


def test_a_start_may_be_named_by_what_the_reader_sees():
    assert sliders.find_start(KNOBS, {"weight": "whole", "step": 2}) == (1, 1)
    assert sliders.find_start(KNOBS, {}) == (0, 0)
    with pytest.raises(ValueError, match="no knob 'heat'"):
        sliders.find_start(KNOBS, {"heat": 1})
    with pytest.raises(ValueError, match="7"):
        sliders.find_start(KNOBS, {"step": 7})


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({}, "at least one knob"),
        ({"step": []}, "'step' has no positions"),
        ({"step": range(10)}, "10 positions; 9 at most"),
        ({name: range(6) for name in "abc"}, "216 combinations; 200 at most"),
    ],
)
def test_knobs_that_cannot_be_drawn_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        sliders.list_arguments(knobs)


def test_a_combination_without_content_is_refused():
    with pytest.raises(ValueError, match="6 combinations"):
        sliders.slider_html("bar", KNOBS, {(0, 0): "<p></p>"})


def test_a_slider_that_makes_its_page_heavy_is_refused():
    with pytest.raises(ValueError, match="1,000,000 at most"):
        sliders.slider_html("bar", {"step": [1, 2]}, {(0,): "x" * 600_000, (1,): "x" * 600_000})


@pytest.fixture
def show_slider(tmp_path, monkeypatch):
    """Shows the bar in a lesson; returns the HTML."""
    shown_markup = []
    monkeypatch.setattr(lesson, "_show", lambda markup, plain: shown_markup.append(markup))

    def show(folder: str) -> str:
        new_lesson = Lesson("00_tour", "A tour", "smoke", {}, tmp_path / folder)
        new_lesson.slider(draw_bar, KNOBS, "bar", start={"step": 3})
        return shown_markup[-1]

    return show


def test_a_lesson_draws_every_position_with_an_alt_text_that_names_it(show_slider, tmp_path):
    pictures = BeautifulSoup(show_slider("reports"), "html.parser").find_all("img")
    assert len(pictures) == 6 and len({picture["src"] for picture in pictures}) == 6
    assert pictures[1]["alt"].startswith("step 1, weight whole: Step 1, weight 1.0")
    assert all(len(picture["alt"]) <= 300 for picture in pictures)
    assert Image.open(tmp_path / "reports/figures/00_tour/bar.png").width > 500


def test_the_same_slider_is_the_same_bytes(show_slider):
    assert show_slider("first") == show_slider("second")
