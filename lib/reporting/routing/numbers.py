"""A budget as a number in the prompt: asked against spent, and every number as a point in the plane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.draw import figures
from lib.reporting.routing.common import MILLION, MONEY, by_budget, interval, known, matrix, tests_of
from lib.routing.baselines import best
from lib.routing.outcomes import IN_PIECES
from lib.routing.study import Results
from lib.stats import Interval


def asked_and_spent(results: Results, arm: str = "number") -> pd.DataFrame:
    """One row per asked budget: units, then accuracy, spending, share above the budget and calls as Intervals; arm:
    START for the controller before training."""
    rows = by_budget(results, arm, "number")
    return pd.DataFrame([{"asked": int(word)} | row for word, row in rows.items()])


def _within(results: Results, labels: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By number: rewards on test questions of the constant that was best on training questions under it, (n,), and of
    all constants, (n, m)."""
    train, test = known(results, "train"), known(results, "test")
    found = {}
    for label in labels:
        budget = int(label) * results.budgets.unit
        chosen = best(train.reward(budget).mean(0)[None], train.cheap_first)[0]
        found[label] = test.reward(budget)[:, chosen], test.reward(budget)
    return found


def _gaps(results: Results, arm: str) -> dict[str, np.ndarray]:
    """Reward minus that of the best constant under the same number, (seeds, items), by number."""
    part = tests_of(results, arm, "number")
    constants = _within(results, part["label"].unique())
    return {
        label: matrix(mine, "reward") - constants[label][0][None] for label, mine in part.groupby("label", sort=False)
    }


def mean_gap(results: Results, arm: str = "number") -> Interval:
    """The same on the mean over the numbers that were asked."""
    return interval(np.mean(list(_gaps(results, arm).values()), axis=0), "numbers", "mean gap", arm)


def numbers_table(asked: pd.DataFrame, before: pd.DataFrame, results: Results) -> pd.DataFrame:
    """By number: reward, also less that of the constant that was best on training questions under it, spending, and
    the share of questions above it, before training too."""
    names = {"reward": "reward", "dollars": "spent", "violations": "above B"}
    shown = asked[["asked", *names]].assign(**{c: asked[c].map(str) for c in names})
    gaps = [str(interval(gap, "numbers", "gap", word)) for word, gap in _gaps(results, "number").items()]
    shown.insert(2, "minus best constant", gaps)
    shown["before"] = [f"{i.value:.2f}" for i in before["violations"]]
    return shown.rename(columns={"asked": "B"} | names)


def numbers_words(results: Results) -> str:
    """Whether breaking a budget was in vain, as a sentence."""
    part = tests_of(results, "number", "number")
    over = part[part["within"] < 0.5]
    if over.empty:
        return "No budget was broken on any test question."
    constants = _within(results, over["label"].unique())
    paid = [constants[row.label][1][row.item].max() >= 0.5 for row in over.itertuples()]
    return (
        f"A budget was broken on {len(over) / len(part):.0%} of the test questions. On {np.mean(paid):.0%} of these "
        f"some constant would have been paid within it, and {over['right'].mean():.0%} were answered rightly, for "
        "nothing."
    )


@figures.theme()
def calibration(asked: pd.DataFrame, before: pd.DataFrame, gap: Interval, start: Interval) -> Figure:
    """Asked against spent, and the share of questions above the budget; dotted: before training. gap, start:
    `mean_gap` after and before."""
    note = "Bars: 95% intervals over seeds and questions. Dotted: before training."
    sheet = figures.sheet(calibration_claim(asked, before, gap, start), figures.WIDTH, 3.8, note)
    left, right = figures.tiles(sheet, 2, 2)
    x = asked["asked"].to_numpy(dtype=float)
    for axes, column, shade in (
        (left, "dollars", figures.colour("lab-mini")),
        (right, "violations", figures.colour("lab-large")),
    ):
        y = np.array([i.value for i in asked[column]])
        ends = np.array([[i.value - i.lo, i.hi - i.value] if i.known else [0, 0] for i in asked[column]]).T
        axes.errorbar(x, y, yerr=np.clip(ends, 0, None), fmt="o-", color=shade, capsize=2)
        axes.plot(x, [i.value for i in before[column]], "x:", color=figures.GREY, linewidth=1.3)
        axes.set_xscale("log")
        axes.set_xlabel(f"asked: budget in {MONEY}")
    left.plot(x, x, "--", color=figures.GREY, linewidth=1.2)
    left.annotate("spent = asked", (x[-2], x[-2]), color=figures.GREY, ha="right", va="bottom")
    left.set_yscale("symlog", linthresh=1.0)
    left.set_ylabel(f"spent, {MONEY}")
    right.set_ylim(-0.02, 1.02)
    right.set_ylabel("share above the budget")
    return sheet


