"""Scorers that compare texts: equal answers, options of multiple-choice questions, overlap of words.

Texts are normalized as SQuAD's evaluator does it. Left out: similarity in meaning; see `judge_scorer`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from lib.tasks.item import Item
from lib.tasks.scorers.choices import LETTERS, extract_choice, read_choice
from lib.tasks.scorers.extraction import clean_answer, extract_final_answer, strip_reasoning
from lib.tasks.scorers.scorer import ReplyScorer, Score, ScorerError, list_references

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# A decimal point and a minus sign change a number, so that "3.5" must not become "35".
_SIGNS_IN_NUMBERS = re.compile(r"(?<=\d)\.(?=\d)|(?<![\w)])\.(?=\d)|(?<![\w)])[-−](?=[\d.])")
_SPAN_SEPARATOR = re.compile(r"\s*(?:\n|;|\|)\s*")
_LIST_SEPARATOR = re.compile(r"\s*(?:\n|;|\||,\s|,?\s+and\s)\s*(?:and\s)?")


def normalize_squad_text(text: str) -> str:
    """A text as SQuAD's evaluator compares it: lower case, no ASCII punctuation, no English articles, single blanks.

    Args:
        text: An answer.

    Returns:
        The normalized answer.
    """
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


class ExactScorer(ReplyScorer):
    """1 where the final answer equals the reference or one of its alternatives, else 0.

    Equality is SQuAD's, and stricter in two points in which SQuAD's takes different answers for equal: decimal points
    and minus signs of numbers count, and an answer of nothing but punctuation or an article is compared as it stands.
    Typographic punctuation is removed like ASCII's. Where nothing marks a final answer, the whole reply or its
    last line may equal the reference.
    """

    name = "exact"

    def score_reply(self, item: Item, reply: str) -> Score:
        """Whether the final answer is the reference.

        Args:
            item: With a reference.
            reply: A model's whole text.

        Returns:
            1 or 0.
        """
        answer = extract_final_answer(reply)
        candidates = [answer.text]
        lines = [line for line in strip_reasoning(reply).splitlines() if line.strip()]
        if answer.rule == "whole reply" and len(lines) > 1:
            candidates.append(clean_answer(lines[-1]))
        if not any(candidates):
            return Score(0.0, None, "the reply holds no answer")

        for reference in list_references(item):
            for candidate in candidates:
                if _to_exact_form(candidate) == _to_exact_form(clean_answer(reference)):
                    return Score(1.0, candidate, f"equals {reference!r} ({answer.rule})")
        return Score(0.0, candidates[-1], f"differs from {item.reference!r} ({answer.rule})")


def _to_exact_form(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    # Other characters stand for the signs of numbers while punctuation is removed.
    protected = _SIGNS_IN_NUMBERS.sub(lambda sign: "\1" if sign.group() == "." else "\2", text)
    ascii_punctuation = "".join(
        " " if unicodedata.category(character) == "Pd" and character != "-" else character
        for character in protected
        if unicodedata.category(character) not in ("Pi", "Pf", "Po")
        or character in string.punctuation
    )
    form = normalize_squad_text(ascii_punctuation)
    return form or " ".join(text.lower().split())


class ChoiceScorer(ReplyScorer):
    """1 where the reply chooses the reference's option, else 0.

    The reference (or an alternative) is a letter or an option's text. An item without choices has its options in the
    prompt; then only letters are compared.
    """

    name = "choice"

    def score_reply(self, item: Item, reply: str) -> Score:
        """Whether the reply chooses the right option.

        Args:
            item: With a letter or an option's text as reference.
            reply: A model's whole text.

        Returns:
            1 or 0.

        Raises:
            ScorerError: The reference is no letter and no option.
        """
        right = {_resolve_reference(item, reference) for reference in list_references(item)}
        index = extract_choice(reply, item.choices)
        if index is None:
            return Score(0.0, None, "the reply chooses no option, or several")
        letter = LETTERS[index]
        letters = " or ".join(LETTERS[option] for option in sorted(right))
        return Score(float(index in right), letter, f"chose {letter}; right is {letters}")


def _resolve_reference(item: Item, reference: str) -> int:
    """The index of the option that a reference means."""
    if len(item.choices) > len(LETTERS):
        raise ScorerError(
            f"choice: item {item.id!r} has {len(item.choices)} options; {len(LETTERS)} have letters"
        )
    # A text that is an option word by word is meant as that option, even where it could be read as a letter and text.
    if len(reference.strip()) > 1 and item.choices.count(reference) == 1:
        return item.choices.index(reference)
    index = read_choice(clean_answer(reference), item.choices)
    if index is None:
        raise ScorerError(
            f"choice: the reference {reference!r} of item {item.id!r} is no letter and no option of "
            f"{list(item.choices)}; give a letter from A on or an option's text"
        )
    return index


class F1Scorer(ReplyScorer):
    """The overlap of the words of answer and reference, at most over all references.

    Args:
        rules: "squad" counts words; "drop" demands equal numbers and aligns several spans one to one. An item of DROP
            has its spans in the metadata `accepted_spans` (a list of spans for each accepted answer), else in the
            reference, separated by semicolons or lines. Where the reference has several spans, the reply is split at
            semicolons, commas and "and".
    """

    def __init__(self, rules: Literal["squad", "drop"] = "squad") -> None:
        self.rules = rules
        self.name = "f1" if rules == "squad" else f"f1:{rules}"

    def score_reply(self, item: Item, reply: str) -> Score:
        """The F1 of the final answer.

        Args:
            item: With a reference.
            reply: A model's whole text.

        Returns:
            A number from 0 to 1; DROP rounds it to two places.
        """
        answer = extract_final_answer(reply).text
        references = list_references(item)
        if self.rules == "squad":
            values = [compute_squad_f1(answer, reference) for reference in references]
        else:
            accepted_spans = item.metadata.get("accepted_spans")
            references = accepted_spans or [_split_spans(reference) for reference in references]
            values = [_score_drop_answer(answer, spans) for spans in references]
        best = int(np.argmax(values))
        return Score(values[best], answer or None, f"against {references[best]!r}")


def compute_squad_f1(answer: str, reference: str) -> float:
    """SQuAD's F1 of the words of two texts (Rajpurkar et al. 2016, section 6.1).

    Args:
        answer: A model's answer.
        reference: The right answer.

    Returns:
        The harmonic mean of precision and recall; where one text has no words, whether both have none.
    """
    answer_words = normalize_squad_text(answer).split()
    reference_words = normalize_squad_text(reference).split()
    if not answer_words or not reference_words:
        return float(answer_words == reference_words)
    num_common = (Counter(answer_words) & Counter(reference_words)).total()
    # 2 P R / (P + R), with P and R over the numbers of words, is this.
    return 2 * num_common / (len(answer_words) + len(reference_words))


def _split_spans(reference: str) -> list[str]:
    """The spans of a DROP reference that is one text."""
    return list(filter(None, _SPAN_SEPARATOR.split(reference.strip()))) or [""]


def _score_drop_answer(answer: str, spans: Sequence[str]) -> float:
    answers = list(filter(None, _LIST_SEPARATOR.split(answer))) if len(spans) > 1 else [answer]
    return compute_drop_f1(answers or [""], spans)


def compute_drop_f1(answer: str | Sequence[str], reference: str | Sequence[str]) -> float:
    """DROP's F1 of two answers of one or several spans (Dua et al. 2019, section 5.1).

    Args:
        answer: A model's spans.
        reference: The right spans.

    Returns:
        The mean over the spans, aligned one to one so that it is largest; superfluous spans count 0. It is rounded
        to two decimal places, as in the published evaluator.
    """
    answer_bags = _make_drop_bags(answer)
    reference_bags = _make_drop_bags(reference)
    # (reference spans, answer spans)
    scores = np.array(
        [
            [_score_drop_bags(answer_bag, reference_bag) for answer_bag in answer_bags]
            for reference_bag in reference_bags
        ]
    )
    rows, columns = linear_sum_assignment(-scores)
    aligned_scores = np.zeros(max(len(answer_bags), len(reference_bags)))
    aligned_scores[rows] = scores[rows, columns]
    return float(np.round(np.mean(aligned_scores), 2))


def _make_drop_bags(spans: str | Sequence[str]) -> list[set[str]]:
    spans = [spans] if isinstance(spans, str) else spans
    return [set(normalize_drop_text(span).split()) for span in spans]


def _score_drop_bags(answer: set[str], reference: set[str]) -> float:
    numbers = set(filter(_is_number, reference))
    # A reference with numbers is missed by an answer that has none of them.
    if numbers and not numbers & answer:
        return 0.0
    num_common = len(answer & reference)
    precision = num_common / len(answer) if answer else 1.0
    recall = num_common / len(reference) if reference else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def normalize_drop_text(text: str) -> str:
    """A text as DROP's evaluator compares it: SQuAD's rules word by word, numbers as floating point numbers.

    Args:
        text: An answer.

    Returns:
        The normalized answer.
    """
    words = [_normalize_drop_word(word) for word in re.split(" |-", text)]
    return " ".join(word for word in words if word)


def _normalize_drop_word(word: str) -> str:
    word = word.lower()
    if not _is_number(word):
        word = word.translate(_PUNCTUATION)
    if _is_number(word):
        word = str(float(word))
    return " ".join(_ARTICLES.sub(" ", word).split())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
