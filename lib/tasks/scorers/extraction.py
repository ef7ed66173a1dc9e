r"""The final answer of a reply.

The order of precedence, strongest first; within one rule, the last match counts:

1. Only the text behind the last closing think tag is read. Thought that never ends holds no answer.
2. What stands in the last `<answer> ... </answer>`.
3. What stands in the last `\boxed{...}` or `\fbox{...}` whose brace is closed, without `\text{...}` around all of it.
4. `#### x`, where x begins like a number, or where it is the last line. Otherwise it is a heading.
5. "The (final) answer is x", "Answer: x", "**Answer:** x", and x below a heading "Answer". It ends with its line or
   sentence. "The answer is not x", "this answer" and hopes ("I hope the answer is clear") say nothing.
6. Without any of these, what a scorer takes: the last number, the last line, all of it, or what `choices` reads.

Inside tags and boxes the rules are applied once more, so `<answer>The answer is 5.</answer>` is 5. An opening brace or
tag that is never closed, with what follows on its line, was cut off and is not read. Empty boxes and tags say nothing.
Emphasis, quotation marks, math delimiters and a trailing period are removed from the answer.

All of it takes time linear in the length of a reply. Left out: markers in other languages than English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lib.tasks.scorers.quantity import Quantity, read_last_quantity, read_quantity

__all__ = [
    "FinalAnswer", "clean_answer", "extract_final_answer", "extract_number", "find_final_answers", "read_score",
    "strip_reasoning",
]  # fmt: skip

_THINK_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_THINK_START = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,3}\{|\\.|[{}]", re.DOTALL)
_HASHES = re.compile(r"#### ?([^\n#][^\n]{0,400})")
_STARTS_LIKE_A_NUMBER = re.compile(r"\\?[$€£¥]?\s?[-+−]?\s?\\?[$€£¥]?\.?\d")

_LINE = 400  # characters of a line that are read before and behind "answer"
_MAX_PHRASES = 200  # that are looked at, from the end of a reply
_ANSWER_WORD = re.compile(
    r"\b(?:answer|(?:correct|right|best)[ \t]{1,3}(?:option|choice))\b", re.IGNORECASE
)
_LAST_WORD = re.compile(r"(\w+)[ \t]*$")
# Behind "answer": perhaps a choice of words, then a verb or a colon.
_STATEMENT = re.compile(
    r"[*_`\"]*(?:[ \t]+(?:choice|option|here))?(?:[ \t]*\([^)\n]{0,40}\))?"
    r"(?:[ \t]+(?:to|for|of|in)\b[^.:\n]{0,100}?)?"
    r"[*_`\" \t]*(?:(?P<verb>\b(?:is|are|would be|should be|must be|will be|equals)\b)|[:：=])"
    r"[*_` \t]*(?:[:：]|therefore\b|thus\b|simply\b|just\b|equal to\b)?[*_` \t]*(?P<content>.*)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"[ \t#>*_]*(?:the |my )?(?:final |correct )?answer[*_: \t]*", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"(?:not\b|n't|either\b.*\bor\b|clear\b|correct\b|wrong\b|right\b)", re.IGNORECASE
)
_OTHER_ANSWER = {
    *("this", "that", "an", "any", "each", "every", "no", "which", "what", "whose", "his", "her", "their"),
    *("wrong", "incorrect", "first", "previous", "another", "to", "can", "cannot", "possible", "not"),
}  # fmt: skip
_SENTENCE_END = re.compile(r"(\S*)[.!?][*_)\"'`]*[ \t]+(?=[A-Z*(\"])")
_ABBREVIATIONS = {
    *("mr", "mrs", "ms", "dr", "st", "vs", "no", "jr", "sr", "prof", "gen", "col", "lt", "mt", "ft", "inc"),
    *("approx", "e.g", "i.e", "u.s", "u.k", "d.c"),
}  # fmt: skip
_WRAPPERS = [("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("“", "”"), ("'", "'"),
             ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]  # fmt: skip
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boxed|fbox|emph|operatorname)\s{0,3}\{"
)


@dataclass(frozen=True)
class FinalAnswer:
    """The final answer of a reply.

    Attributes:
        text: Without tags, emphasis and trailing period.
        rule: What it was recognised by: "answer tags", "boxed", "####", "phrase", or "whole reply" where nothing marks
            an answer.
        end: Where it ends in the visible text; only phrases know.
    """

    text: str
    rule: str
    end: int = field(default=0, compare=False)


def strip_reasoning(reply: str) -> str:
    """Removes the reasoning in think tags from a reply.

    Args:
        reply: A model's whole reply.

    Returns:
        What stands behind the last closing think tag, up to a think tag that is never closed.
    """
    think_ends = list(_THINK_END.finditer(reply))
    if think_ends:
        reply = reply[think_ends[-1].end() :]
    unclosed_think = _THINK_START.search(reply)
    if unclosed_think:
        reply = reply[: unclosed_think.start()]
    return reply.strip()


def extract_final_answer(reply: str) -> FinalAnswer:
    r"""Extracts the final answer of a reply: from answer tags, a box, behind "####", or behind "the answer is".

        extract_final_answer(r"So $x = \boxed{5}$.") == FinalAnswer("5", "boxed")

    Args:
        reply: A model's whole reply.

    Returns:
        The answer, and the rule that found it; the whole reply without its reasoning where nothing marks an answer.
    """
    answers = find_final_answers(reply)
    if answers:
        return answers[0]
    return FinalAnswer(clean_answer(strip_reasoning(reply)), "whole reply")


def find_final_answers(reply: str) -> list[FinalAnswer]:
    """Finds the passages that a reply marks as its final answer, by the strongest kind of mark that it has.

    Tags, a box and "####" mark one answer, the last of the reply. Phrases ("the answer is") can mark several, because
    some of them announce nothing that a scorer can read.

    Args:
        reply: A model's whole reply.

    Returns:
        The answers, the last of the reply first; empty where nothing marks one.
    """
    return _find_in_text(strip_reasoning(reply))


def _find_in_text(text: str, nesting: int = 0) -> list[FinalAnswer]:
    """Find the marked answers in a text, as `find_final_answers` does in a reply.

    Args:
        text: A reply without its reasoning, or the content of a mark in it.
        nesting: How many marks the text stands in.

    Returns:
        The answers, the last first.
    """
    # Both splits also return the text without marks that were cut off, which the weaker rules read.
    content, text = _split_answer_tags(text)
    rule = "answer tags"
    if content is None:
        content, text = _split_boxes(text)
        rule = "boxed"
    if content is not None:
        # Models put one mark into another: a box into tags, a phrase into a box.
        inner = _find_in_text(content, nesting + 1) if nesting < 3 else []
        answer = inner[0].text if inner else clean_answer(content)
        return [FinalAnswer(answer, rule)]

    content = _find_behind_hashes(text)
    if content is not None:
        return [FinalAnswer(clean_answer(content), "####")]
    return _find_phrases(text)


def _split_answer_tags(text: str) -> tuple[str | None, str]:
    """Find the content of the last `<answer> ... </answer>` in a text.

    Args:
        text: A reply without its reasoning.

    Returns:
        (content, remaining_text): the content of the last pair of tags that is not empty, None without one; and the
        text without an opening tag that is never closed and the line behind it.
    """
    content = None
    opening_tag = None
    for tag in _ANSWER_TAG.finditer(text):
        is_opening = not tag.group(1)
        if is_opening:
            opening_tag = tag
        elif opening_tag is not None:
            inside = text[opening_tag.end() : tag.start()]
            content = inside if inside.strip() else content
            opening_tag = None
    if opening_tag is not None:
        text = _remove_line_from(text, opening_tag.start())
    return content, text


def _split_boxes(text: str) -> tuple[str | None, str]:
    r"""Find the content of the last \boxed{...} or \fbox{...} in a text, whose braces may be nested.

    Args:
        text: A reply without its reasoning.

    Returns:
        (content, remaining_text): the content of the last box that is not empty, None without one; and the text, where
        there is no content without boxes that are never closed and the lines behind them.
    """
    content = None
    # Open boxes and braces, the innermost last: a closing brace belongs to the last of them.
    openings: list[re.Match[str]] = []
    for token in _BOX_OR_BRACE.finditer(text):
        if token.group() == "}":
            opening = openings.pop() if openings else None
            is_box = opening is not None and opening.group() != "{"
            if is_box:
                inside = text[opening.end() : token.start()]
                content = inside if inside.strip() else content
        elif token.group().endswith("{") and token.group() != r"\{":
            openings.append(token)

    unclosed_boxes = [opening.start() for opening in openings if opening.group() != "{"]
    if content is None and unclosed_boxes:
        text = _remove_lines_from(text, unclosed_boxes)
    return content, text


def _remove_line_from(text: str, position: int) -> str:
    """Remove from a text what stands from a position to the end of its line."""
    end = text.find("\n", position)
    return text[:position] + (text[end:] if end >= 0 else "")


def _remove_lines_from(text: str, positions: Sequence[int]) -> str:
    """Remove from a text what stands from each of several positions, in ascending order, to the end of its line."""
    pieces = []
    start = 0  # where the text that is kept goes on
    for position in positions:
        if position < start:  # in a line that was removed already
            continue
        pieces.append(text[start:position])
        end = text.find("\n", position)
        start = end if end >= 0 else len(text)
    return "".join([*pieces, text[start:]])


def _find_behind_hashes(text: str) -> str | None:
    """Find the answer behind the last "####" of a text, as in GSM8K; None without one, or where it marks a heading."""
    last_position = len(text.rstrip())
    for line in reversed(list(_HASHES.finditer(text))):
        content = line.group(1).strip(" *_")
        is_last_line = line.end() >= last_position
        if _STARTS_LIKE_A_NUMBER.match(content):
            return content
        if content and is_last_line and not _HEADING.fullmatch(content):
            return None if _ANSWER_WORD.search(content) else content
    return None


def _find_phrases(text: str) -> list[FinalAnswer]:
    """Find what phrases such as "the answer is ..." or a heading "Answer" announce.

    Args:
        text: A reply without its reasoning.

    Returns:
        The answers, the last of the text first; each ends with its line or sentence.
    """
    phrases = []
    for word in list(_ANSWER_WORD.finditer(text))[-_MAX_PHRASES:]:
        # "this answer", "a wrong answer" are about another answer than the final one.
        word_before = _LAST_WORD.search(text[max(0, word.start() - 20) : word.start()])
        if word_before and word_before.group(1).lower() in _OTHER_ANSWER:
            continue

        # The line that the word stands in, as far as it is read. "I hope the answer is clear" announces nothing.
        line_end = text.find("\n", word.end(), word.end() + _LINE)
        if line_end < 0:
            line_end = min(len(text), word.end() + _LINE)
        earliest = max(0, word.start() - _LINE)
        line_start = max(earliest, text.rfind("\n", earliest, word.start()) + 1)
        before = text[line_start : word.start()].lower()
        if re.search(r"\bhope\b[^.]*$", before):
            continue

        # What stands behind "is" or a colon; if that is nothing, or below a heading, the next line.
        text_behind = text[word.end() : line_end]
        statement = _STATEMENT.match(text_behind)
        content = statement.group("content") if statement else ""
        is_heading = _HEADING.fullmatch(text[line_start:line_end]) is not None
        if not content.strip(" *_:") and (statement or is_heading):
            content = _read_next_line(text, line_end)

        says_no_answer = _NO_ANSWER.match(content.strip())  # "is not 5", "is correct"
        if content.strip() and not says_no_answer:
            sentence = clean_answer(_cut_sentence(content))
            phrases.append(FinalAnswer(sentence, "phrase", line_end))
    return [phrase for phrase in reversed(phrases) if phrase.text]


def _read_next_line(text: str, position: int) -> str:
    """Read the next line behind a position that is not empty; a LaTeX display formula counts as one line."""
    remaining = text[position : position + 3 * _LINE].lstrip()
    for opening, closing in (("$$", "$$"), (r"\[", r"\]")):
        if remaining.startswith(opening):
            end = remaining.find(closing, len(opening))
            if end > 0:
                return remaining[len(opening) : end]
    return remaining.split("\n", 1)[0]


def _cut_sentence(text: str) -> str:
    """Cut a text behind its first sentence. The points of initials and abbreviations (J., Dr., e.g.) end none."""
    for end in _SENTENCE_END.finditer(text):
        last_word = end.group(1).strip("*_(\"'$").lower()
        is_initial = len(last_word) == 1 and last_word.isalpha()
        is_abbreviation = last_word in _ABBREVIATIONS or re.search(r"\.[a-z]$", last_word)
        if not is_initial and not is_abbreviation:
            return text[: end.end(1) + 1]
    return text


def clean_answer(text: str) -> str:
    """Strips an answer of what surrounds it: emphasis, quotation marks, math delimiters, a trailing period.

    Args:
        text: An answer, for example "**$5$**.".

    Returns:
        The bare answer, "5"; a text of nothing but such marks is returned as it is.
    """
    text = text[:20_000]
    original = text.strip()
    # Each round takes one layer; nobody writes twenty.
    for _ in range(20):
        previous = text
        text = _strip_one_layer(text)
        if text == previous:
            break
    return text or original


def _strip_one_layer(text: str) -> str:
    """Strip an answer of its outermost marks: a colon, a period, one pair of delimiters of each kind."""
    text = text.strip().removeprefix(":").strip()
    text = _strip_period(text)
    for opening, closing in _WRAPPERS:
        text = _unwrap(text, opening, closing)
    text = _unwrap_command(text)
    # Emphasis that began before the answer ends behind it.
    for mark in ("**", "__", "`", "*"):
        if text.count(mark) == 1:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    return _strip_period(text)


def _strip_period(text: str) -> str:
    """Remove a period from the end of a text, but no ellipsis."""
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1].rstrip()
    return text


def _unwrap(text: str, opening: str, closing: str) -> str:
    """Remove a pair of marks, such as quotation marks, that encloses all of a text; else return the text as it is."""
    long_enough = len(text) > len(opening) + len(closing)
    if not (long_enough and text.startswith(opening) and text.endswith(closing)):
        return text
    inside = text[len(opening) : -len(closing)]
    # "$5$ or $6$" is not one formula.
    return text if opening in inside or closing in inside else inside


def _unwrap_command(text: str) -> str:
    r"""Return the content of a LaTeX command such as \text{...} that encloses all of a text; else the text as it is."""
    command = _TEXT_COMMAND.match(text)
    if not command or not text.endswith("}"):
        return text
    # The last brace must close the command: at no point may more braces be closed than opened.
    depth = 0
    inside = text[command.end() : -1]
    for brace in re.finditer(r"\\.|[{}]", inside, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth < 0:
            return text
    return inside if depth == 0 else text


def extract_number(reply: str) -> Quantity | None:
    """Extracts the number, with its unit, that a reply to a question gives as its answer.

    Args:
        reply: A model's whole reply.

    Returns:
        The number of the final answer; where only phrases mark one and none of them holds a number, the last number
        behind them; where nothing marks one, the last number of the reply. None where there is no such number.
    """
    text = strip_reasoning(reply)
    answers = _find_in_text(text)
    for answer in answers:
        quantity = read_quantity(answer.text)
        if quantity is not None:
            return quantity
    complete_text = _remove_cut_off(text)
    if not answers:
        return read_quantity(text) if _is_bare_number(text) else read_last_quantity(complete_text)
    if answers[0].rule != "phrase":
        return None
    # A phrase such as "The answer is below." stands before the answer.
    return read_last_quantity(complete_text[answers[0].end :])


def _is_bare_number(text: str) -> bool:
    """Whether a whole reply is one number or expression, perhaps with its unit, and no prose."""
    num_words = len(re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", text[:200]))
    return len(text) <= 80 and num_words <= 2 and re.search(r"[,:;.!?]\s", text) is None


def _remove_cut_off(text: str) -> str:
    """Remove answer tags and boxes that are never closed, with the line behind them, as the model was cut off there."""
    _, text = _split_answer_tags(text)
    _, text = _split_boxes(text)
    return text


_JSON_SCORE = re.compile(
    r"[\"'](?:overall[_ ])?(?:score|rating|grade|verdict)[\"']\s{0,5}:\s{0,5}[\"']?([^\"',}\n]{1,40})",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?<!max )(?<!maximum )(?<!possible )\b(?:score|rating|grade|verdict|result|judge?ment)\b[*_\"]{0,3}"
    r"(?:\s{0,2}\([^)\n]{0,40}\))?[*_]{0,3}\s{0,3}(?:[:=]|\bis\b|\bof\b)\s{0,3}(?P<content>[^\n]{1,80})",
    re.IGNORECASE,
)
_GRADE = re.compile(
    r"(?<![\w.,/-])(?P<points>\d{1,6}(?:[.,]\d{1,12})?|\.\d{1,12})(?![\w]|[.,]\d)"
    r"(?:\s{0,2}(?P<percent>\\?%)|\s{0,2}\(?(?:/|out of)\s{0,2}(?P<most>\d{1,6}(?:\.\d{1,3})?)(?![\w]|[.,]\d))?"
)
_RANGE = re.compile(
    r"\b(?:from|between)\s+\d\S*\s+(?:to|and)\s+\d[\d.]*|\(?\b(?:0(?:\.0)?\s?[-–]\s?1(?:\.0)?)\b\)?"
    r"|\(?\b(?:out of|of|max\.?|maximum(?: of)?)\s+1(?:\.0)?\b(?![\d.])\)?"
    r"|\bmax(?:imum|imal)?\b[^\n\d]{0,30}\d[\d.]*"
)
_VERDICTS = {
    **dict.fromkeys(("correct", "right", "true", "yes", "pass", "passed"), 1.0),
    **dict.fromkeys(("incorrect", "wrong", "false", "no", "fail", "failed", "not correct"), 0.0),
}


def read_score(text: str) -> float | None:
    """Reads the grade, from 0 to 1, in the reply of a language model that judges an answer.

        read_score("It is right, but vague.\\n**Score:** 8/10") == 0.8

    Read in this order: a "score" in JSON; tags or a box; the last "Score: ..."; the only grade of the text. A grade is
    a number from 0 to 1, a share of a number (8/10, 4 out of 5) or a percentage; 0,8 is 0.8. In each of these
    places a verdict alone (correct, wrong, yes, no) is 1 or 0.

    Args:
        text: A judge's whole reply.

    Returns:
        A number from 0 to 1. None where there is none, several without a label, or one on a scale that is not said:
        "Score: 8" is no grade.
    """
    visible = strip_reasoning(text)[-20_000:]
    in_json = _JSON_SCORE.findall(visible)
    if in_json:
        return _read_grade(in_json[-1])
    boxes = [answer for answer in find_final_answers(visible) if answer.rule != "phrase"]
    if boxes:
        return _read_grade(boxes[0].text)
    labels = list(_LABEL.finditer(visible))
    if labels:
        content = labels[-1].group("content")
        # Behind the label the grade comes first, and reasons with numbers may follow.
        leading = _GRADE.match(clean_answer(content).lstrip("*[(\"' "))
        is_range = re.match(r"[^\n]{0,12}\d\s?(?:[-–]|to\b)\s?\d", content) is not None  # 0-1
        return _to_share(leading) if leading and not is_range else _read_grade(content)
    return _read_grade(visible)


def _read_grade(text: str) -> float | None:
    """Read the grade in a short text that holds one number, or a verdict alone ("correct", "no").

    Args:
        text: What a judge wrote as its grade, or its whole reply.

    Returns:
        A number from 0 to 1; None where there are several numbers, a range, or one on an unknown scale.
    """
    text = clean_answer(text).strip("[](){}\"' ")
    verdict = _VERDICTS.get(text.split(".")[0].strip("*_ ").lower())
    if verdict is not None:
        return verdict
    # "8 out of 10" begins with its number; elsewhere a scale may stand before the grade.
    without_scale = text if re.match(r"\d", text) else _RANGE.sub(" ", text)
    is_range = re.search(r"\d\s?(?:[-–]|to\b)\s?\d", without_scale) is not None
    grades = list(_GRADE.finditer(without_scale))
    if is_range or len(grades) != 1:
        return None
    is_negative = re.search(r"[-−]\s?$", without_scale[: grades[0].start()]) is not None
    if is_negative:
        return None
    return _to_share(grades[0])


def _to_share(grade: re.Match[str]) -> float | None:
    """Convert a grade to a number from 0 to 1: .8 for "8/10", "80 %" and "0.8".

    Args:
        grade: A match of _GRADE: points, perhaps with a percent sign or the most that there are.

    Returns:
        The share; None for "8", as its scale is not said.
    """
    points = float(grade.group("points").replace(",", "."))
    most = 1.0
    if grade.group("percent"):
        most = 100.0
    if grade.group("most"):
        most = float(grade.group("most"))
    return points / most if most > 0 and points <= most else None
