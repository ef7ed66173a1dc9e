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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from lib.experiment import artifacts, leftovers
from lib.plots.accessibility_check import ReportError
from lib.reports.execute import dvc_stage, papermill_engine, strip_outputs
from lib.reports.execute.dvc_stage import LessonStage, RunError
from lib.reports.execute.figure_alt_texts import complete_alt_texts
from lib.reports.execute.normalise_outputs import Scrubber, scrub
from lib.reports.execute.progress import Progress, duration
from lib.reports.execute.rerun_reasons import explain_run

MAX_CELL_LINES = 12  # of a failing cell shown on the terminal
MAX_TRACEBACK_LINES = 25
MAX_REMOVALS = 30  # of the scratch folder, a tenth of a second apart
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run(name: str, root: Path, timeout: float = 3600.0) -> Path:
    """Executes a lesson and writes its outputs.

    Args:
        name: The lesson, a stage of dvc.yaml.
        root: The project's folder.
        timeout: Seconds per cell.

    Returns:
        The path of its page.

    Raises:
        RunError: For anything that a reader of the terminal can correct.
        OSError: If nothing can be written.
    """
    # Check everything before anything starts.
    stage = dvc_stage.find(name, root)
    parameters = dvc_stage.parameters(stage, root)
    notebook = dvc_stage.notebook(stage, root)
    dvc_stage.check(stage, notebook)
    _check_source(notebook, name, root)
    if "DVC_STAGE" in os.environ:  # `make repro` does not say by itself why this lesson is run
        reason = explain_run(name, root)
        if reason:
            print(f"[{name}] {reason}", flush=True)

    # Execute.
    staging_folder = _empty_staging_folder(name, root)
    scratch_parent = papermill_engine.find_scratch_folder()
    announcements = root / "data/runs/processes"
    leftovers.remove(announcements)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(_open_scratch_folder(scratch_parent))
        announce_process = stack.enter_context(leftovers.announce(announcements, paths=[scratch]))
        session = _make_session(name, notebook, parameters, root, timeout, Path(scratch))
        session.announce_process = announce_process
        try:
            with session.progress:
                executed = papermill_engine.execute(
                    root / dvc_stage.SOURCES / f"{name}.ipynb", parameters, session
                )
        except papermill_engine.CellFailure as failure:
            raise RunError(_explain_failure(failure, session, name, root)) from None
        except papermill_engine.KernelStartError as error:
            raise RunError(f"{name}: {error}") from error

    # Publish.
    executed = scrub(executed, root)
    for line in complete_alt_texts(executed):
        print(f"[{name}] {line}", flush=True)
    page = _publish(stage, executed, staging_folder, root)
    _write_timings(name, parameters, session.progress, root)
    total = duration(session.progress.total)
    for line in _read_reply_lines(name, root):
        print(f"[{name}] {line}", flush=True)
    print(f"[{name}] done in {total}: {page.relative_to(root)}", flush=True)
    return page


@contextlib.contextmanager
def _open_scratch_folder(parent: Path) -> Iterator[str]:
    """Makes a temporary folder, and removes it in the end.

    A process that is being stopped may still write a file while the folder is removed. So it is removed again until it
    is gone.

    Args:
        parent: Where it is made.

    Yields:
        Its path.
    """
    folder = tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True)
    try:
        with folder as path:
            yield path
    finally:
        for _ in range(MAX_REMOVALS):
            if not Path(folder.name).exists():
                break
            time.sleep(0.1)
            shutil.rmtree(folder.name, ignore_errors=True)


def _check_source(notebook: NotebookNode, name: str, root: Path) -> None:
    """Checks what can be checked before anything runs. Raises RunError with all cells at fault."""
    from lib.reports.execute import source_check  # imported late: it brings the page's renderer

    problems = source_check.find_problems(notebook, root / "notebooks")
    if problems:
        raise RunError(f"{name} is refused before it runs:\n  " + "\n  ".join(problems))


def _read_reply_lines(name: str, root: Path) -> list[str]:
    """What became of the calls of the models behind endpoints and in Hugging Face folders, a line for each model."""
    card_path = root / "reports/lessons" / f"{name}.json"
    return artifacts.read_json(card_path).get("replies", []) if card_path.exists() else []


def _make_session(
    name: str, notebook: NotebookNode, parameters: dict, root: Path, timeout: float, scratch: Path
) -> papermill_engine.Session:
    """Prepares the execution of a notebook: order of cells, environment variables and progress.

    Args:
        name: Name of the lesson.
        notebook: To be executed.
        parameters: Written into a cell behind the one tagged `parameters`.
        root: The project's folder.
        timeout: Seconds that a cell may take.
        scratch: Folder for temporary files.
    """
    # papermill adds a cell with the parameters behind the one that is tagged.
    cell_ids = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    parameters_id = next(
        cell.id for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    )
    cell_ids.insert(cell_ids.index(parameters_id) + 1, papermill_engine.INJECTED)

    report = scratch / "progress.json"
    environment = papermill_engine.make_environment(
        root,
        BENCH_PROGRESS=str(report),
        BENCH_REPORTS=str(root / "reports/failed" / name),
        **papermill_engine.make_folder_variables(root, scratch),
    )
    last_run = _read_timings(name, root).get(str(parameters.get("profile")), {})
    progress = Progress(name, cell_ids, last_run.get("cells", {}), report)
    return papermill_engine.Session(root, scratch, timeout, environment, progress)


