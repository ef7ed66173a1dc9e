"""What a policy is worth on questions it never learned from, and for a larger model it never worked with.

A policy that learned from one kind of question alone is tested on all. Held against it is the one that learned from
the kind it is tested on; both had as many episodes. The policy of all kinds had more of them, and is shown beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.configuration.study import Results
from lib.page.words import NOTHING, signed, there
from lib.params import Params
from lib.reporting.configuration.common import ALL, KINDS, PAPER, by_kind, named, tests_of
from lib.reporting.configuration.everybody import BY_KINDS
from lib.reporting.estimates import Rows, gap, gaps, mean, means
from lib.stats import Interval

Encode = Callable[[Sequence[str]], np.ndarray]
FROM, TO, DIFFERENCE = "learned from", "tested on", "difference"
Parts = dict[str, dict[str, pd.DataFrame]]  # by what was learned from, by what is tested on


@dataclass(frozen=True)
class Abroad:
    """Accuracies by what was learned from (a kind of question, or `ALL`) and what is tested on; drops: what learned
    elsewhere minus what learned there, by (from, to); alike: how alike two kinds read; larger: by kind and `ALL`, the
    means with the agents' own model, with the larger one, and the difference; model, bigger: names of both."""

    accuracies: Rows
    drops: dict[tuple[str, str], Interval]
    alike: dict[tuple[str, str], float]
    larger: dict[str, Rows]
    model: str
    bigger: str


def tested(results: Results, params: Params) -> Parts:
    """Test rows of what learned from each kind of question alone, and from `ALL`."""
    arms = {kind: f"only-{kind}" for kind in KINDS} | {ALL: PAPER}
    every = {origin: tests_of(results, arm, params.configuration.model) for origin, arm in arms.items()}
    return {origin: by_kind(rows, together=False) for origin, rows in every.items() if len(rows)}


def abroad(results: Results, params: Params, phi: Encode | None = None) -> Abroad:
    """All of it. phi: encoder of questions, for how alike two kinds read."""
    parts, own = tested(results, params), params.configuration
    accuracies = {origin: {kind: mean(rows, "right") for kind, rows in row.items()} for origin, row in parts.items()}
    drops = {
        (origin, kind): gap(rows, parts[kind][kind], "right")
        for origin, row in parts.items() for kind, rows in row.items() if kind in parts and origin != kind
    }  # fmt: skip
    alike = similarity(parts, phi) if phi else {}
    return Abroad(accuracies, drops, alike, larger(results, params), own.model, own.larger)


def similarity(parts: Parts, phi: Encode) -> dict[tuple[str, str], float]:
    """Cosine between the mean vectors of two kinds' test questions, by (from, to)."""
    asked: dict[str, list[str]] = {}
    for row in parts.values():
        for kind, rows in row.items():
            asked.setdefault(kind, rows["prompt"].drop_duplicates().tolist())
    unit = {kind: (lambda v: v / np.linalg.norm(v))(phi(prompts).mean(0)) for kind, prompts in asked.items()}
    return {(a, b): float(unit[a] @ unit[b]) for a in unit for b in unit if a != b}


def larger(results: Results, params: Params) -> dict[str, Rows]:
    """By kind of question, and together: the policy with its own model, with the larger one, and the difference, on the
    same questions under the same configurations."""
    own = params.configuration
    small, large = (by_kind(tests_of(results, PAPER, model)) for model in (own.model, own.larger))
    if own.larger == own.model or small[ALL].empty or large[ALL].empty:
        return {}
    return {
        kind: {
            own.model: means(small[kind], BY_KINDS), own.larger: means(large[kind], BY_KINDS),
            DIFFERENCE: gaps(large[kind], small[kind], BY_KINDS),
        }
        for kind in (ALL, *large) if kind in small
    }  # fmt: skip


# Told ---------------------------------------------------------------------------------------------


def table(found: Abroad) -> pd.DataFrame:
    """Every pair of kinds as in table 3: accuracy at home and abroad, and abroad minus those at home there."""
    out = []
    for (origin, kind), less in found.drops.items():
        mine = found.accuracies[origin]
        at_home = mine.get(origin, NOTHING).value
        row = {FROM: named(origin), TO: kind, "at home": at_home, "there": mine[kind].value}
        row |= {"who learned there": found.accuracies[kind][kind].value, DIFFERENCE: less, "clear": less.excludes(0)}
        out.append(row | ({"similarity": found.alike.get((origin, kind), np.nan)} if found.alike else {}))
    return pd.DataFrame(out, columns=None if out else [FROM, TO, DIFFERENCE])


def figure(found: Abroad) -> Figure:
    """Accuracy as a matrix, what was learned from by what is tested on."""
    rows = {named(o): {kind: x.value for kind, x in row.items()} for o, row in found.accuracies.items()}
    mean_, clear, n = mean_drop(found)
    title = "No policy learned from one kind of question alone"
    if n:
        title = (
            f"Learned elsewhere, accuracy changes by {signed(mean_)} on average, clearly down in {clear} of {n} pairs"
        )
    return draw.heat(pd.DataFrame(rows).T, title, TO, FROM)


def mean_drop(found: Abroad) -> tuple[float, int, int]:
    """The mean of all differences between kinds, how many are clearly below 0, and how many there are."""
    pairs = [x for (origin, _), x in found.drops.items() if origin != ALL and there(x)]
    clear = sum(x.excludes(0) and x.value < 0 for x in pairs)
    return (float(np.mean([x.value for x in pairs])) if pairs else float("nan")), clear, len(pairs)


def likeness(found: Abroad) -> float:
    """Rank correlation of how alike two kinds read with the difference; nan for fewer than four pairs."""
    pairs = [(found.alike[pair], x.value) for pair, x in found.drops.items() if pair in found.alike and there(x)]
    told = pd.DataFrame(pairs, columns=["alike", "drop"])
    return (
        float(told["alike"].corr(told["drop"], method="spearman"))
        if len(told) > 3 and told.nunique().min() > 1
        else float("nan")
    )


def larger_table(found: Abroad) -> pd.DataFrame:
    """The policy with its own agents and with larger ones, and the difference, by kind of question."""
    rows = [{"kind": named(kind), "agents": name} | row
            for kind, each in found.larger.items() for name, row in each.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else ["kind", "agents"])
