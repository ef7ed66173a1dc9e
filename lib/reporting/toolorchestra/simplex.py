"""The same questions for users on a grid over accuracy, cost and latency: what their weights change."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import draw, seeds, stats
from lib.reporting.estimates import Rows, mean
from lib.reporting.toolorchestra.common import BOTH, GAP, LABELS, MEASURES, PAPER, exam
from lib.reporting.words import number, within
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

WEIGHTS = {"right": "p_accuracy", "micro": "p_cost", "ms": "p_latency"}  # what each weight should move
WORST = 2.0  # the reference point: so many times what the start spends, in money and in time
VOLUMES = 200  # resamples; a hypervolume is dear


def grid(results: Results, arm: str) -> pd.DataFrame:
    """Episodes with `user` and `base`: numbers of the user and of the question."""
    part = exam(results, arm, "simplex")
    bases = part["item"].nunique() // len(part[list(WEIGHTS.values())].drop_duplicates())
    return part.assign(user=part["item"] // bases, base=part["item"] % bases)


def users(results: Results) -> list[int]:
    """Numbers of the users of the grid, for a reader to choose from."""
    return sorted(grid(results, START)["user"].unique().tolist())


def users_table(results: Results) -> pd.DataFrame:
    """Every user of the grid: means before and after training."""
    before, after = (grid(results, arm).groupby("user")[[*MEASURES, *WEIGHTS.values()]].mean() for arm in BOTH)
    table = pd.DataFrame({f"P, {w.removeprefix('p_')}": before[w].map("{:.2f}".format) for w in WEIGHTS.values()})
    for column, title in MEASURES.items():
        digits = 2 if column == "right" else 1
        ends = zip(before[column], after[column], strict=True)
        table[title] = [f"{a:.{digits}f} to {b:.{digits}f}" for a, b in ends]
    return table.reset_index(drop=True)


# Slopes -------------------------------------------------------------------------------------------


def slope(results: Results, arm: str, column: str) -> Interval:
    """How much a mean changes as its weight goes from 0 to 1, by least squares over the users: the mean over seeds and
    questions of sum_u (w_u - mean w) y_u / sum_u (w_u - mean w)^2."""
    part = grid(results, arm)
    weight = part.groupby("user")[WEIGHTS[column]].first()
    centred = weight - weight.mean()
    pull = part["user"].map(centred / (centred**2).sum()) * len(weight)
    return mean(part.assign(item=part["base"], slope=pull * part[column], **{"try": part["user"]}), "slope")


def slopes(results: Results) -> Rows:
    """All slopes, before and after training."""
    return {LABELS[arm]: {f"{title}, by its weight": slope(results, arm, c) for c, title in MEASURES.items()}
            for arm in BOTH}  # fmt: skip


# Hypervolume --------------------------------------------------------------------------------------


def reference(results: Results) -> tuple[float, float]:
    """Dollars per million and milliseconds beyond which a user's mean counts for nothing: WORST times the start's."""
    part = grid(results, START)
    return tuple(float(part[column].mean() * WORST) for column in ("micro", "ms"))


def _volumes(results: Results, arm: str) -> np.ndarray:
    """Hypervolume of the users' means, (VOLUMES + 1, seeds): of the data, then of every resample of questions."""
    part, (money, time) = grid(results, arm), reference(results)
    part = part.assign(micro=1 - part["micro"] / money, ms=1 - part["ms"] / time)
    shape = part["seed"].nunique(), part["user"].nunique(), -1, len(MEASURES)
    cube = part.sort_values(["seed", "user", "base"])[list(MEASURES)].to_numpy(float).reshape(shape)
    n = cube.shape[2]
    drawn = seeds.rng("report", "toolorchestra", "volume").multinomial(n, np.full(n, 1 / n), VOLUMES)
    points = np.einsum("subk,db->dsuk", cube, np.vstack([np.ones(n), drawn]) / n)
    return np.array([stats.hv_by_seed(each, np.zeros(3)) for each in points])


