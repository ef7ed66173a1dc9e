"""Generation by the lab's own engine, for lab models: half the time of a transformers loop, and the same
tokens whatever was drawn before. Other models are generated from by TRL, with transformers or vLLM."""

from collections.abc import Sequence
from typing import Any

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS

VERSION = 1  # of the seeds of rollouts
_STRIDE = 10**9  # rollouts that one seed may have


class RolloutFunction:
    """TRL's `rollout_func`: prompts (messages) and a trainer in, tokens and their log-probabilities out."""

    def __init__(self, seed: int, temperature: float, limit: int) -> None:
        """limit: tokens of a completion, the one that ends it included."""
        self.first, self.temperature, self.limit = seed * _STRIDE, temperature, limit

    def __call__(self, prompts: Sequence[Any], trainer) -> dict[str, list]:
        forward = Forward(trainer.accelerator.unwrap_model(trainer.model))
        asked = [tuple(encode_conversation(prompt)) for prompt in prompts]
        first = self.first + trainer.state.global_step * len(asked)
        made = generate(
            forward,
            [Prompt(ids, self.limit, self.temperature, first + i) for i, ids in enumerate(asked)],
            encode_special(EOS),
        )
        return {
            "prompt_ids": [list(ids) for ids in asked],
            "completion_ids": [each.ids for each in made],
            "logprobs": [each.logprobs for each in made],
        }
