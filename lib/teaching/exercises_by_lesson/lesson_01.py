"""Exercises of the policy zoo: hypervolume, MGDA, the clip of PPO, and a reward of one's own."""

import numpy as np

from lib import stats
from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises


def worst_first(reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """An objective that pays the worst of the three, so that none is forgotten."""
    return reward.min(axis=1)


def plain_mean(reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """The mistake: one objective makes up for another."""
    return reward.mean(axis=1)


def _forgets_none(answer) -> bool | str:
    """Checks that a reward grows with each objective, is 0 without one, and is a for (a, a, a)."""
    rng = seeds.rng("exercise", "objective")
    objectives, observation = rng.random((64, 3)), rng.random((64, 13))
    rewards = np.asarray(answer(objectives, observation), dtype=float)
    if rewards.shape != (64,):
        return f"64 steps need 64 rewards, got shape {rewards.shape}"
    for i in range(3):
        increased = objectives.copy()
        increased[:, i] = np.minimum(1, increased[:, i] + 0.1)
        if (np.asarray(answer(increased, observation)) < rewards - 1e-9).any():
            return f"more of objective {i + 1} was paid less"
        without = objectives.copy()
        without[:, i] = 0
        if (np.abs(answer(without, observation)) > 1e-9).any():
            return f"a step without any of objective {i + 1} was paid"
    equal = np.repeat(rng.random((64, 1)), 3, axis=1)
    return (
        np.allclose(answer(equal, observation), equal[:, 0]) or "(0.4, 0.4, 0.4) must be paid 0.4"
    )


EXERCISES = Exercises(
    Exercise(
        "01.1",
        "easy",
        4,
        "With reference (-1, -1, -1), what is the hypervolume of the single point (1, 1, 0)?",
        hint="a box has three sides",
        answer=stats.hypervolume(np.array([[1.0, 1.0, 0.0]]), np.full(3, -1.0)),
        worked="From -1 to 1, to 1 and to 0: 2 x 2 x 1.",
        wrong=0.0,
        important=True,
    ),
    Exercise(
        "01.2",
        "medium",
        6,
        "Two gradients (1, 0) and (0, 2): which weight of the first gives the min-norm combination that MGDA takes?",
        hint="minimise a^2 + 4 (1 - a)^2",
        answer=0.8,
        worked="The derivative 2 a - 8 (1 - a) is 0 at a = 0.8: the longer gradient gets the smaller weight.",
        wrong=0.5,
    ),
    Exercise(
        "01.3",
        "medium",
        6,
        "PPO maximises min(r A, clip(r, 0.8, 1.2) A). An action has become 1.5 times as likely (r = 1.5) and its "
        "advantage is -1. What is the term, and does its gradient vanish? Answer with the term, then try A = +1.",
        hint="the minimum of -1.5 and -1.2",
        answer=min(1.5 * -1, 1.2 * -1),
        worked="min(-1.5, -1.2) = -1.5: the clip does not protect a bad action that became likelier, so the gradient "
        "is there. With A = +1 the term is 1.2, constant in r, and the gradient vanishes.",
        wrong=-1.2,
        important=True,
    ),
    Exercise(
        "01.4",
        "hard",
        15,
        "Write a reward of your own: a function of rewards (E, 3), each in [0, 1], and observations (E, 13) that "
        "returns (E,). More of an objective is never paid less, a step with none of one objective is paid 0, and (a, "
        "a, a) is paid a. Lesson 11 trains a policy on such a reward.",
        hint="the mean pays for (1, 1, 0); what does not?",
        answer=worst_first,
        worked="The minimum does it, and so does the geometric mean.",
        wrong=plain_mean,
        judge=_forgets_none,
        start="answer = None  # a function of reward (E, 3) and observation (E, 13)",
    ),
)
check = EXERCISES.check
