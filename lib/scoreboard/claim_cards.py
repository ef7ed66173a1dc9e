"""The board of verdicts: every claim a card that says what became of it, with filters that need no network.

Cards are a list, so that they wrap on a phone. Without scripts all of them are shown and no filter is; with them
a form appears that narrows the list by paper, kind, verdict, rung, who decided, and words. Colours are the style
sheet's own, with fallbacks for JupyterLab; a verdict is told by words and a sign, never by colour alone.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lib.scoreboard import format, multiple_testing
from lib.scoreboard.claim import KINDS, PAPERS, RUNGS
from lib.scoreboard.verdicts import (
    COMPARED,
    EQUIVALENT,
    FAILS,
    HOLDS,
    NAMES,
    NOT_OPEN,
    STAND_IN,
    UNDECIDED,
    UNTESTABLE,
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
SHOWN = 3  # tests of a claim whose numbers stand on its card
_BLAME = {
    "paper": "An error of the paper",
    "ours": "A bug of ours",
    "nobody yet": "Not explained yet",
}

_PLACE = Path(__file__).parent / "cards"


def markup(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """The board as HTML, and as plain text where there is no browser."""
    survivors = multiple_testing.survivors(verdicts)
    cards = "\n".join(_card(v, v.claim.id in survivors) for v in verdicts)
    style, script = (
        (_PLACE / name).read_text(encoding="utf-8") for name in ("board.css", "board.js")
    )
    html = (
        f'<div class="verdicts"><style>\n{style}</style>\n{_form(verdicts)}\n'
        f'<ul class="cards" aria-label="Claims and their verdicts">\n{cards}\n</ul>\n'
        f"<script>\n{script}</script></div>\n"
    )
    plain = "\n".join(
        f"{SIGNS[v.verdict]} {v.claim.id}: {v.words}. {v.claim.statement}" for v in verdicts
    )
    return html, plain


def _form(verdicts: Sequence[Verdict]) -> str:
    there = {v.verdict for v in verdicts}
    menus = [
        _menu("paper", "Paper", PAPERS),
        _menu("kind", "Kind", {kind: kind for kind in KINDS}),
        _menu(
            "verdict", "Verdict", {slug(key): name for key, name in NAMES.items() if key in there}
        ),
        _menu("rung", "Rung", RUNGS),
        _menu("by", "Decided by", {"scripted": f"a {STAND_IN}", "other": "anything else"}),
    ]
    search = (
        '<label>Words <input type="search" name="words" placeholder="such as: hypervolume"></label>'
    )
    return (
        f'<form hidden role="search" aria-label="Narrow the list of claims">{"".join(menus)}{search}'
        '<button type="reset">Show all</button><p class="count" role="status" aria-live="polite"></p></form>'
    )


def _menu(name: str, label: str, options: Mapping[str, str]) -> str:
    listed = "".join(
        f'<option value="{escape(key)}">{escape(text)}</option>' for key, text in options.items()
    )
    return f'<label>{label} <select name="{name}"><option value="">all</option>{listed}</select></label>'


def _card(v: Verdict, survives: bool) -> str:
    claim = v.claim
    data = {
        "paper": claim.paper,
        "kind": claim.kind,
        "verdict": slug(v.verdict),
        "rung": claim.rung,
    }
    data |= {"by": "scripted" if v.stand_in else "other"}
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
    by = f' <span class="by">{STAND_IN}</span>' if v.stand_in else ""
    many = " · holds with all asked at once" if survives else ""
    rows = [("paper", format.printed(v)), *_ours(v)] if v.parts or claim.number is not None else []
    numbers = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    kind = "arithmetic or an identity, no evidence about models" if claim.arithmetic else claim.kind
    return (
        f'<li id="claim-{claim.id}" {attributes}><p class="badge"><b aria-hidden="true">{SIGNS[v.verdict]}</b>'
        f"{escape(NAMES[v.verdict])}{many}{by}</p><p>{escape(claim.statement)}</p>"
        f'<p class="place">{escape(PAPERS[claim.paper])}, {escape(claim.place)} · {kind}{_rung(v)} · '
        f"<code>{claim.id}</code></p>"
        f"{f'<dl>{numbers}</dl>' if numbers else ''}{_why(v)}{_tests(v)}</li>"
    )


def _rung(v: Verdict) -> str:
    """Where a direction was tested, and whether its question was open."""
    if v.claim.kind != "direction" or v.verdict == UNTESTABLE:
        return ""
    question = f"question {v.question}" if v.question else "what choosing could win: not measured"
    return f" · tested in {RUNGS[v.claim.rung]} · {question}"


def _ours(v: Verdict) -> list[tuple[str, str]]:
    """What comes out, in a line each; of many tests the first few, because all stand with their expressions."""
    name = "ours" if v.claim.reads() else "comes out"
    shown = [
        ("" if place else name, format.ours(part)) for place, part in enumerate(v.parts[:SHOWN])
    ]
    return shown + ([("", f"and {len(v.parts) - SHOWN} more")] if len(v.parts) > SHOWN else [])


def _why(v: Verdict) -> str:
    said = [v.reason] if v.reason else []
    if v.whose:
        said.append(f"{_BLAME[v.whose]}. {v.claim.blame.why if v.claim.blame else ''}")
    said += [v.claim.note] if v.claim.note else []
    return "".join(f"<p>{escape(_sentence(text))}</p>" for text in said)


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _tests(v: Verdict) -> str:
    """The expressions, folded away; each with its own verdict and numbers."""
    if not v.parts:
        return ""
    claim = v.claim
    whose = f"metrics of {claim.lesson}" if claim.lesson else "no metrics"
    need = (
        ""
        if len(v.parts) == 1
        else f", {'all' if claim.need == 'all' else f'at least {claim.need}'} needed"
    )
    quoted = ", ".join(f"{name} = {value:g}" for name, value in claim.quotes.items())
    lines = "".join(
        f"<li><code>{escape(part.test)}</code><br>{SIGNS[part.verdict]} {escape(NAMES[part.verdict])}: "
        f"{escape(format.ours(part))}</li>"
        for part in v.parts
    )
    extra = f"<p>Printed in the paper: {escape(quoted)}</p>" if quoted else ""
    slack = f", tolerance {format.decimal(claim.tolerance)}" if claim.tolerance else ""
    return (
        f"<details><summary>How it is tested ({escape(whose)}{slack}{need})</summary>"
        f'{extra}<ul class="tests">{lines}</ul></details>'
    )
