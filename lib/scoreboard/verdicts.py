"""Verdicts: each claim's tests evaluated on our metrics, and what that says of the claim.

    holds          a formula within its tolerance; a direction with its whole interval on the claimed side
    does not hold  a formula outside; a direction with its whole interval on the other side
    undecided      the interval holds zero, or a single run gives none
    equivalent     inside a margin that a lesson wrote down before it ran
    not open       there was too little to win by choosing for any method to show it
    compared       a magnitude, ours beside the paper's; neither a success nor a failure
    not testable   nothing here can test it, the run that could has not been made, or its interval has no width

Of several tests the weakest that is needed decides. What scripted stand-ins decided is marked, whatever the
verdict. Left out: whether a test is a good test of its claim; the expression is printed for readers to judge.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lib.scoreboard import expressions
from lib.scoreboard.claim import Claim
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.metrics import Metrics, Missing
from lib.scoreboard.paper_formulas import FUNCTIONS
from lib.stats import MIN_HEADROOM, Interval, interval_arithmetic
from lib.stats.random_effects import mde_from_interval
from lib.stats.verdicts import EQUIVALENT, FAILS, HOLDS, NOT_OPEN, UNDECIDED, UNTESTABLE

COMPARED = "compared"  # of a magnitude, which is no verdict
NAMES = {
    HOLDS: HOLDS,
    FAILS: FAILS,
    EQUIVALENT: EQUIVALENT,
    UNDECIDED: "undecided at this scale",
    NOT_OPEN: "not open: too little to win",
    COMPARED: "compared, not judged",
    UNTESTABLE: "not testable here",
}
STAND_IN = "scripted stand-in"
_ADOPTED = {  # what lessons say, and what it means here
    word: word for word in (HOLDS, FAILS, EQUIVALENT, UNDECIDED, NOT_OPEN, UNTESTABLE)
} | {"no difference": UNDECIDED, "no cases": UNTESTABLE}
_STRENGTH = {FAILS: 0, UNTESTABLE: 1, NOT_OPEN: 2, UNDECIDED: 3, EQUIVALENT: 4, HOLDS: 5}
_SIGNAL = {  # what training gained in lessons whose lab runs may be too weak to read anything off
    "06_tool_orchestration": "trained.preference_score_minus.start"
}
_WEAK = {  # and what is known of their runs before any
    "06_tool_orchestration": "few trainings of few updates each",
    "07_agent_configuration": "few trainings, judged by one try of a question",
}
_ROUNDING = 1e-9  # two sums of floats that differ by less are equal
_NOT_ASKED = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Part:
    """One test. left, right: its sides; margin: how far the claim is met, above 0 if it is (of an equality, how far
    the sides are apart); reason: where there is no more to say."""

    test: str
    verdict: str
    left: Interval = _NOT_ASKED
    right: Interval | None = None
    margin: Interval = _NOT_ASKED
    reason: str = ""

    @property
    def sampled(self) -> bool:
        """Whether anything in it was."""
        return math.isfinite(self.margin.value) and not interval_arithmetic.is_exact(self.margin)

    @property
    def mde(self) -> float:
        """The minimum detectable effect at 80 % power, from its interval as if
        normal; nan where nothing was sampled."""
        return (
            mde_from_interval(self.margin.ci_low, self.margin.ci_high) if self.sampled else math.nan
        )

    @property
    def bare(self) -> bool:
        """Whether it was measured without an interval."""
        return math.isfinite(self.margin.value) and not self.margin.known


@dataclass(frozen=True)
class Verdict:
    """What became of a claim. backends: who decided what its metrics measure; question: "open", "not open", or empty
    where nobody measured what choosing could win."""

    claim: Claim
    verdict: str
    parts: tuple[Part, ...]
    backends: tuple[str, ...]
    reason: str
    question: str = ""

    @property
    def mde(self) -> float:
        """The minimum detectable effect of its least able test; nan where nothing was sampled."""
        return max((part.mde for part in self.parts if part.sampled), default=math.nan)

    @property
    def stand_in(self) -> bool:
        """Whether a program that replies as a model would decided any of it."""
        return self.claim.stand_in or "scripted" in self.backends

    @property
    def evidence(self) -> str:
        """What decided it, one of `claim.EVIDENCE`."""
        if self.claim.arithmetic:
            return "arithmetic"
        if self.stand_in:
            return "scripted"
        return "recorded" if self.claim.rung == "recorded" else "models"

    @property
    def words(self) -> str:
        """The verdict as it is read everywhere, the mark of stand-ins included."""
        asked = self.stand_in and self.verdict != UNTESTABLE
        return f"{NAMES[self.verdict]} ({STAND_IN})" if asked else NAMES[self.verdict]

    @property
    def whose(self) -> str:
        """Whose fault a formula that fails is: "paper", "ours", or "nobody yet"; empty for all others."""
        if self.claim.kind != "formula" or self.verdict != FAILS:
            return ""
        return self.claim.blame.who if self.claim.blame else "nobody yet"


def judge(claims: Sequence[Claim], metrics: Metrics) -> list[Verdict]:
    """The verdicts on `claims`, in their order. Raises ClaimError for a key that is misspelled in a claim."""
    return [_judge(claim, metrics) for claim in claims]


def _judge(claim: Claim, metrics: Metrics) -> Verdict:
    if claim.untestable:
        return Verdict(claim, UNTESTABLE, (), (), claim.untestable)
    try:
        parts = (
            (_adopted(claim, metrics),)
            if claim.judged
            else tuple(_part(claim, t, metrics) for t in claim.test)
        )
    except ClaimError as error:
        raise ClaimError(f"claim {claim.id}: {error}") from error
    backends = tuple(sorted({metrics.backend(*key) for key in claim.reads()} - {""}))
    verdict = together([part.verdict for part in parts], claim.need)
    reasons = [part.reason for part in parts if part.reason and part.verdict == verdict]
    why_closed = [why for why in (shut(metrics, *gate) for gate in claim.gates()) if why]
    if verdict == HOLDS and claim.start and _part(claim, claim.start, metrics).verdict == HOLDS:
        verdict, reasons = UNTESTABLE, ["the start does so before any training"]
    if verdict in (HOLDS, FAILS, UNDECIDED, EQUIVALENT):
        verdict, reasons = (
            (NOT_OPEN, why_closed[:1]) if why_closed else (verdict, reasons + _weak(claim, metrics))
        )
    question = "" if not claim.gate else NOT_OPEN if why_closed else "open"
    return Verdict(claim, verdict, parts, backends, "; ".join(dict.fromkeys(reasons)), question)


def shut(metrics: Metrics, lesson: str, key: str) -> str:
    """Why a question is not open; empty where it is. A lesson's own word goes before the number."""
    try:
        if key.endswith(".is"):
            return (
                ""
                if metrics.word(lesson, key) == "open"
                else f"lesson {lesson[:2]} measured too little to win"
            )
        found = metrics.estimate(lesson, key)
    except Missing as missing:
        return str(missing)  # what nobody measured is not open
    if found.known and found.ci_low >= MIN_HEADROOM:
        return ""
    return (
        f"choosing could win {found.value:.3f} over the best constant, at least {found.ci_low:.3f}; "
        f"{MIN_HEADROOM} is asked"
    )


