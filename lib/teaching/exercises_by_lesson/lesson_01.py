"""Exercises of the policy zoo: hypervolume, rewards without speed, the clip of PPO, and a reward of one's own."""

import numpy as np

from lib import stats
from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises


def take_minimum(reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """A reward that is the smallest of the three objectives, so that none is forgotten."""
    return reward.min(axis=1)


def take_mean(reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """The mistake: one objective makes up for another."""
    return reward.mean(axis=1)


def _check_reward(answer) -> bool | str:
    """Checks that a reward grows with each objective, is 0 without one, and is a for (a, a, a).

    Args:
        answer: The student's solution, from objectives (n, 3) and observations (n, 13) to (n,) rewards.

    Returns:
        True, or what is wrong.
    """
    rng = seeds.rng("exercise", "objective")
    objectives, observation = rng.random((64, 3)), rng.random((64, 13))
    rewards = np.asarray(answer(objectives, observation), dtype=float)
    if rewards.shape != (64,):
        return f"64 steps need 64 rewards, got shape {rewards.shape}"
    for i in range(3):
        increased = objectives.copy()
        increased[:, i] = np.minimum(1, increased[:, i] + 0.1)
        if (np.asarray(answer(increased, observation)) < rewards - 1e-9).any():
            return f"more of objective {i + 1} was rewarded with less"
        without = objectives.copy()
        without[:, i] = 0
        if (np.abs(answer(without, observation)) > 1e-9).any():
            return f"a step without any of objective {i + 1} was rewarded"
    equal = np.repeat(rng.random((64, 1)), 3, axis=1)
    return (
        np.allclose(answer(equal, observation), equal[:, 0])
        or "the reward of (0.4, 0.4, 0.4) must be 0.4"
    )


EXERCISES = Exercises(
    Exercise(
        "01.1",
        "easy",
        4,
        "With reference (-1, -1, -1), what is the hypervolume of the single point (1, 1, 0)?",
        nudge="the point is above the reference in every objective, also in the last",
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
        "No reward is given for reaching mastery. Suppose that one policy earns 0.28 per step and keeps a student for "
        "47 steps, another one 0.31 per step for 13 steps. Which reward at the end of an episode that reaches mastery "
        "would make both returns equal, if only the second one reaches it? Leave discounting out.",
        nudge="rewards per step are not what an episode brings",
        hint="how much larger is the return of the longer episode?",
        answer=0.28 * 47 - 0.31 * 13,
        tolerance=0.005,
        worked="The returns are 0.28 x 47 = 13.16 and 0.31 x 13 = 4.03. The bonus is their difference, 9.13: as much "
        "as 30 further steps.",
        wrong=0.31 - 0.28,
    ),
    Exercise(
        "01.3",
        "medium",
        6,
        "PPO maximises min(r A, clip(r, 0.8, 1.2) A). An action has become 1.5 times as likely (r = 1.5) and its "
        "advantage is -1. What is the term, and does its gradient vanish? Answer with the term, then try A = +1.",
        nudge="work out both terms before you take the smaller one",
        hint="both terms are negative, and the clipped one is closer to 0",
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
        "returns (E,). More of an objective is never rewarded with less, a step with none of one objective with 0, and "
        "(a, a, a) with a. Appendix 11a trains a policy on such a reward.",
        nudge="which single number says how good the weakest objective is?",
        hint="the mean of (1, 1, 0) is not 0; what is?",
        answer=take_minimum,
        worked="The minimum does it, and so does the geometric mean.",
        wrong=take_mean,
        judge=_check_reward,
        start="answer = None  # a function of reward (E, 3) and observation (E, 13)",
    ),
)
check = EXERCISES.check
