"""The demonstrations of lesson 00: one decision tried on copies, and mixed strategies.

No policy is trained here; a strategy is a fixed probability for each action.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.envs.education import ACTIONS, OBJECTIVES, EducationRules
from lib.envs.education_batch import EducationBatch
from lib.zoo.evaluate import mixture_policy, play


def try_actions(rules: EducationRules, seed: int, warm_steps: int, copies: int) -> dict[str, np.ndarray]:
    """Rewards (copies, 3) of one step of each action, from one student after `warm_steps` random sets.

    The copies draw fresh random numbers: none of them sees what will really happen.
    """
    env = EducationBatch(rules, 1, seed)
    env.reset()
    warm = seeds.rng("tour", "warm", seed=seed)
    for _ in range(warm_steps):
        env.advance(warm.integers(len(ACTIONS), size=1))
    state = env.state()
    out = {}
    for action, name in enumerate(ACTIONS):
        many = EducationBatch(rules, copies)
        many.restore(state, rows=np.zeros(copies, dtype=int))
        many.key = seeds.keys("tour", name, seed=seed, n=copies)
        out[name] = many.advance(np.full(copies, action)).reward
    return out


def action_intervals(tried: dict[str, np.ndarray]) -> dict[str, dict[str, stats.Interval]]:
    """Mean reward with interval by action and objective."""
    rng = seeds.rng("tour", "intervals")
    return {
        action: {name: stats.mean_interval(rewards[:, i], rng) for i, name in enumerate(OBJECTIVES)}
        for action, rewards in tried.items()
    }


def best_actions(by_action: dict[str, dict[str, stats.Interval]]) -> dict[str, str]:
    """For each objective the action with the highest mean reward."""
    return {name: max(by_action, key=lambda action: by_action[action][name].value) for name in OBJECTIVES}


def simplex(points: int) -> np.ndarray:
    """All weight vectors (n, 3) on a grid of `points` per side of the simplex."""
    steps = points - 1
    grid = [(i, j, steps - i - j) for i, j in product(range(points), repeat=2) if i + j <= steps]
    return np.array(grid) / steps


def play_mixtures(rules: EducationRules, strategies: np.ndarray, students: int) -> pd.DataFrame:
    """Mean reward per step and mean length of each mixed strategy (n, 3), over the same students.

    Columns: the probability of each action, aptitude, gap, performance, length.
    """
    env = EducationBatch(rules, students)
    streams = seeds.keys("tour", "students", n=students)
    lines = []
    for weights in strategies:
        record = play(env, mixture_policy(weights), streams)
        rewards = [f"reward_{i}" for i in range(len(OBJECTIVES))]
        means = record.groupby("episode")[rewards].mean().mean().to_numpy()
        length = len(record) / students
        lines.append([*weights, *means, length])
    return pd.DataFrame(lines, columns=[*ACTIONS, *OBJECTIVES, "length"])


def best_mixture(outcome: pd.DataFrame, weights: Sequence[float]) -> pd.Series:
    """The strategy with the highest weighted mean reward; weights need not sum to 1."""
    utility = outcome[list(OBJECTIVES)].to_numpy() @ np.asarray(weights, dtype=float)
    return outcome.iloc[int(utility.argmax())]