def _weak(claim: Claim, metrics: Metrics) -> list[str]:
    """Why little can be read off the lab runs of a lesson, and whether their training gained anything."""
    said = []
    for lesson in (
        sorted({lesson for lesson, _ in claim.reads()} & set(_WEAK)) if claim.rung == "lab" else ()
    ):
        why = _WEAK[lesson]
        with contextlib.suppress(Missing, KeyError):  # not measured, or no start to hold against
            gain = metrics.estimate(lesson, _SIGNAL[lesson])
            if not (gain.known and gain.ci_low > 0):
                why += f"; training gained {gain.value:+.3f} over its start, not clear of 0"
        said.append(f"weak: in the lab of lesson {lesson[:2]} {why}")
    return said


def together(verdicts: Sequence[str], need: int | str = "all") -> str:
    """The verdict of a claim on several tests, `need` of which must hold: the weakest of the best so many."""
    if verdicts == [COMPARED]:
        return COMPARED
    strongest_first = sorted(verdicts, key=_STRENGTH.__getitem__, reverse=True)
    return strongest_first[(len(verdicts) if need == "all" else int(need)) - 1]


def _part(claim: Claim, text: str, metrics: Metrics) -> Part:
    parsed = expressions.parse(text, set(claim.quotes), FUNCTIONS)
    evaluator = expressions.Evaluator(
        lambda lesson, key: _known(claim, metrics.estimate(lesson or claim.lesson or "", key)),
        claim.quotes,
        FUNCTIONS,
    )
    try:
        left = evaluator.side(parsed.left, parsed.keys)
        right = evaluator.side(parsed.right, parsed.keys) if parsed.right is not None else None
    except Missing as missing:
        return Part(text, UNTESTABLE, reason=str(missing))
    except ZeroDivisionError:
        return Part(text, UNTESTABLE, reason="a quantity that it divides by is 0 in this run")
    if right is None:
        return Part(text, COMPARED, left, None, left)
    margin = (
        interval_arithmetic.minus(right, left)
        if parsed.sign in ("<", "<=")
        else interval_arithmetic.minus(left, right)
    )
    verdict, reason = decide(margin, parsed.sign or "", claim.tolerance)
    if claim.kind == "direction" and interval_arithmetic.is_exact(margin):
        verdict, reason = (
            UNTESTABLE,
            "its interval has no width, so that nothing in it can have varied",
        )
    if claim.kind == "formula" and verdict == UNDECIDED and interval_arithmetic.is_exact(margin):
        verdict, reason = FAILS, "both sides are equal"
    return Part(text, verdict, left, right, margin, reason)


