"""Counts of verdicts, the metrics of the lesson, and its finding."""

from collections.abc import Sequence

from lib.plots.tables import listed
from lib.scoreboard import multiple_testing
from lib.scoreboard.claim import EVIDENCE, KINDS, PAPERS, RUNGS
from lib.scoreboard.verdicts import (
    COMPARED,
    EQUIVALENT,
    FAILS,
    HOLDS,
    NAMES,
    NOT_OPEN,
    UNDECIDED,
    UNTESTABLE,
    Verdict,
)
from lib.stats.verdicts import slug

WORDS = {  # of one claim, and of several
    HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"), EQUIVALENT: ("is equivalent", "are equivalent"),
    UNDECIDED: ("is undecided", "are undecided"), NOT_OPEN: ("is not open", "are not open"),
    UNTESTABLE: ("cannot be tested", "cannot be tested"),
}  # fmt: skip


def counts(verdicts: Sequence[Verdict], kind: str | None = None) -> dict[str, dict[str, int]]:
    """{paper: {verdict: claims}} of one kind or of all, with every paper and verdict present."""
    mine = [v for v in verdicts if kind in (None, v.claim.kind)]
    return {
        p: {key: sum(v.claim.paper == p and v.verdict == key for v in mine) for key in NAMES}
        for p in PAPERS
    }


def of(verdicts: Sequence[Verdict], verdict: str, kind: str | None = None) -> int:
    """How many claims, of one kind or of all, have this verdict."""
    return sum(v.verdict == verdict and kind in (None, v.claim.kind) for v in verdicts)


def outcome(verdicts: Sequence[Verdict]) -> str:
    """What became of claims, in words: every verdict that there is, the untestable ones last."""
    order = (HOLDS, FAILS, EQUIVALENT, UNDECIDED, NOT_OPEN, UNTESTABLE)
    found = {key: of(verdicts, key) for key in order}
    said = [f"{n} {WORDS[key][n != 1]}" for key, n in found.items() if n]
    return listed(said, "none")


def split_by_evidence(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """Claims of a direction that models decided (or that cannot be tested), and those that scripts decided."""
    directions = [v for v in verdicts if v.claim.kind == "direction"]
    scripted = [v for v in directions if v.evidence == "scripted" and v.verdict != UNTESTABLE]
    return [v for v in directions if v not in scripted], scripted


def message(verdicts: Sequence[Verdict]) -> str:
    """The tally as a title."""
    by_models, _ = split_by_evidence(verdicts)
    formulas = [v for v in verdicts if v.claim.kind == "formula"]
    return f"Directions, by models: {outcome(by_models)}. Formulas: {outcome(formulas)}"


def metrics(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Everything that is kept, by flat key: totals, by paper, by kind, directions by rung, by chance, and the verdict
    on each claim."""
    judged = [v for v in verdicts if v.verdict not in (UNTESTABLE, COMPARED)]
    out: dict[str, object] = {
        "backend": "scripted" if any(v.stand_in for v in judged) else "lab",
        "claims.total": len(verdicts),
        "claims.stand_in": sum(v.stand_in for v in judged),
        "claims.chance.asked": len(multiple_testing.asked(verdicts)),
        "claims.chance.expected": multiple_testing.expected(verdicts),
        "claims.chance.kept": len(multiple_testing.survivors(verdicts)),
    }
    for key in NAMES:
        out[f"claims.{slug(key)}"] = of(verdicts, key)
        for paper, row in counts(verdicts).items():
            out[f"claims.{paper}.{slug(key)}"] = row[key]
        for kind in KINDS:
            out[f"claims.{kind}.{slug(key)}"] = of(verdicts, key, kind)
        for rung in RUNGS:
            mine = [v for v in verdicts if v.claim.kind == "direction" and v.claim.rung == rung]
            out[f"claims.rung.{rung}.{slug(key)}"] = of(mine, key)
        for evidence in EVIDENCE:
            mine = [v for v in judged if v.evidence == evidence]
            out[f"claims.evidence.{evidence}.{slug(key)}"] = of(mine, key)
    for evidence in EVIDENCE:
        out[f"claims.evidence.{evidence}"] = sum(v.evidence == evidence for v in judged)
    for who in ("paper", "ours", "nobody yet"):
        out[f"claims.formula.blame_{who.split()[0]}"] = sum(v.whose == who for v in verdicts)
    return out | {f"claims.by_id.{v.claim.id}": v.verdict for v in verdicts}


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


def finding(verdicts: Sequence[Verdict]) -> str:
    """The lesson in a sentence or two."""
    papers, ours = (sum(v.whose == who for v in verdicts) for who in ("paper", "ours"))
    open_ = sum(v.whose == "nobody yet" for v in verdicts)
    faults = f"{papers} by an error of the paper, {ours} by one of ours" + (
        f", {open_} unexplained" if open_ else ""
    )
    by_models, scripted = split_by_evidence(verdicts)
    kept = len(multiple_testing.survivors(verdicts))
    num_arithmetic = sum(v.claim.arithmetic for v in verdicts)
    hold, fail = (of(verdicts, verdict, "formula") for verdict in (HOLDS, FAILS))
    return (
        f"Of {len(by_models)} claimed directions {outcome(by_models)}; with all tested at once {kept} of them hold. "
        f"Scripted models, counted apart, decided {len(scripted)} more: {outcome(scripted)}. Arithmetic on printed "
        f"numbers and identities, {num_arithmetic} claims, are no evidence about models. "
        f"Of all formulas {hold} hold and {fail} do not: {faults}."
    )
