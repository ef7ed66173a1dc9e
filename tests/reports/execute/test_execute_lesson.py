"""The runner: what it refuses before a kernel starts, what it leaves behind, and how it dies."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lib.experiment import artifacts
from lib.reports.execute import dvc_stage, papermill_engine, strip_outputs
from lib.reports.execute.dvc_stage import RunError
from lib.reports.execute.execute_lesson import run
from lib.reports.execute.normalise_outputs import Scrubber, scrub
from lib.reports.execute.progress import Progress
from lib.reports.execute.rerun_reasons import explain_run

ROOT = Path(__file__).resolve().parents[3]
PARAMETERS = "profile = None  # which scale\nzoo = None  # how to train"
SETTINGS = {
    "profile": "smoke",
    "zoo": {"seeds": 2, "rate": 1e-4, "jobs": None, "fast": False},
    "tour": {"students": 60},
}


def project(
    root: Path, *sources: str, sections: str = "profile, zoo", parameters: str = PARAMETERS
) -> Path:
    """A pipeline with one lesson, `00_tiny`, whose code cells are `sources`; already cleaned."""
    cells = [
        new_markdown_cell("# A tiny lesson"),
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
    ]
    cells += [new_code_cell(source) for source in sources]
    (root / "notebooks").mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), root / "notebooks/00_tiny.ipynb")
    strip_outputs.clean_folder(root / "notebooks", root / "data/notebooks")
    artifacts.write_json(root / "data/settings.json", SETTINGS)
    outs = "[reports/notebooks/00_tiny.ipynb, reports/00_tiny.html]"
    params = f"[data/settings.json: [{sections}]]"
    artifacts.write_text(
        root / "dvc.yaml",
        "stages:\n  00_tiny:\n    cmd: python -m lib.reports.execute 00_tiny\n"
        f"    params: {params}\n    outs: {outs}\n",
    )
    return root


def outputs(root: Path) -> str:
    """The text of all outputs of the executed lesson."""
    nb = nbformat.read(root / "reports/notebooks/00_tiny.ipynb", as_version=4)
    return "\n".join(json.dumps(cell.outputs) for cell in nb.cells if cell.cell_type == "code")


def start(root: Path, **options) -> subprocess.Popen:
    """The runner as a process of its own."""
    command = [sys.executable, "-m", "lib.reports.execute", "00_tiny", "--root", str(root)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def wait_for(path: Path, seconds: float = 60.0) -> str:
    """The content of a file that a cell will write."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path.name} did not appear within {seconds} s")


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within `seconds`; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


# before a kernel starts


def another_stage(root: Path) -> None:
    with (root / "dvc.yaml").open("a") as file:
        file.write("  settings:\n    cmd: python -m lib.experiment.write_settings\n")


@pytest.mark.parametrize(
    ("spoil", "name", "message"),
    [
        (lambda root: None, "07_nowhere", r"no lesson '07_nowhere'.*00_tiny"),
        (another_stage, "settings", "no lesson 'settings'"),
        (
            lambda root: (root / "data/notebooks/00_tiny.ipynb").unlink(),
            "00_tiny",
            r"data/notebooks/00_tiny.ipynb is missing.*dvc repro clean",
        ),
        (
            lambda root: (root / "data/settings.json").write_text('{"profile": '),
            "00_tiny",
            r"settings.json is not valid JSON.*line 1",
        ),
        (
            lambda root: (root / "data/settings.json").write_text('{"profile": "smoke"}'),
            "00_tiny",
            r"declares zoo, which data/settings.json does not hold.*profile",
        ),
    ],
)
def test_what_cannot_be_run_is_named_with_its_remedy(tmp_path, spoil, name, message):
    spoil(project(tmp_path))
    with pytest.raises((RunError, ValueError), match=message):
        run(name, tmp_path)


@pytest.mark.parametrize(
    "sections, message",
    [
        ("profile, zoo, tour", r"tour: declared by the stage.*not assigned in the notebook"),
        ("profile", r"zoo: assigned in the notebook.*not declared by the stage"),
    ],
)
def test_stage_and_notebook_must_name_the_same_parameters(tmp_path, sections, message):
    with pytest.raises(RunError, match=message):
        run("00_tiny", project(tmp_path, sections=sections))


