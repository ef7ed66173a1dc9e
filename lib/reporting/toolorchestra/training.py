"""What happens over the updates, and what the published sign error does to a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.estimates import Rows, gap, gaps, means, ratio, ratio_gap
from lib.reporting.toolorchestra.common import (
    LENIENT,
    MEASURES,
    MONEY,
    PAPER,
    PUBLISHED,
    TIME,
    exam,
    in_units,
    label,
    trained,
)
from lib.routing.toolorchestra.study import Results
from lib.stats import Interval

PANELS = {
    "right": "share right", "micro": MONEY, "ms": TIME, "reward": "reward, each its own",
    "malformed": "share malformed", "left": "share left out by the filters",
}  # fmt: skip
SIGN = {"right": "share right", "micro": MONEY, "paid": "the same, right ones alone"}
PER_RIGHT = "$ per million right answers"
KEYS = ["arm", "seed", "update"]


def by_update(results: Results) -> pd.DataFrame:
    """Means of every update: arm, seed, update and the columns of PANELS and SIGN."""
    if results.rollouts.empty:
        return pd.DataFrame(columns=[*KEYS, *PANELS])
    rows = in_units(results.rollouts)
    rows = rows.assign(malformed=(rows["malformed"] > 0).astype(float), paid=rows["micro"].where(rows["right"] > 0))
    each = rows.groupby(KEYS)
    kept = results.learning.assign(update=results.learning["update"] - 1).set_index(KEYS)["kept"]
    found = each[["right", "micro", "ms", "reward", "malformed", "paid"]].mean().assign(left=1 - kept / each.size())
    return found.loc[found["left"].notna()].reset_index()


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
    long = long.assign(panel=long["panel"].map(columns), arm=long["arm"].map(label))
    long = long[(long["panel"] != PANELS["reward"]) | (long["arm"] != label(PUBLISHED))]  # its rewards have no bound
    return draw.lines(
        long, "update", "value", by="arm", title=title, xlabel="update", ylabel="mean over rollouts",
        panels="panel", bins=12, same_scale=False, note=note,
    )  # fmt: skip


def curves(results: Results) -> Figure:
    """Six panels over the updates, a line for each arm."""
    told = ", ".join("{} {:.2f} to {:.2f}".format(name, *ends(results, PAPER, name)) for name in ("right", "reward"))
    money = "${:.1f} to ${:.1f} per million".format(*ends(results, PAPER, "micro"))
    title = f"ToolOrchestra, first to last fifth of the updates: {told}, {money}"
    note = "CoRL's learner has no filters, and its reward is a scale of its own."
    paid = results.rollouts[results.rollouts["arm"] == PUBLISHED]["reward"]
    if len(paid):
        note += f" Rewards under the sign error have no bound, reach {paid.max():,.0f}, and are not drawn."
    return _lines(by_update(results), PANELS, trained(results), title, note)


# The sign error, and the filters -------------------------------------------------------------------


def sign_curves(results: Results) -> Figure:
    """Accuracy, and what a right rollout costs, over the updates under both formulas."""
    told = [f"{label(arm)} ${ends(results, arm, 'micro')[1]:.1f}" for arm in (PAPER, PUBLISHED)]
    title = f"Spent per million questions in the last fifth of training: {', '.join(told)}"
    return _lines(by_update(results), SIGN, (PAPER, PUBLISHED), title)


def of_right(part: pd.DataFrame) -> pd.DataFrame:
    """With the money of right episodes alone."""
    return part.assign(paid=part["micro"] * part["right"])


def sign_rows(results: Results) -> Rows:
    """Both formulas on test questions, and the published minus the paper's."""
    parts = {arm: of_right(exam(results, arm)) for arm in (PAPER, PUBLISHED)}
    rows = {label(a): means(part, MEASURES) | {PER_RIGHT: ratio(part, "paid", "right")} for a, part in parts.items()}
    both = parts[PUBLISHED], parts[PAPER]
    return rows | {"difference": gaps(*both, MEASURES) | {PER_RIGHT: ratio_gap(*both, "paid", "right")}}


def lenient_gaps(results: Results) -> dict[str, Interval]:
    """All test episodes: learning from failures too, minus the filters of the paper."""
    both = [exam(results, arm, office=None) for arm in (LENIENT, PAPER)]
    return {key: gap(*both, column) for key, column in (("malformed", "wild"), ("accuracy", "right"))}


def shares_left_out(results: Results, arms: Sequence[str]) -> dict[str, dict[str, float]]:
    """By arm the shares of all rollouts that were malformed, had no answer, or stood in groups that agree."""
    out = {}
    for arm in arms:
        rows = results.rollouts[results.rollouts["arm"] == arm]
        part = results.learning[results.learning["arm"] == arm]
        if len(rows):
            out[arm] = {name: float(part[name].sum() / len(rows)) for name in ("malformed", "unanswered", "agreeing")}
    return out