def _read_timings(name: str, root: Path) -> dict[str, Any]:
    """Wall times of the last run of each profile: {profile: {"cells": {id: seconds}, "total": seconds}}."""
    try:
        return artifacts.read_json(root / "reports/timings" / f"{name}.json")
    except (OSError, ValueError):
        return {}  # a first run, or a damaged file, which costs no more than an estimate


def _write_timings(name: str, parameters: dict[str, Any], progress: Progress, root: Path) -> None:
    """Keep the wall times of this run, from which the next one of the profile estimates how long it takes."""
    cell_seconds = {cell: round(seconds, 3) for cell, seconds in progress.seconds.items()}
    entry = {"cells": cell_seconds, "total": round(progress.total, 3)}
    timings = _read_timings(name, root) | {str(parameters.get("profile")): entry}
    with contextlib.suppress(OSError):  # the report is there, and these only serve estimates
        artifacts.write_json(root / "reports/timings" / f"{name}.json", timings)


def _empty_staging_folder(name: str, root: Path) -> Path:
    """Makes an empty folder for the output of this run, and removes that of an earlier failure."""
    folder = root / "reports/failed" / name
    folder.with_suffix(".ipynb").unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _save_failed_notebook(notebook: NotebookNode, name: str, root: Path) -> str:
    """Saves a notebook as far as it was executed.

    Args:
        notebook: The notebook.
        name: Name of the lesson.
        root: The project's folder.

    Returns:
        Its path; or why it could not be saved, which must not hide the error that ended the run.
    """
    try:
        path = artifacts.write_text(
            root / "reports/failed" / f"{name}.ipynb", strip_outputs.to_text(notebook)
        )
    except OSError as error:
        return f"not kept ({error.strerror})"
    return path.relative_to(root).as_posix()


def _publish(stage: LessonStage, notebook: NotebookNode, staging_folder: Path, root: Path) -> Path:
    """Renders the page of a lesson, and moves all its outputs to their final places.

    Args:
        stage: Stage of the lesson, with the outputs that it must make.
        notebook: As it was executed.
        staging_folder: Where the run has written its outputs.
        root: The project's folder.

    Returns:
        Path of the page.

    Raises:
        RunError: An output is missing, or the page was refused.
    """
    from lib.reports import html  # imported late: a lesson that fails needs no page

    # The runner writes the notebook and the page; all else the lesson must have made.
    name = stage.name
    notebook_out = f"reports/notebooks/{name}.ipynb"
    page_out = f"reports/{name}.html"
    missing = [
        out
        for out in stage.outs
        if out not in (notebook_out, page_out)
        and not _output_path(out, staging_folder, root).exists()
    ]
    if missing:
        raise RunError(
            f"{name} ran to its end without making {', '.join(missing)}; its last cells must call "
            f"lesson.save(...)\nexecuted notebook: {_save_failed_notebook(notebook, name, root)}"
        )
    try:
        page = html.page(notebook, root / "notebooks", name, reports=staging_folder)
    except ReportError as error:
        notebook_path = _save_failed_notebook(notebook, name, root)
        raise RunError(
            f"{name} ran, but its page was refused: {error}\nexecuted notebook: {notebook_path}"
        ) from error
    notebook_text = strip_outputs.to_text(notebook)
    artifacts.write_text(_output_path(notebook_out, staging_folder, root), notebook_text)
    artifacts.write_text(_output_path(page_out, staging_folder, root), page)
    _replace_reports(staging_folder, root / "reports")
    return root / page_out


def _output_path(out: str, staging_folder: Path, root: Path) -> Path:
    """Where a run writes an output of its stage: reports in the staging folder, resumable data in their final place."""
    if out.startswith("reports/"):
        return staging_folder / out.removeprefix("reports/")
    return root / out


def _replace_reports(staging_folder: Path, reports: Path) -> None:
    """Moves outputs to their final places by renaming; pages come last, folders are replaced as a whole.

    Args:
        staging_folder: Where the run has written them; it is removed.
        reports: The folder of all reports.
    """
    old_folder = staging_folder / "replaced"
    for path in sorted(staging_folder.glob("*/*")) + sorted(staging_folder.glob("*.*")):
        target = reports / path.relative_to(staging_folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():  # a folder cannot be replaced while it has files
            target.rename(old_folder)
        path.replace(target)
        if old_folder.exists():
            shutil.rmtree(old_folder)
    shutil.rmtree(staging_folder)


def _explain_failure(
    failure: papermill_engine.CellFailure, session: papermill_engine.Session, name: str, root: Path
) -> str:
    """Describes a failed cell for the terminal: its code, the end of its traceback, and where the notebook is saved.

    Args:
        failure: Which cell failed, and why.
        session: The run, with the notebook.
        name: Name of the lesson.
        root: The project's folder.
    """
    notebook = scrub(session.notebook, root)
    cells = notebook.cells[: failure.cell_index + 1]
    number = sum(cell.cell_type == "code" for cell in cells)
    lines = [f"{name}: code cell {number} failed: {failure.reason}"]

    source = cells[-1].source.splitlines()
    lines += [f"    {line}" for line in source[:MAX_CELL_LINES]]
    if len(source) > MAX_CELL_LINES:
        lines.append("    ...")

    # The end of a traceback names the error; its start is the machinery that ran the cell.
    if failure.traceback:
        traceback = Scrubber(root).text(failure.traceback)
        traceback_lines = _ANSI.sub("", traceback).rstrip().splitlines()
        lines.append("")
        if len(traceback_lines) > MAX_TRACEBACK_LINES:
            lines.append("...")
        lines += traceback_lines[-MAX_TRACEBACK_LINES:]

    lines += ["", f"half-executed notebook: {_save_failed_notebook(notebook, name, root)}"]
    return "\n".join(lines)
