"""What a warm sandbox is worth: one worker for many calls, each in a session of its own.

Goals: a thousand small calls a second, and ten times as many as with a worker started for each.
"""

import time
from collections.abc import Callable

from lib.tools import Result, Sandbox

CODE = "print(17 * 23)\nsum(range(10))"
RESULT = Result("391\n45")
PER_SECOND = 1_000  # calls of a warm sandbox
TIMES = 10.0  # as many as with a worker for each
ROUNDS = 5  # of which the best counts: others use the machine too


def rate(calls: int, called: Callable[[], object]) -> float:
    """Calls per second, in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            called()
        best = min(best, time.perf_counter() - began)
    return calls / best


def alone() -> None:
    with Sandbox() as sandbox:
        assert sandbox.run(CODE) == RESULT


def test_a_warm_sandbox_is_many_times_as_fast_as_one_for_each_call():
    with Sandbox() as sandbox:
        assert sandbox.run(CODE) == RESULT
        warm = rate(200, lambda: sandbox.run(CODE))
    cold = rate(5, alone)
    print(f"\nwarm {warm:,.0f} calls a second, a worker for each {cold:,.0f}: {warm / cold:.1f}x")
    assert warm >= TIMES * cold and warm >= PER_SECOND
