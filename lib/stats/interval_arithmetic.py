"""Arithmetic of estimates with their intervals, for claims that compare two of them.

Sums and differences carry intervals by the method of variance estimates recovery (MOVER; Zou and Donner 2008,
eqs. 4 and 5), which takes the two estimates for independent:

    a - b:  low = d - sqrt((a - a_low)^2 + (b_high - b)^2),  high = d + sqrt((a_high - a)^2 + (b - b_low)^2)

Products and quotients do the same with logarithms, where both are positive. A number that is known has an
interval of no width; an estimate of a single run has none at all (nan), and neither has what is computed of it.
Left out: dependence. Two methods that share seeds are compared by their paired difference, a metric of its own.
"""

import math
from collections.abc import Callable

from lib.stats import Interval


def exact(value: float) -> Interval:
    """A number that is known: an interval of no width."""
    return Interval(float(value), float(value), float(value))


def is_exact(a: Interval) -> bool:
    """Whether nothing about it was sampled."""
    return a.ci_low == a.value == a.ci_high


def holding(value: float, ci_low: float, ci_high: float) -> Interval:
    """An interval that holds its own value; a bootstrap's percentiles may miss it by a hair."""
    return Interval(value, min(ci_low, value), max(ci_high, value))


def plus(a: Interval, b: Interval) -> Interval:
    """a + b."""
    # a and b are independent, so that their widths add as squares, on each side by itself.
    value = a.value + b.value
    width_below = math.hypot(a.value - a.ci_low, b.value - b.ci_low)
    width_above = math.hypot(a.ci_high - a.value, b.ci_high - b.value)
    return Interval(value, value - width_below, value + width_above)


def minus(a: Interval, b: Interval) -> Interval:
    """a - b."""
    return plus(a, negative(b))


def negative(a: Interval) -> Interval:
    """-a."""
    return Interval(-a.value, -a.ci_high, -a.ci_low)


def times(a: Interval, b: Interval) -> Interval:
    """a * b; no interval where neither is exact and one of them is not clearly positive."""
    if is_exact(a):
        return _scale_interval(b, a.value)
    if is_exact(b):
        return _scale_interval(a, b.value)
    return _combine_logarithms(a, b, plus, a.value * b.value)


def _scale_interval(a: Interval, factor: float) -> Interval:
    """a times an exact number, which may be negative."""
    if not a.known:
        return Interval(a.value * factor, math.nan, math.nan)
    ends = sorted((a.ci_low * factor, a.ci_high * factor))
    return Interval(a.value * factor, *ends)


def over(a: Interval, b: Interval) -> Interval:
    """a / b. Raises ZeroDivisionError for b = 0."""
    if is_exact(b):
        return times(a, exact(1 / b.value))
    return _combine_logarithms(a, b, minus, a.value / b.value)


def least(*several: Interval) -> Interval:
    """The smallest of several; its ends are the smallest ends."""
    return _choose_extreme(min, several)


def most(*several: Interval) -> Interval:
    """The largest of several; its ends are the largest ends."""
    return _choose_extreme(max, several)


def size(a: Interval) -> Interval:
    """abs(a)."""
    if a.known and a.ci_low <= 0 <= a.ci_high:
        return Interval(abs(a.value), 0.0, max(-a.ci_low, a.ci_high))
    return negative(a) if a.value < 0 else a


def _choose_extreme(choose: Callable[..., float], several: tuple[Interval, ...]) -> Interval:
    """Computes the minimum or maximum of several estimates, end by end.

    Args:
        choose: `min` or `max`.
        several: The estimates; if the interval of one is unknown, so is that of the result.
    """
    value = choose(a.value for a in several)
    if not all(a.known for a in several):
        return Interval(value, math.nan, math.nan)
    ci_low = choose(a.ci_low for a in several)
    ci_high = choose(a.ci_high for a in several)
    return Interval(value, ci_low, ci_high)


def _combine_logarithms(
    a: Interval, b: Interval, combine: Callable[..., Interval], value: float
) -> Interval:
    """Computes the interval of a product or a quotient of two estimates on the logarithmic scale.

    Args:
        a: An estimate.
        b: Another one.
        combine: `plus` for the product, `minus` for the quotient.
        value: The product or quotient of the values.

    Returns:
        The value with its interval, which is unknown unless both intervals lie above 0.
    """
    # A logarithm needs the whole interval above 0.
    if not (a.known and b.known and a.ci_low > 0 and b.ci_low > 0):
        return Interval(value, math.nan, math.nan)
    log_result = combine(_take_logarithm(a), _take_logarithm(b))
    return holding(value, math.exp(log_result.ci_low), math.exp(log_result.ci_high))


def _take_logarithm(a: Interval) -> Interval:
    return Interval(math.log(a.value), math.log(a.ci_low), math.log(a.ci_high))
