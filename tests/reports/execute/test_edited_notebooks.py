"""Notebooks as a class edits them, run from end to end: what the page and the terminal say then."""

import os

import nbformat
import psutil
import pytest

from lib.reports.execute import strip_outputs
from lib.reports.execute.dvc_stage import RunError
from lib.reports.execute.execute_lesson import run

from .test_execute_lesson import ROOT, outputs, project, start

MARK = "open({mark!r}, 'w').write('ran')"


def test_a_plain_plot_gets_a_generated_text_and_a_warning(tmp_path, capsys):
    source = (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('Reward')\n"
        "plt.xlabel('step')\nplt.show()"
    )
    photo = "from PIL import Image\nImage.new('RGB', (8, 8))"
    run("00_tiny", project(tmp_path, source, photo))
    page = (tmp_path / "reports/00_tiny.html").read_text()
    text = "Generated: line plot “Reward”; x axis: step."
    assert f'alt="{text}"' in page and f'<p class="note">{text} (No alt text was given.)' in page
    printed = capsys.readouterr().out
    assert "[00_tiny] cell 4 ('import matplotlib.pyplot as plt'): a picture has no alt" in printed
    assert "[00_tiny] cell 5 ('from PIL import Image'): a picture has no alt text" in printed
    assert printed.count(text) == 1 and text in outputs(tmp_path).encode().decode("unicode_escape")


def test_what_no_page_can_take_is_refused_before_the_first_cell_runs(tmp_path):
    mark = tmp_path / "mark"
    root = project(tmp_path / "p", MARK.format(mark=str(mark)), "x = (1,")
    notebook = nbformat.read(root / "notebooks/00_tiny.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("![A plot](https://example.org/a.png)"))
    nbformat.write(notebook, root / "notebooks/00_tiny.ipynb")
    strip_outputs.clean_folder(root / "notebooks", root / "data/notebooks")
    with pytest.raises(RunError) as caught:
        run("00_tiny", root)
    lines = str(caught.value).splitlines()
    assert lines[0] == "00_tiny is refused before it runs:" and len(lines) == 3
    assert lines[1].startswith("  cell 4 ('x = (1,'): not Python in line 1")
    assert "'https://example.org/a.png' over the network; put it into the page" in lines[2]
    assert not mark.exists() and not (root / "reports").exists()


LOUD = """
import sys
print("first")
for n in range(50):
    print("x" * 1_000_000)
print("last")
"""
MANY = "from IPython.display import display\nfor n in range(10_000):\n    display({'shown': n})"
HUGE = """
import pandas as pd
pd.set_option("display.max_rows", None)
pd.DataFrame({"n": range(50_000)})
"""


def test_a_cell_that_prints_or_shows_without_end_leaves_its_head_and_its_tail(tmp_path):
    before = psutil.Process().memory_info().rss
    root = project(tmp_path, LOUD, MANY, HUGE, "'x' * 30_000_000", "print('through')")
    run("00_tiny", root)
    page = (root / "reports/00_tiny.html").read_text()
    assert len(page) < 1_000_000 and (root / "reports/notebooks/00_tiny.ipynb").stat().st_size < 1e6
    assert "[... 49,920,061 characters left out ...]" in page and "last" in page
    assert "[... 9,890 outputs left out ...]" in page and "'shown': 9999" in page
    assert "[... 49,941 rows left out ...]" in page and "<td>49999</td>" in page
    assert "through" in page
    assert psutil.Process().memory_info().rss - before < 1_000_000_000


def test_an_error_with_a_message_of_megabytes_is_shown_shortened(tmp_path):
    with pytest.raises(RunError) as caught:
        run("00_tiny", project(tmp_path, "raise ValueError('x' * 10_000_000)"))
    assert "ValueError: xxx" in str(caught.value) and len(str(caught.value)) < 200_000
    assert (tmp_path / "reports/failed/00_tiny.ipynb").stat().st_size < 1_000_000


HOMES = ("missing", "read-only", "none")


@pytest.mark.parametrize("home", HOMES)
def test_a_home_in_which_nothing_can_be_written_changes_no_byte(tmp_path, home, usual_report):
    environment = dict(os.environ)
    if home == "none":
        environment.pop("HOME", None)
    else:
        environment["HOME"] = str(tmp_path / home)
    if home == "read-only":
        # A file where the folder would be: nobody can write below it, root neither.
        (tmp_path / home).write_text("")
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        environment[name] = str(tmp_path / "read-only/folder")
    root = project(tmp_path / "p", DRAWS_AND_TELLS)
    runner = start(root, env=environment)
    printed, _ = runner.communicate(timeout=180)
    assert runner.returncode == 0, printed
    for name, content in usual_report.items():
        assert (root / name).read_bytes() == content, name


DRAWS_AND_TELLS = """
import logging, os
import matplotlib.pyplot as plt
logging.getLogger("matplotlib.font_manager").warning("Matplotlib is building the font cache; wait")
plt.plot([1, 2])
"""


@pytest.fixture(scope="module")
def usual_report(tmp_path_factory) -> dict[str, bytes]:
    """The notebook and the page of a lesson where the home folder is as usual."""
    root = project(tmp_path_factory.mktemp("usual") / "p", DRAWS_AND_TELLS)
    runner = start(root)
    printed, _ = runner.communicate(timeout=180)
    assert runner.returncode == 0, printed
    names = ("reports/notebooks/00_tiny.ipynb", "reports/00_tiny.html")
    return {name: (root / name).read_bytes() for name in names}


def test_a_style_of_a_readers_own_changes_no_figure(tmp_path, usual_report):
    style = tmp_path / "matplotlibrc"
    style.write_text("lines.linewidth: 9\n")
    root = project(tmp_path / "p", DRAWS_AND_TELLS)
    runner = start(root, env={**os.environ, "MATPLOTLIBRC": str(style)})
    runner.communicate(timeout=180)
    page = "reports/00_tiny.html"
    assert (root / page).read_bytes() == usual_report[page]


def test_the_project_itself_has_no_style_of_its_own():
    """Matplotlib would read it in every kernel, whatever the environment says."""
    assert not (ROOT / "matplotlibrc").exists()
