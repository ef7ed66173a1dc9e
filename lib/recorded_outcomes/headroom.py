"""What choosing per item could win, before any method is tried: the gate of every question.

Each item was tried once, so an oracle that sees who was right also sees the dice: of three equal coins it wins one that
no router can. Its gap is printed as such. Whether a question is *open* is decided by a cross-fitted router that sees
more than any method does, the outcomes of all other models on the same item among it, and is scored on items that it
did not learn from:

    accuracy   how much more often it is right than the best constant      open from .05 on, clear of it
    money      the share of dollars that it saves at equal quality         open from .10 on
    check      the same for a pair with a perfect check between the two    open from .10 on

The lower end of the interval must reach the bound, and no constant lie above .95; otherwise the question is *closed*.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes.model_selection import (
    Fold,
    Plays,
    best,
    constants,
    over_partings,
    rotated,
    scored,
)
from lib.recorded_outcomes.tables import Table
from lib.stats.verdicts import NOT_OPEN

VERSION = 2  # of what could be won; 2: "not open" is the word for a question below the bound
QUESTIONS = {
    "accuracy": stats.MIN_HEADROOM,
    "money": 0.10,
    "check": 0.10,
}  # the least that leaves something to ask
CEILING = 0.95  # a constant above it leaves nothing to tell apart
OPEN = "open"
POOL = 5  # best models on the items that are learned from, among which the gate's router chooses
RATES = np.concatenate(
    [[0.0], np.geomspace(2e-3, 3, 20)]
)  # right answers that the mean model's dollars are worth
_RIDGE, _NEAREST = 30.0, 30
_FAR = 3.0  # standard deviations


def described(table: Table) -> dict[str, float]:
    """What a table holds, in hindsight: who is best, what an oracle would reach, how alike errors are.

    phi: mean correlation of two models' outcomes. cheapest_right: dollars of an item when the cheapest model that is
    right is asked (all wrong: the cheapest).
    """
    correct, cost_usd = table.correct, table.cost_usd
    top = best(table, np.arange(len(table)))
    wins = correct >= correct.max(1, keepdims=True) - 1e-9
    varied = correct[:, correct.std(0) > 0]
    phi = (
        np.corrcoef(varied.T)[np.triu_indices(varied.shape[1], 1)]
        if varied.shape[1] > 1
        else np.array([np.nan])
    )
    return {
        "items": len(table),
        "groups": len(np.unique(table.groups)),
        "models": len(table.models),
        "constant": float(correct[:, top].mean()),
        "constant_cost_usd": float(cost_usd[:, top].mean()),
        "oracle": float(correct.max(1).mean()),
        "oracle_cost_usd": float(np.where(wins, cost_usd, np.inf).min(1).mean()),
        "phi": float(phi.mean()),
    }


def constant(table: Table) -> str:
    """The name of the best constant, in hindsight."""
    return table.models[best(table, np.arange(len(table)))]


@dataclass(frozen=True)
class Informed:
    """Cross-fitted chances of being right, (n, m), of who sees every other model's outcome, the features of methods
    and what only the gate may see; a model that the router could ask is no feature of its own."""

    pool: np.ndarray
    chances: np.ndarray


def informed(table: Table, fold: Fold) -> Informed:
    """From the outcomes of models outside the pool to those inside it, learned from `fold.train`: by ridge regression
    or by nearest neighbours, whichever is right more often on `fold.dev`.

    In the pool are the best models and those on the front of quality and price. Of a few models all are in it; the
    router then sees what methods see, and `more`, but has met the item's group.
    """
    means = table.correct[fold.train].mean(0)
    by_price = np.argsort(table.cost_usd[fold.train].mean(0), kind="stable")
    front = [
        i
        for place, i in enumerate(by_price)
        if means[i] > means[by_price[:place]].max(initial=-1.0)
    ]
    pool = np.unique([*np.argsort(-means, kind="stable")[:POOL], *front[-POOL:]])
    features, known = _features(table, fold, pool), table.correct[:, pool]
    guesses = [
        _ridge(features, known[fold.train], fold.train),
        nearest(features, known, fold.train, _NEAREST),
    ]
    rows = fold.dev[:, None], pool[np.stack([guess[fold.dev].argmax(1) for guess in guesses], 1)]
    chances = np.zeros_like(table.correct)
    chances[:, pool] = guesses[int(table.correct[rows].mean(0).argmax())]
    return Informed(pool, chances)


def _features(table: Table, fold: Fold, pool: np.ndarray) -> np.ndarray:
    """Outcomes and dollars of the models outside the pool, and all that there is to see, standardised on train."""
    others = np.setdiff1d(np.arange(len(table.models)), pool)
    seen = [
        table.correct[:, others],
        table.cost_usd[:, others],
        table.seen,
        *([table.more] if len(table.more) else []),
    ]
    return standardised(np.column_stack(seen).astype(float), fold.train)


def standardised(seen: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Features (n, d) by the mean and spread of those learned from; who lies farther out than `_FAR` is drawn in."""
    spread = seen[train].std(0)
    return np.clip((seen - seen[train].mean(0)) / np.where(spread > 0, spread, 1.0), -_FAR, _FAR)


def _ridge(features: np.ndarray, target: np.ndarray, train: np.ndarray) -> np.ndarray:
    known = features[train]
    penalty = _RIDGE * np.eye(known.shape[1])
    return features @ np.linalg.solve(
        known.T @ known + penalty, known.T @ (target - target.mean(0))
    ) + target.mean(0)


