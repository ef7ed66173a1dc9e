"""Pages as a reader meets them: a browser opens the front page and a lesson, light and dark, wide and narrow.

Slow, because a browser starts and walks through every page by keyboard; it alone sees the style sheet at work.
"""

import base64
import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib.figure import Figure

from lib import plots
from lib.plots.tables import table_html
from lib.reports import front_page, html, lesson
from lib.reports.lesson import Lesson
from lib.reports.lesson_figures import spoken
from lib.stats import Interval
from tests.reports.browser import open_browser_or_skip

PHONE, DESKTOP = 390, 1100
ALT = "A line that rises from nothing to one"
FINDING = "It is right in 0.93 [0.89, 0.97] of all cases, which is clearly more than chance; "


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser_or_skip(tmp_path_factory.mktemp("browser")) as running:
        yield running


def line() -> Figure:
    figure = Figure(figsize=(7, 4))
    figure.subplots().plot([0, 1], [0, 1])
    return figure


@pytest.fixture(scope="module")
def front(tmp_path_factory) -> str:
    """The front page of lessons that show everything it can show: a scoreboard, stand-ins, two profiles."""
    root = tmp_path_factory.mktemp("reports")
    claims = {"total": 30, "holds": 11, "does_not_hold": 8, "undecided": 7, "untestable": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson, "_show", lambda markup, plain: None)
        for name in ("00_tour", "02_orchestration", "07_agent_configuration", "10_scoreboard"):
            made = Lesson(
                name,
                f"Lesson {name}: what it is about",
                "smoke" if name < "01" else "laptop",
                {},
                root,
            )
            made.figure(line(), "front", alt=ALT)
            made.metric(
                "education.RO.scripted-large.dollars_per_question",
                Interval(4.8e-05, 3.5e-05, 6.9e-05),
            )
            made.metrics({f"claims.{key}": value for key, value in claims.items()})
            made.metrics(
                {
                    "education.RO.scripted-large.backend": "scripted"
                    if name == "02_orchestration"
                    else "lab"
                }
            )
            made.conclusion(FINDING * 4)
            made.save("front", ["education.RO.scripted-large.dollars_per_question", "claims.total"])
    return front_page.front_page(root, root)


def draw_share(share: float, label: str) -> Figure:
    figure = Figure(figsize=(4, 2))
    figure.subplots().barh(["share", label], [share, 1 - share])
    figure.alt_text = f"The share is {share:g}"
    return figure


