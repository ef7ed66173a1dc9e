"""A tool call that a model in a Hugging Face folder must make: its beginning is written for it, up to the arguments.

How a call begins depends on the chat template; known are the formats of `lib.language_models.tool_call_formats`. Which
of several tools is called is the model's choice among their names. The reply ends where the JSON of the arguments does.

Left out: arguments that are constrained to the tool's schema, several calls in one reply, and templates that write
calls in another format, for which a forced call is refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib.experiment import seeds
from lib.language_models.batched_sampling import SampledSequence, sample_batch
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.reply_text import THINK_CLOSE, THINK_OPEN, TextDecoder
from lib.language_models.serving.chat_completions.forced_call import choose_tool, score_prefixes
from lib.language_models.tool_call_formats import (
    HERMES_OPEN,
    LLAMA_OPEN,
    MISTRAL_ARGUMENTS,
    MISTRAL_OPEN,
)
from lib.llm.chat_model import ChatRequest

_DECODER = json.JSONDecoder()
_THINK_TAIL = 8  # tokens at the end of a prompt in which an open <think> stands


@dataclass(frozen=True)
class CallFormat:
    """How a call is written: this, the name, that, and then the JSON of the arguments."""

    before_name: str
    after_name: str


@dataclass(frozen=True)
class ForcedCall:
    """A call that was begun for the model.

    Attributes:
        name: Of the tool.
        arguments: JSON of an object; its beginning where the limit cut it off.
        finish: "stop", "length", or "malformed" where the model wrote no JSON object.
        tokens_in: Of the prompt.
        tokens_out: Of the call, with those that were written for the model.
    """

    name: str
    arguments: str
    finish: str
    tokens_in: int
    tokens_out: int


def find_call_format(chat_template: str) -> CallFormat | None:
    """The format in which a chat template writes tool calls; None where it is none of those that are known."""
    if HERMES_OPEN in chat_template:
        return CallFormat(f'{HERMES_OPEN}\n{{"name": "', '", "arguments":')
    if MISTRAL_OPEN in chat_template and MISTRAL_ARGUMENTS in chat_template:
        return CallFormat(MISTRAL_OPEN, MISTRAL_ARGUMENTS)
    if MISTRAL_OPEN in chat_template:
        return CallFormat(f'{MISTRAL_OPEN}[{{"name": "', '", "arguments":')
    if LLAMA_OPEN in chat_template or '"parameters": ' in chat_template:
        return CallFormat('{"name": "', '", "parameters":')
    return None


def write_forced_call(
    model: HuggingFaceModel,
    request: ChatRequest,
    call_format: CallFormat,
    max_tokens: int,
    cancelled: threading.Event,
) -> ForcedCall:
    """Let a model write the arguments of a call; blocks until they are written.

    Args:
        model: Who is asked.
        request: The conversation, with the tools of which one must be called.
        call_format: Of the model's chat template.
        max_tokens: Of the call, with its beginning; more than that takes.
        cancelled: Set where nobody waits any more.

    Returns:
        The call.

    Raises:
        PromptError: The chat template cannot show the conversation.
    """
    prompt_ids = model.encode_prompt(request)
    # a model that is about to reason must close its reasoning first
    before_name = call_format.before_name
    if _opens_in_reasoning(model, prompt_ids):
        before_name = f"\n{THINK_CLOSE}\n\n{before_name}"
    names = [tool["function"]["name"] for tool in request.tools]
    endings = [f"{before_name}{name}{call_format.after_name}" for name in names]
    prefixes = [_encode(model, ending) for ending in endings]

    # the choice is greedy or sampled as all else is
    temperature = 1.0 if request.temperature is None else request.temperature
    index = 0
    if len(names) > 1:
        logprobs = _measure_logprobs(model, prompt_ids, prefixes)
        index = names.index(choose_tool(logprobs, names, temperature, request.seed))
    prefix = prefixes[index]

    # as in `HuggingFaceModel`, prompts do not share their random numbers
    digest = hashlib.sha256(str(prompt_ids).encode()).hexdigest()
    stream = seeds.key("forced call", digest, request.sample, seed=request.seed)
    limit = max(1, min(max_tokens, model.window - len(prompt_ids)) - len(prefix))
    sequence = SampledSequence([*prompt_ids, *prefix], limit, temperature, stream)

    decoder = TextDecoder(model.tokenizer)
    text = ""
    arguments = None
    for _ in sample_batch(model.net, [sequence], model.end_token_ids):
        if cancelled.is_set():
            sequence.finish = "dropped"
            continue
        if sequence.finish != "stop":  # an end token is no text
            text += decoder.add_token(sequence.ids[-1])
        # to parse after every token would take time that grows with the square of the text
        if "}" in text:
            arguments = _read_arguments(text)
        if arguments is not None:
            sequence.finish = "stop"

    finish = sequence.finish
    if arguments is None:
        arguments = text.strip()
        if finish == "stop":
            finish = "malformed"
    tokens_out = len(prefix) + len(sequence.ids)
    return ForcedCall(names[index], arguments, finish, len(prompt_ids), tokens_out)


def count_prefix_tokens(
    model: HuggingFaceModel, call_format: CallFormat, tools: Sequence[str]
) -> int:
    """Tokens of the longest beginning of a call."""
    return max(
        len(_encode(model, f"{call_format.before_name}{tool}{call_format.after_name}"))
        for tool in tools
    )


@torch.inference_mode()
def _measure_logprobs(
    model: HuggingFaceModel, prompt_ids: Sequence[int], prefixes: Sequence[Sequence[int]]
) -> np.ndarray:
    """Log-probabilities (tools,) of the beginnings of calls, normalised over the tools."""

    def read_next_logprobs(contexts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        rows = []
        for context in contexts:
            ids = torch.tensor([[*prompt_ids, *context]], device=model.net.device)  # (1, tokens)
            logits = model.net(input_ids=ids).logits[0, -1]  # (vocabulary,)
            rows.append(logits.double().log_softmax(0).cpu())
        return torch.stack(rows)

    return score_prefixes([tuple(prefix) for prefix in prefixes], read_next_logprobs)


def _read_arguments(text: str) -> str | None:
    """The JSON object that a text begins with; None while it is not whole."""
    body = text.lstrip()
    try:
        value, end = _DECODER.raw_decode(body)
    except (ValueError, RecursionError):
        return None
    return body[:end] if isinstance(value, dict) else None


def _opens_in_reasoning(model: HuggingFaceModel, prompt_ids: Sequence[int]) -> bool:
    tail = model.tokenizer.decode(list(prompt_ids[-_THINK_TAIL:]), skip_special_tokens=False)
    return tail.rstrip().endswith(THINK_OPEN)


def _encode(model: HuggingFaceModel, text: str) -> list[int]:
    return model.tokenizer(text, add_special_tokens=False)["input_ids"]
