"""Statistics: estimates from results with one rule for all intervals, verdicts, Pareto fronts and cost curves.

`mean`, `gap`, `ratio`, `change`, `above_mixtures`, `share` and `statistic` take rows of
`lib.experiment.results_table` and return frames of value, lo, hi, runs, items, p and told; `verdict`, `holm` and
`words` say what such a frame says.
"""

from lib.stats.cost_curves import aiq, apgr, cpt, hull, hull_at, pgr
from lib.stats.estimates import (
    above_mixtures,
    change,
    gap,
    intervals,
    mean,
    ratio,
    share,
    statistic,
)
from lib.stats.headroom import MIN_HEADROOM, headroom, is_open
from lib.stats.intervals import (
    DRAWS,
    FEW,
    LEVEL,
    Interval,
    grouped_interval,
    mean_interval,
    share_interval,
    t_interval,
)
from lib.stats.pareto import (
    SUBSETS,
    cardinality,
    hv_by_seed,
    hv_union,
    hypervolume,
    pareto_front,
    sparsity,
)
from lib.stats.verdicts import holm, verdict, words

VERSION = 1  # of the estimates, verdicts, fronts and curves of this package
