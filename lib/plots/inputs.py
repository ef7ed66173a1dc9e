"""Checks what a figure is given, and turns it into one table of estimates (value, ci_low, ci_high) or into words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.stats import Interval, has_few_runs

ESTIMATE_COLUMNS = ["value", "ci_low", "ci_high"]
MAX_ALT_LENGTH = 300  # characters; a screen reader reads them in one go
_SLACK = 1e-9  # rounding errors of an interval's ends, relative to its size
Estimates = pd.DataFrame | Mapping[Any, Interval] | Mapping[Any, Mapping[Any, Interval]]


def estimates_table(
    estimates: Estimates,
    by: Sequence[str] | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> pd.DataFrame:
    """Brings estimates of any accepted form into one table.

    Args:
        estimates: A frame with a column value (and ci_low, ci_high), its groups in the index or in text columns; or
            {name: Interval}; or {name: {column: Interval}}. Names may be tuples.
        by: The group columns to index by, in order; all of them by default.
        bounds: The range of the quantity, such as (0, 1) of an accuracy.

    Returns:
        Float columns value, ci_low and ci_high, and num_runs (0 where it is not known), indexed by group, in the order
        of the input. Both ends are nan where there are too few runs for an interval.

    Raises:
        ValueError: A column or group is missing, a group has two estimates or half an interval, a value is not
            finite, or an interval does not hold its value or goes beyond the bounds.
    """
    if isinstance(estimates, pd.DataFrame):
        frame = estimates.copy()
    else:
        frame = _frame_from_mapping(estimates)
    require_columns(frame, ["value"])

    # Text columns name groups, unless the index does already.
    is_unindexed = frame.index.names == [None] and isinstance(frame.index, pd.RangeIndex)
    text_columns = [
        column
        for column in frame.columns
        if column not in ESTIMATE_COLUMNS and not pd.api.types.is_numeric_dtype(frame[column])
    ]
    if by is not None or is_unindexed:
        frame = frame.reset_index(drop=is_unindexed)
        group_columns = list(by) if by is not None else text_columns
        require_columns(frame, group_columns)
        frame = frame.set_index(group_columns)
    run_counts = frame.get("num_runs", pd.Series(0, index=frame.index))
    table = frame.reindex(columns=ESTIMATE_COLUMNS).astype(float).assign(num_runs=run_counts)

    # Refuse what could only be drawn wrongly.
    for group, row in zip(index_tuples(table), table.itertuples(index=False), strict=True):
        require_finite(row.value, f"the value of {format_group(group)}")
        require_interval(row.value, row.ci_low, row.ci_high, format_group(group), bounds)
    if table.index.has_duplicates:
        repeated_group = format_group(table.index[table.index.duplicated()][0])
        raise ValueError(
            f"there are two estimates of {repeated_group}; group by more, or choose one of them"
        )

    # Two runs are points: their interval would rest on one degree of freedom.
    is_few = table["num_runs"].map(has_few_runs)
    table.loc[is_few, ["ci_low", "ci_high"]] = np.nan
    return table


def require_interval(
    value: float,
    ci_low: float,
    ci_high: float,
    description: str,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Refuses an interval that cannot be that of its value.

    Args:
        value: The estimate.
        ci_low: Lower end; nan, like the upper one, where there is no interval.
        ci_high: Upper end.
        description: Whose interval it is, for the error.
        bounds: The range of the quantity.

    Raises:
        ValueError: Half of it is missing, it does not hold the value, or it goes beyond the bounds.
    """
    if np.isfinite(ci_low) != np.isfinite(ci_high):
        raise ValueError(f"{description} has half an interval: lo {ci_low}, hi {ci_high}")
    if not np.isfinite(ci_low):
        return
    slack = _SLACK * max(abs(value), abs(ci_low), abs(ci_high))
    if not ci_low - slack <= value <= ci_high + slack:
        raise ValueError(
            f"{description}: the value {value:.4g} is outside its own interval [{ci_low:.4g}, {ci_high:.4g}]; "
            "compute both from the same numbers, or give no interval (nan)"
        )
    low, high = bounds
    if ci_low < low - slack or ci_high > high + slack:
        raise ValueError(
            f"{description}: the interval [{ci_low:.4g}, {ci_high:.4g}] of {value:.4g} goes beyond the range of the "
            f"quantity, [{low:g}, {high:g}]; take an interval that respects it (`lib.stats.mean`, "
            "`proportion_interval`, `bounds` of `lib.stats.statistic`), or name a difference as one (`minus`, `gain`)"
        )


