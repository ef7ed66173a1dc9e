"""What rewards know, and what advantages follow: correlations inside the groups of real trainings.

A rollout's reward is R = sum_k w_k r_k, and w leans towards the sampled action a. So the advantage that comes back for
a holds the rollout's own r_a, and its quality only as far as r_a tells it. What that makes of a head is decided where
the truth is known (`lib.conductor.synthetic_benchmark`).
"""

import numpy as np
import pandas as pd

from lib.conductor.rewards import COMPONENTS


def correlate_advantages(rollouts: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """Correlations of the advantage inside groups, one row per method and seed.

    Args:
        rollouts: Rows of the results table `conductor` with split `train`, groups side by side.
        group_size: Rollouts of a group.

    Returns:
        Columns: method, seed; quality, the correlation with the verifier's score; and where emphases were sampled
        level, with the step's mean of the emphasised reward, which says nothing about the rollout, and above_level,
        with the rollout's score in it above that mean.
    """
    columns = [f"r_{name}" for name in COMPONENTS]
    rows = []
    for (method, seed), run in rollouts.groupby(["method", "seed"], sort=False):
        advantage = run["advantage"].to_numpy(dtype=float)
        correct = run["correct"].to_numpy(dtype=float)
        row = {"method": method, "seed": seed}
        row["quality"] = correlate_within_groups(advantage, correct, group_size)
        has_emphases = (run["action"] != "").all()
        if has_emphases:
            rollout = np.arange(len(run))
            action = [COMPONENTS.index(name) for name in run["action"]]
            step_means = run.groupby("step")[columns].transform("mean").to_numpy(dtype=float)
            level = step_means[rollout, action]
            above_level = run[columns].to_numpy(dtype=float)[rollout, action] - level
            row["level"] = correlate_within_groups(advantage, level, group_size)
            row["above_level"] = correlate_within_groups(advantage, above_level, group_size)
        rows.append(row)
    return pd.DataFrame(rows)


def correlate_within_groups(a: np.ndarray, b: np.ndarray, group_size: int) -> float:
    """Correlation of two columns after each group's mean is subtracted; 0 where one of them does not vary.

    Args:
        a: (B,) with the groups side by side.
        b: (B,)
        group_size: Rollouts of a group.
    """
    a_grouped = np.asarray(a, dtype=float).reshape(-1, group_size)
    b_grouped = np.asarray(b, dtype=float).reshape(-1, group_size)
    a_centred = a_grouped - a_grouped.mean(1, keepdims=True)
    b_centred = b_grouped - b_grouped.mean(1, keepdims=True)
    scale = float(np.linalg.norm(a_centred) * np.linalg.norm(b_centred))
    return float((a_centred * b_centred).sum()) / scale if scale > 1e-12 else 0.0


def measure_reward_signals(rollouts: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """How far each reward differs inside groups, and what it knows about the truth there.

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
