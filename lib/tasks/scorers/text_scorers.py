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
    """Normalizes a text as SQuAD's evaluator does: lower case, no ASCII punctuation, no articles, single blanks.

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
        """Scores a reply by its final answer, which must equal the reference but for case, punctuation and articles.

        Args:
            item: A question with its reference answer and accepted alternatives.
            reply: A model's whole reply.

        Returns:
            1 where it equals one of them, else 0.
        """
        answer = extract_final_answer(reply)
        # Where nothing marks the final answer, the last line may be it as well as the whole reply.
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
    """Reduce an answer to what exact match compares: SQuAD's normal form, but with the signs in numbers.

    Args:
        text: An answer.

    Returns:
        Its normal form; the text in lower case where nothing else would be left of it.
    """
    text = unicodedata.normalize("NFKC", text)
    # Control characters stand for decimal points and minus signs while punctuation is removed.
    protected = _SIGNS_IN_NUMBERS.sub(lambda sign: "\1" if sign.group() == "." else "\2", text)
    # SQuAD's rule removes ASCII punctuation. Here other quotation marks and signs (Pi, Pf, Po) go, too, and dashes (Pd)
    # become blanks.
    characters = []
    for character in protected:
        category = unicodedata.category(character)
        if category == "Pd" and character != "-":
            characters.append(" ")
        elif category not in ("Pi", "Pf", "Po") or character in string.punctuation:
            characters.append(character)
    form = normalize_squad_text("".join(characters))
    return form or " ".join(text.lower().split())


class ChoiceScorer(ReplyScorer):
    """1 where the reply chooses the reference's option, else 0.

    The reference (or an alternative) is a letter or an option's text. An item without choices has its options in the
    prompt; then only letters are compared.
    """

    name = "choice"

    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores a reply to a multiple-choice question by the option that it chooses.

        Args:
            item: The question, with a letter or an option's text as its reference answer.
            reply: A model's whole reply.

        Returns:
            1 where it chooses the right option, else 0.

        Raises:
            ScorerError: The reference is no letter and no option.
        """
        right_indices = {_find_option(item, reference) for reference in list_references(item)}
        index = extract_choice(reply, item.choices)
        if index is None:
            return Score(0.0, None, "the reply chooses no option, or several")
        letter = LETTERS[index]
        right_letters = " or ".join(LETTERS[right_index] for right_index in sorted(right_indices))
        explanation = f"chose {letter}; right is {right_letters}"
        return Score(float(index in right_indices), letter, explanation)


def _find_option(item: Item, reference: str) -> int:
    """Find the option of a multiple-choice question that a reference answer means.

    Args:
        item: The question with its options; without any, only letters are known.
        reference: A letter, or an option's text.

    Returns:
        The option's index.

    Raises:
        ScorerError: Where the reference is neither.
    """
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
        """Scores a reply by the F1 score of its final answer: how many words it shares with the reference.

        Args:
            item: A question with its reference answer and accepted alternatives; the best match counts.
            reply: A model's whole reply.

        Returns:
            F1, from 0 to 1; by the rules of DROP it is rounded to two places.
        """
        answer = extract_final_answer(reply).text
        references: Sequence[str | list[str]] = list_references(item)
        if self.rules == "squad":
            values = [compute_squad_f1(answer, reference) for reference in references]
        else:
            # An answer of DROP is one span of text or several.
            accepted_spans = item.metadata.get("accepted_spans")
            references = accepted_spans or [_split_spans(reference) for reference in references]
            values = [_score_drop_answer(answer, spans) for spans in references]
        best = int(np.argmax(values))
        return Score(values[best], answer or None, f"against {references[best]!r}")


