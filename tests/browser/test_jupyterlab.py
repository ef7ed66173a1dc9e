"""Lessons in JupyterLab as a student meets them: a browser runs all cells from the menu, then moves the sliders by key.

A lesson runs at `smoke` in a copy of the project. The tour stands for all; others are named in the environment, in the
order of the course where one reads what another trains:

    BROWSER_LESSONS="03_model_zoo 07_agent_configuration" python -m pytest tests/browser

Left out: what a lesson says, which other tests read.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.pipeline.checkout import Checkout, snapshot
from tests.reports.browser import Browser, open_browser_or_skip

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: make setup")

LESSONS = os.environ.get("BROWSER_LESSONS", "00_tour").split()
MAX_START_SECONDS = 120  # of the server, and of a notebook until it is open
MAX_RUN_SECONDS = 1200  # of the longest lesson on a busy machine; a cell that fails ends the wait
MAX_STOP_SECONDS = 60  # of the server with its kernels
MENU_SECONDS = 0.5  # until a menu is open, or what it starts has begun
SAVE_SECONDS = 1  # until a saved notebook lies on the disk
SCROLL_SECONDS = 0.2  # until JupyterLab has drawn the cells that came into view

# JavaScript that finds elements of JupyterLab.
STATUS = "document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status"
# Whether there is a kernel; without one JupyterLab asks for it as soon as a cell is to run.
HAS_KERNEL = (
    "!/No Kernel|^$/.test(document.querySelector('.jp-Toolbar-kernelName')?.textContent ?? '')"
)
# Whether a cell waits, `[*]`, or has run, `[1]`; a notebook of the checkout has neither.
STARTED = (
    r"[...document.querySelectorAll('.jp-InputPrompt')].some(e => /\[[*\d]+\]/.test(e.textContent))"
)
DIALOG = "document.querySelector('.jp-Dialog')?.textContent"  # a kernel that died, or one to choose
SAVE = "document.querySelector('[data-command=\"docmanager:save\"]')"
MENU_ENTRY = "[...document.querySelectorAll('{0}')].find(e => e.textContent == '{1}')"
SCROLL_TO_TOP = "document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0"
# One window further down; whether there was something left to scroll.
SCROLL = """(() => { const e = document.querySelector('.jp-WindowedPanel-outer'), before = e.scrollTop;
    e.scrollTop += 0.7 * e.clientHeight; return e.scrollTop > before; })()"""
KNOBS = "document.querySelectorAll('.jp-Notebook .slider fieldset.knobs')"
NUM_POSITIONS = f"{KNOBS}[%d].elements.length"
FOCUS = f"""(() => {{ const e = {KNOBS}[%d].querySelector(':checked');
    e.scrollIntoView({{block: 'center'}}); e.focus(); }})()"""
# The checked position of a knob, and the classes of the pictures of its slider that can be seen.
POSITION = f"""(() => {{ const e = {KNOBS}[%d];
    const frames = [...e.closest('.slider').querySelectorAll('.frames > div')];
    return [e.querySelector(':checked').parentElement.textContent,
        frames.filter(f => f.checkVisibility()).map(f => f.className)]; }})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with open_browser_or_skip(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="module")
def copy(browser, tmp_path_factory) -> Path:
    """A copy of the project, in which notebooks may be saved."""
    folder = tmp_path_factory.mktemp("lab") / "copy"
    snapshot(folder)
    return folder


@pytest.fixture
def address(copy, tmp_path) -> Iterator[Callable[[str], str]]:
    """A running JupyterLab: the address of a lesson's notebook.

    Its settings and its list of open notebooks lie in a folder of their own, not in the user's home.
    """
    token = secrets.token_hex(16)
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    variables = {name: tmp_path / name for name in folders}
    variables |= {"PYTHONPATH": copy, "PROFILE": "smoke"}
    flags = ["--no-browser", "--allow-root", "--ServerApp.port=0", "--LabApp.news_url=None"]
    command = ["jupyter", "lab", *flags, f"--IdentityProvider.token={token}"]
    # Ends the kernels and what they started, too, and even where these tests are killed.
    supervised = ["python", "-m", "lib.experiment.supervise", "--", *command]
    with (tmp_path / "server.log").open("w") as log:
        assignments = [f"{name}={value}" for name, value in variables.items()]
        server = Checkout(copy).start("env", *assignments, *supervised, stdout=log)
        try:
            runtime = variables["JUPYTER_RUNTIME_DIR"]
            url = wait_for("server", lambda: read_server_url(runtime), MAX_START_SECONDS)
            yield lambda lesson: f"{url}lab/tree/notebooks/{lesson}.ipynb?token={token}"
        finally:
            server.terminate()
            server.wait(MAX_STOP_SECONDS)


