"""The rule that decides one comparison by its interval, for claims and for the sentences of lessons."""

from lib.stats import Interval, interval_arithmetic
from lib.stats.verdicts import FAILS, HOLDS, UNDECIDED

_ROUNDING = 1e-9  # two sums of floats that differ by less are equal


def decide(difference: Interval, comparison: str, tolerance: float = 0.0) -> tuple[str, str]:
    """Decides one comparison by its interval.

    Args:
        difference: Left minus right, or right minus left where the comparison is < or <=.
        comparison: <, >, <=, >= or ==.
        tolerance: How far the sides of an equality may be apart.

    Returns:
        The verdict, and the reason where it does not explain itself.
    """
    if comparison == "==":
        is_equal = abs(difference.value) <= tolerance * (1 + _ROUNDING) + _ROUNDING
        return (HOLDS, "") if is_equal else (FAILS, "")
    if not difference.known:
        return UNDECIDED, "not everything in it has an interval"
    # <= and >= hold at equality, which rounding may miss.
    slack = _ROUNDING if "=" in comparison else 0.0
    if difference.ci_low > -slack:
        return HOLDS, ""
    if difference.ci_high < -slack:
        return FAILS, ""
    if interval_arithmetic.is_exact(difference):
        return UNDECIDED, "no difference at all"
    return UNDECIDED, "the interval holds 0"
