"""Public files of tasks, read strictly: GSM8K, MATH-500, and tables of which model answers what right.

The files are not shipped. A file that is not what it should be is refused with its place and a remedy,
because a row that is skipped in silence changes a result that nobody looks at again. Answers are
compared as text after a few rewritings (`same_number`, `same_math`): cheap, the same everywhere, and
rather too strict than too kind. Left out: computer algebra, and items from the RouteLLM tables, which
tell who was right but not what was.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import re
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from lib import seeds
from lib.tasks.items import Item, TaskError, tidy

WEAK = "mistralai/Mixtral-8x7B-Instruct-v0.1"  # the two models of the RouteLLM tables
STRONG = "gpt-4-1106-preview"
LEVELS = range(1, 6)  # of MATH
_KINDS = {str: "a text", int: "a whole number"}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
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


# Tables of outcomes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcomes:
    """Which model answers which of n prompts right.

    prompts: n texts; groups: (n,) str, such as subjects; models: m names; correct: (n, m) bool; cost: (n, m)
    dollars per prompt; latency: (n, m) seconds; either is None where the file does not tell.
    """

    prompts: tuple[str, ...]
    groups: np.ndarray
    models: tuple[str, ...]
    correct: np.ndarray
    cost: np.ndarray | None = None
    latency: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def subset(self, mask: np.ndarray) -> Outcomes:
        """The prompts where mask, (n,) bool, is true. Raises TaskError for a mask of another type or shape."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (len(self),):
            raise TaskError(f"a mask must be {len(self)} booleans, got {mask.dtype} of shape {mask.shape}")
        return replace(
            self,
            prompts=tuple(prompt for prompt, keep in zip(self.prompts, mask, strict=True) if keep),
            groups=self.groups[mask],
            correct=self.correct[mask],
            cost=None if self.cost is None else self.cost[mask],
            latency=None if self.latency is None else self.latency[mask],
        )

    def split(self, seed: int, test_share: float) -> tuple[Outcomes, Outcomes]:
        """Training and test part; a group lies on one side as a whole.

        Groups are drawn in random order until the test part is as near to test_share of the prompts as
        whole groups allow; neither side is empty. A prompt that stands in two groups may lie on both
        sides: see `duplicates`. Raises TaskError for fewer than two groups or a share outside (0, 1).
        """
        names, sizes = np.unique(self.groups, return_counts=True)
        if len(names) < 2:
            raise TaskError(f"{len(names)} group cannot be split; add a column group, or choose prompts with subset")
        if not 0 < test_share < 1:
            raise TaskError(f"test_share must lie between 0 and 1, got {test_share!r}")
        order = seeds.rng("tasks", "outcomes", "split", seed=seed).permutation(len(names))
        filled = np.cumsum(sizes[order])[:-1]
        nearest = int(np.abs(filled - test_share * len(self)).argmin())
        test = np.isin(self.groups, names[order[: nearest + 1]])
        return self.subset(~test), self.subset(test)

    def duplicates(self) -> int:
        """How many different prompts, but for white space, stand in two groups or more."""
        found: dict[str, set[str]] = {}
        for prompt, group in zip(self.prompts, self.groups.tolist(), strict=True):
            found.setdefault(tidy(prompt), set()).add(group)
        return sum(len(groups) > 1 for groups in found.values())


def read_outcomes(path: str | Path, models: Sequence[str] | None = None) -> Outcomes:
    """A table of outcomes, comma-separated: prompt, [group], and for each model NAME the columns
    NAME (true, false, 1 or 0), [NAME.cost] (dollars) and [NAME.latency] (seconds).

    models: which to read, in this order; None: all, and then every other column must be one of those
    above, or the text NAME_response, which is ignored. Without a column group the file's name without
    .csv is the group of all. Costs and latencies are told for every model or for none. Raises TaskError
    naming the file and the line where the row starts.
    """
    path = Path(path)
    rows = _rows(path)
    place, names = next(rows)
    header = [name.strip() for name in names]
    columns = _columns(header, models, place)
    prompts, groups, values = [], [], {kind: [] for kind in columns.cells}
    for place, row in rows:
        _complete(row, header, place)
        prompts.append(_told(row[columns.prompt], "prompt", place))
        groups.append(path.stem if columns.group is None else _told(row[columns.group].strip(), "group", place))
        for kind, at in columns.cells.items():
            read = _truth if kind == "correct" else _amount
            values[kind].append([read(row[i].strip(), f"{place}: {header[i]}") for i in at])
    if not prompts:
        raise TaskError(f"{path}: no rows below the header; write one row per prompt")
    arrays = {kind: np.array(cells) for kind, cells in values.items()}
    return Outcomes(tuple(prompts), np.array(groups), columns.models, **arrays)


