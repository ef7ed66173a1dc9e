"""How far a mean of runs and items may lie from the truth: mean squares, pooled where methods are alike, and Student's
t.

A grid holds one number for each run (a seed: its training, its order of items) and item. Where runs share their
items both are samples: `crossed` has the formula. Where every run has items of its own, runs alone are
independent: Student's interval of their means. Of one run the items are the sample, and a share gets the exact interval
of Clopper and Pearson (1934).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats
from scipy.special import ndtri, stdtr, stdtrit  # Student's distribution and its quantiles

LEVEL = 0.95
POWER = 0.8  # of the minimum detectable effect
_HALF_WIDTHS = 1 + float(
    ndtri(POWER) / ndtri((1 + LEVEL) / 2)
)  # that such an effect is long, if all is normal


@dataclass(frozen=True)
class Spread:
    """Mean squares of what varies and their degrees of freedom, of numbers whose mean is `value`.

    kind: "crossed" (squares of runs, items, rest), "runs" (of the means of runs), "items" (of one run's items);
    squares, freedom: (3,) or (1,); size: numbers that the mean square is to be divided by for the variance of the mean;
    runs, items: how many there were.
    """

    kind: str
    value: float
    squares: np.ndarray
    freedom: np.ndarray
    size: int
    runs: int
    items: int

    def variance(self) -> tuple[float, float]:
        """Variance of the mean, and its degrees of freedom; nan where one number gives none."""
        if self.kind != "crossed":
            return float(self.squares[0]) / self.size if self.freedom[0] > 0 else np.nan, float(
                self.freedom[0]
            )
        square, freedom = _combined(self.squares, self.freedom)
        return square / self.size, freedom

    def row(self) -> dict[str, float]:
        """The estimate: value, ci_low, ci_high, num_runs, num_items, p_value, mde (see `estimates`)."""
        variance, freedom = self.variance()
        if not np.isfinite(variance):
            return _row(self.value, np.nan, np.nan, self.runs, self.items, np.nan, np.nan)
        error = variance**0.5
        reach = float(stdtrit(freedom, (1 + LEVEL) / 2))
        p_value = (
            2 * float(stdtr(freedom, -abs(self.value) / error)) if error else float(self.value == 0)
        )
        mde = (reach + float(stdtrit(freedom, POWER))) * error
        return _row(
            self.value,
            self.value - reach * error,
            self.value + reach * error,
            self.runs,
            self.items,
            p_value,
            mde,
        )


def mde_from_interval(ci_low: float, ci_high: float) -> float:
    """The minimum detectable effect at 80 % power that an interval implies, as if the estimate were normal."""
    return (ci_high - ci_low) / 2 * _HALF_WIDTHS


def _row(
    value: float,
    ci_low: float,
    ci_high: float,
    num_runs: int,
    num_items: int,
    p_value: float,
    mde: float,
) -> dict[str, float]:
    return {
        "value": value,
        "ci_low": ci_low,
        "ci_high": ci_high,
        "num_runs": num_runs,
        "num_items": num_items,
        "p_value": p_value,
        "mde": mde,
    }


def crossed(grid: np.ndarray) -> Spread:
    """Runs (s) by items (n) that all runs share; grid (s, n) with s, n > 1.

    Two-way analysis of variance with random effects: the mean squares of runs, items and what is left estimate the
    variance of the mean, Var = (MS_runs + MS_items - MS_rest) / (s n), with Satterthwaite's degrees of freedom (1946)
    for Student's quantile. Where MS_rest is larger than the smaller of the others (one of the effects is not seen) the
    larger stands alone. Covers 0.93 to 0.98 for three runs whichever effect rules.
    """
    squares, freedom = _mean_squares(grid)
    return Spread(
        "crossed", float(grid.mean()), squares, freedom.astype(float), grid.size, *grid.shape
    )


def _combined(squares: np.ndarray, freedom: np.ndarray) -> tuple[float, float]:
    """MS_runs + MS_items - MS_rest, or the larger of the first two where an effect is not seen, and Satterthwaite's
    degrees of freedom; squares, freedom: (3,) as `_mean_squares` gives them."""
    seen = squares * np.array([1, 1, -1])
    if squares[2] > squares[:2].min():
        seen = np.where(np.arange(3) == squares[:2].argmax(), squares, 0.0)
    total = float(seen.sum())
    return total, total**2 / float((seen**2 / freedom).sum()) if total else float(freedom[0])


def _mean_squares(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of runs, items and the rest of `values` (s, n), and their degrees of freedom; (3,) each."""
    s, n = values.shape
    runs = values.mean(1, keepdims=True) - values.mean()
    items = values.mean(0, keepdims=True) - values.mean()
    rest = values - values.mean() - runs - items
    freedom = np.array([s - 1, n - 1, (s - 1) * (n - 1)])
    return np.array([n * (runs**2).sum(), s * (items**2).sum(), (rest**2).sum()]) / freedom, freedom


def sample(values: np.ndarray, kind: str, runs: int, items: int) -> Spread:
    """Independent numbers (m,): means of runs with items of their own, or the items of one run."""
    square = values.var(ddof=1) if len(values) > 1 else np.nan
    return Spread(
        kind,
        float(values.mean()),
        np.array([square]),
        np.array([len(values) - 1.0]),
        len(values),
        runs,
        items,
    )


def pooled(spreads: Sequence[Spread]) -> list[Spread]:
    """The same with mean squares averaged over methods of one design, weighted by their degrees of freedom.

    It assumes that methods vary alike: then few seeds of many methods know the variance as well as many seeds of one.
    Degrees of freedom of runs add up; those of items do not, because methods share them.
    """
    if len({(each.kind, each.size, each.items) for each in spreads}) > 1:
        raise ValueError("methods whose variances are pooled need equal numbers of runs and items")
    weights = np.stack([each.freedom for each in spreads])
    squares = (np.stack([each.squares for each in spreads]) * weights).sum(0) / weights.sum(0)
    freedom = weights.sum(0)
    if spreads[0].kind == "crossed":
        freedom[1] = weights[0, 1]
    return [Spread(e.kind, e.value, squares, freedom, e.size, e.runs, e.items) for e in spreads]


def exact_share(successes: int, n: int) -> tuple[float, float]:
    """The ends of Clopper and Pearson's interval of a share of n independent trials."""
    found = scipy_stats.binomtest(successes, n).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)
