"""Exercises of the tour: what a decision costs, and what a front is."""

import numpy as np

from lib import stats
from lib.experiment import seeds
from lib.llm import cost_ledger
from lib.teaching.exercises_by_lesson import Exercise, Exercises

CLAUDE = cost_ledger.PRICES["Claude 3.7 Sonnet"]
CORNERS = np.array([[1.0, 0.0], [0.0, 1.0]])
BELOW = np.array([-1.0, -1.0])


def find_front(points: np.ndarray) -> np.ndarray:
    """Which points no other point dominates, (n, k) -> (n,) bool."""
    # (n, n): whether point i is at least as good as point j everywhere, and better somewhere
    is_nowhere_worse = (points[:, None] >= points[None]).all(axis=-1)
    is_somewhere_better = (points[:, None] > points[None]).any(axis=-1)
    dominates = is_nowhere_worse & is_somewhere_better
    return ~dominates.any(axis=0)


def find_best_of_each_objective(points: np.ndarray) -> np.ndarray:
    """The mistake: the best point of each objective, and nothing between them."""
    is_best = np.zeros(len(points), dtype=bool)
    is_best[points.argmax(axis=0)] = True
    return is_best


def _check_front(answer) -> bool | str:
    """Checks a function that marks the points on the Pareto front, on random points.

    Args:
        answer: The student's solution, from (n, 3) points to (n,) bool.

    Returns:
        True, or what is wrong.
    """
    for n in (1, 2, 8, 40):
        points = seeds.rng("exercise", "front", seed=n).random((n, 3)).round(2)
        on_front = np.asarray(answer(points))
        expected = stats.pareto_front(points)
        if on_front.shape != (n,) or on_front.dtype != bool:
            return (
                f"points of shape {points.shape} need a bool array of shape ({n},), "
                f"got shape {on_front.shape} of {on_front.dtype}"
            )
        if (on_front != expected).any():
            i = int(np.flatnonzero(on_front != expected)[0])
            negation = "" if expected[i] else "not "
            return (
                f"in points of shape {points.shape}, {points[i].tolist()} is {negation}on the front"
            )
    return True


EXERCISES = Exercises(
    Exercise(
        "00.1",
        "easy",
        3,
        "How many tokens may a prompt have, with 150 tokens out, before a decision of Claude 3.7 Sonnet costs one "
        "cent? It charges 3 dollars per million tokens in and 15 per million out.",
        nudge="part of the cent is spent before the first token of the prompt",
        hint="tokens out cost 150 * 15e-6 dollars; how many tokens in does the rest pay for?",
        answer=(0.01 - 150 * CLAUDE.per_token_out) / CLAUDE.per_token_in,
        worked="150 tokens out cost 0.00225 dollars. The remaining 0.00775 of a cent's 0.01 pay for 0.00775 / 3e-6 "
        "tokens in.",
        wrong=0.01 / 3e-6,
        important=True,
        tolerance=5,
    ),
    Exercise(
        "00.2",
        "medium",
        5,
        "A front of one point has a sparsity of 0, the best value there is. What is the sparsity of {(0, 1), (1, 0)}?",
        nudge="look at one objective at a time",
        hint="sum the squared gaps of both objectives",
        answer=stats.sparsity(CORNERS),
        worked="Each objective is sorted on its own: gaps of 1 and 1. Their squares add up to 2, over |S| - 1 = 1.",
        wrong=0.0,
        important=True,
    ),
    Exercise(
        "00.3",
        "medium",
        8,
        "Change the reference. With reference (-1, -1), by how much does the hypervolume of {(0, 1), (1, 0)} grow if "
        "(0.6, 0.6) joins? `stats.hypervolume(points, reference)` computes it. Then try (0, 0) and say why both "
        "corners count for nothing there.",
        nudge="which part of the new point's box lies outside the boxes of both corners?",
        hint="stats.hypervolume of three points minus that of two",
        answer=stats.hypervolume(np.vstack([CORNERS, [0.6, 0.6]]), BELOW)
        - stats.hypervolume(CORNERS, BELOW),
        worked="The corners fill 2 + 2 - 1 = 3. The third point adds the square from (0, 0) to (0.6, 0.6), whatever "
        "the reference. With (0, 0) a corner is not above the reference in every objective, so its box is flat: the "
        "choice of the reference decides whether extremes count.",
        wrong=1.6**2,
    ),
    Exercise(
        "00.4",
        "hard",
        15,
        "Write a function that takes points, an array (n, k) with every objective maximised, and returns an array (n,) "
        "of bool: which points no other point dominates. It is run on random points.",
        nudge="begin with two points, and ask when one makes the other pointless",
        hint="i dominates j where i is nowhere lower and somewhere higher; compare points[:, None] with points[None]",
        answer=find_front,
        worked="A point is dominated if another one is at least as good in all objectives and better in one.",
        wrong=find_best_of_each_objective,
        judge=_check_front,
        start="answer = None  # a function of points (n, k)",
    ),
)
check = EXERCISES.check
