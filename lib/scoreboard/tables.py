"""Tables of the scoreboard: claims by what became of them, and why."""

import math
from collections.abc import Sequence

import pandas as pd

from lib.plots.tables import listed, number
from lib.scoreboard import counts, multiple_testing
from lib.scoreboard.claim import EVIDENCE_LEVELS, PAPERS
from lib.scoreboard.format import format_estimate, format_paper_number, format_test_result
from lib.scoreboard.verdicts import (
    COMPARED,
    FAILS,
    HOLDS,
    UNDECIDED,
    UNTESTABLE,
    VERDICT_LABELS,
    Verdict,
)

_DISCREPANCY_SOURCES = {"paper": "the paper's", "ours": "ours", "nobody yet": "not explained yet"}
_MIN_P_VALUE = 1e-4  # smaller ones are not worth their digits


def _describe_place(verdict: Verdict) -> str:
    return f"{PAPERS[verdict.claim.paper]}, {verdict.claim.place}"


def _make_table(rows: list[dict[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows under these columns; one row of dashes where there is none, because a table says so too."""
    return pd.DataFrame(rows or [dict.fromkeys(columns, None)], columns=list(columns))


def tabulate_directions_by_level(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the verdicts on the directions of each paper: a row per paper, a column per level of evidence."""
    directions = [verdict for verdict in verdicts if verdict.claim.kind == "direction"]
    rows = []
    for paper, paper_name in PAPERS.items():
        row: dict[str, object] = {"paper": paper_name}
        of_paper = [verdict for verdict in directions if verdict.claim.paper == paper]
        for level, level_name in EVIDENCE_LEVELS.items():
            on_level = [verdict for verdict in of_paper if verdict.claim.evidence_level == level]
            row[level_name] = counts.describe_outcome(on_level) if on_level else "not asked"
        rows.append(row)
    return _make_table(rows, ("paper", *EVIDENCE_LEVELS.values()))


def tabulate_directions(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates every tested direction: level of evidence, headroom, verdict and minimum detectable effect."""
    directions = [
        verdict
        for verdict in verdicts
        if verdict.claim.kind == "direction" and verdict.verdict != UNTESTABLE
    ]
    # Level by level; within a level in the order of the file.
    levels = list(EVIDENCE_LEVELS)
    rows = [
        {
            "claim": verdict.claim.id,
            "evidence level": verdict.claim.evidence_level,
            "question": verdict.question or "not measured",
            "verdict": verdict.label,
            "minimum detectable effect": number(verdict.mde)
            if math.isfinite(verdict.mde)
            else None,
        }
        for verdict in sorted(
            directions, key=lambda verdict: levels.index(verdict.claim.evidence_level)
        )
    ]
    columns = ("claim", "evidence level", "question", "verdict", "minimum detectable effect")
    return _make_table(rows, columns)


def tabulate_failed_formulas(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the formulas that fail: claim, place in the paper, what comes out, whose error it is and why."""
    rows = []
    for verdict in verdicts:
        if not verdict.discrepancy_source:
            continue
        failed = [result for result in verdict.test_results if result.verdict == FAILS]
        source = verdict.claim.discrepancy_source
        rows.append(
            {
                "claim": verdict.claim.statement,
                "where": _describe_place(verdict),
                "comes out": "; ".join(map(format_test_result, failed)),
                "fault": _DISCREPANCY_SOURCES[verdict.discrepancy_source],
                "why": source.why if source else "",
            }
        )
    return _make_table(rows, ("claim", "where", "comes out", "fault", "why"))


def tabulate_untestable(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates why claims could not be tested: a row per reason, the most frequent first."""
    ids_by_reason: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.verdict == UNTESTABLE:
            ids_by_reason.setdefault(verdict.reason, []).append(verdict.claim.id)
    commonest_first = sorted(ids_by_reason.items(), key=lambda item: -len(item[1]))
    rows = [
        {"reason": reason, "claims": len(claim_ids), "which": listed(claim_ids)}
        for reason, claim_ids in commonest_first
    ]
    return _make_table(rows, ("reason", "claims", "which"))


def tabulate_magnitudes(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates measured numbers beside those of the papers, with their ratio."""
    rows = []
    for verdict in verdicts:
        # A ratio to a printed 0 does not exist.
        if verdict.verdict == COMPARED and verdict.claim.number:
            estimate = verdict.test_results[0].lhs
            rows.append(
                {
                    "what": verdict.claim.statement,
                    "where": _describe_place(verdict),
                    "paper's": format_paper_number(verdict),
                    "ours": format_estimate(estimate),
                    "ours / paper's": number(estimate.value / verdict.claim.number, 2),
                }
            )
    return _make_table(rows, ("what", "where", "paper's", "ours", "ours / paper's"))


def tabulate_multiple_testing(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the directions that hold by rising p-value, and whether they hold after Holm's correction."""
    survivors = multiple_testing.select_survivors(verdicts)
    holding = [
        verdict for verdict in multiple_testing.select_family(verdicts) if verdict.verdict == HOLDS
    ]
    rows = []
    for verdict in sorted(holding, key=multiple_testing.compute_p_value):
        # Very small p-values are given as a bound; their digits rest on the normal approximation.
        p_value = multiple_testing.compute_p_value(verdict)
        survives = verdict.claim.id in survivors
        rows.append(
            {
                "claim": verdict.claim.statement,
                "where": _describe_place(verdict),
                "verdict": verdict.label,
                "p": f"<{_MIN_P_VALUE:.4f}" if p_value < _MIN_P_VALUE else f"{p_value:.4f}",
                "all tested at once": VERDICT_LABELS[HOLDS] if survives else "not clear enough",
            }
        )
    return _make_table(rows, ("claim", "where", "verdict", "p", "all tested at once"))


def describe_missing_intervals(verdicts: Sequence[Verdict]) -> str:
    """Lists in a sentence the claims that are undecided because a single run gives no interval."""
    claim_ids = []
    for verdict in verdicts:
        lacks_interval = any(result.lacks_interval for result in verdict.test_results)
        if verdict.verdict == UNDECIDED and lacks_interval:
            claim_ids.append(verdict.claim.id)
    return f"Undecided for want of an interval: {listed(claim_ids, 'none')}."
