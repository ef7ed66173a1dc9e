"""What estimates say: verdicts against zero and an equivalence margin, and tests of many effects at once.

    holds           the whole interval lies on the claimed side of zero
    does not hold   the whole interval lies on the other side
    equivalent      the interval holds zero and lies inside a margin that was written down before the run
    undecided       anything else; `mde` is the minimum detectable effect of these runs
    not open        too little could be won by choosing (`lib.stats.headroom`), so nothing was tested
    untestable      an interval of no width, so that nothing was tested, or a model that gave too few answers, so that
                    something else decided (`lib.llm.reply_shares`)

These are the words of lessons, scoreboard and front page; a metric's key has them with underscores (`slug`). Left out:
claims of the papers, which are `lib.scoreboard`.
"""

import numpy as np
import pandas as pd

from lib.experiment.results_table import UNUSABLE_SHARE

HOLDS = "holds"
FAILS = "does not hold"
EQUIVALENT = "equivalent"
UNDECIDED = "undecided"
NOT_OPEN = "not open"
UNTESTABLE = "untestable"
_WORDS_BY_VERDICT = {
    HOLDS: "clearly above 0",
    FAILS: "clearly below",
    EQUIVALENT: "equivalent",
    UNDECIDED: UNDECIDED,
}


def slug(verdict: str) -> str:
    """A verdict as part of a metric's key or an attribute: "does not hold" is "does_not_hold"."""
    return verdict.replace(" ", "_")


def verdict(estimates: pd.DataFrame, equivalence_margin: float | None = None) -> pd.Series:
    """Decides for each estimate whether it is above 0.

    Args:
        estimates: A frame of `lib.stats.estimates`.
        equivalence_margin: Half-width of what counts as no difference. Without it nothing is equivalent.

    Returns:
        One of the words of this module for each row, with the frame's index.

    Raises:
        ValueError: If the margin is not above 0.
    """
    ci_low = estimates["ci_low"]
    ci_high = estimates["ci_high"]
    if equivalence_margin is None:
        is_equivalent = pd.Series(False, index=estimates.index)
    elif equivalence_margin <= 0:
        raise ValueError(f"an equivalence margin must be above 0, got {equivalence_margin:g}")
    else:
        is_equivalent = (ci_low > -equivalence_margin) & (ci_high < equivalence_margin)

    # The first condition that is true decides; none is where the interval is nan.
    is_untestable = (ci_low == ci_high) | lacks_answers(estimates)
    conditions = [is_untestable, ci_low > 0, ci_high < 0, is_equivalent]
    verdicts = np.select(conditions, [UNTESTABLE, HOLDS, FAILS, EQUIVALENT], UNDECIDED)
    return pd.Series(verdicts, index=estimates.index, name="verdict")


def lacks_answers(estimates: pd.DataFrame) -> pd.Series:
    """Whether each estimate rests on a model that gave too few answers.

    Args:
        estimates: A frame of `lib.stats.estimates`.

    Returns:
        (n,) bool, with the frame's index; all False where no row was marked.
    """
    if UNUSABLE_SHARE not in estimates:
        return pd.Series(False, index=estimates.index)
    return estimates[UNUSABLE_SHARE].astype(float).fillna(0.0) > 0


def drop_unusable(estimates: pd.DataFrame) -> pd.DataFrame:
    """The estimates without those of models that gave too few answers: something else decided, so they win nothing."""
    return estimates[~lacks_answers(estimates)]


def holm(estimates: pd.DataFrame, level: float = 0.05) -> pd.Series:
    """Tests all effects at once, so that the chance of any false discovery stays below `level` (Holm 1979).

    Args:
        estimates: Effects with a column `p_value`; without a p-value (nan), or with a model that gave too few answers,
            an effect is never significant.
        level: The family-wise error rate.

    Returns:
        Whether each effect is significant, with the frame's index.
    """
    p_values = estimates["p_value"].fillna(1.0).mask(lacks_answers(estimates), 1.0)
    p_values = p_values.sort_values(kind="stable")
    # The smallest p-value is held against level / m, the next one against level / (m - 1), and so on.
    num_effects = len(p_values)
    bounds = level / np.arange(num_effects, 0, -1)
    is_below_bound = p_values.to_numpy() <= bounds
    # From the first effect that fails on, all fail.
    is_significant = np.cumprod(is_below_bound).astype(bool)
    significant = pd.Series(is_significant, index=p_values.index, name="kept")
    return significant.reindex(estimates.index)


def summary_sentence(estimates: pd.DataFrame, equivalence_margin: float | None = None) -> str:
    """Says which of several estimates are clear: `clearly above 0: a, b; undecided: c.`

    Estimates whose interval has no width are left out; those of a model that gave too few answers are named as such.

    Args:
        estimates: A frame of `lib.stats.estimates`, whose index names the estimates.
        equivalence_margin: Half-width of what counts as no difference.
    """
    verdicts = verdict(estimates, equivalence_margin)
    names_by_verdict: dict[str, list[str]] = {key: [] for key in _WORDS_BY_VERDICT}
    names_without_answers = []
    for name, decision, is_marked in zip(
        estimates.index, verdicts, lacks_answers(estimates), strict=True
    ):
        label = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        if decision in names_by_verdict:
            names_by_verdict[decision].append(label)
        elif is_marked:
            names_without_answers.append(label)

    clauses = []
    for key, names in names_by_verdict.items():
        if names:
            clauses.append(f"{_WORDS_BY_VERDICT[key]}: {', '.join(names)}")
    if names_without_answers:
        clauses.append(f"left out, too few usable replies: {', '.join(names_without_answers)}")
    return "; ".join(clauses) + "."
