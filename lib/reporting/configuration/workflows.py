"""What each workflow is worth on each kind of question, from configurations that were sampled without learning.

Rows are those of the sampled set on test questions: workflows in turn, with tools, budgets and atoms drawn at random.
Means are over the configurations of a workflow, intervals over these and over questions. Which workflow is best is
picked by the very numbers that are shown, so a lead is told with its interval, and leads are not corrected for how
many are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import draw, seeds
from lib.configuration import baselines
from lib.configuration.space import WORKFLOWS
from lib.configuration.study import Results
from lib.page.tables import listed
from lib.reporting.configuration.common import MEASURES, brief, by_kind, named, prepared
from lib.reporting.estimates import Rows, mean, means
from lib.stats import Interval

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
DRAWS = 2_000  # resamples
_BINS = 40


def sampled(results: Results, split: str = "test") -> pd.DataFrame:
    """Rows of the sampled set on one split; runs are configurations."""
    rows = results.searched
    rows = prepared(rows[(rows["set"] == "sampled") & (rows["split"] == split)])
    return rows.assign(seed=rows["number"])


@dataclass(frozen=True)
class Winner:
    """The best workflow of one kind of question. lead: over the next best; behind: for every other workflow, how far
    the best is ahead of it."""

    kind: str
    workflow: str
    accuracy: float
    next: str
    lead: Interval
    behind: dict[str, Interval]


@dataclass(frozen=True)
class Compared:
    """Accuracies by workflow and kind of question (or `ALL`), and the winner of every kind."""

    rows: Rows
    winners: list[Winner]


def compared(results: Results) -> Compared:
    """All that this part of the lesson tells of accuracy, computed once."""
    rows: Rows = {}
    for kind, part in by_kind(sampled(results)).items():
        for workflow in WORKFLOWS:
            mine = part[part["workflow"] == workflow]
            if len(mine):
                rows.setdefault(workflow, {})[kind] = mean(mine, "right")
    return Compared(rows, winners(results))


def winners(results: Results) -> list[Winner]:
    """The best workflow of every kind of question, by accuracy."""
    out = []
    for kind, part in by_kind(sampled(results), together=False).items():
        tables = {w: some.pivot(index="seed", columns="item", values="right").to_numpy(float)
                  for w, some in part.groupby("workflow")}  # fmt: skip
        ranked = sorted((w for w in WORKFLOWS if w in tables), key=lambda w: -round(tables[w].mean(), 12))
        if len(ranked) < 2:
            continue
        best = ranked[0]
        behind = {w: apart(tables[best], tables[w], "workflow", kind, best, w) for w in ranked[1:]}
        out.append(Winner(kind, best, float(tables[best].mean()), ranked[1], behind[ranked[1]], behind))
    return out


def apart(a: np.ndarray, b: np.ndarray, *name: str) -> Interval:
    """Mean of a (r, n) minus that of b (s, n): the same questions, but rows (configurations) that have nothing in
    common. All three are resampled; of a single row, questions alone."""
    rng = seeds.rng("report", "configuration", "apart", *name)
    items = _weights(a.shape[1], rng)
    sums = [np.einsum("dr,ri,di->d", _weights(len(x), rng), x, items, optimize=True) for x in (a, b)]
    ends = np.quantile(sums[0] - sums[1], [0.025, 0.975])
    return Interval(*np.round([a.mean() - b.mean(), *ends], 12).tolist())  # equal rows differ by nothing


def _weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """How much each of n counts in every resample, (DRAWS, n), with deviations stretched by sqrt(n / (n - 1))."""
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n
    return 1 / n + (n / max(n - 1, 1)) ** 0.5 * (drawn - 1 / n)


def nowhere_behind(found: Compared) -> list[str]:
    """Workflows that no winner is clearly ahead of, on any kind of question."""
    beaten = {w for winner in found.winners for w, lead in winner.behind.items() if lead.excludes(0)}
    tried = {w for winner in found.winners for w in (winner.workflow, *winner.behind)}
    return [w for w in WORKFLOWS if w in tried - beaten]


def verdict(found: Compared) -> str:
    """Of the paper's claim that no workflow is best everywhere: it holds if every workflow is clearly behind another
    one somewhere; it does not if one has the highest mean on all kinds, alone; otherwise it is open."""
    if len({one.workflow for one in found.winners}) == 1 and all(one.lead.value > 0 for one in found.winners):
        return FAILS
    return OPEN if nowhere_behind(found) or not found.winners else HOLDS


def winners_table(found: Compared) -> pd.DataFrame:
    """The best workflow of each kind of question, and how far it is ahead."""
    rows = [
        (one.kind, one.workflow, one.accuracy, one.next, one.lead, one.lead.excludes(0),
         listed([w for w, lead in one.behind.items() if lead.excludes(0)], "none"))
        for one in found.winners
    ]  # fmt: skip
    heads = ["kind", "best", "accuracy", "next best", "lead", "lead is clear", "clearly behind"]
    return pd.DataFrame(rows, columns=heads)


def accuracy_figure(found: Compared) -> Figure:
    """Accuracy by workflow, a panel for each kind of question and one for all (figure 12 of ARC)."""
    heads = {kind: f"accuracy, {named(kind)}" for row in found.rows.values() for kind in row}
    told = ", ".join(f"{one.kind} {one.workflow} {one.accuracy:.2f}" for one in found.winners)
    title = f"Best workflow by kind of question: {told or 'fewer than two were sampled'}"
    return draw.points(found.rows, title, heads, limits=(-0.05, 1.05))


def best_table(results: Results) -> pd.DataFrame:
    """Of each workflow the configuration that was paid best on training questions, on test questions."""
    parts = {workflow: results.searched[results.searched["workflow"] == workflow] for workflow in WORKFLOWS}
    return pd.DataFrame(
        [
            {"workflow": workflow, "tried": rows["number"].nunique()}
            | brief(means(prepared(baselines.constant(rows)), MEASURES))
            for workflow, rows in parts.items()
            if len(rows)
        ]
    )


# Spread (figure 13 of ARC) --------------------------------------------------------------------------


@draw.theme()
def spread_figure(results: Results) -> Figure:
    """How rewards are distributed, by workflow: one panel for each kind of question and one for all."""
    rows = sampled(results)
    found = spreads(rows)
    vary = found[["mean", "std"]].nunique().min() > 1  # the paper: who is paid more varies less
    rank = float(found["mean"].corr(found["std"], method="spearman")) if vary else np.nan
    note = "Shape: share of episodes by reward, each as wide as its fullest bin. Dot: mean, with its 95% interval."
    note += f" Rank correlation of mean and deviation: {rank:+.2f}." if np.isfinite(rank) else ""
    parts, names = by_kind(rows), list(found.index)
    down = -(-len(parts) // 3)
    sheet = draw.sheet(_claim(found), draw.WIDTH + 1.6, down * (0.3 * len(names) + 0.9) + 0.7, note)
    edges = np.linspace(rows["reward"].min() - 0.01, rows["reward"].max() + 0.01, _BINS + 1)
    for place, (axes, (kind, part)) in enumerate(zip(draw.tiles(sheet, len(parts)), parts.items(), strict=True)):
        for y, workflow in enumerate(names):
            _shape(axes, y, part[part["workflow"] == workflow], edges, workflow)
        draw.rows_of_names(axes, names if place % 3 == 0 else [""] * len(names))
        axes.set_xlabel(f"reward, {named(kind)}")
    told = [f"{workflow} {row['mean']:.2f} (deviation {row['std']:.2f})" for workflow, row in found.iterrows()]
    sheet.alt_text = f"Distribution of rewards by workflow. Means: {'; '.join(told)}."
    return sheet


def _shape(axes: Axes, y: float, part: pd.DataFrame, edges: np.ndarray, workflow: str) -> None:
    """A mirrored histogram, and the mean with its interval."""
    if part.empty:
        return
    shade = draw.colour(workflow)
    counts, _ = np.histogram(part["reward"], edges)
    tall = 0.4 * counts / counts.max()
    axes.fill_between(edges, *(y + s * np.append(tall, tall[-1]) for s in (1, -1)), step="post", color=shade, alpha=0.4,
                      linewidth=0)  # fmt: skip
    found = mean(part, "reward")
    axes.plot([found.lo, found.hi], [y, y], color=draw.ink(shade), linewidth=2)
    axes.plot(found.value, y, "o", color=draw.ink(shade), markersize=6, markeredgecolor="white")


def spreads(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of rewards by workflow, over all kinds together."""
    found = rows.groupby("workflow")["reward"].agg(["mean", "std"]).reindex(WORKFLOWS).dropna(subset="mean")
    return found.fillna(0.0)


def _claim(found: pd.DataFrame) -> str:
    """Which workflow is paid most and which least, and how much both vary, as a sentence."""
    best, worst = found["mean"].idxmax(), found["mean"].idxmin()
    told = [f"{w} {found.loc[w, 'mean']:.2f}, deviation {found.loc[w, 'std']:.2f}" for w in (best, worst)]
    return f"Highest mean reward: {told[0]}; lowest: {told[1]}"
