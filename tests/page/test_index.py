"""The front page: every lesson in order, from its files alone, and a clear word where one is missing."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lib import store
from lib.page import index, lesson
from lib.page.audit import ReportError, problems
from lib.page.index import commit, front_page, shown
from lib.page.lesson import Lesson
from lib.params import ROOT

ALT = "A line that rises & then falls again"


CLAIMS = {"claims.total": 30, "claims.holds": 11, "claims.fails": 8, "claims.undecided": 7, "claims.untestable": 4}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Finishes a lesson by its name; keywords change its profile, finding and metrics."""
    monkeypatch.setattr(lesson, "_show", lambda markup, plain: None)

    def finish(name: str, profile: str = "laptop", finding: str | None = None, **metrics) -> None:
        made = Lesson(name, title=f"About <{name}>: more", profile=profile, parameters={"name": name}, root=tmp_path)
        made.figure(Figure(figsize=(1, 1)), "front", alt=ALT)
        made.metric("KO.reward", 0.64321, lo=0.61, hi=0.66)
        made.metrics({"backend": "lab", "hidden": 7} | metrics)
        made.finding(finding or f"We found {name}.")
        made.finish("front", ["KO.reward", "backend"])

    return finish


@pytest.fixture
def reports(add, tmp_path):
    """Three finished lessons."""
    for name in ("10_last", "02_second", "01_first"):
        add(name)
    return tmp_path


def words(markup: str) -> str:
    """What a page says, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", "", markup.partition("<body>")[2]).split())


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_lessons_stand_in_the_order_of_their_numbers(reports):
    page = front_page(reports, reports)
    assert re.findall(r'<h3[^>]*><a href="([^"]+)">', page) == [
        "01_first.html",
        "02_second.html",
        "10_last.html",
    ]


def test_each_lesson_shows_finding_figure_metrics_profile_and_parameters(reports):
    page = front_page(reports, reports)
    card = json.loads((reports / "lessons/02_second.json").read_text())
    part = page.split("<article")[2]
    assert "About &lt;02_second&gt;" in part and "We found 02_second." in part
    image = r'<img src="data:image/png;base64,[^"]+" width="\d+" height="\d+" alt="A line that rises &amp; then falls'
    assert re.search(image, part)
    assert "<code>KO.<wbr>reward</code>" in part and ">0.643 [0.610, 0.660]<" in part and ">lab<" in part
    assert "hidden" not in part and "profile laptop" in part and card["parameters"] in part


def test_the_front_page_loads_nothing_and_is_the_same_every_time(reports):
    page = front_page(reports, reports)
    assert problems(page) == [] and "<script" not in page and "://" not in page
    assert page == front_page(reports, reports) and page.count("<h1>") == 1


def test_without_a_scoreboard_the_last_lesson_gives_the_picture_and_no_claim_is_counted(reports):
    page = front_page(reports, reports)
    assert "From lesson 10" in words(page) and 'class="tally"' not in page


def test_with_a_scoreboard_the_claims_stand_as_it_counted_them(reports, add):
    add("09_scoreboard", **CLAIMS)
    said = words(front_page(reports, reports))
    assert "30 claims of the papers" in said and "From lesson 09" in said
    assert "11 hold 8 do not hold 7 undecided 4 not testable" in said


def test_a_scoreboard_that_did_not_count_everything_is_not_quoted(reports, add):
    add("09_scoreboard", **{key: value for key, value in CLAIMS.items() if key != "claims.fails"})
    assert 'class="tally"' not in front_page(reports, reports)


def test_every_lesson_stands_among_the_findings_and_leads_to_its_card(reports):
    page = front_page(reports, reports)
    part = re.search(r'<ol class="found">(.*?)</ol>', page, re.DOTALL).group(1)
    targets = re.findall(r'href="#([^"]+)"', part)
    assert targets == ["lesson-01_first", "lesson-02_second", "lesson-10_last"]
    assert all(f'id="{target}"' in page for target in targets) and "We found 10_last." in part


def test_a_long_finding_is_cut_after_a_statement_in_the_overview_and_whole_on_its_card(reports, add):
    add("03_long", finding="It is 0.93 [0.89, 0.97]; " + "and so on " * 30 + "to the end.")
    overview, cards = front_page(reports, reports).split('id="lessons"')
    assert "It is 0.93 [0.89, 0.97] …" in overview and "to the end." not in overview
    assert "to the end." in cards


def test_numbers_of_a_smoke_run_are_called_no_results_wherever_they_stand(reports, add):
    assert "not a result" not in front_page(reports, reports)
    add("03_small", profile="smoke")
    page = front_page(reports, reports)
    said = words(page)
    assert "Mixed profiles. Lessons 01, 02 and 10 ran at laptop. Lesson 03 ran at smoke." in said
    assert "Not results." in said and page.count("not a result") == 2  # among the findings, and on the card
    assert "make repro PROFILE=smoke" in said


def test_a_page_of_one_profile_warns_of_no_mixture(tmp_path, add):
    add("03_small", profile="smoke")
    said = words(front_page(tmp_path, tmp_path))
    assert "Mixed profiles" not in said and "Not results." in said
    assert "lesson 03, About &lt;03_small&gt;, profile smoke: a test of the machinery, not a result" in said


def test_a_card_says_where_scripted_stand_ins_decided(reports, add):
    assert "stand-ins decided in" not in front_page(reports, reports)
    add("03_part", **{"RO.mine.backend": "scripted", "TO.mine.backend": "lab"})
    add("04_all", **{"backend": "scripted"})
    page = front_page(reports, reports)
    cards = {part[:20]: words("<body>" + part) for part in page.split('<h3 id="lesson-')}
    part, everything = (next(text for key, text in cards.items() if key.startswith(name)) for name in ("03_", "04_"))
    assert "scripted stand-ins decided in part" in part and "By scripted stand-ins: RO.mine." in part
    assert "scripted stand-ins decided" in everything and "in part" not in everything
    assert "In lessons 03 and 04 scripted stand-ins decided" in words(page)


def test_everybody_is_told_a_lesson_that_is_there(reports, add):
    def chosen() -> list[str]:
        part = re.search(r'<ul class="readers">(.*?)</ul>', front_page(reports, reports), re.DOTALL).group(1)
        return re.findall(r'href="([^"]+)"', part)

    assert chosen() == ["01_first.html"] * 3
    for name in ("00_tour", "02_orchestration", "09_scoreboard"):
        add(name)
    assert chosen() == ["09_scoreboard.html", "00_tour.html", "02_orchestration.html"]


def test_a_glossary_is_linked_where_there_is_one(reports):
    assert "lossary" not in words(front_page(reports, reports))
    store.write_text(reports / "glossary.html", "words")
    assert 'href="glossary.html"' in front_page(reports, reports)


def test_the_papers_are_those_of_the_readme():
    rows = re.findall(r"^\| \[`(\w+)`\].*?\|.*?\| ([^|]+?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    told = {name: paper for name, paper in rows if paper not in ("-", "all")}
    assert told == index.PAPERS


def test_papers_are_counted_and_named_in_the_first_sentence(tmp_path, add):
    for name in ("00_tour", "01_policy_zoo", "03_model_zoo", "04_conductor"):
        add(name)
    assert "4 lessons rebuild the decision makers of 2 papers (policy orchestration and MAESTRO)" in words(
        front_page(tmp_path, tmp_path)
    )


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
