"""The question bank: which questions there are, of which topic and level.

Reads the bank that ships with the project (id, level, topic) and the real MathE export, which is the
same table with texts beside it; texts are never kept. `calibrate` re-labels questions from observed
answers (UCI dataset 1031) with an empirical-Bayes estimate of each question's failure rate,

    difficulty_i = (failures_i + K mu_tl) / (answers_i + K),

mu_tl being the mean failure rate of the question's topic and labelled level and K = PRIOR_ANSWERS.
Left out: item response models, which would need far more answers per question than there are (a
median of 6 over the answered questions), and anything that a topic outside the 15 of MathE would need.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lib.envs.education import LEVELS
from lib.store import write_text

COLUMNS = ("id", "difficulty_level", "topic_name")
ANSWER_COLUMNS = ("Student ID", "Question ID", "Type of Answer")
PRIOR_ANSWERS = 10.0  # answers that the label's mean counts for, K: enough to tame a single answer (decision)
TOPICS = (
    "Analytic Geometry",
    "Complex Numbers",
    "Differential Equations",
    "Differentiation",
    "Discrete Mathematics",
    "Fundamental Mathematics",
    "Graph Theory",
    "Integration",
    "Linear Algebra",
    "Numerical Methods",
    "Optimization",
    "Probability",
    "Real Functions of Several Variables",
    "Real Functions of a Single Variable",
    "Statistics",
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # what an array of 64 bits holds
Row = tuple[int, dict[str, str]]  # line of the file, value of each wanted column


class BankError(ValueError):
    """A bank or answers file that cannot be used; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class Bank:
    """n questions in order of id. ids: (n,) int; levels: (n,) int in 1..6; topics: (n,) str."""

    ids: np.ndarray
    levels: np.ndarray
    topics: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def topic(self, name: str) -> Bank:
        """The questions of one topic. Raises BankError for a topic that no bank has."""
        _known_topic(name, "a bank has no")
        mine = self.topics == name
        return Bank(self.ids[mine], self.levels[mine], self.topics[mine])

    def counts(self) -> pd.DataFrame:
        """Number of questions, one row per topic of MathE and one column per level 1..6."""
        table = pd.crosstab(self.topics, self.levels)
        table = table.reindex(index=TOPICS, columns=range(1, LEVELS + 1), fill_value=0)
        return table.rename_axis(index="topic", columns="level")

    def table(self) -> pd.DataFrame:
        """The bank as a table in the columns of its file."""
        return pd.DataFrame(dict(zip(COLUMNS, (self.ids, self.levels, self.topics), strict=True)))


@dataclass(frozen=True)
class Calibration:
    """A bank with levels from observed answers, and how much was observed.

    bank: the re-labelled bank; difficulty: (n,) shrunken failure rate; answers: (n,) answers per
    question; given, joined: answers in the file, and those to a question of the bank; students: those
    in the file.
    """

    bank: Bank
    difficulty: np.ndarray
    answers: np.ndarray
    given: int
    joined: int
    students: int

    @property
    def answered(self) -> int:
        """Questions of the bank with at least one answer."""
        return int((self.answers > 0).sum())

    def __str__(self) -> str:
        return (
            f"{self.joined} of {self.given} answers by {self.students} students fall on "
            f"{self.answered} of {len(self.bank)} questions"
        )


def load_bank(path: str | Path) -> Bank:
    """Read a bank: the shipped one or the real MathE export; other columns are ignored.

    The file is `;`-separated UTF-8 (a byte order mark is fine) with the columns of COLUMNS. Raises
    BankError naming the place where the file is missing, not UTF-8, empty, lacks a column, repeats or
    omits an id, or has a level outside 1..6 or a topic outside TOPICS.
    """
    path = Path(path)
    ids, levels, topics, first_line = [], [], [], {}
    for line, row in _rows(path, _decoded(path), COLUMNS):
        place = f"{path}, line {line}"
        item = _integer(row["id"], f"{place}: id")
        if item in first_line:
            raise BankError(f"{place}: id {item} stands already in line {first_line[item]}; ids must be unique")
        first_line[item] = line
        ids.append(item)
        levels.append(_level(row["difficulty_level"], place))
        topics.append(_known_topic(row["topic_name"], f"{place}: there is no"))
    order = np.argsort(ids)  # the order of lines must not matter
    return Bank(np.array(ids)[order], np.array(levels)[order], np.array(topics)[order])


def save_bank(bank: Bank, path: str | Path) -> Path:
    """Write a bank in the form in which it ships: ids, levels and topics, no texts."""
    return write_text(path, bank.table().to_csv(sep=";", index=False, lineterminator="\n"))


