"""How shares of calls without an answer are shown: a table beside the results, and lines for the terminal.

A lesson calls `Lesson.check_replies`, which uses all of this. Left out: the counts (`lib.llm.reply_shares`) and
what a mark does to a verdict (`lib.stats.verdicts`).
"""

import pandas as pd

from lib.llm.failure_policy import MAX_SHARE
from lib.llm.reply_shares import (
    COUNTS,
    EXPECTED_ERRORS,
    SEVERAL,
    list_keys,
    to_reply_counts,
)

MARK = "†"
CAPTION = (
    f"Calls of models by method; above {MAX_SHARE:.0%} without an answer a method is marked {MARK}"
)
FOOTNOTE = f"{MARK}: no usable reply in more than {MAX_SHARE:.0%} of calls, left out of verdicts"
LEFT_OUT = f"above {MAX_SHARE:.0%}, left out of verdicts"
_HEADS = {
    "failed": "failed",
    "truncated": "cut off",
    "unusable": "unusable",
    "fallback": "fallback",
}


def tabulate_reply_shares(counts: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the replies of each method and model: calls, failures, and the share without an answer.

    Args:
        counts: A row per method and model: numbers of calls, failed and unusable replies, and `too_many`.

    Returns:
        A row for each method and model that lost a reply, and one for all other methods of a model: calls, how many
        failed, were cut off, were unusable and led to a fallback, the share without an answer, and what follows.
    """
    keys = list_keys(counts)
    lost_something = counts[list(_HEADS)].sum(axis=1) > 0
    flawless = counts[~lost_something]
    with_loss = counts[lost_something]
    table = with_loss.assign(method=_join_keys(with_loss, keys))

    # Methods without a loss need no line each: those of a model share one.
    sums = flawless.groupby(["model", "backend"], sort=False)
    merged = sums[list(COUNTS)].sum().reset_index()
    merged["method"] = [
        str(_join_keys(rows, keys).iloc[0]) if len(rows) == 1 else f"{len(rows)} methods"
        for _, rows in sums
    ]
    table = pd.concat([table, merged], ignore_index=True)

    # A mark where too many replies are lost, as the estimates of that method are left out.
    shares = [reply_counts.share_without_answer for reply_counts in to_reply_counts(table)]
    is_marked = table["too_many"].fillna(False).astype(bool) if "too_many" in table else False
    table["method"] = table["method"] + pd.Series(is_marked, index=table.index).map(
        {True: f" {MARK}", False: ""}
    )
    notes = table["backend"].map(EXPECTED_ERRORS).fillna("")
    notes = notes.mask(pd.Series(is_marked, index=table.index), LEFT_OUT)
    notes = notes.where(pd.Series(shares, index=table.index) > 0, "")
    return pd.DataFrame(
        {
            "method": table["method"],
            "model": table["model"],
            "backend": table["backend"],
            "calls": table["calls"],
            **{head: table[name] for name, head in _HEADS.items()},
            "without an answer": [f"{share:.1%}" for share in shares],
            "note": notes,
        }
    )


def describe_reply_shares(counts: pd.DataFrame) -> list[str]:
    """Describes lost replies in a line for each model behind an endpoint or in a Hugging Face folder.

    Args:
        counts: A row per method and model: numbers of calls, failed and unusable replies, and `too_many`.

    Returns:
        Such as "claude: 1,200 calls, 3 failed (0.2%), 62 cut off (5.2%): above 5%, left out of verdicts"; the methods
        are named where only some of them are left out.
    """
    lines = []
    keys = list_keys(counts)
    asked = counts[~counts["backend"].isin(list(EXPECTED_ERRORS)) & (counts["model"] != SEVERAL)]
    for model, rows in asked.groupby("model", sort=False):
        (total,) = to_reply_counts(rows[list(COUNTS)].sum().to_frame().T)
        line = f"{model}: {total.describe()}"
        marked = rows[rows["too_many"]]
        if len(marked) == len(rows):
            line += f": {LEFT_OUT}"
        elif len(marked):
            line += f": {LEFT_OUT} ({', '.join(_join_keys(marked, keys))})"
        lines.append(line)
    return lines


def _join_keys(rows: pd.DataFrame, keys: list[str]) -> pd.Series:
    """The keys of each row as one text."""
    return rows[keys].astype(str).agg(", ".join, axis=1) if len(rows) else pd.Series(dtype=object)
