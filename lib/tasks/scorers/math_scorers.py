r"""Scorers for numbers and for mathematical expressions.

`numeric` compares numbers and units; `math` compares expressions with math-verify (Kydlíček et al.), which decides that
\frac{1}{2} is 0.5, that x = 5 is 5, and that [1, 2) is not [1, 2]. Sums, roots and unknowns are for `math` alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lib.tasks.item import Item
from lib.tasks.scorers.extraction import (
    clean_answer,
    extract_final_answer,
    extract_number,
    strip_reasoning,
)
from lib.tasks.scorers.math_process import MathProcess
from lib.tasks.scorers.quantity import Quantity, agree_in_unit, read_quantity
from lib.tasks.scorers.scorer import ReplyScorer, Score, ScorerError, list_references

_FUNCTIONS = {"sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp", "cm", "km", "mm", "kg"}
TOLERANCE = 1e-6  # relative, where none is given


class NumericScorer(ReplyScorer):
    """1 where the reply's number is the reference's, else 0.

    Units are ignored where they are equal or one is absent. 12 % is 12 or 0.12, as the reference is written; only where
    the reference has no percent sign and is below 1, the percentage has to be converted. Without a tolerance of
    its own, two whole numbers that are written out have to be equal in every digit.

    Args:
        tolerance: The largest relative difference; None for 1e-6.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self.tolerance = tolerance
        self.name = "numeric" if tolerance is None else f"numeric:{tolerance:g}"

    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores a reply by its final number, which must equal the reference.

        Args:
            item: A question with a number as its reference answer.
            reply: A model's whole reply.

        Returns:
            1 where the numbers and their units agree, else 0.

        Raises:
            ScorerError: The reference holds no number.
        """
        references = [self._read_reference(item, text) for text in list_references(item)]
        answer = extract_number(reply)
        if answer is None:
            return Score(0.0, None, "the final answer holds no number")
        correct = any(self._equal(reference, answer) for reference in references)
        relation = "equals" if correct else "differs from"
        return Score(float(correct), answer.text, f"{relation} {item.reference!r}")

    def _read_reference(self, item: Item, text: str) -> Quantity:
        """Read the number and unit of a reference answer; a ScorerError, which names the item, where it has none."""
        quantity = read_quantity(clean_answer(text))
        if quantity is None:
            raise ScorerError(
                f"{self.name}: the reference {text!r} of item {item.id!r} is no number; score such items with math or "
                "exact"
            )
        return quantity

    def _equal(self, reference: Quantity, answer: Quantity) -> bool:
        """Whether an answer's number equals the reference's, within the scorer's tolerance.

        Args:
            reference: The right number, perhaps with a unit.
            answer: The number of a reply. Its unit is ignored where one of the two has none; percentages are converted.

        Returns:
            Whether they are equal.
        """
        if not agree_in_unit(reference, answer):
            return False
        # Whole numbers are compared in every digit, which floating point numbers cannot hold.
        both_whole = reference.whole is not None and answer.whole is not None
        compares_digits = both_whole and self.tolerance is None
        if compares_digits and reference.unit == answer.unit:
            return reference.whole == answer.whole

        equal = self._is_close(reference.value, answer.value)
        # A percentage may be written as a fraction: 0.12 for a reference of 12 %.
        if reference.unit == "%" and answer.unit != "%":
            return equal or self._is_close(reference.value / 100, answer.value)
        # The other way round, 12 % for a reference of 0.12, or of 12 without the sign, but not 0.12 % for 0.12.
        if answer.unit == "%" and reference.unit != "%":
            converted = self._is_close(reference.value, answer.value / 100)
            return converted or (equal and abs(reference.value) >= 1)
        if compares_digits:
            return reference.whole == answer.whole
        return equal

    def _is_close(self, reference: float, answer: float) -> bool:
        """Whether two numbers differ by no more than the tolerance, relative to the reference."""
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance
        return abs(reference - answer) <= tolerance * abs(reference)


class MathScorer(ReplyScorer):
    """1 where math-verify finds the final answer equal to the reference or one of its alternatives, else 0.

    Texts that are equal but for layout need no proof. Curly braces are compared with curly braces only, because
    math-verify takes the set {1, 2} for the open interval (1, 2). A comparison that does not end in time, or that
    brings the process down, counts as a lost judgement.

    Args:
        seconds: How long one comparison may take.
    """

    name = "math"

    def __init__(self, seconds: float = 10.0) -> None:
        self.process = MathProcess(seconds)

    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores a reply by its final answer, which must be mathematically equal to the reference.

        Args:
            item: A question with an expression as its reference answer.
            reply: A model's whole reply.

        Returns:
            1 where it is equal, else 0; nan, with a failure, where the comparison did not end in time.
        """
        answer = extract_final_answer(reply)
        if not answer.text:
            return Score(0.0, None, "the reply holds no answer")
        references = list_references(item)
        layouts = [_remove_layout(reference) for reference in references]
        if _remove_layout(answer.text) in layouts:
            return Score(1.0, answer.text, f"the same text as {item.reference!r} ({answer.rule})")

        # Where nothing marks the answer, math-verify looks for it itself.
        is_expression = answer.rule != "whole reply" or _is_bare_expression(answer.text)
        text = answer.text if is_expression else strip_reasoning(reply)[-2_000:]
        candidates = [
            reference
            for reference in references
            if not (is_expression and _differ_in_braces(reference, answer.text))
        ]
        outcome = self.process.compare(candidates, text, is_expression)
        if outcome.failure is not None:
            return Score(float("nan"), answer.text, "", outcome.failure)
        relation = "equal to" if outcome.equal else "not equal to"
        extracted = answer.text if is_expression else outcome.parsed
        return Score(float(outcome.equal), extracted, f"{relation} {item.reference!r}")


