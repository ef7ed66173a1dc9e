"""What a warm sandbox is worth: one worker for many calls, each in a session of its own.

Goals: a thousand small calls a second, and ten times as many as with a worker started for each.
"""

from collections.abc import Callable

from lib.tools import Result, Sandbox
from tests.benchmarks.clock import seconds

CODE = "print(17 * 23)\nsum(range(10))"
RESULT = Result("391\n45")
PER_SECOND = 1_000  # calls of a warm sandbox
TIMES = 10.0  # as many as with a worker for each


def rate(calls: int, called: Callable[[], object]) -> float:
    """Calls per second, in the best of some rounds."""
    return calls / seconds(lambda: [called() for _ in range(calls)], rounds=5)


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
