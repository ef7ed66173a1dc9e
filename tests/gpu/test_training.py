"""LoRA in bfloat16 on a GPU: a model of SmolLM2-135M's shape is trained, and takes the memory that was planned."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from lib.rl.memory_plan import plan_memory
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_batch import Sample
from lib.rl.token_ppo import TokenPPO
from tests.budgeted_routing import small_systems
from tests.rl.lora_training import train_with_lora

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device on this machine"
)

EPISODE_TOKENS, POLICY_TOKENS = 1024, 512
LORA = PolicyModelSettings(dtype="bfloat16", lora_rank=16, gradient_checkpointing=True)
FULL = PolicyModelSettings(dtype="bfloat16")


def make_smollm2_config() -> LlamaConfig:
    """SmolLM2-135M."""
    return LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def test_a_model_of_135_million_weights_is_trained_with_lora_and_resumed(tmp_path):
    rewards = train_with_lora(make_smollm2_config(), LORA, "cuda", tmp_path)
    assert len(rewards) == 4 and all(0 < reward < 1 for reward in rewards)


@pytest.mark.parametrize("model", [LORA, FULL], ids=["LoRA with checkpointing", "all weights"])
def test_a_training_takes_what_was_planned(model):
    """Within 15 % of the peak that CUDA's allocator reports."""
    learn = small_systems.make_learn_settings(
        advantages="group", kl=0.001, epochs=1, minibatch=8, microbatch=4
    )
    config = make_smollm2_config()
    plan = plan_memory(config, model, learn, EPISODE_TOKENS, POLICY_TOKENS, device="cuda")

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    dtype = torch.bfloat16 if model.lora_rank else torch.float32  # as a folder is read
    network = AutoModelForCausalLM.from_config(config, dtype=dtype).to("cuda")
    trainer = TokenPPO(PolicyModel(network, model), learn, 0, 2)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, config.vocab_size, (16, EPISODE_TOKENS), generator=generator)
    mask = [False] * (EPISODE_TOKENS - POLICY_TOKENS) + [True] * POLICY_TOKENS
    trainer.update(
        [Sample(row, mask, index % 2, index // 4) for index, row in enumerate(ids.tolist())]
    )
    used = torch.cuda.max_memory_allocated() - base
    assert plan.total == pytest.approx(used, rel=0.15), plan.describe()
