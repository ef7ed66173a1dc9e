"""What estimates say: verdicts against zero and a margin, with all questions asked at once, in one small vocabulary.

    holds           the whole interval lies on the claimed side of zero
    does not hold   the whole interval lies on the other side
    equivalent      the interval holds zero and lies inside a margin that was written down before the run
    undecided       anything else; `mde` is the minimum detectable effect of these runs
    not open        too little could be won by choosing (`lib.stats.headroom`), so nothing was asked
    untestable      an interval of no width: nothing varied, so nothing was tested

These are the words of lessons, scoreboard and front page; a metric's key has them with underscores (`slug`). Left out:
claims of the papers, which are `lib.scoreboard`.
"""

import numpy as np
import pandas as pd

HOLDS = "holds"
FAILS = "does not hold"
EQUIVALENT = "equivalent"
UNDECIDED = "undecided"
NOT_OPEN = "not open"
UNTESTABLE = "untestable"
_WORDS = {
    HOLDS: "clearly above 0",
    FAILS: "clearly below",
    EQUIVALENT: "equivalent",
    UNDECIDED: UNDECIDED,
}


def slug(verdict: str) -> str:
    """A verdict as part of a metric's key or an attribute: "does not hold" is "does_not_hold"."""
    return verdict.replace(" ", "_")


def verdict(estimates: pd.DataFrame, equivalence_margin: float | None = None) -> pd.Series:
    """The verdict on each estimate being above 0. equivalence_margin: half-width of what counts as no difference."""
    if equivalence_margin is not None and equivalence_margin <= 0:
        raise ValueError(f"an equivalence margin must be above 0, got {equivalence_margin:g}")
    ci_low, ci_high = estimates["ci_low"], estimates["ci_high"]
    alike = (
        (ci_low > -equivalence_margin) & (ci_high < equivalence_margin)
        if equivalence_margin is not None
        else pd.Series(False, index=estimates.index)
    )
    cases = [ci_low == ci_high, ci_low > 0, ci_high < 0, alike]
    found = np.select(cases, [UNTESTABLE, HOLDS, FAILS, EQUIVALENT], UNDECIDED)
    return pd.Series(found, index=estimates.index, name="verdict")


def holm(estimates: pd.DataFrame, level: float = 0.05) -> pd.Series:
    """Whether each effect is still significant with all of them tested at once (Holm 1979): the chance that one of
    those kept is luck stays below `level`. Estimates without a p-value are never kept."""
    p = estimates["p_value"].fillna(1.0)
    order = p.sort_values(kind="stable").index
    bounds = level / np.arange(len(order), 0, -1)
    kept = np.cumprod(p.loc[order].to_numpy() <= bounds).astype(
        bool
    )  # all up to the first that fails
    return pd.Series(kept, index=order, name="kept").reindex(estimates.index)


def words(estimates: pd.DataFrame, equivalence_margin: float | None = None) -> str:
    """Which of several estimates are clear, as one sentence: `clearly above 0: a, b; undecided: c.`"""
    found = verdict(estimates, equivalence_margin)
    names = [
        " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        for name in estimates.index
    ]
    said = {
        word: [n for n, v in zip(names, found, strict=True) if v == key]
        for key, word in _WORDS.items()
    }
    return "; ".join(f"{word}: {', '.join(them)}" for word, them in said.items() if them) + "."
