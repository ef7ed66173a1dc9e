"""Behaviour over training: calls by budget and prompt (CoRL, Figure 3), and one fixed budget (Figures 4 to 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, stats
from lib.reporting.routing.common import MILLION, MONEY, counted, label
from lib.routing import protocol
from lib.routing.arms import NAMED
from lib.routing.study import Results
from lib.stats import Interval


def calls_over_training(results: Results, arms_: Sequence[str] = ("corl", "hard")) -> Figure:
    """Figure 3: share of questions on which any expert, and the dearest, is called, by budget and prompt."""
    dearest = list(results.budgets.calls)[-1]
    part = counted(results.rollouts[results.rollouts["arm"].isin(arms_)], list(results.budgets.calls))
    part = part.assign(dear=(part[dearest] > 0).astype(float))
    tables = []
    for arm in arms_:
        mine = part[part["arm"] == arm]
        updates = int(mine["update"].max()) + 1
        for column, what in (("any", "any expert"), ("dear", dearest)):
            means = mine.groupby(["label", "seed", "update"])[column].mean().rename("share").reset_index()
            means["update"] = means["update"] / max(updates - 1, 1)
            order = means["label"].map(protocol.WORDS.index)
            panel = f"{what} called: {NAMED[arm].style} prompts, {updates} updates"
            tables.append(means.assign(panel=panel).iloc[np.argsort(order, kind="stable")])
    return draw.lines(
        pd.concat(tables, ignore_index=True), "update", "share", by="label", title=ratio_claim(results),
        xlabel="share of the training", ylabel="share of questions", panels="panel", bins=12,
    )  # fmt: skip


def _shares_called(results: Results, arm: str, column: str) -> dict[str, tuple[float, float]]:
    """Share of training questions with a call (any, or to the dearest expert), first and last fifth, by budget."""
    part = counted(results.rollouts[results.rollouts["arm"] == arm], list(results.budgets.calls))
    part = part.assign(dear=(part[list(results.budgets.calls)[-1]] > 0).astype(float))
    return {
        word: tuple(float(part.loc[where & (part["label"] == word), column].mean()) for where in _fifths(part))
        for word in protocol.WORDS
    }


def _fifths(part: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Which rows are of the first and of the last fifth of the updates, at least one each."""
    updates = int(part["update"].max()) + 1
    n = max(1, round(updates / 5))
    return part["update"] < n, part["update"] >= updates - n


def ratio_claim(results: Results) -> str:
    """How often the dearest expert is called at the end of training, by budget and prompt, as a sentence."""
    told = []
    for arm in ("corl", "hard"):
        shares = _shares_called(results, arm, "dear")
        told.append(f"{NAMED[arm].style} " + ", ".join(f"{w} {shares[w][1]:.2f}" for w in protocol.WORDS))
    return f"Share of questions on which {list(results.budgets.calls)[-1]} is called, last fifth: {'; '.join(told)}"


def ratio_alt(results: Results) -> str:
    """Figure 3 in words: where the shares start and end."""
    told = [
        f"{label(arm)}, {what}, {word}: {a:.2f} to {b:.2f}"
        for arm in ("corl", "hard")
        for column, what in (("any", "any expert"), ("dear", list(results.budgets.calls)[-1]))
        for word, (a, b) in _shares_called(results, arm, column).items()
    ]
    return "Share of questions with a call, first to last fifth of training. " + "; ".join(told) + "."


def prompts_words(results: Results) -> str:
    """What soft and hard prompts do before and after, as sentences."""
    told = []
    for arm in ("corl", "hard"):
        shares = _shares_called(results, arm, "any")
        updates = int(results.rollouts.loc[results.rollouts["arm"] == arm, "update"].max())
        ends = ", ".join(f"{w} {a:.2f} to {b:.2f}" for w, (a, b) in shares.items())
        told.append(f"{NAMED[arm].style} prompts, {updates + 1} updates: {ends}")
    return f"Share of questions with a call, first to last fifth. {'. '.join(told)}."


FIXED = ("fixed-low", "fixed-high")


def fixed_calls(results: Results) -> Figure:
    """Figure 4: calls to each expert per question over training, for each fixed budget."""
    experts = list(results.budgets.calls)
    part = counted(results.rollouts[results.rollouts["arm"].isin(FIXED)], experts)
    means = part.groupby(["arm", "seed", "update"])[experts].mean().reset_index()
    long = means.melt(["arm", "seed", "update"], experts, "expert", "calls")
    long["panel"] = long["arm"].map(label)
    return draw.lines(
        long, "update", "calls", by="expert", title=fixed_calls_claim(results), xlabel="PPO update",
        ylabel="calls per question", panels="panel", bins=12,
    )  # fmt: skip


def _ends(results: Results, arm: str, column: str) -> tuple[float, float]:
    """Mean of a column over the first and the last fifth of a training."""
    part = counted(results.rollouts[results.rollouts["arm"] == arm], list(results.budgets.calls))
    return tuple(float(part.loc[where, column].mean()) for where in _fifths(part))


def fixed_calls_claim(results: Results) -> str:
    """Which way calls to the dearest expert went, as a sentence."""
    dearest = list(results.budgets.calls)[-1]
    told = [f"{label(arm)} {a:.2f} to {b:.2f}" for arm in FIXED for a, b in [_ends(results, arm, dearest)]]
    return f"Calls to {dearest} per question, first to last fifth: {'; '.join(told)}"


def fixed_calls_alt(results: Results) -> str:
    """Figure 4 in words."""
    told = [
        f"{label(arm)}, {e}: {a:.2f} to {b:.2f}"
        for arm in FIXED
        for e in results.budgets.calls
        for a, b in [_ends(results, arm, e)]
    ]
    return "Calls per question over training under a fixed budget, first to last fifth. " + "; ".join(told) + "."


