"""What happens over the episodes of a training: rewards, workflows, tools, and how undecided the policies are.

Means are of single updates, counted in episodes: a group-relative training has larger batches, hence fewer updates.
Rows are those of the trainings on all kinds of questions, in which choices are drawn and not the likeliest.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.configuration.arms import ARMS, NAMED
from lib.configuration.space import WORKFLOWS
from lib.configuration.study import Results
from lib.reporting.configuration.common import PAPER, by_kind

BINS = 16
PANELS = {"right": "accuracy", "reward": "reward"}
TOOLS = {"allocated": "tools allocated", "used": "tools used"}
ENTROPIES = {"structure_entropy": "structure, nats", "prompt_entropy": "one prompt decision, nats"}


def trained(results: Results) -> list[str]:
    """Arms that were trained on all kinds of questions, in the order of the report."""
    there = set(results.rollouts["arm"])
    return [arm.name for arm in ARMS if arm.name in there]


def label(arm: str) -> str:
    """A training's name: a policy that is still in training has not been refined."""
    return NAMED[arm].label if arm in NAMED else arm


def rollouts(results: Results) -> pd.DataFrame:
    """Training episodes, with how many were played before and in their update, and the label of their arm."""
    rows = results.rollouts[results.rollouts["arm"].isin(trained(results))]
    sizes = rows.groupby(["arm", "seed", "update"]).size().groupby(level=["arm", "seed"]).cumsum().rename("episodes")
    return rows.join(sizes, on=["arm", "seed", "update"]).assign(who=rows["arm"].map(label))


def learned(results: Results) -> pd.DataFrame:
    """What every update of the trainings left, with the episodes until then."""
    counts = rollouts(results).groupby(["arm", "seed", "update"])["episodes"].first()
    found = results.learning[results.learning["arm"].isin(trained(results))]
    return found.join(counts, on=["arm", "seed", "update"]).assign(who=found["arm"].map(label))


def parts(rows: pd.DataFrame, by: str, arm: str = PAPER) -> dict[str, pd.DataFrame]:
    """by `kind`: one arm's rows by kind of question; by `arm`: rows by training, in the order of the report."""
    if by == "kind":
        return by_kind(rows[rows["arm"] == arm], together=False)
    every = {each.label: rows[rows["arm"] == each.name] for each in ARMS}
    return {name: part for name, part in every.items() if len(part)}


def ends(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """Mean over the first and over the last fifth of the updates of a training."""
    return float(_fifth(rows, first=True)[column].mean()), float(_fifth(rows)[column].mean())


def _fifth(rows: pd.DataFrame, first: bool = False) -> pd.DataFrame:
    updates = rows["update"].max() + 1
    n = max(1, round(updates / 5))
    return rows[rows["update"] < n if first else rows["update"] >= updates - n]


def rises(results: Results, arm: str) -> bool:
    """Whether a training ends with more reward than it began, in every seed."""
    rows = rollouts(results)
    both = [ends(part, "reward") for _, part in rows[rows["arm"] == arm].groupby("seed")]
    return bool(both) and all(after > before for before, after in both)


# Figures ------------------------------------------------------------------------------------------


def _lines(named: dict[str, pd.DataFrame], columns: dict[str, str], title: str, bins: int, **more) -> Figure:
    """A panel for each column over the episodes, a line for each part."""
    long = []
    for name, rows in named.items():
        found = rows.groupby(["seed", "episodes"], sort=False)[list(columns)].mean().reset_index()
        long.append(found.melt(["seed", "episodes"], list(columns), "panel", "value").dropna().assign(who=name))
    frame = pd.concat(long)
    frame = frame.assign(panel=frame["panel"].map(columns))
    return draw.lines(
        frame, "episodes", "value", by="who", title=title, xlabel="episodes", panels="panel", bins=bins,
        same_scale=False, **more,
    )  # fmt: skip


def curves(results: Results) -> Figure:
    """Accuracy and reward over the episodes, a line for each training."""
    named = parts(rollouts(results), "arm")
    told = ", ".join("{} {:.2f} to {:.2f}".format(name, *ends(rows, "reward")) for name, rows in named.items())
    title, note = f"Reward, first to last fifth of the episodes: {told}", "Choices are drawn; before SFT and DPO."
    return _lines(named, PANELS, title, BINS, ylabel="mean of an update", note=note)


def tools(results: Results, by: str = "kind") -> Figure:
    """Tools allocated and tools used over the episodes, by `kind` of question of ARC or by `arm` (figure 10)."""
    named = parts(rollouts(results), by)
    told = ", ".join(f"{name} {ends(rows, 'used')[1]:.2f}" for name, rows in named.items())
    title = f"{_scope(by)}, tools used in the last fifth of the episodes: {told}"
    return _lines(named, TOOLS, title, BINS // 2, ylabel="mean of an update")


def _scope(by: str) -> str:
    return f"{label(PAPER)}, by kind of question" if by == "kind" else "By training"


def entropy(results: Results) -> Figure:
    """How undecided the policies are, over the episodes."""
    rows = learned(results)
    there = {column: name for column, name in ENTROPIES.items() if column in rows and rows[column].notna().any()}
    named = parts(rows, "arm")
    told = ", ".join("{} {:.1f} to {:.1f}".format(name, *ends(p, "structure_entropy")) for name, p in named.items())
    title, note = f"Entropy in nats, first to last fifth: {told}", "A flat policy's structure holds its atoms too."
    return _lines(named, there, title, BINS, ylabel="entropy", note=note)


def shares(results: Results, by: str = "kind") -> Figure:
    """Shares of workflows over the episodes, all seeds together (figure 11); panels for kinds of questions of ARC, or
    for trainings."""
    named = parts(rollouts(results), by)
    rows = pd.concat([part.assign(panel=name) for name, part in named.items()], ignore_index=True)
    thousands = draw.binned(rows["episodes"].to_numpy(float) / 1000, 8, round_edges=True)
    found = pd.crosstab([rows["panel"], thousands], rows["workflow"], normalize="index")
    found = found.reindex(list(named), level=0).reindex(columns=WORKFLOWS, fill_value=0.0)
    last = {name: _fifth(part)["workflow"].value_counts(normalize=True).head(1) for name, part in named.items()}
    told = ", ".join(f"{name} {share.index[0]} {share.iloc[0]:.0%}" for name, share in last.items())
    title, heads = (
        f"{_scope(by)}, most chosen in the last fifth: {told}",
        ("thousand episodes", "share of decisions, %"),
    )
    return draw.shares(found, title, *heads, panels="panel", note="All seeds together; choices are drawn.")
