"""Where the scores of a reward model lie: centre and spread over replies of the model that is about to be trained.

r_pref is sigmoid((s - centre) / spread). Scores of published reward models lie anywhere, so that without a scale nearly
all would be near 1 or near 0, and the reward would say the same of every reply. The scale is written beside the reward
model, and every later training with it reads it.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from lib.conductor.reward_model import SCALE_FILE, PreferenceReward
from lib.experiment import artifacts, seeds

NUM_PROMPTS = 200
_BATCH_SIZE = 8  # replies that are sampled side by side
_SMALLEST_SPREAD = 1e-3


def calibrate(
    model: str | Path,
    reward_folder: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence,
    max_tokens: int,
    temperature: float,
    seed: int,
    device: str,
) -> dict[str, float | int]:
    """Measure centre and spread of the reward model's scores, and write them into its folder.

    Args:
        model: Folder of the policy.
        reward_folder: Folder of the reward model.
        tokenizer: Tokenizer of the policy; it pads on the left here.
        prompts: Text or messages; the first NUM_PROMPTS are answered.
        max_tokens: Largest number of tokens of a reply.
        temperature: Temperature of the sampling.
        seed: Seed of the sampling.
        device: Where both models compute.

    Returns:
        What is in the file: centre, the mean score; spread, its standard deviation; prompts, how many.

    Raises:
        OSError: The folder cannot be written to.
    """
    prompts = list(prompts)[:NUM_PROMPTS]
    replies = sample_plain_replies(model, tokenizer, prompts, max_tokens, temperature, seed, device)
    scores = PreferenceReward(reward_folder, device).compute_scores(prompts, replies)
    scale = {
        "centre": float(scores.mean()),
        "spread": max(float(scores.std()), _SMALLEST_SPREAD),
        "prompts": len(prompts),
    }
    artifacts.write_json(Path(reward_folder) / SCALE_FILE, scale)
    return scale


@torch.no_grad()
def sample_plain_replies(
    model: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence,
    max_tokens: int,
    temperature: float,
    seed: int,
    device: str,
) -> list[str]:
    """Sample one reply to each prompt with transformers.

    Args:
        model: Folder of a causal language model.
        tokenizer: Tokenizer of the model, with a padding token.
        prompts: Text or messages.
        max_tokens: Largest number of tokens of a reply.
        temperature: 0 for greedy decoding.
        seed: Seed of the sampling.
        device: Where it computes.

    Returns:
        The replies, in the order of the prompts.
    """
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    policy = AutoModelForCausalLM.from_pretrained(str(model), dtype=dtype, local_files_only=True)
    policy = policy.eval().to(device)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    options = sampling if temperature > 0 else {"do_sample": False}
    replies = []
    for first in range(0, len(prompts), _BATCH_SIZE):
        # A seed for each batch: replies do not depend on how many there were before.
        torch.manual_seed(int(seeds.key("conductor", "plain replies", first, seed=seed) % 2**31))
        texts = [
            _format_prompt(tokenizer, prompt) for prompt in prompts[first : first + _BATCH_SIZE]
        ]
        inputs = tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
        )
        inputs.pop("token_type_ids", None)
        inputs = inputs.to(device)
        generated = policy.generate(
            **inputs, max_new_tokens=max_tokens, pad_token_id=tokenizer.pad_token_id, **options
        )
        new_tokens = generated[:, inputs["input_ids"].shape[1] :]
        replies += tokenizer.batch_decode(new_tokens, skip_special_tokens=True)
    return replies


def _format_prompt(tokenizer: PreTrainedTokenizerBase, prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
