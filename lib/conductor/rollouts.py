"""Rollouts by the generation engine of the lab models, in half the time of a transformers loop.

The tokens of a rollout do not depend on what was sampled before. Other models are sampled by TRL, with transformers or
vLLM.
"""

from collections.abc import Sequence
from typing import Any

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS

VERSION = 1  # of the seeds of rollouts
_ROLLOUTS_PER_SEED = 10**9  # at most, so that the streams of two seeds do not overlap


class RolloutFunction:
    """TRL's `rollout_func`: prompts (messages) and a trainer in, tokens and their log-probabilities out."""

    def __init__(self, seed: int, temperature: float, max_tokens: int) -> None:
        """Keep how replies are sampled.

        Args:
            seed: Seed of the training.
            temperature: Temperature of the sampling.
            max_tokens: Largest number of tokens of a completion, its end-of-turn token included.
        """
        self.first_stream = seed * _ROLLOUTS_PER_SEED
        self.temperature = temperature
        self.max_tokens = max_tokens

    def __call__(self, prompts: Sequence[Any], trainer) -> dict[str, list]:
        forward = Forward(trainer.accelerator.unwrap_model(trainer.model))
        prompt_ids = [tuple(encode_conversation(prompt)) for prompt in prompts]
        first_stream = self.first_stream + trainer.state.global_step * len(prompt_ids)
        requests = [
            Prompt(ids, self.max_tokens, self.temperature, first_stream + i)
            for i, ids in enumerate(prompt_ids)
        ]
        generations = generate(forward, requests, encode_special(EOS))
        return {
            "prompt_ids": [list(ids) for ids in prompt_ids],
            "completion_ids": [generation.ids for generation in generations],
            "logprobs": [generation.logprobs for generation in generations],
        }
