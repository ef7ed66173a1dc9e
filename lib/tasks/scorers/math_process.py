"""Comparisons of mathematical expressions in a process of their own.

math-verify bounds its time with signals, which work in the main thread only and cannot stop Python in the middle of one
long multiplication. So it runs in another process, one for all comparisons, which is ended where it overstays and
started again for the next one. Model-written text is parsed there, never evaluated as Python.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MEMORY = 2 << 30  # bytes of address space, where the platform has such a limit
# In this time the process has to have imported math-verify, also on a busy machine.
_START_SECONDS = 60.0
_MAX_LENGTH = 2_000  # characters of an expression


@dataclass(frozen=True)
class ExpressionComparison:
    """What came of a comparison.

    Attributes:
        equal: Whether the answer equals one of the references.
        parsed: The answer as it was parsed; None where it could not be.
        failure: Why there is no result, as "kind: detail".
    """

    equal: bool = False
    parsed: str | None = None
    failure: str | None = None


class MathProcess:
    """A process that compares expressions; it starts with the first comparison and ends with this object.

    Calls of several threads wait for each other.

    Args:
        seconds: How long one comparison may take.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __reduce__(self):
        return MathProcess, (self.seconds,)

    def compare(
        self, references: Sequence[str], answer: str, is_expression: bool = True
    ) -> ExpressionComparison:
        """Compares a mathematical answer with references in the process, which is started where it does not run.

        Args:
            references: Expressions in LaTeX; it is enough that the answer equals one of them.
            answer: An expression, or a text that holds one.
            is_expression: Whether the answer is nothing but an expression.

        Returns:
            Whether it is equal, or the failure where the comparison took too long. A very long answer equals nothing.
        """
        if len(answer) > _MAX_LENGTH:
            return ExpressionComparison()
        request = {"references": list(references), "answer": answer, "is_expression": is_expression}
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            line = self._exchange(json.dumps(request), self.seconds)
            if line:
                return ExpressionComparison(**json.loads(line))
            # No answer came in time, and the process was ended; the next comparison starts another.
            self.close()
        return ExpressionComparison(
            failure=f"timeout: math-verify did not compare {answer[:80]!r} within {self.seconds:g} seconds"
        )

    def close(self) -> None:
        """End the process, if there is one. The next comparison would start another."""
        if self._process is not None:
            _end(self._process)
        self._process = None

    def _start(self) -> None:
        """Start the process and wait until it is ready; a RuntimeError where it does not start."""
        # By its file, so that nothing of this package is imported there.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py")), str(_MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        weakref.finalize(self, _end, self._process)
        if not self._exchange("", _START_SECONDS):
            self.close()
            raise RuntimeError(
                "the process for math-verify does not start; `pip install 'math-verify>=0.9'` brings what it needs"
            )

    def _exchange(self, line: str, seconds: float) -> str:
        """Sends a line to the process and waits for the line that it answers.

        Args:
            line: A request as JSON; an empty one asks whether the process is ready.
            seconds: How long to wait; then the process is ended.

        Returns:
            The answer; empty where the process ended or was ended.
        """
        process = self._process
        assert process is not None and process.stdin and process.stdout
        # Ending the process closes its pipe, which ends the wait, on every platform and in every thread.
        watchdog = threading.Timer(seconds, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        except (OSError, ValueError):
            return ""
        finally:
            watchdog.cancel()


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process, wait for its end, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()