def _frame_from_mapping(estimates: Mapping) -> pd.DataFrame:
    """Converts a mapping of intervals to a frame of estimates.

    Args:
        estimates: {group: Interval} or {group: {key: Interval}}; a group may be a tuple.

    Returns:
        A row per interval: value, ci_low, ci_high and num_runs, indexed by group (and key).

    Raises:
        ValueError: It is empty.
    """
    intervals: dict[tuple, Interval] = {}
    for name, value in estimates.items():
        group = name if isinstance(name, tuple) else (name,)
        if isinstance(value, Mapping):
            for key, interval in value.items():
                intervals[*group, key] = interval
        else:
            intervals[group] = value
    if not intervals:
        raise ValueError("there are no estimates; there is nothing to draw")

    num_levels = len(next(iter(intervals)))
    if num_levels > 1:
        index = pd.MultiIndex.from_tuples(intervals)
    else:
        index = pd.Index([group[0] for group in intervals])
    rows = [
        (interval.value, interval.ci_low, interval.ci_high, interval.num_runs)
        for interval in intervals.values()
    ]
    return pd.DataFrame(rows, index=index, columns=[*ESTIMATE_COLUMNS, "num_runs"])


def index_tuples(frame: pd.DataFrame) -> list[tuple]:
    """The index as tuples, also where it has one level."""
    return [key if isinstance(key, tuple) else (key,) for key in frame.index]


def format_group(group) -> str:
    """A group, which is a name or a tuple of names, as text."""
    return ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)


def interval_ends(estimates: pd.DataFrame) -> pd.DataFrame:
    """Both ends of every interval, which are the value itself where no interval is known.

    Args:
        estimates: Columns value, ci_low and ci_high, as of `estimates_table`.

    Returns:
        Columns ci_low and ci_high without nan, (n, 2).
    """
    return pd.DataFrame(
        {end: estimates[end].fillna(estimates["value"]) for end in ("ci_low", "ci_high")}
    )


def require_finite(values, description: str) -> np.ndarray:
    """Refuses values that cannot be drawn.

    Args:
        values: A number, or an array of any shape.
        description: What the values are, for the error.

    Returns:
        The values as a float array.

    Raises:
        ValueError: There are no values, or some are nan or infinite.
    """
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError(f"{description} is empty; there is nothing to draw")
    num_bad = int((~np.isfinite(array)).sum())
    if num_bad:
        raise ValueError(
            f"{description} has {num_bad} of {array.size} values that are nan or infinite"
        )
    return array


def require_columns(frame: pd.DataFrame, names: Iterable[str | None]) -> None:
    """Checks that a frame can be drawn.

    Args:
        frame: The data of a figure.
        names: Columns that it must have; None is skipped.

    Raises:
        ValueError: A column is missing, or there are no rows.
    """
    missing = [name for name in names if name is not None and name not in frame.columns]
    if missing:
        raise ValueError(
            f"the frame has no column {missing}; it has {sorted(map(str, frame.columns))}"
        )
    if frame.empty:
        raise ValueError("the frame has no rows; there is nothing to draw")


def describe_intervals(*estimates: pd.DataFrame) -> str:
    """Writes the sentence below a figure that says which estimates have an interval.

    A missing interval would otherwise be read as a narrow one.

    Args:
        *estimates: Tables with ci_low and, where it is known, num_runs.
    """
    table = pd.concat(estimates)
    has_interval = table["ci_low"].notna()
    run_counts = table.get("num_runs", pd.Series(0, index=table.index))
    few = sorted({int(num_runs) for num_runs in run_counts if has_few_runs(num_runs)})
    few_seeds = " or ".join(f"n = {num_runs} seeds" for num_runs in few)
    if has_interval.all():
        return "Lines: 95% intervals."
    if has_interval.any():
        return f"Lines: 95% intervals; what has none is {few_seeds or 'one run'}."
    return f"Points without intervals: {few_seeds}." if few else "No intervals are known."


def describe_estimates(
    estimates: Estimates, message: str = "", max_length: int = MAX_ALT_LENGTH
) -> str:
    """Estimates in words, for someone who does not see the figure.

    Args:
        estimates: As for `estimates_table`.
        message: A sentence that comes first.
        max_length: Characters; what does not fit is counted.

    Returns:
        Every group with its value and interval, to three significant digits.
    """
    table = estimates_table(estimates)
    descriptions = []
    for group, row in zip(index_tuples(table), table.itertuples(index=False), strict=True):
        description = f"{format_group(group)} {row.value:.3g}"
        if np.isfinite(row.ci_low):
            description += f" [{row.ci_low:.3g}, {row.ci_high:.3g}]"
        elif has_few_runs(row.num_runs):
            description += f" (n = {row.num_runs} seeds)"
        descriptions.append(description)
    return join_descriptions(message, descriptions, max_length)


def join_descriptions(
    message: str, descriptions: Sequence[str], max_length: int = MAX_ALT_LENGTH
) -> str:
    """Joins a message and detailed descriptions to an alternative text, as far as there is room.

    Args:
        message: A sentence that comes first; alone it may be longer than `max_length`, which a lesson then refuses.
        descriptions: One for each thing that is drawn.
        max_length: Characters.

    Returns:
        All descriptions, or the first ones and "and 12 more in the table".
    """
    opening = f"{message}. " if message else ""
    text = opening + "; ".join(descriptions) + "."
    for num_said in range(len(descriptions) - 1, -1, -1):
        if len(text) <= max_length:
            break
        rest = f"and {len(descriptions) - num_said} more in the table"
        text = opening + "; ".join([*descriptions[:num_said], rest]) + "."
    return text
