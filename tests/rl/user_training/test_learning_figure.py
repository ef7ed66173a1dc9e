"""The figure of a training: a panel per quantity, with numbers on its axes that can be read."""

import re

import numpy as np
import pandas as pd
import pytest

from lib import plots
from lib.rl.user_training.learning_figure import (
    MAX_POINTS,
    average_neighbours,
    draw_learning,
    format_tick,
)

CURVES = {"reward": "reward", "malformed": "malformed turns an episode", "kl": "KL to the start"}


def make_learning(num_updates: int) -> pd.DataFrame:
    steps = np.arange(1, num_updates + 1)
    return pd.DataFrame(
        {"step": steps, "reward": steps / num_updates, "malformed": 0.0, "kl": steps / 1000}
    )


def list_tick_labels(figure) -> list[list[str]]:
    """Of the vertical axis of every panel; matplotlib has further ticks beyond the limits."""
    figure.draw_without_rendering()
    labels_by_panel = []
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ticks = zip(axes.get_yticks(), axes.yaxis.get_ticklabels(), strict=True)
        labels_by_panel.append([label.get_text() for y, label in ticks if low <= y <= high])
    return labels_by_panel


@pytest.mark.parametrize("num_updates", [1, 2, 20, 400])
def test_no_two_ticks_of_a_panel_say_the_same_and_none_says_minus_nought(num_updates):
    for labels in list_tick_labels(draw_learning(make_learning(num_updates), CURVES)):
        assert len(set(labels)) == len(labels) > 1, labels
        assert not any(label.startswith(("-", "\N{MINUS SIGN}")) for label in labels), labels


def test_the_drawing_for_a_phone_has_all_panels_in_two_columns():
    figure = draw_learning(make_learning(20), CURVES)
    assert plots.has_narrow(figure)
    narrow = figure.draw_narrow()
    assert len(narrow.axes) == len(CURVES)
    assert narrow.get_figwidth() < figure.get_figwidth()


def test_titles_of_neighbouring_panels_do_not_meet():
    wide = draw_learning(make_learning(20), CURVES)
    for figure in (wide, wide.draw_narrow()):
        figure.draw_without_rendering()
        titles = [axes.title if axes.title.get_text() else axes._left_title for axes in figure.axes]
        boxes = [title.get_window_extent() for title in titles]
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[index + 1 :])
            assert box.x1 <= figure.bbox.x1


def test_numbers_on_the_axes_survive_as_svg():
    figure = draw_learning(make_learning(20), {"kl": "KL to the start"})
    [labels] = list_tick_labels(figure)
    svg = plots.render_svg(figure).decode()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert set(labels) <= set(texts)


def test_many_updates_are_averaged_and_missing_ones_left_out():
    learning = make_learning(400)
    learning.loc[::2, "reward"] = np.nan
    steps, means = average_neighbours(learning, "reward")
    assert len(steps) <= MAX_POINTS and np.isfinite(means).all()
    assert means.mean() == pytest.approx(learning["reward"].mean(), abs=0.01)


def test_a_rounding_error_beside_a_value_is_nought():
    assert format_tick(-1e-17, 0.5) == "0"
    assert format_tick(0.005, 0.02) == "0.005"
