"""How results are judged: Pareto fronts, hypervolume, and intervals that admit what was sampled.

Holds the dominance test of section 2.1 of the policy orchestration paper, the hypervolume and the
sparsity that its section 4.1 reports, and intervals of means: Student's for a few runs, the bootstrap for many, and
others where items or groups are samples too. Every objective is maximised.

The paper computes the hypervolume over the union of single episodes. That is a best-of-N statistic:
it grows with the number of episodes and hides poor averages. `hv_union` (with N fixed) and `hv_by_seed`
(of mean vectors) stand side by side here so that no table has to choose one in silence.

Routers between cheap and dear models are judged by their curve of quality over cost: the hull and AIQ of
RouterBench (Hu et al. 2024, section 3), PGR, APGR and CPT of RouteLLM (Ong et al. 2024).

Left out: significance tests, and any hidden random state - a caller hands in its generator, from
`lib.experiment.seeds.rng`.
"""

from dataclasses import dataclass

import moocore
import numpy as np
from scipy import stats as scipy_stats

VERSION = 1  # of the statistics here: raise it when one of these numbers changes
DRAWS = 2_000  # bootstrap resamples
SUBSETS = 200  # random subsets of N episodes over which `hv_union` averages
FEW = 30  # runs below which intervals of means are Student's
LEVEL = 0.95  # how often an interval holds the truth
_CELLS = 2_000_000  # numbers held in memory at once while resampling


@dataclass(frozen=True)
class Interval:
    """A statistic and the interval around it; `lo` and `hi` are nan where one run gives none."""

    value: float
    lo: float
    hi: float

    def __str__(self) -> str:
        if not self.known:
            return f"{self.value:.2f} (one run, no interval)"
        return f"{self.value:.2f} [{self.lo:.2f}, {self.hi:.2f}]"

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return bool(np.isfinite(self.lo) and np.isfinite(self.hi))

    def excludes(self, number: float) -> bool:
        """Whether `number` lies outside the interval; an unknown interval excludes nothing."""
        return self.known and not self.lo <= number <= self.hi

    def as_metrics(self, name: str) -> dict[str, float]:
        """Flat keys for a metrics file: name, name_lo, name_hi (the last two only if known)."""
        bounds = {f"{name}_lo": self.lo, f"{name}_hi": self.hi} if self.known else {}
        return {name: self.value, **bounds}


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


def mean_interval(values: np.ndarray, rng: np.random.Generator) -> Interval:
    """The mean of independent runs (s,) and its interval: Student's (`t_interval`) for fewer than `FEW` runs, where the
    bootstrap is too narrow (it covers 0.83 instead of 0.95 at s = 5); otherwise percentiles of the bootstrap, which
    assumes no shape. Raises ValueError for another shape, no runs, or a value that is not finite.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"runs must be finite (s,), got shape {values.shape}")
    if len(values) < FEW:
        return t_interval(values)
    found, at_once = [], max(1, _CELLS // len(values))
    for first in range(0, DRAWS, at_once):
        size = min(at_once, DRAWS - first)
        found.append(values[rng.integers(len(values), size=(size, len(values)))].mean(axis=1))
    lo, hi = np.quantile(np.concatenate(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values.mean()), float(lo), float(hi))


def t_interval(values: np.ndarray) -> Interval:
    """The mean of independent runs (s,) and Student's interval (1908).

    Assumes that runs are roughly normal. One run gives no interval. Raises ValueError for another shape.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"runs must be (s,), got shape {values.shape}")
    mean = float(values.mean())
    if len(values) == 1:
        return Interval(mean, float("nan"), float("nan"))
    half = float(
        scipy_stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)
        * values.std(ddof=1)
        / len(values) ** 0.5
    )
    return Interval(mean, mean - half, mean + half)


