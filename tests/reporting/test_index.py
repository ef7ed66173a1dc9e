"""The front page: every lesson in order, from its files alone, and a clear word where one is missing."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lib.reporting import index, lesson
from lib.reporting.audit import ReportError, problems
from lib.reporting.index import commit, front_page, shown
from lib.reporting.lesson import Lesson

ALT = "A line that rises & then falls again"


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Three finished lessons."""
    monkeypatch.setattr(lesson, "_show", lambda markup, plain: None)
    for name in ("10_last", "02_second", "01_first"):
        made = Lesson(name, title=f"About <{name}>", profile="smoke", parameters={"name": name}, root=tmp_path)
        made.figure(Figure(figsize=(1, 1)), "front", alt=ALT)
        made.metric("KO.reward", 0.64321, lo=0.61, hi=0.66)
        made.metrics({"backend": "lab", "hidden": 7})
        made.finding(f"We found {name}.")
        made.finish("front", ["KO.reward", "backend"])
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_lessons_stand_in_the_order_of_their_numbers(reports):
    page = front_page(reports, reports)
    assert re.findall(r'<h2[^>]*><a href="([^"]+)">', page) == [
        "01_first.html",
        "02_second.html",
        "10_last.html",
    ]


def test_each_lesson_shows_finding_figure_metrics_profile_and_parameters(reports):
    page = front_page(reports, reports)
    card = json.loads((reports / "lessons/02_second.json").read_text())
    part = page.split("<article")[2]
    assert "About &lt;02_second&gt;" in part and "We found 02_second." in part
    assert re.search(r'<img src="data:image/png;base64,[^"]+" alt="A line that rises &amp; then falls again">', part)
    assert "<code>KO.reward</code>" in part and ">0.643 [0.610, 0.660]<" in part and ">lab<" in part
    assert "hidden" not in part and "profile smoke" in part and card["parameters"] in part


def test_the_front_page_loads_nothing_and_is_the_same_every_time(reports):
    page = front_page(reports, reports)
    assert problems(page) == [] and "<script" not in page and "://" not in page
    assert page == front_page(reports, reports) and page.count("<h1>") == 1


def test_metrics_without_interval_are_shown_alone():
    assert shown("a", {"a": 3, "b": 0.5}) == "3" and shown("b", {"a": 3, "b": 0.5, "b_lo": 0.4}) == "0.500"


def test_without_git_the_commit_is_unknown(reports):
    assert commit(reports) == "unknown" and "<code>unknown</code>" in front_page(reports, reports)


def test_the_commit_says_whether_tracked_files_differ_from_it(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "--quiet", "-m", "a")
    short = git(tmp_path, "rev-parse", "--short", "HEAD")
    (tmp_path / "untracked.txt").write_text("b")
    assert commit(tmp_path) == short
    (tmp_path / "a.txt").write_text("changed")
    assert commit(tmp_path) == f"{short} + changes"


def test_without_a_lesson_there_is_an_error_that_says_what_to_do(tmp_path, capsys):
    assert index.main(["--out", str(tmp_path / "index.html")]) == 1
    assert "make repro" in capsys.readouterr().err and not (tmp_path / "index.html").exists()


def test_the_command_writes_the_page_beside_the_lessons(reports):
    assert index.main(["--out", str(reports / "index.html")]) == 0
    assert "We found 10_last." in (reports / "index.html").read_text()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda r: (r / "figures/02_second/front.png").unlink(), "02_second.json names the figure"),
        (lambda r: (r / "metrics/02_second.json").unlink(), "02_second.json cannot be read"),
        (lambda r: (r / "metrics/02_second.json").write_text("{}"), "02_second.json names the metrics"),
        (lambda r: (r / "lessons/02_second.json").write_text("{"), "02_second.json cannot be read"),
        (lambda r: (r / "lessons/02_second.json").write_text('{"lesson": "a"}'), "02_second.json lacks"),
    ],
)
def test_files_that_do_not_fit_together_are_named(reports, spoil, message):
    spoil(reports)
    with pytest.raises(ReportError, match=message):
        front_page(reports, reports)
