"""The front page: every lesson in order, from its files alone, and a clear word where one is missing."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lib.config import ROOT
from lib.plots import pages
from lib.plots.accessibility_check import ReportError, problems
from lib.reports import answers, lesson
from lib.reports import front_page as index
from lib.reports.front_page import describe_commit, front_page
from lib.reports.lesson import Lesson
from lib.scoreboard import claim, metrics, summary_figure
from lib.stats import Interval
from lib.stats.verdicts import (
    EQUIVALENT,
    FAILS,
    HOLDS,
    NOT_OPEN,
    UNDECIDED,
    UNTESTABLE,
    slug,
)

ALT = "A line that rises & then falls again"
CLAIMS = {
    "claims.total": 33,
    "claims.holds": 11,
    "claims.does_not_hold": 8,
    "claims.undecided": 7,
    "claims.untestable": 4,
    "claims.equivalent": 2,
    "claims.not_open": 1,
}
COUNTS_BY_PAPER = {
    "claims.corl.models.holds": 9,
    "claims.corl.models.does_not_hold": 2,
    "claims.corl.none.untestable": 16,
    "claims.po.scripted.untestable": 3,
    "claims.evidence.scripted.untestable": 3,
}
LOSSES = {"losses.corl": "CoRL is right more often.", "losses.arc": "Masks help.\nSo does SFT."}
KNOWN = {
    "known.synthetic.above": "CoRL, low budget (0.92)",
    "known.synthetic.below": "ARC (-0.37)",
    "known.synthetic.below_router": "ARC (-0.37 against 0.03)",
    "known.lab.not_open": "KO, students",
    "claims.evidence_level.synthetic.holds": 5,
    "claims.evidence_level.synthetic.not_open": 2,
}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Finishes a lesson by its name; keywords change its profile, finding and metrics."""
    monkeypatch.setattr(lesson, "_show", lambda markup, plain: None)

    def finish(name: str, profile: str = "laptop", finding: str | None = None, **metrics) -> None:
        made = Lesson(
            name,
            title=f"About <{name}>: more",
            profile=profile,
            parameters={"name": name},
            root=tmp_path,
        )
        made.figure(Figure(figsize=(1, 1)), "front", alt=ALT)
        made.metric("KO.reward", Interval(0.64321, 0.61, 0.66))
        made.metrics({"backend": "lab", "hidden": 7} | metrics)
        made.conclusion(finding or f"We found {name}.")
        made.save("front", ["KO.reward", "backend"])

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


def test_lessons_stand_in_their_order_on_a_page_that_loads_nothing_and_is_the_same_every_time(
    reports,
):
    page = front_page(reports, reports)
    assert re.findall(r'<h3[^>]*><a href="([^"]+)">', page) == [
        "01_first.html",
        "02_second.html",
        "10_last.html",
    ]
    assert problems(page) == [] and "<script" not in page and "://" not in page
    assert page == front_page(reports, reports) and page.count("<h1>") == 1


def test_each_lesson_shows_finding_figure_metrics_profile_and_parameters(reports):
    page = front_page(reports, reports)
    card = json.loads((reports / "lessons/02_second.json").read_text())
    part = page.split("<article")[2]
    assert "About &lt;02_second&gt;" in part and "We found 02_second." in part
    drawing = r'<img src="data:image/svg\+xml;base64,[^"]+" alt="A line that rises &amp; then falls'
    assert re.search(drawing, part)
    assert (
        "<code>KO.<wbr>reward</code>" in part
        and ">0.643 [0.610, 0.660]<" in part
        and ">lab<" in part
    )
    assert "hidden" not in part and "profile laptop" in part and card["parameters"] in part


def test_with_a_scoreboard_the_claims_stand_as_it_counted_them(reports, add):
    add("10_scoreboard", **CLAIMS)
    said = words(front_page(reports, reports))
    assert "33 claims of the papers" in said and "From lesson 10" in said
    assert "11 hold 8 do not hold 2 equivalent 7 undecided 1 not open 4 not testable" in said
    assert "What is now known" not in said


