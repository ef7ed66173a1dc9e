"""Pareto fronts, hypervolume and sparsity of vector rewards. Every objective is maximised.

Holds the dominance test of section 2.1 of the policy orchestration paper, and the hypervolume and the sparsity that
its section 4.1 reports. The paper computes the hypervolume over the union of single episodes. That is a best-of-N
statistic: it grows with the number of episodes and hides poor averages. `hv_union` keeps N fixed; tables print it
beside the `hypervolume` of mean vectors, which does not grow with episodes.
"""

import moocore
import numpy as np

SUBSETS = 200  # random subsets of N episodes over which `hv_union` averages


def _validate_points(points: np.ndarray) -> np.ndarray:
    """Checks points of objectives, and converts them to a float array.

    Args:
        points: (n, k), n points of k objectives.

    Raises:
        ValueError: They have another shape, or are not finite.
    """
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"points must be an (n, k) array with k >= 1, got shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("points must be finite; a nan has no place in a dominance order")
    return points


def pareto_front(points: np.ndarray) -> np.ndarray:
    """Finds the points that no other point dominates (section 2.1); of equal points the first counts.

    Args:
        points: (n, k), maximised.

    Returns:
        (n,) bool.
    """
    points = _validate_points(points)
    if len(points) == 0:
        return np.zeros(0, dtype=bool)
    is_on_front = moocore.is_nondominated(points, maximise=True, keep_weakly=False)
    return np.asarray(is_on_front, dtype=bool)


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """Volume that the points dominate above the reference, HV(S) = vol(union of [reference, p]).

    Args:
        points: (n, k), maximised. A point that is not above the reference in every objective contributes nothing; no
            points give 0.
        reference: (k,) the worst corner of the volume.

    Raises:
        ValueError: If points and reference differ in the number of objectives.
    """
    points = _validate_points(points)
    reference = np.asarray(reference, dtype=float)
    num_objectives = points.shape[1]
    if reference.shape != (num_objectives,):
        raise ValueError(
            f"the reference must have {num_objectives} objectives like the points, got shape {reference.shape}"
        )
    is_above = (points > reference).all(axis=1)
    if not is_above.any():
        return 0.0
    return float(moocore.hypervolume(points[is_above], ref=reference, maximise=True))


def hv_union(
    episodes: np.ndarray,
    reference: np.ndarray,
    n_fixed: int | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Hypervolume of the union of N single episodes: the paper's estimator, a best-of-N statistic.

    It grows with N: two values with different N say nothing about each other.

    Args:
        episodes: (n, k) one return vector for each episode.
        reference: (k,) the worst corner of the volume.
        n_fixed: N. Below n it is the mean over `SUBSETS` random choices of N episodes, so that methods with different
            numbers of episodes can be compared. All episodes by default.
        rng: Chooses the episodes.

    Raises:
        ValueError: If N is outside 1..n, or if episodes must be chosen and there is no generator.
    """
    episodes = _validate_points(episodes)
    num_episodes = len(episodes)
    if n_fixed is None:
        n_fixed = num_episodes
    if not 1 <= n_fixed <= num_episodes:
        raise ValueError(
            f"n_fixed must be between 1 and the {num_episodes} episodes there are, got {n_fixed}"
        )
    if n_fixed == num_episodes:
        return hypervolume(episodes, reference)
    if rng is None:
        raise ValueError(
            f"choosing {n_fixed} of {num_episodes} episodes needs a generator (lib.experiment.seeds.rng)"
        )
    # The mean over random subsets of N episodes, without replacement.
    volumes = []
    for _ in range(SUBSETS):
        subset = rng.choice(num_episodes, size=n_fixed, replace=False)
        volumes.append(hypervolume(episodes[subset], reference))
    return float(np.mean(volumes))


def cardinality(points: np.ndarray) -> int:
    """Number of points on the front of `points` (n, k)."""
    return int(pareto_front(points).sum())


def sparsity(points: np.ndarray) -> float:
    """Computes the mean squared gap along the front, 1/(|S|-1) sum_j sum_i (S_j(i) - S_j(i+1))^2 (section 4.1).

    A front of one point scores 0, the best value there is, for showing no trade-off at all: never rank by sparsity
    alone, print it beside `hypervolume` and `cardinality`.

    Args:
        points: (n, k); the front S is taken first, and every objective j is sorted by itself.
    """
    points = _validate_points(points)
    front = points[pareto_front(points)]
    if len(front) < 2:
        return 0.0
    sorted_objectives = np.sort(front, axis=0)  # (|S|, k)
    squared_gaps = np.diff(sorted_objectives, axis=0) ** 2  # (|S| - 1, k)
    return float(squared_gaps.sum() / (len(front) - 1))
