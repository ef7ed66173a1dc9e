"""A tool call that a model must make: its beginning is written for it, and it goes on from there.

Which of several tools is the model's choice. It is asked at each token at which their names part, and its probabilities
are normalised over the tokens with which a name on offer goes on; so a long name is no less probable than a short one.
The choice is greedy or sampled as the rest of the reply is.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from lib.experiment import seeds
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import encode

CALL_TAG = "<call>"  # of the lab's protocol

Tokens = tuple[int, ...]


def encode_call_prefix(tool: str) -> list[int]:
    """Tokens of the beginning of a lab model's call."""
    return encode(f"{CALL_TAG} {tool}")


@torch.inference_mode()
def measure_tool_logprobs(
    forward: Forward, prompt_ids: Sequence[int], tools: Sequence[str]
) -> np.ndarray:
    """How probable it is that a lab model calls each tool, once it has begun a call.

    Args:
        forward: The model.
        prompt_ids: Tokens of the conversation.
        tools: Names of the tools.

    Returns:
        Log-probabilities (tools,), normalised over the tools.
    """
    prefixes = [tuple(encode_call_prefix(tool)) for tool in tools]

    def read_next_logprobs(contexts: Sequence[Tokens]) -> torch.Tensor:
        (states,) = forward.compute_last_states([(*prompt_ids, *context) for context in contexts])
        return forward.compute_logits(states).double().log_softmax(1)

    return score_prefixes(prefixes, read_next_logprobs)


def score_prefixes(
    prefixes: Sequence[Tokens],
    read_next_logprobs: Callable[[Sequence[Tokens]], torch.Tensor],
) -> np.ndarray:
    """How probable each of several token sequences is, if it must be one of them.

    Args:
        prefixes: The sequences, all different.
        read_next_logprobs: From contexts, beginnings of the sequences, to the log-probabilities of all tokens that
            may come next, (contexts, vocabulary).

    Returns:
        Log-probabilities (sequences,), normalised.
    """
    # with what each beginning goes on; None where a sequence ends there
    options: dict[Tokens, set[int | None]] = {}
    for prefix in prefixes:
        for length in range(len(prefix)):
            options.setdefault(prefix[:length], set()).add(prefix[length])
        options.setdefault(prefix, set()).add(None)

    # the model is asked only where the sequences part
    contexts = sorted(context for context, following in options.items() if len(following) > 1)
    if not contexts:
        return np.zeros(len(prefixes))
    step_scores: dict[tuple[Tokens, int | None], float] = {}
    for context, row in zip(contexts, read_next_logprobs(contexts), strict=True):
        tokens = sorted(token for token in options[context] if token is not None)
        logprobs = row[tokens]  # (tokens,)
        if None in options[context]:
            # a sequence ends here with the probability that no other goes on
            end = torch.log1p(-logprobs.exp().sum().clamp(max=1 - 1e-12))
            step_scores[context, None] = float(end)
        else:
            logprobs = logprobs.log_softmax(0)
        for token, logprob in zip(tokens, logprobs.tolist(), strict=True):
            step_scores[context, token] = logprob

    scores = np.zeros(len(prefixes))
    for index, prefix in enumerate(prefixes):
        for length, token in enumerate((*prefix, None)):
            scores[index] += step_scores.get((prefix[:length], token), 0.0)
    return scores


def choose_tool(logprobs: np.ndarray, tools: Sequence[str], temperature: float, seed: int) -> str:
    """The tool that is called.

    Args:
        logprobs: Of the tools (tools,).
        tools: Their names.
        temperature: 0 is the most probable.
        seed: Of the random number.

    Returns:
        A name.
    """
    if temperature == 0:
        return tools[int(np.argmax(logprobs))]

    scaled = logprobs / max(temperature, 1e-9)
    # the largest is taken off, so that no exponential overflows
    weights = np.exp(scaled - scaled.max())
    cumulative = np.cumsum(weights)  # (tools,)

    stream = np.array([seeds.key("tool choice", seed=seed)])
    (uniform,) = seeds.uniform(stream, np.zeros(1))
    threshold = uniform * cumulative[-1]
    index = int(np.searchsorted(cumulative, threshold, side="right"))
    # rounding may put the threshold on the very end
    return tools[min(index, len(tools) - 1)]
