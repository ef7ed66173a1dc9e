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
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.stats import Interval

NOTHING = "–"  # what stands where there is no value
NO_USABLE_REPLY = "no usable reply"  # heads a column
LONGEST_NAME = 28  # characters of a row's name that are kept on one line
LONGEST_WORDS = 20  # characters of a text that may be set in a column of any width
COLUMN_LABELS = {  # what a reader sees in place of a column's name; other underscores become blanks
    "cost_usd": "cost, $",
    "own_cost_usd": "own cost, $",
    "usd_per_million": "$ per million",
    "kg_co2e": "CO2e, kg",
    "hv_mean": "hypervolume of the mean",
    "hv_union": "hypervolume of the union",
    "ci_low": "interval, low",
    "ci_high": "interval, high",
    "p_value": "p-value",
    "mde": "minimum detectable effect",
    "num_runs": "runs",
    "num_items": "items",
}
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_NUMBER = re.compile(r"[-−+]?[\d.]+(?:e[-+]?\d+)?%?(?:\s*\[.*\]|\s*\(n = \d+\))?|" + NOTHING)


def with_interval(value: float, ci_low: float, ci_high: float, digits: int = 2) -> str:
    """A value with its interval, `0.64 [0.61, 0.66]`; without one (an end not finite) the value alone."""
    if not math.isfinite(value):
        return NOTHING
    if not (math.isfinite(ci_low) and math.isfinite(ci_high)):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{ci_low:.{digits}f}, {ci_high:.{digits}f}]"


def interval_table(
    rows: Mapping[str, Mapping[str, Interval]], digits: int | None = None
) -> pd.DataFrame:
    """Writes intervals as text, one row for each method and one column for each quantity.

    Args:
        rows: {method: {quantity: interval}}; a method that lacks a quantity gets a dash.
        digits: Decimals everywhere; by default three in a column of shares, whose values are all below 1.5, and two
            elsewhere.

    Returns:
        Cells made by `with_interval`, in the order of first appearance.
    """
    all_columns = [column for row in rows.values() for column in row]
    cells = {}
    for column in dict.fromkeys(all_columns):
        intervals = [row[column] for row in rows.values() if column in row]
        if digits is not None:
            decimals = digits
        else:
            are_shares = all(abs(interval.value) < 1.5 for interval in intervals)
            decimals = 3 if are_shares else 2
        cells[column] = [
            _format_interval(row[column], decimals) if column in row else NOTHING
            for row in rows.values()
        ]
    return pd.DataFrame(cells, index=pd.Index(list(rows), name="method", dtype=object))


