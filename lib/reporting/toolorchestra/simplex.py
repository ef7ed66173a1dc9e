"""The same questions for users on a grid over accuracy, cost and latency: what their weights change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import draw, stats
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import MONEY, PAPER, TIME, interval, label
from lib.reporting.words import NOTHING, clearly, number, there, within
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

BOTH = (START, PAPER)
WEIGHTS = {"right": "p_accuracy", "micro": "p_cost", "ms": "p_latency"}  # what each weight should move
NAMES = {"right": "accuracy", "micro": MONEY, "ms": TIME}
WORST = 2.0  # the reference point: so many times what the start spends, in money and in time


def grid(results: Results, arm: str) -> pd.DataFrame:
    """Episodes with `user` and `base`: numbers of the user and of the question."""
    part = common.exam(results, arm, "simplex")
    users = part[list(WEIGHTS.values())].drop_duplicates()
    bases = max(1, part["item"].nunique() // max(1, len(users)))
    return part.assign(user=part["item"] // bases, base=part["item"] % bases)


def cube(part: pd.DataFrame, column: str) -> np.ndarray:
    """(seeds, users, questions)."""
    if part.empty:
        return np.zeros((0, 0, 0))
    table = part.pivot(index="seed", columns=["user", "base"], values=column).sort_index(axis=1)
    return table.to_numpy(dtype=float).reshape(len(table), part["user"].nunique(), -1)


def users_table(results: Results) -> pd.DataFrame:
    """Every user of the grid: means before and after training."""
    parts = {arm: grid(results, arm) for arm in BOTH}
    out = []
    for user, part in parts[START].groupby("user"):
        first = part.iloc[0]
        row: dict[str, object] = {f"P, {w.removeprefix('p_')}": f"{first[w]:.2f}" for w in WEIGHTS.values()}
        for column, name in NAMES.items():
            ends = [parts[arm].loc[parts[arm]["user"] == user, column].mean() for arm in BOTH]
            row[name] = " to ".join(f"{end:.{2 if column == 'right' else 1}f}" for end in ends)
        out.append(row)
    return pd.DataFrame(out or [{"accuracy": "no user was asked"}])


def reference(results: Results) -> tuple[float, float]:
    """Dollars per million and milliseconds beyond which a user's mean counts for nothing: WORST times the start's."""
    part = grid(results, START)
    return tuple(float(part[c].mean() * WORST) if len(part) else 0.0 for c in ("micro", "ms"))


def _volumes(results: Results, arm: str, draws: int) -> np.ndarray:
    """Hypervolume of the users' means in every resample of questions, mean over seeds, (draws + 1,)."""
    part, worst = grid(results, arm), reference(results)
    cubes = [cube(part, c) for c in NAMES]
    if not cubes[0].size or min(worst) <= 0:
        return np.zeros(0)
    items = common.drawn_shares(cubes[0].shape[2], common.generator("volume"))[: draws + 1]
    scaled = [cubes[0], 1 - cubes[1] / worst[0], 1 - cubes[2] / worst[1]]
    points = np.stack([np.einsum("sub,db->dsu", values, items) for values in scaled], axis=-1)  # (draws, s, u, 3)
    return np.array([stats.hv_by_seed(each, np.zeros(3)) for each in points])


VOLUMES = 200  # resamples; a hypervolume is dear


def volumes(results: Results) -> dict[str, Interval]:
    """Hypervolume of start and trained, 1 at the most, and their difference; mean over seeds. Objectives: accuracy,
    and money and time saved as a share of the reference. Intervals: of seeds (Student) and of questions, the wider."""
    found = {arm: _volumes(results, arm, VOLUMES) for arm in BOTH}
    out = {label(arm): within(_volume(each)) for arm, each in found.items()}
    if all(each.size for each in found.values()):
        out["after minus before"] = _volume(found[PAPER] - found[START].mean(1, keepdims=True))
    else:
        out["after minus before"] = NOTHING
    return out


def _volume(drawn: np.ndarray) -> Interval:
    """drawn: (draws + 1, seeds), the data first. Both sources of deviation added."""
    if not drawn.size:
        return NOTHING
    value = float(drawn[0].mean())
    resampled = drawn[1:].mean(1)
    questions = np.abs(np.quantile(resampled - resampled.mean(), [0.025, 0.975]))
    runs = stats.t_interval(drawn[0]) if drawn.shape[1] > 1 else Interval(value, value, value)
    below, above = np.hypot(questions, [value - runs.lo, runs.hi - value])
    return Interval(*np.round([value, value - below, value + above], 12).tolist())


def slope(results: Results, arm: str, column: str) -> Interval:
    """How much a mean changes as its weight goes from 0 to 1, by least squares over the users."""
    part = grid(results, arm)
    values = cube(part, column)
    if not values.size:
        return NOTHING
    weight = part.groupby("user")[WEIGHTS[column]].first().to_numpy(dtype=float)
    centred = weight - weight.mean()
    if not (centred**2).sum():
        return NOTHING
    return interval(np.einsum("u,sub->sb", centred / (centred**2).sum(), values), "slope", arm, column)


