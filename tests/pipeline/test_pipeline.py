"""The whole pipeline at `smoke` in clean copies: twice the same bytes, never twice the same work.

These are the slow tests: they run what a user runs. `make pipeline` runs them, plain pytest does not.
"""

import json
import random
import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from lib.experiment import artifacts
from lib.experiment.sweep import Job
from lib.reports.execute import dvc_stage

from .checkout import Checkout, files_at
from .kills import INTERRUPTED, PROC

AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost")
SCREEN = 100  # columns
LOADING = {"src", "srcset", "poster", "background", "data", "xlink:href"}


def ran(printed: str) -> list[str]:
    """Stages that DVC ran."""
    return re.findall(r"^Running stage '([^']+)'", printed, re.M)


def lessons(checkout: Checkout) -> list[str]:
    return sorted(path.stem for path in (checkout.folder / "notebooks").glob("*.ipynb"))


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def test_every_lesson_leaves_a_page_a_notebook_and_metrics(first):
    assert lessons(first.checkout) and ran(first.printed)[-1] == "index"
    for lesson in lessons(first.checkout):
        for name in (
            f"reports/{lesson}.html",
            f"reports/notebooks/{lesson}.ipynb",
            f"reports/metrics/{lesson}.json",
        ):
            assert name in first.hashes
        assert any(name.startswith(f"reports/figures/{lesson}/") for name in first.hashes)


def test_two_independent_runs_give_the_same_bytes(first, second):
    assert differences(first.hashes, second.hashes) == []
    assert len(first.hashes) > 30 and any(name.startswith("data/zoo/") for name in first.hashes)
    assert first.checkout.hashes("dvc.lock") == second.checkout.hashes("dvc.lock")


def test_a_second_run_runs_no_stage(first, say):
    say("make repro again")
    assert ran(first.checkout.repro()) == []
    assert "up to date" in first.checkout.dvc("status")
    assert differences(first.hashes, first.checkout.hashes()) == []


def test_every_job_is_kept_under_the_key_of_its_settings(first):
    records = sorted((first.checkout.folder / "data/runs").rglob("done.json"))
    assert len(records) > 20
    for record in records:
        job = Job(**artifacts.read_json(record.parent / "job.json"))
        assert job.label and record.parent.name == job.key


def test_dvc_reads_the_metrics(first):
    shown = json.loads(first.checkout.dvc("metrics", "show", "--json"))
    files = next(iter(shown.values()))["data"]
    assert {Path(name).stem for name in files} == set(lessons(first.checkout))
    assert all(entry["data"] for entry in files.values())


def save_as_jupyterlab_would(path: Path, executed: Path) -> None:
    """The notebook with outputs, counts, times, random ids and an empty cell at the end."""
    draw = random.Random(path.name)
    notebook, outputs = nbformat.read(path, 4), iter(nbformat.read(executed, 4).cells)
    for count, cell in enumerate(notebook.cells):
        cell.id = f"{draw.getrandbits(64):016x}"
        if cell.cell_type == "code":
            ran_as = next(other for other in outputs if other.source == cell.source)
            cell.outputs, cell.execution_count = ran_as.outputs, count + 1
            cell.metadata["execution"] = {"iopub.execute_input": f"2026-01-01T00:00:{count:02d}Z"}
            cell.metadata["scrolled"] = True
    notebook.cells.append(nbformat.v4.new_code_cell("", id="empty"))
    notebook.metadata["kernelspec"] = {
        "display_name": "bench",
        "language": "python",
        "name": "bench",
    }
    nbformat.write(notebook, path)


def test_saving_a_notebook_with_its_outputs_makes_no_lesson_stale(second):
    """Nor do caches and checkpoints that others leave beside it."""
    checkout = second.checkout
    for name in (
        "lib/policy_zoo/__pycache__/x.pyc",
        "lib/envs/.ipynb_checkpoints/a.py",
        "notebooks/.ipynb_checkpoints/a.py",
    ):
        (checkout.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout.folder / name).write_text("rubbish")
    for lesson in lessons(checkout):
        executed = checkout.folder / f"reports/notebooks/{lesson}.ipynb"
        save_as_jupyterlab_would(checkout.folder / f"notebooks/{lesson}.ipynb", executed)
    assert ran(checkout.dvc("repro", "clean")) == ["clean"]
    assert "up to date" in checkout.dvc("status")
    assert differences(second.hashes, checkout.hashes()) == []


