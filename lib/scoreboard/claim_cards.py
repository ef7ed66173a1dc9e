"""The board of verdicts: every claim a card that says what became of it, with filters that need no network.

Cards are a list, so that they wrap on a phone. Without scripts all of them are shown and no filter is; with them
a form appears that narrows the list by paper, kind, verdict, level of evidence, who decided, and words. Colours are
the style sheet's own, with fallbacks for JupyterLab; a verdict is shown by words and a sign, never by colour alone.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lib.scoreboard import multiple_testing
from lib.scoreboard.claim import EVIDENCE_LEVELS, KINDS, PAPERS
from lib.scoreboard.format import format_decimal, format_paper_number, format_test_result
from lib.scoreboard.verdicts import (
    COMPARED,
    EQUIVALENT,
    FAILS,
    HOLDS,
    NOT_OPEN,
    STAND_IN,
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

_CARDS_FOLDER = Path(__file__).parent / "cards"  # style sheet and script


def render_claim_cards(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Renders the board of verdicts.

    Args:
        verdicts: Verdicts on all claims.

    Returns:
        The board as HTML, and as plain text where there is no browser.
    """
    survivors = multiple_testing.select_survivors(verdicts)
    cards = "\n".join(_render_card(v, v.claim.id in survivors) for v in verdicts)
    style = (_CARDS_FOLDER / "board.css").read_text(encoding="utf-8")
    script = (_CARDS_FOLDER / "board.js").read_text(encoding="utf-8")
    # Style and script are part of the board, which loads nothing from the network.
    html = (
        f'<div class="verdicts"><style>\n{style}</style>\n{_render_filter_form(verdicts)}\n'
        f'<ul class="cards" aria-label="Claims and their verdicts">\n{cards}\n</ul>\n'
        f"<script>\n{script}</script></div>\n"
    )
    plain = "\n".join(
        f"{SIGNS[v.verdict]} {v.claim.id}: {v.label}. {v.claim.statement}" for v in verdicts
    )
    return html, plain


def _render_filter_form(verdicts: Sequence[Verdict]) -> str:
    # Only verdicts that some claim has can be chosen.
    occurring = {v.verdict for v in verdicts}
    verdict_options = {
        slug(verdict): label for verdict, label in VERDICT_LABELS.items() if verdict in occurring
    }
    decider_options = {"scripted": f"a {STAND_IN}", "other": "anything else"}
    menus = [
        _render_menu("paper", "Paper", PAPERS),
        _render_menu("kind", "Kind", {kind: kind for kind in KINDS}),
        _render_menu("verdict", "Verdict", verdict_options),
        _render_menu("evidence_level", "Level of evidence", EVIDENCE_LEVELS),
        _render_menu("by", "Decided by", decider_options),
    ]
    search = (
        '<label>Words <input type="search" name="words" placeholder="such as: hypervolume"></label>'
    )
    return (
        f'<form hidden role="search" aria-label="Narrow the list of claims">{"".join(menus)}{search}'
        '<button type="reset">Show all</button><p class="count" role="status" aria-live="polite"></p></form>'
    )


def _render_menu(name: str, label: str, options: Mapping[str, str]) -> str:
    option_tags = "".join(
        f'<option value="{escape(key)}">{escape(text)}</option>' for key, text in options.items()
    )
    return f'<label>{label} <select name="{name}"><option value="">all</option>{option_tags}</select></label>'


