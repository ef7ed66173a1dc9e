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

from lib.tools.split_last_expression import split
from lib.tools.tool import encodes
from lib.tools.worker import REMEDY, SandboxUnavailable, Worker

__all__ = ["Kind", "Limits", "Result", "Sandbox", "SandboxUnavailable"]

Kind = Literal[
    "", "syntax", "exception", "timeout", "memory", "recursion", "crash", "flood", "refused"
]
MORE = "\n[... cut]"  # stands where text was cut
_ERROR = 300  # characters of an error's message
_LAST = "_last_value_"  # a name in the sandbox
_LONGEST = 1e6  # seconds of a limit: clocks and the system's limits take no more
_LIMIT = re.compile(  # in Monty's words
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
    """What one call may use."""

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
            if isinstance(self.__dataclass_fields__[name].default, int) and not isinstance(
                value, int
            ):
                raise ValueError(f"the limit {name!r} must be a whole number, not {value!r}")
        if self.seconds + self.grace > _LONGEST or max(self.memory, self.address) >= 2**63:
            raise ValueError(f"limits may have {_LONGEST:g} seconds and 2**63 bytes, not {self}")


@dataclass(frozen=True)
class Result:
    """What became of a piece of code.

    text: what it printed, then the value of its last expression, as in a notebook; ok: whether it came to
    its end; error: what went wrong, in a line; kind: which kind of thing that was.
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
        """Run code in a fresh session. Raises SandboxUnavailable where no sandbox works here, and nothing else."""
        if len(code) > self.limits.code:
            return _failed(
                "refused", f"code of {len(code):_} characters; {self.limits.code:_} are allowed"
            )
        if not encodes(code):
            return _failed("refused", "code with half a surrogate pair, which is no text")
        code = code.removeprefix("\ufeff")  # a byte order mark is no code
        with self._lock:
            warm = self._worker is not None
            try:
                return self._run(code)
            except SandboxUnavailable:
                if not warm:
                    raise
                return self._run(
                    code
                )  # the worker had ended since the last call; this is a new one

    def _run(self, code: str) -> Result:
        limits, began, fit = self.limits, time.monotonic(), False
        if not (self._worker and self._worker.usable):
            self.close()
            self._worker = Worker(limits.seconds + limits.grace, limits.address)
        worker = self._worker
        printed = _Printed(worker, limits)
        try:
            with worker.watched(limits.seconds + limits.grace) as watch:
                try:
                    result = Result(printed.text(self._value(worker, code, printed)))
                except SandboxUnavailable:
                    raise
                except Exception as error:  # whatever code can bring about comes back as a result
                    overdue = watch.bitten or time.monotonic() - began >= limits.seconds
                    result = self._judged(error, printed, overdue)
            # time and memory stop Monty in the middle of something, so its worker is not used again
            fit = result.kind in ("", "syntax", "exception", "recursion")
        finally:
            worker.used += time.monotonic() - began
            if not fit:  # also where the host is interrupted
                self.close()
        return result

    def _value(self, worker: Worker, code: str, printed: _Printed) -> str | None:
        """Run the code; the value of its last expression as text, None without one.

        The sandbox turns the value into text. The value itself must not come here: a set around a tuple
        that holds one tuple twice, forty levels deep, would keep this process busy for hours with its hash.
        """
        from pydantic_monty import MontySyntaxError

        found = split(code)
        if found:
            before, last = found
            with contextlib.suppress(MontySyntaxError), self._session(worker) as session:
                _finished(session, f"{_LAST} = None\n{before}{_LAST} = ({last}\n)\n", printed)
                wanted = f"None if {_LAST} is None else f'{{{_LAST}!r}}'[:{self.limits.output + 1}]"
                return _finished(session, wanted, printed).output
            printed.clear()  # the last statement was no expression: once more from the start, as it was written
        with self._session(worker) as session:
            _finished(session, code, printed)
        return None

    @contextlib.contextmanager
    def _session(self, worker: Worker) -> Iterator[Any]:
        """A fresh session. Raises SandboxUnavailable where the worker has died since the last call."""
        limits = {
            "max_feed_duration_secs": self.limits.seconds,
            "max_memory": self.limits.memory,
            "max_recursion_depth": self.limits.recursion,
            "max_suspensions": _SUSPENSIONS,
            "max_total_sleep_secs": 0.0,
        }
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(worker.session(limits=limits, os_policy=_POLICY))
            except Exception as error:
                raise SandboxUnavailable(
                    f"the worker of pydantic_monty does not answer ({error}); {REMEDY}"
                ) from error
            yield session

    def _judged(self, error: Exception, printed: _Printed, overdue: bool) -> Result:
        """What went wrong. Only errors that are the code's own are told in their own words: others count time."""
        import pydantic_monty

        limits, text = self.limits, printed.text()
        inner = error.exception() if isinstance(error, pydantic_monty.MontyRuntimeError) else None
        if printed.flooded:
            return _failed("flood", f"printed more than {limits.flood:_} characters", text)
        if overdue and (inner is None or isinstance(inner, TimeoutError)):
            return _failed("timeout", f"no end within {limits.seconds:g} seconds", text)
        own = inner is None or not _by_limit(error, inner)
        if isinstance(inner, MemoryError) and not own:
            return _failed("memory", f"more than {limits.memory:_} bytes of memory", text)
        if isinstance(inner, RecursionError) and not own:
            return _failed(
                "recursion", f"more than {limits.recursion} calls within one another", text
            )
        if isinstance(error, pydantic_monty.MontySyntaxError):
            return _failed("syntax", str(error), text)
        if inner is not None:
            return _failed("exception", str(error), text)
        return _failed("crash", "the interpreter crashed", text)


class _Printed:
    """Collects what code prints, as far as there is room, and stops code that prints without end."""

    def __init__(self, worker: Worker, limits: Limits):
        self.flooded = False
        self._worker, self._limits = worker, limits
        self._parts: list[str] = []
        self._count = 0

    def __call__(self, stream: str, text: str) -> None:
        room = self._limits.output + 1 - self._count
        if room > 0:
            self._parts.append(text[:room])
        self._count += len(text)
        if self._count > self._limits.flood and not self.flooded:
            self.flooded = True
            self._worker.kill()  # Monty would let it run on to its time limit

    def clear(self) -> None:
        self._parts, self._count = [], 0

    def text(self, value: str | None = None) -> str:
        """What was printed, then a value, if there is one; with a note where it was cut."""
        longest, text = self._limits.output, "".join(self._parts)
        if value is not None:
            text += "\n" if text and not text.endswith("\n") else ""
            text += value
        text = text.removesuffix("\n")
        return text if len(text) <= longest else text[:longest] + MORE


def _finished(session: Any, program: str, printed: _Printed) -> Any:
    """Run a program to its end. What it asks of its host on the way is denied: nothing is handed in to answer with."""
    from pydantic_monty import MontyComplete

    turn = session.feed_start(program, print_callback=printed)
    while not isinstance(turn, MontyComplete):
        turn = turn.resume_auto()
    return turn


def _by_limit(error: Any, inner: BaseException) -> bool:
    """Whether Monty raised an error, not the code: it marks the place, but for a `raise` the code's own."""
    shown = [
        line
        for line in error.display("traceback").splitlines()
        if not line.startswith("  [Previous line")
    ]
    return bool(_LIMIT.fullmatch(str(inner))) and (
        not error.traceback() or set(shown[-2].strip()) <= {"~"}
    )


def _failed(kind: Kind, error: str, text: str = "") -> Result:
    return Result(text, False, error if len(error) <= _ERROR else error[:_ERROR] + MORE, kind)
