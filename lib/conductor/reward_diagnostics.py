"""What rewards know, and what advantages follow: correlations inside the groups of real trainings.

A rollout's reward is R = sum_k w_k r_k, and w leans towards the sampled action a. So the advantage that comes back for
a holds the rollout's own r_a, and its quality only as far as r_a tells it. What that makes of a head is decided where
the truth is known (`lib.conductor.synthetic_benchmark`).
"""

import numpy as np
import pandas as pd

from lib.conductor.rewards import COMPONENTS

_ROUNDING_ERROR = 1e-12  # a column with a smaller norm does not vary


def correlate_advantages(rollouts: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """Correlate the advantage of a rollout with what could cause it, inside groups.

    The reward that a rollout emphasises is split in two: its mean over the step, which says nothing about this rollout,
    and how far the rollout is above this mean.

    Args:
        rollouts: Rows of the results table `conductor` with split `train`, groups side by side. Columns: method, seed,
            step, advantage, correct (the verifier's score), action (name of the emphasised reward, empty where none
            was sampled), r_NAME (normalised rewards).
        group_size: Rollouts of a group.

    Returns:
        A row per method and seed with correlations of the advantage: `quality`, with the verifier's score; `level`,
        with the step's mean of the emphasised reward; `above_level`, with the rollout's reward minus that mean. The
        last two are missing where no emphasis was sampled.
    """
    rows = []
    for (method, seed), run in rollouts.groupby(["method", "seed"], sort=False):
        advantages = run["advantage"].to_numpy(dtype=float)
        verifier_scores = run["correct"].to_numpy(dtype=float)
        row = {"method": method, "seed": seed}
        row["quality"] = correlate_within_groups(advantages, verifier_scores, group_size)
        if (run["action"] != "").all():
            step_means, above_step_means = split_emphasised_rewards(run)
            row["level"] = correlate_within_groups(advantages, step_means, group_size)
            row["above_level"] = correlate_within_groups(advantages, above_step_means, group_size)
        rows.append(row)
    return pd.DataFrame(rows)


def split_emphasised_rewards(run: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Split the reward that each rollout emphasises into the mean of its training step and the deviation from it.

    Args:
        run: Rollouts of one training, with step, action (the emphasised reward) and the rewards r_NAME.

    Returns:
        (B,) means of the step, and (B,) deviations.
    """
    columns = [f"r_{name}" for name in COMPONENTS]
    rewards = run[columns].to_numpy(dtype=float)  # (B, 5)
    means_of_steps = run.groupby("step")[columns].transform("mean").to_numpy(dtype=float)  # (B, 5)
    rollout = np.arange(len(run))
    emphasised = [COMPONENTS.index(name) for name in run["action"]]
    step_means = means_of_steps[rollout, emphasised]
    return step_means, rewards[rollout, emphasised] - step_means


def correlate_within_groups(a: np.ndarray, b: np.ndarray, group_size: int) -> float:
    """Correlate two columns within groups, that is after each group's mean is subtracted.

    Args:
        a: (B,) values, the rollouts of a group side by side.
        b: (B,) values in the same order.
        group_size: Rollouts of a group.

    Returns:
        Pearson's correlation; 0 where one of the columns does not vary.
    """
    a_grouped = np.asarray(a, dtype=float).reshape(-1, group_size)
    b_grouped = np.asarray(b, dtype=float).reshape(-1, group_size)
    a_centred = a_grouped - a_grouped.mean(1, keepdims=True)
    b_centred = b_grouped - b_grouped.mean(1, keepdims=True)
    scale = float(np.linalg.norm(a_centred) * np.linalg.norm(b_centred))
    if scale <= _ROUNDING_ERROR:
        return 0.0
    return float((a_centred * b_centred).sum()) / scale


def measure_reward_signals(rollouts: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """Measure how much each reward varies within groups, and how it correlates with the true quality there.

    Args:
        rollouts: Rows of one method before it has learned much, groups side by side. Columns: seed, group (category),
            correct (the verifier's score), the five as measured, and normalised as r_NAME.
        group_size: Rollouts of a group.

    Returns:
        One row per seed, category and reward: groups_that_differ, the fraction of groups in which the measured reward,
        before ranks, is not the same for all rollouts; truth, the correlation of the normalised reward with the
        verifier's score inside groups.
    """
    rows = []
    for (seed, category), run in rollouts.groupby(["seed", "group"], sort=False):
        correct = run["correct"].to_numpy(dtype=float)
        for name in COMPONENTS:
            measured = run[name].to_numpy(dtype=float).reshape(-1, group_size)
            # What could not be measured is a value of its own.
            measured = np.nan_to_num(measured, nan=-np.inf)
            differs = measured.max(1) > measured.min(1)
            normalised = run[f"r_{name}"].to_numpy(dtype=float)
            rows.append(
                {
                    "seed": seed,
                    "group": category,
                    "reward": name,
                    "groups_that_differ": float(differs.mean()),
                    "truth": correlate_within_groups(normalised, correct, group_size),
                }
            )
    return pd.DataFrame(rows)
