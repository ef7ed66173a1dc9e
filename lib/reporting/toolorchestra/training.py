"""What happens over the updates, and what the published sign error does to a training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import (
    LENIENT,
    MONEY,
    PAPER,
    PUBLISHED,
    TIME,
    gap,
    in_units,
    label,
    measured,
    ratio,
    ratio_gap,
    trained,
)
from lib.reporting.words import changed, clearly, number, there
from lib.routing.toolorchestra.study import Results
from lib.stats import Interval

PANELS = {
    "right": "share right", "micro": MONEY, "ms": TIME, "reward": "reward, each its own", 
    "malformed": "share malformed", "left": "share left out by the filters",
}  # fmt: skip


def by_update(results: Results) -> pd.DataFrame:
    """Means of every update: arm, seed, update and the columns of PANELS."""
    if results.rollouts.empty:
        return pd.DataFrame(columns=["arm", "seed", "update", *PANELS])
    rows = in_units(results.rollouts)
    rows = rows.assign(malformed=(rows["malformed"] > 0).astype(float))
    keys = ["arm", "seed", "update"]
    means = rows.groupby(keys)[["right", "micro", "ms", "reward", "malformed"]].mean()
    sizes = rows.groupby(keys).size()
    kept = results.learning.assign(update=results.learning["update"] - 1).set_index(keys)["kept"]
    return means.assign(left=1 - kept / sizes).dropna().reset_index()


def fifths(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the first and of the last fifth of the updates, at least one each."""
    updates = int(table["update"].max()) + 1
    n = max(1, round(updates / 5))
    return table[table["update"] < n], table[table["update"] >= updates - n]


def ends(results: Results, arm: str, column: str) -> tuple[float, float]:
    """Mean over the first and over the last fifth of a training."""
    table = by_update(results)
    first, last = fifths(table[table["arm"] == arm])
    return float(first[column].mean()), float(last[column].mean())


