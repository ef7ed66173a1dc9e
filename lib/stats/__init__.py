"""Statistics: estimates from results with one rule for all intervals, verdicts, Pareto fronts and cost curves.

`mean`, `paired_difference`, `ratio`, `diff_in_diff`, `gain_over_mixture`, `success_rate` and `statistic` take rows of
`lib.experiment.results_table` and return frames of value, ci_low, ci_high, num_runs, num_items, p_value and mde;
`verdict`, `holm` and `summary_sentence` say what such a frame says.
"""

from lib.stats.cost_curves import aiq, apgr, cpt, hull, hull_at, pgr
from lib.stats.estimates import (
    NoRowsError,
    diff_in_diff,
    gain_over_mixture,
    intervals,
    mean,
    paired_difference,
    ratio,
    statistic,
    success_rate,
)
from lib.stats.headroom import MIN_HEADROOM, headroom, is_open
from lib.stats.intervals import (
    DRAWS,
    FEW,
    LEVEL,
    MIN_RUNS,
    Interval,
    grouped_interval,
    has_few_runs,
    mean_interval,
    proportion_interval,
    t_interval,
)
from lib.stats.pareto import (
    SUBSETS,
    cardinality,
    hv_union,
    hypervolume,
    pareto_front,
    sparsity,
)
from lib.stats.ranges import NONNEGATIVE, UNIT, range_of_name
from lib.stats.verdicts import drop_unusable, holm, summary_sentence, verdict

VERSION = 1  # of the estimates, verdicts, fronts and curves of this package
