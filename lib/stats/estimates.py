"""Estimates from results: means, paired differences, ratios, differences in differences, gains over mixtures; one rule
for all intervals.

Every function takes rows of the results table (`lib.experiment.results_table`), the column that is measured and the
columns `by` which estimates are grouped, and returns a frame with that index: value, ci_low and ci_high (95 %),
num_runs, num_items, p_value (of no effect) and mde (the minimum detectable effect, with 80 % power). A unit is one seed
x item x sample; samples of one item are averaged, differences are taken inside a unit. One number has one interval
wherever it is shown: only `statistic` draws random numbers, from a stream that is named by the quantity.

Rows whose model gave too few answers have a column `unusable_share` (`lib.llm.reply_shares`). Estimates that
rest on such rows have it too, so that `lib.stats.verdict` leaves them out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.experiment.results_table import UNUSABLE_SHARE, select
from lib.stats import random_effects
from lib.stats.cost_curves import hull
from lib.stats.intervals import DRAWS, Interval
from lib.stats.ranges import UNBOUNDED, find_range

By = str | Sequence[str]
GroupName = tuple  # values of the columns `by`, in their order
EstimateRow = dict[str, float]
KEYS = ["seed", "item", "sample"]
COLUMNS = ["value", "ci_low", "ci_high", "num_runs", "num_items", "p_value", "mde"]


class NoRowsError(ValueError):
    """There are no rows to estimate something on."""


def mean(
    rows: pd.DataFrame,
    column: str,
    by: By = (),
    pool: bool = False,
    bounds: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Estimates means of a column over seeds crossed with items, over seeds with items of their own, or over one
    run's items.

    Args:
        rows: Rows of the results table.
        column: What is averaged.
        by: Columns that define the groups.
        pool: Take the variances of all groups for equal (methods that vary alike), from which few seeds profit.
        bounds: Range of the quantity, where intervals end; by default what the column's name and values say.

    Returns:
        One row for each group, with the columns of `COLUMNS`.
    """
    rows_by_group = dict(_iterate_groups(rows, by))
    units_by_group = {
        name: _index_by_unit(group_rows, column) for name, group_rows in rows_by_group.items()
    }
    components = [_estimate_variance_components(units, column) for units in units_by_group.values()]
    if pool and len(components) > 1:
        components = random_effects.pool_variance_components(components)

    estimates = {}
    for (name, units), group_components in zip(units_by_group.items(), components, strict=True):
        estimate = _use_exact_interval_of_proportion(group_components.to_row(), units)
        range_ = bounds or find_range(column, units.to_numpy())
        estimate = _clip_interval(estimate, range_)
        estimates[name] = _carry_unusable_share(estimate, rows_by_group[name])
    return _make_frame(estimates, by)


def paired_difference(
    rows: pd.DataFrame, column: str, treatment: Mapping, baseline: Mapping, by: By = ()
) -> pd.DataFrame:
    """Estimates mean differences treatment - baseline, inside pairs of one seed, item and sample.

    Args:
        rows: Rows of the results table.
        column: What is compared.
        treatment: Conditions that select the rows of interest, such as {"method": "RO"}.
        baseline: Conditions that select the rows to compare them with.
        by: Columns that define the groups.

    Returns:
        One row for each group, with the columns of `COLUMNS`.

    Raises:
        ValueError: If a unit is measured twice, has no value or has no partner.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        differences = _difference_in_pairs(group_rows, column, treatment, baseline)
        estimate = _estimate_variance_components(differences, column).to_row()
        compared_rows = [select(group_rows, **treatment), select(group_rows, **baseline)]
        estimates[name] = _carry_unusable_share(estimate, *compared_rows)
    return _make_frame(estimates, by)


def diff_in_diff(
    rows: pd.DataFrame,
    column: str,
    before: Mapping,
    after: Mapping,
    by: By = (),
    baseline: Mapping | None = None,
) -> pd.DataFrame:
    """Estimates what training changed, after - before inside pairs; with a baseline, minus what training changed
    there.

        (treatment_after - treatment_before) - (baseline_after - baseline_before)

    The difference in differences leaves out what the untrained method already did.

    Args:
        rows: Rows of the results table.
        column: What is compared.
        before: Conditions that select rows before training, such as {"role": "start"}.
        after: Conditions that select rows after training.
        by: Columns that define the groups.
        baseline: Conditions that select the rows to compare with, such as {"method": "random"}; the treatment is then
            all other rows. Without it the change itself is estimated.

    Returns:
        One row for each group, with the columns of `COLUMNS`.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        if baseline is None:
            differences = _difference_in_pairs(group_rows, column, after, before)
        else:
            baseline_rows = select(group_rows, **baseline)
            treatment_rows = group_rows.drop(baseline_rows.index)
            differences = _subtract_paired(
                _difference_in_pairs(treatment_rows, column, after, before),
                _difference_in_pairs(baseline_rows, column, after, before),
                column,
            )
        estimate = _estimate_variance_components(differences, column).to_row()
        compared_rows = [select(group_rows, **before), select(group_rows, **after)]
        estimates[name] = _carry_unusable_share(estimate, *compared_rows)
    return _make_frame(estimates, by)


