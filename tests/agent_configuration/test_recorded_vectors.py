"""Recorded sentence vectors: every question of the searches has one, and a question that was not recorded has none."""

import numpy as np
import pytest

from lib import config
from lib.agent_configuration import encoders, recorded_vectors
from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.record_vectors import NAME, make_table


@pytest.mark.parametrize("profile", ["smoke", "laptop", "full", "paper"])
def test_every_question_of_the_searches_was_recorded(profile):
    num_items = config.load(profile).configuration.search_items
    encode = encoders.make_encoder(f"recorded:{NAME}")
    for kind in KINDS:
        prompts = [item.prompt for item in questions(kind.name, "train", num_items)]
        vectors = encode(prompts)
        assert vectors.shape == (len(prompts), 384)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_question_that_was_not_recorded_is_named():
    with pytest.raises(KeyError, match="Is this new"):
        recorded_vectors.look_up_vectors(NAME, ["Is this new ?"])


def test_rounding_turns_a_vector_by_less_than_a_degree():
    vectors = np.random.default_rng(0).normal(size=(5, 384))
    rounded = np.stack(make_table("abcde", vectors)["vector"]).astype(float)
    cosines = (vectors * rounded).sum(1)
    cosines /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(rounded, axis=1)
    assert cosines.min() > np.cos(np.radians(1))


def test_an_encoder_without_a_file_is_refused():
    with pytest.raises(encoders.EncoderError, match="recorded:NAME"):
        encoders.make_encoder("recorded:another")


def test_questions_of_another_root_seed_have_no_vectors():
    recorded_questions = [item.prompt for item in questions(KINDS[0].name, "train", 8)]
    assert recorded_vectors.has_vectors(NAME, recorded_questions)
    assert not recorded_vectors.has_vectors(NAME, [*recorded_questions, "Is this new ?"])
    assert not recorded_vectors.has_vectors("another", recorded_questions)
