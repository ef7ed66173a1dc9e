"""What a policy sees of a question: features by hand, and vectors of length 1 from every encoder."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib.agent_configuration import encoders
from lib.agent_configuration.encoders import (
    HASHED,
    EncoderError,
    compute_features,
    make_encoder,
    make_states,
)
from lib.language_models import checkpoints
from tests.language_models import tiny

QUESTIONS = [
    "3 + 4 = ?", "3 + 4 * 2 = ?", "What is the pet of Ana ?", "What is the pet of the friend of Ana ?",
    "Who has most ?",
]  # fmt: skip


# Features ------------------------------------------------------------------------------------------


FEATURES = {
    "3 + 4 = ?": [0.09, 5 / 20, 2 / 9, 0, 0],
    "3 + 4 * 2 = ?": [0.13, 7 / 20, 3 / 13, 1, 0],
    "What is the pet of Ana ?": [0.24, 7 / 20, 0, 0, 1],
    "What is the pet of the friend of Ana ?": [0.38, 10 / 20, 0, 1, 1],
    "Find 120": [0.08, 2 / 20, 3 / 8, 0, 1],
    "How many do Ana and Bo have together ?": [0.38, 9 / 20, 0, 1, 0],
    "Ana and Bo ate half of it .": [0.27, 8 / 20, 0, 0, 0],  # "and" and "of" say nothing
    "": [0, 0, 0, 0, 0],
}


@pytest.mark.parametrize("questions", [[], *([text] for text in FEATURES), list(FEATURES)])
def test_features_are_length_words_digits_steps_and_tools(questions):
    features = compute_features(questions)
    assert features.shape == (len(questions), 5) and features.dtype == np.float32
    assert features == pytest.approx(
        np.array([FEATURES[text] for text in questions]).reshape(-1, 5), abs=1e-6
    )


# Encoders ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> dict[str, encoders.Encoder]:
    folder = tmp_path_factory.mktemp("models")
    checkpoints.save(tiny.model(0), folder / "some")
    return {
        "hashing": make_encoder("hashing"),
        "tfidf": make_encoder("tfidf"),
        "lab": make_encoder("lab:some", folder),
    }


def test_tf_idf_weighs_a_rare_word_more_than_one_that_every_question_has(every):
    """Apart from "is", which stands in every question about facts, one word of each pair differs."""
    job, pet, river = every["tfidf"](
        ["What is the job of Ana ?", "What is the pet of Ana ?", "What is the job of Bo ?"]
    )
    by_hashing = every["hashing"](["What is the job of Ana ?", "What is the pet of Ana ?"])
    assert job @ pet < by_hashing[0] @ by_hashing[1]
    assert 0 < job @ river < 1


@pytest.mark.parametrize("name, width", [("hashing", HASHED), ("lab", 32)])
def test_vectors_have_length_1_are_always_the_same_and_stand_before_the_features_in_a_state(
    every, name, width
):
    phi = every[name]
    vectors, features = phi(QUESTIONS), make_states(QUESTIONS, phi)
    assert (
        vectors.shape == (len(QUESTIONS), width) and vectors.dtype == features.dtype == np.float32
    )
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(QUESTIONS)), abs=1e-5)
    assert np.array_equal(vectors, phi(QUESTIONS)) and len(
        np.unique(vectors.round(4), axis=0)
    ) == len(QUESTIONS)
    assert np.array_equal(features, np.concatenate([vectors, compute_features(QUESTIONS)], 1))


@pytest.mark.parametrize("name", ["hashing", "lab"])
def test_a_question_is_seen_the_same_alone_and_among_others(every, name):
    many = [f"{i} + {i} = ?" for i in range(10)] * 7 + QUESTIONS  # more than are read at once
    phi = every[name]
    assert np.allclose(phi(many)[70:], phi(QUESTIONS), atol=1e-6)
    assert np.allclose(phi(many)[69], phi(["9 + 9 = ?"])[0], atol=1e-6)


def test_hashing_reads_words_and_pairs_and_no_number():
    phi = make_encoder("hashing")
    plain, same, longer, turned, different = phi(
        ["3 + 4 = ?", "9 + 1 = ?", "13 + 4 = ?", "= 3 ? 4 +", "3 * 4 = ?"]
    )
    assert np.array_equal(plain, same)
    assert (
        not np.array_equal(plain, longer)
        and not np.array_equal(plain, turned)
        and not np.array_equal(plain, different)
    )
    assert np.array_equal(phi(["Ana"]), phi(["Ana"])) and not np.array_equal(
        phi(["Ana"]), phi(["ana"])
    )


# Those that are not here ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "lab", "lab:", "sentence:", "", "hashing:x"])
def test_an_unknown_encoder_is_named_with_those_that_there_are(name):
    with pytest.raises(EncoderError) as error:
        make_encoder(name)
    assert (
        str(error.value)
        == f"there is no encoder {name!r}; there are hashing, tfidf, lab:NAME, sentence:NAME and recorded:NAME"
    )


def library(requested: list, wrong: Exception | None = None):
    """What stands in for sentence-transformers and the package with the weights."""

    class SentenceTransformer:
        def __init__(self, where, **how):
            requested.append((where, how))
            if wrong:
                raise wrong

        def encode(self, texts, convert_to_numpy):
            return np.array([[3.0 * len(text), 4.0 * len(text)] for text in texts])

    def found(name):
        if isinstance(wrong, ImportError):
            raise wrong
        if name == "sentence_transformers":
            return SimpleNamespace(SentenceTransformer=SentenceTransformer)
        return SimpleNamespace(__file__="/somewhere/weights/__init__.py")

    return found


def test_a_sentence_model_gives_vectors_of_length_1_and_asks_no_network(monkeypatch):
    requested = []
    monkeypatch.setattr(encoders, "import_module", library(requested))
    assert make_encoder("sentence:/some/folder")(["a", "abc"]) == pytest.approx(
        np.array([[0.6, 0.8]] * 2)
    )
    make_encoder("sentence:all-MiniLM-L6-v2")
    how = {"device": "cpu", "local_files_only": True}
    assert requested == [("/some/folder", how), ("/somewhere/weights", how)]


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (ImportError("torch"), "needs a package: .venv/bin/pip install"),
        (OSError("no such file"), "is not on this machine"),
        (ValueError("unknown model"), "is not on this machine"),
    ],
)
def test_a_sentence_model_that_is_not_on_this_machine_is_named(monkeypatch, wrong, complaint):
    monkeypatch.setattr(encoders, "import_module", library([], wrong))
    with pytest.raises(EncoderError, match=f"sentence:some-model {complaint}"):
        make_encoder("sentence:some-model")


def test_a_lab_model_that_is_not_there_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(
        checkpoints.ModelError, match="missing holds no model; train the lab models"
    ):
        make_encoder("lab:missing", tmp_path)
