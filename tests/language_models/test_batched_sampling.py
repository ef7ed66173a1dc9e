"""Rows of a batch share nothing but the time: each draws from softmax(logits / temperature) with its own numbers."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from lib.experiment import seeds
from lib.language_models.batched_sampling import SampledSequence, draw_tokens, sample_batch
from tests.language_models.hugging_face_folders import make_random_folder


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = make_random_folder(tmp_path_factory.mktemp("models") / "random")
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def make_sequences() -> list[SampledSequence]:
    """Prompts of many lengths, with temperatures, seeds and limits of their own."""
    rng = np.random.default_rng(0)
    return [
        SampledSequence(
            rng.integers(0, 256, size=length).tolist(),
            limit=limit,
            temperature=temperature,
            stream=seeds.key("test", seed=length),
        )
        for length, limit, temperature in [
            (3, 9, 0.0),
            (40, 4, 1.0),
            (1, 12, 0.7),
            (17, 12, 1.5),
            (18, 1, 1.0),
        ]
    ]


def run(network, sequences, end_token_ids=frozenset()):
    for _ in sample_batch(network, sequences, end_token_ids):
        pass
    return sequences


def test_a_sequence_is_the_same_alone_and_in_a_batch(network):
    batch = run(network, make_sequences())
    alone = [run(network, [sequence])[0] for sequence in make_sequences()]
    for together, single in zip(batch, alone, strict=True):
        assert together.ids == single.ids
        assert len(together.ids) == together.limit and together.finish == "length"
        np.testing.assert_allclose(together.logprobs, single.logprobs, atol=1e-4)


def test_log_probabilities_are_those_of_one_forward_pass_over_prompt_and_reply(network):
    for sequence in run(network, make_sequences()):
        ids = torch.tensor([[*sequence.prompt_ids, *sequence.ids]])
        with torch.inference_mode():
            logprobs = network(ids).logits[0, len(sequence.prompt_ids) - 1 : -1].log_softmax(1)
        expected = [float(row[token]) for row, token in zip(logprobs, sequence.ids, strict=True)]
        np.testing.assert_allclose(sequence.logprobs, expected, atol=1e-4)
        if sequence.temperature == 0:
            assert sequence.ids == logprobs.argmax(1).tolist()


def test_frequencies_of_draws_are_softmax_of_logits_over_temperature():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    num_draws, temperature = 4000, 0.5
    sequences = [
        SampledSequence([0], 1, temperature, seeds.key("frequencies", seed=index))
        for index in range(num_draws)
    ]
    tokens, _ = draw_tokens(logits.expand(num_draws, 4), sequences)
    frequencies = np.bincount(tokens, minlength=4) / num_draws
    probabilities = (logits / temperature).softmax(0).numpy()
    standard_errors = np.sqrt(probabilities * (1 - probabilities) / num_draws)
    assert (abs(frequencies - probabilities) < 4 * standard_errors).all()


def test_whoever_reads_the_tokens_may_end_a_sequence_and_the_others_go_on(network):
    sequences = make_sequences()
    for sequence in sample_batch(network, sequences, ()):
        if sequence is sequences[2] and len(sequence.ids) == 2:
            sequence.finish = "dropped"
    assert [len(sequence.ids) for sequence in sequences] == [9, 4, 2, 12, 1]
    expected = run(network, make_sequences())
    assert sequences[3].ids == expected[3].ids


def test_a_sequence_stops_at_an_end_token(network):
    free = run(network, make_sequences())[3]
    [stopped] = run(network, [make_sequences()[3]], end_token_ids={free.ids[4]})
    assert stopped.ids == free.ids[: free.ids.index(free.ids[4]) + 1] and stopped.finish == "stop"


def test_logits_that_are_not_finite_are_an_error_with_the_remedy():
    sequence = SampledSequence([0], 1, 0.0, np.uint64(0))
    with pytest.raises(FloatingPointError, match="not finite in float16; try dtype='float32'"):
        draw_tokens(torch.full((1, 4), torch.nan, dtype=torch.float16), [sequence])
