"""What every system asks a language model through: a request, a reply, and a model that maps one to the other.

    replies = model.generate([ChatRequest([{"role": "user", "content": "3 + 4 = ?"}])])

Models differ in where they answer: `lib.language_models.lab_model` (small, in this process),
`lib.language_models.hugging_face_model` (a folder, on a CPU or GPU), `lib.llm.endpoint` (any server that speaks
OpenAI's API), `lib.llm.recorded_model` (replies from a file) and `lib.llm.scripted_model` (a program, labelled as one).
Nobody who asks needs to know which. Left out: streaming, and what the messages are about.

A reply that cannot be used has a `failure`. Failures are of two kinds, and they are treated differently:

- of the *model*: it refused, was cut off at its limit, wrote nothing. That is a result; it is scored.
- of the *infrastructure*: nobody listens, the quota is used up, every call answers 400. That says nothing about the
  model; it is never scored, and many of them end the run (`lib.llm.failure_policy`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lib.llm.event_loop import run_coroutine

Message = Mapping[str, Any]  # as in OpenAI's API: role, content, perhaps tool_calls or tool_call_id

MODEL_FAILURES = {
    "truncated": "the reply was cut off at its limit of tokens",
    "refusal": "the model refused to reply",
    "empty": "the reply holds no text and no tool call",
    "malformed": "the reply cannot be read",
    "context_too_long": "prompt and limit do not fit into the model's window",
    "unknown_words": "the model's vocabulary lacks words of the prompt",
}
INFRASTRUCTURE_FAILURES = {
    "timeout": "no whole reply came in time",
    "connection": "nobody answers at the address",
    "rate_limit": "the server asks to slow down",
    "server_error": "the server is in trouble",
    "bad_request": "the server refuses the request",
    "provider_error": "the provider behind the server failed, in the middle of a reply or before it",
    "moderation": "the provider's filter stopped the call",
    "not_a_reply": "the server's answer is no chat completion",
}


@dataclass(frozen=True)
class Failure:
    """Why a reply cannot be used.

    Attributes:
        kind: One of MODEL_FAILURES or INFRASTRUCTURE_FAILURES.
        detail: What happened, in one line; no key and no prompt stands in it.
    """

    kind: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in MODEL_FAILURES and self.kind not in INFRASTRUCTURE_FAILURES:
            kinds = ", ".join([*MODEL_FAILURES, *INFRASTRUCTURE_FAILURES])
            raise ValueError(f"unknown kind of failure {self.kind!r}; there are {kinds}")

    @property
    def of_infrastructure(self) -> bool:
        """Whether this says nothing about the model, so that nothing may be scored."""
        return self.kind in INFRASTRUCTURE_FAILURES

    @property
    def may_succeed_later(self) -> bool:
        """Whether the same request can get a reply once the server is well, so that work must stop and be resumed.

        A provider's filter stops the same prompt every time: no later run would get further.
        """
        return self.of_infrastructure and self.kind != "moderation"


@dataclass(frozen=True)
class ToolCall:
    """A tool that a model wants to use.

    Attributes:
        id: The server's, empty for models without one.
        name: The tool's name.
        arguments: JSON of an object, or the one line that a lab model writes.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatRequest:
    """What a model is asked.

    Attributes:
        messages: The conversation, as in OpenAI's API. A server's own messages stand in it verbatim.
        tools: OpenAI function schemas of the tools on offer.
        tool_choice: "auto", "none", "required", or {"type": "function", "function": {"name": ...}}.
        response_format: {"type": "json_object"}, or {"type": "json_schema", "json_schema": {...}}.
        temperature: 0 is greedy; None is the model's setting.
        max_tokens: Tokens of the visible reply at the most; None is the model's setting.
        stop: Texts that end the reply; they are not part of it.
        seed: Seed of the model's random numbers; samples of one prompt have seeds of their own.
        sample: The index among equal requests that are asked several times on purpose, so that each is recorded.
        caller: Who asks, for the account of costs.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    seed: int = 0
    sample: int = 0
    caller: str = ""


@dataclass(frozen=True)
class Reply:
    """What came back, and what it cost.

    Attributes:
        text: The visible text; what came of it where the reply failed.
        model: The model's name in the settings.
        backend: "lab", "hugging_face", "endpoint", "recorded" or "scripted".
        tool_calls: In the model's order.
        finish_reason: "stop", "length", "tool_calls", or what else the server says.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply, reasoning included.
        tokens_cached: Of the prompt's tokens, those billed at the cache's price.
        tokens_reasoning: Of the reply's tokens, those of hidden reasoning.
        cost_usd: As the server bills it, else by tokens and the model's prices; the same when replayed.
        kwh: By tokens and the model's assumed energy per token.
        seconds: Between request and reply; those of the recording when replayed.
        is_counted: Whether the server counted the tokens; else they are estimates.
        replayed: Whether it came from the record, so that nothing was paid now.
        message: The server's message whole, to be appended to the conversation as it stands.
        failure: Why the reply cannot be used; None for a usable one.
    """

    text: str
    model: str
    backend: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost_usd: float = 0.0
    kwh: float = 0.0
    seconds: float = 0.0
    is_counted: bool = True
    replayed: bool = False
    message: Mapping[str, Any] = field(default_factory=dict, hash=False)
    failure: Failure | None = None

    @property
    def usable(self) -> bool:
        """Whether the reply can be read as an answer or a tool call."""
        return self.failure is None


class ChatModel(ABC):
    """A model that replies to conversations; an (async) context manager that lets go of what it opened.

    Attributes:
        name: In the settings.
        backend: As of `Reply`.
        price_in: US dollars per token read.
        price_out: US dollars per token written.
        max_tokens: Tokens of a reply at the most.
    """

    name: str
    backend: str
    price_in: float
    price_out: float
    max_tokens: int

    @abstractmethod
    async def reply_to(self, request: ChatRequest) -> Reply:
        """Reply to one conversation.

        A call that fails is a reply with a `failure`, never an exception.

        Args:
            request: What the model is asked.

        Returns:
            The reply.

        Raises:
            ConfigurationError: Where no retry can help, for example without a key.
            BudgetExceeded: Where the call could pass the spending limit; it was not made.
        """

    async def reply_to_all(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Reply to many conversations side by side.

        Args:
            requests: What the model is asked.

        Returns:
            Replies in the order of the requests.
        """
        return list(await asyncio.gather(*map(self.reply_to, requests)))

    def generate(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """The same for callers without an event loop, and for those in a notebook's.

        Args:
            requests: What the model is asked.

        Returns:
            Replies in the order of the requests.
        """
        return run_coroutine(self.reply_to_all(requests))

    async def aclose(self) -> None:  # noqa: B027, most models hold nothing open
        """Let go of connections, threads and files."""

    async def __aenter__(self) -> ChatModel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
