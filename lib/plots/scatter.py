"""One estimate against another: quality against cost, or objectives against each other, with both intervals."""

from collections.abc import Collection, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib import stats
from lib.plots.inputs import Estimates, alt, ends, finite, table
from lib.plots.inputs import note as interval_note
from lib.plots.styles import GREY, Style, looks
from lib.plots.theme import WIDTH, literal, point_labels, sheet, span, theme, tiles

MIXTURES = ("mixtures", "mixtures with nobody")  # nobody: costs nothing, gets nothing right
Words = str | Mapping[str, str]


@theme()
def plane(
    x: Estimates,
    y: Estimates | None,
    title: str,
    xlabel: Words = "",
    ylabel: Words = "",
    *,
    panels: str | int | None = None,
    line: str | None = None,
    through: Collection | None = None,
    joined: bool = True,
    names: Mapping | None = None,
    rings: Collection | str = (),
    roles: Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
    note: str = "",
) -> Figure:
    """Points with both intervals, and what they span.

    x, y: estimates of the same groups: who, or who and a point, whose points a line joins (`joined`) from the least x
    to the largest. y=None: the last group of x names objectives, all maximised, and each pair of them gets a panel.
    panels: a group that gets a panel for each of its values; labels may then be {panel: words}. line: "mixtures", the
    best that sending shares of the queries to either of two points buys at each cost, also "mixtures with nobody", or
    "stair", what no point lies beyond; through: who spans it, (panel, who) where panels differ, all by default. names:
    {who or (who, point): words}, what is named and how; everybody at the dearest point, by default. rings: groups to
    point out, or "front": those whose means no other dominates in all objectives. roles: as in `points`. size: inches
    of all panels.
    """
    xs, ys, xlabel, ylabel = _axes_of(x, y, panels, xlabel, ylabel)
    parts = list(dict.fromkeys(xs.index.get_level_values(0)))
    who = list(dict.fromkeys(str(key[1]) for key in xs.index))
    styles, across = looks(who, roles=roles), min(len(parts), 3)
    told = [interval_note(xs, ys)]
    told += ["No point lies beyond the line."] * (line == "stair")
    told += [_mixtures_of(who, parts, through)] * (line in MIXTURES)
    told += ["Ring: not dominated by another mean."] * (rings == "front")
    wide, high = size or (
        WIDTH + 2.6 * (across - 1),
        4.6 if len(parts) == 1 else 4.0 * -(-len(parts) // across),
    )
    figure = sheet(title, wide, high, " ".join([*told, note]).strip())
    ringed = _front(x) if rings == "front" else set(rings)
    grid, drawn = tiles(figure, len(parts), across), []
    for axes, part in zip(grid, parts, strict=True):
        flat = _flat(xs.loc[[part]], ys.loc[[part]])
        _marks(axes, flat, styles, joined, ringed)
        span(axes, flat[["x", "x_ci_low", "x_ci_high"]].to_numpy(), "x", 0.14)
        span(axes, flat[["y", "y_ci_low", "y_ci_high"]].to_numpy(), "y", 0.12)
        if line:
            some = [
                through is None or _in(key, through) or (part, key[0]) in through
                for key in flat.index
            ]
            _edge(axes, flat[some], line)
        axes.set(xlabel=literal(xlabel.get(part, "")), ylabel=literal(ylabel.get(part, "")))
        if part != "" and panels is not None:
            axes.set_title(literal(part))
        drawn.append(flat)
    said = {str(word) for word in (names or {}).values()}
    if said and len(who) > 1 and (unsaid := [name for name in who if name not in said]):
        dots = [
            Line2D(
                [], [], color=styles[name][0], marker=styles[name][1], ls="", label=literal(name)
            )
            for name in unsaid
        ]
        figure.legend(handles=dots, loc="outside right center")
    figure.draw_without_rendering()
    for axes, flat in zip(grid, drawn, strict=True):
        _name(axes, flat, styles, names)
    figure.alt_text = f"{alt(_named(xs), f'{title}. Across')} {alt(_named(ys), 'Up')}"
    return figure


def _axes_of(
    x: Estimates, y: Estimates | None, panels: str | int | None, xlabel: Words, ylabel: Words
):
    """Both estimates by (panel, who, point), and the labels of every panel."""
    xs, ys = table(x), None if y is None else table(y)
    if ys is None:
        measures = list(dict.fromkeys(xs.index.get_level_values(-1)))
        if len(measures) < 2:
            raise ValueError(
                f"objectives against each other need at least two of them, got {measures}"
            )
        words = (
            dict(xlabel) if isinstance(xlabel, Mapping) else {m: f"{m}{xlabel}" for m in measures}
        )
        pairs = {f"{a} and {b}": (a, b) for a, b in combinations(measures, 2)}
        apart = [{pair: xs.xs(ab[side], level=-1) for pair, ab in pairs.items()} for side in (0, 1)]
        xs, ys = (pd.concat(each, names=["panel"]) for each in apart)
        xlabel, ylabel = ({pair: words[ab[side]] for pair, ab in pairs.items()} for side in (0, 1))
    elif panels is not None:
        place = panels if isinstance(panels, int) else list(xs.index.names).index(panels)
        front = [place, *(level for level in range(xs.index.nlevels) if level != place)]
        xs, ys = xs.reorder_levels(front), ys.reorder_levels(front)
    else:
        xs, ys = (pd.concat({"": each}, names=["panel"]) for each in (xs, ys))
    if set(xs.index) != set(ys.index):
        raise ValueError(
            f"x and y are not of the same groups: {sorted(set(xs.index) ^ set(ys.index), key=str)[:3]}"
        )
    every = dict.fromkeys(xs.index.get_level_values(0))
    xlabel, ylabel = (
        dict(w) if isinstance(w, Mapping) else dict.fromkeys(every, w) for w in (xlabel, ylabel)
    )
    return xs, ys.reindex(xs.index), xlabel, ylabel


def _flat(xs: pd.DataFrame, ys: pd.DataFrame) -> pd.DataFrame:
    """x, y and their ends by (who) or (who, point), in one panel."""
    out = pd.concat([ends(xs).add_prefix("x_"), ends(ys).add_prefix("y_")], axis=1).droplevel(0)
    out["x"], out["y"] = xs["value"].to_numpy(), ys["value"].to_numpy()
    keys = [key if isinstance(key, tuple) else (key,) for key in out.index]
    return out.assign(who=[str(key[0]) for key in keys]).set_axis(
        pd.Index(keys, tupleize_cols=False)
    )


def _in(key: tuple, wanted: Collection) -> bool:
    """Whether a group, or everything of who it belongs to, is among the wanted."""
    return key[0] in wanted or key in wanted


def _marks(
    axes: Axes, flat: pd.DataFrame, styles: Mapping[str, Style], joined: bool, ringed: Collection
) -> None:
    colours, shapes = ({name: style[i] for name, style in styles.items()} for i in (0, 1))
    for key, row in flat.iterrows():
        thin = {
            "color": colours[row["who"]],
            "linewidth": 1.5,
            "alpha": 0.7,
            "gid": "interval",
            "zorder": 3,
        }
        if row["x_ci_low"] < row["x_ci_high"]:
            axes.plot([row["x_ci_low"], row["x_ci_high"]], [row["y"]] * 2, **thin)
        if row["y_ci_low"] < row["y_ci_high"]:
            axes.plot([row["x"]] * 2, [row["y_ci_low"], row["y_ci_high"]], **thin)
        if _in(key, ringed):
            axes.plot(
                row["x"],
                row["y"],
                "o",
                markersize=16,
                mfc="none",
                mec="black",
                mew=1.2,
                zorder=5,
                gid="ring",
            )
    many = flat.groupby("who", sort=False)["x"].transform("size") > 1
    for name, path in (
        flat[many].sort_values("x", kind="stable").groupby("who", sort=False) if joined else ()
    ):
        axes.plot(path["x"], path["y"], color=colours[name], linewidth=1, alpha=0.7, zorder=2)
    sizes = {
        name: (150 if shape == "*" else 75) * (0.5 if many.any() else 1)
        for name, shape in shapes.items()
    }
    sns.scatterplot(
        flat,
        x="x",
        y="y",
        hue="who",
        style="who",
        size="who",
        sizes=sizes,
        palette=colours,
        markers=shapes,
        legend=False,
        ax=axes,
        zorder=4,
        clip_on=False,
    )


def _edge(axes: Axes, flat: pd.DataFrame, line: str) -> None:
    """What mixtures of the points reach, or the stair that none lies beyond, from the left edge to the right."""
    if flat.empty:
        return
    xy, (left, right), bottom = flat[["x", "y"]].to_numpy(), axes.get_xlim(), axes.get_ylim()[0]
    if line == "stair":
        corners = np.unique(xy[undominated(xy)], axis=0)
        xs, ys = [left, *corners[:, 0], corners[-1, 0]], [corners[0, 1], *corners[:, 1], bottom]
        axes.fill_between(xs, bottom, ys, step="pre", color=GREY, alpha=0.06, linewidth=0)
        axes.step(xs, ys, where="pre", color=GREY, linewidth=1.2, alpha=0.8, zorder=1, gid="line")
        return
    corners = upper_hull(np.vstack([[0.0, 0.0], xy]) if line == MIXTURES[1] else xy)
    costs = np.unique([*np.linspace(corners[0, 0], corners[-1, 0], 200), *corners[:, 0]])
    heights = np.interp(costs, *corners.T)
    axes.plot(
        [*costs, right],
        [*heights, heights[-1]],
        "--",
        color=GREY,
        linewidth=1.3,
        zorder=1,
        gid="line",
    )
    axes.set_xlim(
        max(left, 0.0) if xy[:, 0].min() > 0 else left, right
    )  # nothing costs less than nothing


def _name(
    axes: Axes, flat: pd.DataFrame, styles: Mapping[str, Style], names: Mapping | None
) -> None:
    """Names of the points, by default of everybody at the dearest one."""
    if names is None:
        names = {}
        for who, path in flat.sort_values("x", kind="stable").groupby("who", sort=False):
            points = [key[1:] for key in path.index]
            names[path.index[-1]] = (
                f"{who} ({points[0][0]} to {points[-1][0]})" if len(points) > 1 else who
            )
    dearest = set(flat.sort_values("x", kind="stable").drop_duplicates("who", keep="last").index)
    words = {
        key: names.get(key, names.get(key[0]) if key in dearest else None) for key in flat.index
    }
    shown = flat[[words[key] is not None for key in flat.index]]
    if shown.empty:
        return
    texts, xy = [words[key] for key in shown.index], shown[["x", "y"]].to_numpy()
    shades = [styles[who][0] for who in shown["who"]]
    point_labels(
        axes, texts, xy, shades, np.concatenate([_inked(row) for _, row in flat.iterrows()])
    )


def _inked(row: pd.Series) -> np.ndarray:
    """Points (18, 2) along both intervals, for labels to avoid."""
    along, up = (
        np.linspace(row["x_ci_low"], row["x_ci_high"], 9),
        np.linspace(row["y_ci_low"], row["y_ci_high"], 9),
    )
    return np.concatenate(
        [
            np.column_stack([along, np.full(9, row["y"])]),
            np.column_stack([np.full(9, row["x"]), up]),
        ]
    )


def _mixtures_of(who: list[str], parts: list[str], through: Collection | None) -> str:
    spanning = [
        n
        for n in who
        if through is None or n in through or any((part, n) in through for part in parts)
    ]
    left_out = [name for name in who if name not in spanning]
    some = (
        "; ".join(spanning) if len(spanning) < len(left_out) else f"all but {'; '.join(left_out)}"
    )
    return (
        f"Dashed: the best that a mixture of {some if left_out else 'methods'} buys at each cost."
    )


def _named(found: pd.DataFrame) -> pd.DataFrame:
    return found.droplevel(0) if set(found.index.get_level_values(0)) == {""} else found


def _front(x: Estimates) -> set:
    """Who no other dominates in the means of all objectives, the last group of x."""
    means = table(x)["value"].unstack()
    return {
        key if isinstance(key, tuple) else (key,)
        for key in means.index[undominated(means.to_numpy())]
    }


def undominated(points: np.ndarray) -> np.ndarray:
    """Which points (n, k) no other dominates, (n,) bool; unlike a front, it keeps all of several equals."""
    front = points[stats.pareto_front(points)]
    return (points[:, None] == front).all(axis=-1).any(axis=1)


def upper_hull(points: np.ndarray) -> np.ndarray:
    """Corners of the best quality for each cost: concave and rising, from the cheapest to the best.

    points: (n, 2) as (cost, quality). Returns (h, 2) sorted by cost; a point that a mixture of two others
    beats at its own cost is no corner.
    """
    points = finite(points, "the points of the hull")
    return points[stats.hull(points[:, 0], points[:, 1])]
