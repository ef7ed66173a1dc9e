"""Verdicts: each claim's tests evaluated on our metrics, and what that says of the claim.

    holds          a formula within its tolerance; a direction with its whole interval on the claimed side
    does not hold  a formula outside; a direction with its whole interval on the other side
    undecided      the interval holds zero, or a single run gives none
    equivalent     inside a margin that a lesson wrote down before it ran
    not open       there was too little to win by choosing for any method to show it
    compared       a magnitude, ours beside the paper's; neither a success nor a failure
    not testable   nothing here can test it, the run that could has not been made, its interval has no width, a control
                   passes the same test, a script decides in place of a model, or a model gave too few answers

Of several tests the weakest that is needed decides. Left out: whether a test is a good test of its claim; the
expression is printed for readers to judge.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lib.llm.reply_shares import describe_share
from lib.scoreboard import expressions
from lib.scoreboard.claim import Claim
from lib.scoreboard.decision_rule import decide
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.metrics import Metrics, MissingMetric
from lib.scoreboard.paper_formulas import FUNCTIONS
from lib.stats import MIN_HEADROOM, Interval, interval_arithmetic
from lib.stats.random_effects import mde_from_interval
from lib.stats.verdicts import EQUIVALENT, FAILS, HOLDS, NOT_OPEN, UNDECIDED, UNTESTABLE

COMPARED = "compared"  # of a magnitude, which is no verdict
VERDICT_LABELS = {
    HOLDS: HOLDS,
    FAILS: FAILS,
    EQUIVALENT: EQUIVALENT,
    UNDECIDED: "undecided at this scale",
    NOT_OPEN: "not open: too little to win",
    COMPARED: "compared, not judged",
    UNTESTABLE: "not testable here",
}
SCRIPT_DECIDES = "a scripted stand-in decides, which says nothing about language models"
_VERDICT_OF_LESSON_WORD = {  # what lessons say, and what it means here
    HOLDS: HOLDS,
    FAILS: FAILS,
    EQUIVALENT: EQUIVALENT,
    UNDECIDED: UNDECIDED,
    NOT_OPEN: NOT_OPEN,
    UNTESTABLE: UNTESTABLE,
    "no difference": UNDECIDED,
    "no cases": UNTESTABLE,
}
# The weakest test that is needed decides: a failure is weaker than not knowing.
_STRENGTH = {FAILS: 0, UNTESTABLE: 1, NOT_OPEN: 2, UNDECIDED: 3, EQUIVALENT: 4, HOLDS: 5}
_TRAINING_GAIN_KEYS = {  # what training gained in lessons whose lab runs may be too weak to conclude anything
    "06_tool_orchestration": "full.trained.gain"
}
_WEAK_LESSONS = {  # why the lab runs of a lesson are weak, known before any of them
    "06_tool_orchestration": "trainings of 60 updates, on models of 150,000 weights",
}
# How long the policies of a lesson were trained, which a failure has to say: the metric, and its unit.
_TRAINING_LENGTHS = {
    "04_conductor": ("conductor.steps", "steps"),
    "05_budgeted_routing": ("corl.updates", "updates"),
}
_NOT_MEASURED = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class TestResult:
    """One test of a claim on our metrics.

    Attributes:
        test: The expression.
        verdict: What it says of the claim.
        lhs: What stands left of the comparison, or the whole expression where there is none.
        rhs: What stands right of it; None without a comparison.
        difference: How far the claim is met, above 0 if it is; of an equality, how far the sides are apart.
        reason: Explains the verdict where it does not explain itself.
    """

    __test__ = False  # pytest takes classes called Test... for test cases

    test: str
    verdict: str
    lhs: Interval = _NOT_MEASURED
    rhs: Interval | None = None
    difference: Interval = _NOT_MEASURED
    reason: str = ""

    @property
    def is_sampled(self) -> bool:
        """Whether anything in it was sampled."""
        is_measured = math.isfinite(self.difference.value)
        return is_measured and not interval_arithmetic.is_exact(self.difference)

    @property
    def mde(self) -> float:
        """Minimum detectable effect at 80 % power, from its interval as if normal; nan where nothing was sampled."""
        if not self.is_sampled:
            return math.nan
        return mde_from_interval(self.difference.ci_low, self.difference.ci_high)

    @property
    def lacks_interval(self) -> bool:
        """Whether it was measured without an interval."""
        return math.isfinite(self.difference.value) and not self.difference.known


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: The claim.
        verdict: One of `VERDICT_LABELS`.
        test_results: Its tests, in the order of the claim.
        backends: Who decided what its metrics measure.
        reason: Explains the verdict where it does not explain itself.
        question: "open", "not open", or empty where nobody measured what choosing could win.
    """

    claim: Claim
    verdict: str
    test_results: tuple[TestResult, ...]
    backends: tuple[str, ...]
    reason: str
    question: str = ""

    @property
    def mde(self) -> float:
        """The minimum detectable effect of its least able test; nan where nothing was sampled."""
        effects = [result.mde for result in self.test_results if result.is_sampled]
        return max(effects, default=math.nan)

    @property
    def is_scripted(self) -> bool:
        """Whether a program that replies as a model would decided any of it."""
        return self.claim.stand_in or "scripted" in self.backends

    @property
    def evidence(self) -> str:
        """What decided it, one of `claim.EVIDENCE_KINDS`."""
        if self.claim.untestable:
            return "none"
        if self.claim.is_arithmetic:
            return "arithmetic"
        if self.is_scripted:
            return "scripted"
        return "recorded" if self.claim.evidence_level == "recorded" else "models"

    @property
    def label(self) -> str:
        """The verdict as it is read everywhere."""
        return VERDICT_LABELS[self.verdict]

    @property
    def discrepancy_source(self) -> str:
        """Whose error a formula that fails is: "paper", "ours", or "nobody yet"; empty for all other claims."""
        if self.claim.kind != "formula" or self.verdict != FAILS:
            return ""
        source = self.claim.discrepancy_source
        return source.who if source else "nobody yet"


