"""Estimates from records, with one rule for all intervals, and the verdicts that they allow.

`mean`, `gap`, `ratio`, `change`, `above_mixtures`, `share` and `statistic` take rows of `lib.experiment.results_table` and return frames
of value, lo, hi, runs, items, p and told; `verdict`, `holm` and `words` say what such a frame says.
"""

from lib.measure.estimates import (
    above_mixtures,
    change,
    gap,
    intervals,
    mean,
    ratio,
    share,
    statistic,
)
from lib.measure.headroom import OPEN, headroom
from lib.measure.verdicts import holm, verdict, words

VERSION = (
    1  # of the estimates and verdicts of this package: raise it when one of these numbers changes
)
__all__ = [
    "OPEN", "above_mixtures", "change", "gap", "headroom", "holm", "intervals", "mean", "ratio", "share", "statistic",
    "verdict", "words",
]  # fmt: skip
