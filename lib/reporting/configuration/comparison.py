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
from lib.reporting.configuration.common import DIGITS, DPO, GRPO, MEASURES, MONEY, PAPER, PLAIN, cell, kinds_of
from lib.reporting.configuration.everybody import BOUND, CONSTANT, ORACLE, Everybody
from lib.reporting.words import clearly, number, there

OURS = (PLAIN, PAPER, DPO, GRPO)  # what is ARC, refined or trained in some way
LEARNED = (*OURS, "bandit", "episodes")


# Tables -------------------------------------------------------------------------------------------


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
            {"who": everyone.labels[arm]}
            | {title: cell(title, everyone.mean(arm, title)) for title in MEASURES.values()}
            | {"on the front": "oracle" if arm == ORACLE else "yes" if arm in best else "no"}
            for arm in everyone.arms
        ]
    )


def kinds_table(everyone: Everybody) -> pd.DataFrame:
    """Accuracy by kind of question."""
    kinds = kinds_of(everyone.tests)
    return pd.DataFrame(
        [
            {"who": everyone.labels[arm]} | {k: cell("accuracy", everyone.mean(arm, "accuracy", k)) for k in kinds}
            for arm in everyone.arms
        ]
    )


# Differences --------------------------------------------------------------------------------------


def rivals(everyone: Everybody) -> list[str]:
    """What ARC is held against: all that is neither ARC nor the oracle."""
    return [arm for arm in everyone.arms if arm not in (*OURS, ORACLE)]


def gaps_table(everyone: Everybody) -> pd.DataFrame:
    """ARC minus every other on the same questions, and whether the difference in accuracy is clear."""
    shown = ("accuracy", "reward", "tokens", MONEY)
    return pd.DataFrame(
        [
            {"ARC minus": everyone.labels[other]}
            | {title: number(row[title], DIGITS[title], True) for title in shown}
            | {"clear": row["accuracy"].excludes(0)}
            for other, row in everyone.gaps.items()
        ]
    )


def words(everyone: Everybody) -> str:
    """Where ARC stands beside each of its rivals, a line each."""
    told = [
        f"{everyone.labels[PAPER]} beside {everyone.labels[other]}: {clearly(row['accuracy'])} often right "
        f"({number(row['accuracy'], 3, True)}), reward {clearly(row['reward'], 'higher', 'lower')} "
        f"({number(row['reward'], 2, True)}), {clearly(row[MONEY], 'dearer', 'cheaper')} "
        f"({number(row[MONEY], 2, True)} dollars per 1,000 questions)."
        for other, row in everyone.gaps.items()
        if other in rivals(everyone)
    ]
    return "\n".join(told) or "ARC was tested beside nobody."


def verdict(everyone: Everybody, measure: str = "accuracy") -> str:
    """Of the claim that ARC is above all of its rivals: it holds where every difference is clear, it does not where one
    is clearly the other way, and is undecided otherwise."""
    found = {other: row[measure] for other, row in everyone.gaps.items() if other in rivals(everyone)}
    found = {other: x for other, x in found.items() if there(x)}
    if not found:
        return "no cases"
    if any(x.excludes(0) and x.value < 0 for x in found.values()):
        return "does not hold"
    return "holds" if all(x.excludes(0) and x.value > 0 for x in found.values()) else "undecided"


def beside(everyone: Everybody, measure: str = "accuracy") -> tuple[list[str], list[str], list[str]]:
    """Names of rivals that ARC is clearly above, clearly below, and neither."""
    out: tuple[list[str], list[str], list[str]] = ([], [], [])
    for other, row in everyone.gaps.items():
        if other in rivals(everyone) and there(row[measure]):
            place = 2 if not row[measure].excludes(0) else 0 if row[measure].value > 0 else 1
            out[place].append(everyone.labels[other])
    return out


def verdict_words(everyone: Everybody) -> str:
    """The claim that a learned choice beats all fixed ones, by accuracy and by reward, as sentences."""
    told = []
    for measure in ("accuracy", "reward"):
        above, below, open_ = beside(everyone, measure)
        told.append(
            f"By {measure}, that ARC is above everything that is not ARC: {verdict(everyone, measure)}. Clearly above "
            f"{listed(above, 'none')}; clearly below {listed(below, 'none')}; not clear beside {listed(open_, 'none')}."
        )
    return "\n".join(told)


def oracle_words(results: Results, everyone: Everybody) -> str:
    """How far ARC is from the oracle, and how much of that lead a pick by another try would keep, as a sentence."""
    found = everyone.gaps.get(ORACLE)
    if not found or not there(found["reward"]):
        return "There is no oracle in this study."
    foreseen = float(baselines.foreseen(results.searched)["reward"].mean())
    return (
        f"ARC minus the oracle: reward {number(found['reward'], 2, True)}, accuracy "
        f"{number(found['accuracy'], 2, True)}. The oracle's reward is {everyone.mean(ORACLE, 'reward').value:.2f} in "
        f"hindsight; picked by another try, from the sampled set, it is {foreseen:.2f}."
    )


def searches_words(results: Results) -> str:
    """What the searches tried and chose, as sentences."""
    searched = results.searched
    grid, every = (baselines.constant(searched, which) for which in ("grid", ""))
    tried = int(results.greedy["tried"].max()) if len(results.greedy) else 0
    return (
        f"Grid search tries {searched[searched['set'] == 'grid']['number'].nunique()} configurations on every training "
        f"question and takes {_described(grid)}. Greedy search tries {tried} and ends at: {results.climbed}. The best "
        f"of all {searched['number'].nunique()} is {_described(every)}."
    )


def _described(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    atoms = [name for name in first["atoms"].replace("|", ",").split(",") if name.strip()]
    return f"{first['workflow']} with {first['allocated']} tools allocated and {len(atoms)} atoms"


# Figure 4 -----------------------------------------------------------------------------------------


def plane(everyone: Everybody) -> Figure:
    """Money against accuracy; what is trained, and the oracle, are held against mixtures of the rest."""
    rows = {everyone.labels[arm]: {MONEY: everyone.mean(arm, MONEY), "accuracy": everyone.mean(arm)}
            for arm in everyone.arms}  # fmt: skip
    through = [everyone.labels[arm] for arm in everyone.arms if arm not in (*LEARNED, ORACLE)]
    through = through or [name for name in rows if name != BOUND]  # where nobody is left to span the line
    return draw.plane(rows, None, plane_claim(everyone), line="mixtures", through=through)


def plane_claim(everyone: Everybody) -> str:
    """ARC beside the best constant, and who is on the front, as a sentence."""
    told = [
        f"{everyone.labels[arm]} {everyone.mean(arm).value:.2f} for ${everyone.mean(arm, MONEY).value:.2f}"
        for arm in (PAPER, CONSTANT)
        if arm in everyone.arms
    ]
    best = [everyone.labels[arm] for arm in front(everyone)]
    return f"Right, and paid per 1,000 questions: {', '.join(told)}; on the front: {listed(best, 'nobody')}"