def read_server_url(runtime: Path) -> str | None:
    """Where the server listens, which it writes to a file once it does."""
    for path in runtime.glob("jpserver-*.json"):
        return f"http://127.0.0.1:{json.loads(path.read_text())['port']}/"
    return None


def wait_for(what: str, condition: Callable[[], Any], max_seconds: float) -> Any:
    """The first value of a condition that is true."""
    limit = time.monotonic() + max_seconds
    while time.monotonic() < limit:
        if value := condition():
            return value
        time.sleep(0.25)
    raise TimeoutError(f"no {what} within {max_seconds} s")


def run_all_cells(browser: Browser, session: str, path: Path) -> list[nbformat.NotebookNode]:
    """Runs a notebook from the menu and saves it; its code cells as they lie on the disk afterwards."""

    def start_from_menu() -> bool:
        """Whether cells run; a click before the notebook is ready does nothing, one on an open menu closes it."""
        if browser.evaluate(session, STARTED):
            return True
        for css_class, label in (("lm-MenuBar", "Run"), ("lm-Menu", "Run All Cells")):
            entry = MENU_ENTRY.format(f".{css_class}-itemLabel", label)
            if not browser.evaluate(session, f"{STATUS} == 'idle' && {HAS_KERNEL} && !!{entry}"):
                return False
            browser.click(session, entry)
            time.sleep(MENU_SECONDS)
        return False

    def save_after_last() -> list[nbformat.NotebookNode] | None:
        dialog = browser.evaluate(session, DIALOG)
        assert not dialog, f"JupyterLab says: {dialog}"
        if browser.evaluate(session, STATUS) != "idle":
            return None
        browser.click(session, SAVE)
        time.sleep(SAVE_SECONDS)
        cells = nbformat.read(path, as_version=4).cells
        code_cells = [cell for cell in cells if cell.cell_type == "code"]
        is_finished = code_cells[-1].execution_count or list_errors(code_cells)
        return code_cells if is_finished else None

    wait_for("running cell", start_from_menu, MAX_START_SECONDS)
    return wait_for("end of the last cell", save_after_last, MAX_RUN_SECONDS)


def list_errors(cells: list[nbformat.NotebookNode]) -> list[str]:
    """What cells raised, a line each."""
    outputs = [output for cell in cells for output in cell.outputs]
    return [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]


def count_knobs(cells: list[nbformat.NotebookNode]) -> int:
    """How many rows of buttons the saved outputs have."""
    outputs = [output for cell in cells for output in cell.outputs]
    markup = "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    return markup.count('<fieldset class="knobs">')


def scroll_to_slider(browser: Browser, session: str) -> int:
    """Looks for a slider from the top, because only what is in view is drawn; how many knobs it has."""
    browser.evaluate(session, SCROLL_TO_TOP)
    num_knobs = 0
    while not num_knobs and browser.evaluate(session, SCROLL):
        time.sleep(SCROLL_SECONDS)
        num_knobs = browser.evaluate(session, f"{KNOBS}.length")
    return num_knobs


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_in_jupyterlab_and_its_slider_moves_by_the_keyboard(
    lesson, browser, copy, address
):
    path = copy / f"notebooks/{lesson}.ipynb"
    with browser.open(address(lesson), 1300, "light", 1000) as session:
        cells = run_all_cells(browser, session, path)
        assert list_errors(cells) == []
        assert [cell.source for cell in cells if not cell.execution_count] == []

        num_knobs = count_knobs(cells)
        assert num_knobs or not any("lesson.slider(" in cell.source for cell in cells)
        if num_knobs:
            what = f"slider with {num_knobs} knobs"
            wait_for(
                what, lambda: scroll_to_slider(browser, session) == num_knobs, MAX_START_SECONDS
            )
        for knob in range(num_knobs):
            # At `smoke` some knobs have nowhere to move to.
            if browser.evaluate(session, NUM_POSITIONS % knob) == 1:
                continue
            browser.evaluate(session, FOCUS % knob)
            label, [picture] = browser.evaluate(session, POSITION % knob)
            browser.press(session, "ArrowRight")
            next_label, [next_picture] = browser.evaluate(session, POSITION % knob)
            assert next_label != label and next_picture != picture
