"""Counts of verdicts, the metrics of the lesson, and its conclusion."""

from collections.abc import Sequence

from lib.plots.tables import listed
from lib.scoreboard import multiple_testing
from lib.scoreboard.claim import EVIDENCE_KINDS, EVIDENCE_LEVELS, KINDS, PAPERS
from lib.scoreboard.verdicts import (
    EQUIVALENT,
    FAILS,
    HOLDS,
    NOT_OPEN,
    UNDECIDED,
    UNTESTABLE,
    VERDICT_LABELS,
    Verdict,
)
from lib.stats.verdicts import slug

VERB_PHRASES = {  # of one claim, and of several
    HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"), EQUIVALENT: ("is equivalent", "are equivalent"),
    UNDECIDED: ("is undecided", "are undecided"), NOT_OPEN: ("is not open", "are not open"),
    UNTESTABLE: ("cannot be tested", "cannot be tested"),
}  # fmt: skip


def count_by_paper(
    verdicts: Sequence[Verdict], kind: str | None = None
) -> dict[str, dict[str, int]]:
    """Counts verdicts by paper.

    Args:
        verdicts: Verdicts on claims.
        kind: Count only claims of this kind; all if None.

    Returns:
        {paper: {verdict: number of claims}}, with every paper and verdict present.
    """
    table = {}
    for paper in PAPERS:
        of_paper = [verdict for verdict in verdicts if verdict.claim.paper == paper]
        table[paper] = {name: count_verdicts(of_paper, name, kind) for name in VERDICT_LABELS}
    return table


def count_verdicts(verdicts: Sequence[Verdict], verdict: str, kind: str | None = None) -> int:
    """Counts the claims, of one kind or of all, that have this verdict."""
    return sum(v.verdict == verdict and kind in (None, v.claim.kind) for v in verdicts)


def describe_outcome(verdicts: Sequence[Verdict]) -> str:
    """Counts verdicts in words, such as "3 hold, 1 does not hold and 2 cannot be tested"."""
    phrases = []
    for verdict, (singular, plural) in VERB_PHRASES.items():
        count = count_verdicts(verdicts, verdict)
        if count:
            phrases.append(f"{count} {singular if count == 1 else plural}")
    return listed(phrases, "none")


def count_by_evidence(verdicts: Sequence[Verdict]) -> dict[str, dict[str, dict[str, int]]]:
    """Counts claims by paper, by what decides them, and by verdict; magnitudes get no verdict and are left out.

    Args:
        verdicts: Verdicts on claims.

    Returns:
        {paper: {kind of evidence: {verdict: number of claims}}}, with all papers, kinds and verdicts present.
    """
    judged = [v for v in verdicts if v.claim.kind != "magnitude"]
    table: dict[str, dict[str, dict[str, int]]] = {}
    for paper in PAPERS:
        table[paper] = {}
        for evidence in EVIDENCE_KINDS:
            selected = [v for v in judged if v.claim.paper == paper and v.evidence == evidence]
            table[paper][evidence] = {
                verdict: count_verdicts(selected, verdict) for verdict in VERB_PHRASES
            }
    return table


