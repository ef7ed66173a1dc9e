"""From the bytes that a server sent to a `Reply`: the one parser of chat completions.

Whatever a server leaves out, adds or writes in another form is read where it can mean one thing only; everything else
becomes a `Failure`. The server's message is kept whole: some servers refuse a conversation whose earlier messages lack
their call ids, their reasoning or their signatures. Left out: HTTP, and what the text means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib.llm.chat_model import Failure, Reply, ToolCall
from lib.llm.reply_store import hide_secret
from lib.llm.token_counts import Usage, count_bytes, read_usage

SHOWN = 300  # characters of a server's words in an error
_LARGEST_TOKEN = 64  # bytes of a token, on average; a longer reply was not asked for
_REASONING_FIELDS = ("reasoning_content", "reasoning")  # DeepSeek and vLLM; OpenRouter and Groq
_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True)
class Pricing:
    """What a model's tokens cost and take.

    Attributes:
        price_in: US dollars per token read.
        price_out: US dollars per token written.
        price_cached_in: US dollars per token read from the server's cache.
        kwh_per_token: Energy.
    """

    price_in: float = 0.0
    price_out: float = 0.0
    price_cached_in: float | None = None
    kwh_per_token: float = 0.0

    def compute_cost(self, usage: Usage) -> float:
        """Computes the cost of a call in dollars: as the server bills it, else by tokens and prices.

        Args:
            usage: Tokens of the call.
        """
        if usage.cost_usd is not None:
            return usage.cost_usd
        price_cached = self.price_in if self.price_cached_in is None else self.price_cached_in
        uncached = usage.tokens_in - usage.tokens_cached
        cost_in = uncached * self.price_in + usage.tokens_cached * price_cached
        return cost_in + usage.tokens_out * self.price_out


@dataclass(frozen=True)
class CallInfo:
    """What the parser must know of the call.

    Attributes:
        model: Its name in the settings.
        backend: As of `Reply`.
        pricing: Pricing of the model.
        prompt_bytes: Bytes of the messages and tools that were sent.
        max_tokens: Tokens of the reply.
        secret: The key that a server might echo.
    """

    model: str
    backend: str
    pricing: Pricing
    prompt_bytes: int
    max_tokens: int
    secret: str = ""


def parse_response(body: bytes, call: CallInfo, seconds: float = 0.0) -> Reply:
    """Read the body of a 200 response.

    Args:
        body: As it came.
        call: What was asked, and at what prices.
        seconds: Between request and reply.

    Returns:
        The reply; where the body is none, or its text cannot be used, a reply with a `failure`.
    """
    completion = _load_object(body)
    if completion is None:
        excerpt = hide_secret(body.decode("utf-8", "replace"), call.secret)[:80]
        detail = f"a body that is no JSON object: {excerpt!r}" if body.strip() else "an empty body"
        return _failed(call, Failure("not_a_reply", detail), seconds)
    if completion.get("error"):
        detail = hide_secret(str(completion["error"]), call.secret)[:SHOWN]
        return _failed(call, Failure("provider_error", detail), seconds)
    choice = _first_choice(completion)
    if choice is None:
        return _failed(call, Failure("not_a_reply", "a completion without choices"), seconds)

    # Reasoning stands in a field of its own, in one of two names, or inside the text.
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    inline_reasoning, text = split_reasoning(read_text(message.get("content")))
    fields = [read_text(message.get(name)) for name in _REASONING_FIELDS]
    reasoning = next((field for field in fields if field), "") + inline_reasoning
    tool_calls, unreadable_calls = read_tool_calls(message)
    reply_bytes = count_bytes(text) + count_bytes(reasoning)
    reply_bytes += sum(count_bytes(tool.name + tool.arguments) for tool in tool_calls)
    usage = read_usage(completion.get("usage"), call.prompt_bytes, reply_bytes)

    # A server that ignores the limit has sent something else than what was asked for.
    finish_reason = str(choice.get("finish_reason") or "stop")
    failure = _find_failure(message, text, tool_calls, unreadable_calls, finish_reason)
    visible_bytes = reply_bytes - count_bytes(reasoning)
    if visible_bytes > _LARGEST_TOKEN * (call.max_tokens + _LARGEST_TOKEN):
        failure = Failure("malformed", f"a reply of {visible_bytes:,} bytes, far over its limit")
    return Reply(
        text=hide_secret(text, call.secret),
        model=call.model,
        backend=call.backend,
        tool_calls=tuple(
            ToolCall(
                hide_secret(tool.id, call.secret),
                hide_secret(tool.name, call.secret),
                hide_secret(tool.arguments, call.secret),
            )
            for tool in tool_calls
        ),
        finish_reason=hide_secret(finish_reason, call.secret)[:SHOWN],
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        tokens_reasoning=usage.tokens_reasoning,
        cost_usd=call.pricing.compute_cost(usage),
        kwh=(usage.tokens_in + usage.tokens_out) * call.pricing.kwh_per_token,
        seconds=seconds,
        is_counted=usage.is_counted,
        message=_hide_in_message(message, call.secret),
        failure=failure,
    )


def read_text(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts with text."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def split_reasoning(text: str) -> tuple[str, str]:
    """Separate reasoning that stands inside a text from what is meant to be read.

    Args:
        text: With `<think> ... </think>`, or with the end tag alone where the prompt opened it.

    Returns:
        The reasoning, and the remaining text.
    """
    if "think" not in text.lower():  # the usual case
        return "", text
    reasoning = "".join(_THOUGHT.findall(text))
    visible = _THOUGHT.sub("", text)
    *before_end, visible = _THOUGHT_END.split(visible)
    return "".join(before_end) + reasoning, visible.strip()


def read_tool_calls(message: Mapping[str, Any]) -> tuple[list[ToolCall], int]:
    """Reads the tool calls of a message.

    Args:
        message: The server's.

    Returns:
        The calls, arguments as JSON text even where the server sends an object; and how many entries are none.
    """
    entries = message.get("tool_calls")
    tool_calls, unreadable = [], 0
    for entry in entries if isinstance(entries, list) else []:
        function = entry.get("function") if isinstance(entry, dict) else None
        function = function if isinstance(function, dict) else {}
        name = function.get("name")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if arguments is None:
            arguments = "{}"
        if not isinstance(name, str) or not name or not isinstance(arguments, str):
            unreadable += 1
            continue
        call_id = entry.get("id")
        tool_calls.append(ToolCall(call_id if isinstance(call_id, str) else "", name, arguments))
    return tool_calls, unreadable


def _load_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a body; None where there is none, or one that is nested too deep to be read."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _first_choice(completion: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first of a completion's choices, of which one was asked for; None where there is none."""
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return choices[0]


