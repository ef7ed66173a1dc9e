"""The picture of everybody: quality against cost, with intervals, the mixtures of experts, and the oracle.

What lies on or below the line of mixtures could be had by tossing a coin between two experts, or two constants; what
lies above it decides something. Points of one maker are joined in the order of their cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, seeds, stats
from lib.ablations.comparison import interval, matrix
from lib.meeting.chains import EXPERT, PAPER, ROUTER
from lib.page.tables import listed
from lib.reporting.words import number
from lib.stats import Interval

CHAINS, STUDENTS = "chains", "students"
DRAWS = 2_000  # resamples of an interval
Key = tuple[str, str]  # maker, point


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


def gap_to_mixtures(
    right: np.ndarray, dollars: np.ndarray, others_right: np.ndarray, others_dollars: np.ndarray, *name: str
) -> Interval:
    """Mean of right (s, n) minus the best blind mixture of others (n, m) at the mean of dollars (s, n).

    The interval is over seeds and questions, the mixtures resampled along. Where even the cheapest of them costs
    more, it is that one.
    """
    (s, n), rng = right.shape, seeds.rng("report", "routing", "gap", *name)

    def gaps(runs: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Of resamples (k, s) and (k, n), given as shares of each run and question: a matrix is quicker than a loop."""
        costs, qualities = items @ others_dollars, items @ others_right
        cost = np.maximum(((runs @ dollars) * items).sum(1), costs.min(1))
        return ((runs @ right) * items).sum(1) - stats.mixtures_at(costs, qualities, cost)

    value = float(gaps(np.full((1, s), 1 / s), np.full((1, n), 1 / n))[0])
    shares = (rng.multinomial(size, np.full(size, 1 / size), DRAWS) / size for size in (s, n))
    drawn = gaps(*shares)
    # around the value, for the best of resampled mixtures is too good; and all deviations stretched as those of the
    # seeds have to be (Rao and Wu 1988), which is more than the questions ask for
    drawn = value + (drawn - drawn.mean()) * (s / (s - 1) if s > 1 else 1.0) ** 0.5
    ends = np.quantile(drawn, [0.025, 0.975])
    return Interval(*np.round([value, *ends], 12).tolist())  # sums in another order are no difference


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


def picture(chains: pd.DataFrame, zoo: pd.DataFrame) -> Figure:
    """Both meetings beside each other."""
    found = {CHAINS: measured(chains, True), STUDENTS: measured(zoo, False)}
    x, y = (
        draw.table(
            {
                (where, _short(maker), point): row[column]
                for where, rows in found.items()
                for (maker, point), row in rows.items()
            }
        )
        for column in ("dollars", "quality")
    )
    return draw.plane(
        x, y, title(chains, zoo), {CHAINS: "$ per million questions", STUDENTS: "$ per episode"},
        {CHAINS: "share of questions right", STUDENTS: "mean of the objectives"}, panels=0,
        line="mixtures with nobody", labels="right", scale="auto", size=(14.5, 6.6),
        through=[(CHAINS, _short(maker)) for maker, kind in kinds(chains).items() if kind == EXPERT],
        like={_short(maker): kind for table in (chains, zoo) for maker, kind in kinds(table).items()},
        note="Circles: decision makers of the papers; squares: routers and controls; diamonds: "
        "one expert or policy for all; star: oracle. *: scripted stand-in.",
    )  # fmt: skip


def _short(maker: str) -> str:
    return maker.replace("scripted-", "") + ("*" if "scripted" in maker else "")


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
