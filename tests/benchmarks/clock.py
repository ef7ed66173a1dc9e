"""Time, as the benchmarks take it."""

import time


def seconds(play, rounds: int = 3) -> float:
    """The best of some rounds after one that warms up."""
    best = float("inf")
    for number in range(rounds + 1):
        began = time.perf_counter()
        play()
        best = min(best, time.perf_counter() - began) if number else best
    return best
