"""Exercises of the ablations: false alarms, pairs, and a correction of one's own."""

import numpy as np

from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down procedure at 0.05 over all, (m,) -> (m,) bool."""
    order = np.argsort(p)
    thresholds = 0.05 / np.arange(len(p), 0, -1)  # 0.05 / m, 0.05 / (m - 1), ..., 0.05
    passed = p[order] <= thresholds
    rejected = np.zeros(len(p), dtype=bool)
    # The first that fails ends it: all larger p-values fail too.
    rejected[order] = np.logical_and.accumulate(passed)
    return rejected


def uncorrected(p: np.ndarray) -> np.ndarray:
    """The mistake: each at 0.05, as if it were the only one."""
    return p <= 0.05


def _is_holm(answer) -> bool | str:
    cases = [np.array([0.01, 0.04, 0.03]), np.array([0.05]), np.array([0.02, 0.001, 0.3, 0.012])]
    cases += [seeds.rng("exercise", "holm", seed=seed).random(8) ** 4 for seed in range(20)]
    for p in cases:
        rejected = np.asarray(answer(p))
        if rejected.shape != p.shape or rejected.dtype != bool:
            return f"{len(p)} values need {len(p)} truths"
        if (rejected != holm(p)).any():
            return f"for {p.round(3).tolist()} it should be {holm(p).tolist()}"
    return True


EXERCISES = Exercises(
    Exercise(
        "09.1",
        "easy",
        3,
        "Twelve switches change nothing, and each is tested with a 95 % interval of its own. How many false alarms do "
        "you expect?",
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
        "Both methods of an ablation vary from seed to seed with a standard deviation of 0.2; seeds that they share "
        "make their results correlate with 0.9. How many times more seeds do methods without shared seeds need for an "
        "interval of the same width?",
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
        15,
        "Write Holm's correction: a function of p-values (m,) that returns truths (m,): which stay significant at "
        "0.05 over all. The smallest must be at most 0.05 / m, the next at most 0.05 / (m - 1), and so on; the first "
        "that fails ends it for all larger ones.",
        hint="sort, compare with 0.05 / (m, m - 1, ..., 1), and np.logical_and.accumulate",
        answer=holm,
        worked="Step down through the sorted values, and carry the first failure on.",
        wrong=uncorrected,
        judge=_is_holm,
        start="answer = None  # a function of p-values (m,)",
    ),
)
check = EXERCISES.check