def ratio(
    rows: pd.DataFrame, column: str, treatment: Mapping, baseline: Mapping, by: By = ()
) -> pd.DataFrame:
    """Ratios r = mean(treatment) / mean(baseline) of a positive column, by the delta method on logarithms.

    The variance of log r is that of treatment / mean(treatment) - baseline / mean(baseline), taken inside pairs.

    Args:
        rows: Rows of the results table.
        column: What is compared.
        treatment: Conditions that select the rows of interest.
        baseline: Conditions that select the rows to compare them with.
        by: Columns that define the groups.

    Returns:
        One row for each group; p_value is that of r = 1, mde the smallest detectable change of log r.

    Raises:
        ValueError: If a mean is not above 0.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        treatment_units = _index_by_unit(select(group_rows, **treatment), column)
        baseline_units = _index_by_unit(select(group_rows, **baseline), column)
        treatment_mean = _estimate_variance_components(treatment_units, column).value
        baseline_mean = _estimate_variance_components(baseline_units, column).value
        if min(treatment_mean, baseline_mean) <= 0:
            raise ValueError(
                f"a ratio of {column!r} needs means above 0, got {treatment_mean:g} and {baseline_mean:g}"
            )

        relative_differences = _subtract_paired(
            treatment_units / treatment_mean, baseline_units / baseline_mean, column
        )
        log_ratio = replace(
            _estimate_variance_components(relative_differences, column),
            value=float(np.log(treatment_mean / baseline_mean)),
        )

        # Back from logarithms; p_value and mde stay on the logarithmic scale.
        estimate = log_ratio.to_row()
        for key in ("value", "ci_low", "ci_high"):
            estimate[key] = float(np.exp(estimate[key]))
        compared_rows = [select(group_rows, **treatment), select(group_rows, **baseline)]
        estimates[name] = _carry_unusable_share(estimate, *compared_rows)
    return _make_frame(estimates, by)


def gain_over_mixture(
    rows: pd.DataFrame,
    quality: str,
    cost: str,
    treatment: Mapping,
    mixed_methods: Mapping,
    by: By = (),
) -> pd.DataFrame:
    """Estimates by how much a selection's quality exceeds that of a random mixture of other methods at the same mean
    cost.

    The hull of the mixed methods' means gives, at the cost of the treatment, two neighbours a and b with weights w
    and 1 - w and a slope m (RouterBench, Hu et al. 2024, section 3). To first order the gain is the mean of

        (q_treatment - m c_treatment) - w (q_a - m c_a) - (1 - w) (q_b - m c_b)

    taken inside pairs. Beyond the most expensive method the best one stands alone.

    Args:
        rows: Rows of the results table, with a column `method`.
        quality: The column that is compared.
        cost: The column in which treatment and mixture are equal.
        treatment: Conditions that select the rows of interest.
        mixed_methods: Conditions that select the rows whose methods are mixed, such as {"role": "expert"}.
        by: Columns that define the groups.

    Returns:
        One row for each group, with the columns of `COLUMNS`.

    Raises:
        ValueError: If the treatment is cheaper than every mixed method.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        treatment_rows = select(group_rows, **treatment)
        mixed_rows = select(group_rows, **mixed_methods)
        weights, slope = _match_mixture_by_cost(treatment_rows, mixed_rows, quality, cost)

        # net: quality after what it costs, at the hull's price of quality
        treatment_net = treatment_rows[quality] - slope * treatment_rows[cost]
        gains = _index_by_unit(treatment_rows.assign(net=treatment_net), "net")
        for method, weight in weights.items():
            method_rows = mixed_rows[mixed_rows["method"] == method]
            method_net = method_rows[quality] - slope * method_rows[cost]
            method_units = _index_by_unit(method_rows.assign(net=method_net), "net")
            gains = _subtract_paired(gains, weight * method_units, quality)
        estimate = _estimate_variance_components(gains, quality).to_row()
        estimates[name] = _carry_unusable_share(estimate, treatment_rows, mixed_rows)
    return _make_frame(estimates, by)