def judge_claims(claims: Sequence[Claim], metrics: Metrics) -> list[Verdict]:
    """Reaches a verdict on every claim.

    Args:
        claims: The claims to be judged.
        metrics: What the lessons measured.

    Returns:
        The verdicts, in the order of `claims`.

    Raises:
        ClaimError: A claim names a key that is misspelled.
    """
    return [_judge_claim(claim, metrics) for claim in claims]


def _judge_claim(claim: Claim, metrics: Metrics) -> Verdict:
    """Decides one claim: by its tests, and then by what could make them meaningless.

    A claim cannot hold where a control without the method passes the same tests, where choosing can gain too little,
    where
    a model gave too few usable replies, or where a script stands in for the model.

    Args:
        claim: The claim with its tests.
        metrics: What the lessons measured.

    Returns:
        The verdict, with the results of the tests and the reason.

    Raises:
        ClaimError: A test reads a metric whose key is misspelled.
    """
    if claim.untestable:
        return Verdict(claim, UNTESTABLE, (), (), claim.untestable)

    # What the tests say, or the lesson itself.
    try:
        if claim.judged:
            results = [_adopt_lesson_verdict(claim, metrics)]
        else:
            results = [_evaluate_test(claim, text, metrics) for text in claim.test]
    except ClaimError as error:
        raise ClaimError(f"claim {claim.id}: {error}") from error
    verdict = combine_verdicts([result.verdict for result in results], claim.need)
    reasons = [result.reason for result in results if result.reason and result.verdict == verdict]

    # A test shows nothing that a control without the method passes, too.
    if verdict == HOLDS and claim.control:
        results_of_control = [_evaluate_test(claim, text, metrics) for text in claim.control.test]
        if all(result.verdict == HOLDS for result in results_of_control):
            verdict = UNTESTABLE
            reasons = [f"{claim.control.who} do so, too, so that it shows nothing"]

    # No method could show anything where too little could be won by choosing.
    gate_reasons = [explain_closed_gate(metrics, *gate) for gate in claim.list_gate_keys()]
    closed_reasons = [reason for reason in gate_reasons if reason]
    if verdict in (HOLDS, FAILS, UNDECIDED, EQUIVALENT):
        if closed_reasons:
            verdict = NOT_OPEN
            reasons = closed_reasons[:1]
        else:
            reasons += _list_weaknesses(claim, metrics)
            if verdict == FAILS:
                reasons += _describe_training_length(claim, metrics)
    question = ""
    if claim.gate:
        question = NOT_OPEN if closed_reasons else "open"

    # Where a model gave too few answers, something else decided in its place.
    metric_keys = claim.list_metric_keys()
    unusable_shares = [metrics.find_unusable_share(*key) for key in metric_keys]
    if max(unusable_shares, default=0.0) > 0:
        verdict = UNTESTABLE
        reasons = [describe_share(max(unusable_shares))]

    # A program that stands in for a model was written to do what it does.
    backends = {metrics.find_backend(*key) for key in metric_keys} - {""}
    if claim.stand_in or "scripted" in backends:
        verdict = UNTESTABLE
        reasons = [SCRIPT_DECIDES]

    reason = "; ".join(dict.fromkeys(reasons))  # each reason once, in order
    return Verdict(claim, verdict, tuple(results), tuple(sorted(backends)), reason, question)