def compute_squad_f1(answer: str, reference: str) -> float:
    """Computes SQuAD's F1 score of two texts from the words that they share (Rajpurkar et al. 2016, section 6.1).

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
    # 2 P R / (P + R), with P = common / words of the answer and R = common / words of the reference, is this.
    return 2 * num_common / (len(answer_words) + len(reference_words))


def _split_spans(reference: str) -> list[str]:
    """Split a reference answer of DROP into its spans, at line ends, semicolons and bars."""
    return list(filter(None, _SPAN_SEPARATOR.split(reference.strip()))) or [""]


def _score_drop_answer(answer: str, spans: Sequence[str]) -> float:
    """Compute DROP's F1 score of an answer in one text against one or several reference spans.

    Args:
        answer: A model's answer; where the reference has several spans, it is split at commas, "and" and semicolons.
        spans: The reference.

    Returns:
        F1, from 0 to 1.
    """
    if len(spans) <= 1:
        return compute_drop_f1([answer], spans)
    answer_spans = [span for span in _LIST_SEPARATOR.split(answer) if span]
    return compute_drop_f1(answer_spans or [""], spans)


def compute_drop_f1(answer: str | Sequence[str], reference: str | Sequence[str]) -> float:
    """Computes the F1 score of the benchmark DROP for an answer of one or several spans (Dua et al. 2019, section 5.1).

    Every span of the answer is paired with at most one span of the reference, so that the sum of their F1 scores is
    largest; a span without a partner scores 0.

    Args:
        answer: A model's span or spans of text.
        reference: The right span or spans.

    Returns:
        The mean over the spans of whichever has more, rounded to two decimal places as in the published evaluator.
    """
    answer_words = _list_words_of_spans(answer)
    reference_words = _list_words_of_spans(reference)
    scores = np.zeros((len(reference_words), len(answer_words)))  # (reference spans, answer spans)
    for i, words_of_reference_span in enumerate(reference_words):
        for j, words_of_answer_span in enumerate(answer_words):
            scores[i, j] = _compute_span_f1(words_of_answer_span, words_of_reference_span)

    # The assignment minimizes costs, so the scores enter with a minus sign.
    paired_references, paired_answers = linear_sum_assignment(-scores)
    aligned_scores = np.zeros(max(len(answer_words), len(reference_words)))
    aligned_scores[paired_references] = scores[paired_references, paired_answers]
    return float(np.round(np.mean(aligned_scores), 2))


def _list_words_of_spans(spans: str | Sequence[str]) -> list[set[str]]:
    """List the set of normalized words of each span; a text alone is one span."""
    spans = [spans] if isinstance(spans, str) else spans
    return [set(normalize_drop_text(span).split()) for span in spans]


def _compute_span_f1(answer: set[str], reference: set[str]) -> float:
    """Compute the F1 score of one span of an answer of DROP.

    Args:
        answer: Words of the answer's span.
        reference: Words of the reference's span.

    Returns:
        The harmonic mean of precision and recall; 0 where the reference has numbers and the answer none of them.
    """
    reference_numbers = {word for word in reference if _is_number(word)}
    if reference_numbers and not reference_numbers & answer:
        return 0.0
    num_common = len(answer & reference)
    precision = num_common / len(answer) if answer else 1.0
    recall = num_common / len(reference) if reference else 1.0
    if precision + recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def normalize_drop_text(text: str) -> str:
    """Normalizes a text as DROP's evaluator does: SQuAD's rules word by word, and numbers as floating point numbers.

    Args:
        text: An answer.

    Returns:
        The normalized answer.
    """
    words = [_normalize_drop_word(word) for word in re.split(" |-", text)]
    return " ".join(word for word in words if word)


def _normalize_drop_word(word: str) -> str:
    """Normalize a word as DROP's evaluator does: "12.0" for "12" and "$12", "" for "the"."""
    word = word.lower()
    if not _is_number(word):
        word = word.translate(_PUNCTUATION)
    if _is_number(word):
        word = str(float(word))
    return " ".join(_ARTICLES.sub(" ", word).split())


def _is_number(word: str) -> bool:
    """Whether Python's float reads a word, as in DROP's evaluator."""
    try:
        float(word)
    except ValueError:
        return False
    return True