def _match_mixture_by_cost(
    treatment_rows: pd.DataFrame, mixed_rows: pd.DataFrame, quality: str, cost: str
) -> tuple[dict[str, float], float]:
    """Finds the random mixture of methods that costs as much as a treatment and has the best quality.

    Args:
        treatment_rows: Results of the treatment.
        mixed_rows: Results of the methods that may be mixed.
        quality: Column of the quality.
        cost: Column of the cost.

    Returns:
        The weight of each method in the mixture, and the slope of the cost-quality hull at that cost.

    Raises:
        ValueError: The treatment costs less than every method.
    """
    method_means = mixed_rows.groupby("method", sort=False)[[cost, quality]].mean()
    corner_indices = hull(method_means[cost].to_numpy(), method_means[quality].to_numpy())
    corners = method_means.iloc[corner_indices]  # by rising cost
    lowest_cost = corners[cost].iloc[0]
    target_cost = float(treatment_rows[cost].mean())
    if target_cost < lowest_cost:
        raise ValueError(
            f"{cost} {target_cost:g} is below that of every method of the mixtures ({lowest_cost:g})"
        )

    upper = int(np.searchsorted(corners[cost].to_numpy(), target_cost, side="right"))
    if upper == len(corners):
        # More expensive than every method: the best one alone.
        return {corners.index[-1]: 1.0}, 0.0
    cost_a, quality_a = corners.iloc[upper - 1]
    cost_b, quality_b = corners.iloc[upper]
    weight_a = (cost_b - target_cost) / (cost_b - cost_a)
    weights = {corners.index[upper - 1]: weight_a, corners.index[upper]: 1 - weight_a}
    slope = (quality_b - quality_a) / (cost_b - cost_a)
    return weights, slope