def estimates_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Prepares a frame of estimates for display: one column of intervals in place of value, ci_low and ci_high.

    Args:
        frame: Estimates of `lib.stats`; any other frame is returned as it is.

    Returns:
        The frame; where a model gave too few usable replies, a column says in which share of its calls.
    """
    if not {"value", "ci_low", "ci_high"} <= set(map(str, frame.columns)):
        return frame
    not_displayed = ["ci_low", "ci_high", "p_value", "mde", "num_runs", "num_items"]
    displayed = frame.drop(columns=[*not_displayed, UNUSABLE_SHARE], errors="ignore")
    displayed = displayed.assign(value=stats.intervals(frame))
    if UNUSABLE_SHARE not in frame:
        return displayed
    shares = frame[UNUSABLE_SHARE].astype(float).fillna(0.0)
    displayed[NO_USABLE_REPLY] = [f"{share:.0%} of calls" if share else "" for share in shares]
    return displayed


def table_html(frame: pd.DataFrame, caption: str, digits: int | None = None) -> str:
    """Writes a data frame as an accessible HTML table that scrolls by itself where it is too wide.

    An index with names becomes row headers; otherwise the first column does if it holds text.

    Args:
        frame: The table; column names of two levels are joined, and names that code uses become words.
        caption: What it shows.
        digits: Decimals of every float; by default each column gets as many as its size asks for.

    Raises:
        ValueError: There is no caption, or no column.
    """
    if not caption.strip():
        raise ValueError("a table needs a caption that says what it shows")
    flat = _flatten_index(frame)
    if not len(flat.columns):
        raise ValueError(f"the table {caption!r} has no columns")
    texts = []  # by column, the text of every cell
    align_right = []
    for index in range(len(flat.columns)):
        column = flat.iloc[:, index]
        column_texts = _format_column(column, digits)
        texts.append(column_texts)
        align_right.append(_is_numeric(column, column_texts))
    has_row_headers = not align_right[0]

    label = escape(caption, quote=True)
    lines = [
        f'<div class="scroll" role="group" aria-label="{label}" tabindex="0" style="overflow-x:auto">',
        "<table>",
        f"<caption>{escape(caption, quote=False)}</caption>",
        "<thead><tr>",
    ]
    for name, is_right in zip(flat.columns, align_right, strict=True):
        lines.append(_make_cell("th", str(name), is_right, "col"))
    lines += ["</tr></thead>", "<tbody>"]
    for row in zip(*texts, strict=True):
        cells = []
        for index, text in enumerate(row):
            tag = "th" if index == 0 and has_row_headers else "td"
            cells.append(_make_cell(tag, text, align_right[index], "row"))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines += ["</tbody>", "</table>", "</div>"]
    return "\n".join(lines) + "\n"


def number(value: Any, digits: int | None = None) -> str:
    """Formats a single value as text.

    Args:
        value: A number, truth value, interval or text; None and nan are a dash.
        digits: Decimals; by default three significant digits.
    """
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return NOTHING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return _format_interval(value, 2 if digits is None else digits)
    if isinstance(value, numbers.Integral) or not isinstance(value, numbers.Real):
        return str(value)
    decimals = _count_decimals([float(value)]) if digits is None else digits
    return _format_fixed(float(value), decimals)


def more_or_less(difference: float) -> str:
    """A difference in words for a title, such as "0.05 more" or "0.01 less"."""
    word = "less" if round(difference, 2) < 0 else "more"
    return f"{abs(difference):.2f} {word}"


def listed(words: Sequence[str], nothing: str = "nobody") -> str:
    """Joins words to an enumeration, such as "a, b and c"; by semicolons where a word has a comma of its own.

    Args:
        words: The words.
        nothing: The text where there are none.
    """
    if not words:
        return nothing
    if len(words) == 1:
        return words[0] or nothing
    separator = "; " if any(", " in word for word in words) else ", "
    return f"{separator.join(words[:-1])} and {words[-1]}"


def _format_interval(value: Interval, digits: int) -> str:
    if stats.has_few_runs(value.num_runs):
        return f"{value.value:.{digits}f} (n = {value.num_runs})"
    return with_interval(value.value, value.ci_low, value.ci_high, digits)


def _format_fixed(value: float, digits: int) -> str:
    """A float with `digits` decimals; one that would vanish keeps two significant digits instead."""
    text = f"{value:.{digits}f}"
    is_zero_as_text = not float(text)
    if value and is_zero_as_text and math.isfinite(value):
        return f"{value:.2g}"
    return text.removeprefix("-") if not value else text  # no minus before zero


def _count_decimals(values: list[float]) -> int:
    """Chooses the number of decimals of a column of a table.

    Args:
        values: The numbers of the column.

    Returns:
        Enough for three significant digits of the median and two of the smallest number; at most 6, and at most 4 for
        the smallest.
    """
    sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
    if not sizes:
        return 2
    typical_exponent = math.floor(math.log10(sizes[len(sizes) // 2]))
    smallest_exponent = math.floor(math.log10(sizes[0]))
    decimals = max(2 - typical_exponent, min(1 - smallest_exponent, 4), 0)
    return min(decimals, 6)


def _flatten_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Turns index levels into columns, and several levels of column names into one.

    Args:
        frame: Any frame; an unnamed index that only counts is left out.
    """
    flat = frame.copy()
    if isinstance(flat.columns, pd.MultiIndex):
        flat.columns = [
            " / ".join(_label_column(level) for level in name if str(level))
            for name in flat.columns
        ]
    else:
        flat.columns = [_label_column(name) for name in flat.columns]
    only_counts = isinstance(flat.index, pd.RangeIndex) and flat.index.name is None
    if only_counts:
        return flat
    levels = flat.index.to_frame(index=False)
    levels.columns = [_label_column(name or "") for name in flat.index.names]
    return pd.concat([levels, flat.reset_index(drop=True)], axis=1)


def _label_column(name: Any) -> str:
    """What heads a column: words in place of the name that code uses."""
    text = COLUMN_LABELS.get(str(name), str(name))
    return text.replace("_", " ") if _IDENTIFIER.fullmatch(text) else text


def _format_column(column: pd.Series, digits: int | None) -> list[str]:
    """Formats the values of a column with the same number of decimals.

    Args:
        column: Numbers, intervals or texts.
        digits: Decimals; by default chosen by the size of the numbers.
    """
    values = [
        value.value if isinstance(value, Interval) and not value.known else value
        for value in column
    ]
    has_intervals = any(isinstance(value, Interval) for value in values)
    if has_intervals and digits is None:
        # Shares get three decimals, others two.
        sizes = [
            abs(getattr(value, "value", value))
            for value in values
            if isinstance(value, (Interval, float))
        ]
        digits = 2 if any(size >= 1.5 for size in sizes) else 3
    floats = [
        float(value)
        for value in values
        if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    ]
    decimals = _count_decimals(floats) if digits is None else digits
    return [number(value, decimals) for value in values]


def _is_numeric(values: pd.Series, texts: list[str]) -> bool:
    if pd.api.types.is_bool_dtype(values):
        return False
    return pd.api.types.is_numeric_dtype(values) or (
        len(texts) > 0 and all(_NUMBER.fullmatch(text) for text in texts)
    )


def _make_cell(tag: str, text: str, is_right: bool, scope: str) -> str:
    """Renders one cell of an HTML table.

    Args:
        tag: "th" for a header, else "td".
        text: Its content.
        is_right: Whether it is aligned to the right, as numbers are.
        scope: "row" or "col", what a header heads.
    """
    if not text:
        tag = "td"  # an empty header is the header of nothing
    scope_attribute = f' scope="{scope}"' if tag == "th" else ""

    # Numbers with their intervals, and short names, stay on one line; a table that gets too wide scrolls. A longer
    # text has room for a few words in a line.
    is_short_name = scope == "row" and tag == "th" and len(text) <= LONGEST_NAME
    width = ""
    if is_right or is_short_name:
        width = ";white-space:nowrap"
    elif len(text) > LONGEST_WORDS:
        width = ";min-width:11em"
    alignment = "right" if is_right else "left"
    style = f'style="text-align:{alignment}{width}"'
    return f"<{tag}{scope_attribute} {style}>{escape(text, quote=False)}</{tag}>"