def calibrate(bank: Bank, answers_path: str | Path) -> Calibration:
    """Levels from observed answers, joined on the question id (`education.difficulty: calibrated` in params.yaml).

    answers_path: the UCI file "MathE dataset.csv" (`;`, latin-1; Type of Answer 1 right, 0 wrong).
    A question gets the level whose difficulty, (level - 1) / 5, is nearest to its shrunken failure rate. To keep
    the label's level counts instead would change nothing: a simulated student meets levels, not questions. A topic
    without answers keeps its labels. A question without answers has its label's mean, so a label that runs against
    the answers moves all its unanswered questions together.
    Raises BankError for a file that is missing, empty, lacks a column or holds anything but 0 and 1.
    """
    students, questions, failed = _answers(Path(answers_path))
    known = np.isin(questions, bank.ids)
    at = np.searchsorted(bank.ids, questions[known])
    answers = np.bincount(at, minlength=len(bank))
    failures = np.bincount(at, weights=failed[known], minlength=len(bank))
    prior = _label_means(bank, failures, answers)
    difficulty = (failures + PRIOR_ANSWERS * prior) / (answers + PRIOR_ANSWERS)
    levels = _nearest_levels(bank, difficulty, answers)
    return Calibration(
        replace(bank, levels=levels), difficulty, answers, len(questions), len(at), len(np.unique(students))
    )


def calibrated_levels(bank: Bank, answers_path: str | Path) -> Bank:
    """The bank of `calibrate`, for those who do not ask how much was observed."""
    return calibrate(bank, answers_path).bank


def _label_means(bank: Bank, failures: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Mean failure rate of each question's topic and level, (n,); its topic's or all where unseen."""

    def rate(group: np.ndarray, otherwise: float) -> float:
        seen = answers[group].sum()
        return failures[group].sum() / seen if seen else otherwise

    means = np.empty(len(bank))
    overall = rate(np.ones(len(bank), dtype=bool), 0.5)
    for topic in np.unique(bank.topics):
        mine = bank.topics == topic
        of_topic = rate(mine, overall)
        for level in np.unique(bank.levels[mine]):
            group = mine & (bank.levels == level)
            means[group] = rate(group, of_topic)
    return means


def _nearest_levels(bank: Bank, difficulty: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Levels (n,) whose difficulty is nearest; the label's in topics without answers."""
    levels = 1 + np.rint((LEVELS - 1) * difficulty).astype(bank.levels.dtype)
    seen = np.unique(bank.topics[answers > 0])
    return np.where(np.isin(bank.topics, seen), levels, bank.levels)


def _answers(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Students, questions (m,) and failures (m,) in {0, 1} of an answers file."""
    text = _content(path).decode("latin-1")
    found = []
    for line, row in _rows(path, text, ANSWER_COLUMNS):
        place = f"{path}, line {line}"
        right = row["Type of Answer"]
        if right not in ("0", "1"):
            raise BankError(f"{place}: Type of Answer must be 0 (wrong) or 1 (right), got {right[:60]!r}")
        student = _integer(row["Student ID"], f"{place}: Student ID")
        found.append((student, _integer(row["Question ID"], f"{place}: Question ID"), 1 - int(right)))
    students, questions, failed = np.array(found).T
    return students, questions, failed


def _content(path: Path) -> bytes:
    if not os.path.isfile(path):  # Path.is_file raises where a folder on the way is closed
        raise BankError(f"{path}: no such file; check education.bank and education.answers")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BankError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _decoded(path: Path) -> str:
    try:
        return _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BankError(f"{path}: not UTF-8 at byte {error.start} ({error.reason}); save it as UTF-8") from error


def _rows(path: Path, text: str, wanted: tuple[str, ...]) -> Iterator[Row]:
    """The wanted columns of each row, stripped, with the line where the row ends."""
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";", restval="", strict=True)
    try:
        found = [name.strip() for name in reader.fieldnames or []]
    except csv.Error as error:
        raise BankError(
            f"{path}: the header is broken ({error}); look for a quotation mark that is not closed"
        ) from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise BankError(
            f"{path}: no column {', '.join(missing)}; found {', '.join(found) or 'nothing'} (separator `;`)"
        )
    twice = [name for name in wanted if found.count(name) > 1]
    if twice:
        raise BankError(f"{path}: the column {twice[0]} stands there {found.count(twice[0])} times; rename the others")
    reader.fieldnames = found
    empty = True
    try:
        for row in reader:
            empty = False
            yield reader.line_num, {name: row[name].strip() for name in wanted}
    except csv.Error as error:
        raise BankError(f"{path}, after line {reader.line_num}: {error}") from error
    if empty:
        raise BankError(f"{path}: no rows below the header")


def _integer(text: str, place: str) -> int:
    if not text:
        raise BankError(f"{place} is empty")
    if not _INTEGER.fullmatch(text):
        raise BankError(f"{place} must be an integer of at most 18 digits, got {text[:60]!r}")
    return int(text)


def _level(text: str, place: str) -> int:
    if text not in map(str, range(1, LEVELS + 1)):
        raise BankError(f"{place}: difficulty_level must be an integer from 1 to {LEVELS}, got {text[:60]!r}")
    return int(text)


def _known_topic(name: str, place: str) -> str:
    if name in TOPICS:
        return name
    name = name[:60]
    close = difflib.get_close_matches(name, TOPICS, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise BankError(f"{place} topic {name!r}{guess} Known: {', '.join(TOPICS)}")
