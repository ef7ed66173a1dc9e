"""Public files of tasks, read strictly: GSM8K and MATH-500.

The files are not shipped. A file that is not what it should be is refused with its place and a remedy,
because a row that is skipped in silence changes a result that nobody looks at again. Answers are
compared as text after a few rewritings (`same_number`, `same_math`): cheap, the same everywhere, and
rather too strict than too kind. Left out: computer algebra, and tables of who was right (`lib.outcomes`).
"""

from __future__ import annotations

import codecs
import json
import os
import re
import reprlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from lib.tasks.items import Item, TaskError, tidy

LEVELS = range(1, 6)  # of MATH
_KINDS = {str: "a text", int: "a whole number"}
_ANNOTATION = re.compile(r"<<(?:(?!<<).)*?>>")  # without the second <<, a row of them would take its square of time
_NUMBER = re.compile(r"(-?)\$?((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = reprlib.Repr()  # how a message shows a value, whatever its length and depth
_SHORT.maxstring = _SHORT.maxlong = 80
_short = _SHORT.repr


# Items ---------------------------------------------------------------------------------------------


def read_gsm8k(path: str | Path) -> list[Item]:
    """Items of a GSM8K file: JSON lines {"question", "answer"}, the answer ending in a line `#### number`.

    reference: the solution without that line and without calculator annotations `<<...>>`; difficulty:
    the number of annotations, at least 1; answer: the number without thousands commas. Raises TaskError
    naming the line. Source: github.com/openai/grade-school-math (Cobbe et al. 2021), MIT.
    """
    items = []
    for place, row in _objects(Path(path), {"question": str, "answer": str}):
        steps, answer = _worked(row["answer"], place)
        reference, annotations = _ANNOTATION.subn("", steps)
        key = f"gsm8k/{tidy(row['question'])}"
        items.append(Item(row["question"], answer, reference.strip(), "gsm8k", max(1, annotations), key))
    return items


def read_math500(path: str | Path) -> list[Item]:
    """Items of MATH-500: JSON lines {"problem", "solution", "answer", "subject", "level", "unique_id"}.

    category: the subject; difficulty: the level, 1 to 5; reference: the solution as it stands, LaTeX.
    Raises TaskError naming the line. Source: github.com/openai/prm800k (Lightman et al. 2023), a split
    of MATH (Hendrycks et al. 2021), MIT.
    """
    kinds: dict[str, type] = dict.fromkeys(("problem", "solution", "answer", "subject", "unique_id"), str)
    items = []
    for place, row in _objects(Path(path), {**kinds, "level": int}):
        if row["level"] not in LEVELS:
            raise TaskError(f"{place}: level {_short(row['level'])} must lie in 1 to 5; correct it")
        key = f"math500/{row['unique_id']}"
        items.append(Item(row["problem"], row["answer"], row["solution"], row["subject"], row["level"], key))
    return items


def _worked(text: str, place: str) -> tuple[str, str]:
    """The steps of a GSM8K solution, and the number of its last line."""
    steps, mark, number = text.rstrip().rpartition("####")
    if not mark or not (steps == "" or steps.endswith("\n")):
        raise TaskError(f"{place}: no line `#### number` in the answer {_short(text)}; end the solution with one")
    digits = _digits(number)
    if digits is None:
        raise TaskError(f"{place}: {_short(number.strip())} behind #### is not a number; write digits alone")
    return steps, digits


def _objects(path: Path, kinds: dict[str, type]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place; keys and types are those of `kinds`."""
    for line, text in enumerate(_text(path).split("\n"), start=1):  # splitlines would cut at U+2028 in a text
        if text.strip():
            place = f"{path}, line {line}"
            row = _json(text, place)
            for name, kind in kinds.items():
                _check(row, name, kind, place)
            yield place, row


def _json(text: str, place: str) -> dict[str, Any]:
    remedy = "write one whole JSON object on each line"
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: a million opening brackets
        at = getattr(error, "pos", 0)
        raise TaskError(f"{place}: broken JSON ({error}) near {_short(text[max(0, at - 20) :])}; {remedy}") from error
    if not isinstance(row, dict):
        raise TaskError(f"{place}: {_short(text)} is not a JSON object; {remedy}")
    return row


def _check(row: dict[str, Any], name: str, kind: type, place: str) -> None:
    if name not in row:
        raise TaskError(f"{place}: no key {name!r}; found {_short(', '.join(row) or 'none')}; add it or rename one")
    value = row[name]
    if type(value) is not kind:  # not isinstance: a bool is an int
        raise TaskError(f"{place}: {name} must be {_KINDS[kind]}, got {_short(value)}; correct it")
    if kind is str and not value.strip():
        raise TaskError(f"{place}: {name} is empty, got {value!r}; fill it or delete the line")
    if kind is str and _SURROGATE.search(value):
        raise TaskError(f"{place}: {name} holds half a character, {_short(value)}; write the text in UTF-8")


# Text ----------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    """A file's text; a byte order mark is dropped, line ends stay."""
    data = _content(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"{path}, line {_line(data, error.start)}"
        raise TaskError(f"{place}: not UTF-8, byte 0x{data[error.start]:02x}; save the file as UTF-8") from error
    if "\0" in text:
        place = f"{path}, line {_line(data, data.index(0))}"
        raise TaskError(f"{place}: a NUL byte, 0x00; save the file as plain UTF-8 text")
    if not text.strip():
        raise TaskError(f"{path}: the file is empty; fetch it again")
    return text


def _content(path: Path) -> bytes:
    if not os.path.isfile(path):  # Path.is_file raises where a folder on the way is closed
        raise TaskError(f"{path}: no such file; check the path, or fetch the data")
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


# Answers -------------------------------------------------------------------------------------------


def same_number(expected: str, given: str) -> bool:
    """Whether two texts are one number: "1,000", "1000", "1000.0" and "$1000" are.

    Strict otherwise: a text with anything around the number ("12 apples", "12.") is no number, and
    nothing equals it.
    """
    value = _value(expected)
    return value is not None and value == _value(given)


def _value(text: str) -> Decimal | None:
    digits = _digits(text)
    return None if digits is None else Decimal(digits)


def _digits(text: str) -> str | None:
    """A number without its commas and dollar sign; None where the text is not a number alone."""
    found = _NUMBER.fullmatch(text.strip())
    return found[1] + found[2].replace(",", "") if found else None


def boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{...}`; None where there is none or its brace is never closed."""
    starts = [found.end() for found in re.finditer(r"\\boxed\s*\{", text)]
    depth = 1
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, *starts[-1:]) if starts else ():
        depth += {"{": 1, "}": -1}.get(found[0], 0)  # \{ and \} are signs, not braces
        if depth == 0:
            return text[starts[-1] : found.start()]
    return None


_TOKEN = r"([0-9A-Za-z]|\\(?!frac|sqrt|text|mbox)[A-Za-z]+)"
_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_REWRITINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right)(?![A-Za-z])", ""),
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r",\\! ?(?=[0-9]{3}(?![0-9]))", ""),  # how MATH writes thousands
        (r"(?<!\\)\\[!,]", ""),
        (r"(?<!\\)\\[;: ]", " "),
        (r"(?<!\\)\$", ""),
        (r"^ ?\\\$(.*?)\.? ?$", r"\1\\text{dollars}"),  # a unit too, or $5 would equal 5 cents
        (r"\\\$", ""),
        (r"\^ ?(?:\\circ(?![A-Za-z])|\{ ?\\circ ?\})", r"\\text{degrees}"),
    )
)
_SHAPES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:text|mbox) ?\{([^{}]*)\}", r"\1"),
        (rf"\\sqrt(?![A-Za-z]) ?{_TOKEN}", r"\\sqrt{\1}"),
        (rf"\\frac(?![A-Za-z]) ?{_TOKEN}", r"\\frac{\1}"),
        (rf"(\\frac ?{_GROUP}) ?{_TOKEN}", r"\1{\2}"),
        (r"([_^])\{ ?([0-9A-Za-z]) ?\}", r"\1\2"),
        (r"(?<![0-9]) | (?![0-9])", ""),  # a blank between two digits counts
    )
)
_UNIT = re.compile(
    r" ?\\(?:text|mbox) ?\{ ?((?:(?:square|cubic) )?[A-Za-z]+\.?(?: per [a-z]+)?) ?\}(?:\^\{?([0-9])\}?)?$"
)
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")


def same_math(expected: str, given: str) -> bool:
    r"""Whether two MATH answers are one text after rewriting; no computer algebra.

    What does not count: white space, `\left` and `\right`, `\dfrac` or `\tfrac` for `\frac`, braces as in
    `\frac12`, `\sqrt2` and `x^{2}`, `\!` and `\,`, `$`, a last period, `\text{...}` around words, commas
    between the thousands of a whole answer, and a unit of a number (`\text{ cm}^2`, `^\circ`, `\$`) that
    only one of the two names. It errs towards 'wrong': equal values in other forms (`1/2`, `0.5`, `\frac{2}{4}`;
    `x=5`, `5`; a list in another order) are different.
    """
    (value, unit), (other, second) = _normal(expected), _normal(given)
    return value == other != "" and (unit == second or not (unit and second))


def _normal(text: str) -> tuple[str, str]:
    """The rewritten value of an answer and its unit, "" where it has none."""
    text = tidy(text)
    for pattern, replacement in _REWRITINGS:
        text = pattern.sub(replacement, text)
    text, unit = _without_unit(tidy(text).removesuffix(".").rstrip())
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    for pattern, replacement in _SHAPES:
        text = pattern.sub(replacement, text)
    return text.strip(), unit


def _without_unit(text: str) -> tuple[str, str]:
    r"""A number and the unit behind it; a text of words alone, as `\text{even}`, has no unit."""
    found = _UNIT.search(text)
    if not found or not re.search("[0-9]", text[: found.start()]):
        return text, ""
    return text[: found.start()], tidy(found[1]).removesuffix(".") + (found[2] or "")
