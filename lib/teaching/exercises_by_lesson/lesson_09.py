"""Exercises of the ablations: false alarms, pairs, and how many pairs a correction for many tests needs."""

import math

from scipy.stats import norm

from lib.teaching.exercises_by_lesson import Exercise, Exercises


def count_pairs(num_changes: int, gain: float, sd: float) -> int:
    """Counts the pairs that give a true gain a power of 80 % at the strictest threshold of Holm's correction.

    Args:
        num_changes: Changes that are tested together, at level 0.05 and two-sided.
        gain: The true mean of the differences inside pairs.
        sd: Their standard deviation.

    Returns:
        The smallest number of pairs, in normal approximation.
    """
    level = 0.05 / num_changes  # of the smallest p-value
    z_scores = norm.ppf(1 - level / 2) + norm.ppf(0.8)
    return math.ceil((z_scores * sd / gain) ** 2)


def count_pairs_without_correction(num_changes: int, gain: float, sd: float) -> int:
    """The mistake: each change at level 0.05, as if it were the only one."""
    return count_pairs(1, gain, sd)


def judge_count_pairs(answer) -> bool | str:
    """True if an answer counts as `count_pairs` does, else the first case in which it does not."""
    for num_changes, gain, sd in ((1, 0.05, 0.1), (10, 0.05, 0.1), (10, 0.02, 0.1), (46, 0.1, 0.3)):
        expected = count_pairs(num_changes, gain, sd)
        if answer(num_changes, gain, sd) != expected:
            return f"num_changes = {num_changes}, gain = {gain} and sd = {sd} need {expected}"
    return True


EXERCISES = Exercises(
    Exercise(
        "09.1",
        "easy",
        3,
        "Twelve changes have no effect. Each is tested with a 95 % interval of its own. How many of the twelve do you "
        "expect to look clear by chance?",
        nudge="how often does a 95 % interval miss the true value?",
        hint="each of twelve with probability 0.05",
        answer=12 * 0.05,
        worked="12 x 0.05 = 0.6, and the chance of at least one is 1 - 0.95^12 = 0.46.",
        wrong=0.05,
        important=True,
        tolerance=0.001,
    ),
    Exercise(
        "09.2",
        "medium",
        6,
        "The scores of a system and of its variant each vary from seed to seed with a standard deviation of 0.2. Where "
        "both run on the same seeds, their scores correlate with 0.9. How many times as many seeds do you need "
        "without shared seeds, for an interval of the same width?",
        nudge="compare the variance of the difference with shared seeds and without",
        hint="Var(a - b) = Var a + Var b - 2 Cov(a, b)",
        answer=10.0,
        worked="Unpaired 0.04 + 0.04 = 0.08, paired 0.08 - 2 x 0.9 x 0.04 = 0.008.",
        wrong=0.9,
        important=True,
        tolerance=0.01,
    ),
    Exercise(
        "09.3",
        "hard",
        10,
        "Several changes are tested by Holm's correction at level 0.05, two-sided. One of them has a true `gain`; the "
        "differences inside its pairs have the standard deviation `sd`. How many independent pairs give its p-value a "
        "probability of 80 % to pass Holm's strictest threshold? Write a function of the number of changes, the gain "
        "and the standard deviation. Take the mean for normal, and round up.",
        nudge="which level does the smallest of the p-values have to meet?",
        hint="n = ((z_(1 - level / 2) + z_0.8) sd / gain)^2, with z from scipy.stats.norm.ppf",
        answer=count_pairs,
        worked="The level is 0.05 / num_changes. With ten changes z = 2.807 and 0.842, so a gain of 0.05 at sd 0.1 "
        "needs 54 pairs. A single test needs 32.",
        wrong=count_pairs_without_correction,
        important=True,
        judge=judge_count_pairs,
        start="answer = None  # a function of num_changes, gain and sd",
    ),
)
check = EXERCISES.check
