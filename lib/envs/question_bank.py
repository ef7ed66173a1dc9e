"""The question bank: which questions there are, of which topic and level.

Reads the bank that ships with the project (id, level, topic) and the real MathE export, which is the
same table with texts beside it; texts are never kept. `calibrated_levels` re-labels questions from observed
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
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lib.envs.education import LEVELS

COLUMNS = ("id", "difficulty_level", "topic_name")
ANSWER_COLUMNS = ("Student ID", "Question ID", "Type of Answer")
PRIOR_ANSWERS = (
    10.0  # answers that the label's mean counts for, K: enough to tame a single answer (decision)
)
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


def load_bank(path: str | Path) -> Bank:
    """Read a bank: the shipped one or the real MathE export; other columns are ignored.

    The file is `;`-separated UTF-8 (a byte order mark is fine) with the columns of COLUMNS. Raises
    BankError naming the place where the file is missing, not UTF-8, empty, lacks a column, repeats or
    omits an id, or has a level outside 1..6 or a topic outside TOPICS.
    """
    path = Path(path)
    ids, levels, topics, first_line = [], [], [], {}
    for line, row in _rows(path, COLUMNS):
        place = f"{path}, line {line}"
        item = _integer(row["id"], f"{place}: id")
        if item in first_line:
            raise BankError(
                f"{place}: id {item} stands already in line {first_line[item]}; ids must be unique"
            )
        first_line[item] = line
        ids.append(item)
        levels.append(row["difficulty_level"])
        if levels[-1] not in map(str, range(1, LEVELS + 1)):
            raise BankError(
                f"{place}: difficulty_level must be an integer from 1 to {LEVELS}, got {levels[-1][:60]!r}"
            )
        topics.append(_known_topic(row["topic_name"], f"{place}: there is no"))
    order = np.argsort(ids)  # the order of lines must not matter
    return Bank(np.array(ids)[order], np.array(levels, dtype=int)[order], np.array(topics)[order])


def calibrated_levels(bank: Bank, answers_path: str | Path) -> Bank:
    """The bank with levels from observed answers (`education.difficulty: calibrated` in params.yaml).

    A question gets the level whose difficulty, (level - 1) / 5, is nearest to its shrunken failure rate. To keep
    the label's level counts instead would change nothing: a simulated student meets levels, not questions. A topic
    without answers keeps its labels. A question without answers has its label's mean, so a label that runs against
    the answers moves all its unanswered questions together. Raises BankError as `calibrated` does.
    """
    difficulty, answers = calibrated(bank, answers_path)
    levels = 1 + np.rint((LEVELS - 1) * difficulty).astype(bank.levels.dtype)
    seen = np.unique(bank.topics[answers > 0])
    return replace(bank, levels=np.where(np.isin(bank.topics, seen), levels, bank.levels))


def calibrated(bank: Bank, answers_path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Shrunken failure rate of each question and how many answers it has, (n,) each, joined on the question id.

    answers_path: the UCI file "MathE dataset.csv" (`;`, latin-1; Type of Answer 1 right, 0 wrong).
    Raises BankError for a file that is missing, empty, lacks a column or holds anything but 0 and 1.
    """
    path = Path(answers_path)
    questions, failed = [], []
    for line, row in _rows(path, ANSWER_COLUMNS, "latin-1"):
        place = f"{path}, line {line}"
        correct = row["Type of Answer"]
        if correct not in ("0", "1"):
            raise BankError(
                f"{place}: Type of Answer must be 0 (wrong) or 1 (right), got {correct[:60]!r}"
            )
        _integer(row["Student ID"], f"{place}: Student ID")
        questions.append(_integer(row["Question ID"], f"{place}: Question ID"))
        failed.append(1 - int(correct))
    known = np.isin(questions, bank.ids)
    at = np.searchsorted(bank.ids, np.array(questions)[known])
    answers = np.bincount(at, minlength=len(bank))
    failures = np.bincount(at, weights=np.array(failed)[known], minlength=len(bank))
    prior = _label_means(bank, failures, answers)
    return (failures + PRIOR_ANSWERS * prior) / (answers + PRIOR_ANSWERS), answers


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


def _rows(
    path: Path, wanted: tuple[str, ...], encoding: str = "utf-8-sig"
) -> list[tuple[int, dict[str, str]]]:
    """The line where each row ends, and the wanted columns, stripped."""
    try:
        text = path.read_bytes().decode(encoding)
    except UnicodeDecodeError as error:
        raise BankError(
            f"{path}: not UTF-8 at byte {error.start} ({error.reason}); save it as UTF-8"
        ) from error
    except OSError as error:
        told = "check education.bank and education.answers"
        raise BankError(f"{path}: cannot be read ({error.strerror}); {told}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";", restval="", strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        for name in wanted:
            if (times := reader.fieldnames.count(name)) != 1:
                found = ", ".join(reader.fieldnames) or "nothing"
                raise BankError(
                    f"{path}: a column {name} is wanted once, not {times} times; found {found} (separator `;`)"
                )
        rows = [(reader.line_num, {name: row[name].strip() for name in wanted}) for row in reader]
    except csv.Error as error:
        raise BankError(f"{path}, after line {reader.line_num}: {error}") from error
    if not rows:
        raise BankError(f"{path}: no rows below the header")
    return rows


def _integer(text: str, place: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise BankError(f"{place} must be an integer of at most 18 digits, got {text[:60]!r}")
    return int(text)


def _known_topic(name: str, place: str) -> str:
    if name in TOPICS:
        return name
    name = name[:60]
    close = difflib.get_close_matches(name, TOPICS, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise BankError(f"{place} topic {name!r}{guess} Known: {', '.join(TOPICS)}")
