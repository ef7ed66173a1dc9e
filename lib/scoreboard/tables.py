"""Tables of the scoreboard: claims by what became of them, and why."""

import math
from collections.abc import Sequence

import pandas as pd

from lib.plots.tables import listed, number
from lib.scoreboard import counts, multiple_testing
from lib.scoreboard.claim import EVIDENCE_KINDS, EVIDENCE_LEVELS, PAPERS
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


def _describe_place(v: Verdict) -> str:
    return f"{PAPERS[v.claim.paper]}, {v.claim.place}"


def _make_table(rows: list[dict[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows under these columns; one row of dashes where there is none, because a table says so too."""
    return pd.DataFrame(rows or [dict.fromkeys(columns, None)], columns=list(columns))


def tabulate_tests(v: Verdict) -> pd.DataFrame:
    """Tabulates the tests of one claim: difference with interval, minimum detectable effect and verdict, a row
    each.
    """
    rows = []
    for result in v.test_results:
        rows.append(
            {
                "test": result.test,
                "difference": result.difference.value,
                "low": result.difference.ci_low,
                "high": result.difference.ci_high,
                "minimum detectable effect": result.mde,
                "verdict": result.verdict,
            }
        )
    columns = ("test", "difference", "low", "high", "minimum detectable effect", "verdict")
    return _make_table(rows, columns)


def list_interval_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Selects the directions that confidence intervals alone decide.

    Left out are claims that a lesson judged, that need only some of their tests, or that have another verdict such as
    "not testable".
    """
    decided = []
    for v in verdicts:
        words = {v.verdict, *(result.verdict for result in v.test_results)}
        is_decided = v.claim.kind == "direction" and words <= {HOLDS, FAILS, UNDECIDED}
        if is_decided and v.claim.need == "all" and not v.claim.judged:
            decided.append(v)
    return decided


def tabulate_evidence(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the number of verdicts by paper and kind of evidence.

    Returns:
        A row per paper and kind of evidence that decides any claim, a column per verdict; magnitudes are left out,
        because they get no verdict.
    """
    rows = []
    for paper, counts_by_evidence in counts.count_by_evidence(verdicts).items():
        for evidence, verdict_counts in counts_by_evidence.items():
            if not any(verdict_counts.values()):
                continue
            row: dict[str, object] = {
                "paper": PAPERS[paper],
                "decided by": EVIDENCE_KINDS[evidence],
            }
            rows.append(row | verdict_counts)
    return _make_table(rows, ("paper", "decided by", *counts.VERB_PHRASES))


def tabulate_directions_by_level(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the verdicts on the directions of each paper: a row per paper, a column per level of evidence."""
    directions = [v for v in verdicts if v.claim.kind == "direction"]
    rows = []
    for paper, paper_name in PAPERS.items():
        row: dict[str, object] = {"paper": paper_name}
        of_paper = [v for v in directions if v.claim.paper == paper]
        for level, level_name in EVIDENCE_LEVELS.items():
            on_level = [v for v in of_paper if v.claim.evidence_level == level]
            row[level_name] = counts.describe_outcome(on_level) if on_level else "not asked"
        rows.append(row)
    return _make_table(rows, ("paper", *EVIDENCE_LEVELS.values()))


def tabulate_directions(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates every tested direction: level of evidence, headroom, verdict and minimum detectable effect."""
    directions = [v for v in verdicts if v.claim.kind == "direction" and v.verdict != UNTESTABLE]
    # Level by level; within a level in the order of the file.
    levels = list(EVIDENCE_LEVELS)
    rows = [
        {
            "claim": v.claim.id,
            "evidence level": v.claim.evidence_level,
            "question": v.question or "not measured",
            "verdict": v.label,
            "minimum detectable effect": number(v.mde) if math.isfinite(v.mde) else None,
        }
        for v in sorted(directions, key=lambda v: levels.index(v.claim.evidence_level))
    ]
    columns = ("claim", "evidence level", "question", "verdict", "minimum detectable effect")
    return _make_table(rows, columns)


def tabulate_losses(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the directions that do not hold: claim, place in the paper, level of evidence, and measured
    numbers.
    """
    rows = []
    for v in counts.select_losses(verdicts):
        failed = [result for result in v.test_results if result.verdict == FAILS]
        rows.append(
            {
                "claim": v.claim.statement,
                "where": _describe_place(v),
                "evidence level": v.claim.evidence_level,
                "measured": "; ".join(map(format_test_result, failed)),
            }
        )
    return _make_table(rows, ("claim", "where", "evidence level", "measured"))


def tabulate_failed_formulas(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the formulas that fail: claim, place in the paper, what comes out, whose error it is and why."""
    rows = []
    for v in verdicts:
        if not v.discrepancy_source:
            continue
        failed = [result for result in v.test_results if result.verdict == FAILS]
        source = v.claim.discrepancy_source
        rows.append(
            {
                "claim": v.claim.statement,
                "where": _describe_place(v),
                "comes out": "; ".join(map(format_test_result, failed)),
                "fault": _DISCREPANCY_SOURCES[v.discrepancy_source],
                "why": source.why if source else "",
            }
        )
    return _make_table(rows, ("claim", "where", "comes out", "fault", "why"))


def tabulate_untestable(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates why claims could not be tested: a row per reason, the most frequent first."""
    ids_by_reason: dict[str, list[str]] = {}
    for v in verdicts:
        if v.verdict == UNTESTABLE:
            ids_by_reason.setdefault(v.reason, []).append(v.claim.id)
    commonest_first = sorted(ids_by_reason.items(), key=lambda item: -len(item[1]))
    rows = [
        {"reason": reason, "claims": len(claim_ids), "which": listed(claim_ids)}
        for reason, claim_ids in commonest_first
    ]
    return _make_table(rows, ("reason", "claims", "which"))


def tabulate_magnitudes(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates measured numbers beside those of the papers, with their ratio."""
    rows = []
    for v in verdicts:
        # A ratio to a printed 0 does not exist.
        if v.verdict == COMPARED and v.claim.number:
            estimate = v.test_results[0].lhs
            rows.append(
                {
                    "what": v.claim.statement,
                    "where": _describe_place(v),
                    "paper's": format_paper_number(v),
                    "ours": format_estimate(estimate),
                    "ours / paper's": number(estimate.value / v.claim.number, 2),
                }
            )
    return _make_table(rows, ("what", "where", "paper's", "ours", "ours / paper's"))


def tabulate_multiple_testing(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Tabulates the directions that hold by rising p-value, and whether they hold after Holm's correction."""
    survivors = multiple_testing.select_survivors(verdicts)
    holding = [v for v in multiple_testing.select_family(verdicts) if v.verdict == HOLDS]
    rows = []
    for v in sorted(holding, key=multiple_testing.compute_p_value):
        # Very small p-values are given as a bound; their digits rest on the normal approximation.
        p_value = multiple_testing.compute_p_value(v)
        survives = v.claim.id in survivors
        rows.append(
            {
                "claim": v.claim.statement,
                "where": _describe_place(v),
                "verdict": v.label,
                "p": f"<{_MIN_P_VALUE:.4f}" if p_value < _MIN_P_VALUE else f"{p_value:.4f}",
                "all tested at once": VERDICT_LABELS[HOLDS] if survives else "not clear enough",
            }
        )
    return _make_table(rows, ("claim", "where", "verdict", "p", "all tested at once"))


def describe_missing_intervals(verdicts: Sequence[Verdict]) -> str:
    """Lists in a sentence the claims that are undecided because a single run gives no interval."""
    claim_ids = []
    for v in verdicts:
        lacks_interval = any(result.lacks_interval for result in v.test_results)
        if v.verdict == UNDECIDED and lacks_interval:
            claim_ids.append(v.claim.id)
    return f"Undecided for want of an interval: {listed(claim_ids, 'none')}."
