"""A statistic with the interval around it, and intervals of means that admit what was sampled.

Student's interval for a few runs, the bootstrap for many, Wilson's for a proportion, and one for groups of items that
vary together. Left out: any hidden random state; a caller passes its generator from `lib.experiment.seeds.rng`.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy import stats as scipy_stats

DRAWS = 2_000  # bootstrap resamples
FEW = 30  # runs below which intervals of means are Student's
MIN_RUNS = 3  # runs below which an interval over runs is not shown: two of them leave one degree of freedom
LEVEL = 0.95  # how often an interval holds the truth
_CELLS = 2_000_000  # numbers held in memory at once while resampling


@dataclass(frozen=True)
class Interval:
    """A statistic and the interval around it; `ci_low` and `ci_high` are nan where one run gives none.

    `num_runs` is how many runs the interval was computed from; 0 where nobody recorded it.
    """

    value: float
    ci_low: float
    ci_high: float
    num_runs: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if has_few_runs(self.num_runs):
            return f"{self.value:.2f} (n = {self.num_runs} seeds)"
        if not self.known:
            return f"{self.value:.2f} (one run, no interval)"
        return f"{self.value:.2f} [{self.ci_low:.2f}, {self.ci_high:.2f}]"

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return bool(np.isfinite(self.ci_low) and np.isfinite(self.ci_high))

    def excludes(self, number: float) -> bool:
        """Whether `number` lies outside the interval; an unknown interval excludes nothing."""
        return self.known and not self.ci_low <= number <= self.ci_high

    def as_metrics(self, name: str) -> dict[str, float]:
        """Flat keys for a metrics file: name, name_ci_low, name_ci_high (the last two only if known)."""
        metrics = {name: self.value}
        if self.known:
            metrics[f"{name}_ci_low"] = self.ci_low
            metrics[f"{name}_ci_high"] = self.ci_high
        return metrics


def has_few_runs(num_runs: int) -> bool:
    """Whether an interval over so many runs is not shown.

    A single run has no interval over runs at all: its interval, if any, is over its items, and 0 is not known.
    """
    return 1 < num_runs < MIN_RUNS


def mean_interval(values: np.ndarray, rng: np.random.Generator) -> Interval:
    """Estimates the mean of independent runs with its interval.

    Fewer than `FEW` runs have Student's interval, because the bootstrap is too narrow there (it covers 0.83 instead
    of 0.95 for five runs). More runs have percentiles of the bootstrap, which assumes no shape.

    Args:
        values: (runs,) one number for each run.
        rng: Resamples the runs.

    Raises:
        ValueError: If the shape is another, there are no runs, or a value is not finite.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"runs must be finite (s,), got shape {values.shape}")
    num_runs = len(values)
    if num_runs < FEW:
        return t_interval(values)

    # Resample in chunks, so that memory stays bounded for long arrays.
    chunk_size = max(1, _CELLS // num_runs)
    chunks = []
    for start in range(0, DRAWS, chunk_size):
        num_draws = min(chunk_size, DRAWS - start)
        indices = rng.integers(num_runs, size=(num_draws, num_runs))
        chunks.append(values[indices].mean(axis=1))  # (num_draws,)
    resampled_means = np.concatenate(chunks)  # (DRAWS,)

    quantiles = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    ci_low, ci_high = np.quantile(resampled_means, quantiles)
    return Interval(float(values.mean()), float(ci_low), float(ci_high))


def t_interval(values: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Interval:
    """Estimates the mean of independent runs with Student's interval (1908), which assumes roughly normal runs.

    Args:
        values: (runs,) one number for each run. A single run gives no interval.
        bounds: The range of the quantity, such as (0, 1) of a share; the interval ends there.

    Raises:
        ValueError: If the shape is another or there are no runs.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"runs must be (s,), got shape {values.shape}")
    num_runs = len(values)
    mean = float(values.mean())
    if num_runs == 1:
        return Interval(mean, float("nan"), float("nan"))
    t_quantile = scipy_stats.t.ppf((1 + LEVEL) / 2, num_runs - 1)
    half_width = float(t_quantile * values.std(ddof=1) / num_runs**0.5)
    ci_low, ci_high = np.clip([mean - half_width, mean + half_width], *bounds)
    return Interval(mean, float(ci_low), float(ci_high), num_runs)


def grouped_interval(values: np.ndarray, groups: np.ndarray) -> Interval:
    """Estimates a mean with its interval where whole groups are sampled, such as subjects that are held out whole.

        Var = G / (G - 1) sum_g (sum_{i in g} (v_i - mean))^2 / n^2,    Student's quantile with G - 1 degrees of
        freedom

    (Liang and Zeger 1986, with the correction for few groups). Where every value is a group of its own it is
    `t_interval`.

    Args:
        values: (n,) numbers.
        groups: (n,) the group of each value. A single group gives no interval.

    Raises:
        ValueError: If the shapes differ or there are no values.
    """
    values = np.asarray(values, dtype=float)
    groups = np.asarray(groups)
    if values.ndim != 1 or values.shape != groups.shape or not len(values):
        raise ValueError(
            f"values and groups must be equal (n,), n > 0, got {values.shape} and {groups.shape}"
        )
    mean = float(values.mean())
    group_indices = np.unique(groups, return_inverse=True)[1]  # (n,)
    num_groups = int(group_indices.max()) + 1
    if num_groups == 1:
        return Interval(mean, float("nan"), float("nan"))

    group_sums = np.bincount(group_indices, values - mean)  # (groups,)
    correction = num_groups / (num_groups - 1)
    standard_error = (correction * (group_sums**2).sum()) ** 0.5 / len(values)
    t_quantile = float(scipy_stats.t.ppf((1 + LEVEL) / 2, num_groups - 1))
    half_width = t_quantile * standard_error
    return Interval(mean, mean - half_width, mean + half_width)


def proportion_interval(successes: int, num_trials: int) -> Interval:
    """Estimates a proportion from independent trials, with Wilson's interval (1927).

    Args:
        successes: Trials that succeeded.
        num_trials: All trials.

    Raises:
        ValueError: If there are no trials, or more successes than trials.
    """
    if not 0 <= successes <= num_trials or num_trials == 0:
        raise ValueError(
            f"a share needs 0 <= successes <= n and n > 0, got {successes} of {num_trials}"
        )
    test = scipy_stats.binomtest(successes, num_trials)
    interval = test.proportion_ci(LEVEL, method="wilson")
    return Interval(successes / num_trials, float(interval.low), float(interval.high))
