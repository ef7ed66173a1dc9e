"""Estimates as figures take them, checked: one table of value, lo and hi, whatever they came as; and in words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.stats import Interval

ENDS = ["value", "ci_low", "ci_high"]
Estimates = pd.DataFrame | Mapping[Any, Interval] | Mapping[Any, Mapping[Any, Interval]]


def table(given: Estimates, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Columns value, lo and hi (float), by what the estimates are grouped by, in the order they came in.

    given: a frame with these columns, its groups in the index or in columns of words; {name: Interval} or
    {name: {column: Interval}}, whose names may be tuples. by: the groups wanted, in order; all of them otherwise. lo
    and hi are nan where one run gives no interval. Raises ValueError for a missing column or group, two estimates of
    one group, half an interval, and a value that is not finite.
    """
    frame = given.copy() if isinstance(given, pd.DataFrame) else _from_mapping(given)
    columns(frame, ENDS[:1])
    plain = frame.index.names == [None] and isinstance(frame.index, pd.RangeIndex)
    groups = [
        c for c in frame.columns if c not in ENDS and not pd.api.types.is_numeric_dtype(frame[c])
    ]
    if by is not None or plain:
        frame = frame.reset_index(drop=plain)
        by = list(by) if by is not None else groups
        columns(frame, by)
        frame = frame.set_index(by)
    out = frame.reindex(columns=ENDS).astype(float)
    for key, row in zip(keys(out), out.itertuples(index=False), strict=True):
        finite(row.value, f"the value of {told_key(key)}")
        if np.isfinite(row.ci_low) != np.isfinite(row.ci_high):
            raise ValueError(
                f"{told_key(key)} has half an interval: lo {row.ci_low}, hi {row.ci_high}"
            )
    if out.index.has_duplicates:
        twice = told_key(out.index[out.index.duplicated()][0])
        raise ValueError(
            f"there are two estimates of {twice}; group by more, or choose one of them"
        )
    return out


def _from_mapping(given: Mapping) -> pd.DataFrame:
    flat: dict[tuple, Interval] = {}
    for name, found in given.items():
        name = name if isinstance(name, tuple) else (name,)
        flat |= (
            {(*name, key): each for key, each in found.items()}
            if isinstance(found, Mapping)
            else {name: found}
        )
    if not flat:
        raise ValueError("there are no estimates; there is nothing to draw")
    index = (
        pd.MultiIndex.from_tuples(flat)
        if len(next(iter(flat))) > 1
        else pd.Index([key[0] for key in flat])
    )
    return pd.DataFrame(
        [(each.value, each.ci_low, each.ci_high) for each in flat.values()],
        index=index,
        columns=ENDS,
    )


def keys(frame: pd.DataFrame) -> list[tuple]:
    """The index as tuples, also where it has one level."""
    return [key if isinstance(key, tuple) else (key,) for key in frame.index]


def told_key(key) -> str:
    """A group in words."""
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Both ends (n, 2), which are the value itself where no interval is known."""
    return pd.DataFrame({end: frame[end].fillna(frame["value"]) for end in ("ci_low", "ci_high")})


def finite(values, what: str) -> np.ndarray:
    """`values` as a float array. Raises ValueError, naming `what`, if it is empty or not finite."""
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError(f"{what} is empty; there is nothing to draw")
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise ValueError(f"{what} has {bad} of {array.size} values that are nan or infinite")
    return array


def columns(frame: pd.DataFrame, names: Iterable[str | None]) -> None:
    """Raises ValueError for a column that the frame lacks, and for a frame without rows."""
    missing = [name for name in names if name is not None and name not in frame.columns]
    if missing:
        raise ValueError(
            f"the frame has no column {missing}; it has {sorted(map(str, frame.columns))}"
        )
    if frame.empty:
        raise ValueError("the frame has no rows; there is nothing to draw")


def note(*parts: pd.DataFrame) -> str:
    """What is without an interval, so that no one reads a missing one as a narrow one."""
    known = pd.concat(parts)["ci_low"].notna()
    if known.all():
        return "Lines: 95% intervals."
    return (
        "Lines: 95% intervals; what has none is one run."
        if known.any()
        else "No intervals are known."
    )


def alt(estimates: Estimates, message: str = "") -> str:
    """Estimates in words, for someone who does not see the figure; three digits that count."""
    found = table(estimates)
    told = [
        f"{told_key(key)} {row.value:.3g}"
        + (f" [{row.ci_low:.3g}, {row.ci_high:.3g}]" if np.isfinite(row.ci_low) else "")
        for key, row in zip(keys(found), found.itertuples(index=False), strict=True)
    ]
    return (f"{message}. " if message else "") + "; ".join(told) + "."
