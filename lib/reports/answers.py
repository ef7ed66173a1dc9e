"""The answer at the top of a lesson's page: three sentences that a person wrote, tested on the run's metrics.

`data/answers.yaml` holds them. A sentence has placeholders for numbers and requirements that must hold for it to be
true:

    text: CoRL answers {corl.high.minus_best_constant:points} more questions than the best expert.
    requires: ["{corl.high.minus_best_constant} > 0"]

A run that does not meet a requirement prints the sentence struck out, with the reason. Requirements are written in
the language of the claims (`lib.scoreboard.expressions`), or as `EXPRESSION contains NUMBER`, where the interval must
hold the number, or as `{KEY} is WORD or WORD` for metrics that are words. Left out: whether a requirement is the right
test of its sentence, which a person has to judge.
"""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from lib.config import ROOT, from_yaml
from lib.reports.wording import divide_interval, format_interval, format_number
from lib.scoreboard import expressions
from lib.scoreboard.decision_rule import decide
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.metrics import Metrics, MissingMetric
from lib.stats import LEVEL, Interval, interval_arithmetic
from lib.stats.verdicts import HOLDS

ANSWERS_FILE = ROOT / "data/answers.yaml"
SENTENCES_PER_LESSON = 3
MAX_WORDS = 45  # of a sentence; a placeholder counts as one word
SMOKE_PROFILE = "smoke"  # only shows that everything runs
NOT_MEASURED = "not measured"

_PLACEHOLDER = re.compile(r"\{(?P<key>[\w.+-]+)(?::(?P<format>\w+))?\}")
_KEY_IN_BRACES = re.compile(r"\{([\w.+-]+)\}")
_CONTAINS = re.compile(r"(?P<expression>.+) contains (?P<number>-?[\d.]+)")
_IS_WORD = re.compile(r"\{(?P<key>[\w.+-]+)\} is (?P<words>\w[\w -]*)")


class AnswerError(ValueError):
    """A mistake in the file of answers; the message names the lesson and what to change."""


@dataclass(frozen=True)
class NumberFormat:
    """How a placeholder writes a metric.

    Attributes:
        scale: The metric is multiplied by it.
        digits: Decimals.
        sign: Whether positive numbers get a plus sign.
        prefix: Stands before the value.
        suffix: Stands behind the value, before the interval.
    """

    scale: float = 1.0
    digits: int = 2
    sign: bool = False
    prefix: str = ""
    suffix: str = ""

    def format_estimate(self, estimate: Interval) -> str:
        """Formats a value with its interval in this format, such as "+12 points [7, 17]".

        Args:
            estimate: The value; unknown ends are left out.
        """
        scaled = divide_interval(estimate, 1 / self.scale)
        value = self._format_value(scaled.value, "+" if self.sign else "-")
        text = f"{value}{self.suffix}"
        if scaled.known:
            ci_low = self._format_value(scaled.ci_low)
            ci_high = self._format_value(scaled.ci_high)
            text += f" [{ci_low}, {ci_high}]"
        return text

    def _format_value(self, value: float, sign: str = "-") -> str:
        """Formats a number with thousands separators, its prefix behind the sign.

        Args:
            value: The number.
            sign: "+" to show a plus, "-" for the minus only, as in Python's format language.
        """
        rounded = round(value, self.digits) + 0.0  # adding 0.0 turns -0.0 into 0.0
        if rounded == 0:
            sign = "-"  # zero has no sign
        digits = f"{rounded:{sign},.{self.digits}f}"
        if digits[0] in "+-":
            return f"{digits[0]}{self.prefix}{digits[1:]}"
        return f"{self.prefix}{digits}"


FORMATS = {
    "number": NumberFormat(),
    "difference": NumberFormat(sign=True),
    "fine_difference": NumberFormat(digits=3, sign=True),
    "percent": NumberFormat(scale=100, digits=0, suffix="%"),
    "fine_percent": NumberFormat(scale=100, digits=1, suffix="%"),
    "points": NumberFormat(scale=100, digits=0, sign=True, suffix=" points"),
    "fine_points": NumberFormat(scale=100, digits=1, sign=True, suffix=" points"),
    "dollars": NumberFormat(prefix="$"),
    "dollars_per_million": NumberFormat(scale=1e6, digits=1, prefix="$"),
    "count": NumberFormat(digits=0),
}
_DEFAULT_FORMAT = "number"