def _adopted(claim: Claim, metrics: Metrics) -> Part:
    """The verdict that a lesson has reached itself (`words.verdict`), where metrics cannot tell it again."""
    lesson, key = claim.reads()[0]
    text = f"{{{key}}}"
    try:
        word = metrics.word(lesson, key)
    except Missing as missing:
        return Part(text, UNTESTABLE, reason=str(missing))
    if word not in _ADOPTED:
        raise ClaimError(
            f"metric {key!r} of lesson {lesson} says {word!r}; a verdict is one of {sorted(_ADOPTED)}"
        )
    return Part(text, _ADOPTED[word], reason=f"lesson {lesson[:2]} judges this: {word}")


def _known(claim: Claim, found: Interval) -> Interval:
    """In a formula a metric without an interval is a number like any other; a direction has to show its interval."""
    return (
        found
        if found.known or claim.kind == "direction"
        else interval_arithmetic.exact(found.value)
    )


def decide(margin: Interval, sign: str, tolerance: float = 0.0) -> tuple[str, str]:
    """Verdict and reason of one comparison. margin: left - right, or right - left where `sign` is < or <=."""
    if sign == "==":
        return (
            HOLDS if abs(margin.value) <= tolerance * (1 + _ROUNDING) + _ROUNDING else FAILS
        ), ""
    if not margin.known:
        return UNDECIDED, "not everything in it has an interval"
    slack = _ROUNDING if "=" in sign else 0.0
    if margin.ci_low > -slack:
        return HOLDS, ""
    if margin.ci_high < -slack:
        return FAILS, ""
    return UNDECIDED, "no difference at all" if interval_arithmetic.is_exact(
        margin
    ) else "the interval holds 0"
