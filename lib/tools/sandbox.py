"""Running Python that a model wrote, in `pydantic-monty`, or refusing to.

Each call has a session of its own in a warm worker process (`lib.tools.worker`), so nothing is carried from
one call to the next. The code gets no files, no environment, no network, a clock that stands still and
random numbers from a fixed seed: equal code gives equal results. Whatever it does comes back as a `Result`;
the only exception is `SandboxUnavailable`, where there is no sandbox to run in. There is no other way of
running code in this room, and no fallback.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lib.tools.split_last_expression import split_last_expression
from lib.tools.tool import is_encodable
from lib.tools.worker import REMEDY, SandboxUnavailable, Worker

__all__ = ["Kind", "Limits", "Result", "Sandbox", "SandboxUnavailable"]

Kind = Literal[
    "", "syntax", "exception", "timeout", "memory", "recursion", "crash", "flood", "refused"
]
MORE = "\n[... cut]"  # stands where text was cut
_ERROR = 300  # characters of an error's message
_LAST = "_last_value_"  # a name in the sandbox
_LONGEST = 1e6  # seconds of a limit: clocks and the system's limits take no more
# The messages with which Monty ends code that reached a limit.
_LIMIT = re.compile(
    r"memory limit exceeded: \d+ bytes > \d+ bytes|maximum recursion depth exceeded|"
    "the worker exceeded its memory limit and was terminated"
)
_SUSPENSIONS = 1_000  # requests of the code to its host, all of which are denied
_POLICY = {
    "datetime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "timezone": "utc",
    "sleep": "zero",
    "process_time": "zero",
    "random_start": {"seed": 0},
}


@dataclass(frozen=True)
class Limits:
    """What one call may use.

    Raises:
        ValueError: A limit is not above 0, infinite, or not whole where it counts something.
    """

    seconds: float = 1.0  # of interpretation, by Monty's clock
    grace: float = 0.5  # seconds more, by the host's clock, before the worker is killed
    memory: int = 32 << 20  # bytes of the interpreter's heap
    address: int = 1 << 30  # bytes of the whole process, where the platform has such a limit
    recursion: int = 500  # calls within one another
    code: int = 16_384  # characters of code
    output: int = 4_000  # characters of text that come back; the rest is cut
    flood: int = 1_000_000  # characters printed, after which the code is stopped

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"the limit {name!r} must be above 0 and finite, not {value!r}")
            # A limit whose default is an integer counts something.
            counts = isinstance(self.__dataclass_fields__[name].default, int)
            if counts and not isinstance(value, int):
                raise ValueError(f"the limit {name!r} must be a whole number, not {value!r}")
        too_long = self.seconds + self.grace > _LONGEST
        too_large = max(self.memory, self.address) >= 2**63
        if too_long or too_large:
            raise ValueError(f"limits may have {_LONGEST:g} seconds and 2**63 bytes, not {self}")


@dataclass(frozen=True)
class Result:
    """What became of a piece of code.

    Attributes:
        text: What it printed, then the value of its last expression, as in a notebook.
        ok: Whether it came to its end.
        error: What went wrong, in a line.
        kind: Which kind of error that was.
    """

    text: str
    ok: bool = True
    error: str = ""
    kind: Kind = ""


class Sandbox:
    """Runs code within limits. A context manager; the worker starts with the first call.

    Made for one thread; calls of several wait for each other. A copy that is pickled into another process
    starts a worker of its own there. A process forked after the first call has no sandbox.
    """

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def __reduce__(self):
        return Sandbox, (self.limits,)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker, if there is one. The next call would start another."""
        if self._worker:
            self._worker.close()
        self._worker = None

    def run(self, code: str) -> Result:
        """Runs code in a fresh session.

        Args:
            code: A Python program.

        Returns:
            What it printed and its last value, or the kind of error and a message.

        Raises:
            SandboxUnavailable: No sandbox works here. Whatever goes wrong in the code is in the result.
        """
        if len(code) > self.limits.code:
            return _make_failure(
                "refused", f"code of {len(code):_} characters; {self.limits.code:_} are allowed"
            )
        if not is_encodable(code):
            return _make_failure("refused", "code with half a surrogate pair, which is no text")
        # A byte order mark is no code.
        code = code.removeprefix("\ufeff")
        with self._lock:
            had_worker = self._worker is not None
            try:
                return self._run_in_worker(code)
            except SandboxUnavailable:
                if not had_worker:
                    raise
                # The worker had ended since the last call; this starts a new one.
                return self._run_in_worker(code)

    def _run_in_worker(self, code: str) -> Result:
        """Runs code in the worker process, which is started first where there is none; a failed one is closed.

        Args:
            code: A Python program.

        Returns:
            Its output, or the kind of error and a message.
        """
        limits = self.limits
        started = time.monotonic()
        if not (self._worker and self._worker.usable):
            self.close()
            self._worker = Worker(limits.seconds + limits.grace, limits.address)
        worker = self._worker
        output = _Output(worker, limits)
        reusable = False
        try:
            with worker.watch(limits.seconds + limits.grace) as watch:
                try:
                    result = Result(output.format_text(self._evaluate(worker, code, output)))
                except SandboxUnavailable:
                    raise
                except Exception as error:  # whatever code can bring about comes back as a result
                    overdue = watch.has_killed or time.monotonic() - started >= limits.seconds
                    result = self._explain_failure(error, output, overdue)
            # Time and memory stop Monty in the middle of something, so its worker is not used again.
            reusable = result.kind in ("", "syntax", "exception", "recursion")
        finally:
            worker.seconds_used += time.monotonic() - started
            if not reusable:  # also where the host is interrupted
                self.close()
        return result

    def _evaluate(self, worker: Worker, code: str, output: _Output) -> str | None:
        """Runs code, and evaluates its last statement if that is an expression.

        The value becomes text inside the sandbox, because a nested value could keep this process busy for hours with
        its hash.

        Args:
            worker: The process that runs it.
            code: A Python program.
            output: Collects what it prints.

        Returns:
            The value as text; None where the last statement is no expression.
        """
        from pydantic_monty import MontySyntaxError

        split_code = split_last_expression(code)
        if split_code:
            code_before, last_expression = split_code
            program = f"{_LAST} = None\n{code_before}{_LAST} = ({last_expression}\n)\n"
            max_length = self.limits.output + 1
            value_as_text = f"None if {_LAST} is None else f'{{{_LAST}!r}}'[:{max_length}]"
            with contextlib.suppress(MontySyntaxError), self._open_session(worker) as session:
                _run_to_end(session, program, output)
                return _run_to_end(session, value_as_text, output).output
            # The last statement was no expression: once more from the start, as it was written.
            output.clear()
        with self._open_session(worker) as session:
            _run_to_end(session, code, output)
        return None

    @contextlib.contextmanager
    def _open_session(self, worker: Worker) -> Iterator[Any]:
        """Opens a fresh session of a worker, with the limits of the sandbox, inside a `with` block.

        Raises:
            SandboxUnavailable: The worker has died since the last call.
        """
        limits = {
            "max_feed_duration_secs": self.limits.seconds,
            "max_memory": self.limits.memory,
            "max_recursion_depth": self.limits.recursion,
            "max_suspensions": _SUSPENSIONS,
            "max_total_sleep_secs": 0.0,
        }
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(worker.open_session(limits=limits, os_policy=_POLICY))
            except Exception as error:
                raise SandboxUnavailable(
                    f"the worker of pydantic_monty does not answer ({error}); {REMEDY}"
                ) from error
            yield session

    def _explain_failure(self, error: Exception, output: _Output, overdue: bool) -> Result:
        """Finds out what kind of failure ended the code.

        Only errors of the code itself keep their message. Those of limits name times and sizes that differ from run
        to run, and equal code gives equal results.

        Args:
            error: What was raised.
            output: What the code had printed until then.
            overdue: Whether its time had run out.
        """
        import pydantic_monty

        limits = self.limits
        text = output.format_text()
        # The exception that the code raised, or Monty in its name; None where Monty itself failed.
        exception = None
        if isinstance(error, pydantic_monty.MontyRuntimeError):
            exception = error.exception()

        if output.flooded:
            return _make_failure("flood", f"printed more than {limits.flood:_} characters", text)
        if overdue and (exception is None or isinstance(exception, TimeoutError)):
            return _make_failure("timeout", f"no end within {limits.seconds:g} seconds", text)
        hit_limit = exception is not None and _is_from_limit(error, exception)
        if isinstance(exception, MemoryError) and hit_limit:
            return _make_failure("memory", f"more than {limits.memory:_} bytes of memory", text)
        if isinstance(exception, RecursionError) and hit_limit:
            return _make_failure(
                "recursion", f"more than {limits.recursion} calls within one another", text
            )
        if isinstance(error, pydantic_monty.MontySyntaxError):
            return _make_failure("syntax", str(error), text)
        if exception is not None:
            return _make_failure("exception", str(error), text)
        return _make_failure("crash", "the interpreter crashed", text)