def test_what_is_known_stands_behind_what_this_is_level_by_level_and_whether_it_was_replicated(
    reports, add
):
    add("10_scoreboard", **CLAIMS, **KNOWN)
    said = words(front_page(reports, reports))
    synthetic = (
        "In the synthetic environment with a known optimum so small that it can be computed "
    )
    synthetic += "Beats the best single choice CoRL, low budget (0.92) "
    synthetic += "Loses to the best single choice ARC (-0.37) "
    synthetic += "Loses to a simple router ARC (-0.37 against 0.03) "
    synthetic += "Directions that papers claim: 5 hold, 2 not open."
    lab = "Among small models language models and policies that are trained here "
    lab += "Not open: too little to gain for any method KO, students"
    assert said.index("A small decision maker") < said.index(synthetic) < said.index(lab)
    assert said.index(lab) < said.index("What was done")
    assert "On recorded outcomes" not in said and "Not replicated yet" in said
    told = {
        "pairs": 2000,
        "lessons": 11,
        "profile": "laptop",
        "verdicts": 90,
        "changed": 3,
        "contradictions": 0,
    }
    shares = {"coverage": 0.951, "disjoint": 0.004, "captured": 0.85}
    told |= shares | {f"{key}_expected": value for key, value in shares.items()}
    (reports / "metrics/replication.json").write_text(json.dumps(told))
    said = words(front_page(reports, reports))
    assert (
        "0.951 of 2,000 differences" in said
        and "Of 90 verdicts 0 turned round and 3 changed" in said
    )


def test_the_counts_of_the_committed_scoreboard_add_up_with_the_magnitudes_that_get_no_verdict():
    counts = json.loads((ROOT / "reports/metrics/10_scoreboard.json").read_text())
    claims = index.count_claims(counts)
    num_judged = sum(count for _, _, count in claims["verdicts"])
    num_magnitudes = counts["claims.compared"]
    assert num_judged + num_magnitudes == claims["total"]
    assert f"the other {num_magnitudes} are magnitudes" in "; ".join(claims["notes"])


def test_the_finding_of_the_whole_bench_stands_at_the_top(reports, add):
    assert "Found:" not in words(front_page(reports, reports))
    shares = {}
    for level in summary_figure.PANELS:
        shares |= {f"shares.{level}.open": 3, f"shares.{level}.above": 2}
        shares |= {f"shares.{level}.with_router": 1, f"shares.{level}.above_router": 0}
    add("10_scoreboard", **CLAIMS, **KNOWN, **shares)
    said = words(front_page(reports, reports))
    finding = "Found: 6 of 9 methods and settings beat the best single choice, and 0 of 3 beat a simple router."
    assert said.index(finding) < said.index("What is now known")


def test_a_lesson_is_summarized_by_the_sentences_that_its_run_supports(reports, add, monkeypatch):
    true, false = "Choosing gains {gain:difference}.", "Choosing loses {gain:difference}."
    sentences = (
        answers.AnswerSentence(text=false, requires=("exact({gain}) < 0",)),
        answers.AnswerSentence(text=true, requires=("exact({gain}) > 0",)),
        answers.AnswerSentence(text=true, requires=("exact({gain}) > 1",)),
    )
    monkeypatch.setattr(answers, "load_answers", lambda: {"03_known": sentences})
    add("03_known", gain=0.25)
    said = words(front_page(reports, reports))
    assert said.count("Choosing gains +0.25.") == 2  # among the findings, and on the card
    assert "Choosing loses" not in said and "We found 03_known." not in said
    add("03_known", profile="smoke", gain=0.25)
    assert "Choosing gains" not in front_page(reports, reports)


def test_an_appendix_has_a_card_and_is_not_among_the_findings(reports, add):
    add("02a_more")
    page = words(front_page(reports, reports))
    assert page.count("We found 02a_more.") == 1
    assert "3 lessons and 1 appendix" in page


def test_claims_are_counted_by_paper_and_by_what_decides_them(reports, add):
    add("10_scoreboard", **CLAIMS)
    assert "decided by" not in front_page(reports, reports)
    add("10_scoreboard", **CLAIMS, **COUNTS_BY_PAPER)
    page = front_page(reports, reports)
    rows = re.findall(r'<tr><th scope="row">([^<]+)</th><td>([^<]+)</td>(.*)</tr>', page)
    counts = {(paper, by): re.findall(r">(\d+)<", cells) for paper, by, cells in rows}
    assert counts == {
        ("policy orchestration", "scripts in place of models"): list("000003"),
        ("CoRL", "trained models"): list("920000"),
        ("CoRL", "nothing here"): ["0", "0", "0", "0", "0", "16"],
    }
    assert "3 that scripts would decide" in words(page) and problems(page) == []