def explain_closed_gate(metrics: Metrics, lesson: str, key: str) -> str:
    """Says why a question is not open. A lesson's own word goes before the number.

    Args:
        metrics: What the lessons measured.
        lesson: The lesson that measured what choosing could win.
        key: The metric: a headroom, or a word where it ends in `.is`.

    Returns:
        The reason; empty where the question is open.
    """
    try:
        if key.endswith(".is"):
            if metrics.get_verdict_word(lesson, key) == "open":
                return ""
            return f"lesson {lesson[:2]} measured too little to win"
        headroom = metrics.get_estimate(lesson, key)
    except MissingMetric as missing:
        return str(missing)  # what nobody measured is not open
    if headroom.known and headroom.ci_low >= MIN_HEADROOM:
        return ""
    return (
        f"choosing could win {headroom.value:.3f} over the best constant, at least {headroom.ci_low:.3f}; "
        f"{MIN_HEADROOM} is asked"
    )


def _list_weaknesses(claim: Claim, metrics: Metrics) -> list[str]:
    """Lists the known weaknesses of the small-model experiments that a claim rests on.

    Args:
        claim: The claim; only the evidence level "lab" has such weaknesses.
        metrics: What the lessons measured.

    Returns:
        A sentence per lesson; it says so where training gained nothing over the start.
    """
    if claim.evidence_level != "lab":
        return []
    lessons = {lesson for lesson, _ in claim.list_metric_keys()}
    weaknesses = []
    for lesson in sorted(lessons & set(_WEAK_LESSONS)):
        weakness = _WEAK_LESSONS[lesson]
        try:
            gain = metrics.get_estimate(lesson, _TRAINING_GAIN_KEYS[lesson])
        except (MissingMetric, KeyError):
            gain = None  # not measured, or nothing to compare with
        if gain is not None and not (gain.known and gain.ci_low > 0):
            weakness += f"; training gained {gain.value:+.3f} over its start, not clear of 0"
        weaknesses.append(f"weak: in the lab of lesson {lesson[:2]} {weakness}")
    return weaknesses


def _describe_training_length(claim: Claim, metrics: Metrics) -> list[str]:
    """Says how long the small models behind a claim were trained, such as "after a training of 40 updates".

    Args:
        claim: The claim; only the evidence level "lab" has trained models.
        metrics: What the lessons measured.

    Returns:
        A phrase per lesson.
    """
    if claim.evidence_level != "lab":
        return []
    lengths = []
    for lesson in sorted({lesson for lesson, _ in claim.list_metric_keys()}):
        if lesson not in _TRAINING_LENGTHS:
            continue
        key, unit = _TRAINING_LENGTHS[lesson]
        try:
            length = metrics.get_estimate(lesson, key).value
        except MissingMetric:
            continue
        lengths.append(f"after a training of {length:.0f} {unit}")
    return lengths


