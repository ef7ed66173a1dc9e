"""What advantages went with in real trainings: quality, or the level and the own score of what was emphasised.

A rollout's reward is R = sum_k w_k r_k, and w leans towards the drawn action a. So the advantage that comes back for a
holds the rollout's own r_a, and its quality only as far as r_a says so. What that makes of a head is decided where the
truth is known (`lib.conductor.synthetic_benchmark`); `within` measures it on any rollouts.
"""

import numpy as np
import pandas as pd

from lib.conductor.rewards import COMPONENTS


def observed(rollouts: pd.DataFrame, group: int) -> pd.DataFrame:
    """Correlations within groups, one row per method and seed: of the advantage with `quality`, what the verifier says;
    and where emphases were drawn with `level`, the step's mean of the emphasised reward, which says nothing about the
    rollout, and `own`, the rollout's score in it above that mean.

    rollouts: rows of the results table `conductor` with split `train`, groups beside each other.
    """
    rows, names = [], [f"r_{name}" for name in COMPONENTS]
    for (method, seed), part in rollouts.groupby(["method", "seed"], sort=False):
        advantage = part["advantage"].to_numpy(dtype=float)
        row = {
            "method": method,
            "seed": seed,
            "quality": within(advantage, part["correct"].to_numpy(dtype=float), group),
        }
        if (part["action"] != "").all():
            here = np.arange(len(part)), [COMPONENTS.index(name) for name in part["action"]]
            level = part.groupby("step")[names].transform("mean").to_numpy(dtype=float)[here]
            own = part[names].to_numpy(dtype=float)[here] - level
            row |= {"level": within(advantage, level, group), "own": within(advantage, own, group)}
        rows.append(row)
    return pd.DataFrame(rows)


def within(a: np.ndarray, b: np.ndarray, group: int) -> float:
    """Correlation of two columns after each group's mean is taken away; 0 where one of them does not vary."""
    a, b = (np.asarray(x, dtype=float).reshape(-1, group) for x in (a, b))
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    spread = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / spread if spread > 1e-12 else 0.0
