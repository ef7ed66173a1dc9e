"""Verdicts: what an interval says, and what it says with all effects tested at once."""

import numpy as np
import pandas as pd
import pytest

from lib import stats


def estimates(*ends: tuple[float, float], p=None) -> pd.DataFrame:
    ci_low, ci_high = np.array(ends, dtype=float).T
    index = pd.Index([f"method {i}" for i in range(len(ends))], name="method")
    return pd.DataFrame(
        {
            "value": (ci_low + ci_high) / 2,
            "ci_low": ci_low,
            "ci_high": ci_high,
            "p_value": p if p is not None else np.nan,
        },
        index,
    )


def test_verdicts_follow_the_interval_and_the_margin():
    effects = estimates(
        (0.1, 0.2), (-0.2, -0.1), (-0.01, 0.02), (-0.3, 0.2), (0.1, 0.1), (np.nan, np.nan)
    )
    expected = ["holds", "does not hold", "equivalent", "undecided", "untestable", "undecided"]
    assert list(stats.verdict(effects, equivalence_margin=0.05)) == expected
    assert stats.verdict(effects).iloc[2] == "undecided"
    with pytest.raises(ValueError, match="margin"):
        stats.verdict(effects, equivalence_margin=0)


def test_holm_keeps_the_clearest_and_stops_at_the_first_that_fails():
    effects = estimates(*[(0, 1)] * 4, p=[0.2, 0.001, 0.02, np.nan])
    assert list(stats.holm(effects)) == [False, True, False, False]  # .02 > .05 / 3
    assert list(stats.holm(effects.iloc[:3])) == [False, True, True]  # .02 <= .05 / 2


def test_the_summary_sentence_names_every_estimate_once():
    sentence = stats.summary_sentence(estimates((0.1, 0.2), (-0.2, -0.1), (-0.3, 0.2)))
    assert all(sentence.count(f"method {i}") == 1 for i in range(3))
