"""A line about what is under way comes at once, and again while it lasts."""

import time

from lib.rl.user_training import progress
from lib.rl.user_training.progress import ProgressLine


def test_a_line_comes_at_once_and_again_with_the_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    with ProgressLine("reading") as line:
        line.activity = "update 1/2"
        time.sleep(0.1)
    printed = capsys.readouterr().out
    assert printed.startswith("reading ...\n") and "update 1/2, 0 s" in printed


def test_a_silent_one_prints_nothing(capsys):
    with ProgressLine("reading", is_silent=True) as line:
        line.say("done")
    assert capsys.readouterr().out == ""
