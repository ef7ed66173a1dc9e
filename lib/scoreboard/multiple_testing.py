"""How many directions would hold by chance, and which of them still do when all are tested at once.

An interval of 95 % leaves a claim that is not true a chance of 2.5 % to hold by luck. Of N of them, N x 2.5 % are
expected to. Holm's procedure (1979) keeps the chance that even one of those that survive is luck below the same 2.5 %.
Its probabilities are computed from the intervals here, taking the difference for normal, which few seeds make
generous:

    s = (d - d_low) / 1.96,    p = 1 - Phi(d / s)

Of several tests of one claim, all of which must hold, the largest p counts; of n tests of which k must, the
partial conjunction (n - k + 1) p_(k) of Benjamini and Heller (2008).
"""

import math
from collections.abc import Sequence

import pandas as pd
from scipy.stats import norm

from lib import stats
from lib.scoreboard.verdicts import COMPARED, HOLDS, UNTESTABLE, TestResult, Verdict

ALPHA = 0.025  # what an interval of 95 % leaves on one side
Z_ALPHA = float(norm.ppf(1 - ALPHA))  # 1.96, half-width of the interval in standard errors


def select_family(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Selects the family of tests for Holm's correction: directions decided by sampled differences with intervals."""
    family = []
    for verdict in verdicts:
        is_tested = verdict.claim.kind == "direction" and verdict.verdict not in (
            UNTESTABLE,
            COMPARED,
        )
        is_sampled = any(result.is_sampled for result in verdict.test_results)
        has_intervals = all(result.difference.known for result in verdict.test_results)
        if is_tested and is_sampled and has_intervals:
            family.append(verdict)
    return family


def expected_by_chance(verdicts: Sequence[Verdict]) -> float:
    """How many of the family would hold by luck if none were true."""
    return ALPHA * len(select_family(verdicts))


def compute_p_value(verdict: Verdict) -> float:
    """Computes the probability of so clear a result in the claimed direction if there were no effect.

    Args:
        verdict: One of the family.

    Returns:
        The one-sided p-value, in normal approximation; of several tests the partial conjunction.
    """
    # Ascending, so that the needed tests are the first ones.
    p_values = sorted(float(norm.sf(_compute_z_score(result))) for result in verdict.test_results)
    num_needed = _count_needed_tests(verdict)
    # Partial conjunction: (n - k + 1) p_(k) of n tests of which k must hold.
    correction = len(p_values) - num_needed + 1
    p_value = correction * p_values[num_needed - 1]
    return min(1.0, p_value)


def compute_clearness(verdict: Verdict) -> float:
    """How far the claim is met, in standard errors: that of its weakest test that is needed. Infinite if exact."""
    # Descending: the weakest test that is needed stands at position k.
    z_scores = sorted(map(_compute_z_score, verdict.test_results), reverse=True)
    return z_scores[_count_needed_tests(verdict) - 1]


def _count_needed_tests(verdict: Verdict) -> int:
    need = verdict.claim.need
    return len(verdict.test_results) if need == "all" else int(need)


def _compute_z_score(result: TestResult) -> float:
    """Computes the z-score d / s of a measured difference.

    The standard error s comes from the half-width of the interval on the side of 0.
    """
    difference = result.difference
    if difference.value > 0:
        half_width = difference.value - difference.ci_low
    else:
        half_width = difference.ci_high - difference.value
    if half_width > 0:
        return Z_ALPHA * difference.value / half_width
    # An interval of no width: nothing was sampled.
    return 0.0 if difference.value == 0 else math.copysign(math.inf, difference.value)


def select_survivors(verdicts: Sequence[Verdict]) -> set[str]:
    """Selects the claims that hold, also with all of the family tested at once (Holm 1979).

    Args:
        verdicts: Verdicts on all claims.

    Returns:
        Ids of the claims.
    """
    family = select_family(verdicts)
    p_values = {verdict.claim.id: compute_p_value(verdict) for verdict in family}
    frame = pd.DataFrame({"p_value": p_values}, dtype=float)
    is_clear = set(frame.index[stats.holm(frame, ALPHA)])
    # A direction whose question is not open does not hold, however clear its difference is.
    return {
        verdict.claim.id
        for verdict in family
        if verdict.verdict == HOLDS and verdict.claim.id in is_clear
    }
