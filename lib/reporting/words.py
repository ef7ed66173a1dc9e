"""How reports say what intervals say: numbers with their ends, clear and unclear differences, verdicts on claims.

A value that is nan was not to be measured: a dash in tables, no key among metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lib.page.tables import NOTHING as DASH
from lib.stats import Interval

NOTHING = Interval(math.nan, math.nan, math.nan)  # what was not to be measured


def there(found: Interval) -> bool:
    """Whether there is a value at all."""
    return math.isfinite(found.value)


def within(found: Interval) -> Interval:
    """An interval of something that lies in [0, 1]."""
    return Interval(found.value, *np.clip([found.lo, found.hi], 0, 1).tolist())


def number(found: Interval, digits: int = 2, sign: bool = False) -> str:
    """A value with its interval, as far as there is one; a dash for none."""
    if not there(found):
        return DASH
    told = [signed(x, digits) if sign else plain(x, digits) for x in (found.value, found.lo, found.hi)]
    return told[0] + (f" [{told[1]}, {told[2]}]" if found.known else "")


def plain(value: float, digits: int = 2) -> str:
    """A number with so many decimals, and never -0.00."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """The same with its sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def clearly(found: Interval, more: str = "more", less: str = "less") -> str:
    """What a difference says: clearly more, clearly less, or not clearly either."""
    if not there(found):
        return f"neither {more} nor {less}, for want of cases"
    if found.excludes(0):
        return f"clearly {more if found.value > 0 else less}"
    return f"not clearly {more} or {less}"


def changed(found: Interval, digits: int = 2) -> str:
    """A difference with its interval, and whether it is clear."""
    return f"{number(found, digits, True)} ({clearly(found, 'up', 'down')})"


def verdict(found: Interval) -> str:
    """The same of a claim that a difference is above 0."""
    if not there(found):
        return "no cases"
    if found.value == 0 and (not found.known or found.lo == found.hi == 0):
        return "no difference"
    if not found.excludes(0):
        return "undecided"
    return "holds" if found.value > 0 else "does not hold"


def finite(metrics: Mapping[str, object]) -> dict[str, object]:
    """Metrics without those that there was nothing to measure of; ends that are not known are left out."""
    out: dict[str, object] = {}
    for key, value in metrics.items():
        if isinstance(value, Interval):
            value = value if value.known else value.value
        if not isinstance(value, float) or math.isfinite(value):
            out[key] = value
    return out
