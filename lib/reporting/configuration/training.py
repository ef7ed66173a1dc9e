"""What happens over the episodes of a training: rewards, workflows, tools, and how undecided the policies are.

Means are of single updates, counted in episodes: a group-relative training has larger batches, hence fewer updates.
Rows are those of the trainings on all kinds of questions, in which choices are drawn and not the likeliest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.configuration.arms import ARMS, NAMED
from lib.configuration.space import WORKFLOWS
from lib.configuration.study import Results
from lib.reporting.configuration.common import PAPER, kinds_of

ORDER = [arm.name for arm in ARMS]
BINS = 16
PANELS = {"right": "accuracy", "reward": "reward"}
TOOLS = {"allocated": "tools allocated", "used": "tools used"}
ENTROPIES = {"structure_entropy": "structure, nats", "prompt_entropy": "one prompt decision, nats"}


def trained(results: Results) -> list[str]:
    """Arms that were trained on all kinds of questions, in the order of the report."""
    there = set(results.rollouts["arm"])
    return [arm for arm in ORDER if arm in there]


def label(arm: str) -> str:
    """A training's name: a policy that is still in training has not been refined."""
    return NAMED[arm].label if arm in NAMED else arm


def rollouts(results: Results) -> pd.DataFrame:
    """Training episodes, with how many were played before and in their update, and the label of their arm."""
    rows = results.rollouts[results.rollouts["arm"].isin(trained(results))]
    sizes = rows.groupby(["arm", "seed", "update"]).size().groupby(level=["arm", "seed"]).cumsum().rename("episodes")
    return rows.join(sizes, on=["arm", "seed", "update"]).assign(who=rows["arm"].map(label))


def means(rows: pd.DataFrame, columns: dict[str, str], by: str = "who") -> pd.DataFrame:
    """Means of every update in long form: `by`, seed, episodes, panel, value."""
    found = rows.groupby([by, "seed", "episodes"], sort=False)[list(columns)].mean().reset_index()
    long = found.melt([by, "seed", "episodes"], list(columns), "panel", "value").dropna()
    return long.assign(panel=long["panel"].map(columns))


