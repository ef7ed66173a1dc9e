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
from lib.page.tables import NOTHING as DASH
from lib.params import Params
from lib.reporting.configuration import common
from lib.reporting.configuration.common import (
    ALL,
    DIGITS,
    KINDS,
    MEASURES,
    MONEY,
    PAPER,
    Rows,
    alias,
    gap,
    gaps,
    kinds_of,
    named,
    share,
)
from lib.reporting.configuration.everybody import BY_KINDS
from lib.reporting.words import NOTHING, number, plain, signed, there, verdict
from lib.stats import Interval

Encode = Callable[[Sequence[str]], np.ndarray]
FROM, TO, DIFFERENCE = "learned from", "tested on", "difference"
_LARGER = ("accuracy", "reward", "tokens", MONEY)


def _tests(results: Results, params: Params, origin: str) -> pd.DataFrame:
    """Test rows of what learned from one kind of question, or from `ALL`."""
    arm = PAPER if origin == ALL else f"only-{origin}"
    return common.tests_of(results, arm, params.configuration.model)


def origins(results: Results, params: Params) -> list[str]:
    """Kinds that a policy learned from alone, and `ALL`."""
    return [origin for origin in (*KINDS, ALL) if len(_tests(results, params, origin))]


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


def abroad(results: Results, params: Params, phi: Encode | None = None) -> Abroad:
    """All that this part of the lesson tells, computed once. phi: an encoder, to say how alike kinds read."""
    own = params.configuration
    alike = similarity(results, params, phi) if phi is not None else {}
    found = accuracies(results, params), drops(results, params)
    return Abroad(*found, alike, larger(results, params), own.model, own.larger)


def accuracies(results: Results, params: Params) -> Rows:
    """Accuracy by what was learned from, by what is tested on."""
    out: Rows = {}
    for origin in origins(results, params):
        rows = _tests(results, params, origin)
        out[origin] = {
            kind: share(common.matrix(rows[rows["kind"] == kind], "right"), "test", alias(rows), kind, "right")
            for kind in kinds_of(rows)
        }
    return out


def drops(results: Results, params: Params) -> dict[tuple[str, str], Interval]:
    """Accuracy of who learned elsewhere minus that of who learned from the kind tested on, on the same questions; by
    (from, to)."""
    parts = {origin: _tests(results, params, origin) for origin in origins(results, params)}
    out = {}
    for origin, rows in parts.items():
        for kind in kinds_of(rows):
            if kind not in parts or origin == kind:
                continue
            mine, own = rows[rows["kind"] == kind], parts[kind]
            out[origin, kind] = gap(mine, own[own["kind"] == kind], "right", "transfer", origin, kind)
    return out


def similarity(results: Results, params: Params, phi: Encode) -> dict[tuple[str, str], float]:
    """Cosine between the mean vectors of two kinds' test questions, by (from, to)."""
    every = [_tests(results, params, origin) for origin in origins(results, params)]
    rows = pd.concat(every, ignore_index=True).drop_duplicates("item") if every else results.tests
    mean = {kind: phi(rows.loc[rows["kind"] == kind, "prompt"].tolist()).mean(0) for kind in kinds_of(rows)}
    return {
        (a, b): float(mean[a] @ mean[b] / np.linalg.norm(mean[a]) / np.linalg.norm(mean[b]))
        for a in mean
        for b in mean
        if a != b
    }


def larger(results: Results, params: Params) -> dict[str, Rows]:
    """By kind of question, and together: the policy with its own model, with the larger one, and the difference, on the
    same questions under the same configurations."""
    own = params.configuration
    if own.larger == own.model:
        return {}
    small, large = (common.tests_of(results, PAPER, model) for model in (own.model, own.larger))
    if small.empty or large.empty:
        return {}
    out: dict[str, Rows] = {}
    for kind in (ALL, *kinds_of(large)):
        a, b = (rows if kind == ALL else rows[rows["kind"] == kind] for rows in (small, large))
        out[kind] = {
            own.model: common.measured(a, "test", alias(small), kind, columns=BY_KINDS),
            own.larger: common.measured(b, "larger", kind, columns=BY_KINDS),
            DIFFERENCE: {MEASURES[c]: x for c, x in gaps(b, a, BY_KINDS, "larger", kind).items()},
        }
    return out


