"""The demonstrations of lesson 00: one decision tried on copies of a student, and strategies for whole episodes.

No policy is trained here. A strategy is a fixed probability for each action, or a rule that reacts to the student.
"""

from itertools import product

import numpy as np
import pandas as pd

from lib.envs.education import ACTIONS, LEVELS, OBJECTIVES, EducationRules
from lib.envs.education_batch import EducationBatch
from lib.experiment import seeds
from lib.policy_zoo.evaluate import Act, make_mixture, play

VERSION = 1  # of the demonstrations of lesson 00
# Where reactive rules change what they ask, as the paper's reward machine does.
MASTERY_THRESHOLD = 0.6


def try_actions(rules: EducationRules, seed: int, warm_steps: int, copies: int) -> pd.DataFrame:
    """Try one step of each action on copies of one student, and return a row per action and copy.

    The copies draw fresh random numbers: none of them shows what will really happen.

    Args:
        rules: Rules of the simulator.
        seed: Seed of the student.
        warm_steps: Random sets that the student answers first.
        copies: Copies for each action.

    Returns:
        Rows of the results table, with the action as method, the copy as item, and a column for each objective.
    """
    student = EducationBatch(rules, 1, seed)
    student.reset()
    rng = seeds.rng("tour", "warm", seed=seed)
    for _ in range(warm_steps):
        student.advance(rng.integers(len(ACTIONS), size=1))
    state = student.state()

    rows = []
    for action, name in enumerate(ACTIONS):
        batch = EducationBatch(rules, copies)
        batch.restore(state, rows=np.zeros(copies, dtype=int))
        batch.key = seeds.keys("tour", name, seed=seed, n=copies)
        transition = batch.advance(np.full(copies, action))
        rewards = pd.DataFrame(transition.reward, columns=list(OBJECTIVES))
        rows.append(_make_rows(rewards, name))
    return pd.concat(rows, ignore_index=True)


def make_simplex(points_per_side: int) -> np.ndarray:
    """List all probability vectors of three actions on a regular grid.

    Args:
        points_per_side: Grid points on each side of the triangle.

    Returns:
        (n, 3) vectors.
    """
    num_steps = points_per_side - 1
    vectors = []
    for first, second in product(range(points_per_side), repeat=2):
        if first + second <= num_steps:
            vectors.append((first, second, num_steps - first - second))
    return np.array(vectors) / num_steps


def play_mixtures(rules: EducationRules, mixtures: np.ndarray, students: int) -> pd.DataFrame:
    """Teach the same students by strategies with fixed probabilities of the actions, a row per strategy and student.

    Args:
        rules: Rules of the simulator.
        mixtures: (n, 3) probabilities of the actions.
        students: Number of students.

    Returns:
        Rows of the results table, with the strategy as method (such as "0.25 failed + 0.75 easy"), the student as item,
        mean rewards per step, length, and the probability of each action.
    """
    rows = []
    for probabilities in mixtures:
        terms = [
            f"{probability:.2g} {action}"
            for probability, action in zip(probabilities, ACTIONS, strict=True)
            if probability
        ]
        act = make_mixture(probabilities)
        episodes = _play_students(rules, act, " + ".join(terms), students)
        rows.append(episodes.assign(**dict(zip(ACTIONS, probabilities, strict=True))))
    return pd.concat(rows, ignore_index=True)


def play_reactive_rules(rules: EducationRules, students: int) -> pd.DataFrame:
    """Teach the same students by every rule that reacts to their state, a row per rule and student.

    A rule says what to ask while failed questions are open, and where none is, below mastery 0.6 and from there on.

    Args:
        rules: Rules of the simulator.
        students: Number of students, the same as those of `play_mixtures`.

    Returns:
        Rows of the results table: mean rewards per step, and length.
    """
    rows = []
    for if_failed, if_low, if_high in product(range(len(ACTIONS)), repeat=3):
        if if_failed == if_low == if_high:
            continue  # a constant action, which is one of the mixtures
        name = f"{ACTIONS[if_failed]} if any failed, else {ACTIONS[if_low]} then {ACTIONS[if_high]}"
        act = _make_reactive_rule(if_failed, if_low, if_high)
        rows.append(_play_students(rules, act, name, students).assign(role="router"))
    return pd.concat(rows, ignore_index=True)


def _make_reactive_rule(if_failed: int, if_low: int, if_high: int) -> Act:
    """Make a hand-written rule for simulated students, as a function from observations to actions.

    Args:
        if_failed: Index of the action for students with failed questions to repeat.
        if_low: Index of the action for other students, where mastery is below MASTERY_THRESHOLD.
        if_high: Index of the action where mastery is above it.

    Returns:
        The rule.
    """

    def act(observation: np.ndarray, draws: np.ndarray) -> np.ndarray:
        # Mastery, accuracy by level, share of failed questions by level: (students, 1 + 2 LEVELS).
        has_failed = observation[:, 1 + LEVELS :].sum(axis=1) > 0
        is_low = observation[:, 0] < MASTERY_THRESHOLD - 1e-6  # observations are float32
        return np.where(has_failed, if_failed, np.where(is_low, if_low, if_high))

    return act


def _play_students(rules: EducationRules, act: Act, method: str, students: int) -> pd.DataFrame:
    """Play one episode of each student; the students are the same for every method.

    Args:
        rules: Rules of the simulator.
        act: Chooses actions from observations.
        method: Name of the method.
        students: Number of students.

    Returns:
        A row of the results table for each student, with the mean reward of each objective and the length.
    """
    env = EducationBatch(rules, students)
    steps = play(env, act, seeds.keys("tour", "students", n=students))
    by_episode = steps.groupby("episode")
    reward_columns = [f"reward_{i}" for i in range(len(OBJECTIVES))]
    means = by_episode[reward_columns].mean().set_axis(list(OBJECTIVES), axis=1)
    rows = _make_rows(means.reset_index(drop=True), method)
    return rows.assign(length=by_episode.size().to_numpy())


def _make_rows(rewards: pd.DataFrame, method: str) -> pd.DataFrame:
    """Rows of the results table for a method that observes nothing, one per row of rewards (n, 3).

    Args:
        rewards: A column for each objective.
        method: Name of the method.
    """
    return rewards.assign(
        method=method,
        role="constant",
        backend="simulated",
        seed=0,
        sample=0,
        item=rewards.index.astype(str),
        reward=rewards[list(OBJECTIVES)].mean(axis=1),
    )
