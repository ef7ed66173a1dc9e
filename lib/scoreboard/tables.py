"""Tables of the scoreboard: claims by what became of them, and why."""

import math
from collections.abc import Sequence

import pandas as pd

from lib.plots.tables import listed, number
from lib.scoreboard import counts, format, multiple_testing
from lib.scoreboard.claim import PAPERS, RUNGS
from lib.scoreboard.verdicts import COMPARED, FAILS, HOLDS, NAMES, UNDECIDED, UNTESTABLE, Verdict

_WHOSE = {"paper": "the paper's", "ours": "ours", "nobody yet": "not explained yet"}
_TINY = 1e-4  # probabilities below are not worth their digits


def _where(v: Verdict) -> str:
    return f"{PAPERS[v.claim.paper]}, {v.claim.place}"


def _table(rows: list[dict[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows under these columns; one row of dashes where there is none, because a table says so too."""
    return pd.DataFrame(rows or [dict.fromkeys(columns, None)], columns=list(columns))


def rungs(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """What became of the directions of each paper on each rung."""
    rows = []
    for paper, name in PAPERS.items():
        mine = [v for v in verdicts if v.claim.kind == "direction" and v.claim.paper == paper]
        on = {RUNGS[rung]: [v for v in mine if v.claim.rung == rung] for rung in RUNGS}
        rows.append(
            {"paper": name}
            | {rung: counts.outcome(some) if some else "not asked" for rung, some in on.items()}
        )
    return _table(rows, ("paper", *RUNGS.values()))


def directions(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Every direction that is tested: its rung, whether the question was open, the verdict, and the smallest effect
    that could have been told."""
    rows = [
        {
            "claim": v.claim.id,
            "rung": v.claim.rung,
            "question": v.question or "not measured",
            "verdict": v.words,
            "minimum detectable effect": number(v.mde) if math.isfinite(v.mde) else None,
        }
        for rung in RUNGS
        for v in verdicts
        if v.claim.kind == "direction" and v.claim.rung == rung and v.verdict != UNTESTABLE
    ]
    return _table(rows, ("claim", "rung", "question", "verdict", "minimum detectable effect"))


def failed_formulas(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Formulas that fail: what the paper says, what comes out, and whose fault it is."""
    rows = [
        {
            "claim": v.claim.statement,
            "where": _where(v),
            "comes out": "; ".join(format.ours(part) for part in v.parts if part.verdict == FAILS),
            "fault": _WHOSE[v.whose],
            "why": v.claim.blame.why if v.claim.blame else "",
        }
        for v in verdicts
        if v.whose
    ]
    return _table(rows, ("claim", "where", "comes out", "fault", "why"))


def untestable(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Why claims could not be tested, the commonest reason first."""
    reasons: dict[str, list[Verdict]] = {}
    for v in verdicts:
        if v.verdict == UNTESTABLE:
            reasons.setdefault(v.reason, []).append(v)
    rows = [
        {"reason": reason, "claims": len(mine), "which": listed([v.claim.id for v in mine])}
        for reason, mine in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    return _table(rows, ("reason", "claims", "which"))


def stand_ins(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Claims that scripted stand-ins decided; their verdicts say nothing about language models."""
    rows = [
        {"claim": v.claim.statement, "where": _where(v), "verdict": v.words}
        for v in verdicts
        if v.stand_in and v.verdict != UNTESTABLE
    ]
    return _table(rows, ("claim", "where", "verdict"))


def magnitudes(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Ours beside the paper's number, and how many times as large; not a judgement."""
    rows = []
    for v in verdicts:
        if v.verdict == COMPARED and v.claim.number:
            value = v.parts[0].left.value
            rows.append(
                {
                    "what": v.claim.statement,
                    "where": _where(v),
                    "paper's": format.printed(v),
                    "ours": format.estimate(v.parts[0].left),
                    "ours / paper's": number(value / v.claim.number, 2),
                }
            )
    return _table(rows, ("what", "where", "paper's", "ours", "ours / paper's"))


def by_chance(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Directions that hold, from the clearest on, and whether they do with all of them asked at once."""
    kept = multiple_testing.survivors(verdicts)
    holding = [
        (multiple_testing.probability(v), v)
        for v in multiple_testing.asked(verdicts)
        if v.verdict == HOLDS
    ]
    rows = [
        {
            "claim": v.claim.statement,
            "where": _where(v),
            "verdict": v.words,
            "p": f"<{_TINY:.4f}" if p < _TINY else f"{p:.4f}",
            "all asked at once": NAMES[HOLDS] if v.claim.id in kept else "not clear enough",
        }
        for p, v in sorted(holding, key=lambda pair: pair[0])
    ]
    return _table(rows, ("claim", "where", "verdict", "p", "all asked at once"))


def limits(verdicts: Sequence[Verdict]) -> str:
    """Which claims could not be decided because a single run gives no interval."""
    unknown = [
        v.claim.id
        for v in verdicts
        if v.verdict == UNDECIDED and any(part.bare for part in v.parts)
    ]
    return f"Undecided for want of an interval: {listed(unknown, 'none')}."
