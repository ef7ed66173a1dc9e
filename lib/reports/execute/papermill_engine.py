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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import psutil
import zmq
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.v4 import output_from_msg
from papermill.engines import Engine, papermill_engines
from papermill.execute import execute_notebook
from papermill.translators import PythonTranslator, papermill_translators
from traitlets import Instance

from lib.reports.execute import output_limits
from lib.reports.execute.output_limits import CellOutputLimits
from lib.reports.execute.progress import Progress

ENGINE = "bench"
INJECTED = "injected-parameters"
SHOWING = ("display_data", "execute_result")  # messages with figures, tables, values
START_TIMEOUT = 120  # seconds for a kernel to say hello; a cold disk is slow
# Seconds that outputs of a finished cell may still be under way: many of them on a busy machine. nbclient's own 4 lost
# the end of ten thousand.
OUTPUT_TIMEOUT = 600
INTERRUPT_GRACE = 1.0  # seconds between an interrupt and the end
CLEANUP_TIMEOUT = 5.0  # seconds that clearing shared memory may take
MAX_SOCKET_PATH = 103  # bytes: macOS takes the fewest
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


def find_scratch_folder() -> str:
    """Finds a folder for temporary files in which paths of sockets are short enough.

    Returns:
        The usual folder, or /tmp.

    Raises:
        OSError: If neither will do.
    """
    usual_folder = tempfile.gettempdir()
    for folder in (usual_folder, "/tmp"):
        # The longest path that multiprocessing makes for a socket in a run's scratch folder.
        socket_path = f"{folder}/bench-xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx"
        if len(os.fsencode(socket_path)) <= MAX_SOCKET_PATH and os.access(folder, os.W_OK):
            return folder
    raise OSError(
        "the path of the folder for temporary files is too long for a socket, "
        f"{usual_folder}; set TMPDIR"
    )


class KernelStartError(Exception):
    """A kernel that never said hello."""