def test_annotated_parameters_count_what_they_call_does_not_and_without_their_cell_there_are_none():
    nb = new_notebook(
        cells=[
            new_code_cell("a: int = 1\nb = max(1, 2)\nprint(a)", metadata={"tags": ["parameters"]})
        ]
    )
    assert dvc_stage.assigned_names(nb) == ("a", "b")
    with pytest.raises(RunError, match="exactly one code cell tagged `parameters`, this one has 0"):
        dvc_stage.assigned_names(new_notebook(cells=[new_code_cell("a = 1")]))


# a run that ends well


@pytest.fixture(scope="module")
def twice(tmp_path_factory) -> tuple[Path, Path]:
    """The same lesson run in two places, with all that usually differs between two runs in it."""
    interleaved = "for i in range(3):\n    print(i, flush=True)\n    print('e', i, file=sys.stderr, flush=True)\n"
    sources = [
        "import os, sys, time, warnings\nfrom pathlib import Path\nfrom IPython.display import display, HTML",
        "print(repr(zoo), type(profile).__name__)",
        "print(object(), Path.cwd(), Path('data').resolve(), sys.executable)\nwarnings.warn('look here')",
        interleaved + "    time.sleep(0.1)",
        "display(HTML(f'<p>{Path.cwd() / \"reports\"}</p>'))",
        "hash('a'), os.environ['OMP_NUM_THREADS'], os.environ['BENCH_RUN']",
        "import ipywidgets\nipywidgets.IntSlider()",
        "import matplotlib.pyplot as plt\nassert 'inline' in plt.get_backend()",
    ]
    roots = []
    for name in ("one", "another-place"):
        root = project(tmp_path_factory.mktemp(name) / name, *sources)
        run("00_tiny", root)
        roots.append(root)
    return tuple(roots)


def test_two_runs_in_two_places_give_the_same_bytes(twice):
    for name in ("reports/notebooks/00_tiny.ipynb", "reports/00_tiny.html"):
        assert (twice[0] / name).read_bytes() == (twice[1] / name).read_bytes()


def test_parameters_arrive_typed_in_a_pinned_kernel_and_nothing_of_the_machine_or_of_chance_is_left(
    twice,
):
    text = outputs(twice[0])
    assert (
        "{'fast': False, 'jobs': None, 'rate': 0.0001, 'seeds': 2} str" in text
        and "'1', '1')" in text
    )
    assert (
        str(twice[0]) not in text and sys.prefix not in text and str(Path.home()) + "/" not in text
    )
    assert "object at 0x..." in text and "<cell>:2: UserWarning: look here" in text
    assert "widget-view" not in text and "<p>reports</p>" in text
    assert (
        '"text": "0\\n1\\n2\\n"' in text and '"text": "e 0\\ne 1\\ne 2\\n"' in text
    )  # arrived interleaved


def test_wall_times_go_beside_and_nothing_else_is_left(twice):
    times = artifacts.read_json(twice[0] / "reports/timings/00_tiny.json")["smoke"]
    assert times["total"] > 0 and len(times["cells"]) == 10
    made = {
        str(path.relative_to(twice[0]))
        for path in (twice[0] / "reports").rglob("*")
        if path.is_file()
    }
    assert made == {
        "reports/notebooks/00_tiny.ipynb",
        "reports/00_tiny.html",
        "reports/timings/00_tiny.json",
    }


def drawn(root: Path) -> dict[str, bytes]:
    """The pages, figures and metrics there are."""
    found = (path for path in (root / "reports").rglob("*") if path.is_file())
    shown = {path.relative_to(root / "reports").as_posix(): path.read_bytes() for path in found}
    return {
        name: content
        for name, content in shown.items()
        if not name.startswith(("failed", "timings"))
    }


DRAWS = """
import os
from pathlib import Path
place = Path(os.environ["BENCH_REPORTS"], "figures/00_tiny")
place.mkdir(parents=True)
(place / {name!r}).write_text("drawn")
"""