def _find_failure(
    message: Mapping[str, Any],
    text: str,
    tool_calls: list[ToolCall],
    unreadable_calls: int,
    finish_reason: str,
) -> Failure | None:
    """Find out why a reply cannot be used.

    Args:
        message: The message of a chat completion.
        text: Its text.
        tool_calls: Its tool calls that could be read.
        unreadable_calls: Number of its other tool calls.
        finish_reason: Why the server stopped, such as "stop" or "length".

    Returns:
        The failure; None for a usable reply, with text or a tool call.
    """
    if finish_reason == "error":
        return Failure("provider_error", "the provider failed in the middle of the reply")
    if message.get("refusal"):
        return Failure("refusal", "the model refused")
    if finish_reason == "content_filter":
        return Failure("moderation", "the provider's filter stopped the reply")
    if finish_reason == "length":
        return Failure("truncated", "the reply reached its limit of tokens")
    if unreadable_calls and not tool_calls:
        return Failure(
            "malformed", "a tool call without a name, or with arguments that are no text"
        )
    if not text.strip() and not tool_calls:
        return Failure("empty", "neither text nor a tool call")
    return None


def _failed(call: CallInfo, failure: Failure, seconds: float) -> Reply:
    return Reply("", call.model, call.backend, seconds=seconds, failure=failure)


def _hide_in_message(message: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """The message without a key that the server echoed, and without half characters."""
    text = json.dumps(message, ensure_ascii=False)
    return json.loads(hide_secret(text, json.dumps(secret)[1:-1]))