class CellFailure(Exception):
    """A cell that raised, took too long, or took its kernel along.

    Attributes:
        cell_index: Its index among all cells, from 0.
        reason: What went wrong, in one line.
        traceback: The traceback, where there is one.
    """

    def __init__(self, cell_index: int, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.cell_index = cell_index
        self.reason = reason
        self.traceback = traceback


@dataclass
class Session:
    """One execution of a notebook.

    Attributes:
        root: The project's folder, in which the kernel runs.
        scratch: A folder that lives as long as the run.
        timeout: Seconds per cell.
        environment: Environment variables of the kernel.
        progress: Follows the cells.
        notebook: The notebook as far as it was executed.
        announce_process: Is told the kernel's process id, for whoever clears up if this process is killed.
    """

    root: Path
    scratch: Path
    timeout: float
    environment: dict[str, str]
    progress: Progress
    notebook: nbformat.NotebookNode | None = None
    announce_process: Callable[[int], None] | None = None


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
    _limits = CellOutputLimits()  # of the cell that runs

    def create_kernel_manager(self) -> AsyncKernelManager:
        """Creates the manager of the kernel, which is this Python, with its sockets in the run's scratch folder."""
        # sockets in our own scratch folder: no ports to collide, nothing left in the user's runtime folder
        scratch = self.session.scratch
        self.km = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=_ThisInterpreter(),
            transport="ipc",
            ip=str(scratch / "k"),
            connection_file=str(scratch / "kernel.json"),
        )
        # By default a socket drops what comes too fast, and the end of a cell with it.
        self.km.context.setsockopt(zmq.RCVHWM, 0)
        return self.km

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Handles a message of the kernel as nbclient does, after limiting the size of its data.

        Args:
            msg: The message.
            cell: The cell that runs.
            cell_index: Its position.
        """
        content = msg["content"]
        if msg["msg_type"] in (*SHOWING, "update_display_data"):
            content["data"] = output_limits.limit_data(content["data"])
        elif msg["msg_type"] == "error":
            content["evalue"] = output_limits.cut_text(content["evalue"])
            content["traceback"] = [output_limits.cut_text(line) for line in content["traceback"]]
        return super().process_message(msg, cell, cell_index)

    def output(self, outs: list, msg: dict[str, Any], display_id: Any, cell_index: int) -> Any:
        """Adds an output to a cell as nbclient does, unless the cell has reached its limit of outputs.

        Args:
            outs: Outputs of the cell.
            msg: Message of the kernel.
            display_id: Id of an output that can be updated.
            cell_index: Position of the cell.
        """
        is_for_widget = bool(self.output_hook_stack[msg["parent_header"].get("msg_id")])
        if is_for_widget:
            return super().output(outs, msg, display_id, cell_index)
        if self.clear_before_next_output:
            self._limits.clear()
        content = msg["content"]
        if msg["msg_type"] == "stream":
            content["text"] = self._limits.take_text(content["name"], content["text"])
            is_kept = bool(content["text"])
        elif msg["msg_type"] in SHOWING:
            is_kept = self._limits.take_output(output_from_msg(msg))
        else:
            is_kept = True
        return super().output(outs, msg, display_id, cell_index) if is_kept else None

    def clear_output(self, outs: list, msg: dict[str, Any], cell_index: int) -> None:
        """As nbclient's; what comes after it counts anew."""
        super().clear_output(outs, msg, cell_index)
        if not outs:
            self._limits.clear()

    def run(self) -> None:
        """Starts the kernel, executes all code cells, and stops the kernel whatever happens.

        Raises:
            KernelStartError: The kernel did not start.
            CellFailure: A cell failed.
        """
        with contextlib.ExitStack() as stack:
            # Runs last, after the polite shutdown, and where the start is cut off.
            stack.callback(self._end_kernel)
            try:
                stack.enter_context(
                    self.setup_kernel(env=self.session.environment, cwd=str(self.session.root))
                )
            except RuntimeError as error:
                reason = f"the kernel did not start ({error}); `make doctor` looks for reasons"
                raise KernelStartError(reason) from error
            # Kept here, because provisioners forget their process when they shut down.
            self._process = self.km.provisioner.process
            if self.session.announce_process is not None:
                self.session.announce_process(self._process.pid)
            self._run_cells(self._process)

    def _end_kernel(self) -> None:
        provisioner = self.km.provisioner if self.km is not None else None
        _kill_group(self._process or getattr(provisioner, "process", None))

    def _run_cells(self, process) -> None:
        """Executes the code cells in order.

        Args:
            process: Process of the kernel.

        Raises:
            CellFailure: A cell raises an error, takes too long, or its kernel dies.
        """
        progress = self.session.progress
        for index, cell in enumerate(self.nb.cells):
            if cell.cell_type != "code":
                continue
            progress.begin(cell["id"])
            self._limits = CellOutputLimits()
            try:
                self.execute_cell(cell, index)
            except CellExecutionError as error:
                raise _describe_error(index, error) from None
            except CellTimeoutError:
                reason = f"no result after {self.session.timeout:g} s (--timeout)"
                raise CellFailure(index, reason) from None
            except DeadKernelError:
                raise CellFailure(index, _describe_death(process)) from None
            # The kernel is another process, which Ctrl-C here does not reach.
            except (KeyboardInterrupt, SystemExit):
                _interrupt_kernel(process)
                raise
            finally:
                self._limits.finish(cell.outputs)
                progress.end(cell["id"])


def _describe_error(index: int, error: CellExecutionError) -> CellFailure:
    """The failure of a cell that raised; a message may be as long as what it complains about."""
    half = output_limits.MAX_ERROR_CHARACTERS // 2
    reason = output_limits.cut_text(f"{error.ename}: {error.evalue}", half, half)
    return CellFailure(index, reason, output_limits.cut_text(error.traceback))


def _interrupt_kernel(process) -> None:
    """Interrupts the cell and gives its `finally` blocks a moment before the kernel is killed."""
    # asyncio would report the cell that nobody awaits any more.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(INTERRUPT_GRACE)


def _describe_death(process) -> str:
    exit_status = process.poll()
    if exit_status is not None and exit_status < 0:
        name = signal.Signals(-exit_status).name
        hint = " (perhaps memory ran out)" if name == "SIGKILL" else ""
        return f"the kernel died, killed by {name}{hint}; run again, finished work is kept"
    return f"the kernel died with exit status {exit_status}; run again, finished work is kept"


