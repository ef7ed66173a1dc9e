"""Tiny lab models for tests: settings, and networks whose random weights make every token possible."""

import numpy as np
import torch
from transformers import LlamaForCausalLM

from lib.config import LabModelSettings, MixtureComponent, Target
from lib.language_models import checkpoints
from lib.language_models.tokenizer import SPECIAL_TOKENS, get_tokenizer

TARGET = Target(family="chain", difficulty=1, accuracy=0.0)
MIXTURE = [MixtureComponent(family="chain", difficulties=[1, 2], skin="plain")]
WINDOW = 256


def settings(**changes) -> LabModelSettings:
    """A model that trains in a second."""
    base = {
        "hidden": 32,
        "layers": 2,
        "heads": 2,
        "intermediate": 32,
        "items": 200,
        "steps": 6,
        "batch": 16,
        "muon": 0.01,
        "adamw": 3e-3,
        "warmup": 2,
        "check_every": 2,
        "attempts": 1,
        "window": WINDOW,
        "target": TARGET,
        "data_mixture": MIXTURE,
    }
    return LabModelSettings(**base | changes)


def model(seed: int = 0, spread: float = 15.0, **changes) -> LlamaForCausalLM:
    """An untrained model; its matrices are `spread` times as large as usual, so that it has opinions."""
    made = checkpoints.fresh(settings(**changes), seed).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim == 2:
                weight.mul_(spread)
            else:  # a norm; all ones at first
                weight.mul_(1.0 + 0.1 * torch.sin(torch.arange(len(weight))))
    return made


def prompts(n: int, seed: int = 0, longest: int = 60) -> list[tuple[int, ...]]:
    """Random token sequences of random lengths, without special tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n)
    return [
        tuple(rng.integers(len(SPECIAL_TOKENS), len(get_tokenizer()), size=length).tolist())
        for length in lengths
    ]