def _is_bare_expression(text: str) -> bool:
    """Whether a text is an expression and no prose: one line without words."""
    without_commands = re.sub(
        r"\\(?:text|mathrm|mbox)\s?\{[^{}]*\}|\\[A-Za-z]+|[{][A-Za-z]*matrix[}]", " ", text
    )
    words = re.findall(r"[A-Za-z]{2,}", without_commands)
    return "\n" not in text and len(text) <= 400 and all(word in _FUNCTIONS for word in words)


@lru_cache(maxsize=4096)
def _remove_layout(text: str) -> str:
    """Remove from a LaTeX expression what changes only its looks: blanks, \\left, \\dfrac for \\frac, \\text{...}."""
    text = clean_answer(text)
    text = re.sub(r"\\(?:left|right|displaystyle|[!,;: ])(?![A-Za-z])", "", text)
    text = re.sub(r"\\[dt]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\(?:text|textbf|mathrm|mbox)\s?\{([^{}]*)\}", r"\1", text)
    is_word = re.fullmatch(r"[A-Za-z][A-Za-z .'-]{2,}", text) is not None
    text = re.sub(r"\s+", "", text)
    return text.lower() if is_word else text


def _differ_in_braces(reference: str, answer: str) -> bool:
    """Whether one of two expressions is a set in curly braces, {1, 2}, and the other an interval or tuple, (1, 2)."""
    brackets = {_get_bracket(reference), _get_bracket(answer)}
    return brackets == {"{", "("}


def _get_bracket(text: str) -> str:
    """Tell the kind of bracket around an expression, or around what stands behind its last equals sign.

    Args:
        text: An expression in LaTeX.

    Returns:
        "{" for curly braces, "(" for round or square brackets, empty for none.
    """
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", clean_answer(text)).strip()
    text = text.rsplit("=", 1)[-1].strip()
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return "{"
    return "(" if text[:1] in ("(", "[") and text[-1:] in (")", "]") else ""
