"""One question under every budget taken apart, and what else could have been done."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib import draw
from lib.reporting.routing.common import MILLION, NO_LIMIT, known, tests_of
from lib.routing import protocol
from lib.routing.study import Results
from lib.scenes import spoken


def episode_html(episodes: pd.DataFrame, caption: str) -> tuple[str, str]:
    """Episodes with the same question, one below the other: every part in the colour of who wrote it, the mask beside
    it, what it cost; and as plain text."""
    blocks, plain = [], []
    for row in episodes.to_dict("records"):
        lines = []
        for who, text, dollars in json.loads(row["spoken"]):
            own = who == "controller"
            cost = f", ${dollars * MILLION:.1f} per million" if dollars else ""
            shade = draw.ink(draw.colour("CoRL" if own else who)) if who != "prompt" else draw.GREY
            lines.append(spoken.part(who, text, own, shade, cost))
        verdict = _verdict_words(row)
        blocks.append(spoken.episode(f"budget {row['label']}", [markup for markup, _ in lines], verdict))
        plain += [*(text for _, text in lines), verdict]
    return spoken.together(caption, blocks), "\n".join(plain)


def _verdict_words(row: Mapping) -> str:
    right = "right" if row["right"] else "wrong"
    bound = "within" if row["within"] else "above"
    budget = "no limit" if row["budget"] >= NO_LIMIT else f"B = {row['budget'] * MILLION:.1f}"
    return (
        f"{right}; spent {row['dollars'] * MILLION:.1f}, {bound} the budget ({budget}); reward {row['reward']:.0f}; "
        f"{row['calls']} calls, {row['malformed']} malformed turns"
    )


def telling(results: Results, arm: str = "corl") -> pd.DataFrame:
    """Episodes of one seed with one question under every budget: one on which spending rises with the budget as often
    as on any, and of those one that ends as most of its length do under each budget; of equals the hardest."""
    mine = tests_of(results, arm)
    mine = mine[mine["seed"] == 0]
    spent = mine.pivot(index="item", columns="label", values="dollars")[list(protocol.WORDS)]
    steps = (spent.diff(axis=1).iloc[:, 1:] > 0).sum(axis=1)
    share = mine.groupby(["difficulty", "label"])["right"].transform("mean")
    usual = (share - mine["right"]).abs() <= 0.5
    usual = usual.groupby(mine["item"]).sum()
    item = (steps * 10_000 + usual * 100 + mine.groupby("item")["difficulty"].first()).idxmax()
    chosen = mine[mine["item"] == item].set_index("label").loc[list(protocol.WORDS)]
    return chosen.reset_index()


def counterfactuals(results: Results, word: str = "medium", n: int = 10) -> pd.DataFrame:
    """Questions with what CoRL did (first seed) and what every strategy would have scored."""
    own = tests_of(results, "corl")
    own = own[(own["label"] == word) & (own["seed"] == 0)].sort_values("item")
    test = known(results, "test")
    places = np.unique(np.linspace(0, len(own) - 1, n).round().astype(int))
    rows = []
    for i in places:
        done = own.iloc[i]
        row = {"question": test.prompts[done["item"]], "called": done["called"].replace("lab-", "") or "nobody"}
        row["CoRL"] = _scored(done["right"], done["dollars"])
        for m, name in enumerate(test.strategies):
            row[name.removeprefix("lab-")] = _scored(test.right[done["item"], m], test.dollars[done["item"], m])
        rows.append(row)
    return pd.DataFrame(rows)


def _scored(right: float, dollars: float) -> str:
    return f"{'✓' if right >= 0.5 else '✗'} {dollars * MILLION:.1f}"


def regrets(results: Results, word: str = "medium") -> pd.DataFrame:
    """Test episodes of all seeds by what could have been done instead: share of questions by outcome."""
    own = tests_of(results, "corl")
    own = own[own["label"] == word]
    test = known(results, "test")
    paid = test.reward(results.budgets.words[word])[own["item"]] >= 0.5  # (episodes, strategies)
    cheaper = test.dollars[own["item"]] < own["dollars"].to_numpy()[:, None] - 1e-12
    earned = own["reward"].to_numpy() >= 0.5
    saved, other = (paid & cheaper).any(1), paid.any(1)
    kinds = {
        "earned its reward, and no alternative would have for less": earned & ~saved,
        "earned its reward, and an alternative would have for less": earned & saved,
        "missed a reward that some alternative would have earned": ~earned & other,
        "missed a reward that no alternative would have earned": ~earned & ~other,
    }
    return pd.DataFrame({"CoRL": list(kinds), "share of questions": [float(v.mean()) for v in kinds.values()]})


def regrets_words(table: pd.DataFrame, word: str = "medium") -> str:
    """The same as a sentence."""
    told = "; ".join(f"in {share:.0%} it {what}" for what, share in table.itertuples(index=False))
    return f"Over all test questions and seeds under the {word} budget: {told}."