def test_editing_a_notebook_makes_its_own_lesson_stale_and_no_other(second):
    checkout = second.checkout
    path = checkout.folder / "notebooks/00_tour.ipynb"
    before = path.read_bytes()
    notebook = nbformat.read(path, 4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("One more remark."))
    nbformat.write(notebook, path)
    try:
        checkout.dvc("repro", "clean")
        assert set(json.loads(checkout.dvc("status", "--json"))) == {
            "00_tour"
        }  # the test below: none again afterwards
    finally:
        path.write_bytes(before)
        checkout.dvc("repro", "clean")


def test_a_lock_that_a_dead_process_holds_stops_nobody(second):
    gone = subprocess.Popen(["true"])
    gone.wait()
    entry = {"pid": gone.pid, "cmd": "dvc repro"}
    lock = second.checkout.folder / ".dvc/tmp/rwlock"
    for content in (
        json.dumps({"write": {str(second.checkout.folder / "data/zoo"): entry}}),
        '{"write": {',
    ):
        lock.write_text(content)
        assert ran(second.checkout.repro()) == []


SCRIPTED = ("10_scoreboard.html",)  # its filters; without them the page shows every claim


class Page(HTMLParser):
    """What a page would load, where its links lead, and the text that it shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        text = path.read_text(encoding="utf-8")
        self.feed(text)
        sheets = re.findall(r"<style[^>]*>(.*?)</style>", text, re.S) + re.findall(
            r'\sstyle="([^"]*)"', text
        )
        self.loads += [
            address
            for css in sheets
            for address in re.findall(r"(?:url\(|@import)\s*['\"]?([^)'\"]+)", css)
        ]
        self.text = text

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in LOADING or (tag in ("link", "base", "image", "use") and name == "href"):
                self.loads.append(value or "")
            elif name == "href":
                self.links.append(value or "")


def test_a_page_loads_nothing_that_is_not_in_the_reports_folder(first):
    reports = first.checkout.folder / "reports"
    pages = sorted(reports.rglob("*.html"))
    assert len(pages) > len(lessons(first.checkout))
    for path in pages:
        for address in Page(path).loads:
            local = (
                not re.match(r"[a-zA-Z][\w+.-]*:|//|/", address)
                and (path.parent / address).is_file()
            )
            assert address.startswith(("data:", "#")) or local, f"{path.name} loads {address[:80]}"
        assert path.name in SCRIPTED or "<script" not in path.read_text(encoding="utf-8"), path.name


def test_the_front_page_has_every_lesson_with_a_link_that_leads_somewhere(first):
    reports = first.checkout.folder / "reports"
    page = Page(reports / "index.html")
    local = [link for link in page.links if not re.match(r"\w+:|#", link)]
    assert {f"{lesson}.html" for lesson in lessons(first.checkout)} <= set(local)
    assert [link for link in local if not (reports / link.split("#")[0]).exists()] == []
    for lesson in lessons(first.checkout):
        card = json.loads((reports / f"lessons/{lesson}.json").read_text())
        assert card["profile"] == "smoke" and card["parameters"] in page.text


def test_no_report_says_where_it_was_made(first):
    """Neither the copy's folder nor the home of whoever ran it; in HTML, notebooks, metrics and the zoo."""
    words = [str(first.checkout.folder).encode(), b"/tmp/", str(Path.home()).encode() + b"/"]
    for name in first.hashes:
        if Path(name).suffix in (".html", ".ipynb", ".json"):
            content = (first.checkout.folder / name).read_bytes()
            assert [word for word in words if word in content] == [], name


@pytest.mark.skipif(not PROC.exists(), reason="finds processes through /proc")
def test_ten_kills_at_random_moments_change_nothing_in_the_end(first, interrupted):
    outs = made_by(interrupted, *INTERRUPTED)
    assert all(interrupted.hashes(out) for out in outs)
    assert differences(first.checkout.hashes(*outs), interrupted.hashes(*outs)) == []
    assert "up to date" in interrupted.dvc("status", *INTERRUPTED)
    rubbish = [f.name for f in files_at(interrupted.folder / "reports") if f.name.startswith(".")]
    assert rubbish == [], "half-written files are left"