class AnswerSentence(BaseModel):
    """One sentence of a lesson's answer.

    Attributes:
        text: The sentence, with placeholders `{KEY}` or `{KEY:FORMAT}`; `FORMATS` has the formats.
        requires: What must hold of the metrics for the sentence to be true.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    text: str
    requires: Annotated[tuple[str, ...], Field(min_length=1)]

    @field_validator("text")
    @classmethod
    def _check_text(cls, text: str) -> str:
        """Checks the placeholders of a sentence and its length.

        Args:
            text: The sentence, with placeholders {KEY} or {KEY:FORMAT}.

        Raises:
            ValueError: A format is unknown, a brace is stray, or there are too many words.
        """
        for placeholder in _PLACEHOLDER.finditer(text):
            name = placeholder["format"] or _DEFAULT_FORMAT
            if name not in FORMATS:
                raise ValueError(
                    f"{placeholder[0]} has no known format; there are {', '.join(FORMATS)}"
                )
        if re.search(r"[{}]", _PLACEHOLDER.sub("", text)):
            raise ValueError("a brace belongs to no placeholder {KEY} or {KEY:FORMAT}")
        num_words = len(text.split())
        if num_words > MAX_WORDS:
            raise ValueError(f"{num_words} words are too many; a sentence has {MAX_WORDS} at most")
        return text

    @field_validator("requires")
    @classmethod
    def _check_requirements(cls, requirements: tuple[str, ...]) -> tuple[str, ...]:
        """Checks that every requirement can be parsed and reads a metric.

        Raises:
            ValueError: One cannot, or reads none, so that it could not fail.
        """
        for requirement in requirements:
            if _IS_WORD.fullmatch(requirement):
                continue
            test, _ = _parse_numeric_requirement(requirement)
            if not test.metric_keys:
                raise ValueError(f"{requirement!r} reads no metric, so that it cannot fail")
        return requirements

    def list_metric_keys(self) -> list[str]:
        """Every metric that its text or its requirements read, in order."""
        keys = [placeholder["key"] for placeholder in _PLACEHOLDER.finditer(self.text)]
        for requirement in self.requires:
            keys += _KEY_IN_BRACES.findall(requirement)
        return list(dict.fromkeys(keys))


@dataclass(frozen=True)
class UnmetRequirement:
    """A requirement that a run does not meet.

    Attributes:
        requirement: As it stands in the file.
        value: What this run measured; empty where it measured nothing.
        problem: Why nothing could be tested, such as the name of a missing metric; empty where it was tested.
    """

    requirement: str
    value: str = ""
    problem: str = ""

    def __str__(self) -> str:
        condition = self.requirement.replace("{", "").replace("}", "")
        return self.problem or f"{condition}, but it is {self.value}"


Answers = dict[str, tuple[AnswerSentence, ...]]  # by lesson
_THREE_SENTENCES = TypeAdapter(
    Annotated[
        tuple[AnswerSentence, ...],
        Field(min_length=SENTENCES_PER_LESSON, max_length=SENTENCES_PER_LESSON),
    ]
)


@functools.cache
def load_answers(path: str | Path = ANSWERS_FILE) -> Answers:
    """Reads and checks the file of answers.

    Args:
        path: A YAML file with sentences by lesson.

    Returns:
        The three sentences of every lesson.

    Raises:
        AnswerError: The file is broken; the message names every lesson and sentence at fault.
    """
    try:
        content = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AnswerError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise AnswerError(f"{path} must hold sentences by lesson")

    # All mistakes are collected, so that one run shows all that has to be mended.
    answers: Answers = {}
    mistakes = []
    for lesson, sentences in content.items():
        try:
            answers[lesson] = _THREE_SENTENCES.validate_python(sentences)
        except ValidationError as error:
            for mistake in error.errors():
                location = ", ".join(str(step) for step in mistake["loc"])
                mistakes.append(f"lesson {lesson}, {location or 'sentences'}: {mistake['msg']}")
    if mistakes:
        raise AnswerError("\n".join([f"{path} is not in order:", *mistakes]))
    return answers


def fill_sentence(sentence: AnswerSentence, lesson: str, metrics: Mapping[str, Any]) -> str:
    """Fills the placeholders of a sentence.

    Args:
        sentence: The sentence.
        lesson: Name of the lesson, such as 05_budgeted_routing.
        metrics: The lesson's metrics, flat: KEY, KEY_ci_low, KEY_ci_high.

    Returns:
        The sentence with numbers and their intervals; `NOT_MEASURED` stands where this run left no number.
    """
    lesson_metrics = _wrap_metrics(lesson, metrics)

    def format_placeholder(placeholder: re.Match[str]) -> str:
        try:
            estimate = lesson_metrics.get_estimate(lesson, placeholder["key"])
        except (MissingMetric, ClaimError):
            return NOT_MEASURED
        return FORMATS[placeholder["format"] or _DEFAULT_FORMAT].format_estimate(estimate)

    return _PLACEHOLDER.sub(format_placeholder, sentence.text)


def check_sentence(
    sentence: AnswerSentence, lesson: str, metrics: Mapping[str, Any]
) -> list[UnmetRequirement]:
    """Tests a sentence on the metrics of a run.

    Args:
        sentence: The sentence.
        lesson: Name of the lesson.
        metrics: The lesson's metrics, flat.

    Returns:
        Every requirement that this run does not meet, and every placeholder that it cannot fill; empty if the
        sentence is true of this run.
    """
    lesson_metrics = _wrap_metrics(lesson, metrics)
    unmet = []

    # A sentence whose number is missing says nothing, whatever its requirements.
    for placeholder in _PLACEHOLDER.finditer(sentence.text):
        try:
            lesson_metrics.get_estimate(lesson, placeholder["key"])
        except (MissingMetric, ClaimError) as error:
            unmet.append(UnmetRequirement(placeholder[0], problem=str(error)))

    for requirement in sentence.requires:
        try:
            value = _measure_unmet(requirement, lesson, lesson_metrics)
        except (MissingMetric, ClaimError) as error:
            unmet.append(UnmetRequirement(requirement, problem=str(error)))
        except ZeroDivisionError:
            problem = "a quantity that it divides by is 0 in this run"
            unmet.append(UnmetRequirement(requirement, problem=problem))
        else:
            if value:
                unmet.append(UnmetRequirement(requirement, value))
    return unmet


def render_answer(lesson: str, metrics: Mapping[str, Any], profile: str) -> str:
    """Renders the answer of a lesson for the top of its page.

    Args:
        lesson: Name of the lesson.
        metrics: The lesson's metrics, flat, as in reports/metrics/LESSON.json.
        profile: The profile of the run.

    Returns:
        HTML; empty for a notebook that has no answer, such as an appendix.

    Raises:
        AnswerError: The file of answers is broken.
    """
    sentences = load_answers().get(lesson)
    if not sentences:
        return ""
    items = []
    for sentence in sentences:
        text = escape(fill_sentence(sentence, lesson, metrics))
        unmet = check_sentence(sentence, lesson, metrics)
        if unmet:
            # A missing metric may stand both in the text and in a requirement; one mention is enough.
            descriptions = dict.fromkeys(str(requirement) for requirement in unmet)
            reasons = "; ".join(
                f"<code>{escape(description)}</code>" for description in descriptions
            )
            text = f"<strong>This run does not show this:</strong> {reasons}. <s>{text}</s>"
        css_class = "contradicted" if unmet else "supported"
        items.append(f'<li class="{css_class}">{text}</li>')

    note = f"From this run, profile {escape(profile)}. Brackets: {LEVEL:.0%} intervals."
    if profile == SMOKE_PROFILE:
        note += " This profile is too small to show anything; it only shows that everything runs."
    return "\n".join(
        [
            '<section class="answer" aria-label="The answer">',
            "<ul>",
            *items,
            "</ul>",
            f'<p class="note">{note}</p>',
            "</section>\n",
        ]
    )


def _wrap_metrics(lesson: str, metrics: Mapping[str, Any]) -> Metrics:
    """Wraps the metrics of a lesson for look-up; nulls, nan and infinity count as not measured.

    Args:
        lesson: Name of the lesson.
        metrics: Values by key.
    """
    measured = {}
    for key, value in metrics.items():
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        if value is not None and not is_infinite:
            measured[key] = value
    return Metrics({lesson: measured})


def _parse_numeric_requirement(requirement: str) -> tuple[expressions.ParsedTest, float | None]:
    """Parses a requirement on numbers.

    Args:
        requirement: A comparison such as "{gain} > 0", or "EXPRESSION contains NUMBER".

    Returns:
        The parsed expression, and the number that its interval must contain; None for a comparison.

    Raises:
        ValueError: It is neither.
    """
    contains = _CONTAINS.fullmatch(requirement)
    if contains:
        test = expressions.parse_test(contains["expression"])
        number = float(contains["number"])
    else:
        test = expressions.parse_test(requirement)
        number = None
    # A comparison needs two sides, and what contains a number needs one.
    if (test.comparison is None) != (number is not None):
        raise ValueError(f"{requirement!r} is neither a comparison nor EXPRESSION contains NUMBER")
    if any(lesson for lesson, _ in test.metric_keys):
        raise ValueError(f"{requirement!r} names a lesson; a page has its lesson's metrics only")
    return test, number


def _measure_unmet(requirement: str, lesson: str, metrics: Metrics) -> str:
    """Checks a requirement against the metrics of a run.

    Args:
        requirement: A comparison, "EXPRESSION contains NUMBER", or "KEY is WORD or WORD".
        lesson: Name of the lesson.
        metrics: What the run measured.

    Returns:
        What was measured instead; empty where the requirement is met. A comparison is met where the whole confidence
        interval of the difference lies on that side.
    """
    is_word = _IS_WORD.fullmatch(requirement)
    if is_word:
        word = metrics.get_verdict_word(lesson, is_word["key"])
        return "" if word in is_word["words"].split(" or ") else word

    test, number = _parse_numeric_requirement(requirement)
    evaluator = expressions.Evaluator(
        lambda _, key: metrics.get_estimate(lesson, key), quotes={}, functions={}
    )
    lhs = evaluator.evaluate(test.lhs, test.metric_keys)
    if number is not None:
        # Without an interval, or with one of no width, nothing is known about how far the value may be off.
        has_width = lhs.known and lhs.ci_low < lhs.ci_high
        is_met = has_width and lhs.ci_low <= number <= lhs.ci_high
        return "" if is_met else _describe_estimate(lhs)

    # The claims' own rule: the whole interval of the difference lies on the side that is named.
    rhs = evaluator.evaluate(test.rhs, test.metric_keys)
    if test.comparison in ("<", "<="):
        difference = interval_arithmetic.minus(rhs, lhs)
    else:
        difference = interval_arithmetic.minus(lhs, rhs)
    verdict, _ = decide(difference, test.comparison)
    # An estimate whose interval has no width has tested nothing; counts say so by exact().
    is_tested = "exact(" in requirement or not interval_arithmetic.is_exact(difference)
    if verdict == HOLDS and is_tested:
        return ""
    reads_metric_on_right = bool(_KEY_IN_BRACES.search(requirement.partition(test.comparison)[2]))
    if reads_metric_on_right:
        return f"{_describe_estimate(lhs)} beside {_describe_estimate(rhs)}"
    return _describe_estimate(lhs)


def _describe_estimate(estimate: Interval) -> str:
    """A value with its interval, with as many decimals as its size needs."""
    size = abs(estimate.value)
    digits = 2 if size >= 1 or size == 0 else min(8, 2 - math.floor(math.log10(size)))
    if not estimate.known:
        return f"{format_number(estimate.value, digits)} (without an interval)"
    return format_interval(estimate, digits)
