"""The glossary: every term is explained in a few words and used where it says."""

import json
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from ruamel.yaml import YAML

from lib.plots.accessibility_check import problems
from lib.teaching import glossary

ROOT = Path(__file__).resolve().parents[2]
TERMS = glossary.read()
NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
STAGES = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def prose_and_code(name: str) -> str:
    cells = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def modules(name: str) -> str:
    """The rooms of the lesson's own, which speak in its figures and tables."""
    rooms = [
        ROOT / dep for dep in STAGES[name]["deps"] if dep.startswith("lib/") and "run" not in dep
    ]
    files = [
        file
        for room in rooms
        for file in ([room] if room.is_file() else sorted(room.rglob("*.py")))
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.slug)
def test_every_lesson_that_is_named_exists_and_uses_the_term(term):
    for name in term.lessons:
        assert name in NAMES, f"there is no lesson {name}"
        wanted = [word.lower() for word in term.words or (term.term,)]
        said = prose_and_code(name).lower()
        if not any(word in said for word in wanted):  # then a figure or a table says it
            assert any(word in modules(name).lower() for word in wanted), f"{term.term} in {name}"


def test_the_page_loads_nothing_and_links_terms_to_lessons():
    page = glossary.render_page(TERMS)
    soup = BeautifulSoup(page, "html.parser")
    assert problems(page) == [] and "<script" not in page
    assert [each["id"] for each in soup.find_all("dt")] == [f"term-{term.slug}" for term in TERMS]
    links = {each["href"] for each in soup.select("dd a")}
    assert links <= {f"{name}.html" for name in NAMES} and len(links) >= 8


@pytest.mark.parametrize(
    "text, message",
    [
        ("- {term: a, means: b.}", "'a' needs term, means and lessons"),
        ("- {term: a, means: b., lessons: [00_tour], see: c}", "has .*'see'"),
        (
            "- {term: a, means: b., lessons: [00_tour]}\n- {term: A, means: b., lessons: [00_tour]}",
            "twice",
        ),
    ],
)
def test_an_entry_that_lacks_something_is_named(tmp_path, text, message):
    (tmp_path / "g.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        glossary.read(tmp_path / "g.yaml")


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.slug)
def test_a_term_is_explained_in_one_to_three_sentences(term):
    assert 30 < len(term.means) < 320 and term.means.endswith(".")
    assert len(re.findall(r"\.(?:\s|$)", term.means)) <= 3


def test_the_pages_of_lessons_link_to_the_glossary():
    template = (ROOT / "lib/reports/template/page/index.html.j2").read_text(encoding="utf-8")
    assert 'href="glossary.html"' in template