def combine_verdicts(verdicts: Sequence[str], need: int | str = "all") -> str:
    """Combines the verdicts of several tests of one claim: the weakest of the `need` strongest decides.

    Args:
        verdicts: One per test.
        need: How many tests must hold, or "all".

    Returns:
        The verdict of the claim.
    """
    if verdicts == [COMPARED]:
        return COMPARED
    strongest_first = sorted(verdicts, key=_STRENGTH.__getitem__, reverse=True)
    num_needed = len(verdicts) if need == "all" else int(need)
    return strongest_first[num_needed - 1]


def _evaluate_test(claim: Claim, text: str, metrics: Metrics) -> TestResult:
    """Evaluates one test of a claim on the measured metrics.

    Args:
        claim: The claim, whose kind decides what an exact difference means.
        text: The test, such as "{ro.utility} > {best_policy.utility}".
        metrics: What the lessons measured.

    Returns:
        Both sides, their difference with interval, and the verdict; UNTESTABLE with a reason where a metric is
        missing.
    """
    test = expressions.parse_test(text, set(claim.quotes), FUNCTIONS)

    def look_up(lesson: str, key: str) -> Interval:
        estimate = metrics.get_estimate(lesson or claim.lesson or "", key)
        # In a formula a metric without an interval is a number like any other; a direction has to show its interval.
        if estimate.known or claim.kind == "direction":
            return estimate
        return interval_arithmetic.exact(estimate.value)

    # Both sides of the comparison.
    evaluator = expressions.Evaluator(look_up, claim.quotes, FUNCTIONS)
    try:
        lhs = evaluator.evaluate(test.lhs, test.metric_keys)
        rhs = None if test.rhs is None else evaluator.evaluate(test.rhs, test.metric_keys)
    except MissingMetric as missing:
        return TestResult(text, UNTESTABLE, reason=str(missing))
    except ZeroDivisionError:
        reason = "a quantity that it divides by is 0 in this run"
        return TestResult(text, UNTESTABLE, reason=reason)
    if rhs is None:
        return TestResult(text, COMPARED, lhs, None, lhs)
    # How far the claim is met, above 0 if it is.
    if test.comparison in ("<", "<="):
        difference = interval_arithmetic.minus(rhs, lhs)
    else:
        difference = interval_arithmetic.minus(lhs, rhs)

    # An exact difference cannot decide a direction, and decides every formula.
    verdict, reason = decide(difference, test.comparison or "", claim.tolerance)
    if interval_arithmetic.is_exact(difference):
        if claim.kind == "direction":
            verdict = UNTESTABLE
            reason = "its interval has no width, so that nothing in it can have varied"
        elif claim.kind == "formula" and verdict == UNDECIDED:
            verdict = FAILS
            reason = "both sides are equal"
    return TestResult(text, verdict, lhs, rhs, difference, reason)


def _adopt_lesson_verdict(claim: Claim, metrics: Metrics) -> TestResult:
    """Takes over the verdict that a lesson reached itself, where its metrics cannot be tested again.

    Args:
        claim: The claim, which names the metric that holds the verdict.
        metrics: What the lessons measured.

    Raises:
        ClaimError: The metric is no known verdict.
    """
    lesson, key = claim.list_metric_keys()[0]
    text = f"{{{key}}}"
    try:
        word = metrics.get_verdict_word(lesson, key)
    except MissingMetric as missing:
        return TestResult(text, UNTESTABLE, reason=str(missing))
    if word not in _VERDICT_OF_LESSON_WORD:
        raise ClaimError(
            f"metric {key!r} of lesson {lesson} says {word!r}; "
            f"a verdict is one of {sorted(_VERDICT_OF_LESSON_WORD)}"
        )
    verdict = _VERDICT_OF_LESSON_WORD[word]
    return TestResult(text, verdict, reason=f"lesson {lesson[:2]} judges this: {word}")
