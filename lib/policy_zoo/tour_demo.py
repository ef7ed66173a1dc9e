"""The demonstrations of lesson 00: one decision tried on copies, and mixed strategies.

No policy is trained here; a strategy is a fixed probability for each action, or a rule that looks at the student.
"""

from itertools import product

import numpy as np
import pandas as pd

from lib.envs.education import ACTIONS, LEVELS, OBJECTIVES, EducationRules
from lib.envs.education_batch import EducationBatch
from lib.experiment import seeds
from lib.policy_zoo.evaluate import Act, mixture_policy, play

VERSION = 1  # of the demonstrations of lesson 00


def try_actions(rules: EducationRules, seed: int, warm_steps: int, copies: int) -> pd.DataFrame:
    """Rewards of one step of each action (method) on copies of one student after `warm_steps` random sets, as rows of a
    record: one for each action and copy (item), with a column for each objective.

    The copies draw fresh random numbers: none of them sees what will really happen.
    """
    env = EducationBatch(rules, 1, seed)
    env.reset()
    warm = seeds.rng("tour", "warm", seed=seed)
    for _ in range(warm_steps):
        env.advance(warm.integers(len(ACTIONS), size=1))
    state = env.state()
    tried = []
    for action, name in enumerate(ACTIONS):
        many = EducationBatch(rules, copies)
        many.restore(state, rows=np.zeros(copies, dtype=int))
        many.key = seeds.keys("tour", name, seed=seed, n=copies)
        rewards = pd.DataFrame(
            many.advance(np.full(copies, action)).reward, columns=list(OBJECTIVES)
        )
        tried.append(_rows(rewards, name))
    return pd.concat(tried, ignore_index=True)


def _rows(rewards: pd.DataFrame, method: str) -> pd.DataFrame:
    """Record rows of what a method that looks at nothing was paid, one for each row of rewards."""
    fixed = {"method": method, "role": "constant", "backend": "simulated", "seed": 0, "sample": 0}
    return rewards.assign(
        **fixed, item=rewards.index.astype(str), reward=rewards[list(OBJECTIVES)].mean(axis=1)
    )


def simplex(points: int) -> np.ndarray:
    """All weight vectors (n, 3) on a grid of `points` per side of the simplex."""
    steps = points - 1
    grid = [(i, j, steps - i - j) for i, j in product(range(points), repeat=2) if i + j <= steps]
    return np.array(grid) / steps


def play_mixtures(rules: EducationRules, strategies: np.ndarray, students: int) -> pd.DataFrame:
    """Mean rewards per step of each student under each mixed strategy (n, 3), the same students for all: record rows.

    method: the strategy, such as "0.25 failed + 0.75 easy". Its own columns: the probability of each action, a column
    for each objective, length.
    """
    played = []
    for weights in strategies:
        method = " + ".join(
            f"{weight:.2g} {action}"
            for weight, action in zip(weights, ACTIONS, strict=True)
            if weight
        )
        rows = _played(rules, mixture_policy(weights), method, students)
        played.append(rows.assign(**dict(zip(ACTIONS, weights, strict=True))))
    return pd.concat(played, ignore_index=True)


def play_watchful(rules: EducationRules, students: int) -> pd.DataFrame:
    """The same students under every rule that looks at them: what to ask while failed questions are open, and where
    none is, below mastery 0.6 and above. Record rows as those of `play_mixtures`, without probabilities."""
    played = []
    for open_, low, high in product(range(len(ACTIONS)), repeat=3):
        if open_ == low == high:
            continue  # a corner of the mixtures

        def act(
            seen: np.ndarray, draws: np.ndarray, way: tuple[int, int, int] = (open_, low, high)
        ) -> np.ndarray:
            failed = seen[:, 1 + LEVELS :].sum(1) > 0
            return np.where(failed, way[0], np.where(seen[:, 0] < 0.6 - 1e-6, way[1], way[2]))

        method = f"{ACTIONS[open_]} if any failed, else {ACTIONS[low]} then {ACTIONS[high]}"
        played.append(_played(rules, act, method, students).assign(role="router"))
    return pd.concat(played, ignore_index=True)


def _played(rules: EducationRules, act: Act, method: str, students: int) -> pd.DataFrame:
    """Record rows of one episode of each of the students, who are the same for every method."""
    steps = play(
        EducationBatch(rules, students), act, seeds.keys("tour", "students", n=students)
    ).groupby("episode")
    means = (
        steps[[f"reward_{i}" for i in range(len(OBJECTIVES))]]
        .mean()
        .set_axis(list(OBJECTIVES), axis=1)
    )
    return _rows(means.reset_index(drop=True), method).assign(length=steps.size().to_numpy())
