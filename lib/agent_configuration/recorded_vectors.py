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
    """The file of an encoder, such as all-MiniLM-L6-v2."""
    return FOLDER / f"{name}.parquet"


def look_up_vectors(name: str, questions: Sequence[str]) -> np.ndarray:
    """The recorded vectors of questions.

    Args:
        name: Of the encoder.
        questions: Texts.

    Returns:
        (n, d) float32, each row of length 1.

    Raises:
        KeyError: A question was not recorded; the message names it.
    """
    vectors = _read(get_path(name))
    missing = [text for text in questions if text not in vectors]
    if missing:
        raise KeyError(f"{name} was not recorded for {missing[0]!r}")
    integers = np.array([vectors[text] for text in questions], np.float32)  # (n, d)
    return integers / np.linalg.norm(integers, axis=1, keepdims=True)


@cache
def _read(path: Path) -> dict[str, np.ndarray]:
    table = artifacts.read_parquet(path)
    return dict(zip(table["prompt"], table["vector"], strict=True))
