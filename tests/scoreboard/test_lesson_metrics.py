"""Metrics for a terminal: one a line, with its interval, and all of them."""

import json

import pytest

from lib.experiment import artifacts
from lib.scoreboard import lesson_metrics

ONE = {
    "corl.right": 0.123456,
    "corl.right_ci_low": 0.1,
    "corl.right_ci_high": 0.2,
    "corl.n": 12,
    "backend": "lab",
    "odd_ci_low": 1.0,
    "true": True,
}


@pytest.fixture
def folder(tmp_path):
    artifacts.write_json(tmp_path / "05_routing.json", ONE)
    artifacts.write_json(tmp_path / "06_tools.json", {"cost_usd": 2.5e-7})
    return tmp_path


def test_every_metric_has_a_line_with_its_interval_in_columns(folder, capsys):
    assert lesson_metrics.main(["--folder", str(folder)]) == 0
    assert capsys.readouterr().out == (
        "05_routing\n"
        "  backend        lab\n"
        "  corl.n          12\n"
        "  corl.right  0.1235  [0.1, 0.2]\n"
        "  odd_ci_low       1\n"
        "  true          True\n"
        "\n"
        "06_tools\n"
        "  cost_usd  2.5e-07\n"
    )


def test_one_lesson_for_a_program_at_full_precision(folder, capsys):
    assert lesson_metrics.main(["--folder", str(folder), "--lesson", "05", "--json"]) == 0
    lessons = json.loads(capsys.readouterr().out)
    assert list(lessons) == ["05_routing"]
    assert lessons["05_routing"]["corl.right"] == {"value": 0.123456, "ci_low": 0.1, "ci_high": 0.2}
    assert lessons["05_routing"]["odd_ci_low"] == {"value": 1.0}


def test_a_reader_is_told_whose_metrics_stand_here(tmp_path, folder):
    cards = tmp_path / "lessons"
    artifacts.write_json(cards / "05_routing.json", {"profile": "smoke"})
    names = ["07_agents", "06_tools", "05_routing"]
    assert lesson_metrics.describe_sources(names, folder, cards) == (
        "Metrics of runs here, at smoke: lessons 05. "
        "Metrics that come with the project, of its last run at laptop: lessons 06; run them for your own. "
        "No metrics: lessons 07; run them to test their claims."
    )
    assert lesson_metrics.describe_sources(["05_routing"], folder, cards) == (
        "Metrics of runs here, at smoke: lessons 05."
    )


def test_nothing_is_lost_of_what_the_lessons_keep():
    for name, metrics in lesson_metrics.read_lesson_metrics().items():
        flat = {}
        for key, metric in metrics.items():
            flat |= {key: metric["value"]} | {
                f"{key}_{end}": metric[end] for end in ("ci_low", "ci_high") if end in metric
            }
        assert flat == artifacts.read_json(lesson_metrics.METRICS_FOLDER / f"{name}.json")


def test_a_lesson_that_is_none_is_named_with_those_that_are(folder, capsys):
    assert lesson_metrics.main(["--folder", str(folder), "--lesson", "11"]) == 1
    assert "'11'" in (message := capsys.readouterr().err) and "05_routing, 06_tools" in message
