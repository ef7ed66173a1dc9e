"""Which values a quantity can take at all, as far as its name or its data say so.

An accuracy of 1.04 does not exist, and neither does the upper end of an interval there. `lib.stats.mean` ends its
intervals at the range of a column, and a lesson refuses a metric whose interval goes beyond it. Left out: differences,
which are named otherwise (`minus`, `gain`, `gap`), and quantities whose range depends on the lesson.
"""

import numpy as np

Range = tuple[float, float]
UNBOUNDED: Range = (-np.inf, np.inf)
UNIT: Range = (0.0, 1.0)
NONNEGATIVE: Range = (0.0, np.inf)

# Columns of results, and the last part of the keys of metrics.
_UNIT_NAMES = {
    "accuracy", "correct", "success", "success_rate", "passed", "coverage", "goal", "gold", "no-lava", "invalid",
    "fallback", "share", "violations", "within", "gini", "workflow_gini",
}  # fmt: skip
_NONNEGATIVE_NAMES = {
    "cost_usd", "length", "seconds", "calls", "tokens", "tokens_in", "tokens_out", "turns", "entropy",
    "workflow_entropy",
}  # fmt: skip
# A metric with one of these words in its key is a difference or a slope, which may be negative.
_DIFFERENCE_WORDS = {
    "minus", "gap", "gain", "contrast", "refinement", "transfer", "slope", "shift", "lead", "order",
    "headroom", "batch",
}  # fmt: skip


def range_of_name(name: str) -> Range:
    """Infers the range of a quantity from the name of its column or metric.

    Args:
        name: Such as "accuracy" or "trained.accuracy"; names of differences have no bounds.

    Returns:
        Lower and upper bound.

    >>> range_of_name("trained.accuracy"), range_of_name("gap.random.accuracy")
    ((0.0, 1.0), (-inf, inf))
    """
    segments = name.split(".")
    words = {word for segment in segments for word in segment.split("_")}
    if words & _DIFFERENCE_WORDS:
        return UNBOUNDED
    quantity = segments[-1]
    if quantity in _UNIT_NAMES:
        return UNIT
    if quantity in _NONNEGATIVE_NAMES:
        return NONNEGATIVE
    return UNBOUNDED


def find_range(column: str, values: np.ndarray) -> Range:
    """Finds the range of the mean of a column.

    Args:
        column: Its name; a name that is not known may still hold nothing but zeros and ones.
        values: (n,) what is averaged. Values beyond the range of the name show that the name means another thing
            here, such as a percentage.
    """
    low, high = range_of_name(column)
    if low == -np.inf and np.isin(values, (0.0, 1.0)).all():
        return UNIT
    is_inside = values.min() >= low and values.max() <= high
    return (low, high) if is_inside else UNBOUNDED