def success_rate(rows: pd.DataFrame, column: str, threshold: float, by: By = ()) -> pd.DataFrame:
    """Fraction of seeds whose mean of a column is at least `threshold`, with Clopper and Pearson's exact interval.

    It is what to report where results have two modes, so that the mean lies where no run does.

    Args:
        rows: Rows of the results table.
        column: What is averaged within each seed.
        threshold: The smallest mean that counts as a success.
        by: Columns that define the groups.

    Returns:
        One row for each group; p_value and mde are nan.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        seed_means = group_rows.groupby("seed")[column].mean()
        num_seeds = len(seed_means)
        num_successes = int((seed_means >= threshold).sum())
        ci_low, ci_high = random_effects.clopper_pearson_interval(num_successes, num_seeds)
        estimate = random_effects.estimate_row(
            num_successes / num_seeds,
            ci_low=ci_low,
            ci_high=ci_high,
            num_runs=num_seeds,
            num_items=group_rows["item"].nunique(),
        )
        estimates[name] = _carry_unusable_share(estimate, group_rows)
    return _make_frame(estimates, by)


def statistic(
    rows: pd.DataFrame,
    columns: Sequence[str],
    function: Callable[[np.ndarray], float],
    by: By = (),
    bounds: tuple[float, float] = UNBOUNDED,
) -> pd.DataFrame:
    """Estimates a statistic that is no mean, such as a hypervolume: `function` of each seed's rows.

    Several seeds have Student's interval over seeds. A single run has a bootstrap over its rows, from a stream that
    is named by function, columns and group; it has no interval where the resampled numbers all lie on one side of the
    statistic, because then resampling changes what the function measures (the volume of a front of means does).

    Args:
        rows: Rows of the results table.
        columns: The k columns that the function takes.
        function: Maps an array (n, k) to a number.
        by: Columns that define the groups.
        bounds: The range of the function, such as (0, 1) of a Gini index; intervals end there.

    Returns:
        One row for each group, with the columns of `COLUMNS`.
    """
    estimates = {}
    for name, group_rows in _iterate_groups(rows, by):
        points_by_seed = [
            seed_rows[list(columns)].to_numpy(dtype=float)  # (n, k)
            for _, seed_rows in group_rows.groupby("seed")
        ]
        values = np.array([function(points) for points in points_by_seed])  # (seeds,)
        num_runs = len(values)
        num_items = group_rows["item"].nunique()
        estimate = random_effects.sample_variance_components(
            values, "runs", num_runs, num_items
        ).to_row()

        if num_runs == 1:
            function_name = getattr(function, "__name__", "statistic")
            rng = seeds.rng("measure", function_name, *columns, *map(str, name))
            ci_low, ci_high = _bootstrap_interval(points_by_seed[0], function, rng)
            if ci_low <= estimate["value"] <= ci_high:
                estimate["ci_low"] = ci_low
                estimate["ci_high"] = ci_high
        estimate = _clip_interval(estimate, bounds)
        estimates[name] = _carry_unusable_share(estimate, group_rows)
    return _make_frame(estimates, by)


def _bootstrap_interval(
    points: np.ndarray, function: Callable[[np.ndarray], float], rng: np.random.Generator
) -> tuple[float, float]:
    """Computes a 95 % bootstrap interval of a statistic by its percentiles.

    Args:
        points: (n, k), rows that are resampled with replacement.
        function: The statistic of (n, k) points.
        rng: Random numbers of the resampling.

    Returns:
        Lower and upper end.
    """
    num_points = len(points)
    resampled = []
    for _ in range(DRAWS // 4):
        indices = rng.integers(num_points, size=num_points)
        resampled.append(function(points[indices]))
    ci_low, ci_high = np.quantile(resampled, [0.025, 0.975])
    return float(ci_low), float(ci_high)


def intervals(estimates: pd.DataFrame) -> pd.Series:
    """Converts a frame of estimates to one column of `Interval` objects, for tables.

    Args:
        estimates: One row per group, with value, ci_low, ci_high and perhaps num_runs.
    """
    interval_columns = estimates[["value", "ci_low", "ci_high"]]
    # Without a count, as in rows that a reindex added, nobody knows how many runs there were.
    run_counts = estimates.get("num_runs", pd.Series(0, index=estimates.index)).fillna(0)
    values = [
        Interval(*map(float, ends), num_runs=int(num_runs))
        for ends, num_runs in zip(interval_columns.itertuples(index=False), run_counts, strict=True)
    ]
    return pd.Series(values, index=estimates.index, dtype=object)


# From rows to numbers ------------------------------------------------------------------------------


def _iterate_groups(rows: pd.DataFrame, by: By) -> Iterator[tuple[GroupName, pd.DataFrame]]:
    """Splits rows into groups.

    Args:
        rows: Rows of the results table.
        by: Columns that define the groups; without any, all rows are one group.

    Yields:
        (name, rows) of each group, in order of appearance.

    Raises:
        NoRowsError: There are no rows.
    """
    if rows.empty:
        raise NoRowsError("there are no rows to measure; is a condition misspelled?")
    columns = _as_list(by)
    if columns:
        yield from rows.groupby(columns, sort=False, observed=True)
    else:
        yield (), rows


def _as_list(by: By) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def _index_by_unit(rows: pd.DataFrame, column: str) -> pd.Series:
    """Indexes a column of measurements by its unit of measurement: seed, item and sample.

    Args:
        rows: Rows of the results table; without a column `seed` or `sample` there is one of it.
        column: What was measured.

    Returns:
        The column as floats.

    Raises:
        NoRowsError: There are no rows.
        ValueError: A value is missing, or a unit was measured twice.
    """
    if rows.empty:
        raise NoRowsError(f"no rows to measure {column!r} on; is a condition misspelled?")
    # Rows without these columns are of one run, or of one sample of each item.
    absent_keys = [key for key in ("seed", "sample") if key not in rows]
    rows = rows.assign(**dict.fromkeys(absent_keys, 0))

    units = rows.set_index(KEYS)[column].astype(float)
    if units.isna().any():
        raise ValueError(f"{column!r} is missing in {int(units.isna().sum())} of {len(units)} rows")
    if units.index.has_duplicates:
        duplicate = units.index[units.index.duplicated()][0]
        raise ValueError(
            f"{column!r}: seed, item, try {duplicate} stands there twice; choose a method or group by it"
        )
    return units


def _difference_in_pairs(
    rows: pd.DataFrame, column: str, treatment: Mapping, baseline: Mapping
) -> pd.Series:
    """treatment - baseline of each unit."""
    treatment_units = _index_by_unit(select(rows, **treatment), column)
    baseline_units = _index_by_unit(select(rows, **baseline), column)
    return _subtract_paired(treatment_units, baseline_units, column)


def _subtract_paired(a: pd.Series, b: pd.Series, column: str) -> pd.Series:
    """Computes a - b inside pairs of one seed, item and sample.

    A single run in one of them, such as that of an untrained baseline, is paired with every seed of the other.

    Args:
        a: Measurements, indexed by seed, item and sample.
        b: Measurements to subtract, indexed alike.
        column: What was measured, for the error message.

    Raises:
        ValueError: A unit of `a` has no partner in `b`.
    """
    if a.index.equals(b.index):
        return a - b
    num_seeds_a = a.index.get_level_values("seed").nunique()
    num_seeds_b = b.index.get_level_values("seed").nunique()
    if num_seeds_a == 1 and num_seeds_b > 1:
        return -_subtract_paired(b, a, column)
    if num_seeds_b == 1 and num_seeds_a > 1:
        # Repeat the single run of b for every seed of a.
        b = b.droplevel("seed").reindex(a.index.droplevel("seed"))
        b.index = a.index

    num_without_partner = len(set(a.index) - set(b.index)) or int(b.isna().sum())
    if num_without_partner:
        raise ValueError(f"{column!r}: {num_without_partner} units have no partner")
    return a - b.reindex(a.index)


def _estimate_variance_components(
    units: pd.Series, column: str
) -> random_effects.VarianceComponents:
    """Recognises the design of the units: runs crossed with items, runs with items of their own, or a single run.

    Args:
        units: Values by seed, item and sample; samples of an item are averaged.
        column: What is measured, for the error.

    Raises:
        ValueError: If some runs share items and others do not.
    """
    run_of_unit = np.asarray(units.index.codes[0], dtype=np.int64)
    item_of_unit = np.asarray(units.index.codes[1], dtype=np.int64)
    num_runs = int(run_of_unit.max()) + 1
    num_items = int(item_of_unit.max()) + 1

    # Average the samples of each run and item.
    grid_shape = (num_runs, num_items)
    grid_index = run_of_unit * num_items + item_of_unit
    grid_size = num_runs * num_items
    counts = np.bincount(grid_index, minlength=grid_size).reshape(grid_shape)
    sums = np.bincount(grid_index, units.to_numpy(), grid_size).reshape(grid_shape)
    is_measured = counts > 0
    grid = np.divide(sums, counts, where=is_measured, out=np.zeros_like(sums))  # (runs, items)

    if num_runs == 1:
        return random_effects.sample_variance_components(grid[0], "items", 1, num_items)
    if is_measured.all() and num_items > 1:
        return random_effects.crossed_variance_components(grid)
    if num_items > 1 and (is_measured.sum(0) > 1).any():
        raise ValueError(
            f"{column!r}: some runs share items, others do not; take all of them, or name items by run"
        )
    run_means = grid.sum(1) / is_measured.sum(1)
    return random_effects.sample_variance_components(run_means, "runs", num_runs, num_items)


def _use_exact_interval_of_proportion(estimate: EstimateRow, units: pd.Series) -> EstimateRow:
    """Replaces the interval by the exact one where the mean is a proportion: a single run's zeros and ones."""
    is_single_run = estimate["num_runs"] == 1 and estimate["num_items"] == len(units)
    if not is_single_run or not set(units.unique()) <= {0.0, 1.0}:
        return estimate
    ci_low, ci_high = random_effects.clopper_pearson_interval(int(units.sum()), len(units))
    return estimate | {"ci_low": ci_low, "ci_high": ci_high}


