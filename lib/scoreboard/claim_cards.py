"""The board of verdicts: every claim a card that says what became of it, with filters that need no network.

Cards are a list, so that they wrap on a phone. Without scripts all of them are shown and no filter is; with them
a form appears that narrows the list by paper, kind, verdict, level of evidence, who decided, and words. Colours are
the style sheet's own, with fallbacks for JupyterLab; a verdict is shown by words and a sign, never by colour alone.
"""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from lib.scoreboard import multiple_testing
from lib.scoreboard.claim import EVIDENCE_KINDS, EVIDENCE_LEVELS, KINDS, PAPERS
from lib.scoreboard.format import format_decimal, format_paper_number, format_test_result
from lib.scoreboard.verdicts import (
    COMPARED,
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

SIGNS = {
    HOLDS: "✓",
    FAILS: "✗",
    UNDECIDED: "?",
    COMPARED: "≈",
    UNTESTABLE: "–",
    EQUIVALENT: "=",
    NOT_OPEN: "×",
}
MAX_TESTS_ON_CARD = 3  # whose numbers stand on the card; the others are folded away
_DISCREPANCY_SOURCES = {
    "paper": "An error of the paper",
    "ours": "A bug of ours",
    "nobody yet": "Not explained yet",
}

_CARDS_FOLDER = Path(__file__).parent / "cards"  # template, style sheet and script


def render_claim_cards(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Renders the board of verdicts.

    Args:
        verdicts: Verdicts on all claims.

    Returns:
        The board as HTML, and as plain text where there is no browser.
    """
    environment = Environment(
        loader=FileSystemLoader(_CARDS_FOLDER),
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        slug=slug,
        describe_test=_describe_test,
        list_numbers=_list_numbers,
        list_reasons=_list_reasons,
        describe_metrics=_describe_metrics,
        format_result=format_test_result,
    )
    html = environment.get_template("board.html.j2").render(
        verdicts=verdicts,
        menus=_list_menus(verdicts),
        survivors=multiple_testing.select_survivors(verdicts),
        signs=SIGNS,
        labels=VERDICT_LABELS,
        papers=PAPERS,
        # Style and script are part of the board, which loads nothing from the network.
        css=(_CARDS_FOLDER / "board.css").read_text(encoding="utf-8"),
        script=(_CARDS_FOLDER / "board.js").read_text(encoding="utf-8"),
    )
    plain = "\n".join(
        f"{SIGNS[verdict.verdict]} {verdict.claim.id}: {verdict.label}. {verdict.claim.statement}"
        for verdict in verdicts
    )
    return html, plain


def _list_menus(verdicts: Sequence[Verdict]) -> dict[str, tuple[str, dict[str, str]]]:
    """Lists the drop-down menus that filter the claims on the page.

    Returns:
        {attribute that is filtered: (label of the menu, {value: text of the option})}.
    """
    # Only verdicts that some claim has can be chosen.
    occurring = {v.verdict for v in verdicts}
    verdict_options = {
        slug(verdict): label for verdict, label in VERDICT_LABELS.items() if verdict in occurring
    }
    return {
        "paper": ("Paper", PAPERS),
        "kind": ("Kind", {kind: kind for kind in KINDS}),
        "verdict": ("Verdict", verdict_options),
        "evidence_level": ("Level of evidence", EVIDENCE_LEVELS),
        "by": ("Decided by", EVIDENCE_KINDS),
    }


def _describe_test(verdict: Verdict) -> str:
    """Describes how a claim was tested: its kind, its level of evidence, and whether there was headroom.

    Args:
        verdict: The verdict on the claim.
    """
    if verdict.claim.is_arithmetic:
        return "arithmetic or an identity, no evidence about models"
    if verdict.claim.kind != "direction" or verdict.verdict == UNTESTABLE:
        return verdict.claim.kind
    question = f"question {verdict.question}" if verdict.question else "headroom not measured"
    evidence_level = EVIDENCE_LEVELS[verdict.claim.evidence_level]
    return f"{verdict.claim.kind} · tested in {evidence_level} · {question}"


def _list_numbers(verdict: Verdict) -> list[tuple[str, str]]:
    """Lists the numbers on the card of a claim: that of the paper, then our measurements.

    At most MAX_TESTS_ON_CARD of ours are listed; the card shows all tests further down.

    Returns:
        (name, number as text) of each line; the name is empty where it repeats the one above.
    """
    lines = [format_test_result(result) for result in verdict.test_results[:MAX_TESTS_ON_CARD]]
    num_hidden = len(verdict.test_results) - MAX_TESTS_ON_CARD
    if num_hidden > 0:
        lines.append(f"and {num_hidden} more")

    # Only the first of our lines has a name.
    name = "ours" if verdict.claim.list_metric_keys() else "comes out"
    numbers = [("paper", format_paper_number(verdict))]
    for line in lines:
        numbers.append((name, line))
        name = ""
    return numbers


def _list_reasons(verdict: Verdict) -> list[str]:
    """Lists the sentences that explain a verdict: its reason, the source of a discrepancy, and a note."""
    reasons = [verdict.reason]
    if verdict.discrepancy_source:
        source = verdict.claim.discrepancy_source
        explanation = source.why if source else ""
        reasons.append(f"{_DISCREPANCY_SOURCES[verdict.discrepancy_source]}. {explanation}")
    reasons.append(verdict.claim.note)
    return [_write_as_sentence(reason) for reason in reasons if reason]


def _write_as_sentence(text: str) -> str:
    text = text.strip()
    full_stop = "" if text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + full_stop


def _describe_metrics(verdict: Verdict) -> str:
    """Describes the data of a test in a line: lesson, tolerance, and how many of several tests must hold."""
    claim = verdict.claim
    description = f"metrics of {claim.lesson}" if claim.lesson else "no metrics"
    if claim.tolerance:
        description += f", tolerance {format_decimal(claim.tolerance)}"
    if len(verdict.test_results) > 1:
        num_needed = "all" if claim.need == "all" else f"at least {claim.need}"
        description += f", {num_needed} needed"
    return description
