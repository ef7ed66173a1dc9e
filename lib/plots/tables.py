"""Tables that a screen reader can walk: a caption, headers that say what they head, aligned numbers.

`table_html` is what lessons and the front page show; its styles stand on the cells, so that a table looks
the same in JupyterLab, where the report's style sheet is not. `interval_table` puts estimates and their
intervals side by side. Left out: sorting, colours and merged cells.
"""

import math
import numbers
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from lib import stats
from lib.stats import Interval

NOTHING = "–"  # what stands where there is no value
LONGEST_NAME = 28  # characters of a row's name that are kept on one line
LONGEST_WORDS = 20  # characters of a text that may be set in a column of any width
_NUMBER = re.compile(r"[-−+]?[\d.]+(?:e[-+]?\d+)?%?(?:\s*\[.*\])?|" + NOTHING)


def with_interval(value: float, ci_low: float, ci_high: float, digits: int = 2) -> str:
    """A value with its interval, `0.64 [0.61, 0.66]`; without one (lo or hi not finite) the value alone."""
    if not math.isfinite(value):
        return NOTHING
    if not (math.isfinite(ci_low) and math.isfinite(ci_high)):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{ci_low:.{digits}f}, {ci_high:.{digits}f}]"


def interval_table(
    rows: Mapping[str, Mapping[str, Interval]], digits: int | None = None
) -> pd.DataFrame:
    """One row per method and one column per quantity, each cell a string made by `with_interval`.

    A method that lacks a column gets a dash there. The order is that of first appearance. digits: decimals
    everywhere; otherwise three in a column of shares, whose values are all below 1.5, and two elsewhere.
    """
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = {}
    for column in columns:
        present = [row[column] for row in rows.values() if column in row]
        decimals = (
            digits
            if digits is not None
            else 3
            if all(abs(each.value) < 1.5 for each in present)
            else 2
        )
        cells[column] = [
            _interval(row[column], decimals) if column in row else NOTHING for row in rows.values()
        ]
    return pd.DataFrame(cells, index=pd.Index(list(rows), name="method", dtype=object))


