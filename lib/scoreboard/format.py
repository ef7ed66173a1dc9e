"""How numbers of claims are written, the same in the board, in tables and in sentences."""

import math

from lib.plots.tables import NOTHING, number
from lib.scoreboard.verdicts import COMPARED, TestResult, Verdict
from lib.stats import Interval


def format_estimate(estimate: Interval) -> str:
    """Formats a value with its interval, such as "0.64 [0.61, 0.66]"; without one if it is exact or unknown."""
    if not math.isfinite(estimate.value):
        return NOTHING
    if not estimate.known:
        return _format_short(estimate.value)
    is_exact = estimate.ci_low == estimate.ci_high
    if is_exact and estimate.value != round(estimate.value):
        return f"{estimate.value:.4g}"
    if is_exact:
        return _format_short(estimate.value)
    ci_low, ci_high = _format_short(estimate.ci_low), _format_short(estimate.ci_high)
    return f"{_format_short(estimate.value)} [{ci_low}, {ci_high}]"


def _format_short(value: float) -> str:
    """Three significant digits; whole numbers as they are; very small ones with an exponent."""
    if value == round(value) and abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else number(float(value))


def format_decimal(value: float) -> str:
    """A small number without an exponent: 0.00005."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def format_paper_number(verdict: Verdict) -> str:
    """The paper's number with its unit, or a dash."""
    claim = verdict.claim
    return NOTHING if claim.number is None else f"{claim.number:,.6g} {claim.unit}".strip()


def format_test_result(result: TestResult) -> str:
    """Formats what was measured for one test of a claim.

    Returns:
        Both sides of the comparison and, where they were sampled, their difference with interval and the minimum
        detectable effect.
    """
    if not math.isfinite(result.lhs.value):
        return NOTHING
    if result.verdict == COMPARED or result.rhs is None:
        return format_estimate(result.lhs)
    text = f"{format_estimate(result.lhs)} beside {format_estimate(result.rhs)}"
    if result.is_sampled:
        text += f"; margin {format_estimate(result.difference)}"
        if math.isfinite(result.mde):
            text += f"; minimum detectable effect {_format_short(result.mde)}"
    return text
