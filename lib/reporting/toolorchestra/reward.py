"""The reward by hand: one real group of rollouts, and two right ones under the paper's formula and the published one.

training      M_norm[k] = (M[k] - M_min[k]) / (M_max[k] - M_min[k])     over the rollouts of one example
evaluation    M_norm[k] = M_s[k] / max(1, M_0[k]), of cost and latency M_0[k] / max(1, M_s[k])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.page.tables import listed
from lib.params import ToolSettings
from lib.reporting.toolorchestra.common import PAPER, in_units
from lib.routing.toolorchestra import benchmark, rewards
from lib.routing.toolorchestra.study import Results

_ROUNDING = 1e-4  # what the trainer adds to a deviation


@dataclass(frozen=True)
class Group:
    """Rollouts of one example, with the reward that they were paid and what the filters make of them."""

    rows: pd.DataFrame
    m_norm: np.ndarray  # (n, tools + 3)
    p: np.ndarray  # (tools + 3,)
    fate: list[str]
    advantage: np.ndarray  # (n,); nan for what is left out

    @property
    def telling(self) -> tuple:
        """Sorts groups: something is learned, from right and wrong ones, right ones at several prices, by several
        ways, one is malformed; late ones last."""
        kept = self.rows[np.isfinite(self.advantage)]
        right = kept[kept["right"] > 0]
        return (
            len(kept) > 0,
            0 < len(right) < len(kept),
            min(right["dollars"].nunique(), 3),
            min(kept["called"].nunique(), 3),
            bool(self.rows["malformed"].any()),
            self.rows["update"].iloc[0],
        )


def group(rows: pd.DataFrame, least: float) -> Group:
    """Rollouts of one example; least: deviation below which a group has nothing to tell."""
    rows = rows.reset_index(drop=True)
    ids = [0] * len(rows)
    m, p = benchmark.vectors(rows), benchmark.vectors(rows, "p")
    kept = rewards.kept(rows["reward"].to_numpy(float), ids, rows["malformed"] > 0, rows["answered"] > 0, least)
    fate = [
        "malformed" if row.malformed else "no answer" if not row.answered else "kept" if i in kept.rows else "agrees"
        for i, row in enumerate(rows.itertuples())
    ]
    told = rows["reward"].to_numpy(float)[kept.rows]
    advantage = np.full(len(rows), np.nan)
    if len(told) > 1:
        advantage[kept.rows] = (told - told.mean()) / (told.std(ddof=1) + _ROUNDING)
    return Group(rows, rewards.normalised(m, ids), p[0], fate, advantage)


def example(results: Results, settings: ToolSettings) -> Group:
    """One group of the first training of ToolOrchestra, chosen because much can be seen in it; of equals a late one."""
    part = results.rollouts[(results.rollouts["arm"] == PAPER) & (results.rollouts["seed"] == 0)]
    groups = [group(rows, settings.least_deviation) for _, rows in part.groupby(["update", "group"], sort=True)]
    return max(groups, key=lambda one: one.telling)


def user_words(one: Group, tools: tuple[str, ...]) -> str:
    """The example, and P, as a sentence."""
    first = one.rows.iloc[0]
    liked = [f"{name} {weight:g}" for name, weight in zip(tools, one.p, strict=False) if weight]
    a, c, t = one.p[-3:]
    return (
        f"Update {first['update']}, a question of kind {first['kind']}, difficulty {first['difficulty']}; on the menu: "
        f"{first['menu']}. P: accuracy {a:.2f}, cost {c:.2f}, latency {t:.2f}; tools liked: {listed(liked, 'none')}."
    )


def group_table(one: Group) -> pd.DataFrame:
    """Each rollout: what it did, what it came to, what it was paid, and what is learned from it."""
    rows = in_units(one.rows)
    table = pd.DataFrame(
        {
            "called": rows["called"].where(rows["called"] != "", "nobody"),
            "right": rows["right"] > 0,
            "$ per million": rows["micro"].round(1),
            "ms": rows["ms"].round(1),
            "cost, 0 to 1": one.m_norm[:, -2],
            "time, 0 to 1": one.m_norm[:, -1],
            "M.P": one.m_norm @ one.p,
            "R": one.rows["reward"],
            "fate": one.fate,
            "A": one.advantage,
        }
    )
    return table.sort_values("R", ascending=False, ignore_index=True, kind="stable")


CHEAP, DEAR = 2e-6, 8e-6  # dollars of two right rollouts, made up
BY_HAND = rewards.vectors(np.zeros((2, 0)), np.ones(2), np.array([CHEAP, DEAR]), np.array([0.01, 0.01]))
WEIGHTS = np.array([1.0, 1.0, 0.0])


def _by_hand(formula: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M_norm of cost, R and A of the two rollouts under a formula."""
    m = {"paper": rewards.normalised, "published": rewards.published}[formula](BY_HAND, [0, 0])
    paid = rewards.reward(m, np.tile(WEIGHTS, (2, 1)), np.ones(2))
    return m[:, -2], paid, (paid - paid.mean()) / (paid.std(ddof=1) + _ROUNDING)


def sign_table() -> pd.DataFrame:
    """Two right rollouts, one four times as dear, for a user who weighs accuracy and cost fully: both formulas."""
    rows = [("$ per million", np.array([CHEAP, DEAR]) * 1e6)]
    for formula in ("paper", "published"):
        rows += [
            (f"{name}, {formula}", values)
            for name, values in zip(("M_norm of cost", "R", "A"), _by_hand(formula), strict=True)
        ]
    return pd.DataFrame([{"": name, "cheap rollout": a, "dear rollout": b} for name, (a, b) in rows])