@pytest.mark.skipif(not PROC.exists(), reason="uses the copy that was killed")
def test_a_lesson_whose_code_changed_runs_again_says_why_and_trains_nothing(interrupted):
    receipts = {
        path: path.stat().st_mtime_ns
        for path in (interrupted.folder / "data/runs").rglob("done.json")
    }
    outs = made_by(interrupted, "01_policy_zoo")
    before = interrupted.hashes(*outs)
    code = interrupted.folder / "lib/policy_zoo/ppo.py"
    code.write_text(code.read_text(encoding="utf-8") + "\n\nANOTHER_NAME = 1\n", encoding="utf-8")
    printed = interrupted.repro("01_policy_zoo")
    assert (
        "01_policy_zoo" in ran(printed)
        and "[01_policy_zoo] runs again: lib/policy_zoo changed\n" in printed
    )
    after = {
        path: path.stat().st_mtime_ns
        for path in (interrupted.folder / "data/runs").rglob("done.json")
    }
    assert after == receipts and differences(before, interrupted.hashes(*outs)) == []


def made_by(checkout: Checkout, *names: str) -> list[str]:
    """What the stages of some lessons promise, and the two that all lessons stand on."""
    stages = dvc_stage.lessons(checkout.folder)
    return [
        dvc_stage.SETTINGS,
        dvc_stage.SOURCES,
        *(out for name in names for out in stages[name].outs),
    ]


def test_it_works_in_a_downloaded_archive_without_git(copy, first):
    """What `make repro` does first, and the cheap stages; the lessons never ask git."""
    checkout = copy("archive", with_git=False)
    checkout.run("python", "scripts/doctor.py", "--fix", "--quiet")
    assert ran(checkout.dvc("repro", "clean"))[-1] == "clean"
    assert checkout.hashes("data/notebooks") == first.checkout.hashes("data/notebooks")


def test_what_the_readme_says_of_dvc_works_and_its_table_fits_a_screen(copy):
    checkout = copy("experiment")
    checkout.run("git", "add", "--all")
    checkout.run("git", *AUTHOR, "commit", "--quiet", "--allow-empty", "--message", "as it is")
    lines = re.findall(
        r"^dvc (.+?)  +#", (checkout.folder / "README.md").read_text(encoding="utf-8"), re.M
    )
    change, compare, difference = (shlex.split(line) for line in lines)
    checkout.dvc(*change, "-S", "profile=smoke")
    table = checkout.dvc(*compare)
    changes = checkout.dvc(*difference)
    plots = checkout.dvc("plots", "show")
    graph = checkout.dvc("dag", "10_scoreboard")
    assert (
        "tour.weights" in table
        and "front.hv_mean" in table
        and max(map(len, table.splitlines())) <= SCREEN
    )
    assert re.search(r"00_tour\.json +front\.hv_mean +[\d.]+ +[\d.]+", changes)
    page = Path(plots.strip().removeprefix("file://"))
    shown = {path.name for path in page.parent.rglob("*.png")}
    drawn = {path.stem for path in (checkout.folder / "reports/figures/00_tour").glob("*.png")}
    assert drawn and all(
        any(name.endswith(f"00_tour_{stem}.png") for name in shown) for stem in drawn
    )
    assert "10_scoreboard" in graph and "11_bring_your_own" not in graph


# What somebody types who has the environment activated and does not use the Makefile.
WITHOUT_MAKE = """
set -e
PATH=${PATH#*:}  # the test's own way to the environment
source .venv/bin/activate
dvc repro 00_tour
dvc exp run -S 'params.yaml:tour.weights=3' 00_tour
rm reports/metrics/00_tour.json
papermill --no-progress-bar notebooks/00_tour.ipynb out.ipynb -p profile smoke
"""


def test_dvc_and_papermill_work_in_an_activated_environment_without_make(copy):
    checkout = copy("activated")
    parameters = checkout.folder / "params.yaml"
    parameters.write_text(
        parameters.read_text(encoding="utf-8").replace("\nprofile: laptop ", "\nprofile: smoke ")
    )
    checkout.run("git", "add", "--all")
    checkout.run("git", *AUTHOR, "commit", "--quiet", "--allow-empty", "--message", "as it is")
    printed = checkout.run("bash", "-c", WITHOUT_MAKE)
    assert ran(printed).count("00_tour") == 2
    assert re.search(r"^\[00_tour\] runs again: tour\.weights \d+ -> 3$", printed, re.M)
    cells = nbformat.read(checkout.folder / "out.ipynb", 4).cells
    injected = [
        cell.source for cell in cells if "injected-parameters" in cell.metadata.get("tags", [])
    ]
    assert len(injected) == 1 and 'profile = "smoke"' in injected[0]
    assert (checkout.folder / "reports/metrics/00_tour.json").exists(), (
        "papermill ran the code of another checkout"
    )
