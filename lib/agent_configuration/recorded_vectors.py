"""Sentence vectors of the lesson's training questions that a pretrained encoder made once, kept as facts.

The encoder's weights are too large to come with the project. `record_vectors` made the files; a question that is not in
one has no vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from lib.config import ROOT
from lib.experiment import artifacts

FOLDER = ROOT / "data/encoders"
LARGEST = 127  # vectors are kept as integers of -127 to 127, each with its own scale


def get_path(name: str) -> Path:
    """Get the path of the file with the vectors of an encoder, such as "all-MiniLM-L6-v2"."""
    return FOLDER / f"{name}.parquet"


def look_up_vectors(name: str, questions: Sequence[str]) -> np.ndarray:
    """Look up the recorded sentence vectors of questions.

    Args:
        name: Name of the encoder that made the vectors.
        questions: Texts of n questions.

    Returns:
        (n, dimensions) float32, each vector of length 1.

    Raises:
        KeyError: A question was not recorded; the message names it.
    """
    vector_by_question = _read_vectors(get_path(name))
    missing = [question for question in questions if question not in vector_by_question]
    if missing:
        raise KeyError(f"{name} was not recorded for {missing[0]!r}")
    integers = np.array(
        [vector_by_question[question] for question in questions], np.float32
    )  # (n, dimensions)
    return integers / np.linalg.norm(integers, axis=1, keepdims=True)


def has_vectors(name: str, questions: Sequence[str]) -> bool:
    """Whether the vectors of all these questions were recorded: those of another root seed were not.

    Args:
        name: Name of the encoder that made the vectors.
        questions: Texts.
    """
    path = get_path(name)
    if not path.is_file():
        return False
    vector_by_question = _read_vectors(path)
    return all(question in vector_by_question for question in questions)


@cache
def _read_vectors(path: Path) -> dict[str, np.ndarray]:
    """Read the vectors of a file by question, as whole numbers of -LARGEST to LARGEST."""
    table = artifacts.read_parquet(path)
    return dict(zip(table["prompt"], table["vector"], strict=True))
