"""The choice among tools, of which one must be called."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.language_models.chat_template import encode_conversation
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions.forced_call import (
    choose_tool,
    encode_call_prefix,
    measure_tool_logprobs,
    score_prefixes,
)
from lib.language_models.tokenizer import encode
from tests.language_models.tiny import model

PROMPT = encode_conversation([{"role": "user", "content": "the red key"}])


def read_next_logprobs(network, ids: list[int]) -> torch.Tensor:
    """By transformers: the log-probabilities of what comes next."""
    with torch.inference_mode():
        return network(torch.tensor([ids])).logits[0, -1].double().log_softmax(0)


def test_the_probability_of_a_tool_is_that_of_its_name_among_all_names():
    """Where names part at their first token; "lookup7" is a name of two tokens, and no less probable for that."""
    network = model(0)
    tools = ["search", "calculator", "lookup7"]
    logprobs = measure_tool_logprobs(Forward(network), PROMPT, tools)
    row = read_next_logprobs(network, [*PROMPT, *encode("<call>")])
    expected = row[[encode_call_prefix(tool)[1] for tool in tools]].log_softmax(0)
    np.testing.assert_allclose(logprobs, expected.numpy(), atol=1e-4)


def test_a_name_that_another_begins_with_has_the_probability_that_it_ends_there():
    network = model(0)
    logprobs = measure_tool_logprobs(Forward(network), PROMPT, ["lookup", "lookup7"])
    row = read_next_logprobs(network, [*PROMPT, *encode("<call> lookup")])
    longer = float(row[encode_call_prefix("lookup7")[2]].exp())
    np.testing.assert_allclose(np.exp(logprobs), [1 - longer, longer], atol=1e-4)


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
def test_the_probabilities_of_all_names_are_one_together(names):
    def read_at_random(contexts: list[tuple[int, ...]]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(len(contexts))
        logits = torch.randn(len(contexts), 128, generator=generator, dtype=torch.double)
        return logits.log_softmax(1)

    logprobs = score_prefixes([tuple(map(ord, name)) for name in names], read_at_random)
    assert np.exp(logprobs).sum() == pytest.approx(1)


def test_greedy_is_the_most_probable():
    assert choose_tool(np.log([0.2, 0.5, 0.3]), ["a", "b", "c"], 0.0, seed=3) == "b"


def test_tools_are_sampled_as_often_as_they_are_probable():
    names = [choose_tool(np.log([0.25, 0.75]), ["a", "b"], 1.0, seed) for seed in range(2000)]
    assert names.count("a") / 2000 == pytest.approx(0.25, abs=0.03)


@given(
    weights=st.lists(st.floats(1e-6, 1), min_size=1, max_size=6),
    temperature=st.floats(0, 2),
    seed=st.integers(0, 2**40),
)
def test_the_choice_is_always_one_of_the_tools_and_the_same_again(weights, temperature, seed):
    tools = [f"tool{number}" for number in range(len(weights))]
    logprobs = np.log(weights) - np.log(sum(weights))
    tool = choose_tool(logprobs, tools, temperature, seed)
    assert tool in tools
    assert tool == choose_tool(logprobs, tools, temperature, seed)
