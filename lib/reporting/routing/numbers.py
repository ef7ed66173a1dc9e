"""A budget as a number in the prompt: asked against spent, and every number as a point in the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.routing.common import MILLION, MONEY, by_budget, interval, known, matrix, tests_of
from lib.routing.baselines import best
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


@draw.theme()
def calibration(asked: pd.DataFrame, before: pd.DataFrame, gap: Interval, start: Interval) -> Figure:
    """Asked against spent, and the share of questions above the budget; dotted: before training. gap, start:
    `mean_gap` after and before."""
    note = "Bars: 95% intervals over seeds and questions. Dotted: before training."
    sheet = draw.sheet(calibration_claim(asked, before, gap, start), draw.WIDTH, 3.8, note)
    left, right = draw.tiles(sheet, 2, 2)
    x = asked["asked"].to_numpy(dtype=float)
    for axes, column, shade in (
        (left, "dollars", draw.colour("lab-mini")),
        (right, "violations", draw.colour("lab-large")),
    ):
        y = np.array([i.value for i in asked[column]])
        ends = np.array([[i.value - i.lo, i.hi - i.value] if i.known else [0, 0] for i in asked[column]]).T
        axes.errorbar(x, y, yerr=np.clip(ends, 0, None), fmt="o-", color=shade, capsize=2)
        axes.plot(x, [i.value for i in before[column]], "x:", color=draw.GREY, linewidth=1.3)
        axes.set_xscale("log")
        axes.set_xlabel(f"asked: budget in {MONEY}")
    left.plot(x, x, "--", color=draw.GREY, linewidth=1.2)
    left.annotate("spent = asked", (x[-2], x[-2]), color=draw.GREY, ha="right", va="bottom")
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


def front(asked: pd.DataFrame, results: Results, budget: int | None = None) -> Figure:
    """The learned front of the controller that reads numbers, one budget of it marked, constants for comparison."""
    test = known(results, "test")
    means = zip(test.strategies, test.dollars.mean(0) * MILLION, test.right.mean(0), strict=True)
    constants = {name: (Interval(cost, np.nan, np.nan), Interval(right, np.nan, np.nan)) for name, cost, right in means}
    own = {row["asked"]: (row["dollars"], row["right"]) for row in asked.to_dict("records")}
    x, y = ({("CoRL", number): pair[i] for number, pair in own.items()}
            | {(name, ""): pair[i] for name, pair in constants.items()} for i in (0, 1))  # fmt: skip
    return draw.plane(
        x, y, front_claim(asked) if budget is None else front_words(asked, budget), f"spent, {MONEY}", "accuracy",
        names=_labelled(own) | {(name, ""): name.removeprefix("lab-") for name in constants}, scale="auto",
        rings=[] if budget is None else [("CoRL", budget)], note="Joined: CoRL, the budget it was asked beside.",
    )  # fmt: skip


def _labelled(own: Mapping[int, tuple[Interval, Interval]]) -> dict[tuple[str, int], str]:
    """One label for budgets in a row that come to nearly the same point: `12 to 80` at the first of them."""
    groups: list[list[int]] = []
    for number, (cost, right) in own.items():
        first = own[groups[-1][0]] if groups else None
        near = first and abs(cost.value - first[0].value) <= 0.3 * first[0].value
        if near and abs(right.value - first[1].value) < 0.07:
            groups[-1].append(number)
        else:
            groups.append([number])
    return {("CoRL", g[0]): f"{g[0]} to {g[-1]}" if len(g) > 1 else str(g[0]) for g in groups}


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
