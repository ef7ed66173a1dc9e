"""Suffixes behind names: every label that names a method has its suffix, and no other label does."""

import pandas as pd
import pytest
from matplotlib.text import Text

from lib import plots

METHODS = ["KO claude", "KO claude, every 5", "random"]
SUFFIXES = {"KO claude": " †", "KO claude, every 5": ""}
ESTIMATES = pd.DataFrame(
    {"value": [0.2, 0.4, 0.5], "ci_low": [0.1, 0.3, 0.4], "ci_high": [0.3, 0.5, 0.6]},
    pd.Index(METHODS, name="method"),
)


def list_labels(figure) -> set[str]:
    """All texts of a figure as it is rendered, on one line each."""
    plots.render_png(figure)
    return {" ".join(text.get_text().split()) for text in figure.findobj(Text)}


def draw_rows():
    return plots.forest_plot(ESTIMATES, "KO claude is behind")


def draw_lines():
    rows = pd.concat([ESTIMATES.reset_index().assign(step=step) for step in (0, 1)])
    return plots.line_plot(
        rows, "step", "value", "method", "KO claude is behind", "step", "value", seed=None
    )


def draw_points():
    cost = ESTIMATES.assign(value=[1.0, 2.0, 3.0], ci_low=[0.9, 1.9, 2.9], ci_high=[1.1, 2.1, 3.1])
    return plots.tradeoff_plot(cost, ESTIMATES, "KO claude is behind", "$", "accuracy")


def draw_panels():
    estimates = pd.concat({"one": ESTIMATES, "two": ESTIMATES}, names=["world"])
    return plots.forest_plot(estimates, "KO claude is behind", "utility", panels="method")


@pytest.mark.parametrize("draw", [draw_rows, draw_lines, draw_points, draw_panels])
def test_the_suffix_stands_behind_its_own_name_in_every_kind_of_figure(draw):
    figure = draw()
    assert plots.append_suffixes(figure, SUFFIXES) == {"KO claude"}
    for drawing in (figure, figure.draw_narrow() if plots.has_narrow(figure) else figure):
        labels = list_labels(drawing)
        assert "KO claude †" in labels and "KO claude" not in labels
        assert {"KO claude, every 5", "random", "KO claude is behind"} <= labels


def test_a_name_with_more_behind_a_comma_has_its_suffix_before_the_comma():
    figure = draw_rows()
    plots.append_suffixes(figure, {"KO claude": " †"})
    assert {"KO claude †", "KO claude †, every 5"} <= list_labels(figure)


def test_a_long_name_keeps_its_lines():
    estimates = ESTIMATES.rename(index={"KO claude": "KO claude with very many words behind it"})
    figure = plots.forest_plot(estimates, "A title", name=12)
    name = "KO claude with very many words behind it"
    assert plots.append_suffixes(figure, {name: " †"}) == {name}
    assert f"{name} †" in list_labels(figure)


def test_a_figure_without_the_name_stays_the_same_bytes_and_can_be_drawn_for_phones():
    figure = draw_rows()
    assert plots.append_suffixes(figure, {"TO claude": " †"}) == set()
    assert plots.has_narrow(figure)
    assert plots.render_svg(figure) == plots.render_svg(draw_rows())


def test_a_figure_with_suffixes_can_be_drawn_for_phones():
    figure = draw_rows()
    plots.append_suffixes(figure, SUFFIXES)
    assert plots.has_narrow(figure) and "KO claude †" in list_labels(figure.draw_narrow())


def test_a_title_gets_the_suffixes_that_no_sentence_may_lack():
    figure = draw_rows()
    assert plots.append_suffixes(figure, {"random": ""}, {"KO claude": " †"}) == {"KO claude"}
    assert "KO claude † is behind" in list_labels(figure)
    assert "KO claude † is behind" in list_labels(figure.draw_narrow())


def test_a_name_in_a_sentence_is_a_word_of_its_own_and_gets_its_suffix_once():
    suffixes = {"lab-big": " †", "always lab-big": " (smol) †"}
    sentence = "always lab-big 0.5, lab-big † 0.4, lab-big 0.3, lab-bigger 0.2"
    expected = "always lab-big (smol) † 0.5, lab-big † 0.4, lab-big † 0.3, lab-bigger 0.2"
    assert plots.append_within(sentence, suffixes) == expected
