"""Exercises of the scoreboard: robust means, pairwise strengths, and a verdict of one's own."""

from __future__ import annotations

from lib import stats
from lib.checks import Exercise, Exercises

SCORES = [0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.0]
GRID = [round(0.1 * i, 1) for i in range(-5, 6)]


def careful(low: float, high: float, margin: float) -> str:
    """What an interval of a difference says of the claim that it is more than `margin`."""
    if low > margin:
        return "holds"
    return "does not hold" if high <= margin else "open"


def hasty(low: float, high: float, margin: float) -> str:
    """The mistake: the middle of the interval decides."""
    return "holds" if (low + high) / 2 > margin else "does not hold"


def _is_careful(answer) -> bool | str:
    for low in GRID:
        for high in (value for value in GRID if value >= low):
            for margin in (0.0, 0.2):
                told = answer(low, high, margin)
                if told != careful(low, high, margin):
                    return f"for [{low}, {high}] and more than {margin} you say {told!r}"
    return True


EXERCISES = Exercises(
    Exercise(
        "09.1", "easy", 4,
        "Eight runs score 0, 0.2, 0.4, 0.5, 0.6, 0.8, 1 and 1. What is their interquartile mean? `stats.iqm` of `lib` "
        "computes it. Replace the 0 by -100 and compare with the plain mean.",
        hint="a quarter of eight is cut off at each end",
        answer=float(stats.iqm(SCORES)),
        worked="The middle four: (0.4 + 0.5 + 0.6 + 0.8) / 4. The outlier moves the mean to -11.9 and this not at all.",
        wrong=sum(SCORES) / 8, important=True,
    ),
    Exercise(
        "09.2", "medium", 6,
        "In a Bradley-Terry model A wins 3 of 4 comparisons with B, and B 3 of 4 with C. How often does A win "
        "against C?",
        hint="odds multiply: 3 to 1, and again 3 to 1",
        answer=0.9,
        worked="Odds of 9 to 1, hence 9 / 10: the model extrapolates to pairs that nobody compared.",
        wrong=0.75**2, tolerance=0.001,
    ),
    Exercise(
        "09.3", "hard", 12,
        "Write a judge: a function of low, high and margin, where [low, high] is the interval of a paired difference "
        "and "
        "the claim is that the difference is more than the margin. It returns `holds` where all of the interval "
        "agrees, "
        "`does not hold` where none of it does, and otherwise `open`.",
        hint="holds: low > margin; does not hold: high <= margin",
        answer=careful,
        worked="An interval that holds the margin settles nothing; to call that a failure is as wrong as to call it "
        "a success.",
        wrong=hasty, important=True, judge=_is_careful, start="answer = None  # a function of low, high and margin",
    ),
)  # fmt: skip
check, solution = EXERCISES.check, EXERCISES.solution
