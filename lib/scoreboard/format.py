"""How numbers of claims are written, the same in the board, in tables and in sentences."""

import math

from lib.plots.tables import NOTHING, number
from lib.scoreboard.verdicts import COMPARED, Part, Verdict
from lib.stats import Interval


def estimate(found: Interval) -> str:
    """A value with its interval, unless it is exact or has none: `0.64 [0.61, 0.66]`."""
    if not math.isfinite(found.value):
        return NOTHING
    if found.known and found.ci_low == found.ci_high:
        return _short(found.value) if found.value == round(found.value) else f"{found.value:.4g}"
    value = _short(found.value)
    return (
        value if not found.known else f"{value} [{_short(found.ci_low)}, {_short(found.ci_high)}]"
    )


def _short(value: float) -> str:
    """Three significant digits; whole numbers as they are; very small ones with an exponent."""
    if value == round(value) and abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else number(float(value))


def decimal(value: float) -> str:
    """A small number without an exponent: 0.00005."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def printed(verdict: Verdict) -> str:
    """The paper's number with its unit, or a dash."""
    claim = verdict.claim
    return NOTHING if claim.number is None else f"{claim.number:,.6g} {claim.unit}".strip()


def ours(part: Part) -> str:
    """What our metrics say on one test: both sides and, where they were sampled, the margin."""
    if not math.isfinite(part.left.value):
        return NOTHING
    if part.verdict == COMPARED or part.right is None:
        return estimate(part.left)
    sides = f"{estimate(part.left)} beside {estimate(part.right)}"
    if not part.sampled:
        return sides
    least = f"; minimum detectable effect {_short(part.mde)}" if math.isfinite(part.mde) else ""
    return f"{sides}; margin {estimate(part.margin)}{least}"
