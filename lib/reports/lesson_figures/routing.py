"""One question under every budget, step by step (lesson 05)."""

import json
from collections.abc import Mapping

import pandas as pd

from lib.reports.lesson_figures import spoken
from lib.rl import call_protocol

MILLION = 1e6


def episodes_html(rows: pd.DataFrame, caption: str, unlimited: float) -> spoken.Rendered:
    """Renders episodes with the same question one below the other, each segment in the colour of its author.

    Args:
        rows: Episodes of `budget_episodes.make_episode_rows`, with their segments in the column `spoken`.
        caption: Stands above all of them.
        unlimited: Dollars from which on a budget counts as none.

    Returns:
        HTML and plain text.
    """
    episodes = []
    for row in rows.to_dict("records"):
        segments = []
        for author, text, cost_usd in json.loads(row["spoken"]):
            method = "CoRL" if author == "controller" else ""
            cost = f", ${cost_usd * MILLION:.1f} per million" if cost_usd else ""
            segments.append(spoken.render_segment(author, text, method, cost))
        heading = f"budget {row['condition']}"
        episodes.append((heading, segments, _describe_outcome(row, unlimited)))
    return spoken.join_episodes(caption, episodes)


def _describe_outcome(row: Mapping, unlimited: float) -> str:
    """How an episode ended; costs in micro-dollars, which is dollars per million questions."""
    answer = "right" if row["correct"] else "wrong"
    side_of_budget = "within" if row["within"] else "above"
    budget = "no limit" if row["budget"] >= unlimited else f"B = {row['budget'] * MILLION:.1f}"
    return (
        f"{answer}; spent {row['cost_usd'] * MILLION:.1f}, {side_of_budget} the budget ({budget}); "
        f"reward {row['reward']:.0f}; {row['calls']} calls, {row['malformed']} malformed turns"
    )


def choose_question(rows: pd.DataFrame, method: str = "corl") -> pd.DataFrame:
    """Chooses a test question that shows well what a budget does.

    Spending rises with the budget as often as on any question; of those it ends as most of its kind do under each
    budget; of equals it is the hardest.

    Args:
        rows: Test episodes, of all methods.
        method: The method whose episodes are shown.

    Returns:
        The episodes of seed 0 at the lowest temperature, one row per budget, from low to high.
    """
    budgets = list(call_protocol.BUDGET_WORDS)
    greedy = rows["temperature"] == rows["temperature"].min()
    episodes = rows[(rows["method"] == method) & (rows["seed"] == 0) & greedy]

    # By item: between how many neighbouring budgets spending rises.
    cost = episodes.pivot(index="item", columns="condition", values="cost_usd")[budgets]
    num_rises = (cost.diff(axis=1).iloc[:, 1:] > 0).sum(axis=1)

    # By item: under how many budgets it is right where most of its kind are, or wrong where most are.
    accuracy = episodes.groupby(["group", "condition"])["correct"].transform("mean")
    is_typical = (accuracy - episodes["correct"]).abs() <= 0.5
    num_typical = is_typical.groupby(episodes["item"]).sum()

    difficulty = episodes.groupby("item")["difficulty"].first()
    # Weights far apart make this a comparison by rises, then by typical outcomes, then by difficulty.
    best_item = (num_rises * 10_000 + num_typical * 100 + difficulty).idxmax()
    chosen = episodes[episodes["item"] == best_item]
    return chosen.set_index("condition").loc[budgets].reset_index()
