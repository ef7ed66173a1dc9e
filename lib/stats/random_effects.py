"""How far a mean over runs and items may lie from the truth: mean squares, pooled where methods vary alike, and
Student's t.

A grid holds one number for each run (a seed: its training, its order of items) and item. Where runs share their
items both are samples: `crossed_variance_components` has the formula. Where every run has items of its own, runs alone
are independent: Student's interval of their means. Of one run the items are the sample, and a proportion gets the exact
interval of Clopper and Pearson (1934).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as scipy_stats
from scipy.special import ndtri, stdtr, stdtrit  # Student's distribution and its quantiles

from lib.stats.intervals import LEVEL

POWER = 0.8  # of the minimum detectable effect

# Length of the minimum detectable effect in half-widths of the interval, if the estimate is normal.
_MDE_IN_HALF_WIDTHS = 1 + float(ndtri(POWER) / ndtri((1 + LEVEL) / 2))


@dataclass(frozen=True)
class VarianceComponents:
    """Mean squares of what varies around an estimate, from which its interval follows.

    Attributes:
        design: "crossed" (mean squares of runs, items, residual), "runs" (of the means of runs), "items" (of the items
            of a single run).
        value: The estimate, a mean.
        mean_squares: (3,) for the crossed design, else (1,).
        degrees_of_freedom: One for each mean square.
        divisor: The variance of the mean is the combined mean square divided by this.
        num_runs: Runs that were measured.
        num_items: Items that were measured.
    """

    design: str
    value: float
    mean_squares: np.ndarray
    degrees_of_freedom: np.ndarray
    divisor: int
    num_runs: int
    num_items: int

    def variance_of_mean(self) -> tuple[float, float]:
        """Computes the variance of the mean.

        Returns:
            The variance, and its degrees of freedom; the variance is nan where a single number gives none.
        """
        if self.design == "crossed":
            mean_square, freedom = _combine_mean_squares(self.mean_squares, self.degrees_of_freedom)
            return mean_square / self.divisor, freedom
        freedom = float(self.degrees_of_freedom[0])
        if freedom <= 0:
            return np.nan, freedom
        return float(self.mean_squares[0]) / self.divisor, freedom

    def to_row(self) -> dict[str, float]:
        """Computes confidence interval, p-value (t-test against 0) and minimum detectable effect of the mean.

        Returns:
            A row of a frame of estimates, see `estimate_row`.
        """
        variance, freedom = self.variance_of_mean()
        if not np.isfinite(variance):
            return estimate_row(self.value, num_runs=self.num_runs, num_items=self.num_items)

        standard_error = variance**0.5
        t_quantile = float(stdtrit(freedom, (1 + LEVEL) / 2))
        if standard_error:
            # Two-sided test of no effect.
            p_value = 2 * float(stdtr(freedom, -abs(self.value) / standard_error))
        else:
            # All numbers are equal: no effect has p = 1, any other p = 0.
            p_value = float(self.value == 0)
        return estimate_row(
            self.value,
            ci_low=self.value - t_quantile * standard_error,
            ci_high=self.value + t_quantile * standard_error,
            num_runs=self.num_runs,
            num_items=self.num_items,
            p_value=p_value,
            mde=(t_quantile + float(stdtrit(freedom, POWER))) * standard_error,
        )


def estimate_row(
    value: float,
    *,
    ci_low: float = np.nan,
    ci_high: float = np.nan,
    num_runs: int,
    num_items: int,
    p_value: float = np.nan,
    mde: float = np.nan,
) -> dict[str, float]:
    """Builds one row of a frame of estimates; nan stands for what cannot be estimated from the data.

    Args:
        value: The estimate.
        ci_low: Lower end of its confidence interval.
        ci_high: Upper end.
        num_runs: Independent runs (seeds) behind it.
        num_items: Items behind it.
        p_value: p-value of the two-sided test against 0.
        mde: Minimum detectable effect.
    """
    return {
        "value": value,
        "ci_low": ci_low,
        "ci_high": ci_high,
        "num_runs": num_runs,
        "num_items": num_items,
        "p_value": p_value,
        "mde": mde,
    }


def mde_from_interval(ci_low: float, ci_high: float) -> float:
    """The minimum detectable effect at 80 % power that an interval implies, as if the estimate were normal."""
    return (ci_high - ci_low) / 2 * _MDE_IN_HALF_WIDTHS


def crossed_variance_components(grid: np.ndarray) -> VarianceComponents:
    """Computes mean squares of runs that share their items: two-way analysis of variance with random effects.

    The mean squares of runs, items and the residual estimate the variance of the mean of s runs and n items,

        Var = (MS_runs + MS_items - MS_residual) / (s n),

    with Satterthwaite's degrees of freedom (1946) for Student's quantile. Where MS_residual is larger than the
    smaller of the others, one of the effects cannot be seen and the larger mean square stands alone. Such intervals
    cover 0.93 to 0.98 for three runs, whichever effect dominates.

    Args:
        grid: (runs, items), at least two of each.
    """
    mean_squares, freedom = _compute_mean_squares(grid)
    num_runs, num_items = grid.shape
    return VarianceComponents(
        design="crossed",
        value=float(grid.mean()),
        mean_squares=mean_squares,
        degrees_of_freedom=freedom.astype(float),
        divisor=grid.size,
        num_runs=num_runs,
        num_items=num_items,
    )


def _compute_mean_squares(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes the mean squares of a two-way layout of runs and items (analysis of variance).

    Args:
        grid: (runs, items), one measurement in each cell.

    Returns:
        Mean squares of runs, items and residual, and their degrees of freedom; (3,) each.
    """
    num_runs, num_items = grid.shape

    # grid[run, item] = mean + run_effect[run] + item_effect[item] + residual[run, item]
    run_effects = grid.mean(1, keepdims=True) - grid.mean()  # (runs, 1)
    item_effects = grid.mean(0, keepdims=True) - grid.mean()  # (1, items)
    residuals = grid - grid.mean() - run_effects - item_effects  # (runs, items)

    sums_of_squares = np.array(
        [
            num_items * (run_effects**2).sum(),
            num_runs * (item_effects**2).sum(),
            (residuals**2).sum(),
        ]
    )
    freedom = np.array([num_runs - 1, num_items - 1, (num_runs - 1) * (num_items - 1)])
    return sums_of_squares / freedom, freedom