@pytest.fixture(scope="module")
def slider(tmp_path_factory) -> str:
    """A slider with two knobs, as a lesson shows it."""
    shown_markup = []
    root = tmp_path_factory.mktemp("slider")
    knobs = {"share": [0.1, 0.2, 0.5], "label": ["a", "b"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson, "_show", lambda markup, plain: shown_markup.append(markup))
        Lesson("01_lesson", "A lesson", "smoke", {}, root).slider(draw_share, knobs, "shares")
    return shown_markup[0]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """The folder of a lesson with two neighbours and an appendix."""
    folder = tmp_path_factory.mktemp("notebooks")
    for name in ("00_tour", "01_lesson", "01a_more", "02_end"):
        cells = [nbformat.v4.new_markdown_cell(f"# The lesson called {name}: a title")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")
    return folder


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> str:
    """A page with an answer at its top: that of lesson 00, because answers are written by lesson."""
    root = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson, "_show", lambda markup, plain: None)
        finished = Lesson("00_tour", "The tour", "smoke", {}, root)
        finished.figure(line(), "front", alt=ALT)
        finished.metric("front.strategies", 39)
        finished.conclusion(FINDING)
        finished.save("front", ["front.strategies"])
    cells = [nbformat.v4.new_markdown_cell("# The tour\n\n## A section\n\nWords.")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    return html.page(notebook, name="00_tour", reports=root)


@pytest.fixture(scope="module")
def report(slider, notebooks) -> str:
    """A lesson with everything that could be too wide, too faint or out of reach."""
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell

    def shows(markup: str):
        return nbformat.v4.new_output("display_data", {"text/html": markup})

    def says(name: str):
        return nbformat.v4.new_output("stream", name=name, text="b" * 300)

    # Nothing in the table, the code or the streams can break into lines.
    wide = pd.DataFrame(
        {f"a_column_that_cannot_break_{place}": np.arange(3.0) for place in range(12)}
    )
    parts = [spoken.render_segment("lab-large", "<response> 2", own) for own in ("CoRL", "")]
    picture = {"image/png": base64.b64encode(plots.render_png(line())).decode()}
    drawn = nbformat.v4.new_output("display_data", picture, metadata={"image/png": {"alt": ALT}})
    cells = [
        text(
            "# A lesson\n\nWords, [a link](https://example.org), `code` and $x^2$.\n\n> A quotation."
        ),
        text("## Results\n\n$$ " + " + ".join(["\\frac{a}{b}"] * 60) + " $$"),
        code(
            "x = '" + "a" * 300 + "'  # a comment",
            outputs=[shows(table_html(wide, "A caption. " * 12))],
        ),
        code(
            "draw()",
            outputs=[drawn, shows(spoken.join_episodes("Who said what", [("A", parts, "")])[0])],
        ),
        code("say()", outputs=[says("stdout"), says("stderr")]),
        code("hidden()", metadata={"tags": ["hide"]}),
        code("slide()", outputs=[shows(slider)]),
        text("A sentence with $" + " + ".join(["\\frac{a}{b}"] * 30) + "$ in it."),
    ]
    # The folder of the notebooks gives the page its neighbours.
    return html.page(nbformat.v4.new_notebook(cells=cells), notebooks, "01_lesson")


@pytest.fixture
def look(browser, tmp_path):
    """Looks at the markup of a page."""

    def at(markup: str, width: int = DESKTOP, scheme: str = "light"):
        (tmp_path / "page.html").write_text(markup, encoding="utf-8")
        return browser.look(tmp_path / "page.html", width, scheme)

    return at


@pytest.mark.parametrize(
    "width, scheme",
    [(360, "light"), (PHONE, "light"), (PHONE, "dark"), (DESKTOP, "light"), (DESKTOP, "dark")],
)
@pytest.mark.parametrize("which", ["front", "report", "answer"])
def test_a_page_can_be_read_and_used_and_asks_for_nothing(which, width, scheme, look, request):
    seen = look(request.getfixturevalue(which), width, scheme)
    assert seen.faults() == []
    assert seen.ground() > 240 if scheme == "light" else seen.ground() < 40


PLANTED = [
    ('<img src="http://example.com/x.png" alt="a">', "it asks for http://example.com/x.png"),
    (
        "<script>fetch('https://example.com/y').catch(() => 0)</script>",
        "it asks for https://example.com",
    ),
    ('<img src="beside.png" alt="a">', "it asks for file://"),
    ("<script>console.error('broken')</script>", "the console says"),
    ("<script>throw new Error('broken')</script>", "the console says"),
    ('<div style="width:2000px">wide</div>', "pixels wide in a window of 390"),
    ('<a href="#content" tabindex="-1">unreachable</a>', "Tab does not reach <a> unreachable"),
    ('<a href="#content" style="outline:none">hidden</a>', "the focus does not show on <a> hidden"),
    ('<a href="#content" tabindex="1">early</a>', "Tab does not follow"),
    ('<p style="color:#999">faint</p>', "contrast 2.8 in faint"),
    ("<h6>deep</h6>", "its headings leave out a level"),
]


@pytest.mark.parametrize("markup, complaint", PLANTED)
def test_the_browser_sees_what_is_wrong(markup, complaint, front, look):
    page = front.replace("</main>", f"{markup}</main>")
    assert any(complaint in fault for fault in look(page, PHONE).faults())


def test_the_browser_sees_that_a_page_is_blank(front, look):
    assert "it is blank" in look(front.split("<body>")[0] + "<body></body></html>", PHONE).faults()


def test_a_page_without_a_dark_side_is_noticed(front, look):
    assert look(front.replace("prefers-color-scheme: dark", "print"), PHONE, "dark").ground() > 240


def test_the_front_page_shows_no_white_figure_on_a_dark_page(front, browser, tmp_path):
    path = tmp_path / "page.html"
    image = base64.b64encode(plots.render_png(line())).decode()
    with_images = re.sub(r"data:image/svg[^\"]+", f"data:image/png;base64,{image}", front)
    shares = []
    for page in (front, with_images):
        path.write_text(page, encoding="utf-8")
        picture = browser.look(path, PHONE, "dark", height=4000).picture
        shares.append((picture.min(axis=-1) > 250).mean())
    with_drawings, with_white_images = shares
    assert with_drawings < 0.01 and with_white_images > 0.1


def test_a_slider_moves_by_the_keyboard_and_changes_the_picture(report, browser, tmp_path):
    (tmp_path / "page.html").write_text(report, encoding="utf-8")
    moments = browser.move(tmp_path / "page.html", ".slider :checked", ["ArrowRight", "ArrowRight"])
    assert [moment.checked for moment in moments] == [["0.1", "a"], ["0.2", "a"], ["0.5", "a"]]
    shares = ["The share is 0.1", "The share is 0.2", "The share is 0.5"]
    assert [moment.visible[0].split(": ")[1] for moment in moments] == shares
    assert all(len(moment.visible) == 1 for moment in moments)
    # The buttons alone are a thousandth of the window.
    first, last = moments[0].picture.astype(int), moments[-1].picture.astype(int)
    assert (np.abs(first - last).max(axis=-1) > 30).mean() > 0.01


def test_the_second_knob_keeps_the_first_where_it_is(report, browser, tmp_path):
    (tmp_path / "page.html").write_text(report, encoding="utf-8")
    # The second row of buttons.
    second_knob = ".slider fieldset:nth-of-type(2) :checked"
    before, after = browser.move(tmp_path / "page.html", second_knob, ["ArrowRight"])
    assert before.checked == ["0.1", "a"] and after.checked == ["0.1", "b"]
    assert after.visible != before.visible and "label b" in after.visible[0]


def test_every_link_of_a_page_leads_to_a_page(notebooks, tmp_path):
    # Links to the web are followed by a reader; those between pages must work from a folder.
    names = [path.stem for path in notebooks.glob("*.ipynb")]
    for name in ["index", "glossary", *names]:
        (tmp_path / f"{name}.html").touch()
    for name in names:
        notebook = nbformat.read(notebooks / f"{name}.ipynb", as_version=4)
        page = BeautifulSoup(html.page(notebook, notebooks, name), "html.parser")
        links = [link["href"] for link in page.select("a[href]:not([href^='#'])")]
        assert len(links) >= 4 and all((tmp_path / link).is_file() for link in links)