def redrawn(root: Path, *sources: str) -> Path:
    """A project whose lesson made a report, and now has other cells."""
    with project(root, DRAWS.format(name="old.png")).joinpath("dvc.yaml").open("a") as file:
        file.write("    metrics: [reports/figures/00_tiny, data/kept]\n")
    artifacts.write_text(root / "data/kept/checkpoint", "kept")
    run("00_tiny", root)
    notebook = nbformat.read(root / "data/notebooks/00_tiny.ipynb", as_version=4)
    notebook.cells[2:] = [
        new_code_cell(source, id=f"new-{place}") for place, source in enumerate(sources)
    ]
    nbformat.write(notebook, root / "data/notebooks/00_tiny.ipynb")
    assert "figures/00_tiny/old.png" in drawn(root)
    return root


def test_no_figure_of_an_earlier_run_outlives_one_that_ended_well(tmp_path):
    root = redrawn(tmp_path, DRAWS.format(name="new.png"))
    before = drawn(root)
    run("00_tiny", root)
    assert drawn(root).keys() == before.keys() - {"figures/00_tiny/old.png"} | {
        "figures/00_tiny/new.png"
    }
    assert (
        drawn(root)["00_tiny.html"] != before["00_tiny.html"]
        and (root / "data/kept/checkpoint").exists()
    )
    assert list((root / "reports/failed").iterdir()) == []


@pytest.mark.parametrize(
    "source", ["1 / 0", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_run_that_fails_leaves_the_last_report_as_it_was(tmp_path, source):
    root = redrawn(tmp_path, DRAWS.format(name="new.png"), source)
    before = drawn(root)
    with pytest.raises(RunError):
        run("00_tiny", root)
    assert drawn(root) == before and (root / "data/kept/checkpoint").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_the_last_report_as_it_was(tmp_path, number):
    mark = tmp_path / "pids"
    root = redrawn(tmp_path / "p", DRAWS.format(name="new.png"), SLEEPER.format(mark=str(mark)))
    before, runner = drawn(root), start(root)
    pids = wait_for(mark).split()
    runner.send_signal(number)
    runner.wait(timeout=120)
    assert drawn(root) == before and gone(int(pids[0]))
    if number == signal.SIGKILL:
        psutil.Process(int(pids[1])).kill()


def test_a_run_that_finds_no_room_says_so_and_leaves_the_last_report_as_it_was(tmp_path):
    """No file may grow beyond 8 kB, as on a full disk: the lesson's cells run, its page cannot be written."""
    root = redrawn(tmp_path, DRAWS.format(name="new.png"))
    before = drawn(root)
    runner = start(
        root, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192))
    )
    output, _ = runner.communicate(timeout=120)
    assert (
        runner.returncode == 1
        and "error: 00_tiny: " in output
        and "the last report is as it was" in output
    )
    assert "Traceback" not in output and drawn(root) == before


# a run that does not


def test_a_failing_cell_shows_its_source_its_error_and_the_half_executed_notebook(tmp_path, capsys):
    root = project(tmp_path, "a = 1", "b = 0  # the culprit\na / b", "print('never')")
    with pytest.raises(RunError) as caught:
        run("00_tiny", root)
    message = str(caught.value)
    for part in (
        "code cell 4 failed",
        "ZeroDivisionError",
        "b = 0  # the culprit",
        "reports/failed/00_tiny.ipynb",
    ):
        assert part in message
    assert str(root) not in message and "\x1b[" not in message
    half = nbformat.read(root / "reports/failed/00_tiny.ipynb", as_version=4)
    assert half.cells[-2].outputs[0].ename == "ZeroDivisionError" and half.cells[-1].outputs == []
    assert not (root / "reports/00_tiny.html").exists()


def test_a_cell_that_takes_too_long_ends_the_run_and_its_kernel(tmp_path):
    mark = tmp_path / "pid"
    source = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    with pytest.raises(RunError, match=r"code cell 3 failed: no result after 3 s \(--timeout\)"):
        run("00_tiny", project(tmp_path / "p", source), timeout=3)
    assert gone(int(mark.read_text()))


def test_a_kernel_that_is_killed_is_noticed_within_seconds(tmp_path):
    began = time.monotonic()
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(RunError, match=r"code cell 3 failed: the kernel died, killed by SIGKILL"):
        run("00_tiny", project(tmp_path, source))
    assert time.monotonic() - began < 20


