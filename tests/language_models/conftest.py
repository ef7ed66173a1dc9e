"""Tiny random models, the same in every process, and torch on one thread: replies are bit-identical then."""

from itertools import pairwise

import pytest
import torch
from transformers import LlamaForCausalLM

from lib.language_models.chat_template import encode_special
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.tokenizer import EOS, ROLES, encode
from tests.language_models.tiny import model


def parrot(text: str) -> Forward:
    """A model that greedily writes one text, whatever it is asked; no token of it may come twice."""
    config = model(hidden=64).config
    config.tie_word_embeddings = False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bird = LlamaForCausalLM(config).eval()
    said = [encode_special(ROLES["assistant"]), *encode(text), encode_special(EOS)]
    assert len(set(said)) == len(said)
    with torch.no_grad():
        for layer in bird.model.layers:  # only the last token counts
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        bird.lm_head.weight.zero_()
        for before, after in pairwise(said):
            bird.lm_head.weight[after] = 200 * bird.model.embed_tokens.weight[before]
    return Forward(bird)


CALLING = "then <call> calculator 4 * 8 </call>"


def tiny() -> dict[str, ServedModel]:
    """Two models that write words at random, and one that always calls a tool."""
    return {
        "lab-nano": ServedModel("lab-nano", Forward(model(0)), {"parameters": 1000}, max_tokens=24),
        "lab-mini": ServedModel("lab-mini", Forward(model(1)), max_tokens=24),
        "caller": ServedModel("caller", parrot(CALLING)),
    }


@pytest.fixture(scope="session")
def models() -> dict[str, ServedModel]:
    return tiny()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For what is shared by the tests of a module as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
