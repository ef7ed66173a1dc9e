"""The fraction of a model's calls that gave no answer, by method, and the mark that excludes a method from tests.

    counts = count_replies(calls)     # a row for each method and model, with `too_many`
    rows = mark_rows(rows, counts)    # estimates of marked rows are untestable, see `lib.stats.verdict`

A model that never gives a usable reply must not look like a result: something else decided in its place. Above
MAX_SHARE a method is marked. Errors of stand-ins and lab models are shown and mark nothing, because they belong to the
lesson (EXPECTED_ERRORS). Left out: how each system counts its calls, which its results module knows, and how counts are
shown, which is `lib.reports.reply_shares`.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.chat_model import INFRASTRUCTURE_FAILURES
from lib.llm.failure_policy import ReplyCounts

COUNTS = ("calls", "failed", "truncated", "unusable", "fallback")  # the fields of `ReplyCounts`
METHOD_KEYS = ("method",)
SEVERAL = "several"  # in place of a model's name, where several models decided a row
EXPECTED_ERRORS = {  # backends whose errors exclude no method from the verdicts: why
    "scripted": "stand-in, errs on purpose",
    "lab": "lab model, errors are results",
    "policy": "no language model",
}


def count_replies(calls: pd.DataFrame, keys: Sequence[str] = METHOD_KEYS) -> pd.DataFrame:
    """Sum the calls and failed calls of each method's models, and flag methods with too many failures.

    Args:
        calls: Columns `keys`, "model", "backend", and any of `COUNTS` ("calls", "failed", "truncated", "unusable",
            "fallback"; a missing column or value counts as 0). A row may stand for a call, a decision or an episode.
        keys: Columns that identify a method.

    Returns:
        A row for each (keys, model, backend) with at least one call, in the order of appearance. Columns: keys, model,
        backend, `COUNTS`, share_without_answer (fraction of calls without a usable answer) and too_many (whether that
        fraction is so high, above 5 %, that the method's results must not count as the model's).
    """
    group_columns = [*keys, "model", "backend"]
    complete_calls = calls.assign(**{name: calls.get(name, 0) for name in COUNTS})
    complete_calls = complete_calls.fillna(dict.fromkeys(COUNTS, 0))
    complete_calls = complete_calls.astype(dict.fromkeys(COUNTS, int))
    totals = complete_calls.groupby(group_columns, sort=False)[list(COUNTS)].sum().reset_index()
    totals = totals[totals["calls"] > 0].reset_index(drop=True)

    # Scripted stand-ins and small lab models fail by design: their failures are part of what is studied, so they
    # never exclude a method.
    reply_counts = to_reply_counts(totals)
    errors_are_expected = totals["backend"].isin(list(EXPECTED_ERRORS))
    is_above_limit = pd.Series([counts.too_many for counts in reply_counts], dtype=bool)
    return totals.assign(
        share_without_answer=[counts.share_without_answer for counts in reply_counts],
        too_many=is_above_limit & ~errors_are_expected,
    )


def to_reply_counts(counts: pd.DataFrame) -> list[ReplyCounts]:
    """Convert the columns `COUNTS` of each row into a `ReplyCounts`."""
    return [ReplyCounts(*map(int, row)) for row in counts[list(COUNTS)].itertuples(index=False)]


def mark_rows(rows: pd.DataFrame, counts: pd.DataFrame) -> pd.DataFrame:
    """Mark the results of methods whose models failed too often, so that no hypothesis is tested on them.

    Args:
        rows: Rows of the results table, with the columns that identify a method.
        counts: Failed calls by method and model, from `count_replies`.

    Returns:
        The rows with one more column, `UNUSABLE_SHARE`: the fraction of calls without an answer for methods with too
        many, 0 for the others; the larger one where rows have a mark already, such as of a judge. Where no method has
        too many, `rows` itself.
    """
    marked = counts[counts["too_many"]]
    if marked.empty:
        return rows
    keys = list_keys(counts)
    shares = marked.groupby(keys)["share_without_answer"].max()
    row_names = pd.MultiIndex.from_frame(rows[keys]) if len(keys) > 1 else pd.Index(rows[keys[0]])
    row_shares = shares.reindex(row_names).fillna(0.0).to_numpy()  # (rows,)
    if UNUSABLE_SHARE in rows:
        row_shares = np.maximum(row_shares, rows[UNUSABLE_SHARE].fillna(0.0).to_numpy())
    return rows.assign(**{UNUSABLE_SHARE: row_shares})


def find_unusable_share(rows: pd.DataFrame) -> float:
    """The largest mark of some rows, as a fraction of calls; 0 where `mark_rows` has marked none of them."""
    if UNUSABLE_SHARE not in rows or rows.empty:
        return 0.0
    return float(rows[UNUSABLE_SHARE].fillna(0.0).max())


def list_keys(counts: pd.DataFrame) -> list[str]:
    """List the columns of a table from `count_replies` that identify a method: those before "model"."""
    return list(counts.columns[: counts.columns.get_loc("model")])


def count_failure_kinds(kinds: Sequence[str]) -> dict[str, int]:
    """Count failed replies as "failed" (by server or network), "truncated" or "unusable" (refused, malformed, ...).

    Args:
        kinds: For each failed reply the kind of its `Failure`, such as "timeout", or another word for what was wrong.

    Returns:
        The number of replies by these three words.
    """
    num_failed = sum(kind in INFRASTRUCTURE_FAILURES for kind in kinds)
    num_truncated = sum(kind == "truncated" for kind in kinds)
    return {
        "failed": num_failed,
        "truncated": num_truncated,
        "unusable": len(kinds) - num_failed - num_truncated,
    }


def pick_backend(backends: Sequence[str]) -> str:
    """Pick the backend to name for a decision of several models: the first whose errors count, else the first."""
    with_counted_errors = [backend for backend in backends if backend not in EXPECTED_ERRORS]
    return [*with_counted_errors, *backends][0]


def describe_share(share: float) -> str:
    """Say in words why no hypothesis is tested on a method's results."""
    return f"a model gave no usable reply in {share:.0%} of its calls"