def test_a_page_that_is_refused_keeps_the_executed_notebook(tmp_path):
    root = project(
        tmp_path,
        "from IPython.display import HTML\nimg = '<img src=\"data:image/gif;base64,R0lGODlhAQABAAAAACw=\">'\nHTML(img)",
    )
    with pytest.raises(
        RunError, match=r"page was refused(.|\n)*cell 4(.|\n)*reports/failed/00_tiny.ipynb"
    ):
        run("00_tiny", root)
    assert (root / "reports/failed/00_tiny.ipynb").exists() and not (
        root / "reports/00_tiny.html"
    ).exists()


def test_a_notebook_that_makes_less_than_its_stage_promises_is_told_so(tmp_path):
    root = project(tmp_path, "1 + 1")
    with (root / "dvc.yaml").open("a") as file:
        file.write("    metrics: [reports/metrics/00_tiny.json]\n")
    with pytest.raises(RunError, match=r"without making reports/metrics/00_tiny.json.*lesson.save"):
        run("00_tiny", root)


SLEEPER = """
import os, subprocess, sys, time
quiet = subprocess.DEVNULL  # what a child says of its own end is not the runner's word
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stderr=quiet)
try:
    open({mark!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")  # within: whoever reads it may interrupt at once
    time.sleep(600)
finally:
    open({mark!r} + ".tidy", "w").write("tidied")
"""


def asleep(tmp_path: Path, **options) -> tuple[subprocess.Popen, list[int], Path]:
    """A runner whose kernel sleeps, the kernel and its child, and the file that names them."""
    mark = tmp_path / "pids"
    runner = start(project(tmp_path / "p", SLEEPER.format(mark=str(mark))), **options)
    return runner, [int(pid) for pid in wait_for(mark).split()], mark


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_and_a_polite_kill_end_everything_and_leave_no_temporary_file(
    tmp_path, scratch, number, code
):
    runner, pids, mark = asleep(tmp_path, env={**os.environ, "TMPDIR": str(scratch)})
    runner.send_signal(number)
    output, _ = runner.communicate(timeout=120)
    assert (
        runner.returncode == code and "Traceback" not in output and all(gone(pid) for pid in pids)
    )
    assert list(scratch.iterdir()) == [] and not (tmp_path / "p/reports/00_tiny.html").exists()
    if number == signal.SIGINT:  # the cell may tidy up
        assert (
            "interrupted; finished work is kept" in output
            and wait_for(Path(f"{mark}.tidy")) == "tidied"
        )


@pytest.mark.parametrize("seconds", [1.0, 1.6])
def test_a_polite_kill_while_the_kernel_starts_leaves_no_temporary_file(tmp_path, scratch, seconds):
    runner = start(project(tmp_path / "p", "1"), env={**os.environ, "TMPDIR": str(scratch)})
    time.sleep(seconds)
    runner.terminate()
    runner.communicate(timeout=120)
    time.sleep(0.5)
    assert list(scratch.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks where Linux keeps shared memory")
def test_a_polite_kill_in_a_sweep_leaves_no_shared_memory(tmp_path):
    mark = str(tmp_path / "pid")
    runner = start(project(tmp_path / "p", SWEEPING.format(mark=mark)))
    workers = [int(wait_for(Path(mark + str(n)))) for n in range(2)]
    kernel = psutil.Process(workers[0]).ppid()
    runner.terminate()
    runner.communicate(timeout=120)
    assert [
        path.name
        for path in Path("/dev/shm").iterdir()
        if f"-{kernel}-" in path.name.replace("_", "-")
    ] == []


def test_a_folder_for_temporary_files_that_is_too_long_for_sockets_is_no_error(tmp_path):
    scratch = tmp_path / ("long" * 40)
    scratch.mkdir()
    runner = start(project(tmp_path / "p", "1 + 1"), env={**os.environ, "TMPDIR": str(scratch)})
    output, _ = runner.communicate(timeout=120)
    assert runner.returncode == 0, output


def test_where_no_folder_is_short_enough_for_sockets_it_is_said(monkeypatch):
    monkeypatch.setattr(papermill_engine.tempfile, "gettempdir", lambda: "/tmp/" + "x" * 120)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OSError, match="too long for a socket"):
        papermill_engine.find_scratch_folder()


