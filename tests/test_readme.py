"""The README keeps its promises: it is short, its course adds up, its papers are those of CITATION.cff."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from lib.teaching import exercises

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 12_000  # bytes
SESSION = 90  # minutes


def section(heading: str) -> str:
    return re.split(
        r"^## ", README.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE
    )[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the table in a text, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_it_is_short_and_its_python_is_python():
    assert len(README.encode()) <= LONGEST
    blocks = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert blocks and all(compile(block, "README.md", "exec") for block in blocks)


def test_exercises_of_a_session_belong_to_its_lessons_and_take_at_most_half_of_it():
    known = {each.id: each.minutes for lesson in exercises.load().values() for each in lesson}
    sessions = rows(section("Teach with it"))
    assert [row[0][0] for row in sessions] == ["1", "2", "3", "4"]
    for row in sessions:
        ids = re.findall(r"\b\d\d\.\d\b", row[3])
        assert 25 <= sum(known[id] for id in ids) <= SESSION / 2, row[0]
        assert {id[:2] for id in ids} <= set(row[1].split(", ")) and len(set(ids)) == len(ids) > 2


def test_every_lesson_is_in_the_table_near_the_top():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    assert re.findall(r"\(notebooks/(\w+)\.ipynb\)", section("Lessons")) == names
    places = [
        README.index(part)
        for part in ("![", "make repro ", "make test ", "\n## Lessons", "\n## Plug in")
    ]
    assert places == sorted(places) and places[3] < 3_000


def test_every_make_target_that_is_named_exists():
    targets = set(
        re.findall(
            r"^([a-z0-9]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    named = set(re.findall(r"(?:^|`)make ([a-z0-9]+)", README, re.MULTILINE))
    assert {"repro", "test", "student", "slides", "solutions"} <= named <= targets


def test_every_file_that_is_linked_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_the_papers_are_those_of_the_citation_file():
    citation = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text, papers = section("How to cite"), rows(section("How to cite"))
    assert (
        citation["title"] in text
        and citation["version"] in text
        and citation["authors"][0]["name"] in text
    )
    assert len(papers) == len(citation["references"]) == 5
    for reference in citation["references"]:
        (row,) = [row for row in papers if reference["title"] in row[1]]
        authors = [author.get("family-names") or author["name"] for author in reference["authors"]]
        assert row[2] == ", ".join(authors) and int(row[3]) == reference["year"]
        for where in (
            reference["url"],
            *(each["value"] for each in reference.get("identifiers", [])),
        ):
            assert where in row[4], reference["title"]


def test_the_readme_speaks_of_no_machine_of_its_makers():
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", README)