# Told ---------------------------------------------------------------------------------------------


def _mean(found: Interval) -> str:
    return plain(found.value) if there(found) else DASH


def table(found: Abroad) -> pd.DataFrame:
    """Every pair of kinds as in table 3: accuracy at home and abroad, and abroad minus those at home there."""
    out = []
    for (origin, kind), less in found.drops.items():
        mine = found.accuracies[origin]
        row = {
            FROM: named(origin), TO: kind, "at home": _mean(mine.get(origin, NOTHING)), "there": _mean(mine[kind]),
            "who learned there": _mean(found.accuracies[kind][kind]), "difference": number(less, 2, True),
            "clear": less.excludes(0),
        }  # fmt: skip
        alike = found.alike.get((origin, kind))
        out.append(row | ({"similarity": DASH if alike is None else f"{alike:.2f}"} if found.alike else {}))
    columns = [FROM, TO, "at home", "there", "who learned there", "difference", "clear"]
    return pd.DataFrame(out, columns=[*columns, "similarity"] if found.alike else columns)


def figure(found: Abroad) -> Figure:
    """Accuracy as a matrix, what was learned from by what is tested on."""
    rows = {named(o): {kind: x.value for kind, x in row.items()} for o, row in found.accuracies.items()}
    return draw.heat(pd.DataFrame(rows).T, claim(found), TO, FROM)


def mean_drop(found: Abroad) -> tuple[float, int, int]:
    """The mean of all differences between kinds, how many are clearly below 0, and how many there are."""
    pairs = [x for (origin, _), x in found.drops.items() if origin != ALL and there(x)]
    clear = sum(x.excludes(0) and x.value < 0 for x in pairs)
    return (float(np.mean([x.value for x in pairs])) if pairs else float("nan")), clear, len(pairs)


def claim(found: Abroad) -> str:
    """What is lost abroad, as a sentence."""
    mean, clear, n = mean_drop(found)
    if not n:
        return "No policy learned from one kind of question alone"
    return (
        f"Learned from another kind of question, accuracy changes by {signed(mean)} on average, clearly down in "
        f"{clear} of {n} pairs"
    )


def similarity_words(found: Abroad) -> str:
    """Whether kinds that read alike lose less, as a sentence."""
    pairs = [pair for pair in found.alike if pair in found.drops and there(found.drops[pair])]
    if len(pairs) < 4:
        return "Too few pairs of kinds to say whether likeness helps."
    told = pd.DataFrame([(found.alike[pair], found.drops[pair].value) for pair in pairs])
    if told.nunique().min() < 2:
        return "All pairs lose alike, or are alike."
    rank = float(told[0].corr(told[1], method="spearman"))
    return f"Rank correlation of how alike two kinds read with the difference, {len(pairs)} pairs: {rank:+.2f}."


def larger_table(found: Abroad) -> pd.DataFrame:
    """The policy with its own agents and with larger ones, and the difference, by kind of question."""
    return pd.DataFrame(
        [
            {"kind": named(kind), "agents": name}
            | {title: number(row[title], DIGITS[title], name == DIFFERENCE) for title in _LARGER}
            for kind, rows in found.larger.items()
            for name, row in rows.items()
        ],
        columns=["kind", "agents", *_LARGER],
    )


def larger_words(found: Abroad) -> str:
    """Whether a larger model makes more of the same configurations, everywhere, as sentences."""
    if not found.larger:
        return "The policy was not tried with a larger model."
    whole = found.larger[ALL][DIFFERENCE]
    kinds = [kind for kind in found.larger if kind != ALL]
    ups = [kind for kind in kinds if found.larger[kind][DIFFERENCE]["accuracy"].value > 0]
    return (
        f"With {found.bigger} instead of {found.model}, under configurations chosen for the latter, accuracy changes "
        f"by {number(whole['accuracy'], 3, True)} and dollars per 1,000 questions by {number(whole[MONEY], 2, True)}. "
        f"That capacity helps: {verdict(whole['accuracy'])}; the mean is higher on {len(ups)} of {len(kinds)} kinds of "
        "questions."
    )