def estimates_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of `lib.stats` with one column of estimates in place of value, lo and hi; any other as it is."""
    if not {"value", "ci_low", "ci_high"} <= set(map(str, frame.columns)):
        return frame
    rest = frame.drop(
        columns=["ci_low", "ci_high", "p_value", "mde", "num_runs", "num_items"], errors="ignore"
    )
    return rest.assign(value=stats.intervals(frame))


def table_html(frame: pd.DataFrame, caption: str, digits: int | None = None) -> str:
    """A data frame as an accessible HTML table that scrolls by itself where it is too wide.

    An index with names becomes row headers; otherwise the first column does if it holds text. digits:
    decimals of every float; otherwise each column gets as many as its size asks for.
    Raises ValueError without a caption or without a column.
    """
    if not caption.strip():
        raise ValueError("a table needs a caption that says what it shows")
    flat = _flat(frame)
    if not len(flat.columns):
        raise ValueError(f"the table {caption!r} has no columns")
    texts = [_column(flat.iloc[:, place], digits) for place in range(len(flat.columns))]
    right = [_is_numeric(flat.iloc[:, place], texts[place]) for place in range(len(texts))]
    headed = not right[0]
    label = escape(caption, quote=True)
    lines = [
        f'<div class="scroll" role="group" aria-label="{label}" tabindex="0" style="overflow-x:auto">'
    ]
    lines += ["<table>", f"<caption>{escape(caption, quote=False)}</caption>", "<thead><tr>"]
    lines += [
        _cell("th", str(name), right[place], "col") for place, name in enumerate(flat.columns)
    ]
    lines += ["</tr></thead>", "<tbody>"]
    for row in zip(*texts, strict=True):
        cells = [
            _cell("th" if place == 0 and headed else "td", text, right[place], "row")
            for place, text in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>", "</div>"]) + "\n"


def number(value: Any, digits: int | None = None) -> str:
    """A single value as text: three significant digits unless `digits` says how many decimals."""
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return NOTHING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return _interval(value, 2 if digits is None else digits)
    if isinstance(value, numbers.Integral) or not isinstance(value, numbers.Real):
        return str(value)
    return _fixed(float(value), _decimals([float(value)]) if digits is None else digits)


def listed(words: Sequence[str], nothing: str = "nobody") -> str:
    """Names in a sentence; where one has a comma of its own, semicolons stand between them."""
    comma = "; " if any(", " in word for word in words) else ", "
    return " and ".join([comma.join(words[:-1]), words[-1]] if len(words) > 1 else words) or nothing


def _interval(value: Interval, digits: int) -> str:
    return with_interval(value.value, value.ci_low, value.ci_high, digits)


def _fixed(value: float, digits: int) -> str:
    """A float with `digits` decimals; one that would vanish keeps two significant digits instead."""
    text = f"{value:.{digits}f}"
    if value and not float(text) and math.isfinite(value):
        return f"{value:.2g}"
    return text.removeprefix("-") if not value else text


def _decimals(values: list[float]) -> int:
    """Decimals of a column: three significant digits for its typical value, two for its smallest.

    At most 6, and at most 4 for the sake of the smallest; one that still vanishes is written by itself.
    """
    sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
    if not sizes:
        return 2
    typical, smallest = (
        math.floor(math.log10(size)) for size in (sizes[len(sizes) // 2], sizes[0])
    )
    return min(max(2 - typical, min(1 - smallest, 4), 0), 6)


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index as columns (unless it only counts) and one level of column names."""
    flat = frame.copy()
    if isinstance(flat.columns, pd.MultiIndex):
        flat.columns = [
            " / ".join(str(part) for part in name if str(part)) for name in flat.columns
        ]
    counts = isinstance(flat.index, pd.RangeIndex) and flat.index.name is None
    if counts:
        return flat
    levels = flat.index.to_frame(index=False)
    levels.columns = [name or "" for name in flat.index.names]
    return pd.concat([levels, flat.reset_index(drop=True)], axis=1)


def _column(values: pd.Series, digits: int | None) -> list[str]:
    values = [v.value if isinstance(v, Interval) and not v.known else v for v in values]
    if (
        any(isinstance(v, Interval) for v in values) and digits is None
    ):  # shares to three decimals, others to two
        digits = (
            2
            if any(
                abs(getattr(v, "value", v)) >= 1.5
                for v in values
                if isinstance(v, (Interval, float))
            )
            else 3
        )
    floats = [
        float(v)
        for v in values
        if isinstance(v, numbers.Real) and not isinstance(v, numbers.Integral)
    ]
    decimals = _decimals(floats) if digits is None else digits
    return [number(value, decimals) for value in values]


def _is_numeric(values: pd.Series, texts: list[str]) -> bool:
    if pd.api.types.is_bool_dtype(values):
        return False
    return pd.api.types.is_numeric_dtype(values) or (
        len(texts) > 0 and all(_NUMBER.fullmatch(text) for text in texts)
    )


def _cell(tag: str, text: str, right: bool, scope: str) -> str:
    tag = tag if text else "td"  # an empty header heads nothing
    scoped = f' scope="{scope}"' if tag == "th" else ""
    # numbers with their intervals, and names, stay on one line; a table that gets too wide scrolls
    whole = right or (scope == "row" and tag == "th" and len(text) <= LONGEST_NAME)
    # and a longer text has room for a few words in a line
    width = (
        ";white-space:nowrap" if whole else ";min-width:11em" if len(text) > LONGEST_WORDS else ""
    )
    style = f'style="text-align:{"right" if right else "left"}{width}"'
    return f"<{tag}{scoped} {style}>{escape(text, quote=False)}</{tag}>"
