"""A LoRA training of a few updates from the first sampled turn to the resumed checkpoint, on any device."""

from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedConfig

from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_batch import Sample
from lib.rl.token_ppo import TokenPPO
from tests.budgeted_routing import small_systems

PROMPT_TOKENS, TURN_TOKENS = 8, 8
NUM_EPISODES = 16
REWARDED_BELOW = (
    0.5  # a turn is worth the fraction of its tokens in this lower part of the vocabulary
)


def sample_episodes(trainer: TokenPPO, seed: int) -> list[Sample]:
    """Turns that the network writes by itself, with a reward for tokens of the lower half of the vocabulary."""
    policy = trainer.policy
    vocab_size = policy.network.config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(3, vocab_size, (NUM_EPISODES, PROMPT_TOKENS), generator=generator)
    torch.manual_seed(seed)
    with torch.no_grad():
        ids = policy.network.generate(
            prompts.to(policy.device),
            attention_mask=torch.ones_like(prompts).to(policy.device),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            max_new_tokens=TURN_TOKENS,
            min_new_tokens=TURN_TOKENS,
            pad_token_id=0,
        ).tolist()
    mask = [False] * PROMPT_TOKENS + [True] * TURN_TOKENS
    samples = []
    for index, row in enumerate(ids):
        turn = row[PROMPT_TOKENS:]
        hits = [token < REWARDED_BELOW * vocab_size for token in turn]
        samples.append(Sample(row, mask, sum(hits) / len(turn), index // 4))
    return samples


def make_lora_trainer(folder: Path, settings: PolicyModelSettings, device: str) -> TokenPPO:
    policy = PolicyModel.from_folder(folder, settings, device)
    learn = small_systems.make_learn_settings(
        advantages="group", learning_rate=2e-3, kl=0.001, epochs=1, minibatch=8, microbatch=4
    )
    return TokenPPO(policy, learn, pad_id=0, num_updates=20)


def train_with_lora(
    config: PreTrainedConfig, settings: PolicyModelSettings, device: str, folder: Path
) -> list[float]:
    """Train a model with random weights, stop and resume it, and check what must hold anywhere.

    Args:
        config: Of the model.
        settings: With LoRA.
        device: Where it is trained.
        folder: An empty one.

    Returns:
        The mean reward of each update.
    """
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "start")
    trainer = make_lora_trainer(folder / "start", settings, device)
    frozen = {
        name: weight.clone()
        for name, weight in trainer.policy.network.state_dict().items()
        if "lora_" not in name
    }

    # The first half, and a checkpoint that holds no frozen weights.
    rewards, num_updates = [], 4
    for step in range(num_updates // 2):
        episodes = sample_episodes(trainer, step)
        rewards.append(sum(sample.reward for sample in episodes) / len(episodes))
        metrics = trainer.update(episodes)
        assert metrics["ratio"] == 0 and abs(metrics["loss"]) < 10
    trainer.save(folder / "checkpoint.safetensors")
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        assert all("lora_" in name for name in file.keys())  # noqa: SIM118

    # The second half in a trainer that was set up anew; it writes and learns the same.
    resumed = make_lora_trainer(folder / "start", settings, device)
    resumed.restore(folder / "checkpoint.safetensors")
    for step in range(num_updates // 2, num_updates):
        episodes = sample_episodes(resumed, step)
        assert episodes == sample_episodes(trainer, step)
        rewards.append(sum(sample.reward for sample in episodes) / len(episodes))
        assert resumed.update(episodes) == trainer.update(episodes)

    # Only the adapter has moved.
    weights = resumed.policy.network.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in frozen.items())
    moved = [weight for name, weight in weights.items() if "lora_B" in name]
    assert all(weight.any() for weight in moved)
    return rewards
