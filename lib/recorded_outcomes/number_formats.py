"""Columns of numbers as people and spreadsheets write them: "0,85", "$1,234.50", "85 %", "TRUE", "pass".

    columns = {"cost_usd": ["$1,234.50", "$0.20"]}
    parse_numbers(columns, {"cost_usd": "usd"})["cost_usd"]   # array([1234.5, 0.2])

Whether a comma is a decimal comma or separates thousands is decided once for the whole table, by the values that allow
one reading only; a table without such a value is refused. Left out: what the numbers mean (`user_tables`).
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd

Kind = Literal["fraction", "usd", "number"]
TRUE_WORDS = ("true", "yes", "y", "t", "correct", "right", "pass", "passed")
FALSE_WORDS = ("false", "no", "n", "f", "incorrect", "wrong", "fail", "failed")
_DOLLAR_SIGN = re.compile(r"^(?P<sign>[+-]?)(?:us\$|usd|\$)|(?:us\$|usd|\$)$", re.IGNORECASE)
_OTHER_CURRENCY = re.compile(r"[€£¥₹]|\b(?:eur|gbp|jpy|cny|chf|ct|cents?)\b", re.IGNORECASE)
_BLANKS_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s\u00a0\u202f'](?=\d{3}(?!\d))")  # 1 234, 1'234
_EXPONENT = r"(?:e[+-]?\d+)?"
_POINT_DECIMAL = re.compile(rf"[+-]?(?:\d+\.?\d*|\.\d+){_EXPONENT}", re.IGNORECASE)
_COMMA_DECIMAL = re.compile(rf"[+-]?(?:\d+,\d*|,\d+){_EXPONENT}", re.IGNORECASE)
_COMMA_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_POINT_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d*)?")


class NumberError(ValueError):
    """A value that is no number, or one that can be read in two ways.

    Attributes:
        column: Name of the column.
        index: Index of the row, from 0.
    """

    def __init__(self, column: str, index: int, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.index = index


def parse_numbers(
    columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]
) -> dict[str, np.ndarray]:
    """Reads the number columns of one table.

    Args:
        columns: The values by name, as texts or as numbers of any type.
        kinds: What they are, by name: a "fraction" may be a truth value or a percentage, "usd" may have a dollar
            sign.

    Returns:
        By name the numbers as floats; true is 1, false is 0, and 85% is .85.

    Raises:
        NumberError: A value is missing or no number, a column mixes percentages with other numbers, or nothing in the
            table tells whether its commas are decimal commas.
    """
    texts = {}
    for name, values in columns.items():
        texts[name] = [_to_text(value, kinds[name]) for value in values]
    comma_is_decimal = _decide_decimal_comma(columns, texts)

    numbers = {}
    for name, column_texts in texts.items():
        # "85" beside "85%" could be 85 or .85, so that a column is all percentages or has none.
        is_percent = [kinds[name] == "fraction" and text.endswith("%") for text in column_texts]
        if any(is_percent) and not all(is_percent):
            index = is_percent.index(not is_percent[0])
            other_rows = "percentages" if is_percent[0] else "no percentages"
            raise NumberError(
                name,
                index,
                f"is {column_texts[index]!r}, while other rows are {other_rows}; write all in one way",
            )
        values = np.array(
            [
                _parse_text(text, name, index, kinds[name], comma_is_decimal)
                for index, text in enumerate(column_texts)
            ]
        )
        numbers[name] = values / 100 if any(is_percent) else values
    return numbers


def _to_text(value: Any, kind: Kind) -> str:
    """Converts a value to a text that is easier to parse.

    Args:
        value: A text, a number of any type, a truth value, or a missing value.
        kind: Dollar signs are removed where it is "usd".

    Returns:
        The text without dollar signs and without blanks between thousands; "" for a missing value.
    """
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (Real, Decimal)) and not isinstance(value, str):
        number = float(value)
        # repr keeps every digit.
        return "" if np.isnan(number) else repr(number)
    text = str(value).strip()
    if kind == "usd":
        text = _DOLLAR_SIGN.sub(lambda match: match["sign"] or "", text).strip()
    return _BLANKS_BETWEEN_DIGITS.sub("", text)


def _decide_decimal_comma(
    columns: Mapping[str, Sequence[Any]], texts: Mapping[str, Sequence[str]]
) -> bool:
    """Decides for a whole table whether a comma is a decimal comma ("0,85") or separates thousands ("1,234").

    The first text that allows one reading only decides: "0,85" means decimal commas, "0.85" decimal points. "1,234" can
    be read in both ways and decides nothing.

    Args:
        columns: The values by name, as they were read; only those that were texts count.
        texts: The same values by name, as `_to_text` returns them.

    Returns:
        Whether commas are decimal commas; False where no text has a comma.

    Raises:
        NumberError: There is a text like "1,234", and no other text decides.
    """
    ambiguous: tuple[str, int] | None = None  # column and row of the first text like "1,234"
    for name, column_texts in texts.items():
        for index, text in enumerate(column_texts):
            # A value that was a number already says nothing about how texts are written.
            if not isinstance(columns[name][index], str):
                continue
            number = text.rstrip("%").strip()
            readings = _list_readings(number)
            if readings == ["comma"]:
                return True
            if readings == ["point"]:
                return False
            # Of texts with two readings, "1.234" is a number with a point unless decimal commas are used elsewhere.
            if len(readings) == 2 and "," in number and ambiguous is None:
                ambiguous = (name, index)
    if ambiguous is None:
        return False
    name, index = ambiguous
    raise NumberError(
        name,
        index,
        f"is {texts[name][index]!r}, which reads with a decimal comma and with thousands; write decimal points",
    )


def _list_readings(number: str) -> list[str]:
    """Lists the number formats in which a text can be read.

    Args:
        number: The text.

    Returns:
        "comma" for a decimal comma (0,85 or 1.234,5), "point" for a decimal point (0.85 or 1,234.5); both for
        "1,234", none without a separator.
    """
    if "," not in number and "." not in number:
        return []
    readings = []
    if _COMMA_DECIMAL.fullmatch(number) or _POINT_THOUSANDS.fullmatch(number):
        readings.append("comma")
    if _POINT_DECIMAL.fullmatch(number) or _COMMA_THOUSANDS.fullmatch(number):
        readings.append("point")
    return readings


def _parse_text(text: str, column: str, index: int, kind: Kind, comma_is_decimal: bool) -> float:
    """Parses one text.

    Args:
        text: As `_to_text` returns it.
        column: Name of its column, for messages.
        index: Index of its row, for messages.
        kind: A "fraction" may be a truth value or a percentage.
        comma_is_decimal: Whether a comma is a decimal comma in this table.

    Returns:
        The number; a percentage is not yet divided by 100.

    Raises:
        NumberError: The text is empty or no number.
    """
    if not text:
        raise NumberError(column, index, "is empty; write a number, or leave the row out")
    if kind == "fraction" and text.lower() in TRUE_WORDS:
        return 1.0
    if kind == "fraction" and text.lower() in FALSE_WORDS:
        return 0.0
    digits = text.removesuffix("%").strip() if kind == "fraction" else text
    if comma_is_decimal and (
        _POINT_THOUSANDS.fullmatch(digits) or _COMMA_DECIMAL.fullmatch(digits)
    ):
        digits = digits.replace(".", "").replace(",", ".")
    elif not comma_is_decimal and _COMMA_THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    if _POINT_DECIMAL.fullmatch(digits):
        return float(digits)
    remedy = "write a number"
    if kind == "usd" and _OTHER_CURRENCY.search(text):
        remedy = "convert it to US dollars"
    raise NumberError(column, index, f"is {text!r}, which is no number; {remedy}")
