"""What the lessons measured, by lesson and key: estimates with their intervals, and who decided.

A lesson that was not run, or did not measure a key, is no mistake: small runs leave things out, and so do other
models in params.yaml. A key that is one slip of the pen away from one that there is, however, is a mistake.
"""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.config import ROOT
from lib.experiment import artifacts
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.reply_shares import describe_share
from lib.scoreboard.errors import ClaimError
from lib.stats import Interval
from lib.stats.interval_arithmetic import holding

METRICS_FOLDER = ROOT / "reports/metrics"
_MIN_SIMILARITY = 0.8  # of difflib; keys that are less alike are no candidates for a misspelling


class MissingMetric(LookupError):
    """A metric that no run has left; the message is a reason that a reader can act on."""


class Metrics:
    """Metrics of all lessons, as their JSON files hold them."""

    def __init__(self, lessons: Mapping[str, Mapping[str, Any]]) -> None:
        """Wraps the metrics of lessons.

        Args:
            lessons: {lesson: {key: value}}.
        """
        self.lessons = lessons

    def get_estimate(self, lesson: str, key: str) -> Interval:
        """Looks up a metric with its interval; a boolean counts 1 or 0.

        Args:
            lesson: Name of the lesson, such as 05_budgeted_routing.
            key: Key of the metric.

        Returns:
            The value with its interval, whose ends are nan where the lesson kept none.

        Raises:
            MissingMetric: It was not measured.
            ClaimError: The key is misspelled, or the metric is a word.
        """
        value = self._get_value(lesson, key)
        if isinstance(value, bool):
            return Interval(float(value), float(value), float(value))
        if not isinstance(value, (int, float)):
            raise ClaimError(
                f"metric {key!r} of lesson {lesson} is {value!r}; a test needs a number"
            )
        # Without both ends the lesson kept no interval: a count, a price, or a single run.
        lesson_metrics = self.lessons.get(lesson, {})
        if f"{key}_ci_low" in lesson_metrics and f"{key}_ci_high" in lesson_metrics:
            ci_low = float(lesson_metrics[f"{key}_ci_low"])
            ci_high = float(lesson_metrics[f"{key}_ci_high"])
            return holding(float(value), ci_low, ci_high)
        return Interval(float(value), math.nan, math.nan)

    def get_verdict_word(self, lesson: str, key: str) -> str:
        """Looks up a verdict that a lesson keeps.

        Raises:
            MissingMetric: There is none.
            ClaimError: The key is misspelled, or the metric is no word.
        """
        value = self._get_value(lesson, key)
        if not isinstance(value, str):
            raise ClaimError(f"metric {key!r} of lesson {lesson} is {value!r}; a verdict is a word")
        return value

    def find_backend(self, lesson: str, key: str) -> str:
        """Finds the backend (model or script) that produced a metric.

        Args:
            lesson: The lesson that measured it.
            key: Key of the metric, such as "corl.low.reward".

        Returns:
            The value of the nearest enclosing key `backend` ("corl.low.backend", "corl.backend", "backend"); empty if
            there is none.
        """
        lesson_metrics = self.lessons.get(lesson, {})
        steps = key.split(".")
        # Of a.b.c the candidates are a.b.backend, a.backend, backend.
        for length in range(len(steps) - 1, -1, -1):
            backend_key = ".".join([*steps[:length], "backend"])
            if backend_key in lesson_metrics:
                return str(lesson_metrics[backend_key])
        return ""

    def find_unusable_share(self, lesson: str, key: str) -> float:
        """The share of calls without an answer that a lesson has marked a metric with; 0 without a mark."""
        lesson_metrics = self.lessons.get(lesson, {})
        # The verdict on an estimate has the mark of the estimate.
        marks = [f"{name}_{UNUSABLE_SHARE}" for name in (key, key.removesuffix("_verdict"))]
        return max(float(lesson_metrics.get(mark, 0.0)) for mark in marks)

    def _get_value(self, lesson: str, key: str) -> Any:
        """Looks up the value of a metric.

        Args:
            lesson: The lesson that measured it.
            key: Key of the metric.

        Raises:
            MissingMetric: The lesson has not run, its models gave too few usable replies, or it has no such metric.
            ClaimError: The key looks like a misspelling of one that exists.
        """
        if lesson not in self.lessons:
            raise MissingMetric(f"metrics of lesson {lesson.split('_')[0]} are missing: run it")
        if key not in self.lessons[lesson]:
            unusable_share = self.find_unusable_share(lesson, key)
            if unusable_share > 0:
                raise MissingMetric(describe_share(unusable_share))
            intended_key = self._guess_intended_key(lesson, key)
            if intended_key:
                raise ClaimError(
                    f"lesson {lesson} has no metric {key!r}; the nearest one is {intended_key!r}"
                )
            raise MissingMetric(f"this run of lesson {lesson.split('_')[0]} left no metric {key}")
        return self.lessons[lesson][key]

    def _guess_intended_key(self, lesson: str, key: str) -> str:
        """Guesses which existing key was meant by a misspelled one.

        Returns:
            The key that differs by one typing error in one of its dotted parts; empty if there is none.
        """
        steps = key.split(".")
        similar_keys = difflib.get_close_matches(
            key, list(self.lessons[lesson]), n=20, cutoff=_MIN_SIMILARITY
        )
        for candidate in similar_keys:
            candidate_steps = candidate.split(".")
            if len(candidate_steps) != len(steps):
                continue
            # All steps but one agree, and that one but for a slip.
            differing = [(a, b) for a, b in zip(steps, candidate_steps, strict=True) if a != b]
            if len(differing) == 1 and _is_misspelling(*differing[0]):
                return candidate
        return ""


def _is_misspelling(a: str, b: str) -> bool:
    """Whether two words differ by one typing error: letters transposed, or one letter added, omitted or replaced."""
    digits_of_a = [character for character in a if character.isdigit()]
    digits_of_b = [character for character in b if character.isdigit()]
    if digits_of_a != digits_of_b:
        return False  # another digit names another thing, such as another seed
    if sorted(a) == sorted(b):
        return True
    # One letter too many, too few or wrong: a single edit of length 1.
    opcodes = difflib.SequenceMatcher(None, a, b).get_opcodes()
    edits = [opcode for opcode in opcodes if opcode[0] != "equal"]
    if len(edits) != 1:
        return False
    _, a_start, a_end, b_start, b_end = edits[0]
    return max(a_end - a_start, b_end - b_start) == 1


def read_metrics(folder: str | Path = METRICS_FOLDER) -> Metrics:
    """Reads the metrics of every lesson that left some.

    Args:
        folder: Holds one JSON file per lesson.

    Returns:
        The metrics by lesson.

    Raises:
        ClaimError: A file cannot be read; the message names it.
    """
    metrics_by_lesson = {}
    for path in sorted(Path(folder).glob("[0-9]*.json")):
        try:
            metrics_by_lesson[path.stem] = artifacts.read_json(path)
        except (OSError, ValueError) as error:
            raise ClaimError(
                f"{path} cannot be read ({error}); run lesson {path.stem} again"
            ) from error
    return Metrics(metrics_by_lesson)
