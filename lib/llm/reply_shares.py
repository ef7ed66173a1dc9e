"""Which share of a model's calls gave no answer, by method, and the mark that takes a method out of the verdicts.

    counts = count_replies(calls)     # a row for each method and model, with `too_many`
    rows = mark_rows(rows, counts)    # estimates of marked rows are untestable, see `lib.stats.verdict`

A model that never gives a usable reply must not look like a result: something else decided in its place. Above
MAX_SHARE a method is marked. Errors of stand-ins and lab models are shown and mark nothing, because they belong to the
lesson (EXPECTED_ERRORS). Left out: how each system counts its calls, which its results module knows, and how counts are
shown, which is `lib.reports.reply_shares`.
"""

from collections.abc import Sequence

import pandas as pd

from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.chat_model import INFRASTRUCTURE_FAILURES
from lib.llm.failure_policy import ReplyCounts

COUNTS = ("calls", "failed", "truncated", "unusable", "fallback")  # the fields of `ReplyCounts`
METHOD_KEYS = ("method",)
SEVERAL = "several"  # in place of a model's name, where several models decided a row
EXPECTED_ERRORS = {  # by backend, why errors mark nothing
    "scripted": "stand-in, errs on purpose",
    "lab": "lab model, errors are results",
    "policy": "no language model",
}


def count_replies(calls: pd.DataFrame, keys: Sequence[str] = METHOD_KEYS) -> pd.DataFrame:
    """Adds up what became of the calls of each method's models.

    Args:
        calls: The keys, `model`, `backend`, and as many of `COUNTS` as there are; absent ones are 0. A row may be a
            call, a decision or an episode.
        keys: Columns that tell methods apart, the same as in the rows that will be marked.

    Returns:
        A row for each combination of keys, model and backend that called a model, in the order of appearance: keys,
        model, backend, `COUNTS`, share_without_answer (of the calls) and too_many (whether the method is marked).
    """
    by = [*keys, "model", "backend"]
    filled = calls.assign(**{name: calls.get(name, 0) for name in COUNTS})
    filled = filled.fillna(dict.fromkeys(COUNTS, 0)).astype(dict.fromkeys(COUNTS, int))
    sums = filled.groupby(by, sort=False)[list(COUNTS)].sum().reset_index()
    sums = sums[sums["calls"] > 0].reset_index(drop=True)

    reply_counts = to_reply_counts(sums)
    is_markable = ~sums["backend"].isin(list(EXPECTED_ERRORS))
    has_too_many = pd.Series([counts.too_many for counts in reply_counts], dtype=bool)
    return sums.assign(
        share_without_answer=[counts.share_without_answer for counts in reply_counts],
        too_many=has_too_many & is_markable,
    )


def to_reply_counts(counts: pd.DataFrame) -> list[ReplyCounts]:
    """The columns `COUNTS` of each row as an object."""
    return [ReplyCounts(*map(int, row)) for row in counts[list(COUNTS)].itertuples(index=False)]


def mark_rows(rows: pd.DataFrame, counts: pd.DataFrame) -> pd.DataFrame:
    """Marks the rows whose model gave too few answers.

    Args:
        rows: Rows of the results table, with the keys of the counts.
        counts: Of `count_replies`.

    Returns:
        The rows with the column `UNUSABLE_SHARE`: the share of calls without an answer where a method is marked, and 0
        elsewhere. Where nothing is marked the rows come back as they are.
    """
    marked = counts[counts["too_many"]]
    if marked.empty:
        return rows
    keys = list_keys(counts)
    shares = marked.groupby(keys)["share_without_answer"].max()
    row_names = pd.MultiIndex.from_frame(rows[keys]) if len(keys) > 1 else pd.Index(rows[keys[0]])
    return rows.assign(**{UNUSABLE_SHARE: shares.reindex(row_names).fillna(0.0).to_numpy()})


def list_keys(counts: pd.DataFrame) -> list[str]:
    """The columns of counts that tell methods apart: those before `model`."""
    return list(counts.columns[: counts.columns.get_loc("model")])


def count_failure_kinds(kinds: Sequence[str]) -> dict[str, int]:
    """Sorts the kinds of failed replies into `failed`, `truncated` and `unusable`.

    Args:
        kinds: Of `lib.llm.chat_model.Failure`, or what else was wrong with a reply.
    """
    num_failed = sum(kind in INFRASTRUCTURE_FAILURES for kind in kinds)
    num_truncated = sum(kind == "truncated" for kind in kinds)
    return {
        "failed": num_failed,
        "truncated": num_truncated,
        "unusable": len(kinds) - num_failed - num_truncated,
    }


def pick_backend(backends: Sequence[str]) -> str:
    """The backend of a row that several models decided: one whose errors count, if there is any."""
    markable = [backend for backend in backends if backend not in EXPECTED_ERRORS]
    return [*markable, *backends][0]


def describe_share(share: float) -> str:
    """Why a row leaves the verdicts."""
    return f"a model gave no usable reply in {share:.0%} of its calls"
