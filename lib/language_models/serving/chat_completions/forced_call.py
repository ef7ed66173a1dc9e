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
    """Tokenize the beginning of a tool call as lab models write it: "<call> NAME"."""
    return encode(f"{CALL_TAG} {tool}")


@torch.inference_mode()
def measure_tool_logprobs(
    forward: Forward, prompt_ids: Sequence[int], tools: Sequence[str]
) -> np.ndarray:
    """Compute how probable it is that a lab model calls each of several tools, given that it calls one.

    Args:
        forward: The forward pass of a lab model, a small transformer that was trained here.
        prompt_ids: Token ids of the conversation.
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
    """Compute how probable each of several token sequences is under a model, given that it writes one of them.

    At every token at which the sequences branch, the model's probabilities are normalised over the tokens with which
    some sequence goes on. A sequence's score is the sum over its branches.

    Args:
        prefixes: The sequences of token ids, all different.
        read_next_logprobs: Asks the model: from contexts, beginnings of the sequences, to the log-probabilities of
            all tokens that may come next, (contexts, vocabulary).

    Returns:
        Log-probabilities (sequences,), normalised.
    """
    # A prefix tree: the tokens with which each beginning goes on; None where a sequence ends there.
    options: dict[Tokens, set[int | None]] = {}
    for prefix in prefixes:
        for length in range(len(prefix)):
            options.setdefault(prefix[:length], set()).add(prefix[length])
        options.setdefault(prefix, set()).add(None)

    # The model is asked only where the sequences branch.
    contexts = sorted(context for context, following in options.items() if len(following) > 1)
    if not contexts:
        return np.zeros(len(prefixes))
    # Log-probability of each branch, by context and next token.
    step_scores: dict[tuple[Tokens, int | None], float] = {}
    for context, row in zip(contexts, read_next_logprobs(contexts), strict=True):
        tokens = sorted(token for token in options[context] if token is not None)
        logprobs = row[tokens]  # (tokens,)
        if None in options[context]:
            # One sequence is the beginning of others. It ends here with the probability that none of them goes on.
            end = torch.log1p(-logprobs.exp().sum().clamp(max=1 - 1e-12))
            step_scores[context, None] = float(end)
        else:
            logprobs = logprobs.log_softmax(0)
        for token, logprob in zip(tokens, logprobs.tolist(), strict=True):
            step_scores[context, token] = logprob

    # Tokens at which nothing branches have probability 1, and add 0.
    scores = np.zeros(len(prefixes))
    for index, prefix in enumerate(prefixes):
        for length, token in enumerate((*prefix, None)):
            scores[index] += step_scores.get((prefix[:length], token), 0.0)
    return scores


def choose_tool(logprobs: np.ndarray, tools: Sequence[str], temperature: float, seed: int) -> str:
    """Choose a tool by its probability: the most probable one, or sampled from softmax(logprobs / temperature).

    Args:
        logprobs: Log-probabilities of the tools, (tools,).
        tools: Their names.
        temperature: 0 chooses the most probable tool.
        seed: Seed of the one random number that sampling draws.

    Returns:
        The name of a tool.
    """
    if temperature == 0:
        return tools[int(np.argmax(logprobs))]

    scaled = logprobs / max(temperature, 1e-9)
    # The largest is subtracted, so that no exponential overflows.
    weights = np.exp(scaled - scaled.max())
    cumulative = np.cumsum(weights)  # (tools,)

    stream = np.array([seeds.key("tool choice", seed=seed)])
    (uniform,) = seeds.uniform(stream, np.zeros(1))
    threshold = uniform * cumulative[-1]
    index = int(np.searchsorted(cumulative, threshold, side="right"))
    # Rounding may put the threshold on the very end, behind the last tool.
    return tools[min(index, len(tools) - 1)]
