"""Numbers with their intervals as text, and the note that a model is scripted, for captions and conclusions."""

import math

from lib.plots.tables import NOTHING
from lib.stats import Interval


def divide_interval(interval: Interval, unit: float) -> Interval:
    """An interval in units that are `unit` times as large."""
    return Interval(interval.value / unit, interval.ci_low / unit, interval.ci_high / unit)


def format_interval(interval: Interval, digits: int = 2, sign: bool = False) -> str:
    """Formats a value with its interval, such as "0.64 [0.61, 0.66]".

    Args:
        interval: The value and the ends of its interval.
        digits: Decimals.
        sign: Whether positive numbers get a plus sign.

    Returns:
        The text; without brackets where the ends are unknown, and a dash where the value is not finite.
    """
    if not math.isfinite(interval.value):
        return NOTHING
    format_end = format_signed if sign else format_number
    value = format_end(interval.value, digits)
    if not interval.known:
        return value
    return (
        f"{value} [{format_end(interval.ci_low, digits)}, {format_end(interval.ci_high, digits)}]"
    )


def format_number(value: float, digits: int = 2) -> str:
    """A number with so many decimals."""
    return f"{round(value, digits) + 0.0:.{digits}f}"  # adding 0.0 turns -0.0 into 0.0


def format_signed(value: float, digits: int = 2) -> str:
    """A number with so many decimals and its sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # adding 0.0 turns -0.0 into 0.0