def calibration_claim(asked: pd.DataFrame, before: pd.DataFrame, gap: Interval, start: Interval) -> str:
    """How much it spends, and what that is worth beside the best constant, before and after training; gap, start:
    `mean_gap` after and before."""
    told = []
    for when, table, less in (("before", before, start), ("after", asked, gap)):
        spent = [i.value for i in table["dollars"]]
        told.append(
            f"{when} training it spends {min(spent):.1f} to {max(spent):.1f}, reward less that of the best constant "
            f"{less.value:+.2f} [{less.lo:+.2f}, {less.hi:+.2f}]"
        )
    return f"Asked {asked['asked'].iloc[0]} to {asked['asked'].iloc[-1]}, {'; '.join(told)}"


def calibration_alt(asked: pd.DataFrame, before: pd.DataFrame) -> str:
    """The figure in words."""
    told = [
        f"asked {row['asked']}: spent {row['dollars'].value:.1f} (before training {start:.1f}), above in "
        f"{row['violations'].value:.0%}"
        for row, start in zip(asked.to_dict("records"), [i.value for i in before["dollars"]], strict=True)
    ]
    return "Asked and spent, dollars per million questions. " + "; ".join(told) + "."


@figures.theme()
def front(asked: pd.DataFrame, results: Results, budget: int | None = None) -> Figure:
    """The learned front of the controller that reads numbers, one budget of it marked, constants for comparison."""
    test = known(results, "test")
    points = {
        n: (d * MILLION, r) for n, d, r in zip(test.strategies, test.dollars.mean(0), test.right.mean(0), strict=True)
    }
    title = front_claim(asked) if budget is None else front_words(asked, budget)
    sheet = figures.sheet(title, figures.WIDTH, 4.0, "Grey: constant strategies, questions in pieces hollow.")
    axes, shade = sheet.subplots(), figures.colour("CoRL")
    for name, (cost, right) in points.items():
        hollow = name.endswith(IN_PIECES)
        axes.plot([cost], [right], "s", color=figures.GREY, markerfacecolor="none" if hollow else figures.GREY)
        text, place = name.removeprefix("lab-"), (4, 6 if hollow else -12)
        axes.annotate(text, (cost, right), xytext=place, textcoords="offset points", color=figures.GREY, fontsize=8)
    cost, right = ([i.value for i in asked[c]] for c in ("dollars", "right"))
    axes.plot(cost, right, "o", color=shade, alpha=0.8)
    for words, place in _labelled(asked["asked"].tolist(), cost, right):
        above = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(words, place, color=figures.ink(shade), **above)
    if budget is not None:
        at = asked["asked"].tolist().index(budget)
        axes.plot([cost[at]], [right[at]], "o", markersize=15, markerfacecolor="none", markeredgecolor="black")
    axes.set_xscale("symlog", linthresh=2.0)
    axes.set_xlim(-0.3, 2.2 * max(c for c, _ in points.values()))
    axes.set(xlabel=f"spent, {MONEY}", ylabel="accuracy")
    return sheet


def _labelled(names: Sequence[int], cost: Sequence[float], right: Sequence[float]) -> list[tuple[str, tuple]]:
    """One label for budgets in a row that come to nearly the same point: `12 to 80` at the first of them."""
    groups: list[list[int]] = []
    for i in range(len(names)):
        last = groups[-1][0] if groups else None
        near = last is not None and abs(cost[i] - cost[last]) <= 0.3 * cost[last] and abs(right[i] - right[last]) < 0.07
        if near:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [
        (f"{names[g[0]]} to {names[g[-1]]}" if len(g) > 1 else str(names[g[0]]), (cost[g[0]], right[g[0]]))
        for g in groups
    ]


def front_claim(asked: pd.DataFrame) -> str:
    """The ends of the learned front, as a sentence."""
    first, last = asked.iloc[0], asked.iloc[-1]
    told = [
        f"asked {row['asked']}, {row['right'].value:.2f} right for {row['dollars'].value:.1f}" for row in (first, last)
    ]
    return f"Budgets in numbers as points: {'; '.join(told)}"


def front_words(asked: pd.DataFrame, budget: int) -> str:
    """One budget as a sentence."""
    row = asked[asked["asked"] == budget].iloc[0]
    return (
        f"Asked {budget}: spends {row['dollars'].value:.1f}, {row['right'].value:.2f} right, "
        f"{row['calls'].value:.1f} calls, above the budget in {row['violations'].value:.0%}"
    )


def front_alt(asked: pd.DataFrame) -> str:
    """The front in words."""
    told = [
        f"{row['asked']}: {row['right'].value:.2f} for {row['dollars'].value:.1f}" for row in asked.to_dict("records")
    ]
    return "Accuracy and spending by asked budget, dollars per million questions. " + "; ".join(told) + "."
