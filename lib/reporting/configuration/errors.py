"""Why wrong answers were wrong, by the rules of ARC's appendix I, and how often it was the configuration.

A rule-based taxonomy says what was visible in an episode, not what would have helped: a question may have failed
under every configuration and still count as misconfigured, because the first rule that fits decides.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.configuration.taxonomy import GROUPS
from lib.configuration.taxonomy import KINDS as ERRORS
from lib.reporting.configuration.common import ALL, PAPER, kinds_of, matrix, named, ratio
from lib.reporting.configuration.everybody import Everybody
from lib.reporting.words import NOTHING, number, there, within
from lib.stats import Interval

CONFIGURATION = "configuration"
CLAIMED = 0.10  # of errors are the configuration's at the most (ARC, 4.6)
CATEGORIES = tuple(dict.fromkeys(GROUPS.values()))


def wrong(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> pd.DataFrame:
    """Test rows with a column for each category, `wrong`, and the rule that fitted; empty where nobody looked why."""
    rows = everyone.of(arm, kind)
    if "error" not in rows or rows["error"].isna().all():
        return rows[:0]
    found = rows["error"].fillna("").map(lambda rule: GROUPS.get(rule, ""))
    return rows.assign(
        wrong=1 - rows["right"], **{name: (found == name).astype(float) for name in CATEGORIES},
        **{f"rule {rule}": (rows["error"] == rule).astype(float) for rule in ERRORS},
    )  # fmt: skip


def shares(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> dict[str, Interval]:
    """Share of each category among wrong answers; NOTHING where none was wrong."""
    rows = wrong(everyone, arm, kind)
    return {name: _share(rows, name, arm, kind) for name in CATEGORIES}


def _share(rows: pd.DataFrame, name: str, arm: str, kind: str) -> Interval:
    if rows.empty:
        return NOTHING
    return within(ratio(matrix(rows, name), matrix(rows, "wrong"), "errors", arm, kind, name))


def values(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> dict[str, float]:
    """The same without intervals; empty where none was wrong."""
    rows = wrong(everyone, arm, kind)
    n = rows["wrong"].sum() if len(rows) else 0
    return {name: float(rows[name].sum() / n) for name in CATEGORIES} if n else {}


def count(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> tuple[int, int]:
    """Wrong answers, and answers."""
    rows = wrong(everyone, arm, kind)
    return (int(rows["wrong"].sum()), len(rows)) if len(rows) else (0, 0)


def misconfigured(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> Interval:
    """Share of wrong answers that are the configuration's by the rules."""
    return _share(wrong(everyone, arm, kind), GROUPS[CONFIGURATION], arm, kind)


def _scopes(everyone: Everybody, arm: str) -> list[str]:
    return [*kinds_of(everyone.of(arm)), ALL]


def table(everyone: Everybody, arm: str = PAPER) -> pd.DataFrame:
    """Wrong answers by category, kind by kind."""
    out = []
    for kind in _scopes(everyone, arm):
        bad, n = count(everyone, arm, kind)
        told = {name: number(x) for name, x in shares(everyone, arm, kind).items()}
        out.append({"kind": named(kind), "wrong": f"{bad} of {n}".replace(" ", "\u00a0")} | told)
    return pd.DataFrame(out, columns=["kind", "wrong", *CATEGORIES])


def rules_table(everyone: Everybody) -> pd.DataFrame:
    """How many wrong answers of ARC each rule explains, kind by kind."""
    out = []
    for rule in ERRORS:
        row: dict[str, object] = {"rule": rule, "category": GROUPS[rule]}
        for kind in _scopes(everyone, PAPER):
            rows = wrong(everyone, PAPER, kind)
            row[named(kind)] = int(rows[f"rule {rule}"].sum()) if len(rows) else 0
        out.append(row)
    return pd.DataFrame(out)


def arms_table(everyone: Everybody) -> pd.DataFrame:
    """Share of wrong answers that are the configuration's, for everybody whose errors were looked at."""
    out = []
    for arm in everyone.arms:
        bad, n = count(everyone, arm)
        if n:
            out.append({"who": everyone.labels[arm], "wrong": f"{bad} of {n}",
                        "policy configuration": number(misconfigured(everyone, arm))})  # fmt: skip
    return pd.DataFrame(out, columns=["who", "wrong", "policy configuration"])


# Figure 6 -------------------------------------------------------------------------------------------


def figure(everyone: Everybody, arm: str = PAPER) -> Figure:
    """Categories of wrong answers, stacked to 100 %, kind by kind."""
    rows, beside = {}, {}
    for kind in _scopes(everyone, arm):
        bad, n = count(everyone, arm, kind)
        rows[named(kind)] = dict.fromkeys(CATEGORIES, 0.0) | values(everyone, arm, kind)
        beside[named(kind)] = f"{bad} of {n}" if bad else f"none of {n}"
    note = "Numbers beside the bars: wrong answers of all answers, seeds together. Dashed: the paper's bound."
    table = pd.DataFrame.from_dict(rows, orient="index")
    sheet = draw.shares(table, claim(everyone, arm), "share of wrong answers, %", beside=beside, note=note)
    sheet.axes[0].axvline(100 * CLAIMED, color=draw.GREY, linestyle="--", linewidth=1.2)
    return sheet


def claim(everyone: Everybody, arm: str = PAPER) -> str:
    """How many errors are the configuration's, as a sentence."""
    found = values(everyone, arm)
    if not found:
        return f"{everyone.labels.get(arm, arm)}: no wrong answer to explain"
    most = max(found, key=lambda name: found[name])
    return (
        f"{everyone.labels[arm]}: {found[GROUPS[CONFIGURATION]]:.0%} of wrong answers are the configuration's by the "
        f"rules; most are: {most} ({found[most]:.0%})"
    )


def words(everyone: Everybody, arm: str = PAPER) -> str:
    """How many are the configuration's by the rules, and what that says."""
    found = misconfigured(everyone, arm)
    if not there(found):
        return "There is no wrong answer to explain."
    each = {kind: misconfigured(everyone, arm, kind) for kind in kinds_of(everyone.of(arm))}
    told = ", ".join(f"{kind} {number(x)}" for kind, x in each.items() if there(x))
    return (
        f"Of {everyone.labels[arm]}'s wrong answers {number(found)} are the configuration's by the rules "
        f"({told}). Who allocates every tool and a large budget evades the rules whatever comes of it, so few such "
        "errors are no finding."
    )
