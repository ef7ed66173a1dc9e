"""Exercises of the scoreboard: differences, verdicts of several tests, many tests at once, a verdict of one's own."""

from lib.teaching.exercises_by_lesson import Exercise, Exercises

GRID = [round(0.1 * i, 1) for i in range(-5, 6)]


def careful(low: float, high: float, margin: float) -> str:
    """What an interval of a difference says of the claim that it is more than `margin`."""
    if low > margin:
        return "holds"
    return "does not hold" if high <= margin else "undecided"


def hasty(low: float, high: float, margin: float) -> str:
    """The mistake: the middle of the interval decides."""
    return "holds" if (low + high) / 2 > margin else "does not hold"


def _is_careful(answer) -> bool | str:
    """Compares a function that gives verdicts on intervals with `careful`, on a grid of intervals and margins.

    Args:
        answer: The student's solution, from low, high and margin to a verdict.

    Returns:
        True, or what is wrong.
    """
    for low in GRID:
        for high in (value for value in GRID if value >= low):
            for margin in (0.0, 0.2):
                verdict = answer(low, high, margin)
                if verdict != careful(low, high, margin):
                    return f"for [{low}, {high}] and more than {margin} you say {verdict!r}"
    return True


EXERCISES = Exercises(
    Exercise(
        "10.1",
        "easy",
        3,
        "One method scores 0.70 [0.66, 0.74], another, independent of it, 0.62 [0.59, 0.65]. What is the lower end of "
        "the interval of their difference?",
        nudge="intervals of independent estimates do not simply add up",
        hint="which end of each points towards the other? Their distances add up as squares",
        answer=0.08 - (0.04**2 + 0.03**2) ** 0.5,
        worked="The difference is 0.08. The ends that point towards each other are 0.04 and 0.03 away: sqrt(0.0025) = "
        "0.05.",
        wrong=0.66 - 0.65,
        important=True,
    ),
    Exercise(
        "10.2",
        "easy",
        3,
        "A claim has three tests, of which two must hold. One holds, one is undecided, one does not hold. What is its "
        "verdict? Answer with a word of `verdicts.VERDICT_LABELS`, in quotes.",
        nudge="order the three verdicts from strong to weak",
        hint="the weakest of the two best decides",
        answer="undecided",
        worked="The two best are a test that holds and one that is undecided. Until that one is decided nobody knows.",
        wrong="does not hold",
    ),
    Exercise(
        "10.3",
        "medium",
        4,
        "Forty directions are tested, and none is true. How many are expected to hold, with intervals of 95 %? And "
        "below which $p$ must the clearest be for Holm to keep it? Answer with a pair.",
        nudge="a direction holds on one side only",
        hint="one side of the interval; forty claims are left",
        answer=(40 * 0.025, 0.025 / 40),
        worked="Only one of the two sides makes a direction hold: 40 x 0.025 = 1. Holm asks the clearest of forty for "
        "0.025 / 40.",
        wrong=(2.0, 0.05 / 40),
        important=True,
    ),
    Exercise(
        "10.4",
        "hard",
        12,
        "Write a judge: a function of low, high and margin, where [low, high] is the interval of a paired difference "
        "and the claim is that the difference is more than the margin. It returns `holds` where all of the interval "
        "agrees, `does not hold` where none of it does, and otherwise `undecided`.",
        nudge="look at the two ends of the interval apart",
        hint="a claim holds where even the lowest value agrees; when does not even the highest one?",
        answer=careful,
        worked="An interval that holds the margin settles nothing; to call that a failure is as wrong as to call it a "
        "success.",
        wrong=hasty,
        important=True,
        judge=_is_careful,
        start="answer = None  # a function of low, high and margin",
    ),
)
check = EXERCISES.check
