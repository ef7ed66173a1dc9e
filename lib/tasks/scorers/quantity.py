r"""Numbers as people and models write them, with their units.

What is read: 1,000; 1000.5; $12; 12.; 12 %; 5 million; 1/2; 3 1/2; 1e3; 3 \times 10^{4}; \frac{1}{2}; ½; any minus.
A comma is a thousands separator where exactly three digits stand behind it and none of them leads with 0 before it
(1,000), else a decimal comma (1,5; 0,500). A point is a decimal point (1.000 is one), except where both separators, or
several points, leave no doubt: 1.000,5 and 1.000.000. Blanks separate thousands only where the whole answer is that
number. What is not read: number words (twelve), roots, powers, unknowns (2\pi, 5\sqrt{2}, 2^{10}), and what
lies beyond floating point.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_MAX_DIGITS = 300  # of a whole number; beyond that it is no floating point number
_MINUS = str.maketrans(dict.fromkeys("−﹣－‒", "-"))
_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_LATEX_NUMBER = r"\s*(-?\d+(?:\.\d+)?)\s*"
_LATEX = [
    (re.compile(r"\\[dtc]?frac\s?\{" + _LATEX_NUMBER + r"\}\s?\{" + _LATEX_NUMBER + r"\}"), r" \1/\2 "),
    (re.compile(r"\\[dtc]?frac\s?(\d)\s?(\d)"), r" \1/\2 "),
    (re.compile(r"(?<=\d)(?:\\[,;!:]|\{,\}|\u00a0|\u202f|\u2009|~)(?=\d{3}(?!\d))"), ","),
    (re.compile(r"\\[,;!: ]|\u00a0|\u202f|\u2009|~"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s?\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])|[×·⋅]"), "*"),
    (re.compile(r"\^\s?\{?\s?(?:\\circ|\\degree)\s?\}?|\\degree"), "°"),
    (re.compile(r"\\(?:approx|simeq|sim|equiv)(?![A-Za-z])|[≈≃]"), "="),
    (re.compile(r"\\(?:left|right|displaystyle|quad|qquad|bigl|bigr|[()\[\]])(?![A-Za-z])"), " "),
    (re.compile(r"\\\$"), "$"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(\d)\s?([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)"), r"\1^\2"),
    # Math delimiters come in pairs; the sign before a sum of money does not.
    (re.compile(r"\$\$?([^$\n]{1,300})\$\$?(?!\d)"), r" \1 "),
    (re.compile(r"(?<=\d)\s?\*\*(?=\s?\d)"), "^"),
    (re.compile(r"\*\*|__|`|(?<![\w)\s])\*(?=\S)|(?<=\S)\*(?![\w(\\\s])"), ""),
]  # fmt: skip
_OPERATION = re.compile(
    r"\^|[+*/]\s*[\dA-Za-z(]|-\s*\d|\(\d|:\d|[xyzn](?![A-Za-z])|[a-ln-rt-z]\s?[+*^-]\s?\d"
)
_OPERAND_COMMAND = re.compile(r"\\[A-Za-z]+|[π√∞]")

_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)"  # 1,000.5
    r"|[1-9]\d{0,2}(?:\.\d{3})+,\d+(?!\d)"  # 1.000,5
    r"|[1-9]\d{0,2}(?:\.\d{3}){2,}(?!\d|[.,]\d)"  # 1.000.000
    r"|\d+,\d+(?!\d|[,.]\d)"  # 1,5
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_CURRENCY = r"(?:[$€£¥₹]|US\$|USD ?|EUR ?|Rs\.? ?)"
_NUMBER = re.compile(
    r"(?<![\w.])(?<!\d,)(?<![A-Za-z]-)"
    rf"(?P<sign>(?<![\w)\]}}])[-+–])?\s?(?P<currency>{_CURRENCY})?\s?(?P<inner_sign>(?<=[$€£¥₹])-)?"
    r"(?:(?P<whole>\d+)\s{1,3}(?P<numerator>\d+)\s?/\s?(?P<denominator>\d+)(?!\d|[.,]\d)"
    rf"|(?P<dividend>{_DIGITS})\s?/\s?(?P<divisor>{_DIGITS})"
    rf"|(?P<digits>{_DIGITS})"
    r"(?:[eE](?P<exponent>[-+]?\d{1,4})(?!\w)|\s?[*x]\s?10\s?\^?\s?[{(]?(?P<power>[-+]?\d{1,4})[})]?)?"
    r"(?:[ -]?(?P<scale>hundred|thousand|million|billion|trillion)\b)?)"
)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_UNIT = re.compile(
    r"\s{0,4}(?P<unit>%|°\s?[CFK]?(?![A-Za-z])"
    r"|(?:square|cubic|sq|cu)\.?\s[A-Za-z]+"
    r"|[A-Za-zµμΩ$€£¥]+(?:\s?\^?\s?\{?-?[23]\}?|[²³])?"
    r"(?:\s?/\s?[A-Za-z]+(?:\s?\^?\s?\{?[23]\}?|[²³])?|\s(?:per|an|a)\s[A-Za-z]+)?)"
)
# Words behind a number that are no unit.
_NO_UNITS = {
    *("and", "or", "because", "since", "so", "as", "which", "that", "who", "for", "in", "on", "of", "at", "to", "by"),
    *("with", "from", "than", "is", "are", "was", "were", "be", "will", "would", "if", "when", "while", "where"),
    *("after", "before", "each", "total", "altogether", "left", "remaining", "more", "less", "only", "the", "this"),
    *("these", "therefore", "thus", "hence", "making", "meaning", "i", "we", "he", "she", "it", "they", "you", "not"),
    *("but", "then", "respectively", "overall", "approximately", "exactly", "times", "x"),
}  # fmt: skip
_UNIT_NAMES = {
    "%": "% percent percentage pct percents",
    "$": "$ dollar usd us$ buck",
    "€": "€ euro eur",
    "£": "£ pound gbp",
    "¢": "¢ cent",
    "km": "km kilometer kilometre",
    "m": "m meter metre",
    "cm": "cm centimeter centimetre",
    "mm": "mm millimeter millimetre",
    "mi": "mi mile",
    "ft": "ft foot feet",
    "in": "inch inche",
    "kg": "kg kilogram kilo kilogramme",
    "g": "g gram gramme",
    "mg": "mg milligram",
    "lb": "lb pound-weight",
    "oz": "oz ounce",
    "l": "l liter litre",
    "ml": "ml milliliter millilitre",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "d": "d day",
    "°": "° degree deg",
    "°c": "°c degree-celsius",
    "°f": "°f degree-fahrenheit",
    "mph": "mph mi/h",
    "km/h": "km/h kmh kph kmph",
}
_CANONICAL_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}


@dataclass(frozen=True)
class Quantity:
    """A number with its unit.

    Attributes:
        value: The number as it stands; 12 for "12 %".
        unit: The unit in one spelling ("km" for "kilometres"), empty where there is none.
        whole: The number exactly, where it is a whole one that was written out; else None.
        text: What was read.
    """

    value: float
    unit: str = ""
    whole: int | None = None
    text: str = ""


def read_quantity(text: str) -> Quantity | None:
    """Reads the number, with its unit, that a final answer states.

    Args:
        text: A final answer, such as "x = 1,000 km".

    Returns:
        The number that the answer begins with, else its last number; in an equation (or behind "which is") only the
        last term counts. None where there is no number, or where it is only an operand, as in 5π.
    """
    plain = _remove_markup(text[:20_000]).strip()
    # The last term of an equation that holds a digit.
    terms = [term for term in re.split(r"=|\bwhich is\b", plain) if re.search(r"\d", term)]
    if not terms:
        return None
    result = terms[-1].strip()
    if _OPERAND_COMMAND.search(result):
        return None
    result = _join_thousands(result)

    numbers = [_read_match(result, match) for match in _find_numbers(result)]
    if not numbers:
        return None
    # The answer begins with a number.
    start, quantity, end = numbers[0]
    stands_first = not result[:start].strip(" ~(")
    if stands_first:
        return None if _is_operand(result[end:].lstrip()) else quantity
    # Words come first: the last number counts.
    start, quantity, end = numbers[-1]
    before = result[:start].rstrip()
    # In "x + 1" the sign belongs to a sum; in "a profit of -5" to the number.
    is_summand = result[start] in "+-" and re.search(r"(?:\b[a-z]|\))$", before) is not None
    is_operand = before.endswith(("+", "*", "/", "^")) or result[end:].lstrip().startswith("^")
    return None if is_summand or is_operand else quantity


def read_last_quantity(text: str) -> Quantity | None:
    """Reads the last number of a text.

    Args:
        text: Any text.

    Returns:
        The number with the unit that may follow it; None where there is none, or where it is an exponent.
    """
    # The last number of a long text stands near its end.
    plain = _remove_markup(text[-20_000:])
    last = None
    for match in _find_numbers(plain):
        last = match
    if last is None or plain[: last.start()].rstrip(" {(").endswith("^"):
        return None
    _, quantity, _ = _read_match(plain, last)
    return quantity


def agree_in_unit(reference: Quantity, answer: Quantity) -> bool:
    """Whether the units of two numbers do not contradict each other: they are equal, or one is absent."""
    return not reference.unit or not answer.unit or reference.unit == answer.unit


def _remove_markup(text: str) -> str:
    """Replace LaTeX, emphasis and special characters by plain ones: "1/2" for "½" and for the LaTeX of a fraction."""
    text = text.translate(_MINUS).replace("⁄", "/").replace("’", "'")
    for fraction, plain in _VULGAR.items():
        text = text.replace(fraction, f" {plain} ")
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    text = text.translate(_SUPERSCRIPTS)
    return re.sub(r"=\s*-\s+(?=[\d$.])", "= -", text)


def _join_thousands(text: str) -> str:
    """Write "1 000 000 km" as "1000000 km", where a text is nothing but a number and its unit."""
    grouped_number = re.fullmatch(
        r"(-?[1-9]\d{0,2}(?:[ ']\d{3})+)((?:\.\d+)?(?:\s?\D{0,40}))", text
    )
    if grouped_number is None:
        return text
    whole_part, remainder = grouped_number.groups()
    return re.sub(r"[ ']", "", whole_part) + remainder


def _find_numbers(text: str) -> list[re.Match[str]]:
    """Find the numbers in a text that are finite, as matches of _NUMBER."""
    return [match for match in _NUMBER.finditer(text) if _evaluate(match) is not None]


def _is_operand(behind: str) -> bool:
    """Whether a number is part of a formula or a time, judged by the text behind it, such as "+ 2", "x" or ":30"."""
    return _OPERATION.match(behind) is not None


def _read_match(text: str, match: re.Match[str]) -> tuple[int, Quantity, int]:
    """Read the number and the unit of a match of _NUMBER.

    Args:
        text: The text in which the number was found.
        match: The match, of a finite number.

    Returns:
        (start, quantity, end): the number with its unit, and the positions in the text where it starts and ends.
    """
    value, whole = _evaluate(match)  # type: ignore[misc]
    # A currency stands before the number, any other unit behind it.
    unit = _canonicalize_unit((match.group("currency") or "").strip())
    unit_behind = _UNIT.match(text, match.end())
    if unit_behind and not unit:
        unit = _canonicalize_unit(unit_behind.group("unit"))
    return match.start(), Quantity(value, unit, whole, match.group().strip()), match.end()


def _evaluate(match: re.Match[str]) -> tuple[float, int | None] | None:
    """Compute the value of a number that was found in a text.

    Args:
        match: A match of _NUMBER: a mixed number (3 1/2), a fraction (1/2), or digits, perhaps with an exponent (1e3)
            or a word such as "million".

    Returns:
        (value, whole): the value, and the same as an int where it is written out as a whole number, else None. None in
        place of both where the number is not finite.
    """
    negative = match.group("sign") in ("-", "–") or match.group("inner_sign") is not None
    sign = -1 if negative else 1
    # Mixed numbers and fractions.
    if match.group("whole"):
        numbers = [_to_float(match.group(name)) for name in ("whole", "numerator", "denominator")]
        integer, numerator, denominator = numbers
        value = integer + numerator / denominator if denominator else math.inf
        return (sign * value, None) if math.isfinite(value) else None
    if match.group("dividend"):
        dividend = _to_float(match.group("dividend"))
        divisor = _to_float(match.group("divisor"))
        value = dividend / divisor if divisor else math.inf
        return (sign * value, None) if math.isfinite(value) else None

    # Digits, with an exponent or a word for a power of ten.
    digits = _to_plain_digits(match.group("digits"))
    value = _to_float(match.group("digits"))
    exponent = match.group("exponent") or match.group("power")
    scale = match.group("scale")
    if exponent:
        value = float(f"{digits}e{int(exponent)}")
    if scale:
        value *= 10 ** _SCALES[scale]
    if not math.isfinite(value):
        return None
    is_whole = not exponent and not scale and digits.isdecimal() and len(digits) <= _MAX_DIGITS
    return sign * value, sign * int(digits) if is_whole else None


def _to_plain_digits(digits: str) -> str:
    """Write a number without thousands separators and with a decimal point: "1000.5" for "1,000.5" and "1.000,5"."""
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?", digits):
        return digits.replace(",", "")
    if "," in digits:
        return digits.replace(".", "").replace(",", ".")
    return digits.replace(".", "") if digits.count(".") > 1 else digits


def _to_float(digits: str) -> float:
    return float(_to_plain_digits(digits))


def _canonicalize_unit(unit: str) -> str:
    """Write a unit in one spelling: "km/h" for "kilometres per hour".

    Args:
        unit: A unit as it stands in a text, or a word that may be none.

    Returns:
        The unit; empty for a word that is none, such as "because".
    """
    unit = re.sub(r"[\s{}^.]+", " ", unit.lower().translate(_SUPERSCRIPTS)).strip()
    unit = re.sub(r"\s?(?:/|\bper\b|(?<=\w)\s(?:an|a)\s(?=\w))\s?", "/", unit)
    first_word = next(iter(re.findall(r"[^\s/]+", unit)), "")
    if not first_word or first_word in _NO_UNITS:
        return ""
    if unit in _CANONICAL_UNITS:
        return _CANONICAL_UNITS[unit]

    # The parts of a quotient one by one; square and cubic units get their exponent behind them, as in "m2".
    names = []
    for name in unit.split("/"):
        words = re.sub(r"(?<=[a-z])\s?([23])$", r" \1", name).split()
        if words and words[0] in ("square", "sq"):
            words = [*words[1:], "2"]
        if words and words[0] in ("cubic", "cu"):
            words = [*words[1:], "3"]
        names.append("".join(_canonicalize_word(word) for word in words))
    unit = "/".join(names)
    return _CANONICAL_UNITS.get(unit, unit)


def _canonicalize_word(word: str) -> str:
    """Write one word of a unit in one spelling, "km" for "kilometres"; an unknown word loses its plural s."""
    if word in _CANONICAL_UNITS:
        return _CANONICAL_UNITS[word]
    singular = word.removesuffix("s") if len(word) > 2 and not word.endswith("ss") else word
    return _CANONICAL_UNITS.get(singular, singular)
