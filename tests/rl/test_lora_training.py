"""The training that `tests/gpu/test_training.py` runs on a GPU, in float32 with a tiny model on the CPU."""

from transformers import Qwen3Config

from lib.rl.policy_model import PolicyModelSettings
from tests.rl.lora_training import train_with_lora


def test_a_tiny_qwen3_is_trained_with_lora_and_resumed(tmp_path):
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=64,
        max_position_embeddings=64,
        eos_token_id=1,
        pad_token_id=0,
    )
    settings = PolicyModelSettings(lora_rank=8, gradient_checkpointing=True)
    rewards = train_with_lora(config, settings, "cpu", tmp_path)
    assert len(rewards) == 4 and all(0 < reward < 1 for reward in rewards)