def _long(table: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    long = table.melt(["arm", "seed", "update"], list(columns), "panel", "value").dropna()
    return long.assign(panel=long["panel"].map(columns), arm=long["arm"].map(label))


def curves(results: Results) -> Figure:
    """Six panels over the updates, a line for each arm."""
    table = by_update(results)
    order = table["arm"].map(trained(results).index)
    long = _long(table.iloc[np.argsort(order, kind="stable")], PANELS)
    long = long[(long["panel"] != PANELS["reward"]) | (long["arm"] != label(PUBLISHED))]
    return draw.lines(
        long, "update", "value", by="arm", title=curves_claim(results), xlabel="update",
        ylabel="mean over rollouts", panels="panel", bins=12, same_scale=False, note=_rewards_note(results),
    )  # fmt: skip


def _rewards_note(results: Results) -> str:
    """Why one arm has no rewards in the figure: how far they go."""
    note = "CoRL's learner has no filters, and its reward is a scale of its own."
    paid = results.rollouts[results.rollouts["arm"] == PUBLISHED]["reward"]
    return (
        note
        if paid.empty
        else f"{note} Rewards under the sign error have no bound, reach {paid.max():,.0f}, and are not drawn."
    )


def unbounded_words(results: Results) -> str:
    """How much each formula paid at the most, as a sentence."""
    told = []
    for arm in (PAPER, PUBLISHED):
        paid = results.rollouts[results.rollouts["arm"] == arm]["reward"]
        if len(paid):
            told.append(f"{label(arm)} {paid.max():,.1f} (mean {paid.mean():.2f})")
    return f"The most that a rollout was paid: {', '.join(told)}."


def curves_claim(results: Results) -> str:
    """What the orchestrator that is paid as in the paper learns to do, as a sentence."""
    told = [f"{name} {a:.2f} to {b:.2f}" for c, name in (("right", "right"), ("reward", "reward"))
            for a, b in [ends(results, PAPER, c)]]  # fmt: skip
    a, b = ends(results, PAPER, "micro")
    return f"ToolOrchestra, first to last fifth of the updates: {', '.join(told)}, ${a:.1f} to ${b:.1f} per million"


# The sign error -----------------------------------------------------------------------------------


def of_right(part: pd.DataFrame) -> pd.DataFrame:
    """With the money of right episodes alone."""
    return part.assign(paid=part["micro"] * part["right"])


def sign_curves(results: Results) -> Figure:
    """Accuracy, and what a right rollout costs, over the updates under both formulas."""
    rows = in_units(results.rollouts[results.rollouts["arm"].isin([PAPER, PUBLISHED])])
    means = rows.groupby(["arm", "seed", "update"])[["right", "micro"]].mean()
    right = rows[rows["right"] > 0].groupby(["arm", "seed", "update"])["micro"].mean().rename("paid")
    names = {"right": "share right", "micro": MONEY, "paid": "the same, right ones alone"}
    long = _long(means.join(right).reset_index(), names)
    return draw.lines(
        long, "update", "value", by="arm", title=sign_claim(results), xlabel="update",
        ylabel="mean over rollouts", panels="panel", bins=12, same_scale=False,
    )  # fmt: skip


def _tests(results: Results, arm: str) -> pd.DataFrame:
    return of_right(common.exam(results, arm))


def sign_gaps(results: Results) -> dict[str, Interval]:
    """On test questions: under the published formula minus under the paper's."""
    wrong, fair = _tests(results, PUBLISHED), _tests(results, PAPER)
    return {
        "accuracy": gap(wrong, fair, "right", "sign"),
        MONEY: gap(wrong, fair, "micro", "sign"),
        "$ per million right answers": ratio_gap(wrong, fair, "paid", "right", "sign"),
        TIME: gap(wrong, fair, "ms", "sign"),
    }


def sign_rows(results: Results) -> dict[str, dict[str, Interval]]:
    """Both formulas on test questions, and the published minus the paper's."""
    rows = {}
    for arm in (PAPER, PUBLISHED):
        part = _tests(results, arm)
        row = measured(part, "test", arm, columns=("right", "micro", "ms"))
        paid = ratio(part, "paid", "right", "sign", arm)
        rows[label(arm)] = {
            "accuracy": row["accuracy"], MONEY: row[MONEY], "$ per million right answers": paid, TIME: row[TIME]
        }  # fmt: skip
    return rows | {"difference": sign_gaps(results)}


def sign_claim(results: Results) -> str:
    """Money at the end of training under both, as a sentence."""
    told = [f"{label(arm)} ${b:.1f}" for arm in (PAPER, PUBLISHED) for _, b in [ends(results, arm, "micro")]]
    return f"Spent per million questions in the last fifth of training: {', '.join(told)}"


def sign_words(results: Results) -> str:
    """Whether a learner under the published formula spends more, as a sentence."""
    gaps = sign_gaps(results)
    right = gaps["$ per million right answers"]
    return (
        f"On test questions the orchestrator under the published formula spends {number(gaps[MONEY], 1, True)} dollars "
        f"per million questions beside the one under the paper's: {clearly(gaps[MONEY])}. On right answers alone it is "
        f"{number(right, 1, True)}: {clearly(right)}. Accuracy: {number(gaps['accuracy'], 3, True)}."
    )


def lenient_gaps(results: Results) -> dict[str, Interval]:
    """All test episodes: learning from failures too, minus the filters of the paper."""
    kept, left = (common.exam(results, arm, offices=True) for arm in (LENIENT, PAPER))
    kept, left = (part.assign(wild=(part["malformed"] > 0).astype(float)) for part in (kept, left))
    names = {"wild": "a malformed turn", "right": "accuracy", "micro": MONEY}
    return {name: gap(kept, left, column, "lenient") for column, name in names.items()}


def lenient_words(results: Results) -> str:
    """What it is worth to learn from malformed and unanswered rollouts too, as a sentence."""
    found = lenient_gaps(results)
    wild, right = found["a malformed turn"], found["accuracy"]
    if not there(wild):
        return "No training without the two filters is in this study."
    return (
        f"Learning from malformed and unanswered rollouts too, instead of leaving them out, changes the share of test "
        f"episodes with a malformed turn by {changed(wild, 3)} and accuracy by "
        f"{changed(right, 3)}."
    )


def shares_left_out(results: Results, arms: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """By arm the shares of all rollouts that were malformed, had no answer, or stood in groups that agree."""
    out = {}
    for arm in arms or trained(results):
        rows = results.rollouts[results.rollouts["arm"] == arm]
        part = results.learning[results.learning["arm"] == arm]
        if len(rows):
            out[arm] = {name: float(part[name].sum() / len(rows)) for name in ("malformed", "unanswered", "agreeing")}
    return out
