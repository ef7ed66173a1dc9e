"""Constants, and what nobody can beat, from configurations that were all tried on the same questions.

What a constant is is decided on training questions by mean reward, and only then looked at on test questions. The
oracle knows how every configuration of the set did on each test question, in another try than the one it is judged by:
the best of many tries would flatter it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def constant(searched: pd.DataFrame, which: str = "") -> pd.DataFrame:
    """Test rows of the configuration with the best mean reward on training questions. which: set, all if empty."""
    tried = searched[searched["set"] == which] if which else searched
    train = tried[tried["split"] == "train"]
    best = train.groupby("number")["reward"].mean().idxmax()
    return tried[(tried["split"] == "test") & (tried["number"] == best)]


def by_kind(searched: pd.DataFrame) -> pd.DataFrame:
    """Test rows of the best configuration of each kind of question, chosen on training questions: a rule from labels
    that no policy is told."""
    return pd.concat([constant(rows) for _, rows in searched.groupby("kind", sort=False)], ignore_index=True)


def oracle(searched: pd.DataFrame) -> pd.DataFrame:
    """Test rows of the configuration that did best on each question in the other try; of equals the cheaper one."""
    again, test = (_by_question(searched, split) for split in ("again", "test"))
    best = again.idxmax(axis=1)
    rows = searched[searched["split"] == "test"].set_index(["key", "prompt", "number"]).sort_index()
    picked = [(*question, number) for question, number in best.items() if question in test.index]
    return rows.loc[picked].reset_index()


def flattered(searched: pd.DataFrame) -> float:
    """What the oracle's mean reward would be, were it judged by the very tries that it picks by."""
    return float(_by_question(searched, "test").max(axis=1).mean())


def _by_question(searched: pd.DataFrame, split: str) -> pd.DataFrame:
    """Rewards, (questions, configurations)."""
    rows = searched[searched["split"] == split]
    return rows.pivot_table(index=["key", "prompt"], columns="number", values="reward", aggfunc="first", sort=False)


def diversity(workflows: pd.Series) -> dict[str, float]:
    """Table 2 of ARC: different workflows, entropy of their shares in bits, and Gini coefficient over those used."""
    shares = workflows.value_counts(normalize=True).to_numpy()
    entropy = float(-(shares * np.log2(shares)).sum())
    ordered = np.sort(shares)
    n = len(ordered)
    gini = float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum())) if n else float("nan")
    return {"unique": float(n), "entropy": entropy, "gini": gini}
