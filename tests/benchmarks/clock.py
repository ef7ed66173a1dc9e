"""How benchmarks measure: two ways of doing the same work take turns in one run, and their ratio counts.

A ratio says the same on a fast and on a slow machine; seconds do not. What else runs on the machine only ever slows a
round, and in turns it slows both ways alike. So the best round of each way counts, and where the ratio misses its goal
more rounds are taken: noise goes away with more rounds, a slower program does not.

`BENCH_SCALE=0.1` (make bench-quick, a part of make test) does a tenth of the work. So few repeats tell less, so the
goals are relaxed by RELAXED: what fails then is not a little slower, it has lost its idea.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

SCALE = float(os.environ.get("BENCH_SCALE") or 1.0)
RELAXED = 0.5  # share of a goal that must be reached when BENCH_SCALE is below 1
ROUNDS = 3  # of each way, after one that warms up
MOST_ROUNDS = 12  # where the ratio misses its goal


def scale(count: int, least: int = 1) -> int:
    """How many repeats, or cases, of `count` there are in a run of this scale."""
    return max(least, round(count * SCALE))


def relax(goal: float) -> float:
    """The ratio that must be reached at least, in a run of this scale."""
    return goal * RELAXED if SCALE < 1 else goal


def relax_limit(limit: float) -> float:
    """The ratio that may be reached at most, in a run of this scale."""
    return limit / RELAXED if SCALE < 1 else limit


@dataclass(frozen=True)
class Comparison:
    """Seconds of the best round of two ways, for a unit of work each."""

    slow: float
    fast: float

    @property
    def ratio(self) -> float:
        return self.slow / self.fast


def compare(
    run_slow: Callable[[], object],
    run_fast: Callable[[], object],
    goal: float,
    units: tuple[float, float] = (1, 1),
    rounds: int = ROUNDS,
) -> Comparison:
    """Time two ways in turns.

    Args:
        run_slow: One round of the slow way.
        run_fast: One round of the fast way.
        goal: The ratio to reach; while it is missed, more rounds are taken, up to MOST_ROUNDS (all scaled).
        units: Work that a round of the slow and of the fast way does, where they do not do equally much.
        rounds: How many are taken in any case, after one that warms up.

    Returns:
        Seconds of the best rounds, per unit.
    """
    run_slow()
    run_fast()
    slow, fast = float("inf"), float("inf")
    for number in range(MOST_ROUNDS):
        slow = min(slow, time_once(run_slow) / units[0])
        fast = min(fast, time_once(run_fast) / units[1])
        if number + 1 >= scale(rounds, least=2) and slow >= goal * fast:
            break
    return Comparison(slow, fast)


def time_once(run: Callable[[], object]) -> float:
    """Seconds of wall time that one run takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
