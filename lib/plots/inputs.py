"""Checks what a figure is given, and turns it into one table of estimates (value, ci_low, ci_high) or into words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.stats import Interval

ESTIMATE_COLUMNS = ["value", "ci_low", "ci_high"]
Estimates = pd.DataFrame | Mapping[Any, Interval] | Mapping[Any, Mapping[Any, Interval]]


def estimates_table(estimates: Estimates, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Brings estimates of any accepted form into one table.

    Args:
        estimates: A frame with a column value (and ci_low, ci_high), its groups in the index or in text columns; or
            {name: Interval}; or {name: {column: Interval}}. Names may be tuples.
        by: The group columns to index by, in order; all of them by default.

    Returns:
        Float columns value, ci_low and ci_high, indexed by group, in the order of the input. Both ends are nan where
        one run gives no interval.

    Raises:
        ValueError: A column or group is missing, a group has two estimates or half an interval, or a value is not
            finite.
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
    table = frame.reindex(columns=ESTIMATE_COLUMNS).astype(float)

    # Refuse what could only be drawn wrongly.
    for group, row in zip(index_tuples(table), table.itertuples(index=False), strict=True):
        require_finite(row.value, f"the value of {format_group(group)}")
        if np.isfinite(row.ci_low) != np.isfinite(row.ci_high):
            raise ValueError(
                f"{format_group(group)} has half an interval: lo {row.ci_low}, hi {row.ci_high}"
            )
    if table.index.has_duplicates:
        repeated_group = format_group(table.index[table.index.duplicated()][0])
        raise ValueError(
            f"there are two estimates of {repeated_group}; group by more, or choose one of them"
        )
    return table


def _frame_from_mapping(estimates: Mapping) -> pd.DataFrame:
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
    rows = [(interval.value, interval.ci_low, interval.ci_high) for interval in intervals.values()]
    return pd.DataFrame(rows, index=index, columns=ESTIMATE_COLUMNS)


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
    """Raises ValueError for a column that the frame lacks (None is skipped), and for a frame without rows."""
    missing = [name for name in names if name is not None and name not in frame.columns]
    if missing:
        raise ValueError(
            f"the frame has no column {missing}; it has {sorted(map(str, frame.columns))}"
        )
    if frame.empty:
        raise ValueError("the frame has no rows; there is nothing to draw")


def describe_intervals(*estimates: pd.DataFrame) -> str:
    """The sentence below a figure that says which estimates have an interval.

    A missing interval would otherwise be read as a narrow one.
    """
    has_interval = pd.concat(estimates)["ci_low"].notna()
    if has_interval.all():
        return "Lines: 95% intervals."
    if has_interval.any():
        return "Lines: 95% intervals; what has none is one run."
    return "No intervals are known."


def describe_estimates(estimates: Estimates, message: str = "") -> str:
    """Estimates in words, for someone who does not see the figure.

    Args:
        estimates: As for `estimates_table`.
        message: A sentence that comes first.

    Returns:
        Every group with its value and interval, to three significant digits.
    """
    table = estimates_table(estimates)
    descriptions = []
    for group, row in zip(index_tuples(table), table.itertuples(index=False), strict=True):
        description = f"{format_group(group)} {row.value:.3g}"
        if np.isfinite(row.ci_low):
            description += f" [{row.ci_low:.3g}, {row.ci_high:.3g}]"
        descriptions.append(description)
    opening = f"{message}. " if message else ""
    return opening + "; ".join(descriptions) + "."