def _kill_group(process) -> None:
    """Kills the kernel's process and all processes that it started, which are in its process group.

    Resource trackers are killed last, because they clear shared memory once the others are gone.

    Args:
        process: Process of the kernel; None where it never started.
    """
    if process is None or not hasattr(os, "killpg"):
        return
    deadline = time.monotonic() + CLEANUP_TIMEOUT

    # Kill all but the trackers, again and again, because a process may have just started another.
    while time.monotonic() < deadline:
        workers = [pid for pid, is_tracker in _list_group(process.pid) if not is_tracker]
        if not workers:
            break
        for pid in workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # or it would stay in the group, dead
        time.sleep(0.02)

    # Give the trackers time to clear up, then kill them too.
    while _list_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _list_group(leader: int) -> list[tuple[int, bool]]:
    """Lists the living processes of a process group.

    Args:
        leader: Process id of its leader.

    Returns:
        (process id, whether it is a resource tracker) of each.
    """
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            in_group = os.getpgid(process.pid) == leader
            if in_group and process.status() != psutil.STATUS_ZOMBIE:
                is_tracker = "resource_tracker" in " ".join(process.cmdline())
                members.append((process.pid, is_tracker))
    return members


class BenchEngine(Engine):
    """papermill's hook: run the parameterised notebook in our client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man, kernel_name, session: Session, **ignored: Any
    ) -> None:
        """Executes all cells of a notebook; papermill calls it as the engine.

        Args:
            nb_man: Papermill's manager, with the notebook in `nb`.
            kernel_name: Ignored; the kernel is this Python.
            session: The run.
            ignored: Further options of papermill.

        Raises:
            CellFailure: A cell failed.
            KernelStartError: The kernel did not start.
        """
        session.notebook = nb_man.nb
        for cell in session.notebook.cells:
            if INJECTED in cell.metadata.get("tags", []):
                cell["id"] = INJECTED  # papermill gives it a random one
        _Client(
            session.notebook,
            session=session,
            timeout=session.timeout,
            startup_timeout=START_TIMEOUT,
            iopub_timeout=OUTPUT_TIMEOUT,
            raise_on_iopub_timeout=True,  # rather than a page without its last outputs
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


def make_environment(root: Path, **extra: str) -> dict[str, str]:
    """The kernel's environment variables: this process's, fixed where they could change a result, and `extra`."""
    code_folder = Path(__file__).resolve().parents[3]  # differs from root in a test's small project
    search_path = [str(root), str(code_folder), os.environ.get("PYTHONPATH", "")]
    search_path = [path for path in dict.fromkeys(search_path) if path]  # each once
    python_path = {"PYTHONPATH": os.pathsep.join(search_path)}
    return {**os.environ, **FIXED_ENVIRONMENT, **python_path, **extra}


def make_folder_variables(root: Path, scratch: Path) -> dict[str, str]:
    """Environment variables with the folders in which a kernel and its processes may write.

    None lies in the home folder, which may be missing or read-only: then matplotlib would warn with the name of a
    random folder, in the page. A reader's own start-up files and styles change no report either.

    Args:
        root: The project's folder.
        scratch: Goes with the run, and with it what is left there.
    """
    drawing_folder = root / "data/runs/matplotlib"  # finding all fonts takes seconds, so it stays
    try:
        drawing_folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        drawing_folder = scratch / "matplotlib"
    # Weights that somebody downloaded stay where Hugging Face and torch keep them.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return {
        "HF_HOME": os.environ.get("HF_HOME") or os.path.join(cache, "huggingface"),
        "TORCH_HOME": os.environ.get("TORCH_HOME") or os.path.join(cache, "torch"),
        "MPLCONFIGDIR": str(drawing_folder),
        "MATPLOTLIBRC": str(scratch),  # no file of styles is there
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "JUPYTER_CONFIG_DIR": str(scratch / "jupyter"),
        "JUPYTER_DATA_DIR": str(scratch / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "jupyter"),
        "JOBLIB_TEMP_FOLDER": str(scratch),
        "TMPDIR": str(scratch),
    }


def execute(notebook: Path, parameters: dict[str, Any], session: Session) -> nbformat.NotebookNode:
    """Runs a notebook.

    Args:
        notebook: Its path.
        parameters: Values for the names that its `parameters` cell assigns.
        session: Limits and environment; its `notebook` holds the result even when a cell fails.

    Returns:
        The executed notebook.

    Raises:
        CellFailure: If a cell raises, takes too long, or loses its kernel.
        KernelStartError: If the kernel does not start.
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
