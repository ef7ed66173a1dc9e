"""What a class may have put into a notebook and no page can take is named before anything runs."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lib.reports.execute import strip_outputs
from lib.reports.execute.source_check import find_problems
from lib.teaching import exercises, solution_cells, student_copies

ROOT = Path(__file__).resolve().parents[3]
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder `notebooks` of a repository with a picture, beside a file that is none of its business."""
    notebooks = tmp_path / "repository/notebooks"
    notebooks.mkdir(parents=True)
    (notebooks.parent / "figures").mkdir()
    (notebooks.parent / "figures/a dot.gif").write_bytes(PIXEL)
    (notebooks.parent / "notes.txt").write_text("words")
    (notebooks.parent / ".env").write_text("KEY=secret")
    (tmp_path / "outside.png").write_bytes(PIXEL)
    (notebooks / "link.png").symlink_to(tmp_path / "outside.png")
    (notebooks / "secret.png").symlink_to(notebooks.parent / ".env")
    (notebooks / "large.png").write_bytes(PIXEL + bytes(6_000_000))
    return notebooks


def find(folder: Path, *cells) -> list[str]:
    return find_problems(new_notebook(cells=list(cells)), folder)


MARKDOWN = {
    "![A plot](https://example.org/a.png)": "'https://example.org/a.png' over the network",
    "![A plot](HTTP://example.org/a.png)": "over the network",
    "![A plot](//example.org/a.png)": "over the network",
    "![A plot](file:///etc/passwd)": "over the network",
    "<img alt='a' src='https://example.org/a.png'>": "over the network; put it into the page",
    "<script src='https://example.org/a.js'></script>": "loads a script",
    "<iframe title='a' src='https://example.org'></iframe>": "over the network",
    "![](../figures/a%20dot.gif)": "no alt text",
    "![A plot](/etc/passwd)": "absolute path; copy it into the repository",
    "![A plot](../../outside.png)": "'../../outside.png' lies outside the repository",
    "![A plot](%2e%2e/%2e%2e/outside.png)": "lies outside the repository",
    "![A plot](link.png)": "'link.png' lies outside the repository",
    "![A plot](../.env)": "hidden folder or file",
    "![A plot](secret.png)": "hidden folder or file",
    "![A plot](../notes.txt)": "'../notes.txt' is no image by its name",
    "![A plot](missing.png)": "'missing.png' is no file",
    "![A plot](large.png)": "'large.png' has 6.0 MB; make it smaller",
    "![A plot](attachment:gone.png)": "beside the page",
    "$\\foo{x}$": "\\foo",
}


@pytest.mark.parametrize(("source", "complaint"), MARKDOWN.items())
def test_markdown_that_no_page_can_take_is_named_with_its_cell(folder, source, complaint):
    problem = find(folder, new_markdown_cell("# Title"), new_markdown_cell(source))[0]
    assert problem.startswith(f"cell 2 ({source[:60]!r}): ") and complaint in problem
    assert "\n" not in problem


CODE = {
    "x = (1,": "not Python in line 1",
    "x = 1\n  y = 2": "not Python in line 2",
    "%%html\n<img alt='a' src='https://example.org/a.png'>": "over the network",
    'HTML(\'<img alt="a" src="https://example.org/a.png">\')': "over the network",
    'HTML(f\'<img alt="a" src="https://example.org/{name}">\')': "over the network",
    "HTML('<img src=\"data:image/png;base64,AA\">')": "no alt text",
    "display.HTML(data='<script src=\"https://example.org/a.js\"></script>')": "loads a script",
    "Image('https://example.org/a.png')": "Image('https://example.org/a.png') loads over",
    "Image(url='https://example.org/a.png')": "save the file in the repository",
    "IFrame('https://example.org', 300, 300)": "loads over the network",
    "YouTubeVideo('abc')": "write a link in Markdown instead",
}


@pytest.mark.parametrize(("source", "complaint"), CODE.items())
def test_code_that_would_end_the_run_or_the_page_is_named_with_its_cell(folder, source, complaint):
    problem = find(folder, new_code_cell(source))[0]
    assert problem.startswith("cell 1 (") and complaint in problem and "\n" not in problem


@pytest.mark.parametrize(
    "source",
    [
        "!ls\n%timeit 1\nawait something()",
        "%%bash\necho )",
        "plt.plot(x); plt.show()",
        "HTML(f'<img src=\"{uri}\" {alt}><svg {attributes}></svg>')",
        "requests = 'https://example.org'",
        "Image('figures/a.png')",
    ],
)
def test_code_that_may_be_right_is_left_to_run(folder, source):
    assert find(folder, new_code_cell(source)) == []


def test_markdown_with_files_of_the_repository_and_links_is_fine(folder):
    source = "![A dot](../figures/a%20dot.gif) [a link](https://example.org) ![A](data:image/gif;base64,AA)"
    assert find(folder, new_markdown_cell(source)) == []


def test_tags_are_those_that_mean_something(folder):
    typing_error = new_code_cell("a = 1", metadata={"tags": ["paramters"]})
    misplaced = new_markdown_cell("a", metadata={"tags": ["parameters"]})
    first, second = find(folder, typing_error, misplaced)
    assert "unknown tag 'paramters'" in first and "parameters, quiz, raises-exception" in first
    assert "is on a markdown cell; move it to the code cell" in second


def test_a_cell_that_may_fail_may_be_anything(folder):
    cell = new_code_cell("def f(:", metadata={"tags": [student_copies.MAY_FAIL_TAG]})
    assert find(folder, cell) == []


def test_all_cells_at_fault_are_named_at_once(folder):
    problems = find(folder, *map(new_markdown_cell, MARKDOWN), *map(new_code_cell, CODE))
    cells_at_fault = {int(problem.split()[1]) for problem in problems}
    assert cells_at_fault == set(range(1, len(MARKDOWN) + len(CODE) + 1))


def test_the_tags_of_student_copies_and_exercises_are_known(folder):
    tags = [
        exercises.TAG,
        solution_cells.TAG,
        solution_cells.STUB_TAG,
        student_copies.NOTES_TAG,
        student_copies.MAY_FAIL_TAG,
        "hide",
    ]
    assert find(folder, new_markdown_cell("a", metadata={"tags": tags})) == []


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_no_lesson_of_the_project_is_refused(path):
    notebook = strip_outputs.clean(nbformat.read(path, as_version=4))
    assert find_problems(notebook, path.parent) == []