def test_every_loss_is_named_under_its_paper_before_the_lessons(reports, add):
    assert "do not hold here" not in front_page(reports, reports)
    add("10_scoreboard", **CLAIMS, **LOSSES)
    said = words(front_page(reports, reports))
    named = "CoRL CoRL is right more often. ARC Masks help. So does SFT."
    assert said.index("do not hold here") < said.index(named) < said.index("What was found")


def test_papers_and_deciders_are_those_of_the_scoreboard():
    assert index.PAPERS_OF_CLAIMS == claim.PAPERS
    assert list(index.DECIDERS) == list(claim.EVIDENCE_KINDS)
    words_of_shares = {
        key.partition(".")[2]
        for key in summary_figure.summarize_by_level(
            summary_figure.measure_shares_won(metrics.read_metrics())
        )
    }
    assert words_of_shares <= set(index.STANDING_LABELS)


def test_numbers_of_a_smoke_run_are_called_no_results_wherever_they_stand(reports, add):
    assert "not a result" not in front_page(reports, reports)
    add("03_small", profile="smoke")
    page = front_page(reports, reports)
    said = words(page)
    assert "Mixed profiles. Lessons 01, 02 and 10 ran at laptop. Lesson 03 ran at smoke." in said
    assert (
        "Not results." in said and page.count("not a result") == 2
    )  # among the findings, and on the card
    assert "make repro PROFILE=smoke" in said


def test_the_papers_are_those_of_the_readme():
    row = re.compile(r"^\| (\[`.*?) \|.*?\| ([^|]+?) \|", re.MULTILINE)
    paper_by_lesson = {}
    for links, paper in row.findall((ROOT / "README.md").read_text()):
        if paper not in ("-", "all") and "," not in paper:  # of one paper
            for lesson in re.findall(r"notebooks/(\w+)\.ipynb", links):
                paper_by_lesson[lesson] = paper
    assert paper_by_lesson == index.PAPERS


def test_without_git_the_commit_is_unknown(reports):
    assert describe_commit(reports) == "unknown" and "<code>unknown</code>" in front_page(
        reports, reports
    )


def test_the_commit_says_whether_tracked_files_differ_from_it(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "--quiet", "-m", "a")
    short = git(tmp_path, "rev-parse", "--short", "HEAD")
    (tmp_path / "untracked.txt").write_text("b")
    assert describe_commit(tmp_path) == short
    (tmp_path / "a.txt").write_text("changed")
    assert describe_commit(tmp_path) == f"{short} + changes"


def test_the_command_writes_the_page_beside_the_lessons_or_says_what_to_do(tmp_path, add, capsys):
    assert index.main(["--out", str(tmp_path / "index.html")]) == 1
    assert "make repro" in capsys.readouterr().err and not (tmp_path / "index.html").exists()
    add("10_last")
    assert index.main(["--out", str(tmp_path / "index.html")]) == 0
    assert "We found 10_last." in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda r: (r / "figures/02_second/front.png").unlink(), "02_second.json names the figure"),
        (lambda r: (r / "metrics/02_second.json").unlink(), "02_second.json cannot be read"),
        (
            lambda r: (r / "metrics/02_second.json").write_text("{}"),
            "02_second.json names the metrics",
        ),
        (lambda r: (r / "lessons/02_second.json").write_text("{"), "02_second.json cannot be read"),
        (
            lambda r: (r / "lessons/02_second.json").write_text('{"lesson": "a"}'),
            "02_second.json lacks",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_named(reports, spoil, message):
    spoil(reports)
    with pytest.raises(ReportError, match=message):
        front_page(reports, reports)


def test_every_verdict_has_its_colour_in_the_style_sheet():
    style = (pages.TEMPLATES / "style.css").read_text(encoding="utf-8")
    assert [key for key in index.VERDICTS if f".{key} {{ --tone:" not in style] == []
    words = (HOLDS, FAILS, EQUIVALENT, UNDECIDED, NOT_OPEN, UNTESTABLE)
    assert list(index.VERDICTS) == [slug(word) for word in words]
