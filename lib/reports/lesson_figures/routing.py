"""One question under every budget taken apart (lesson 05)."""

import json
from collections.abc import Mapping

import pandas as pd

from lib import plots
from lib.reports.lesson_figures import spoken
from lib.rl import call_protocol

MILLION = 1e6
plots.register(
    {
        "low": ("#56B4E9", "o"),
        "medium": ("#E69F00", "s"),
        "high": ("#AA2255", "^"),
        "controller alone": ("#8C6239", "X"),
        "low budget alone": ("#56B4E9", "o"),
        "high budget alone": ("#AA2255", "^"),
    }
)


def episodes(rows: pd.DataFrame, caption: str, unlimited: float) -> tuple[str, str]:
    """Episodes with the same question, one below the other: every part in the colour of who wrote it, the mask beside
    it, what it cost; as HTML and as plain text. rows: of `study.episode_rows`, with what was spoken; unlimited:
    dollars from which on a budget is none."""

    def part(who: str, text: str, cost_usd: float) -> spoken.Shown:
        cost = f", ${cost_usd * MILLION:.1f} per million" if cost_usd else ""
        return spoken.part(who, text, "CoRL" if who == "controller" else "", cost)

    shown = (
        (
            f"budget {row['condition']}",
            [part(*each) for each in json.loads(row["spoken"])],
            _verdict(row, unlimited),
        )
        for row in rows.to_dict("records")
    )
    return spoken.together(caption, shown)


def _verdict(row: Mapping, unlimited: float) -> str:
    correct, bound = "right" if row["correct"] else "wrong", "within" if row["within"] else "above"
    budget = "no limit" if row["budget"] >= unlimited else f"B = {row['budget'] * MILLION:.1f}"
    return (
        f"{correct}; spent {row['cost_usd'] * MILLION:.1f}, {bound} the budget ({budget}); reward {row['reward']:.0f}; "
        f"{row['calls']} calls, {row['malformed']} malformed turns"
    )


def telling(rows: pd.DataFrame, method: str = "corl") -> pd.DataFrame:
    """Episodes of one seed with one question under every budget: one on which spending rises with the budget as often
    as on any, and of those one that ends as most of its kind do under each budget; of equals the hardest."""
    mine = rows[
        (rows["method"] == method)
        & (rows["seed"] == 0)
        & (rows["temperature"] == rows["temperature"].min())
    ]
    spent = mine.pivot(index="item", columns="condition", values="cost_usd")[
        list(call_protocol.WORDS)
    ]
    rises = (spent.diff(axis=1).iloc[:, 1:] > 0).sum(axis=1)
    usual = (
        mine.groupby(["group", "condition"])["correct"].transform("mean") - mine["correct"]
    ).abs() <= 0.5
    usual = usual.groupby(mine["item"]).sum()
    item = (rises * 10_000 + usual * 100 + mine.groupby("item")["difficulty"].first()).idxmax()
    return (
        mine[mine["item"] == item]
        .set_index("condition")
        .loc[list(call_protocol.WORDS)]
        .reset_index()
    )
