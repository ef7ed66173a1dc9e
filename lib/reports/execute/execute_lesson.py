"""One lesson from clean notebook to page: check, execute, scrub, render, write.

Everything that a run shows is written under `reports/failed/NAME` and takes its place in `reports` only after
the whole notebook ran: a run that fails, is killed or finds the disk full leaves the last good report as it was,
and of that one no figure outlives a run that ended well. Wall times go to `reports/timings`, a half-executed
notebook to `reports/failed`; no stage depends on either.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from lib.experiment import artifacts
from lib.reports.accessibility_check import ReportError
from lib.reports.execute import dvc_stage, papermill_engine, strip_outputs
from lib.reports.execute.dvc_stage import RunError, Stage
from lib.reports.execute.normalise_outputs import Scrubber, scrub
from lib.reports.execute.progress import Progress, duration
from lib.reports.execute.rerun_reasons import explain_run

EXCERPT = 12  # lines of a failing cell shown on the terminal
TRACEBACK = 25  # lines of its traceback
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run(name: str, root: Path, timeout: float = 3600.0) -> Path:
    """Execute the lesson `name` and write its outputs; returns the path of its page.

    timeout: seconds per cell. Raises RunError for anything that a reader of the terminal can mend, and OSError
    where nothing can be written.
    """
    declared = dvc_stage.find(name, root)
    parameters = dvc_stage.parameters(declared, root)
    notebook = dvc_stage.notebook(declared, root)
    dvc_stage.check(declared, notebook)
    if (
        "DVC_STAGE" in os.environ
    ):  # somebody who typed `make repro` did not ask for this lesson by name
        reason = explain_run(name, root)
        if reason:
            print(f"[{name}] {reason}", flush=True)
    staged = _staged(name, root)
    with tempfile.TemporaryDirectory(
        prefix="bench-", dir=papermill_engine.scratch_place(), ignore_cleanup_errors=True
    ) as scratch:
        session = _session(name, notebook, parameters, root, timeout, Path(scratch))
        try:
            with session.progress:
                executed = papermill_engine.execute(
                    root / dvc_stage.SOURCES / f"{name}.ipynb", parameters, session
                )
        except papermill_engine.CellFailure as failure:
            raise RunError(_explain(failure, session, name, root)) from None
        except papermill_engine.KernelStartError as error:
            raise RunError(f"{name}: {error}") from error
    page = _publish(declared, scrub(executed, root), staged, root)
    _remember(name, parameters, session.progress, root)
    print(
        f"[{name}] done in {duration(session.progress.total)}: {page.relative_to(root)}", flush=True
    )
    return page


def _session(
    name: str, notebook: NotebookNode, parameters: dict, root: Path, timeout: float, scratch: Path
):
    cells = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    tagged = next(
        cell.id for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    )
    cells.insert(cells.index(tagged) + 1, papermill_engine.INJECTED)
    report = scratch / "progress.json"
    environment = papermill_engine.environment(
        root,
        BENCH_PROGRESS=str(report),
        BENCH_REPORTS=str(root / "reports/failed" / name),
        TMPDIR=str(scratch),  # what the kernel and its processes leave there goes with it
        IPYTHONDIR=str(scratch / "ipython"),  # a reader's own start-up files change no report
    )
    known = _timings(name, root).get(str(parameters.get("profile")), {}).get("cells", {})
    return papermill_engine.Session(
        root, scratch, timeout, environment, Progress(name, cells, known, report)
    )


def _timings(name: str, root: Path) -> dict[str, Any]:
    """Wall times of the last run of each profile: {profile: {"cells": {id: seconds}, "total": seconds}}."""
    try:
        return artifacts.read_json(root / "reports/timings" / f"{name}.json")
    except (OSError, ValueError):
        return {}  # a first run, or a file that is only worth an estimate


def _remember(name: str, parameters: dict[str, Any], progress: Progress, root: Path) -> None:
    cells = {cell: round(seconds, 3) for cell, seconds in progress.seconds.items()}
    entry = {str(parameters.get("profile")): {"cells": cells, "total": round(progress.total, 3)}}
    with contextlib.suppress(OSError):  # only worth an estimate, and the report is there
        artifacts.write_json(
            root / "reports/timings" / f"{name}.json", _timings(name, root) | entry
        )


def _staged(name: str, root: Path) -> Path:
    """An empty folder for what this run shows; what an earlier failure left goes."""
    staged = root / "reports/failed" / name
    staged.with_suffix(".ipynb").unlink(missing_ok=True)
    if staged.exists():
        shutil.rmtree(staged)
    staged.mkdir(parents=True)
    return staged


def _keep(notebook: NotebookNode, name: str, root: Path) -> str:
    """Where the notebook is kept as far as it came, or why it is not: that is never the error to tell."""
    try:
        path = artifacts.write_text(
            root / "reports/failed" / f"{name}.ipynb", strip_outputs.to_text(notebook)
        )
    except OSError as error:
        return f"not kept ({error.strerror})"
    return path.relative_to(root).as_posix()


def _publish(declared: Stage, notebook: NotebookNode, staged: Path, root: Path) -> Path:
    from lib.reports import html  # imported late: a lesson that fails needs no page

    name = declared.name
    own = (f"reports/notebooks/{name}.ipynb", f"reports/{name}.html")
    absent = [
        out for out in declared.outs if out not in own and not _made(out, staged, root).exists()
    ]
    if absent:
        raise RunError(
            f"{name} ran to its end without making {', '.join(absent)}; its last cells must call "
            f"lesson.finish(...)\nexecuted notebook: {_keep(notebook, name, root)}"
        )
    try:
        rendered = html.page(notebook, root / "notebooks", name)
    except ReportError as error:
        kept = _keep(notebook, name, root)
        raise RunError(
            f"{name} ran, but its page was refused: {error}\nexecuted notebook: {kept}"
        ) from error
    for out, content in zip(own, (strip_outputs.to_text(notebook), rendered), strict=True):
        artifacts.write_text(_made(out, staged, root), content)
    _swap(staged, root / "reports")
    return root / own[1]


def _made(out: str, staged: Path, root: Path) -> Path:
    """Where a run makes what its stage declares: a report in its folder, data in their place, which is resumed from."""
    return staged / out.removeprefix("reports/") if out.startswith("reports/") else root / out


def _swap(staged: Path, reports: Path) -> None:
    """Put everything in its place by renaming, which needs no room on the disk; pages last, folders as a whole."""
    for path in sorted(staged.glob("*/*")) + sorted(staged.glob("*.*")):
        target, aside = reports / path.relative_to(staged), staged / "replaced"
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            target.rename(aside)
        path.replace(target)
        if aside.exists():
            shutil.rmtree(aside)
    shutil.rmtree(staged)


def _explain(
    failure: papermill_engine.CellFailure, session: papermill_engine.Session, name: str, root: Path
) -> str:
    """The failing cell, the end of its traceback, and where to look on."""
    notebook = scrub(session.notebook, root)
    source = notebook.cells[failure.place].source.splitlines()
    number = sum(cell.cell_type == "code" for cell in notebook.cells[: failure.place + 1])
    excerpt = [f"    {line}" for line in source[:EXCERPT]] + (
        ["    ..."] if len(source) > EXCERPT else []
    )
    lines = [f"{name}: code cell {number} failed: {failure.reason}", *excerpt]
    if failure.traceback:
        trace = _ANSI.sub("", Scrubber(root).text(failure.traceback)).rstrip().splitlines()
        lines += ["", *(["..."] if len(trace) > TRACEBACK else []), *trace[-TRACEBACK:]]
    return "\n".join([*lines, "", f"half-executed notebook: {_keep(notebook, name, root)}"])
