"""The question bank: which questions there are, of which topic and level.

Reads the bank that ships with the project (id, level, topic) and the real MathE export, which is the
same table with texts beside it; texts are never kept. `calibrate_levels` re-labels questions from observed
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
# K, the number of answers that the label's mean counts for: enough to tame a single answer (decision).
PRIOR_ANSWERS = 10.0
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

    def select_topic(self, name: str) -> Bank:
        """The questions of one topic. Raises BankError for a topic that no bank has."""
        _check_topic(name, "a bank has no")
        of_topic = self.topics == name
        return Bank(self.ids[of_topic], self.levels[of_topic], self.topics[of_topic])

    def count_questions(self) -> pd.DataFrame:
        """Number of questions, one row per topic of MathE and one column per level 1..6."""
        table = pd.crosstab(self.topics, self.levels)
        table = table.reindex(index=TOPICS, columns=range(1, LEVELS + 1), fill_value=0)
        return table.rename_axis(index="topic", columns="level")


def load_bank(path: str | Path) -> Bank:
    """Reads a bank: the shipped one or the real MathE export; other columns are ignored.

    Args:
        path: A `;`-separated UTF-8 file (a byte order mark is fine) with the columns of COLUMNS.

    Raises:
        BankError: The file is missing, not UTF-8 or empty, lacks a column, repeats or omits an id, or has a level
            outside 1..6 or a topic outside TOPICS. The message names the line.
    """
    path = Path(path)
    valid_levels = [str(level) for level in range(1, LEVELS + 1)]
    ids, levels, topics = [], [], []
    line_of_id = {}
    for line, row in _read_rows(path, COLUMNS):
        location = f"{path}, line {line}"
        question_id = _parse_integer(row["id"], f"{location}: id")
        if question_id in line_of_id:
            raise BankError(
                f"{location}: id {question_id} stands already in line {line_of_id[question_id]}; ids must be unique"
            )
        line_of_id[question_id] = line
        level = row["difficulty_level"]
        if level not in valid_levels:
            raise BankError(
                f"{location}: difficulty_level must be an integer from 1 to {LEVELS}, got {level[:60]!r}"
            )
        _check_topic(row["topic_name"], f"{location}: there is no")
        ids.append(question_id)
        levels.append(level)
        topics.append(row["topic_name"])
    order = np.argsort(ids)  # the order of lines must not matter
    return Bank(np.array(ids)[order], np.array(levels, dtype=int)[order], np.array(topics)[order])


def calibrate_levels(bank: Bank, answers_path: str | Path) -> Bank:
    """Sets the levels of questions from observed answers instead of their labels.

    A question gets the level whose difficulty, (level - 1) / 5, is nearest to its estimated failure rate. A topic
    without answers keeps its labels. A question without answers gets the mean failure rate of its label.

    Args:
        bank: The questions with their labels.
        answers_path: The file of answers, see `estimate_difficulty`.

    Returns:
        The bank with new levels.

    Raises:
        BankError: As in `estimate_difficulty`.
    """
    difficulty, num_answers = estimate_difficulty(bank, answers_path)
    # Difficulty 0 is level 1, difficulty 1 is level 6.
    steps = np.rint((LEVELS - 1) * difficulty)
    calibrated = 1 + steps.astype(bank.levels.dtype)

    answered_topics = np.unique(bank.topics[num_answers > 0])
    is_answered = np.isin(bank.topics, answered_topics)
    levels = np.where(is_answered, calibrated, bank.levels)
    return replace(bank, levels=levels)


def estimate_difficulty(bank: Bank, answers_path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Estimates the failure rate of each question from observed answers, shrunken to the mean of its label.

    Args:
        bank: The questions; answers to others are ignored.
        answers_path: The UCI file "MathE dataset.csv" (`;`, latin-1; Type of Answer 1 right, 0 wrong).

    Returns:
        difficulty: (n,) float, the shrunken failure rates, in the order of the bank.
        num_answers: (n,) int, how many answers each question has.

    Raises:
        BankError: The file is missing or empty, lacks a column, or holds anything but 0 and 1.
    """
    path = Path(answers_path)
    question_ids, failures = [], []
    for line, row in _read_rows(path, ANSWER_COLUMNS, "latin-1"):
        location = f"{path}, line {line}"
        correct = row["Type of Answer"]
        if correct not in ("0", "1"):
            raise BankError(
                f"{location}: Type of Answer must be 0 (wrong) or 1 (right), got {correct[:60]!r}"
            )
        _parse_integer(row["Student ID"], f"{location}: Student ID")
        question_ids.append(_parse_integer(row["Question ID"], f"{location}: Question ID"))
        failures.append(1 - int(correct))

    # Answers and failures by question of the bank; the ids of a bank are sorted.
    in_bank = np.isin(question_ids, bank.ids)
    index = np.searchsorted(bank.ids, np.array(question_ids)[in_bank])
    num_answers = np.bincount(index, minlength=len(bank))
    num_failures = np.bincount(index, weights=np.array(failures)[in_bank], minlength=len(bank))

    # difficulty_i = (failures_i + K mu_tl) / (answers_i + K)
    prior = _label_failure_rates(bank, num_failures, num_answers)
    difficulty = (num_failures + PRIOR_ANSWERS * prior) / (num_answers + PRIOR_ANSWERS)
    return difficulty, num_answers


