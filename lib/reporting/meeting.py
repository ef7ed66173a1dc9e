"""The picture of everybody: quality against cost, with intervals, the mixtures of experts, and the oracle.

What lies on or below the line of mixtures could be had by tossing a coin between two experts, or two constants; what
lies above it decides something. Points of one maker are joined in the order of their cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import seeds, stats
from lib.ablations.comparison import interval, matrix
from lib.draw import figures
from lib.meeting.chains import EXPERT, ORACLE, PAPER, ROUTER
from lib.page.words import listed, number
from lib.reporting.routing.common import gap_to_mixtures
from lib.stats import Interval

LOOKS = {
    PAPER: ("#0072B2", "o", 9),
    ROUTER: ("#009E73", "s", 6),
    EXPERT: ("#555555", "D", 6),
    ORACLE: ("#CC79A7", "*", 13),
}
Key = tuple[str, str]  # maker, point
LOG_FROM = 100.0  # the dearest costs so many times the cheapest where the axis is logarithmic
LINE = 0.034  # of the height of a plane, between two names


def name(key: Key) -> str:
    """A maker at a point, for tables."""
    maker, point = key
    return f"{maker}, {point}" if point else maker


def measured(table: pd.DataFrame, shared: bool) -> dict[Key, dict[str, Interval]]:
    """Quality and dollars of every maker at every point; shared: whether all seeds have the same units. Quality lies in
    [0, 1] and nobody is paid, so that intervals end there."""
    ends = {"quality": (0.0, 1.0), "dollars": (0.0, np.inf)}

    def of(part: pd.DataFrame, column: str, key: Key) -> Interval:
        found = interval(matrix(part, column, shared), shared, seeds.rng("report", "meeting", *key, column))
        return Interval(found.value, *np.clip([found.lo, found.hi], *ends[column]).tolist())

    return {
        key: {column: of(part, column, key) for column in ends}
        for key, part in table.groupby(["maker", "point"], sort=False)
    }


def kinds(table: pd.DataFrame) -> dict[str, str]:
    """The kind of each maker."""
    return dict(table.drop_duplicates("maker")[["maker", "kind"]].to_numpy().tolist())


def points_table(table: pd.DataFrame, shared: bool, money: str) -> pd.DataFrame:
    """Every point, the dearest last."""
    rows, kind = measured(table, shared), kinds(table)
    order = sorted(rows, key=lambda key: rows[key]["dollars"].value)
    return pd.DataFrame(
        [
            {"who": name(key), "kind": kind[key[0]], "quality": number(rows[key]["quality"], 3),
             money: number(rows[key]["dollars"], 4 if rows[key]["dollars"].value < 1 else 1)}
            for key in order
        ]
    )  # fmt: skip


# Chains: above the mixtures of experts? ------------------------------------------------------------


def above_mixtures(table: pd.DataFrame) -> dict[Key, Interval]:
    """Quality of each maker of a paper or router minus that of the best mixture of experts for the same money, paired
    by question; experts are those with whole questions, and nobody at no cost."""
    experts = table[table["kind"] == EXPERT]
    wide = {c: experts.pivot_table(index="unit", columns="maker", values=c).to_numpy(float)
            for c in ("quality", "dollars")}  # fmt: skip
    nobody = np.zeros((len(wide["quality"]), 1))
    others = [np.hstack([nobody, wide[c]]) for c in ("quality", "dollars")]
    chosen = table[table["kind"].isin([PAPER, ROUTER])]
    return {
        key: gap_to_mixtures(matrix(part, "quality", True), matrix(part, "dollars", True), *others, "meeting", *key)
        for key, part in chosen.groupby(["maker", "point"], sort=False)
    }


def mixtures_table(gaps: Mapping[Key, Interval]) -> pd.DataFrame:
    """Who is above the mixtures."""
    word = {True: "above", False: "below"}
    return pd.DataFrame(
        [
            {"who": name(key), "quality above mixtures of experts": number(gap, 3, True),
             "clear": word[gap.value > 0] if gap.excludes(0) else "-"}
            for key, gap in sorted(gaps.items(), key=lambda each: -each[1].value)
        ]
    )  # fmt: skip


def chains_finding(table: pd.DataFrame) -> str:
    """Whose decisions are worth more than a coin between experts, as a sentence."""
    gaps, kind = above_mixtures(table), kinds(table)
    told = []
    for which, who in ((PAPER, "of the papers' decision makers"), (ROUTER, "of the routers")):
        mine = {key: gap for key, gap in gaps.items() if kind[key[0]] == which}
        up = [name(key) for key, gap in mine.items() if gap.excludes(0) and gap.value > 0]
        told.append(f"{len(up)} of {len(mine)} points {who} {_be(len(up))} clearly above mixtures of experts for the "
                    "same money" + (f" ({listed(up)})" if up else ""))  # fmt: skip
    return "; ".join(told)


def _be(n: int) -> str:
    return "is" if n == 1 else "are"


# Students: worth the money? --------------------------------------------------------------------------


def worth(table: pd.DataFrame) -> tuple[Key, dict[Key, Interval]]:
    """The best control that costs nothing, and the quality of everybody who costs money minus its, by pairs of a seed's
    means. It is the best in hindsight, so it is flattered."""
    means = table.groupby(["maker", "point", "seed"], sort=False)[["quality", "dollars"]].mean()
    by_key = {key: part.sort_index(level="seed") for key, part in means.groupby(level=[0, 1], sort=False)}
    paid = {key: part["quality"].to_numpy() for key, part in by_key.items() if part["dollars"].max() > 0}
    controls = {maker for maker, kind in kinds(table).items() if kind in (EXPERT, ROUTER)}
    free = {k: part["quality"].to_numpy() for k, part in by_key.items() if k not in paid and k[0] in controls}
    best = max(free, key=lambda key: free[key].mean())
    rng = {key: seeds.rng("report", "worth", *key) for key in paid}
    return best, {key: stats.paired_difference(values, free[best], rng[key]) for key, values in paid.items()}


def zoo_finding(table: pd.DataFrame) -> str:
    """Whether anything that is paid for is above the best that is free, as a sentence."""
    best, paid = worth(table)
    up, down = (sum(g.excludes(0) and (g.value > 0) == sign for g in paid.values()) for sign in (True, False))
    return (
        f"of {len(paid)} ways that pay for tokens, {up} {_be(up)} clearly above the best that is free "
        f"({name(best)}, chosen in hindsight) and {down} clearly below"
    )


# The picture ------------------------------------------------------------------------------------------


@figures.theme()
def picture(chains: pd.DataFrame, zoo: pd.DataFrame) -> Figure:
    """Both meetings beside each other."""
    note = (
        "Lines: 95 % intervals of both axes. Dashed: mixtures of experts. Circles: decision makers of the papers; "
        "squares: routers and controls; diamonds: one expert or policy for all; star: oracle. *: scripted stand-in."
    )
    sheet = figures.sheet(title(chains, zoo), 14.5, 6.6, note)
    left, right = figures.tiles(sheet, 2, across=2)
    late = [_plane(left, chains, True, "chains: $ per million questions", "share of questions right", True),
            _plane(right, zoo, False, "students: $ per episode", "mean of the objectives", False)]  # fmt: skip
    for axes, names, xy, shades in late:
        _names(axes, names, xy, shades)
    return sheet


def title(chains: pd.DataFrame, zoo: pd.DataFrame) -> str:
    """Both findings."""
    gaps, kind = above_mixtures(chains), kinds(chains)
    mine = [gap for key, gap in gaps.items() if kind[key[0]] == PAPER]
    up = sum(gap.excludes(0) and gap.value > 0 for gap in mine)
    _, paid = worth(zoo)
    over = sum(gap.excludes(0) and gap.value > 0 for gap in paid.values())
    return (
        f"Chains: {up} of {len(mine)} points beat mixtures of experts for the same money. "
        f"Students: {over} of {len(paid)} paid ways beat the best free one"
    )


def alt(chains: pd.DataFrame, zoo: pd.DataFrame) -> str:
    """The picture in words."""
    return (
        f"Quality against cost with intervals, two planes. On chains, {chains_finding(chains)}. "
        f"With students, {zoo_finding(zoo)}."
    )


def _plane(axes: Axes, table: pd.DataFrame, shared: bool, xlabel: str, ylabel: str, hull: bool):
    """Draw one plane; what is left is to write names beside the dearest point of each maker."""
    rows, kind = measured(table, shared), kinds(table)
    names, xy, shades = [], [], []
    for maker, points in _by_maker(rows).items():
        shade, mark, size = LOOKS[kind[maker]]
        xs, ys = ([rows[maker, p][c].value for p in points] for c in ("dollars", "quality"))
        axes.plot(xs, ys, "-", color=shade, linewidth=0.8, alpha=0.6, zorder=2)
        for p in points:
            _cross(axes, rows[maker, p]["dollars"], rows[maker, p]["quality"], shade, mark, size)
        names.append(_label(maker, points))
        xy.append((xs[-1], ys[-1]))
        shades.append(shade)
    if hull:
        _mixtures(axes, table)
    positive = [row["dollars"].value for row in rows.values() if row["dollars"].value > 0]
    axes.set(xlabel=figures.literal(xlabel), ylabel=ylabel)
    _scale(axes, positive)
    return axes, names, np.array(xy), shades


def _scale(axes: Axes, positive: list[float]) -> None:
    """Costs that span decades stand on a logarithmic axis that begins at 0; others on a linear one, where mixtures are
    straight lines."""
    if not positive or max(positive) < LOG_FROM * min(positive):
        axes.set_xlim(left=-0.02 * max(positive, default=1.0))
        return
    axes.set_xscale("symlog", linthresh=min(positive))
    axes.set_xlim(left=-0.3 * min(positive))
    axes.set_xticks(_ticks(positive))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:g}")


def _ticks(positive: list[float]) -> list[float]:
    """0, and powers of ten from the cheapest on, where the axis is logarithmic."""
    first, last = (int(end(np.log10(edge(positive)))) for end, edge in ((np.ceil, min), (np.floor, max)))
    return [0.0, *(10.0**power for power in range(first, last + 1))]


def _names(axes: Axes, names: list[str], xy: np.ndarray, shades: list[str]) -> None:
    """Names in two columns, in the order of their points and clear of each other: of what costs nothing right beside
    it, of the rest to the right of the plane. A line leads to each point."""
    at = axes.transLimits.transform(axes.transScale.transform(xy))  # shares of the axes
    free = xy[:, 0] <= 0
    for part, column in ((free, at[free, 0].max(initial=0) + 0.04), (~free, 1.02)):
        rows = np.flatnonzero(part)
        for row, height in zip(rows, _spread(at[rows, 1], LINE), strict=True):
            axes.annotate(
                figures.literal(names[row]), xy[row], xytext=(column, height), textcoords="axes fraction",
                va="center", fontsize=9, color=figures.ink(shades[row]), zorder=6, annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": shades[row], "lw": 0.6, "alpha": 0.5, "shrinkA": 1,
                            "shrinkB": 4, "relpos": (0, 0.5)},
            )  # fmt: skip


def _spread(heights: np.ndarray, gap: float) -> np.ndarray:
    """Heights in the same order, `gap` apart at the least and as near to where they were as may be: neighbours that
    are too close stand evenly around their mean."""
    order = np.argsort(heights, kind="stable")
    blocks: list[list[float]] = []  # heights less the gaps below them
    for place, height in enumerate(heights[order]):
        blocks.append([height - gap * place])
        while len(blocks) > 1 and np.mean(blocks[-2]) >= np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks]) if blocks else heights
    out = np.empty(len(heights))
    out[order] = level + gap * np.arange(len(heights))
    return out


def _by_maker(rows: Mapping[Key, Mapping[str, Interval]]) -> dict[str, list[str]]:
    """Points of each maker, the cheapest first."""
    out: dict[str, list[str]] = {}
    for maker, point in sorted(rows, key=lambda key: rows[key]["dollars"].value):
        out.setdefault(maker, []).append(point)
    return out


def _label(maker: str, points: list[str]) -> str:
    short = maker.replace("scripted-", "") + ("*" if "scripted" in maker else "")
    return f"{short} ({points[0]} to {points[-1]})" if len(points) > 1 else short


def _cross(axes: Axes, x: Interval, y: Interval, shade: str, mark: str, size: float) -> None:
    if x.known:
        axes.plot([x.lo, x.hi], [y.value] * 2, color=shade, linewidth=1, alpha=0.6, zorder=3)
    if y.known:
        axes.plot([x.value] * 2, [y.lo, y.hi], color=shade, linewidth=1, alpha=0.6, zorder=3)
    axes.plot(x.value, y.value, mark, color=shade, markersize=size, markeredgecolor="white", zorder=4)


def _mixtures(axes: Axes, table: pd.DataFrame) -> None:
    """What coins between experts reach, from nobody at no cost."""
    means = table[table["kind"] == EXPERT].groupby("maker")[["dollars", "quality"]].mean().to_numpy()
    costs, qualities = np.vstack([[0.0, 0.0], means]).T
    grid = np.linspace(0, costs.max() * 1.2, 400)
    heights = [stats.hull_at(costs, qualities, cost) for cost in grid]
    axes.plot(grid, heights, "--", color="#555555", linewidth=1.2, zorder=1)


def metrics(chains: pd.DataFrame, zoo: pd.DataFrame) -> dict[str, object]:
    """`meeting.chains.<who>.quality` and `.dollars` with intervals, `.above_mixtures`; the same of students."""
    out: dict[str, object] = {}
    for where, table, shared in (("chains", chains, True), ("students", zoo, False)):
        for key, row in measured(table, shared).items():
            for column, found in row.items():
                out |= found.as_metrics(f"meeting.{where}.{slug(key)}.{column}")
    for key, gap in above_mixtures(chains).items():
        out |= gap.as_metrics(f"meeting.chains.{slug(key)}.above_mixtures")
    return out


def slug(key: Key) -> str:
    """A maker at a point, as part of a metric's name."""
    kept = "".join(c if c.isalnum() or c in "-+" else " " for c in name(key).replace(".", "p").replace("'s", ""))
    return "_".join(kept.split())
