"""A reply taken apart, and curves that grow while a reader waits."""

import threading

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.language_models.generation import Generation
from lib.language_models.tokenizer import encode
from lib.reports.lesson_figures import models


def test_a_reply_is_shown_token_by_token_and_escaped():
    ids = encode("<think> 3 </think>")
    html, plain = models.reply_html(
        "a < b", Generation(ids, [np.log(0.5)] * len(ids), [0.7] * len(ids))
    )
    assert html.count("0.50") == len(ids) and "&lt;think&gt;" in html and "a &lt; b" in html
    assert plain == "a < b -> <think> (0.50) 3 (0.50) </think> (0.50)"


def test_curves_are_drawn_while_a_reader_waits_and_not_in_a_report(monkeypatch):
    drawn, shown = threading.Event(), []
    monkeypatch.setattr(models, "display", shown.append)

    def figure(curves: pd.DataFrame) -> Figure:
        drawn.set()
        return Figure()

    def watching():
        return models.watch_training(lambda: pd.DataFrame({"step": [1]}), figure, every=0.01)

    monkeypatch.setenv("BENCH_RUN", "1")
    with watching():
        assert not drawn.wait(0.1) and not shown
    monkeypatch.delenv("BENCH_RUN")
    with watching():
        assert drawn.wait(10)
    assert len(shown) == 1


def test_a_leap_is_told_with_the_loss_at_both_ends():
    steps, accuracy, loss = [10, 20, 30, 40], [0.0, 0.1, 0.9, 1.0], [4.0, 2.0, 1.0, 0.5]
    curve = pd.DataFrame({"step": steps, "accuracy": accuracy, "loss": loss})
    leap = models.describe_leap("nano", curve)
    assert (
        leap
        == "between updates 20 and 30 nano goes from 10% to 90% correct, its loss from 2.00 to 1.00"
    )