def select_losses(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Directions that do not hold: what models and recorded outcomes say against a paper, or against a method."""
    return [
        verdict
        for verdict in verdicts
        if verdict.claim.kind == "direction" and verdict.verdict == FAILS
    ]


def title_verdict_counts(verdicts: Sequence[Verdict]) -> str:
    """The verdict counts as the title of their figure."""
    directions = [verdict for verdict in verdicts if verdict.claim.kind == "direction"]
    formulas = [verdict for verdict in verdicts if verdict.claim.kind == "formula"]
    return f"Directions: {describe_outcome(directions)}. Formulas: {describe_outcome(formulas)}"


def collect_metrics(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Collects everything that the lesson keeps.

    Args:
        verdicts: Verdicts on all claims.

    Returns:
        Metrics by flat key: totals, counts by paper, by kind and by what decides, directions by level of evidence, what
        holds with all directions tested at once, the statements that do not hold by paper, and each verdict.
    """
    tested = [v for v in verdicts if v.claim.kind != "magnitude"]
    judged = [v for v in tested if v.verdict != UNTESTABLE]
    metrics: dict[str, object] = {
        "backend": "lab",
        "claims.total": len(verdicts),
        "claims.chance.asked": len(multiple_testing.select_family(verdicts)),
        "claims.chance.expected": multiple_testing.expected_by_chance(verdicts),
        "claims.chance.kept": len(multiple_testing.select_survivors(verdicts)),
    }

    # Counts of every verdict: in all, by paper, by kind, by level of evidence, by what decided.
    directions = [v for v in verdicts if v.claim.kind == "direction"]
    counts_by_paper = count_by_paper(verdicts)
    for verdict in VERDICT_LABELS:
        name = slug(verdict)
        metrics[f"claims.{name}"] = count_verdicts(verdicts, verdict)
        for paper, paper_counts in counts_by_paper.items():
            metrics[f"claims.{paper}.{name}"] = paper_counts[verdict]
        for kind in KINDS:
            metrics[f"claims.{kind}.{name}"] = count_verdicts(verdicts, verdict, kind)
        for level in EVIDENCE_LEVELS:
            on_level = [v for v in directions if v.claim.evidence_level == level]
            metrics[f"claims.evidence_level.{level}.{name}"] = count_verdicts(on_level, verdict)
        for evidence in EVIDENCE_KINDS:
            with_evidence = [v for v in tested if v.evidence == evidence]
            metrics[f"claims.evidence.{evidence}.{name}"] = count_verdicts(with_evidence, verdict)

    for paper, counts_by_evidence in count_by_evidence(verdicts).items():
        for evidence, verdict_counts in counts_by_evidence.items():
            for verdict, count in verdict_counts.items():
                if count:
                    metrics[f"claims.{paper}.{evidence}.{slug(verdict)}"] = count

    # What decided the claims, and whose error the formulas are that fail.
    for evidence in EVIDENCE_KINDS:
        metrics[f"claims.evidence.{evidence}"] = sum(v.evidence == evidence for v in judged)
    for source in ("paper", "ours", "nobody yet"):
        name = source.split()[0]
        num_formulas = sum(v.discrepancy_source == source for v in verdicts)
        metrics[f"claims.formula.discrepancy_source_{name}"] = num_formulas
    for paper in PAPERS:
        losses = [v.claim.statement for v in select_losses(verdicts) if v.claim.paper == paper]
        if losses:
            metrics[f"losses.{paper}"] = "\n".join(losses)  # a line a statement
    for v in verdicts:
        metrics[f"claims.by_id.{v.claim.id}"] = v.verdict
    return metrics


KEY_METRICS = (
    "claims.total",
    "claims.formula.holds",
    "claims.formula.does_not_hold",
    "claims.direction.holds",
    "claims.direction.does_not_hold",
    "claims.direction.equivalent",
    "claims.direction.undecided",
    "claims.direction.not_open",
    "claims.direction.untestable",
    "claims.chance.kept",
)


def state_conclusion(verdicts: Sequence[Verdict]) -> str:
    """Summarizes all verdicts in a paragraph.

    Args:
        verdicts: Verdicts on the claims of all papers.

    Returns:
        How many directions hold, one by one and after the correction for multiple testing, how many rest on scripts
        or arithmetic, and how many formulas fail by whose error.
    """
    directions = [verdict for verdict in verdicts if verdict.claim.kind == "direction"]
    num_survivors = len(multiple_testing.select_survivors(verdicts))
    num_scripted = sum(verdict.evidence == "scripted" for verdict in directions)
    num_arithmetic = sum(verdict.claim.is_arithmetic for verdict in verdicts)

    # Formulas that fail, by whose error it is.
    num_hold = count_verdicts(verdicts, HOLDS, "formula")
    num_fail = count_verdicts(verdicts, FAILS, "formula")
    num_paper_errors = sum(verdict.discrepancy_source == "paper" for verdict in verdicts)
    num_our_errors = sum(verdict.discrepancy_source == "ours" for verdict in verdicts)
    num_unexplained = sum(verdict.discrepancy_source == "nobody yet" for verdict in verdicts)
    errors = f"{num_paper_errors} by an error of the paper, {num_our_errors} by one of ours"
    if num_unexplained:
        errors += f", {num_unexplained} unexplained"

    return (
        f"Of {len(directions)} claimed directions {describe_outcome(directions)}; with all tested at once "
        f"{num_survivors} of them hold. What scripts decide in place of models, {num_scripted} directions, counts as "
        f"not testable. Arithmetic on printed numbers and identities, {num_arithmetic} claims, are no evidence about "
        f"models. Of all formulas {num_hold} hold and {num_fail} do not: {errors}."
    )