def _slope_name(column: str) -> str:
    return f"{NAMES[column]} per weight on {WEIGHTS[column].removeprefix('p_')}"


def slopes_words(results: Results) -> str:
    """Whether spending falls with the weight on cost, and time with that on latency, in sentences."""
    told = []
    for arm in BOTH:
        money, time, right = (slope(results, arm, c) for c in ("micro", "ms", "right"))
        told.append(
            f"{label(arm)}: from weight 0 to 1 spending changes by {number(money, 1, True)} dollars per million, "
            f"{clearly(money, 'up', 'down')}; time by {number(time, 1, True)} ms, {clearly(time, 'up', 'down')}; "
            f"accuracy by {number(right, 3, True)}, {clearly(right, 'up', 'down')}."
        )
    return "\n".join(told)


def volumes_words(results: Results) -> str:
    """Hypervolume before and after, with its reference point, as a sentence."""
    found, worst = volumes(results), reference(results)
    less = found["after minus before"]
    if not there(less):
        return "No user was asked."
    return (
        f"Hypervolume over the users, reference accuracy 0, ${worst[0]:.1f} per million and {worst[1]:.1f} ms, which "
        f"are {WORST:g} times what the start spends: start {number(found[label(START)], 3)}, {label(PAPER)} "
        f"{number(found[label(PAPER)], 3)}; after minus before {number(less, 3, True)}, {clearly(less)}."
    )


def users(results: Results) -> list[int]:
    """Numbers of the users of the grid, for a reader to choose from."""
    return sorted(grid(results, START)["user"].unique().tolist())


@draw.theme()
def figure(results: Results, user: int | None = None) -> Figure:
    """Each mean against the weight that should move it: a dot for every user, a line through equal weights; user: one
    to point out."""
    note = "Small: single users, mean over seeds. Lines: users of equal weight together. A user's weights add up to 1."
    title = claim(results) if user is None else user_words(results, user)
    sheet = draw.sheet(title, draw.WIDTH + 2.4, 3.2, note)
    for axes, column in zip(draw.tiles(sheet, 3, 3), NAMES, strict=True):
        for arm in BOTH:
            _by_weight(axes, grid(results, arm), column, label(arm), user)
        axes.set(xlabel=f"weight on {WEIGHTS[column].removeprefix('p_')}", ylabel=NAMES[column])
    if sheet.axes[0].lines:
        sheet.axes[0].legend(frameon=False, fontsize=9)
    return sheet


def _by_weight(axes: Axes, part: pd.DataFrame, column: str, name: str, user: int | None) -> None:
    """Users as dots and a line through those of equal weight."""
    if part.empty:
        return
    shade, mark = draw.colour(name), draw.marker(name)
    each = part.groupby("user").agg(weight=(WEIGHTS[column], "first"), value=(column, "mean"))
    means = each.groupby("weight")["value"].mean()
    axes.plot(each["weight"], each["value"], mark, color=shade, markersize=4, alpha=0.5)
    axes.plot(means.index, means, f"{mark}-", color=shade, label=name)
    if user in each.index:
        place = ([each.loc[user, "weight"]], [each.loc[user, "value"]])
        axes.plot(*place, "o", markersize=14, markerfacecolor="none", markeredgecolor=shade, markeredgewidth=1.6)


def user_words(results: Results, user: int) -> str:
    """One user, as a sentence."""
    told = []
    for arm in BOTH:
        part = grid(results, arm)
        mine = part[part["user"] == user]
        told.append(
            f"{label(arm)} {mine['right'].mean():.2f} right for ${mine['micro'].mean():.1f}, {mine['ms'].mean():.0f} ms"
        )
    weights = ", ".join(f"{w.removeprefix('p_')} {mine[w].iloc[0]:.2f}" for w in WEIGHTS.values())
    return f"User with weights {weights}: {'; '.join(told)}"


def claim(results: Results) -> str:
    """What the weight on cost does to spending, before and after, as a sentence."""
    told = [f"{label(arm)} {number(slope(results, arm, 'micro'), 1, True)}" for arm in BOTH]
    return f"Dollars per million questions as the weight on cost goes from 0 to 1: {', '.join(told)}"


def alt(results: Results) -> str:
    """The figure in words: means at the least and the largest weight."""
    told = []
    for arm in BOTH:
        part = grid(results, arm)
        for column, name in NAMES.items():
            means = part.groupby(WEIGHTS[column])[column].mean()
            if len(means):
                told.append(f"{label(arm)}, {name}: {means.iloc[0]:.2f} to {means.iloc[-1]:.2f}")
    return "Means by the weight that should move them, from weight 0 to 1. " + _joined(told)


def _joined(told: Sequence[str]) -> str:
    return "; ".join(told) + "." if told else "No user was asked."
