"""What a warm sandbox is worth: one worker for many calls, each in a session of its own.

A call is a message to the worker process and one back, and a session in it; a worker of its own is a process started
on top. Two fifths of a warm call are pydantic-monty's search for opentelemetry, which is not installed: it looks
through all folders of the path, four times a call. So the ratio depends on how fast the machine looks up files and
starts processes; on one virtual machine we measured 8 to 36 on a day, 8 with others beside. Goal: ten times as many
calls in a warm sandbox.
"""

from lib.tools import Result, Sandbox
from tests.benchmarks.clock import compare, relax, scale

CODE = "print(17 * 23)\nsum(range(10))"
RESULT = Result("391\n45")
GOAL = 10.0
WARM_CALLS, COLD_CALLS = 200, 5  # in a round


def test_a_warm_sandbox_is_many_times_as_fast_as_one_for_each_call():
    with Sandbox() as sandbox:
        assert sandbox.run(CODE) == RESULT
        warm_calls, cold_calls = scale(WARM_CALLS), scale(COLD_CALLS)

        def run_in_warm_sandbox():
            for _ in range(warm_calls):
                sandbox.run(CODE)

        def run_with_a_worker_for_each():
            for _ in range(cold_calls):
                with Sandbox() as cold:
                    cold.run(CODE)

        goal = relax(GOAL)
        times = compare(
            run_with_a_worker_for_each, run_in_warm_sandbox, goal, (cold_calls, warm_calls), 5
        )
    print(
        f"\nwarm {1 / times.fast:,.0f} calls a second, a worker for each {1 / times.slow:,.0f}: {times.ratio:.1f}x"
    )
    assert times.ratio >= goal