def ends(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """Mean over the first and over the last fifth of the episodes of a training."""
    updates = rows["update"].max() + 1
    n = max(1, round(updates / 5))
    first, last = rows[rows["update"] < n], rows[rows["update"] >= updates - n]
    return float(first[column].mean()), float(last[column].mean())


def _of(rows: pd.DataFrame, arm: str) -> pd.DataFrame:
    return rows[rows["arm"] == arm]


# Rewards ------------------------------------------------------------------------------------------


def curves(results: Results) -> Figure:
    """Accuracy and reward over the episodes, a line for each training."""
    long = means(rollouts(results), PANELS)
    return draw.lines(
        long, "episodes", "value", by="who", title=curves_claim(results), xlabel="episodes",
        ylabel="mean of an update", panels="panel", bins=BINS, same_scale=False,
        note="Choices are drawn; before SFT and DPO.",
    )  # fmt: skip


def curves_claim(results: Results) -> str:
    """How far each training gets, as a sentence."""
    rows = rollouts(results)
    told = [f"{label(arm)} {a:.2f} to {b:.2f}" for arm in trained(results) for a, b in [ends(_of(rows, arm), "reward")]]
    return f"Reward, first to last fifth of the episodes: {', '.join(told) or 'nothing was trained'}"


def rises(results: Results, arm: str) -> bool:
    """Whether a training ends with more reward than it began, in every seed."""
    parts = [part for _, part in _of(rollouts(results), arm).groupby("seed")]
    return bool(parts) and all(b > a for part in parts for a, b in [ends(part, "reward")])


# Workflows (figure 11) ------------------------------------------------------------------------------


def shares(results: Results, by: str = "kind", arm: str = PAPER) -> Figure:
    """Shares of workflows over the episodes, all seeds together. by: `kind`, panels for kinds of questions of one arm;
    `arm`, panels for arms."""
    rows = rollouts(results)
    panels = "who"
    if by == "kind":
        rows, panels = _of(rows, arm), "kind"
        rows = pd.concat([rows[rows["kind"] == kind] for kind in kinds_of(rows)], ignore_index=True)
    thousands = draw.binned(rows["episodes"].to_numpy(float) / 1000, 8, round_edges=True)
    found = pd.crosstab([rows[panels], thousands], rows["workflow"], normalize="index")
    found = found.reindex(rows[panels].unique(), level=0).reindex(columns=WORKFLOWS, fill_value=0.0)
    note = "All seeds together; choices are drawn."
    heads = "thousand episodes", "share of decisions, %"
    return draw.shares(found, shares_claim(results, by, arm), *heads, panels=panels, note=note)


def commonest(results: Results, by: str = "kind", arm: str = PAPER) -> dict[str, tuple[str, float]]:
    """What is chosen most in the last fifth of the updates, with its share, by panel of `shares`."""
    rows, out = rollouts(results), {}
    if by == "kind":
        rows = _of(rows, arm)
        parts = {kind: rows[rows["kind"] == kind] for kind in kinds_of(rows)}
    else:
        parts = {label(each): _of(rows, each) for each in trained(results)}
    for name, part in parts.items():
        updates = part["update"].max() + 1
        last = part[part["update"] >= updates - max(1, round(updates / 5))]
        found = last["workflow"].value_counts(normalize=True)
        out[name] = (str(found.index[0]), float(found.iloc[0]))
    return out


def shares_claim(results: Results, by: str = "kind", arm: str = PAPER) -> str:
    """What is chosen most at the end, as a sentence."""
    found = commonest(results, by, arm)
    told = ", ".join(f"{name} {workflow} {share:.0%}" for name, (workflow, share) in found.items())
    one = len({workflow for workflow, _ in found.values()}) == 1
    who = f"{label(arm)}, by kind of question" if by == "kind" else "By training"
    same = "; the same everywhere" if one and len(found) > 1 else ""
    return f"{who}, most chosen in the last fifth: {told}{same}"


# Tools (figure 10) ----------------------------------------------------------------------------------


def tools(results: Results, by: str = "kind", arm: str = PAPER) -> Figure:
    """Tools allocated and tools used over the episodes; by: `kind` of question of one arm, or `arm`."""
    rows = rollouts(results)
    rows, column = (_of(rows, arm), "kind") if by == "kind" else (rows, "who")
    return draw.lines(
        means(rows, TOOLS, column), "episodes", "value", by=column, title=tools_claim(results, by, arm),
        xlabel="episodes", ylabel="mean of an update", panels="panel", bins=BINS // 2, same_scale=False,
    )  # fmt: skip


def _tool_parts(results: Results, by: str, arm: str) -> dict[str, pd.DataFrame]:
    rows = rollouts(results)
    if by == "kind":
        rows = _of(rows, arm)
        return {kind: rows[rows["kind"] == kind] for kind in kinds_of(rows)}
    return {label(each): _of(rows, each) for each in trained(results)}


def tools_claim(results: Results, by: str = "kind", arm: str = PAPER) -> str:
    """How many tools are used at the end, as a sentence."""
    told = [f"{name} {ends(part, 'used')[1]:.2f}" for name, part in _tool_parts(results, by, arm).items()]
    who = f"{label(arm)}, by kind of question" if by == "kind" else "By training"
    return f"{who}, tools used in the last fifth of the episodes: {', '.join(told)}"


# Entropy --------------------------------------------------------------------------------------------


def learned(results: Results) -> pd.DataFrame:
    """What every update of the trainings left, with the episodes until then."""
    rows = rollouts(results)
    counts = rows.groupby(["arm", "seed", "update"])["episodes"].first()
    found = results.learning[results.learning["arm"].isin(trained(results))]
    return found.join(counts, on=["arm", "seed", "update"]).assign(who=found["arm"].map(label))


def entropy(results: Results) -> Figure:
    """How undecided the policies are, over the episodes."""
    rows = learned(results)
    there = {column: name for column, name in ENTROPIES.items() if column in rows and rows[column].notna().any()}
    order = {label(arm): i for i, arm in enumerate(trained(results))}
    long = means(rows, there)
    return draw.lines(
        long.iloc[np.argsort(long["who"].map(order), kind="stable")], "episodes", "value", by="who", 
        title=entropy_claim(results), xlabel="episodes", ylabel="entropy", panels="panel", bins=BINS, same_scale=False,
        note="A flat policy's structure holds its atoms too.",
    )  # fmt: skip


def entropy_claim(results: Results) -> str:
    """How much of its entropy each policy loses, as a sentence."""
    rows = learned(results)
    told = [
        f"{label(arm)} {a:.1f} to {b:.1f}" for arm in trained(results)
        for a, b in [ends(_of(rows, arm), "structure_entropy")]
    ]  # fmt: skip
    return f"Entropy of a structure in nats, first to last fifth: {', '.join(told)}"
