"""How many directions would hold by chance, and which of them still do when all are asked at once.

An interval of 95 % leaves a claim that is not true a chance of 2.5 % to hold by luck. Of N of them, N x 2.5 % are
expected to. Holm's procedure (1979) keeps the chance that even one of those kept is luck below the same 2.5 %. Its
probabilities are read off the intervals here, taking the difference for normal, which few seeds make generous:

    s = (d - lo) / 1.96,    p = 1 - Phi(d / s)

Of several tests of one claim, all of which must hold, the largest p counts; of n tests of which k must, the
partial conjunction (n - k + 1) p_(k) of Benjamini and Heller (2008).
"""

import math
from collections.abc import Sequence

import pandas as pd
from scipy.stats import norm

from lib import stats
from lib.scoreboard.verdicts import COMPARED, UNTESTABLE, Part, Verdict

ALPHA = 0.025  # what an interval of 95 % leaves on one side
REACH = float(norm.ppf(1 - ALPHA))


def asked(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The directions that a sampled difference with an interval could decide: the family of tests."""
    return [
        v
        for v in verdicts
        if v.claim.kind == "direction"
        and v.verdict not in (UNTESTABLE, COMPARED)
        and any(part.sampled for part in v.parts)
        and all(part.margin.known for part in v.parts)
    ]


def expected(verdicts: Sequence[Verdict]) -> float:
    """How many of them would hold by luck if none were true."""
    return ALPHA * len(asked(verdicts))


def probability(verdict: Verdict) -> float:
    """The chance of so clear a result in the claimed direction if there were nothing in it, about normal."""
    ordered = sorted(float(norm.sf(_distance(part))) for part in verdict.parts)
    need = len(ordered) if verdict.claim.need == "all" else int(verdict.claim.need)
    return min(1.0, (len(ordered) - need + 1) * ordered[need - 1])


def clearness(verdict: Verdict) -> float:
    """How far the claim is met, in standard errors: that of its weakest test that is needed. Infinite if exact."""
    ordered = sorted((_distance(part) for part in verdict.parts), reverse=True)
    return ordered[(len(ordered) if verdict.claim.need == "all" else int(verdict.claim.need)) - 1]


def _distance(part: Part) -> float:
    """d / s, with s from the end of the interval that lies towards 0."""
    d = part.margin
    reach = d.value - d.ci_low if d.value > 0 else d.ci_high - d.value
    if reach > 0:
        return REACH * d.value / reach
    return 0.0 if d.value == 0 else math.copysign(math.inf, d.value)


def survivors(verdicts: Sequence[Verdict]) -> set[str]:
    """Ids of the claims that hold with all of the family asked at once (Holm 1979)."""
    p = pd.DataFrame(
        {"p_value": {v.claim.id: probability(v) for v in asked(verdicts)}}, dtype=float
    )
    return set(p.index[stats.holm(p, ALPHA)])