SWEEPING = """
import os, time
from pathlib import Path
from lib.experiment import sweep

def nap(job, folder, progress):
    Path(job.settings["mark"]).write_text(str(os.getpid()))
    time.sleep(600)

jobs = [sweep.Job(f"nap {{n}}", {{"mark": {mark!r} + str(n)}}) for n in range(2)]
sweep.run(nap, jobs, {mark!r} + "-runs", workers=2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill_9_of_the_runner_leaves_no_process_of_a_sweep(tmp_path):
    mark = str(tmp_path / "pid")
    runner = start(project(tmp_path / "p", SWEEPING.format(mark=mark)))
    workers = [int(wait_for(Path(mark + str(n)))) for n in range(2)]
    runner.kill()
    runner.wait(timeout=120)
    assert all(gone(pid) for pid in workers)


# cleaning


def notebook_with_traces(place: int = 0) -> nbformat.NotebookNode:
    cells = [
        new_markdown_cell("# Title", id=f"random-{place}"),
        new_code_cell(
            "1 + 1",
            id=f"other-{place}",
            execution_count=place,
            metadata={
                "tags": ["b", "a"],
                "execution": {"started": str(place)},
                "collapsed": bool(place),
            },
            outputs=[new_output("stream", text=f"run {place}")],
        ),
    ]
    if place:
        cells.append(new_code_cell("  \n"))  # JupyterLab's last cell
    metadata = {
        "kernelspec": {"name": f"mine-{place}", "display_name": "x"},
        "widgets": {"state": place},
    }
    return new_notebook(cells=cells, metadata=metadata)


def test_a_clean_copy_has_sources_tags_and_nothing_else_however_often_it_was_run_and_saved():
    assert strip_outputs.to_text(
        strip_outputs.clean(notebook_with_traces(0))
    ) == strip_outputs.to_text(strip_outputs.clean(notebook_with_traces(5)))
    nb = strip_outputs.clean(notebook_with_traces(3))
    assert [cell.source for cell in nb.cells] == ["# Title", "1 + 1"]
    assert nb.cells[1].outputs == [] and nb.cells[1].execution_count is None
    assert nb.cells[1].metadata == {"tags": ["a", "b"]} and set(nb.metadata) == {
        "kernelspec",
        "language_info",
    }
    nbformat.validate(nb)


def test_a_change_of_a_cell_changes_its_id_and_no_other():
    nb, changed = notebook_with_traces(), notebook_with_traces()
    changed.cells[1].source = "1 + 2"
    before, after = ([cell.id for cell in strip_outputs.clean(one).cells] for one in (nb, changed))
    assert before[0] == after[0] and before[1] != after[1]
    alike = strip_outputs.clean(new_notebook(cells=[new_code_cell("x"), new_code_cell("x")]))
    assert len({cell.id for cell in alike.cells}) == 2


def test_copies_without_an_original_are_removed(tmp_path):
    root = project(tmp_path)
    artifacts.write_text(root / "data/notebooks/old.ipynb", "{}")
    strip_outputs.clean_folder(root / "notebooks", root / "data/notebooks")
    assert [path.name for path in (root / "data/notebooks").iterdir()] == ["00_tiny.ipynb"]


@pytest.mark.parametrize(
    "content",
    ["not json", "{}", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}'],
)
def test_a_broken_notebook_is_named(tmp_path, content):
    (tmp_path / "05_broken.ipynb").write_text(content)
    with pytest.raises(ValueError, match=r"05_broken.ipynb is not a notebook"):
        strip_outputs.read(tmp_path / "05_broken.ipynb")


# scrubbing


def test_a_path_is_replaced_only_as_a_whole_and_no_embedded_image_is_touched(tmp_path):
    text = Scrubber(tmp_path).text
    image = f"data:image/png;base64,AAAA{tmp_path.as_posix().replace('-', '').replace('_', '')}/tmp/BBBB="
    assert text(f'<img src="{image}"> /tmp/x') == f'<img src="{image}"> <tmp>/x'
    assert (
        text(f"{tmp_path}/lib/x.py in {tmp_path}, not {tmp_path}-2")
        == f"lib/x.py in ., not {text(f'{tmp_path}-2')}"
    )
    assert text(f"{tmp_path}-2").endswith("-2") and text(f"{tmp_path}-2") != ".-2"


def test_scrubbing_keeps_the_order_of_displays_and_streams():
    shown = new_output("display_data", data={"text/plain": "figure"})
    streams = [
        new_output("stream", name=name, text=text)
        for name, text in (("stderr", "e"), ("stdout", "o"))
    ]
    nb = new_notebook(cells=[new_code_cell("x", outputs=[*streams, shown, streams[0]])])
    kinds = [output.get("name", "display") for output in scrub(nb, ROOT).cells[0].outputs]
    assert kinds == ["stdout", "stderr", "display", "stderr"]


# progress


class Clock:
    """A clock that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_line_names_the_cell_the_time_and_what_is_left_by_the_last_run(tmp_path):
    clock = Clock()
    progress = Progress(
        "01_zoo", ["a", "b", "c"], {"a": 1, "b": 60, "c": 30}, tmp_path / "no", io.StringIO(), clock
    )
    assert progress.line() == "[01_zoo] starting the kernel, 0 s"
    progress.begin("b")
    clock.now = 20
    assert progress.line() == "[01_zoo] cell 2/3, 20 s, about 1 min 10 s left"