def _combine_mean_squares(mean_squares: np.ndarray, freedom: np.ndarray) -> tuple[float, float]:
    """Combines MS_runs + MS_items - MS_residual, with Satterthwaite's degrees of freedom.

    Args:
        mean_squares: (3,) of runs, items and residual.
        freedom: (3,) their degrees of freedom.
    """
    residual_square = mean_squares[2]
    if residual_square > mean_squares[:2].min():
        # One effect is hidden by the noise, so the larger of the two stands alone.
        is_larger = np.arange(3) == mean_squares[:2].argmax()
        terms = np.where(is_larger, mean_squares, 0.0)
    else:
        terms = mean_squares * np.array([1, 1, -1])
    total = float(terms.sum())
    if not total:
        return total, float(freedom[0])
    # Satterthwaite: (sum of terms)^2 / sum of (term^2 / its degrees of freedom)
    return total, total**2 / float((terms**2 / freedom).sum())


def sample_variance_components(
    values: np.ndarray, design: str, num_runs: int, num_items: int
) -> VarianceComponents:
    """Computes the mean square of independent numbers.

    Args:
        values: (m,) means of runs with items of their own, or the items of one run.
        design: "runs" or "items", whichever the numbers stand for.
        num_runs: Runs that were measured.
        num_items: Items that were measured.
    """
    mean_square = values.var(ddof=1) if len(values) > 1 else np.nan
    return VarianceComponents(
        design=design,
        value=float(values.mean()),
        mean_squares=np.array([mean_square]),
        degrees_of_freedom=np.array([len(values) - 1.0]),
        divisor=len(values),
        num_runs=num_runs,
        num_items=num_items,
    )


def pool_variance_components(
    components: Sequence[VarianceComponents],
) -> list[VarianceComponents]:
    """Replaces the mean squares of several methods by their average, weighted by degrees of freedom.

    It assumes that methods vary alike: then few seeds of many methods know the variance as well as many seeds of one.
    Degrees of freedom of runs add up; those of items do not, because methods share them.

    Args:
        components: One for each method, all of one design.

    Raises:
        ValueError: If the methods differ in design or in the number of runs or items.
    """
    designs = {(method.design, method.divisor, method.num_items) for method in components}
    if len(designs) > 1:
        raise ValueError("methods whose variances are pooled need equal numbers of runs and items")
    weights = np.stack([method.degrees_of_freedom for method in components])  # (methods, squares)
    mean_squares = np.stack([method.mean_squares for method in components])  # (methods, squares)
    pooled_squares = (mean_squares * weights).sum(0) / weights.sum(0)
    pooled_freedom = weights.sum(0)
    # All methods were measured on the same items, so items add no degrees of freedom.
    if components[0].design == "crossed":
        pooled_freedom[1] = weights[0, 1]
    return [
        replace(method, mean_squares=pooled_squares, degrees_of_freedom=pooled_freedom)
        for method in components
    ]


def clopper_pearson_interval(successes: int, num_trials: int) -> tuple[float, float]:
    """The ends of the exact interval of a proportion of independent trials (Clopper and Pearson 1934)."""
    test = scipy_stats.binomtest(successes, num_trials)
    interval = test.proportion_ci(LEVEL, method="exact")
    return float(interval.low), float(interval.high)
