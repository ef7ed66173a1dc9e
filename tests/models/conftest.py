"""Tiny random models, the same in every process, and torch on one thread: replies are bit-identical then."""

from itertools import pairwise

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib.models.answering import Model
from lib.models.dialogue import token
from lib.models.forward import Forward
from lib.models.tokenizer import EOS, ROLES, encode, tokenizer


def network(seed: int = 0, **changes) -> LlamaForCausalLM:
    """An untrained network that writes all kinds of words."""
    shape = {
        "vocab_size": len(tokenizer()), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 256, "tie_word_embeddings": True,
        "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "initializer_range": 0.2,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**shape | changes)).eval()


def parrot(text: str) -> Forward:
    """A model that greedily writes one text, whatever it is asked; no token of it may come twice."""
    model = network(hidden_size=64, tie_word_embeddings=False)
    said = [token(ROLES["assistant"]), *encode(text), token(EOS)]
    assert len(set(said)) == len(said)
    with torch.no_grad():
        for layer in model.model.layers:  # only the last token counts
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        for before, after in pairwise(said):
            model.lm_head.weight[after] = 20 * model.model.embed_tokens.weight[before]
    return Forward(model)


CALLING = "then <call> calculator 4 * 8 </call>"


def tiny() -> dict[str, Model]:
    """Two models that write words at random, and one that always calls a tool."""
    return {
        "lab-nano": Model("lab-nano", Forward(network(0)), {"parameters": 1000}, max_tokens=24),
        "lab-mini": Model("lab-mini", Forward(network(1)), max_tokens=24),
        "caller": Model("caller", parrot(CALLING)),
    }


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    return tiny()


@pytest.fixture(autouse=True)
def one_thread():
    """torch on one thread, and as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def denormals_as_usual():
    """A training in this process flushes denormal numbers to 0, which other tests would notice."""
    yield
    torch.set_flush_denormal(False)