def test_a_sweep_in_the_cell_decides_the_estimate_even_when_it_resumed(tmp_path):
    clock, report = Clock(), tmp_path / "progress.json"
    progress = Progress("01_zoo", ["a"], {}, report, io.StringIO(), clock)
    progress.begin("a")
    assert "left" not in progress.line()
    artifacts.write_json(report, {"label": "training", "done": 6, "total": 10})
    assert progress.line() == "[01_zoo] cell 1/1, 0 s, training 60%"
    clock.now = 100
    artifacts.write_json(report, {"label": "training", "done": 8, "total": 10})
    assert progress.line() == "[01_zoo] cell 1/1, 1 min 40 s, training 80%, about 1 min 40 s left"


@pytest.mark.parametrize(
    "content", ["", "{", '{"label": "x", "done": 1, "total": 0}', '{"done": 1}', "[1]"]
)
def test_a_report_that_is_half_written_is_ignored(tmp_path, content):
    (tmp_path / "p").write_text(content)
    progress = Progress("01_zoo", ["a"], {}, tmp_path / "p", io.StringIO(), Clock())
    progress.begin("a")
    assert progress.line() == "[01_zoo] cell 1/1, 0 s"


def test_lines_appear_while_a_cell_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.reports.execute.progress.EVERY_LOG", 0.02)
    stream = io.StringIO()
    with Progress("01_zoo", ["a"], {}, tmp_path / "p", stream) as progress:
        progress.begin("a")
        time.sleep(0.2)
    assert stream.getvalue().count("[01_zoo] cell 1/1") >= 2 and "\r" not in stream.getvalue()


class Terminal(io.StringIO):
    """A stream that says it is a terminal; `lines` is what somebody sees."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        lines = []
        for line in self.getvalue().split("\n"):
            shown = ""
            for text in line.split("\r"):
                shown = text + shown[len(text) :]
            lines.append(shown.rstrip())
        return lines


REASONS = [
    "training controllers: 4 of 12 jobs: versions.losses 1 -> 2",
    "judging: 1 of 1 jobs: model a -> b",
]


def test_why_a_sweep_runs_jobs_again_stands_above_the_progress_line(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.reports.execute.progress.EVERY_TERMINAL", 0.02)
    report, terminal = tmp_path / "progress.json", Terminal()
    with Progress("05_routing", ["a"], {}, report, terminal) as progress:
        progress.begin("a")
        time.sleep(0.2)
        Path(f"{report}.reasons").write_text(
            f"{REASONS[0]}\n{REASONS[1][:10]}"
        )  # the second is still being written
        time.sleep(0.2)
        first, line = terminal.lines()
        assert first == f"[05_routing] {REASONS[0]}" and line.startswith("[05_routing] cell 1/1, ")
        Path(f"{report}.reasons").write_text("".join(f"{reason}\n" for reason in REASONS))
        time.sleep(0.2)
        assert terminal.lines()[:2] == [f"[05_routing] {reason}" for reason in REASONS]
    assert terminal.lines() == [*(f"[05_routing] {reason}" for reason in REASONS), ""]


def test_a_reason_is_printed_when_the_run_ends_before_the_next_line_would_come(tmp_path):
    stream = io.StringIO()
    with Progress("05_routing", ["a"], {}, tmp_path / "progress.json", stream):
        (tmp_path / "progress.json.reasons").write_text(f"{REASONS[0]}\n")
    assert stream.getvalue() == f"[05_routing] {REASONS[0]}\n"


def test_a_sweep_hands_its_reasons_to_the_terminal(tmp_path, capsys):
    again = f"""