def nearest(features: np.ndarray, correct: np.ndarray, train: np.ndarray, k: int) -> np.ndarray:
    """Chances (n, m): how often each model was right (n, m) on the k nearest items that were learned from."""
    near = NearestNeighbors(n_neighbors=min(k, len(train))).fit(features[train])
    return correct[train][near.kneighbors(features, return_distance=False)].mean(1)


def choices(table: Table, chances: np.ndarray, pool: np.ndarray, cost_usd: np.ndarray) -> Plays:
    """argmax over the pool of (chance of being right - rate x expected dollars), at every rate.

    chances: (n, m); dollars: (m,), expected, with the mean of the pool as their unit.
    """
    at, unit = np.arange(len(table)), float(cost_usd[pool].mean()) or 1.0
    asked = [pool[(chances[:, pool] - rate * cost_usd[pool] / unit).argmax(1)] for rate in RATES]
    names = tuple(f"rate {rate:.3g}" for rate in RATES)
    return Plays(
        *(
            np.stack([values[at, who] for who in asked])
            for values in (table.correct, table.cost_usd)
        ),
        names,
        True,
    )


def checked(table: Table, miss: float = 0.0, alarm: float = 0.0, most: int = 24) -> Plays:
    """Every pair of a cheaper and a dearer model with a check between them: the second is asked where the check
    refuses the first. Expected right and dollars; the check costs nothing.

    miss: share of wrong answers that it lets pass; alarm: share of right ones that it refuses. most: models, those on
    the front of quality and price first, because pairs grow as their square.
    """
    order = front_first(table)[:most]
    pairs = [
        (a, b)
        for a in order
        for b in order
        if a != b and table.cost_usd[:, a].mean() <= table.cost_usd[:, b].mean()
    ]
    first, second = (np.array(side, dtype=int) for side in zip(*pairs, strict=True))
    correct, cost_usd = table.correct.T, table.cost_usd.T
    passed = correct[first] * (1 - alarm) + (1 - correct[first]) * miss
    names = tuple(f"{table.models[a]} > {table.models[b]}" for a, b in pairs)
    return Plays(
        correct[first] * (1 - alarm) + (1 - passed) * correct[second],
        cost_usd[first] + (1 - passed) * cost_usd[second],
        names,
    )


def front_first(table: Table) -> list[int]:
    """Models by how few others are both cheaper and right more often."""
    correct, cost_usd = table.correct.mean(0), table.cost_usd.mean(0)
    beaten = ((correct[None] >= correct[:, None]) & (cost_usd[None] < cost_usd[:, None])).sum(1)
    return np.lexsort((cost_usd, beaten)).tolist()


def gate(table: Table, folds: int, runs: Sequence[int], min_dev_gain: float) -> pd.DataFrame:
    """By question: value, lo, hi, and whether it is open. Items are parted without regard to groups, which tells the
    gate's router more, and every run parts them anew; intervals are over items and partings."""
    wins, against, saved = [], [], {"money": [], "check": []}
    for run in runs:
        order = seeds.rng("outcomes", "gate", table.name, seed=run).permutation(len(table))
        parted = rotated(order % folds)
        told = [informed(table, fold) for fold in parted]
        against.append(constants(table, parted))
        wins.append(_right(table, parted, told) - against[-1][0])
        plays = [
            choices(table, each.chances, each.pool, table.cost_usd[fold.train].mean(0))
            for each, fold in zip(told, parted, strict=True)
        ]
        saved["money"].append(scored(table, parted, plays, min_dev_gain).equal)
        saved["check"].append(scored(table, parted, [checked(table)] * folds, min_dev_gain).equal)
    won = over_partings(stats.t_interval(np.mean(wins, axis=0)), np.mean(wins, axis=1))
    rows = {"accuracy": [won.value, won.ci_low, won.ci_high, 0.0]}
    rows |= {
        question: _saving(np.array(found), np.array(against)) for question, found in saved.items()
    }
    out = pd.DataFrame(rows, index=["value", "ci_low", "ci_high", "quality_hi"]).T.rename_axis(
        "question"
    )
    still = (out["ci_low"] >= pd.Series(QUESTIONS)) & (out["quality_hi"] >= 0)
    out["question is"] = np.where(still & (table.correct.mean(0).max() <= CEILING), OPEN, NOT_OPEN)
    return out.drop(columns="quality_hi")


def _right(table: Table, folds: Sequence[Fold], told: Sequence[Informed]) -> np.ndarray:
    """Right answers (n,) where the informed router chooses by accuracy alone."""
    out = np.zeros(len(table))
    for fold, each in zip(folds, told, strict=True):
        asked = each.pool[each.chances[fold.test][:, each.pool].argmax(1)]
        out[fold.test] = table.correct[fold.test, asked]
    return out


def _saving(equal: np.ndarray, constant: np.ndarray) -> list[float]:
    """1 - dollars / dollars of the best constant with its interval (delta method, items in pairs), and the upper end of
    what quality changed: where that lies below 0, money was saved by being wrong. Both arguments: right and dollars by
    parting, (R, 2, n)."""
    (correct, cost_usd), (known, own) = equal.mean(0), constant.mean(0)
    ratio = cost_usd.mean() / own.mean()
    half = stats.t_interval((cost_usd - ratio * own) / own.mean())
    half = (half.ci_high - half.ci_low) / 2
    saved = stats.Interval(1 - ratio, 1 - ratio - half, 1 - ratio + half)
    saved = over_partings(saved, 1 - equal[:, 1].mean(1) / constant[:, 1].mean(1))
    quality = over_partings(
        stats.t_interval(correct - known), (equal[:, 0] - constant[:, 0]).mean(1)
    )
    return [saved.value, saved.ci_low, saved.ci_high, quality.ci_high]