def _render_card(v: Verdict, survives: bool) -> str:
    claim = v.claim

    # The filters of the board select cards by these attributes.
    data = {
        "paper": claim.paper,
        "kind": claim.kind,
        "verdict": slug(v.verdict),
        "evidence_level": claim.evidence_level,
        "by": "scripted" if v.is_scripted else "other",
    }
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())

    # The badge: the verdict with its marks.
    scripted_mark = f' <span class="by">{STAND_IN}</span>' if v.is_scripted else ""
    survivor_mark = " · holds with all asked at once" if survives else ""
    badge = (
        f'<p class="badge"><b aria-hidden="true">{SIGNS[v.verdict]}</b>'
        f"{escape(VERDICT_LABELS[v.verdict])}{survivor_mark}{scripted_mark}</p>"
    )

    # Where the paper says it, and how it was tested.
    kind = (
        "arithmetic or an identity, no evidence about models" if claim.is_arithmetic else claim.kind
    )
    place = (
        f'<p class="place">{escape(PAPERS[claim.paper])}, {escape(claim.place)} · '
        f"{kind}{_describe_evidence_level(v)} · <code>{claim.id}</code></p>"
    )

    # The paper's number, and ours below it.
    numbers = ""
    if v.test_results or claim.number is not None:
        rows = [("paper", format_paper_number(v)), *_list_our_numbers(v)]
        items = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows)
        numbers = f"<dl>{items}</dl>"
    return (
        f'<li id="claim-{claim.id}" {attributes}>{badge}<p>{escape(claim.statement)}</p>'
        f"{place}{numbers}{_render_reasons(v)}{_render_tests(v)}</li>"
    )


def _describe_evidence_level(v: Verdict) -> str:
    """Where a direction was tested, and whether its question was open."""
    if v.claim.kind != "direction" or v.verdict == UNTESTABLE:
        return ""
    question = f"question {v.question}" if v.question else "what choosing could win: not measured"
    return f" · tested in {EVIDENCE_LEVELS[v.claim.evidence_level]} · {question}"


def _list_our_numbers(v: Verdict) -> list[tuple[str, str]]:
    """What comes out, in a line each; of many tests the first few, because all stand with their expressions."""
    lines = [format_test_result(result) for result in v.test_results[:MAX_TESTS_ON_CARD]]
    num_hidden = len(v.test_results) - MAX_TESTS_ON_CARD
    if num_hidden > 0:
        lines.append(f"and {num_hidden} more")
    # Only the first line is named.
    name = "ours" if v.claim.list_metric_keys() else "comes out"
    names = [name] + [""] * len(lines)
    return list(zip(names, lines, strict=False))


def _render_reasons(v: Verdict) -> str:
    reasons = [v.reason]
    if v.discrepancy_source:
        source = v.claim.discrepancy_source
        explanation = source.why if source else ""
        reasons.append(f"{_DISCREPANCY_SOURCES[v.discrepancy_source]}. {explanation}")
    reasons.append(v.claim.note)
    return "".join(f"<p>{escape(_as_sentence(reason))}</p>" for reason in reasons if reason)


def _as_sentence(text: str) -> str:
    text = text.strip()
    full_stop = "" if text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + full_stop


def _render_tests(v: Verdict) -> str:
    """The expressions, folded away; each with its own verdict and numbers."""
    if not v.test_results:
        return ""
    claim = v.claim

    # What the fold says: whose metrics, how exact, how many must hold.
    summary = escape(f"metrics of {claim.lesson}" if claim.lesson else "no metrics")
    if claim.tolerance:
        summary += f", tolerance {format_decimal(claim.tolerance)}"
    if len(v.test_results) > 1:
        summary += f", {'all' if claim.need == 'all' else f'at least {claim.need}'} needed"

    quotes = ", ".join(f"{name} = {value:g}" for name, value in claim.quotes.items())
    quotes_line = f"<p>Printed in the paper: {escape(quotes)}</p>" if quotes else ""
    test_lines = "".join(
        f"<li><code>{escape(result.test)}</code><br>{SIGNS[result.verdict]} "
        f"{escape(VERDICT_LABELS[result.verdict])}: {escape(format_test_result(result))}</li>"
        for result in v.test_results
    )
    return (
        f"<details><summary>How it is tested ({summary})</summary>"
        f'{quotes_line}<ul class="tests">{test_lines}</ul></details>'
    )