from pathlib import Path
from lib.experiment import sweep

def work(job, folder, progress):
    return job.settings["rate"]

for rate in (1, 2):
    sweep.run(work, [sweep.Job("train", {{"rate": rate}})], {str(tmp_path / "runs")!r}, workers=1, label="training")
"""
    run("00_tiny", project(tmp_path / "p", again))
    assert "[00_tiny] training: 1 of 1 jobs: rate 1 -> 2\n" in capsys.readouterr().err


# why DVC runs a lesson


TINY_PIPELINE = """
stages:
  00_tiny:
    cmd: python -m lib.reports.execute 00_tiny
    params: [data/settings.json: [profile, zoo]]
    deps: [lib/policy_zoo, lib/experiment/seeds.py]
"""


@pytest.fixture
def pipeline(tmp_path, monkeypatch) -> Path:
    """A pipeline without git, whose only stage never ran."""
    from dvc.repo import Repo

    artifacts.write_text(tmp_path / "dvc.yaml", TINY_PIPELINE)
    artifacts.write_json(tmp_path / "data/settings.json", SETTINGS)
    for name in ("lib/policy_zoo/ppo.py", "lib/envs/question_bank.py", "lib/experiment/seeds.py"):
        artifacts.write_text(tmp_path / name, "")
    Repo.init(str(tmp_path), no_scm=True).close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    """Write to dvc.lock what a run would that ended now."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        repo.commit("00_tiny", force=True)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_lesson_that_never_ran_runs_for_the_first_time(pipeline):
    assert explain_run("00_tiny", pipeline) == "runs for the first time"


def test_what_changed_since_the_last_run_is_named(pipeline):
    commit(pipeline)
    artifacts.write_text(pipeline / "lib/policy_zoo/ppo.py", "# a remark")
    assert explain_run("00_tiny", pipeline) == "runs again: lib/policy_zoo changed"
    artifacts.write_json(
        pipeline / "data/settings.json",
        SETTINGS | {"zoo": SETTINGS["zoo"] | {"seeds": 5}, "tour": {}},
    )
    assert (
        explain_run("00_tiny", pipeline) == "runs again: lib/policy_zoo changed; zoo.seeds 2 -> 5"
    )
    commit(pipeline)
    replace(
        pipeline / "dvc.yaml",
        "[lib/policy_zoo, lib/experiment/seeds.py]",
        "[lib/policy_zoo, lib/envs]",
    )
    assert explain_run("00_tiny", pipeline) == "runs again: lib/envs is a new dependency"
    commit(pipeline)
    replace(
        pipeline / "dvc.yaml",
        "lib.reports.execute 00_tiny",
        "lib.reports.execute 00_tiny --timeout 60",
    )
    assert explain_run("00_tiny", pipeline) == "runs again: another command"


def test_many_changes_are_counted(pipeline):
    commit(pipeline)
    artifacts.write_json(
        pipeline / "data/settings.json", {"profile": "paper", "zoo": {"layers": "[64, 64]" * 9}}
    )
    changes = explain_run("00_tiny", pipeline)
    assert changes.startswith("runs again: profile smoke -> paper, zoo.") and changes.endswith(
        " and 2 more"
    )


def test_where_nothing_changed_it_says_so(pipeline):
    commit(pipeline)
    assert "none of its dependencies changed" in explain_run("00_tiny", pipeline)


def break_lock(root: Path) -> None:
    (root / "dvc.lock").write_text("stages: [")


def break_pipeline(root: Path) -> None:
    (root / "dvc.yaml").write_text("stages: {00_tiny: {}}")


def forget_dvc(root: Path) -> None:
    (root / ".dvc").rename(root / "gone")


@pytest.mark.parametrize("spoil", [break_lock, break_pipeline, forget_dvc])
def test_what_cannot_be_found_out_is_no_error(pipeline, spoil):
    commit(pipeline)
    spoil(pipeline)
    assert explain_run("00_tiny", pipeline) == ""
