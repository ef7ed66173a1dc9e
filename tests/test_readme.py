"""The README keeps its promises: it is short, its numbers are those of the metrics, its course adds up."""

import json
import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.reports import readme
from lib.scoreboard import summary_figure
from lib.teaching import course

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 12_000  # bytes


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


def test_its_sessions_are_those_of_the_course():
    lines = section("Teach with it").splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == course.readme_rows()
    homework = [session.homework.lesson for session in course.SESSIONS if session.homework]
    assert f"homework: lessons {', '.join(homework)}." in section("Teach with it")


def test_every_lesson_is_in_the_table_near_the_top():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    assert re.findall(r"\(notebooks/(\w+)\.ipynb\)", section("Lessons")) == names
    parts = (
        "<!-- results -->", "![", "\n## Limits", "make repro ", "make test ", "\n## Lessons", "\n## Your own models",
        "\n## Use a cluster",
    )  # fmt: skip
    places = [README.index(part) for part in parts]
    assert places == sorted(places) and README.index("\n## Lessons") < 4_000


def test_its_numbers_are_those_of_the_committed_metrics():
    assert readme.fill_readme(README) == README, "run `python -m lib readme`"


def test_another_metric_is_another_number(tmp_path):
    folder = tmp_path / "metrics"
    shutil.copytree(ROOT / "reports/metrics", folder)
    routing = folder / "05_budgeted_routing.json"
    metrics = json.loads(routing.read_text())
    metrics["synthetic.low.minus_best_without_query"] = -metrics["synthetic.low.headroom"]
    routing.write_text(json.dumps(metrics))
    replication = json.loads((folder / "replication.json").read_text()) | {"pairs": 9}
    (folder / "replication.json").write_text(json.dumps(replication))
    filled = readme.fill_readme(README, folder)
    assert "low budget (-1.00)" in filled and "of 9 differences" in filled


def test_the_command_fills_what_is_marked_and_a_missing_mark_is_an_error(tmp_path):
    copy = tmp_path / "README.md"
    empty = re.sub(r"(<!-- (\w+) -->).*?(<!-- /\2 -->)", r"\1\3", README, flags=re.DOTALL)
    assert len(empty) < len(README) - 500
    copy.write_text(empty, encoding="utf-8")
    assert readme.main(["--readme", str(copy)]) == 0
    assert copy.read_text(encoding="utf-8") == README
    with pytest.raises(ValueError, match="one part between <!-- finding -->"):
        readme.fill_readme("no marks")


def test_every_method_of_the_figure_has_a_row_with_its_losses():
    (head, _, *lines) = readme.tabulate_results(
        summary_figure.measure_shares_won(readme.read_metrics())
    ).splitlines()
    assert head.count("|") == 6 and all(line.count("|") == 6 for line in lines)
    in_rows = [method for methods in readme.METHODS.values() for method in methods]
    in_figure = {row.method for row in summary_figure.DECISION_MAKERS} - {summary_figure.CASCADE}
    assert set(in_rows) == in_figure and len(lines) == len(readme.METHODS) == 5


def test_the_finding_counts_the_rows_of_all_levels_and_no_cascade():
    shares_won = summary_figure.measure_shares_won(readme.read_metrics())
    rows = [s for s in shares_won if s.decision_maker.method != summary_figure.CASCADE]
    num_open = sum(s.sign is not None for s in rows)
    num_above = sum(s.sign == 1 for s in rows)
    signs = [s.sign_against_router for s in rows if s.sign_against_router is not None]
    finding = summary_figure.state_finding(summary_figure.count_by_level(shares_won))
    assert finding == (
        f"{num_above} of {num_open} methods and settings beat the best single choice, and "
        f"{signs.count(1)} of {len(signs)} beat a simple router."
    )
    assert finding in README


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
