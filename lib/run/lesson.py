"""One lesson from clean notebook to page: check, execute, scrub, render, write.

`reports/notebooks/NAME.ipynb` and `reports/NAME.html` appear atomically and only after the whole
notebook ran. Wall times go to `reports/timings`, a half-executed notebook to `reports/failed`; no stage
depends on either.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from lib import store
from lib.run import clean, engine, stage
from lib.run.progress import Progress, duration
from lib.run.scrub import Scrubber, scrub
from lib.run.stage import RunError, Stage

EXCERPT = 12  # lines of a failing cell shown on the terminal
TRACEBACK = 25  # lines of its traceback
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run(name: str, root: Path, timeout: float = 3600.0) -> Path:
    """Execute the lesson `name` and write its outputs; returns the path of its page.

    timeout: seconds per cell. Raises RunError for anything that a reader of the terminal can mend.
    """
    declared = stage.find(name, root)
    parameters = stage.parameters(declared, root)
    notebook = stage.notebook(declared, root)
    stage.check(declared, notebook)
    _clear(declared, root)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        session = _session(name, notebook, parameters, root, timeout, Path(scratch))
        try:
            with session.progress:
                executed = engine.execute(root / stage.SOURCES / f"{name}.ipynb", parameters, session)
        except engine.CellFailure as failure:
            raise RunError(_explain(failure, session, name, root)) from None
        except engine.KernelStartError as error:
            raise RunError(f"{name}: {error}") from error
    page = _publish(declared, scrub(executed, root), root)
    _remember(name, parameters, session.progress, root)
    print(f"[{name}] done in {duration(session.progress.total)}: {page.relative_to(root)}", flush=True)
    return page


def _session(name: str, notebook: NotebookNode, parameters: dict, root: Path, timeout: float, scratch: Path):
    cells = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    tagged = next(cell.id for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    cells.insert(cells.index(tagged) + 1, engine.INJECTED)
    report = scratch / "progress.json"
    environment = engine.environment(
        root,
        BENCH_PROGRESS=str(report),
        IPYTHONDIR=str(scratch / "ipython"),  # a reader's own start-up files change no report
    )
    known = _timings(name, root).get(str(parameters.get("profile")), {}).get("cells", {})
    return engine.Session(root, scratch, timeout, environment, Progress(name, cells, known, report))


def _timings(name: str, root: Path) -> dict[str, Any]:
    """Wall times of the last run of each profile: {profile: {"cells": {id: seconds}, "total": seconds}}."""
    try:
        return store.read_json(root / "reports/timings" / f"{name}.json")
    except (OSError, ValueError):
        return {}  # a first run, or a file that is only worth an estimate


def _remember(name: str, parameters: dict[str, Any], progress: Progress, root: Path) -> None:
    cells = {cell: round(seconds, 3) for cell, seconds in progress.seconds.items()}
    entry = {str(parameters.get("profile")): {"cells": cells, "total": round(progress.total, 3)}}
    store.write_json(root / "reports/timings" / f"{name}.json", _timings(name, root) | entry)


def _clear(declared: Stage, root: Path) -> None:
    """Remove what an earlier run showed, so that no figure outlives the cell that made it."""
    shown = [root / out for out in declared.outs if out.startswith("reports/")]  # data may be what it resumes from
    for path in [*shown, root / "reports/failed" / f"{declared.name}.ipynb"]:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)


def _keep(notebook: NotebookNode, name: str, root: Path) -> str:
    path = store.write_text(root / "reports/failed" / f"{name}.ipynb", clean.to_text(notebook))
    return path.relative_to(root).as_posix()


def _publish(declared: Stage, notebook: NotebookNode, root: Path) -> Path:
    from lib.page import html  # imported late: a lesson that fails needs no page

    name = declared.name
    target, page = root / "reports/notebooks" / f"{name}.ipynb", root / "reports" / f"{name}.html"
    absent = [out for out in declared.outs if root / out not in (target, page) and not (root / out).exists()]
    if absent:
        raise RunError(
            f"{name} ran to its end without making {', '.join(absent)}; its last cells must call "
            f"lesson.finish(...)\nexecuted notebook: {_keep(notebook, name, root)}"
        )
    try:
        rendered = html.page(notebook, root / "notebooks", name)
    except html.ReportError as error:
        kept = _keep(notebook, name, root)
        raise RunError(f"{name} ran, but its page was refused: {error}\nexecuted notebook: {kept}") from error
    store.write_text(target, clean.to_text(notebook))
    return store.write_text(page, rendered)


def _explain(failure: engine.CellFailure, session: engine.Session, name: str, root: Path) -> str:
    """The failing cell, the end of its traceback, and where to look on."""
    notebook = scrub(session.notebook, root)
    source = notebook.cells[failure.place].source.splitlines()
    number = sum(cell.cell_type == "code" for cell in notebook.cells[: failure.place + 1])
    excerpt = [f"    {line}" for line in source[:EXCERPT]] + (["    ..."] if len(source) > EXCERPT else [])
    lines = [f"{name}: code cell {number} failed: {failure.reason}", *excerpt]
    if failure.traceback:
        trace = _ANSI.sub("", Scrubber(root).text(failure.traceback)).rstrip().splitlines()
        lines += ["", *(["..."] if len(trace) > TRACEBACK else []), *trace[-TRACEBACK:]]
    return "\n".join([*lines, "", f"half-executed notebook: {_keep(notebook, name, root)}"])
