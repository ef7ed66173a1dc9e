"""Pareto fronts, hypervolume and sparsity of vector rewards. Every objective is maximised.

Holds the dominance test of section 2.1 of the policy orchestration paper, and the hypervolume and the sparsity that
its section 4.1 reports. The paper computes the hypervolume over the union of single episodes. That is a best-of-N
statistic: it grows with the number of episodes and hides poor averages. `hv_union` (with N fixed) and `hv_by_seed` (of
mean vectors) stand side by side here so that no table has to choose one in silence.
"""

import moocore
import numpy as np

SUBSETS = 200  # random subsets of N episodes over which `hv_union` averages


def _points(points: np.ndarray) -> np.ndarray:
    """`points` as a finite (n, k) float array. Raises ValueError for anything else."""
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"points must be an (n, k) array with k >= 1, got shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("points must be finite; a nan has no place in a dominance order")
    return points


def pareto_front(points: np.ndarray) -> np.ndarray:
    """Which points no other point dominates (section 2.1); of equal points the first is kept.

    points: (n, k), maximised. Returns (n,) bool.
    """
    points = _points(points)
    if len(points) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(points, maximise=True, keep_weakly=False), dtype=bool)


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """Volume that the points dominate above the reference, HV(S) = vol(union of [reference, p]).

    points: (n, k), maximised; reference: (k,). A point that is not above the reference in every
    objective contributes nothing; no points give 0.
    """
    points, reference = _points(points), np.asarray(reference, dtype=float)
    if reference.shape != (k := points.shape[1],):
        raise ValueError(
            f"the reference must have {k} objectives like the points, got shape {reference.shape}"
        )
    above = points[(points > reference).all(axis=1)]
    if len(above) == 0:
        return 0.0
    return float(moocore.hypervolume(above, ref=reference, maximise=True))


def hv_union(
    episodes: np.ndarray,
    reference: np.ndarray,
    n_fixed: int | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Hypervolume of the union of N single episodes: the paper's estimator, a best-of-N statistic.

    episodes: (n, k), one return vector per episode. With `n_fixed` = N < n it is the mean over
    `SUBSETS` random choices of N episodes, so that methods with different numbers of episodes can
    be compared. It grows with N: two values with different N say nothing about each other.
    Raises ValueError if N is outside 1..n, or if episodes must be chosen and there is no generator.
    """
    episodes = _points(episodes)
    n = len(episodes)
    n_fixed = n if n_fixed is None else n_fixed
    if not 1 <= n_fixed <= n:
        raise ValueError(f"n_fixed must be between 1 and the {n} episodes there are, got {n_fixed}")
    if n_fixed == n:
        return hypervolume(episodes, reference)
    if rng is None:
        raise ValueError(
            f"choosing {n_fixed} of {n} episodes needs a generator (lib.experiment.seeds.rng)"
        )
    chosen = (rng.choice(n, size=n_fixed, replace=False) for _ in range(SUBSETS))
    return float(np.mean([hypervolume(episodes[rows], reference) for rows in chosen]))


def hv_by_seed(means_by_seed: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Hypervolume of each seed's mean vector or vectors, (s,); unlike `hv_union` it does not grow with episodes.

    means_by_seed: (s, k) for one policy per seed, or (s, p, k) for a front of p policies per seed. Raises ValueError
    for another shape.
    """
    means = np.asarray(means_by_seed, dtype=float)
    if means.ndim not in (2, 3):
        raise ValueError(f"means_by_seed must be (s, k) or (s, p, k), got shape {means.shape}")
    fronts = means[:, None, :] if means.ndim == 2 else means
    return np.array([hypervolume(front, reference) for front in fronts])


def cardinality(points: np.ndarray) -> int:
    """Number of points on the front of `points` (n, k)."""
    return int(pareto_front(points).sum())


def sparsity(points: np.ndarray) -> float:
    """Mean squared gap along the front, 1/(|S|-1) sum_j sum_i (S_j(i) - S_j(i+1))^2 (section 4.1).

    points: (n, k); the front S is taken first and every objective j sorted on its own. A front of
    one point scores 0, the best value there is, for showing no trade-off at all: never rank by
    sparsity alone, print it beside `hypervolume` and `cardinality`.
    """
    points = _points(points)
    front = np.sort(points[pareto_front(points)], axis=0)
    if len(front) < 2:
        return 0.0
    return float((np.diff(front, axis=0) ** 2).sum() / (len(front) - 1))
