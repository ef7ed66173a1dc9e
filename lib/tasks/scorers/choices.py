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
# A text that is nothing but a letter: "B", "(b)", "the correct answer: B."
_WHOLE = re.compile(
    r"(?:the\s+)?(?:(?:correct\s+|right\s+|best\s+)?(?:option|choice|answer|letter)\s*:?\s*)?"
    r"[(\[{]?([A-Za-z])[)\]}]?[.:,;!]?",
    re.IGNORECASE,
)
# A letter that an option begins with: "(B) ...", "B. ...", "B: ...", "B - ..."
_LABEL = re.compile(
    r"(?:(?:option|choice)\s+)?(?:\(([A-Za-z])\)|([A-Z])\s?[).:]|([A-Z])\s[-–—]\s)(?=\s|\W|$)"
)
# A bare letter that an explanation follows: "B, because ...", "B is correct"
_BARE_START = re.compile(
    r"([A-Z])(?=\s*(?:[,;(–—]|(?:because|since|as|for|which|due|and not|not|with)\b|is\s+(?:the|correct|right)\b))"
)
# Letters that are not chosen: "not A", "rather than (A)", "option A is wrong"
_NEGATION = re.compile(
    r"\b(?:not|isn't|rather than|instead of|neither|nor|unlike|except|eliminat\w+|exclud\w+|rul\w+ out)\s+"
    r"(?:the\s+)?(?:option|choice|answer)?s?\s*\(?([A-Za-z])\)?(?![\w'])"
    r"|(?:\(([A-Za-z])\)|\b(?:option|choice)\s+\(?([A-Z])\)?)"
    r"\s+(?:is|was|are|would be|seems)\s+(?:not|wrong|incorrect|false|out|eliminated|excluded|ruled)\b",
    re.IGNORECASE,
)
# Two letters of which neither is chosen: "A or B", "A/B"
_ALTERNATIVES = re.compile(
    r"(?:^|[\s(*])\(?([A-Z])\)?\s*(?:/|,?\s+or\s+|,?\s+and\s+)\s*(?:option\s+|choice\s+)?\(?([A-Z])\)?(?=$|[\s).,*])"
)
# A letter in the middle of a text that is surely an option: "(B)", "option B"
_MENTION = re.compile(
    r"\(([A-Za-z])\)|\b(?:[Oo]ption|[Cc]hoice|OPTION|CHOICE)\s+\(?([A-Z])\)?(?!\w)"
)
# A bare letter at the end. "I" is left out, as it is mostly the pronoun.
_BARE_END = re.compile(r"(?:^|[\s*:])([A-HJ-Z])[.!]?$")


def extract_choice(reply: str, choices: Sequence[str] = ()) -> int | None:
    """Finds out which option a model's reply to a multiple-choice question chooses.

    Args:
        reply: The whole reply, perhaps with reasoning.
        choices: The options' texts in the order of their letters; empty where only letters are known.

    Returns:
        The option's index; None where the reply chooses none, or more than one.
    """
    # What the reply marks as its answer: by tags, a box, or a phrase such as "the answer is".
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

    # Else the end of the reply, and then its last line alone.
    lines = [line for line in visible.splitlines() if line.strip()]
    if not lines:
        return None
    for text in (visible[-4_000:], lines[-1][-400:]):
        index = read_choice(clean_answer(text), choices)
        if index is not None:
            return index
    return None


def read_choice(text: str, choices: Sequence[str] = ()) -> int | None:
    """Finds out which option of a multiple-choice question a short answer chooses, by letter or by text.

    Args:
        text: A final answer, such as "(B) 12 km".
        choices: The options' texts in the order of their letters; empty where only letters are known.

    Returns:
        The option's index; None where the answer chooses none, or it is unclear which.
    """
    # Options with a letter of their own, as in "B) 12 km", are compared without it.
    options = [_normalize(_without_label(choice)) for choice in choices]
    num_options = len(choices) or len(LETTERS)

    # The strongest sign first: the answer is a letter, or it is the text of one option.
    whole = _WHOLE.fullmatch(text.strip())
    if whole:
        return _to_index(whole.group(1), num_options)
    normalized = _normalize(text)
    if options.count(normalized) == 1:
        return options.index(normalized)
    if _is_undecided(text):
        return None

    # It begins with a letter: "B) ...", or "B, because ..." For the first, no other letter may follow.
    text = _NEGATION.sub(" ", text).strip()
    label = _LABEL.match(text)
    if label:
        index = _to_index(next(filter(None, label.groups())), num_options)
        mentions_other = any(index != mention for mention in _list_mentions(text, num_options))
        if index is not None and not mentions_other:
            return index
    bare_start = _BARE_START.match(text)
    if bare_start and not _ALTERNATIVES.match(text):
        return _to_index(bare_start.group(1), num_options)

    # It names a letter, as in "option B", or ends with one. Else it may hold the text of one option.
    mentions = _list_mentions(text, num_options)
    if mentions:
        return mentions[-1]
    bare_end = _BARE_END.search(text)
    if bare_end and _to_index(bare_end.group(1), num_options) is not None:
        return _to_index(bare_end.group(1), num_options)
    return _find_single_option(_normalize(text), options)


def _is_undecided(text: str) -> bool:
    """Whether a text names two letters as alternatives."""
    return any(match.group(1) != match.group(2) for match in _ALTERNATIVES.finditer(text[:400]))


def _list_mentions(text: str, num_options: int) -> list[int]:
    """List the indices of the options that a text names by letter, as in "(B)" or "option B", in its order."""
    letters = [next(filter(None, match.groups())) for match in _MENTION.finditer(text)]
    indices = [_to_index(letter, num_options) for letter in letters]
    return [index for index in indices if index is not None]


def _to_index(letter: str, num_options: int) -> int | None:
    """Convert the letter of an option to its index, 0 for "A" or "a"; None where there are fewer options."""
    index = LETTERS.index(letter.upper())
    return index if index < num_options else None


def _without_label(choice: str) -> str:
    """Remove the letter that an option may begin with: "12 km" for "B) 12 km"."""
    return re.sub(r"^\s*(?:\([A-Z]\)|[A-Z][).:])\s+", "", choice)


def _normalize(text: str) -> str:
    """Reduce a text to what options are compared by: lower case, single blanks, no emphasis, LaTeX signs or commas."""
    text = re.sub(r"[$\\,]", "", clean_answer(text).lower())
    text = re.sub(r"[*_`\"“”]", "", text)
    return " ".join(text.split())


def _find_single_option(normalized: str, options: Sequence[str]) -> int | None:
    """Find the only option whose text stands in an answer, as whole words.

    Args:
        normalized: The answer, as `_normalize` gives it.
        options: The options' texts, as `_normalize` gives them.

    Returns:
        The option's index; None where the answer holds no option or several.
    """
    indices = []
    # The longest option first, and what is found is taken out, so that "no" is not read in "no effect".
    for option in sorted(set(filter(None, options)), key=len, reverse=True):
        words = re.compile(rf"(?<![\w.-]){re.escape(option)}(?![\w-]|\.\d)")
        if words.search(normalized):
            indices += [index for index, text in enumerate(options) if text == option]
            normalized = words.sub("\0", normalized)
    return indices[0] if len(indices) == 1 else None