def volumes(results: Results) -> dict[str, Interval]:
    """Hypervolume of start and trained, 1 at the most, and their difference; mean over seeds. Objectives: accuracy,
    and money and time saved as a share of the reference. Intervals: of seeds (Student) and of questions, added."""
    before, after = (_volumes(results, arm) for arm in BOTH)
    out = {LABELS[arm]: within(_volume(drawn)) for arm, drawn in zip(BOTH, (before, after), strict=True)}
    return out | {GAP: _volume(after - before.mean(1, keepdims=True))}


def _volume(drawn: np.ndarray) -> Interval:
    """drawn: (draws + 1, seeds), the data first. Both sources of deviation added."""
    value = float(drawn[0].mean())
    resampled = drawn[1:].mean(1)
    questions = np.abs(np.quantile(resampled - resampled.mean(), [0.025, 0.975]))
    runs = stats.t_interval(drawn[0]) if drawn.shape[1] > 1 else Interval(value, value, value)
    below, above = np.hypot(questions, [value - runs.lo, runs.hi - value])
    return Interval(value, value - below, value + above)


# Figure -------------------------------------------------------------------------------------------


@draw.theme()
def figure(results: Results, user: int | None = None) -> Figure:
    """Each mean against the weight that should move it: a dot for every user, a line through equal weights; user: one
    to point out."""
    note = "Small: single users, mean over seeds. Lines: users of equal weight together. A user's weights add up to 1."
    told = [f"{LABELS[arm]} {number(slope(results, arm, 'micro'), 1, True)}" for arm in BOTH]
    title = f"Dollars per million questions as the weight on cost goes from 0 to 1: {', '.join(told)}"
    parts = {arm: grid(results, arm) for arm in BOTH}
    sheet = draw.sheet(title if user is None else _user_words(parts, user), draw.WIDTH + 2.4, 3.2, note)
    ends = []
    for axes, (column, weight) in zip(draw.tiles(sheet, 3, 3), WEIGHTS.items(), strict=True):
        for arm, part in parts.items():
            means = _by_weight(axes, part, column, LABELS[arm], user)
            ends.append(f"{LABELS[arm]}, {MEASURES[column]}: {means.iloc[0]:.2f} to {means.iloc[-1]:.2f}")
        axes.set(xlabel=f"weight on {weight.removeprefix('p_')}", ylabel=MEASURES[column])
    sheet.axes[0].legend(frameon=False, fontsize=9)
    sheet.alt_text = f"Means by the weight that should move them, from weight 0 to 1. {'; '.join(ends)}."
    return sheet


def _by_weight(axes: Axes, part: pd.DataFrame, column: str, name: str, user: int | None) -> pd.Series:
    """Users as dots and a line through those of equal weight, whose means are returned."""
    shade, mark = draw.colour(name), draw.marker(name)
    each = part.groupby("user").agg(weight=(WEIGHTS[column], "first"), value=(column, "mean"))
    means = each.groupby("weight")["value"].mean()
    axes.plot(each["weight"], each["value"], mark, color=shade, markersize=4, alpha=0.5)
    axes.plot(means.index, means, f"{mark}-", color=shade, label=name)
    if user in each.index:
        axes.plot(*each.loc[[user]].to_numpy().T, "o", markersize=14, markerfacecolor="none", markeredgecolor=shade)
    return means


def _user_words(parts: dict[str, pd.DataFrame], user: int) -> str:
    """One user, as a sentence."""
    mine = {arm: part[part["user"] == user] for arm, part in parts.items()}
    told = [f"{LABELS[arm]} {p['right'].mean():.2f} right for ${p['micro'].mean():.1f}, {p['ms'].mean():.0f} ms"
            for arm, p in mine.items()]  # fmt: skip
    weights = ", ".join(f"{w.removeprefix('p_')} {mine[PAPER][w].iloc[0]:.2f}" for w in WEIGHTS.values())
    return f"User with weights {weights}: {'; '.join(told)}"
