"""Slides load nothing, begin where headings and figures say, and name the remedy where a lesson was not run."""

from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from lib.plots.accessibility_check import ReportError, problems
from lib.teaching import slides
from lib.teaching.exercises import TAG
from lib.teaching.quizzes import TAG as QUIZ_TAG

new = nbformat.v4
PICTURE = '<figure><img src="data:image/png;base64,AAAA" alt="A line that rises"></figure>'


def shown(source: str, html: str, **metadata) -> nbformat.NotebookNode:
    output = new.new_output("display_data", data={"text/html": html, "text/plain": "?"})
    return new.new_code_cell(source, outputs=[output], metadata=metadata)


def lesson() -> nbformat.NotebookNode:
    notebook = new.new_notebook()
    notebook.cells = [
        new.new_markdown_cell("# The lesson\n\nWhat it is about."),
        new.new_code_cell("profile = None", metadata={"tags": ["parameters"]}),
        new.new_markdown_cell(
            "## First\n\n$x^2$ stands here.\n\n```sh\n# no heading\n```\n\n### Below\n\ntext"
        ),
        shown("draw()", PICTURE),
        new.new_markdown_cell("What follows a figure."),
        shown("table()", '<iframe src="timings/x.html" title="times"></iframe>'),
        shown("draw_again()", PICTURE),
        new.new_markdown_cell("**Quiz.** 2 + 2?", metadata={"tags": [QUIZ_TAG]}),
        new.new_code_cell("quiz(1, None)", metadata={"tags": [QUIZ_TAG]}),
        new.new_markdown_cell("## Exercises", metadata={"tags": [TAG]}),
        new.new_markdown_cell("**05.1** How many?", metadata={"tags": [TAG]}),
        new.new_code_cell(
            "answer = None",
            metadata={"tags": [TAG]},
            outputs=[new.new_output("stream", text="Not yet")],
        ),
    ]
    return notebook


@pytest.fixture
def root(tmp_path) -> Path:
    for name in ("05_one", "06_two"):
        (tmp_path / "notebooks").mkdir(exist_ok=True)
        nbformat.write(new.new_notebook(), tmp_path / "notebooks" / f"{name}.ipynb")
    (tmp_path / "reports/notebooks").mkdir(parents=True)
    nbformat.write(lesson(), tmp_path / "reports/notebooks/05_one.ipynb")
    return tmp_path


@pytest.fixture
def page(root) -> str:
    return slides.write("05_one", root).read_text(encoding="utf-8")


def test_every_heading_begins_a_slide_and_so_does_what_follows_a_figure(page):
    found = BeautifulSoup(page, "html.parser").select("section.slide")
    first = [each.find(["h1", "h2", "h3", "p"]).get_text().removesuffix("#") for each in found]
    assert first == ["The lesson", "First", "Below", "Below"]
    assert [len(each.find_all("img")) for each in found] == [0, 0, 1, 1]
    assert found[3].find(class_="continues") and not found[2].find(class_="continues")


def test_slides_leave_the_quiz_to_the_student_copies(page):
    assert "2 + 2?" not in page and "quiz(1, None)" not in page


def test_slides_load_nothing_and_are_the_same_every_time(page, root):
    assert problems(page) == [] and "<script src" not in page and "://" not in page
    assert (
        "scroll-snap-type: y mandatory" in page and "break-after: page" in page
    )  # one at a time, also in print
    assert slides.write("05_one", root).read_text(encoding="utf-8") == page


def test_a_picture_without_words_is_refused(root):
    bad = lesson()
    bad.cells[3] = shown("draw()", '<img src="data:image/png;base64,AAAA">')
    with pytest.raises(ReportError, match="cell 4"):
        slides.render(bad, "05_one", root)


@pytest.mark.parametrize(
    ("name", "said"),
    [("06_two", "make repro LESSON=06_two"), ("07_none", "'07_none'; there are 05_one, 06_two")],
)
def test_a_lesson_that_was_not_run_or_is_unknown_is_named_with_the_remedy(root, capsys, name, said):
    assert slides.main([name, "--root", str(root)]) == 1
    assert said in capsys.readouterr().err


def test_parameters_answers_and_wall_times_are_left_out_and_code_is_folded(page):
    for absent in ("profile = None", "answer = None", "Not yet", "<iframe"):
        assert absent not in page
    details = BeautifulSoup(page, "html.parser").find_all("details")
    assert len(details) == 3 and not any(each.has_attr("open") for each in details)


def test_without_a_name_what_was_run_is_rendered_and_the_rest_is_named(root, capsys):
    assert slides.main(["--root", str(root)]) == 0
    said = capsys.readouterr()
    assert "05_one.html" in said.out and "left out: 06_two" in said.err
    (root / "reports/notebooks/05_one.ipynb").unlink()
    assert slides.main(["--root", str(root)]) == 1


def test_no_lesson_has_more_slides_than_fit_into_20_minutes_and_figures_and_failures_stay():
    title, failures = (
        slides.Slide(body="<h1>T</h1>"),
        slides.Slide(body="<h2>What did not work</h2>"),
    )
    text = [slides.Slide(body=f"<h2>{number}</h2>") for number in range(30)]
    figure = slides.Slide("T", "<figure></figure>", full=True)
    table = slides.Slide("T", "<table></table>", full=True)
    kept = slides.select_slides([title, *text, table, figure, failures])
    assert len(kept) == slides.MOST_SLIDES <= 20
    assert kept[0] is title and kept[-2] is figure and kept[-1] is failures and table not in kept
    assert slides.MOST_SLIDES * slides.MINUTES_PER_SLIDE <= 20
