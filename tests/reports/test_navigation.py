"""Pages lead on: order from the names, titles from the notebooks, appendices beside their lesson."""

import nbformat
import pytest
from bs4 import BeautifulSoup

from lib.config import ROOT
from lib.reports import html, navigation


@pytest.fixture
def notebooks(tmp_path):
    """Lessons 00 to 02 and an appendix of 01, and a notebook without a number."""
    titles = {
        "02_end": "# The end: of $k$",
        "00_tour": "# The tour: one decision",
        "01_zoo": "Words first.\n\n# The zoo & more",
        "01a_zoo_tables": "# Tables of the zoo",
        "scratch": "# Nothing",
    }
    for name, source in titles.items():
        # A comment in code looks like a heading and is none.
        cells = [nbformat.v4.new_code_cell("# no title"), nbformat.v4.new_markdown_cell(source)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    return tmp_path


def find_links(name: str, notebooks) -> dict[str, str]:
    """The links at the head of a page, text by address; those at its foot must be the same."""
    page = html.page(nbformat.read(notebooks / f"{name}.ipynb", 4), notebooks, name)
    # Both ends of a page lead to the same places.
    head, foot = BeautifulSoup(page, "html.parser").select("nav.neighbours")
    assert str(head.find_all("a")) == str(foot.find_all("a"))
    return {link["href"]: " ".join(link.get_text(" ").split()) for link in head.find_all("a")}


def test_lessons_are_read_in_the_order_of_their_numbers(notebooks):
    assert navigation.list_lessons(notebooks) == ["00_tour", "01_zoo", "01a_zoo_tables", "02_end"]


def test_a_lesson_leads_to_its_neighbours_and_its_appendix(notebooks):
    assert find_links("01_zoo", notebooks) == {
        "00_tour.html": "Previous 00 The tour",
        "index.html": "All lessons Front page",
        "01a_zoo_tables.html": "Appendix 01a Tables of the zoo",
        "02_end.html": "Next 02 The end",
    }


def test_an_appendix_leads_back_to_its_lesson_and_nothing_leads_on_to_it(notebooks):
    links = find_links("01a_zoo_tables", notebooks)
    assert links["01_zoo.html"] == "Its lesson 01 The zoo & more"
    assert list(links)[-1] == "02_end.html"
    assert "01a_zoo_tables.html" not in find_links("02_end", notebooks)


def test_the_first_and_the_last_page_have_one_neighbour(notebooks):
    assert list(find_links("00_tour", notebooks)) == ["index.html", "01_zoo.html"]
    assert list(find_links("02_end", notebooks)) == ["01_zoo.html", "index.html"]


def test_a_notebook_that_is_no_lesson_leads_to_the_front_page_only(notebooks):
    assert list(find_links("scratch", notebooks)) == ["index.html"]


def test_every_lesson_of_the_project_has_a_title():
    names = navigation.list_lessons(ROOT / "notebooks")
    assert len(names) >= 12
    for name in names:
        link = navigation.make_link(name, ROOT / "notebooks")
        assert link.title != name and len(link.title) < 60
