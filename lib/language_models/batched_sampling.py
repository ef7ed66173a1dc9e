"""Sampling from any causal language model of transformers: many sequences a step, each with settings of its own.

    for sequence in sample_batch(network, sequences, end_token_ids={2}):
        print(sequence.ids[-1])  # the token that was just drawn

The distribution is softmax(logits / temperature) and nothing else: `generation_config.json` is not read, so no top-p,
top-k or penalty changes it. The n-th token of a sequence is drawn with the n-th number of its own stream
(`lib.experiment.seeds`), so that it is the same alone and in a batch, as far as floating point allows.

Left out: sequences that join a batch under way (`lib.language_models.generation` does that for the lab models), and
models without a cache of keys and values, such as encoder-decoders.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from lib.experiment import seeds

VERSION = 1  # of the tokens that are drawn


@dataclass(eq=False)
class SampledSequence:
    """One row of a batch: what it starts from, and what was drawn so far.

    Attributes:
        prompt_ids: Tokens of the prompt, at least one.
        limit: New tokens at the most, at least one.
        temperature: 0 is greedy.
        stream: Key of the random numbers, of `lib.experiment.seeds.key`.
        ids: New tokens, the one that ended the sequence included.
        logprobs: Log-probabilities of the new tokens, at temperature 1, in nats.
        finish: "stop", "length", "dropped" where nobody waits for it any more, or "" while it goes on.
    """

    prompt_ids: Sequence[int]
    limit: int
    temperature: float
    stream: np.uint64
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""


@torch.inference_mode()
def sample_batch(
    network: PreTrainedModel,
    sequences: Sequence[SampledSequence],
    end_token_ids: Collection[int],
) -> Iterator[SampledSequence]:
    """Draw tokens for all sequences, side by side, until each has a `finish`.

    Args:
        network: A causal language model, on any device.
        sequences: They are filled in place.
        end_token_ids: A sequence stops at the first of them.

    Yields:
        Each sequence after each of its tokens. Whoever reads them may set `finish`, for example at a stop string.

    Raises:
        FloatingPointError: The network's logits are not finite.
    """
    device = network.device
    parameters = inspect.signature(network.forward).parameters
    cache = DynamicCache(config=network.config)
    running = list(sequences)
    input_ids, attention_mask = _align_right([sequence.prompt_ids for sequence in running], device)

    while True:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if "position_ids" in parameters:
            # Padding has no position: a prompt's first token is at 0 wherever it stands.
            positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
            inputs["position_ids"] = positions[:, -input_ids.shape[1] :]
        # A prompt's other logits are not needed, and they are many: (rows, tokens, vocabulary).
        if "logits_to_keep" in parameters:
            inputs["logits_to_keep"] = 1
        outputs = network(**inputs, past_key_values=cache, use_cache=True)
        logits = outputs.logits[:, -1]  # (rows, vocabulary)

        tokens, logprobs = draw_tokens(logits, running)
        for sequence, token, logprob in zip(running, tokens, logprobs, strict=True):
            sequence.ids.append(token)
            sequence.logprobs.append(logprob)
            if token in end_token_ids:
                sequence.finish = "stop"
            elif len(sequence.ids) >= sequence.limit:
                sequence.finish = "length"
            yield sequence

        # Finished sequences leave the batch, so that a long one does not pay for the others.
        rows = [row for row, sequence in enumerate(running) if not sequence.finish]
        if not rows:
            return
        if len(rows) < len(running):
            selection = torch.tensor(rows, device=device)
            cache.batch_select_indices(selection)
            attention_mask = attention_mask[selection]
            running = [running[row] for row in rows]

        last_tokens = [[sequence.ids[-1]] for sequence in running]
        input_ids = torch.tensor(last_tokens, device=device)  # (rows, 1)
        attention_mask = torch.cat([attention_mask, torch.ones_like(input_ids)], dim=1)


def _align_right(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, (rows, longest prompt) each; every prompt ends in the last column."""
    longest = max(map(len, prompts))
    # Padding is masked, so any token will do: the tokenizer need not have one for it.
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, prompt in enumerate(prompts):
        input_ids[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        attention_mask[row, longest - len(prompt) :] = 1
    return input_ids.to(device), attention_mask.to(device)


def draw_tokens(
    logits: torch.Tensor, sequences: Sequence[SampledSequence]
) -> tuple[list[int], list[float]]:
    """Draw the next token of every sequence.

    Args:
        logits: (rows, vocabulary).
        sequences: The rows; their temperatures, streams and numbers of tokens so far are read.

    Returns:
        Tokens and their log-probabilities at temperature 1, one of each per row.

    Raises:
        FloatingPointError: The logits are not finite.
    """
    # In float32, sums over a large vocabulary are off by more than its rare tokens are likely; mps has nothing finer.
    has_float64 = logits.device.type != "mps"
    logprobs = logits.to(torch.float64 if has_float64 else torch.float32).log_softmax(1)
    tokens = logits.argmax(1)

    sampled_rows = [row for row, sequence in enumerate(sequences) if sequence.temperature > 0]
    if sampled_rows:
        sampled = [sequences[row] for row in sampled_rows]
        temperatures = logprobs.new_tensor([sequence.temperature for sequence in sampled])
        probabilities = (logprobs[sampled_rows] / temperatures[:, None]).softmax(1)
        cumulative = probabilities.cumsum(1)

        streams = np.array([sequence.stream for sequence in sampled], dtype=np.uint64)
        counters = np.array([len(sequence.ids) for sequence in sampled])
        numbers = logprobs.new_tensor(seeds.uniform(streams, counters))  # (sampled rows,)

        # The first token whose cumulative probability exceeds the number; rounding keeps the last sum from being 1.
        thresholds = numbers[:, None] * cumulative[:, -1:]
        new_tokens = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
        tokens[sampled_rows] = new_tokens.clamp(max=logits.shape[1] - 1)

    token_logprobs = logprobs.gather(1, tokens[:, None])[:, 0].tolist()
    if not np.isfinite(token_logprobs).all():
        raise FloatingPointError(
            f"the model's logits are not finite in {str(logits.dtype).removeprefix('torch.')}; try dtype='float32'"
        )
    return tokens.tolist(), token_logprobs
