"""Tiny random models, the same in every process, and torch on one thread: replies are bit-identical then."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib.models.answering import Model
from lib.models.forward import Forward
from lib.models.tokenizer import tokenizer


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


def tiny() -> dict[str, Model]:
    """Two models by name."""
    return {
        name: Model(name, Forward(network(seed)), {"parameters": 1000}, max_tokens=24)
        for seed, name in enumerate(("lab-nano", "lab-mini"))
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
