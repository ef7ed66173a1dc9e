"""How rewards are spread, workflow by workflow (ARC, figure 13), from configurations that were sampled."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import draw
from lib.configuration.space import WORKFLOWS
from lib.configuration.study import Results
from lib.reporting.configuration.common import interval, matrix, named
from lib.reporting.configuration.workflows import parts_of, sampled

_BINS = 40


@draw.theme()
def figure(results: Results) -> Figure:
    """How rewards are distributed, by workflow: one panel for each kind of question and one for all."""
    rows = sampled(results)
    names = [w for w in WORKFLOWS if w in set(rows["workflow"])]
    note = "Shape: share of episodes by reward, each as wide as its fullest bin. Dot: mean, with its 95% interval."
    parts = parts_of(rows)
    down = -(-len(parts) // 3)
    sheet = draw.sheet(claim(results), draw.WIDTH + 1.6, down * (0.3 * len(names) + 0.9) + 0.7, note)
    edges = np.linspace(rows["reward"].min() - 0.01, rows["reward"].max() + 0.01, _BINS + 1)
    for place, (axes, (kind, part)) in enumerate(zip(draw.tiles(sheet, len(parts)), parts.items(), strict=True)):
        for y, workflow in enumerate(names):
            _shape(axes, y, part[part["workflow"] == workflow], edges, workflow, kind)
        axes.set_yticks(range(len(names)), names if place % 3 == 0 else [""] * len(names))
        axes.set(ylim=(len(names) - 0.4, -0.6), xlabel=f"reward, {named(kind)}")
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
    return sheet


def _shape(axes: Axes, y: float, part: pd.DataFrame, edges: np.ndarray, workflow: str, kind: str) -> None:
    """A mirrored histogram, and the mean with its interval."""
    if part.empty:
        return
    shade = draw.colour(workflow)
    counts, _ = np.histogram(part["reward"], edges)
    tall = 0.4 * counts / counts.max()
    axes.fill_between(edges, *(y + s * np.append(tall, tall[-1]) for s in (1, -1)), step="post", color=shade, alpha=0.4,
                      linewidth=0)  # fmt: skip
    found = interval(matrix(part, "reward", "number"), "workflow reward", workflow, kind)
    axes.plot([found.lo, found.hi], [y, y], color=draw.ink(shade), linewidth=2)
    axes.plot(found.value, y, "o", color=draw.ink(shade), markersize=6, markeredgecolor="white")


def spreads(results: Results) -> pd.DataFrame:
    """Mean and standard deviation of rewards by workflow, over all kinds together."""
    rows = sampled(results)
    found = rows.groupby("workflow")["reward"].agg(["mean", "std"]).reindex(WORKFLOWS).dropna(subset="mean")
    return found.fillna(0.0)


def claim(results: Results) -> str:
    """Which workflow is paid most and which least, and how much both vary, as a sentence."""
    found = spreads(results)
    if found.empty:
        return "No configuration was sampled"
    best, worst = found["mean"].idxmax(), found["mean"].idxmin()
    told = [f"{w} {found.loc[w, 'mean']:.2f}, deviation {found.loc[w, 'std']:.2f}" for w in (best, worst)]
    return f"Highest mean reward: {told[0]}; lowest: {told[1]}"


def alt(results: Results) -> str:
    """The figure in words."""
    told = [f"{w} {row['mean']:.2f} (deviation {row['std']:.2f})" for w, row in spreads(results).iterrows()]
    return "Distribution of rewards by workflow. Means: " + "; ".join(told) + "."


def words(results: Results) -> str:
    """Whether workflows that are paid more vary less, which the paper says they do, as a sentence."""
    found = spreads(results)
    if len(found) < 3:
        return "Too few workflows were sampled to compare their spread."
    if min(found["mean"].nunique(), found["std"].nunique()) < 2:
        return "All workflows vary alike, or are paid alike."
    rank = float(found["mean"].corr(found["std"], method="spearman"))
    side = "less" if rank < 0 else "more"
    return (
        f"Rank correlation of a workflow's mean reward with its deviation, {len(found)} workflows: {rank:+.2f}; those "
        f"that are paid more vary {side}."
    )
