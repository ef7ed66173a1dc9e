"""Which option of a multiple-choice question a reply chooses.

The final answer is read first (`extraction`). In it, or in the whole reply where nothing marks an answer, one of these
decides, strongest first: it is a letter, "(B)", "B." or "option B"; it is the text of an option; it begins with
"B) ..." or "B: ..."; it names one letter in such a form; it ends with a bare letter; the text of exactly one
option stands in it. Letters behind "not" and "rather than" are not chosen, and "A or B" chooses nothing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from lib.tasks.scorers.extraction import clean_answer, find_final_answers, strip_reasoning

LETTERS = string.ascii_uppercase
_WHOLE = re.compile(
    r"(?:the\s+)?(?:(?:correct\s+|right\s+|best\s+)?(?:option|choice|answer|letter)\s*:?\s*)?"
    r"[(\[{]?([A-Za-z])[)\]}]?[.:,;!]?",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:(?:option|choice)\s+)?(?:\(([A-Za-z])\)|([A-Z])\s?[).:]|([A-Z])\s[-–—]\s)(?=\s|\W|$)"
)
_BARE_START = re.compile(
    r"([A-Z])(?=\s*(?:[,;(–—]|(?:because|since|as|for|which|due|and not|not|with)\b|is\s+(?:the|correct|right)\b))"
)
_NEGATION = re.compile(
    r"\b(?:not|isn't|rather than|instead of|neither|nor|unlike|except|eliminat\w+|exclud\w+|rul\w+ out)\s+"
    r"(?:the\s+)?(?:option|choice|answer)?s?\s*\(?([A-Za-z])\)?(?![\w'])"
    r"|(?:\(([A-Za-z])\)|\b(?:option|choice)\s+\(?([A-Z])\)?)"
    r"\s+(?:is|was|are|would be|seems)\s+(?:not|wrong|incorrect|false|out|eliminated|excluded|ruled)\b",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(
    r"(?:^|[\s(*])\(?([A-Z])\)?\s*(?:/|,?\s+or\s+|,?\s+and\s+)\s*(?:option\s+|choice\s+)?\(?([A-Z])\)?(?=$|[\s).,*])"
)
_MENTION = re.compile(
    r"\(([A-Za-z])\)|\b(?:[Oo]ption|[Cc]hoice|OPTION|CHOICE)\s+\(?([A-Z])\)?(?!\w)"
)
_BARE_END = re.compile(r"(?:^|[\s*:])([A-HJ-Z])[.!]?$")


def extract_choice(reply: str, choices: Sequence[str] = ()) -> int | None:
    """The option that a reply chooses.

    Args:
        reply: A model's whole text.
        choices: The options' texts in the order of their letters; empty where only letters are known.

    Returns:
        The option's index; None where the reply chooses none, or more than one.
    """
    answers = find_final_answers(reply)
    for answer in answers:
        index = read_choice(answer.text, choices)
        if index is not None:
            return index
    # Tags and boxes are the answer, whatever they hold; a phrase may announce what comes later.
    if answers and answers[0].rule != "phrase":
        return None
    visible = strip_reasoning(reply)
    if answers and _is_undecided(answers[0].text):
        return None

    lines = [line for line in visible.splitlines() if line.strip()]
    if not lines:
        return None
    for text in (visible[-4_000:], lines[-1][-400:]):
        index = read_choice(clean_answer(text), choices)
        if index is not None:
            return index
    return None


def read_choice(text: str, choices: Sequence[str] = ()) -> int | None:
    """The option that a short text chooses.

    Args:
        text: A final answer, such as "(B) 12 km".
        choices: The options' texts in the order of their letters; empty where only letters are known.

    Returns:
        The option's index; None where it is none or unclear.
    """
    # Options with a letter of their own, as in "B) 12 km", are compared without it.
    options = [_normalize(_without_label(choice)) for choice in choices]
    num_options = len(choices) or len(LETTERS)

    whole = _WHOLE.fullmatch(text.strip())
    if whole:
        return _to_index(whole.group(1), num_options)
    normalized = _normalize(text)
    if options.count(normalized) == 1:
        return options.index(normalized)
    if _is_undecided(text):
        return None

    text = _NEGATION.sub(" ", text).strip()
    label = _LABEL.match(text)
    if label:
        index = _to_index(next(filter(None, label.groups())), num_options)
        is_last = not any(index != mention for mention in _list_mentions(text, num_options))
        if index is not None and is_last:
            return index
    bare = _BARE_START.match(text)
    if bare and not _ALTERNATIVES.match(text):
        return _to_index(bare.group(1), num_options)

    mentions = _list_mentions(text, num_options)
    if mentions:
        return mentions[-1]
    bare = _BARE_END.search(text)
    if bare and _to_index(bare.group(1), num_options) is not None:
        return _to_index(bare.group(1), num_options)
    return _find_single_option(_normalize(text), options)


def _is_undecided(text: str) -> bool:
    """Whether a text names two letters as alternatives."""
    return any(match.group(1) != match.group(2) for match in _ALTERNATIVES.finditer(text[:400]))


def _list_mentions(text: str, num_options: int) -> list[int]:
    """The options that a text names by letter, in its order."""
    letters = [next(filter(None, match.groups())) for match in _MENTION.finditer(text)]
    indices = [_to_index(letter, num_options) for letter in letters]
    return [index for index in indices if index is not None]


def _to_index(letter: str, num_options: int) -> int | None:
    index = LETTERS.index(letter.upper())
    return index if index < num_options else None


def _without_label(choice: str) -> str:
    return re.sub(r"^\s*(?:\([A-Z]\)|[A-Z][).:])\s+", "", choice)


def _normalize(text: str) -> str:
    """Lower case, one blank between words, no emphasis and no period at the end."""
    text = clean_answer(text).lower().replace("$", "").replace("\\", "").replace(",", "")
    return " ".join(re.sub(r"[*_`\"“”]", "", text).split())


def _find_single_option(normalized: str, options: Sequence[str]) -> int | None:
    """The option whose text stands in a text as whole words, where there is exactly one."""
    indices = []
    # The longest first, and each is taken out, so that "no" is not read in "no effect".
    for option in sorted(set(filter(None, options)), key=len, reverse=True):
        words = re.compile(rf"(?<![\w.-]){re.escape(option)}(?![\w-]|\.\d)")
        if words.search(normalized):
            indices += [index for index, text in enumerate(options) if text == option]
            normalized = words.sub("\0", normalized)
    return indices[0] if len(indices) == 1 else None
