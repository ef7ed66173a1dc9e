"""Arithmetic of estimates with their intervals, for claims that compare two of them.

Sums and differences carry intervals by the method of variance estimates recovery (MOVER; Zou and Donner 2008,
eqs. 4 and 5), which takes the two estimates for independent:

    a - b:  lo = d - sqrt((a - a_lo)^2 + (b_hi - b)^2),  hi = d + sqrt((a_hi - a)^2 + (b - b_lo)^2)

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
    value = a.value + b.value
    below, above = (
        math.hypot(a.value - a.ci_low, b.value - b.ci_low),
        math.hypot(a.ci_high - a.value, b.ci_high - b.value),
    )
    return Interval(value, value - below, value + above)


def minus(a: Interval, b: Interval) -> Interval:
    """a - b."""
    return plus(a, negative(b))


def negative(a: Interval) -> Interval:
    """-a."""
    return Interval(-a.value, -a.ci_high, -a.ci_low)


def times(a: Interval, b: Interval) -> Interval:
    """a * b; no interval where neither is known and one of them is not clearly positive."""
    if is_exact(a) or is_exact(b):
        factor, other = (a.value, b) if is_exact(a) else (b.value, a)
        ends = (
            sorted((other.ci_low * factor, other.ci_high * factor))
            if other.known
            else [math.nan, math.nan]
        )
        return Interval(other.value * factor, *ends)
    return _by_logarithms(a, b, plus, a.value * b.value)


def over(a: Interval, b: Interval) -> Interval:
    """a / b. Raises ZeroDivisionError for b = 0."""
    if is_exact(b):
        return times(a, exact(1 / b.value))
    return _by_logarithms(a, b, minus, a.value / b.value)


def least(*several: Interval) -> Interval:
    """The smallest of several; its ends are the smallest ends."""
    return _chosen(min, several)


def most(*several: Interval) -> Interval:
    """The largest of several; its ends are the largest ends."""
    return _chosen(max, several)


def size(a: Interval) -> Interval:
    """abs(a)."""
    if a.known and a.ci_low <= 0 <= a.ci_high:
        return Interval(abs(a.value), 0.0, max(-a.ci_low, a.ci_high))
    return negative(a) if a.value < 0 else a


def _chosen(choose: Callable[..., float], several: tuple[Interval, ...]) -> Interval:
    value = choose(each.value for each in several)
    if not all(each.known for each in several):
        return Interval(value, math.nan, math.nan)
    return Interval(
        value, choose(each.ci_low for each in several), choose(each.ci_high for each in several)
    )


def _by_logarithms(
    a: Interval, b: Interval, combine: Callable[..., Interval], value: float
) -> Interval:
    if not (a.known and b.known and a.ci_low > 0 and b.ci_low > 0):
        return Interval(value, math.nan, math.nan)
    found = combine(
        *(Interval(*(math.log(end) for end in (x.value, x.ci_low, x.ci_high))) for x in (a, b))
    )
    return holding(value, math.exp(found.ci_low), math.exp(found.ci_high))