def grouped_interval(values: np.ndarray, groups: np.ndarray) -> Interval:
    """The mean of values (n,) with its interval where whole groups (n,) are samples, such as subjects held out whole:

        Var = G / (G - 1) sum_g (sum_{i in g} (v_i - mean))^2 / n^2,    Student's quantile with G - 1 degrees of freedom

    (Liang and Zeger 1986, with the correction for few groups). Where every value is a group of its own it is
    `t_interval`. One group gives no interval. Raises ValueError for unequal shapes.
    """
    values, groups = np.asarray(values, dtype=float), np.asarray(groups)
    if values.ndim != 1 or values.shape != groups.shape or not len(values):
        raise ValueError(
            f"values and groups must be equal (n,), n > 0, got {values.shape} and {groups.shape}"
        )
    mean, at = float(values.mean()), np.unique(groups, return_inverse=True)[1]
    count = int(at.max()) + 1
    if count == 1:
        return Interval(mean, float("nan"), float("nan"))
    sums = np.bincount(at, values - mean)
    error = (count / (count - 1) * (sums**2).sum()) ** 0.5 / len(values)
    half = float(scipy_stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    return Interval(mean, mean - half, mean + half)


def share_interval(successes: int, n: int) -> Interval:
    """A share of n independent trials with Wilson's interval (1927). Raises ValueError for n = 0."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"a share needs 0 <= successes <= n and n > 0, got {successes} of {n}")
    found = scipy_stats.binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return Interval(successes / n, float(found.low), float(found.high))


# Routers -------------------------------------------------------------------------------------------

_ROUNDING = 1e-9  # a fall in quality smaller than this is how floats are summed


def _curve(costs: np.ndarray, qualities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as finite (n,) float arrays, n > 0. Raises ValueError for anything else."""
    costs, qualities = np.asarray(costs, dtype=float), np.asarray(qualities, dtype=float)
    if costs.ndim != 1 or costs.shape != qualities.shape or not len(costs):
        raise ValueError(
            f"a curve needs two equal (n,) arrays, n > 0; got shapes {costs.shape} and {qualities.shape}"
        )
    if not (np.isfinite(costs).all() and np.isfinite(qualities).all()):
        raise ValueError(
            "a curve must be finite; drop the points that hold a nan or an infinite number"
        )
    return costs, qualities


def hull(costs: np.ndarray, qualities: np.ndarray) -> np.ndarray:
    """Which points span the non-decreasing upper concave hull: what blind mixtures of routers reach.

    A blind mixture asks one of two routers by a coin, so it reaches every point between theirs (RouterBench,
    Hu et al. 2024, section 3). costs, qualities: (n,). Returns indices by rising cost: the cheapest point first
    (of several the best), then only points that cost more and are better, with falling slopes. Own code: a
    general convex hull refuses points on one line, which here are usual. Raises ValueError for an empty or
    non-finite curve or unequal shapes.
    """
    costs, qualities = _curve(costs, qualities)
    kept: list[int] = []
    for i in np.lexsort((-qualities, costs)):
        if kept and qualities[i] <= qualities[kept[-1]]:
            continue  # costs no less and is no better
        while len(kept) > 1 and _bends_up(costs[[*kept[-2:], i]], qualities[[*kept[-2:], i]]):
            kept.pop()
        kept.append(int(i))
    return np.array(kept)


def _bends_up(costs: np.ndarray, qualities: np.ndarray) -> bool:
    """Whether the middle of three points lies on or below the line through the others."""
    (run, whole), (rise, height) = costs[1:] - costs[0], qualities[1:] - qualities[0]
    return bool(rise * whole <= height * run)


def hull_at(costs: np.ndarray, qualities: np.ndarray, cost: float) -> float:
    """Quality of the best blind mixture of the points whose mean cost is at most `cost`.

    costs, qualities: (n,). Linear between the points of `hull`, flat beyond its dearest. Raises ValueError
    for a cost below the cheapest point, where no mixture is that cheap.
    """
    at = hull(costs, qualities)
    costs, qualities = _curve(costs, qualities)
    if not cost >= costs[at[0]]:
        raise ValueError(
            f"no mixture costs as little as {cost:.6g}: the cheapest point costs {costs[at[0]]:.6g}; ask for that "
            "much or more, or add a cheaper router"
        )
    return float(np.interp(cost, costs[at], qualities[at]))


def aiq(costs: np.ndarray, qualities: np.ndarray, lo: float, hi: float) -> float:
    """Average improvement in quality: the mean height of the hull between two costs (RouterBench, section 3).

        AIQ = 1 / (hi - lo) * integral from lo to hi of hull_at(c) dc

    costs, qualities: (n,). Routers are comparable only with equal lo and hi, so the curve must begin at lo or
    below: no quality is made up for costs at which the router cannot work. Raises ValueError where it begins
    above lo, or unless lo < hi.
    """
    if not lo < hi < np.inf:
        raise ValueError(f"AIQ needs two costs lo < hi, got {lo!r} and {hi!r}")
    at = hull(costs, qualities)
    costs, qualities = _curve(costs, qualities)
    if costs[at[0]] > lo:
        raise ValueError(
            f"the curve begins at cost {costs[at[0]]:.6g}, above lo = {lo:.6g}; add the cheapest model to it, or raise "
            "lo for all routers"
        )
    inside = costs[at][(costs[at] > lo) & (costs[at] < hi)]
    grid = np.array([lo, *inside, hi])
    return float(np.trapezoid(np.interp(grid, costs[at], qualities[at]), grid) / (hi - lo))


def pgr(quality: np.ndarray | float, weak: float, strong: float) -> np.ndarray | float:
    """Performance gap recovered, (quality - weak) / (strong - weak) (RouteLLM, Ong et al. 2024).

    quality: any shape; 0 is the weak model's, 1 the strong one's. Raises ValueError unless strong > weak.
    """
    if not strong > weak:
        raise ValueError(
            f"there is no gap to recover: the strong model scores {strong:.4g}, the weak one {weak:.4g}"
        )
    return (quality - weak) / (strong - weak)


def _by_share(shares: np.ndarray, qualities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve over shares of strong calls, sorted, each share once (with its points' mean quality: a fair coin
    between them has the same share). Raises ValueError for shares outside [0, 1] or without both ends."""
    shares, qualities = _curve(shares, qualities)
    found, place = np.unique(shares, return_inverse=True)
    if found[0] < 0 or found[-1] > 1:
        raise ValueError(
            f"shares of calls must lie in [0, 1], got {found[0]:.4g} to {found[-1]:.4g}"
        )
    if found[0] > 0 or found[-1] < 1:
        raise ValueError(
            f"the curve must hold the shares 0 and 1, got {found[0]:.4g} to {found[-1]:.4g}; add the points of the "
            "weak and of the strong model alone"
        )
    return found, np.bincount(place, weights=qualities) / np.bincount(place)


def apgr(shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float) -> float:
    """Average PGR while the share of calls to the strong model goes from 0 to 1 (RouteLLM).

    shares, qualities: (n,) in any order; trapezoids under the curve as it is given, with no hull: a router
    that throws calls at random scores 0.5. Raises ValueError where share 0 or 1 is missing, or as `pgr` does.
    """
    shares, qualities = _by_share(shares, qualities)
    return float(np.trapezoid(pgr(qualities, weak, strong), shares))


def cpt(
    shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float, target: float
) -> float:
    """Call-performance threshold: the least share of strong calls with PGR >= target (RouteLLM).

    shares, qualities: (n,) in any order, with the shares 0 and 1; linear between them; target in [0, 1]. Where
    quality falls with the share the least such share may be luck of one point, so that a curve that is not
    monotone is refused. Raises ValueError for it (naming the first fall), for a target outside [0, 1] or that
    the curve never reaches, and as `apgr` does.
    """
    if not 0 <= target <= 1:
        raise ValueError(f"the target of a CPT must lie in [0, 1], got {target!r}")
    shares, qualities = _by_share(shares, qualities)
    falls = np.flatnonzero(np.diff(qualities) < -_ROUNDING)
    if len(falls):
        i = falls[0]
        raise ValueError(
            f"quality falls by {qualities[i] - qualities[i + 1]:.4g} between the shares {shares[i]:.4g} and "
            f"{shares[i + 1]:.4g}, so no CPT can be read off; measure on more prompts"
        )
    found = pgr(qualities, weak, strong)
    reached = np.flatnonzero(found >= target - _ROUNDING)
    if not len(reached):
        raise ValueError(
            f"PGR ends at {found[-1]:.4g} and never reaches {target}; ask for less, or check `strong`"
        )
    after = int(reached[0])
    if after == 0:
        return float(shares[0])
    return float(np.interp(target, found[after - 1 : after + 1], shares[after - 1 : after + 1]))
