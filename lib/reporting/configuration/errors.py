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
from lib.page.words import NOTHING, there
from lib.reporting.configuration.common import ALL, PAPER, by_kind, named
from lib.reporting.configuration.everybody import Everybody
from lib.reporting.estimates import ratio
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
    return {name: ratio(rows, name, "wrong") if len(rows) else NOTHING for name in CATEGORIES}


def misconfigured(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> Interval:
    """Share of wrong answers that are the configuration's by the rules."""
    return shares(everyone, arm, kind)[GROUPS[CONFIGURATION]]


def count(everyone: Everybody, arm: str = PAPER, kind: str = ALL) -> tuple[int, int]:
    """Wrong answers, and answers."""
    rows = wrong(everyone, arm, kind)
    return (int(rows["wrong"].sum()), len(rows)) if len(rows) else (0, 0)


def table(everyone: Everybody, arm: str = PAPER) -> pd.DataFrame:
    """Wrong answers by category, kind by kind."""
    out = []
    for kind in by_kind(everyone.of(arm)):
        told = {"kind": named(kind), "wrong": "{}\u00a0of\u00a0{}".format(*count(everyone, arm, kind))}
        out.append(told | shares(everyone, arm, kind))
    return pd.DataFrame(out, columns=["kind", "wrong", *CATEGORIES])


def rules_table(everyone: Everybody) -> pd.DataFrame:
    """How many wrong answers of ARC each rule explains, kind by kind."""
    rules = [f"rule {rule}" for rule in ERRORS]
    found = {named(kind): wrong(everyone, PAPER, kind).reindex(columns=rules).sum().astype(int).to_numpy()
             for kind in by_kind(everyone.of(PAPER))}  # fmt: skip
    return pd.DataFrame({"rule": list(ERRORS), "category": [GROUPS[rule] for rule in ERRORS]} | found)


def arms_table(everyone: Everybody) -> pd.DataFrame:
    """Share of wrong answers that are the configuration's, for everybody whose errors were looked at."""
    counts = {arm: count(everyone, arm) for arm in everyone.arms}
    rows = [
        (everyone.labels[arm], f"{bad} of {n}", misconfigured(everyone, arm)) for arm, (bad, n) in counts.items() if n
    ]
    return pd.DataFrame(rows, columns=["who", "wrong", GROUPS[CONFIGURATION]])


def figure(everyone: Everybody, arm: str = PAPER) -> Figure:
    """Categories of wrong answers, stacked to 100 %, kind by kind (figure 6 of ARC)."""
    rows, beside = {}, {}
    for kind in by_kind(everyone.of(arm)):
        bad, n = count(everyone, arm, kind)
        found = shares(everyone, arm, kind)
        rows[named(kind)] = {name: x.value if there(x) else 0.0 for name, x in found.items()}
        beside[named(kind)] = f"{bad} of {n}" if bad else f"none of {n}"
    note = "Numbers beside the bars: wrong answers of all answers, seeds together. Dashed: the paper's bound."
    own, who = misconfigured(everyone, arm), everyone.labels.get(arm, arm)
    title = f"{who}: {own.value:.0%} of wrong answers are the configuration's by the rules"
    title = title if there(own) else f"{who}: no wrong answer to explain"
    sheet = draw.shares(pd.DataFrame(rows).T, title, "share of wrong answers, %", beside=beside, note=note)
    sheet.axes[0].axvline(100 * CLAIMED, color=draw.GREY, linestyle="--", linewidth=1.2)
    return sheet
