"""A lesson's recorded full run beside the reader's own run: the same estimates on both, and whether they agree.

    this_run, recorded = estimate_contrasts(rows), estimate_contrasts(full.rows)
    table = compare_estimates(full, this_run, recorded)
    lesson.table(table, f"Recorded run and this run: {describe_full_run(full)}")
    lesson.metrics(collect_recorded_metrics(full, this_run, recorded))

The full run's estimates become the metrics `full.KEY`, which claims are tested on. They do so only while its table is
current: an outdated table is shown with what has changed, and leaves the verdicts.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib import stats
from lib.experiment.full_results import FullResults
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.reply_shares import describe_share

Estimate = pd.Series  # a row of `lib.stats`: value, ci_low, ci_high and more
AGREE, DISAGREE, UNKNOWN = "they agree", "they disagree", ""
NOT_RECORDED = "not in the recorded run"


def compare_estimates(
    full: FullResults, this_run: Mapping[str, Estimate], recorded: Mapping[str, Estimate]
) -> pd.DataFrame:
    """Puts the estimates of the recorded run beside the same estimates of this one.

    Args:
        full: The recorded run.
        this_run: Estimates of this run by metric key.
        recorded: Estimates of the recorded run; it may lack a key where the two were run with different settings.

    Returns:
        A row per key of this run: `recorded run` and `this run` as value and interval, and `comparison`.
    """
    table = {}
    for key, estimate in this_run.items():
        comparison = UNKNOWN
        recorded_text = full.status if full.status == "absent" else NOT_RECORDED
        if key in recorded:
            recorded_text = format_estimate(recorded[key])
            # Two point values, or a method that lost too many replies, allow no verdict.
            pair = recorded[key], estimate
            is_left_out = any(find_unusable_share(either) > 0 for either in pair)
            if not is_left_out and any(has_interval(either) for either in pair):
                comparison = AGREE if estimates_agree(*pair) else DISAGREE
        table[key] = {
            "recorded run": recorded_text,
            "this run": format_estimate(estimate),
            "comparison": comparison,
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("estimate").reset_index()


def collect_recorded_metrics(
    full: FullResults, this_run: Mapping[str, Estimate], recorded: Mapping[str, Estimate]
) -> dict[str, Any]:
    """Collects what claims are tested on: the estimates of the recorded run that this run has too.

    Args:
        full: The recorded run.
        this_run: Estimates of this run by metric key.
        recorded: Estimates of the recorded run.

    Returns:
        `full.status`, and while the recorded run is current `full.KEY` and `full.KEY_mde`.
    """
    metrics: dict[str, Any] = {"full.status": full.status}
    if full.is_current:
        for key in this_run:
            if key in recorded:
                metrics[f"full.{key}"] = recorded[key]
                metrics[f"full.{key}_mde"] = recorded[key]["mde"]
    return metrics


def estimates_agree(first: Estimate, second: Estimate) -> bool:
    """Whether two estimates agree: their difference is within the joint half-width of their intervals.

    The half-widths add as those of independent runs. One or two seeds do not say how much seeds differ. Beside an
    estimate of more seeds they get its half-width, times the root of the ratio of the numbers of seeds.

    Args:
        first: Estimate with value, ci_low and ci_high, and with num_runs where it is known.
        second: Another one.
    """
    difference = first["value"] - second["value"]
    # The half-widths that face each other; a run without an interval has none.
    if difference > 0:
        half_widths = [first["value"] - first["ci_low"], second["ci_high"] - second["value"]]
    else:
        half_widths = [first["ci_high"] - first["value"], second["value"] - second["ci_low"]]

    seeds = [first.get("num_runs", 0), second.get("num_runs", 0)]
    for few, many in ((0, 1), (1, 0)):
        if _has_too_few_seeds(seeds[few]) and seeds[many] >= stats.MIN_RUNS:
            half_widths[few] = half_widths[many] * math.sqrt(seeds[many] / seeds[few])
    known_widths = [width for width in half_widths if math.isfinite(width)]
    return abs(difference) <= math.hypot(*known_widths)


def _has_too_few_seeds(num_seeds: float) -> bool:
    """Whether an interval over so many seeds does not know how much they differ; 0 means that nobody counted them."""
    return 0 < num_seeds < stats.MIN_RUNS


def find_unusable_share(estimate: Estimate) -> float:
    """The share of calls without an answer of the models that an estimate rests on; 0 where it is not marked."""
    share = float(estimate.get(UNUSABLE_SHARE, 0.0))
    return share if share > 0 else 0.0  # nan stands in rows that were put beside marked ones


def has_interval(estimate: Estimate) -> bool:
    """Whether an estimate says how uncertain it is."""
    return math.isfinite(estimate["ci_low"]) and math.isfinite(estimate["ci_high"])


def format_estimate(estimate: Estimate) -> str:
    """Formats an estimate, such as "+0.103 [+0.071, +0.134]".

    Args:
        estimate: With value, ci_low and ci_high. Without an interval the value alone is shown, and with one or two
            seeds their number in place of the interval. Where a model gave too few usable replies, the reason stands
            in its place.
    """
    unusable_share = find_unusable_share(estimate)
    if unusable_share > 0:
        return f"left out: {describe_share(unusable_share)}"
    text = f"{estimate['value']:+.3f}"
    num_seeds = estimate.get("num_runs", 0)
    if _has_too_few_seeds(num_seeds):
        text += " (one seed)" if num_seeds == 1 else f" (n = {num_seeds:.0f} seeds)"
    elif has_interval(estimate):
        text += f" [{estimate['ci_low']:+.3f}, {estimate['ci_high']:+.3f}]"
    return text


def describe_full_run(full: FullResults) -> str:
    """Describes the recorded full run in a sentence: command and cost, or why it is not used.

    Args:
        full: The recorded results and whether they are current.
    """
    if full.status == "absent":
        return f"no recorded run; make one with `{full.command}`"
    size = f"{full.num_jobs} jobs, {full.seconds / 3600:.1f} hours of one core"
    if full.is_current:
        return f"`{full.command}`, {size}"
    changes = "; ".join(full.changes[:3])
    more = f" and {len(full.changes) - 3} more" if len(full.changes) > 3 else ""
    return (
        f"OUTDATED, not used in verdicts: {changes}{more} since it was made ({size}); "
        f"make it again with `{full.command}`"
    )
