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
    """How a model writes a tool call: `before_name`, the tool's name, `after_name`, and the JSON of the arguments."""

    before_name: str
    after_name: str


@dataclass(frozen=True)
class ForcedCall:
    """A call that was begun for the model.

    Attributes:
        name: Name of the tool.
        arguments: JSON of an object; its beginning where the limit cut it off.
        finish: "stop", "length", or "malformed" where the model wrote no JSON object.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the call, with those that were written for the model.
    """

    name: str
    arguments: str
    finish: str
    tokens_in: int
    tokens_out: int


def find_call_format(chat_template: str) -> CallFormat | None:
    """Find out in which format a model writes tool calls: that of Hermes, Mistral (two) or Llama.

    Args:
        chat_template: The model's chat template, whose text holds the markers of its format.

    Returns:
        The format; None where it is none of those.
    """
    if HERMES_OPEN in chat_template:
        return CallFormat(f'{HERMES_OPEN}\n{{"name": "', '", "arguments":')
    # Newer Mistral models write a name and its arguments, older ones a list of JSON objects.
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
    """Force a tool call: choose a tool by the model's probabilities of their names, and let it write the arguments.

    Blocks until the call is written.

    Args:
        model: The language model.
        request: The conversation, with the tools of which one must be called.
        call_format: How the model writes a call.
        max_tokens: Limit of the call's tokens; its beginning, which is written for the model, counts and must fit.
        cancelled: Set from another thread to stop generating, where nobody waits for the call any more.

    Returns:
        The call, with its finish reason and numbers of tokens.

    Raises:
        PromptError: The chat template cannot show the conversation.
    """
    prompt_ids = model.encode_prompt(request)
    # What is written for the model, for each tool. A model that is about to reason must close its reasoning first.
    before_name = call_format.before_name
    if _opens_in_reasoning(model, prompt_ids):
        before_name = f"\n{THINK_CLOSE}\n\n{before_name}"
    names = [tool["function"]["name"] for tool in request.tools]
    beginnings = [f"{before_name}{name}{call_format.after_name}" for name in names]
    prefixes = [_encode(model, beginning) for beginning in beginnings]  # token ids

    # The choice of the tool is greedy or sampled, as the rest of the reply is.
    temperature = 1.0 if request.temperature is None else request.temperature
    index = 0
    if len(names) > 1:
        logprobs = _measure_logprobs(model, prompt_ids, prefixes)  # (tools,)
        index = names.index(choose_tool(logprobs, names, temperature, request.seed))
    prefix = prefixes[index]

    # The prompt is part of the random stream's key, so that other prompts draw other random numbers.
    digest = hashlib.sha256(str(prompt_ids).encode()).hexdigest()
    stream = seeds.key("forced call", digest, request.sample, seed=request.seed)
    limit = max(1, min(max_tokens, model.window - len(prompt_ids)) - len(prefix))
    sequence = SampledSequence([*prompt_ids, *prefix], limit, temperature, stream)

    # Generate token by token, until the JSON object of the arguments is whole.
    decoder = TextDecoder(model.tokenizer)
    text = ""
    arguments = None
    for _ in sample_batch(model.net, [sequence], model.end_token_ids):
        if cancelled.is_set():
            sequence.finish = "dropped"
            continue
        if sequence.finish != "stop":  # an end token is no text
            text += decoder.add_token(sequence.ids[-1])
        # Without a brace the object is not whole. Parsing after every token would take quadratic time.
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
    """Count the tokens of the longest beginning of a call, up to the arguments, among some tools.

    Args:
        model: Its tokenizer counts.
        call_format: How the model writes a call.
        tools: Names of the tools.

    Returns:
        Number of tokens.
    """
    return max(
        len(_encode(model, f"{call_format.before_name}{tool}{call_format.after_name}"))
        for tool in tools
    )


@torch.inference_mode()
def _measure_logprobs(
    model: HuggingFaceModel, prompt_ids: Sequence[int], prefixes: Sequence[Sequence[int]]
) -> np.ndarray:
    """Compute how probable each of several beginnings of a tool call is as what the model writes next.

    Args:
        model: The language model.
        prompt_ids: Token ids of the conversation.
        prefixes: Token ids of the beginning of a call, one for each tool.

    Returns:
        Log-probabilities (tools,), normalised over the tools.
    """

    def read_next_logprobs(contexts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        rows = []
        for context in contexts:
            ids = torch.tensor([[*prompt_ids, *context]], device=model.net.device)  # (1, tokens)
            logits = model.net(input_ids=ids).logits[0, -1]  # (vocabulary,)
            rows.append(logits.double().log_softmax(0).cpu())
        return torch.stack(rows)

    return score_prefixes([tuple(prefix) for prefix in prefixes], read_next_logprobs)


def _read_arguments(text: str) -> str | None:
    """Cut out the JSON object that a text begins with, as text; None while it is not whole."""
    body = text.lstrip()
    try:
        value, end = _DECODER.raw_decode(body)
    except (ValueError, RecursionError):
        return None
    return body[:end] if isinstance(value, dict) else None


def _opens_in_reasoning(model: HuggingFaceModel, prompt_ids: Sequence[int]) -> bool:
    """Whether a prompt ends with an open <think>, so that the model's reply would begin with reasoning."""
    tail = model.tokenizer.decode(list(prompt_ids[-_THINK_TAIL:]), skip_special_tokens=False)
    return tail.rstrip().endswith(THINK_OPEN)


def _encode(model: HuggingFaceModel, text: str) -> list[int]:
    return model.tokenizer(text, add_special_tokens=False)["input_ids"]