class _Output:
    """Collects what code prints, as far as there is room, and stops code that prints without end."""

    def __init__(self, worker: Worker, limits: Limits):
        self.flooded = False
        self._worker = worker
        self._limits = limits
        self._texts: list[str] = []
        self._num_printed = 0  # characters

    def __call__(self, stream: str, text: str) -> None:
        # One character more than comes back, so that a cut is noticed.
        num_remaining = self._limits.output + 1 - self._num_printed
        if num_remaining > 0:
            self._texts.append(text[:num_remaining])
        self._num_printed += len(text)
        if self._num_printed > self._limits.flood and not self.flooded:
            self.flooded = True
            self._worker.kill()  # Monty would let it run on to its time limit

    def clear(self) -> None:
        self._texts = []
        self._num_printed = 0

    def format_text(self, value: str | None = None) -> str:
        """Joins what was printed and a value to one text, cut at the limit of characters.

        Args:
            value: Value of the last expression; None where there is none.
        """
        text = "".join(self._texts)
        if value is not None:
            if text and not text.endswith("\n"):
                text += "\n"
            text += value
        text = text.removesuffix("\n")
        max_length = self._limits.output
        return text if len(text) <= max_length else text[:max_length] + MORE


def _run_to_end(session: Any, program: str, output: _Output) -> Any:
    """Runs a program to its end. What it asks of its host on the way is denied: nothing is handed in to answer with."""
    from pydantic_monty import MontyComplete

    state = session.feed_start(program, print_callback=output)
    while not isinstance(state, MontyComplete):
        state = state.resume_auto()
    return state


def _is_from_limit(error: Any, exception: BaseException) -> bool:
    """Whether an error comes from one of the sandbox's limits; code may raise the same exception itself.

    Args:
        error: Monty's error, with its traceback.
        exception: The Python exception in it.
    """
    if not _LIMIT.fullmatch(str(exception)):
        return False
    if not error.traceback():
        return True
    # Monty underlines the expression that hit a limit with ~; a `raise` of the code has no such line.
    lines = error.display("traceback").splitlines()
    lines = [line for line in lines if not line.startswith("  [Previous line")]
    return set(lines[-2].strip()) <= {"~"}


def _make_failure(kind: Kind, error: str, text: str = "") -> Result:
    shortened = error if len(error) <= _ERROR else error[:_ERROR] + MORE
    return Result(text, ok=False, error=shortened, kind=kind)