def _label_failure_rates(
    bank: Bank, num_failures: np.ndarray, num_answers: np.ndarray
) -> np.ndarray:
    """Computes the mean failure rate of the topic and level of each question.

    Args:
        bank: n questions.
        num_failures: (n,) wrong answers to each question.
        num_answers: (n,) all answers to each question.

    Returns:
        (n,) rates; where a topic and level has no answers it is that of the topic, then that of all questions, then
        0.5.
    """

    def failure_rate(group: np.ndarray, default: float) -> float:
        answers = num_answers[group].sum()
        return num_failures[group].sum() / answers if answers else default

    rates = np.empty(len(bank))
    overall_rate = failure_rate(np.ones(len(bank), dtype=bool), 0.5)
    for topic in np.unique(bank.topics):
        in_topic = bank.topics == topic
        topic_rate = failure_rate(in_topic, overall_rate)
        for level in np.unique(bank.levels[in_topic]):
            group = in_topic & (bank.levels == level)
            rates[group] = failure_rate(group, topic_rate)
    return rates


def _read_rows(
    path: Path, columns: tuple[str, ...], encoding: str = "utf-8-sig"
) -> list[tuple[int, dict[str, str]]]:
    """Reads some columns of a CSV file with semicolons.

    Args:
        path: The file.
        columns: Names of the columns to read.
        encoding: Encoding of the file.

    Returns:
        (number of the row's last line, {column: value without blanks around it}) of each row.

    Raises:
        BankError: The file cannot be read, lacks a column or has it twice, or has no rows.
    """
    try:
        text = path.read_bytes().decode(encoding)
    except UnicodeDecodeError as error:
        raise BankError(
            f"{path}: not UTF-8 at byte {error.start} ({error.reason}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise BankError(
            f"{path}: cannot be read ({error.strerror}); check education.bank and education.answers"
        ) from error
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";", restval="", strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        for name in columns:
            times = reader.fieldnames.count(name)
            if times != 1:
                header = ", ".join(reader.fieldnames) or "nothing"
                raise BankError(
                    f"{path}: a column {name} is wanted once, not {times} times; found {header} (separator `;`)"
                )
        rows = []
        for row in reader:
            values = {name: row[name].strip() for name in columns}
            rows.append((reader.line_num, values))
    except csv.Error as error:
        raise BankError(f"{path}, after line {reader.line_num}: {error}") from error
    if not rows:
        raise BankError(f"{path}: no rows below the header")
    return rows


def _parse_integer(text: str, location: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise BankError(f"{location} must be an integer of at most 18 digits, got {text[:60]!r}")
    return int(text)


def _check_topic(name: str, location: str) -> None:
    """Checks that a topic is known.

    Args:
        name: Name of the topic.
        location: Where it stands, the beginning of the error message.

    Raises:
        BankError: It is none of TOPICS; the message suggests a similar one.
    """
    if name in TOPICS:
        return
    name = name[:60]
    close = difflib.get_close_matches(name, TOPICS, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise BankError(f"{location} topic {name!r}{guess} Known: {', '.join(TOPICS)}")