def _clip_interval(estimate: EstimateRow, bounds: tuple[float, float]) -> EstimateRow:
    """Ends the interval where the range of the quantity ends.

    The truth lies inside the range, so that the interval holds it as often as before; p_value and mde stay.
    """
    ci_low, ci_high = np.clip([estimate["ci_low"], estimate["ci_high"]], *bounds)  # nan stays nan
    return estimate | {"ci_low": float(ci_low), "ci_high": float(ci_high)}


def _carry_unusable_share(estimate: EstimateRow, *selections: pd.DataFrame) -> EstimateRow:
    """Adds the largest mark of the rows that an estimate rests on; rows without the column leave it as it is."""
    marked = [rows[UNUSABLE_SHARE] for rows in selections if UNUSABLE_SHARE in rows]
    if not marked:
        return estimate
    # Rows that were put beside marked ones, by `pd.concat`, have no mark: nan.
    return estimate | {UNUSABLE_SHARE: float(pd.concat(marked).fillna(0.0).max())}


def _make_frame(estimates: Mapping[GroupName, EstimateRow], by: By) -> pd.DataFrame:
    """Builds a frame of estimates: one row per group, indexed by the grouping columns.

    Args:
        estimates: By the name of the group.
        by: Columns that define the groups.
    """
    is_marked = any(UNUSABLE_SHARE in estimate for estimate in estimates.values())
    names = [*COLUMNS, UNUSABLE_SHARE] if is_marked else COLUMNS
    frame = pd.DataFrame(list(estimates.values()), columns=names)
    frame = frame.astype({"num_runs": int, "num_items": int})
    columns = _as_list(by)
    if not columns:
        return frame
    if len(columns) == 1:
        index = pd.Index([name[0] for name in estimates], name=columns[0])
    else:
        index = pd.MultiIndex.from_tuples(list(estimates), names=columns)
    return frame.set_axis(index)