def read_routellm(path: str | Path, weak: str = WEAK, strong: str = STRONG) -> Outcomes:
    """Outcomes of two models, in the order (weak, strong), from a RouteLLM table or a folder of them.

    The group of a prompt is its subject: the file's name without `mmlu_` and `.csv`. Raises TaskError as
    `read_outcomes` does, and for a folder without csv files. Source: github.com/lm-sys/RouteLLM (Ong et
    al. 2024), Apache-2.0.
    """
    path = Path(path)
    if not os.path.isdir(path):
        return _subject(path, weak, strong)
    files = sorted(path.glob("*.csv"))
    if not files:
        raise TaskError(f"{path}: no csv file in this folder; name the folder that holds them")
    tables = [_subject(file, weak, strong) for file in files]
    return Outcomes(
        tuple(prompt for table in tables for prompt in table.prompts),
        np.concatenate([table.groups for table in tables]),
        (weak, strong),
        np.concatenate([table.correct for table in tables]),
        _stacked([table.cost for table in tables], "costs", path),
        _stacked([table.latency for table in tables], "latencies", path),
    )


def _subject(path: Path, weak: str, strong: str) -> Outcomes:
    table = read_outcomes(path, (weak, strong))
    return replace(table, groups=np.full(len(table), path.stem.removeprefix("mmlu_")))


def _stacked(parts: list[np.ndarray | None], name: str, path: Path) -> np.ndarray | None:
    told = [part for part in parts if part is not None]
    if told and len(told) < len(parts):
        raise TaskError(f"{path}: {len(told)} of {len(parts)} files tell {name}; tell them in all or in none")
    return np.concatenate(told) if told else None


@dataclass(frozen=True)
class _Columns:
    """Where a table has what: cells[kind] are the columns of `correct`, `cost` or `latency`, one per model."""

    prompt: int
    group: int | None
    models: tuple[str, ...]
    cells: dict[str, list[int]]


def _columns(header: list[str], wanted: Sequence[str] | None, place: str) -> _Columns:
    found = f"found {_short(', '.join(header))}"
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise TaskError(f"{place}: the column {_short(repeated[0])} stands there twice; rename or delete one")
    if "prompt" not in header:
        raise TaskError(f"{place}: no column prompt; {found}; add it, and separate columns by commas")
    models = _every_model(header, place) if wanted is None else tuple(wanted)
    if not models:
        raise TaskError(f"{place}: no column of a model; {found}; add one with true or false")
    if len(set(models)) < len(models):
        raise TaskError(f"{place}: the models {', '.join(models)} are not different; name each once")
    missing = [name for name in models if name not in header]
    if missing:
        raise TaskError(f"{place}: no column of the model {_short(missing[0])}; {found}; name a model of the file")
    cells = {"correct": [header.index(name) for name in models]}
    for kind in ("cost", "latency"):
        told = [header.index(f"{name}.{kind}") for name in models if f"{name}.{kind}" in header]
        if told and len(told) < len(models):
            raise TaskError(f"{place}: {kind} of {len(told)} of {len(models)} models; tell it for all or for none")
        cells |= {kind: told} if told else {}
    return _Columns(header.index("prompt"), header.index("group") if "group" in header else None, models, cells)


def _every_model(header: list[str], place: str) -> tuple[str, ...]:
    """All columns that are neither prompt, group nor something told about a model."""
    models = []
    for name in header:
        owner, dot, kind = name.rpartition(".")
        if name in ("prompt", "group") or (name.endswith("_response") and name.removesuffix("_response") in header):
            continue
        if not (dot and kind in ("cost", "latency")):
            models.append(_told(name, "the name of a column", place))
        elif owner not in header:
            raise TaskError(f"{place}: {_short(name)} belongs to no model; add a column {_short(owner)} or delete it")
    return tuple(models)


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows of a csv file that are not blank, each with its place: the line where it starts."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    while True:
        place = f"{path}, line {reader.line_num + 1}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TaskError(f"{place}: {error}; check the quotation marks of the row that starts there") from error
        if row:
            yield place, row


def _complete(row: list[str], header: list[str], place: str) -> None:
    if len(row) != len(header):
        raise TaskError(
            f"{place}: {len(row)} cells for {len(header)} columns, {_short(', '.join(row))}; "
            "put texts that hold commas in quotation marks"
        )


def _told(text: str, name: str, place: str) -> str:
    if not text.strip():
        raise TaskError(f"{place}: {name} is empty, got {text!r}; fill it in")
    return text


def _truth(text: str, place: str) -> bool:
    if text.lower() not in _TRUTH:
        raise TaskError(
            f"{place} must be true, false, 1 or 0, got {_short(text)}; correct it, or name the models' columns alone"
        )
    return _TRUTH[text.lower()]


def _amount(text: str, place: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise TaskError(f"{place} must be a number that is not negative, got {_short(text)}; correct it")
    return amount


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
