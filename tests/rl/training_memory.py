"""A training in a process of its own that says how much memory it took: `python -m tests.rl.training_memory JSON`."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from lib.rl.heap import measure_peak_memory, return_freed_tensors
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_batch import Sample
from lib.rl.token_ppo import TokenPPO
from tests.budgeted_routing import small_systems

EPISODE_TOKENS = 128
NUM_EPISODES = 4


def make_config(**changes) -> LlamaConfig:
    """A shape of 22 million weights, two fifths of them embeddings."""
    shape = {
        "vocab_size": 24_000,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    }
    return LlamaConfig(**shape | changes)


def make_samples(vocab_size: int, num_episodes: int = NUM_EPISODES) -> list[Sample]:
    """Episodes of equal length, whose second half the policy wrote."""
    half = EPISODE_TOKENS // 2
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, vocab_size, (num_episodes, EPISODE_TOKENS), generator=generator)
    mask = [False] * half + [True] * half
    return [
        Sample(row, mask, float(index % 2), index // 2) for index, row in enumerate(ids.tolist())
    ]


def train(
    config: LlamaConfig, settings: PolicyModelSettings, learn, num_updates: int, device: str = "cpu"
) -> TokenPPO:
    """Train a model with random weights for some updates."""
    # As `PolicyModel.from_folder` reads it: never in float32 where frozen weights are bfloat16.
    is_half = settings.lora_rank > 0 and settings.dtype == "bfloat16"
    dtype = torch.bfloat16 if is_half else torch.float32
    network = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device)
    trainer = TokenPPO(PolicyModel(network, settings), learn, 0, num_updates)
    for _ in range(num_updates):
        trainer.update(make_samples(config.vocab_size))
    return trainer


def main() -> None:
    options = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    return_freed_tensors()
    settings = PolicyModelSettings(**options["model"])
    learn = small_systems.make_learn_settings(**options["learn"])

    # What a first training brings into memory, whatever its size, is not the model's.
    train(make_config(hidden_size=24, num_hidden_layers=1, vocab_size=50), settings, learn, 1)
    base = measure_peak_memory()
    # Two steps, so that gradients, activations and the optimiser's moments meet.
    train(make_config(), settings, learn, 1)
    print(json.dumps({"bytes": measure_peak_memory() - base}))


if __name__ == "__main__":
    main()
