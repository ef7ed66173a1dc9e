"""Drive one kernel through one notebook: papermill on top, nbclient below, our rules between.

The kernel always runs this interpreter, in the repository root, with one thread and a fixed
environment, and dies with the runner. A cell that fails, hangs or loses its kernel ends the run with
a `CellFailure` that knows which cell it was; whatever the kernel started ends with it. Left out: where a
notebook comes from and what becomes of it.
"""

import contextlib
import logging
import os
import pprint
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from papermill.engines import Engine, papermill_engines
from papermill.execute import execute_notebook
from papermill.translators import PythonTranslator, papermill_translators
from traitlets import Instance

from lib.reports.execute.progress import Progress

ENGINE = "bench"
INJECTED = "injected-parameters"
START_TIMEOUT = 120  # seconds for a kernel to say hello; a cold disk is slow
GRACE = 1.0  # seconds between an interrupt and the end
CLEARING = 5.0  # seconds that clearing shared memory may take
LONGEST = 103  # bytes of a socket's path: macOS takes the fewest
FIXED_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    "COLUMNS": "100",
    "TZ": "UTC",
    "BENCH_RUN": "1",  # nobody is watching: no widgets, no questions
}


def scratch_place() -> str:
    """The folder for a run's own: the usual one, or /tmp where the paths of sockets in it would be too long.

    Raises OSError where neither will do.
    """
    usual = tempfile.gettempdir()
    for place in (usual, "/tmp"):
        if len(
            os.fsencode(f"{place}/bench-xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx")
        ) <= LONGEST and os.access(place, os.W_OK):
            return place
    raise OSError(
        f"the path of the folder for temporary files is too long for a socket, {usual}; set TMPDIR"
    )


class KernelStartError(Exception):
    """A kernel that never said hello."""