REWARDS = {"right": "r_p, right", "within": "r_c, within budget", "reward": "r, both", "dollars": MONEY}


def fixed_rewards(results: Results) -> Figure:
    """Figures 5 and 6: rewards and price over training."""
    part = results.rollouts[results.rollouts["arm"].isin(FIXED)]
    part = part.assign(dollars=part["dollars"] * MILLION)
    means = part.groupby(["arm", "seed", "update"])[list(REWARDS)].mean().rename(columns=REWARDS).reset_index()
    long = means.melt(["arm", "seed", "update"], list(REWARDS.values()), "measure", "value")
    long["budget"] = long["arm"].map(label)
    return draw.lines(
        long, "update", "value", by="budget", title=fixed_rewards_claim(results), xlabel="PPO update",
        ylabel="mean over questions", panels="measure", bins=12, same_scale=False,
    )  # fmt: skip


def fixed_rewards_claim(results: Results) -> str:
    """Where the reward went, as a sentence."""
    told = [f"{label(arm)} {a:.2f} to {b:.2f}" for arm in FIXED for a, b in [_ends(results, arm, "reward")]]
    return f"Reward, first to last fifth: {'; '.join(told)}"


def fixed_rewards_alt(results: Results) -> str:
    """Figures 5 and 6 in words."""
    told = [
        f"{label(arm)}, {name}: {a * scale:.2f} to {b * scale:.2f}"
        for arm in FIXED
        for column, name in REWARDS.items()
        for scale in [MILLION if column == "dollars" else 1]
        for a, b in [_ends(results, arm, column)]
    ]
    return "Rewards and price over training under a fixed budget, first to last fifth. " + "; ".join(told) + "."


def fixed_looks(results: Results) -> Figure:
    """Figure 7: accuracy and cost on unseen questions during training."""
    names = {"right": "accuracy", "dollars": MONEY}
    part = results.looks.assign(dollars=results.looks["dollars"] * MILLION)
    means = part.groupby(["arm", "seed", "update"])[list(names)].mean().rename(columns=names).reset_index()
    long = means.melt(["arm", "seed", "update"], list(names.values()), "measure", "value")
    long["budget"] = long["arm"].map(label)
    return draw.lines(
        long, "update", "value", by="budget", title=looks_claim(results), xlabel="PPO update",
        ylabel="mean over unseen questions", panels="measure", same_scale=False,
    )  # fmt: skip


def _last_look(results: Results, arm: str, column: str) -> float:
    part = results.looks[results.looks["arm"] == arm]
    return float(part.loc[part["update"] == part["update"].max(), column].mean())


def looks_claim(results: Results) -> str:
    """What a larger fixed budget ends with on unseen questions, as a sentence."""
    told = [
        f"{label(arm)}: {_last_look(results, arm, 'right'):.2f} right for ${money:.1f}"
        for arm in FIXED
        for money in [_last_look(results, arm, "dollars") * MILLION]
    ]
    return f"Unseen questions at the end: {'; '.join(told)} per million"


PAPER = (  # section 5 of the paper, Figures 4 to 6: what it sees, the column, the arms, whether it rises
    ("more calls to the dearest expert where B affords it", "dearest", ("fixed-high",), True),
    ("r_p rises", "right", FIXED, True),
    ("r_c falls", "within", FIXED, False),
    ("r rises where B is large", "reward", ("fixed-high",), True),
    ("the price rises", "dollars", FIXED, True),
)
LARGER = "larger B minus smaller, unseen questions"  # Figure 7


def as_in_the_paper(results: Results) -> pd.DataFrame:
    """What section 5 of the paper sees under one fixed budget, and what is seen here: mean of the last fifth of a
    training minus the first (Figures 4 to 6), and on unseen questions at the end the larger budget minus the smaller
    (Figure 7); with Student's interval over seeds."""
    dearest = list(results.budgets.calls)[-1]
    rows = [
        (claim, label(arm), column, up, _change(results, arm, dearest if column == "dearest" else column))
        for claim, column, arms_, up in PAPER
        for arm in arms_
    ]
    rows += [
        (claim, LARGER, column, True, _between(results, column))
        for claim, column in (("a larger B is right more often", "right"), ("a larger B costs more", "dollars"))
    ]
    return pd.DataFrame([_judged(*row) for row in rows])


def _judged(claim: str, where: str, column: str, up: bool, gap: Interval) -> dict[str, str]:
    here = "not clear" if not gap.excludes(0) else "as there" if (gap.value > 0) == up else "the other way"
    scale = MILLION if column == "dollars" else 1.0
    told = str(Interval(gap.value * scale, gap.lo * scale, gap.hi * scale))
    return {"the paper sees": claim, "here": where, "change": told, "is it so": here}


def _change(results: Results, arm: str, column: str) -> Interval:
    """Last fifth of the updates minus the first, over seeds."""
    part = counted(results.rollouts[results.rollouts["arm"] == arm], list(results.budgets.calls))
    early, late = (part[where].groupby("seed")[column].mean() for where in _fifths(part))
    return stats.t_interval((late - early).tolist())


def _between(results: Results, column: str) -> Interval:
    """The last looks at unseen questions: the larger fixed budget minus the smaller, paired by seed."""
    looks = {arm: results.looks[results.looks["arm"] == arm] for arm in FIXED}
    low, high = (own[own["update"] == own["update"].max()].groupby("seed")[column].mean() for own in looks.values())
    return stats.t_interval((high - low).tolist())
