"""What a rollout is paid, by hand; what happens over the updates; and what the published sign error does.

training      M_norm[k] = (M[k] - M_min[k]) / (M_max[k] - M_min[k])     over the rollouts of one example
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from lib import draw, losses
from lib.page.tables import listed
from lib.params import ToolSettings
from lib.reporting.estimates import Rows, gap, gaps, means, ratio, ratio_gap
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import LABELS, MEASURES, MONEY, PAPER, PUBLISHED, exam
from lib.routing.toolorchestra import arms, rewards
from lib.routing.toolorchestra.study import Results
from lib.stats import Interval

PANELS = {
    "right": "share right", "micro": MONEY, "ms": common.TIME, "reward": "reward, each its own",
    "malformed": "share malformed", "left": "share left out by the filters",
}  # fmt: skip
SIGN = {"right": "share right", "micro": MONEY, "paid": "the same, right ones alone"}
PER_RIGHT = "$ per million right answers"
KEYS = ["arm", "seed", "update"]
CHEAP, DEAR = 2e-6, 8e-6  # dollars of two right rollouts, made up

# The reward by hand --------------------------------------------------------------------------------


def group(rows: pd.DataFrame, least: float) -> pd.DataFrame:
    """Rollouts of one example, with money and time between the least and the most, `told` (M_norm . P), their `fate`
    and `advantage`, nan for what is left out. least: deviation below which a group has nothing to tell."""
    ids, reward = [0] * len(rows), rows["reward"].to_numpy(float)
    norm = rewards.normalised(np.stack(rows["m"]), ids)
    wild, silent = rows["malformed"] > 0, rows["answered"] == 0
    kept = rewards.kept(reward, ids, wild, ~silent, least).rows
    fate = np.select([wild, silent], ["malformed", "no answer"], "agrees").astype(object)
    fate[kept] = "kept"
    advantage = np.full(len(rows), np.nan)
    if len(kept) > 1:
        advantage[kept] = losses.group_advantages(torch.tensor(reward[kept]), len(kept))
    told = (norm * np.stack(rows["p"])).sum(1)
    return common.in_units(rows).assign(cheap=norm[:, -2], fast=norm[:, -1], told=told, fate=fate, advantage=advantage)


def telling(rows: pd.DataFrame) -> tuple:
    """Sorts groups: something is learned, from right and wrong ones, right ones at several prices, by several ways, one
    is malformed; late ones last."""
    kept = rows[rows["advantage"].notna()]
    right = kept[kept["right"] > 0]
    several = min(right["dollars"].nunique(), 3), min(kept["called"].nunique(), 3)
    return len(kept) > 0, 0 < len(right) < len(kept), *several, (rows["malformed"] > 0).any(), rows["update"].iloc[0]


def example(results: Results, settings: ToolSettings) -> pd.DataFrame:
    """One `group` of the first training of ToolOrchestra in which much can be seen; of equals a late one."""
    part = results.rollouts[(results.rollouts["arm"] == PAPER) & (results.rollouts["seed"] == 0)]
    return max((group(rows, settings.least_deviation) for _, rows in part.groupby(["update", "group"])), key=telling)


def user_words(one: pd.DataFrame) -> str:
    """The example, and P, as a sentence."""
    first = one.iloc[0]
    return (
        f"Update {first['update']}, a question of kind {first['kind']}, difficulty {first['difficulty']}; on the menu: "
        f"{first['menu']}. P: accuracy {first['p_accuracy']:.2f}, cost {first['p_cost']:.2f}, latency "
        f"{first['p_latency']:.2f}; tools liked: {listed(first['liked'].split(), 'none')}."
    )


def group_table(one: pd.DataFrame) -> pd.DataFrame:
    """Each rollout: what it did, what it came to, what it was paid, and what is learned from it."""
    rows = one.assign(called=one["called"].replace("", "nobody"), right=one["right"] > 0)
    rows = rows.round({"micro": 1, "ms": 1}).sort_values("reward", ascending=False, ignore_index=True, kind="stable")
    heads = {
        "called": "called", "right": "right", "micro": "$ per million", "ms": "ms", "cheap": "cost, 0 to 1",
        "fast": "time, 0 to 1", "told": "M.P", "reward": "R", "fate": "fate", "advantage": "A",
    }  # fmt: skip
    return rows[list(heads)].rename(columns=heads)


def sign_table() -> pd.DataFrame:
    """Two right rollouts, one four times as dear, for a user who weighs accuracy and cost fully: both formulas."""
    spent, same = np.array([CHEAP, DEAR]), np.full(2, 0.01)
    m, rows = rewards.vectors(np.zeros((2, 0)), np.ones(2), spent, same), {"$ per million": spent * 1e6}
    for formula, normalise in arms.NORMALISE.items():
        norm = normalise(m, [0, 0])
        paid = rewards.reward(norm, np.array([[1.0, 1.0, 0.0]] * 2), np.ones(2))
        rows[f"M_norm of cost, {formula}"], rows[f"R, {formula}"] = norm[:, -2], paid
        rows[f"A, {formula}"] = losses.group_advantages(torch.tensor(paid), 2).numpy()
    table = pd.DataFrame(rows, index=["cheap rollout", "dear rollout"]).T
    return table.rename_axis("").reset_index()


# Over the updates ----------------------------------------------------------------------------------


def by_update(results: Results) -> pd.DataFrame:
    """Means of every update: arm, seed, update and the columns of PANELS and SIGN."""
    rows = common.in_units(results.rollouts)
    rows = rows.assign(malformed=(rows["malformed"] > 0).astype(float), paid=rows["micro"].where(rows["right"] > 0))
    each = rows.groupby(KEYS)
    kept = results.learning.assign(update=results.learning["update"] - 1).set_index(KEYS)["kept"]
    found = each[["right", "micro", "ms", "reward", "malformed", "paid"]].mean().assign(left=1 - kept / each.size())
    return found.reset_index()


def ends(results: Results, arm: str, column: str) -> tuple[float, float]:
    """Mean over the first and over the last fifth of the updates of a training, at least one each."""
    table = by_update(results)
    table, updates = table[table["arm"] == arm], int(table["update"].max()) + 1
    n = max(1, round(updates / 5))
    first, last = table[table["update"] < n], table[table["update"] >= updates - n]
    return float(first[column].mean()), float(last[column].mean())


def _lines(table: pd.DataFrame, columns: Mapping[str, str], arms: Sequence[str], title: str, note: str = "") -> Figure:
    """A panel for each column over the updates, a line for each arm."""
    long = pd.concat([table[table["arm"] == arm] for arm in arms]).melt(KEYS, list(columns), "panel", "value").dropna()
    long = long[(long["panel"] != "reward") | (long["arm"] != PUBLISHED)]  # its rewards have no bound
    long = long.replace({"panel": dict(columns), "arm": LABELS})
    return draw.lines(
        long, "update", "value", by="arm", title=title, xlabel="update", ylabel="mean over rollouts",
        panels="panel", bins=12, same_scale=False, note=note,
    )  # fmt: skip


def curves(results: Results) -> Figure:
    """Six panels over the updates, a line for each arm."""
    told = ", ".join("{} {:.2f} to {:.2f}".format(name, *ends(results, PAPER, name)) for name in ("right", "reward"))
    money = "${:.1f} to ${:.1f} per million".format(*ends(results, PAPER, "micro"))
    title = f"ToolOrchestra, first to last fifth of the updates: {told}, {money}"
    paid = results.rollouts[results.rollouts["arm"] == PUBLISHED]["reward"]
    note = "CoRL's learner has no filters, and its reward is a scale of its own."
    note += f" Rewards under the sign error have no bound, reach {paid.max():,.0f}, and are not drawn."
    return _lines(by_update(results), PANELS, common.arms_of(results)[1:], title, note)


# The sign error, and the filters -------------------------------------------------------------------


def sign_curves(results: Results) -> Figure:
    """Accuracy, and what a right rollout costs, over the updates under both formulas."""
    told = [f"{LABELS[arm]} ${ends(results, arm, 'micro')[1]:.1f}" for arm in (PAPER, PUBLISHED)]
    title = f"Spent per million questions in the last fifth of training: {', '.join(told)}"
    return _lines(by_update(results), SIGN, (PAPER, PUBLISHED), title)


def sign_rows(results: Results) -> Rows:
    """Both formulas on test questions, with the money of right episodes alone; and the published minus the paper's."""
    parts = {arm: exam(results, arm) for arm in (PAPER, PUBLISHED)}
    parts = {arm: part.assign(paid=part["micro"] * part["right"]) for arm, part in parts.items()}
    rows = {LABELS[a]: means(part, MEASURES) | {PER_RIGHT: ratio(part, "paid", "right")} for a, part in parts.items()}
    both = parts[PUBLISHED], parts[PAPER]
    return rows | {"difference": gaps(*both, MEASURES) | {PER_RIGHT: ratio_gap(*both, "paid", "right")}}


def lenient_gaps(results: Results) -> dict[str, Interval]:
    """All test episodes: learning from failures too, minus the filters of the paper."""
    both = [exam(results, arm, office=None) for arm in (common.LENIENT, PAPER)]
    return {key: gap(*both, column) for key, column in (("malformed", "wild"), ("accuracy", "right"))}


def shares_left_out(results: Results, arm: str) -> dict[str, float]:
    """The shares of all rollouts that were malformed, had no answer, or stood in groups that agree."""
    rollouts, part = (frame[frame["arm"] == arm] for frame in (results.rollouts, results.learning))
    return {name: float(part[name].sum() / len(rollouts)) for name in ("malformed", "unanswered", "agreeing")}
