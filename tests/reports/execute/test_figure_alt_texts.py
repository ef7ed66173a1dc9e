"""A picture that a notebook shows without a text gets one that is marked as generated."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from lib.plots.accessibility_check import GENERATED_ALT
from lib.reports import html
from lib.reports.execute.figure_alt_texts import (
    MAX_CHARACTERS,
    complete_alt_texts,
    describe_figure,
    make_metadata,
)

PIXEL = "R0lGODlhAQABAAAAACw="


@pytest.fixture
def figure():
    figure, _ = plt.subplots()
    yield figure
    plt.close(figure)


def test_a_figure_is_described_by_its_title_axes_and_legend(figure):
    axes = figure.axes[0]
    axes.plot([1, 2], label="PPO")
    axes.plot([2, 1], label="DQN")
    axes.set(title="Reward", xlabel="step", ylabel="mean reward")
    axes.legend()
    assert describe_figure(figure) == (
        "Generated: line plot “Reward”; x axis: step; y axis: mean reward; legend: PPO, DQN."
    )


@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        (lambda axes: axes.bar([1, 2], [1, 2]), "bar chart"),
        (lambda axes: axes.scatter([1, 2], [1, 2]), "scatter plot"),
        (lambda axes: axes.imshow([[1, 2]]), "image"),
        (lambda axes: None, "plot"),
    ],
)
def test_a_figure_without_words_is_named_by_what_was_drawn(figure, draw, kind):
    draw(figure.axes[0])
    assert describe_figure(figure) == f"Generated: {kind}."


def test_a_description_is_never_too_long():
    figure, all_axes = plt.subplots(3, 3)
    figure.suptitle("words " * 200)
    for axes in all_axes.flat:
        axes.set(title="more words " * 50, xlabel="x" * 500)
    text = describe_figure(figure)
    plt.close(figure)
    assert text.startswith("Generated: ") and len(text) <= MAX_CHARACTERS


def test_a_figure_that_brings_its_own_text_keeps_it(figure):
    figure.alt_text = "Rewards rise with the budget."
    metadata = make_metadata(figure, {"image/png": PIXEL, "text/plain": "<Figure>"})
    assert metadata == {"image/png": {"alt": "Rewards rise with the budget."}}
    assert make_metadata([figure], {"text/plain": "[...]"}) == {}


def show(data: dict, metadata: dict | None = None):
    return new_output("display_data", data=data, metadata=metadata or {})


def test_other_pictures_are_named_by_their_cell_and_all_generated_texts_are_reported():
    described = {"image/png": {"alt": "Generated: line plot.", GENERATED_ALT: True}}
    outputs = [
        show({"image/gif": PIXEL}),
        show({"image/png": PIXEL}, described),
        show({"image/png": PIXEL}, {"alt": "A dot"}),
        show({"image/svg+xml": '<svg role="img" aria-label="A line"></svg>'}),
        show({"text/html": "<p>a</p>", "image/png": PIXEL}),
        new_output("stream", text="words"),
    ]
    notebook = new_notebook(cells=[new_code_cell("\nphoto  # ours", outputs=outputs)])
    first, second = complete_alt_texts(notebook)
    assert first.startswith("cell 1 ('photo  # ours'): a picture has no alt text; the page says ")
    assert "cell that begins with “photo # ours”" in first and "lesson.figure(" in first
    assert "'Generated: line plot.'" in second
    page = html.page(notebook, Path("."))
    assert page.count('<p class="note">Generated: ') == 2
    assert 'alt="A dot"' in page and 'alt="Generated: line plot."' in page


def test_a_picture_in_a_cell_of_one_long_line_has_a_short_text():
    notebook = new_notebook(cells=[new_code_cell("x" * 900, outputs=[show({"image/gif": PIXEL})])])
    (warning,) = complete_alt_texts(notebook)
    alt = notebook.cells[0].outputs[0].metadata["image/gif"]["alt"]
    assert len(alt) <= MAX_CHARACTERS and len(warning) < 600
