"""ARC beside everybody else: the large table, differences on the same questions, and accuracy against money.

A difference is clear where its interval leaves 0 out. That ARC is above all others is a claim about every one of them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, stats
from lib.configuration import baselines
from lib.configuration.study import Results
from lib.page.tables import listed
from lib.page.words import there
from lib.reporting.configuration.common import DPO, GRPO, MONEY, PAPER, PLAIN, brief
from lib.reporting.configuration.everybody import BOUND, CONSTANT, ORACLE, Everybody
from lib.stats import Interval

OURS = (PLAIN, PAPER, DPO, GRPO)  # what is ARC, refined or trained in some way
LEARNED = (*OURS, "bandit", "episodes")


def front(everyone: Everybody) -> list[str]:
    """Arms that no other one, the oracle apart, beats in accuracy and money (figure 4 of ARC)."""
    arms = [arm for arm in everyone.arms if arm != ORACLE]
    points = np.array([(everyone.mean(arm).value, -everyone.mean(arm, MONEY).value) for arm in arms])
    points = points.reshape(-1, 2).round(12)  # equal means may be summed in another order
    best = points[stats.pareto_front(points)]  # of equals one; here all of them are on it
    return [arm for arm, point in zip(arms, points, strict=True) if (point == best).all(1).any()]


def table(everyone: Everybody) -> pd.DataFrame:
    """Everybody's means, and who is on the front of accuracy and money."""
    best = front(everyone)
    return pd.DataFrame(
        [
            {"who": everyone.labels[arm], **brief(row["all"])}
            | {"on the front": "oracle" if arm == ORACLE else "yes" if arm in best else "no"}
            for arm, row in everyone.rows.items()
        ]
    )


def kinds_table(everyone: Everybody) -> pd.DataFrame:
    """Accuracy by kind of question."""
    return pd.DataFrame(
        [
            {"who": everyone.labels[arm]} | {kind: told["accuracy"] for kind, told in row.items() if kind != "all"}
            for arm, row in everyone.rows.items()
        ]
    )


def searches_words(results: Results) -> str:
    """What the searches tried and chose, as a sentence."""
    searched = results.searched
    grid, best = (baselines.constant(searched, which).iloc[0] for which in ("grid", ""))
    tried = int(results.greedy["tried"].max()) if len(results.greedy) else 0
    return (
        f"Grid search tries {searched[searched['set'] == 'grid']['number'].nunique()} configurations and takes "
        f"{grid['workflow']}, {grid['allocated']} tools; greedy search tries {tried} and ends at {results.climbed}; "
        f"the best of all {searched['number'].nunique()} is {best['workflow']}, {best['allocated']} tools."
    )


# Differences --------------------------------------------------------------------------------------


def gaps_table(everyone: Everybody) -> pd.DataFrame:
    """ARC minus every other on the same questions, and whether the difference in accuracy is clear."""
    return pd.DataFrame(
        [
            {"ARC minus": everyone.labels[other]}
            | {title: row[title] for title in ("accuracy", "reward", "tokens", MONEY)}
            | {"clear": row["accuracy"].excludes(0)}
            for other, row in everyone.gaps.items()
        ]
    )


def beside(everyone: Everybody, measure: str = "accuracy") -> dict[str, Interval]:
    """ARC minus each of its rivals, all that is neither ARC nor the oracle, by their names."""
    found = {everyone.labels[o]: row[measure] for o, row in everyone.gaps.items() if o not in (*OURS, ORACLE)}
    return {name: less for name, less in found.items() if there(less)}


def verdict(everyone: Everybody, measure: str = "accuracy") -> str:
    """Of the claim that ARC is above all of its rivals: it holds where every difference is clear, it does not where one
    is clearly the other way, and is undecided otherwise."""
    found = beside(everyone, measure).values()
    if not found:
        return "no cases"
    if any(x.excludes(0) and x.value < 0 for x in found):
        return "does not hold"
    return "holds" if all(x.excludes(0) and x.value > 0 for x in found) else "undecided"


# Figure 4 -----------------------------------------------------------------------------------------


def plane(everyone: Everybody) -> Figure:
    """Money against accuracy; what is trained, and the oracle, are held against mixtures of the rest."""
    rows = {everyone.labels[arm]: {MONEY: everyone.mean(arm, MONEY), "accuracy": everyone.mean(arm)}
            for arm in everyone.arms}  # fmt: skip
    through = [everyone.labels[arm] for arm in everyone.arms if arm not in (*LEARNED, ORACLE)]
    through = through or [name for name in rows if name != BOUND]  # where nobody is left to span the line
    told = [f"{everyone.labels[arm]} {everyone.mean(arm).value:.2f} for ${everyone.mean(arm, MONEY).value:.2f}"
            for arm in (PAPER, CONSTANT) if arm in everyone.arms]  # fmt: skip
    best = listed([everyone.labels[arm] for arm in front(everyone)])
    title = f"Right, and paid per 1,000 questions: {', '.join(told)}; on the front: {best}"
    return draw.plane(rows, None, title, line="mixtures", through=through)