class CellFailure(Exception):
    """A cell that raised, took too long, or took its kernel along; `place` counts all cells from 0."""

    def __init__(self, place: int, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.place, self.reason, self.traceback = place, reason, traceback


@dataclass
class Session:
    """One execution: its limits, its environment, and the notebook as far as it got.

    scratch: a folder that lives as long as the run; timeout: seconds per cell.
    """

    root: Path
    scratch: Path
    timeout: float
    environment: dict[str, str]
    progress: Progress
    notebook: nbformat.NotebookNode | None = None


class _ThisInterpreter(KernelSpecManager):
    """Whatever kernel a notebook names: the interpreter that runs us."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", "lib.reports.execute.kernel", "-f", "{connection_file}"]
        # output of child processes goes to the terminal: in a notebook its order would be chance
        return KernelSpec(
            argv=[*argv, "--IPKernelApp.capture_fd_output=False"],
            display_name="Python 3",
            language="python",
        )


class _Client(NotebookClient):
    session = Instance(Session)
    _process = None

    def create_kernel_manager(self) -> AsyncKernelManager:
        # sockets in our own scratch folder: no ports to collide, nothing left in the user's runtime folder
        scratch = self.session.scratch
        self.km = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=_ThisInterpreter(),
            transport="ipc",
            ip=str(scratch / "k"),
            connection_file=str(scratch / "kernel.json"),
        )
        return self.km

    def run(self) -> None:
        """Start the kernel, run all code cells, stop the kernel whatever happens."""
        with contextlib.ExitStack() as stack:
            stack.callback(
                self._end_kernel
            )  # runs last, after the polite shutdown, and where the start is cut off
            try:
                stack.enter_context(
                    self.setup_kernel(env=self.session.environment, cwd=str(self.session.root))
                )
            except RuntimeError as error:
                reason = f"the kernel did not start ({error}); `make doctor` looks for reasons"
                raise KernelStartError(reason) from error
            self._process = (
                self.km.provisioner.process
            )  # provisioners forget it when they shut down
            self._run_cells(self._process)

    def _end_kernel(self) -> None:
        provisioner = self.km.provisioner if self.km is not None else None
        _kill_group(self._process or getattr(provisioner, "process", None))

    def _run_cells(self, process) -> None:
        progress = self.session.progress
        for place, cell in enumerate(self.nb.cells):
            if cell.cell_type != "code":
                continue
            progress.begin(cell["id"])
            try:
                self.execute_cell(cell, place)
            except CellExecutionError as error:
                raise CellFailure(
                    place, f"{error.ename}: {error.evalue}", error.traceback
                ) from None
            except CellTimeoutError:
                raise CellFailure(
                    place, f"no result after {self.session.timeout:g} s (--timeout)"
                ) from None
            except DeadKernelError:
                raise CellFailure(place, _death(process)) from None
            except (KeyboardInterrupt, SystemExit):
                _let_go(process)
                raise
            finally:
                progress.end(cell["id"])


def _let_go(process) -> None:
    """Interrupt the cell and give its `finally` blocks a moment before the kernel is killed."""
    logging.getLogger("asyncio").setLevel(
        logging.CRITICAL
    )  # it would report the cell that nobody awaits now
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(GRACE)


def _death(process) -> str:
    code = process.poll()
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = " (perhaps memory ran out)" if name == "SIGKILL" else ""
        return f"the kernel died, killed by {name}{hint}; run again, finished work is kept"
    return f"the kernel died with exit status {code}; run again, finished work is kept"


def _kill_group(process) -> None:
    """End the kernel and all that it started: it leads a process group of its own.

    Processes that keep account of shared memory go last: they clear it as soon as the others are gone.
    """
    if process is None or not hasattr(os, "killpg"):
        return
    deadline = time.monotonic() + CLEARING
    while (
        others := [pid for pid, accountant in _group(process.pid) if not accountant]
    ) and time.monotonic() < deadline:
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # or it would stay in the group, dead
        time.sleep(0.02)
    while _group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _group(leader: int) -> list[tuple[int, bool]]:
    """The living processes of a group, and whether each keeps account of shared memory."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process.pid, "resource_tracker" in " ".join(process.cmdline())))
    return found


class BenchEngine(Engine):
    """papermill's hook: run the parameterised notebook in our client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man, kernel_name, session: Session, **ignored: Any
    ) -> None:
        """Run all cells of `nb_man.nb`. Raises CellFailure or KernelStartError."""
        session.notebook = nb_man.nb
        for cell in session.notebook.cells:
            if INJECTED in cell.metadata.get("tags", []):
                cell["id"] = INJECTED  # papermill gives it a random one
        _Client(
            session.notebook,
            session=session,
            timeout=session.timeout,
            startup_timeout=START_TIMEOUT,
            coalesce_streams=True,  # how output is cut into messages differs between runs
            store_widget_state=False,
            record_timing=False,
            shutdown_kernel="immediate",
            resources={"metadata": {"path": str(session.root)}},
        ).run()


class _Readable(PythonTranslator):
    """Parameters as a reader would lay them out; papermill puts a whole mapping on one line."""

    @classmethod
    def codify(cls, parameters: dict[str, Any], comment: str = "Parameters") -> str:
        lines = [
            f"{name} = {pprint.pformat(value, width=100)}"
            for name, value in sorted(parameters.items())
        ]
        return "\n".join(["# set by the pipeline, from params.yaml", *lines]) + "\n"


papermill_engines.register(ENGINE, BenchEngine)
papermill_translators.register("python", _Readable)


def environment(root: Path, **extra: str) -> dict[str, str]:
    """What the kernel sees: this process's environment, pinned where it could change a result."""
    code = Path(__file__).resolve().parents[3]  # the same place, but for a test's small project
    paths = dict.fromkeys([str(root), str(code), os.environ.get("PYTHONPATH", "")])
    pinned = {**FIXED_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return {**os.environ, **pinned, **extra}


def execute(notebook: Path, parameters: dict[str, Any], session: Session) -> nbformat.NotebookNode:
    """Run `notebook` with `parameters`; the result is in `session.notebook` even when a cell fails.

    Raises CellFailure or KernelStartError.
    """
    execute_notebook(
        str(notebook),
        None,
        parameters=parameters,
        engine_name=ENGINE,
        kernel_name="python3",
        language="python",
        progress_bar=False,
        request_save_on_cell_execute=False,
        session=session,
    )
    return session.notebook
