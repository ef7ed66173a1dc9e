"""What every chat completion has in common, whichever model writes it: its head, usage, tool calls and chunks.

Left out: how the text comes about, see `lab_completion` and `folder_completion`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from lib.language_models.serving.chat_completions.request import CompletionRequest

OWNER = "orchestration-bench"


class ChatCompletion(ABC):
    """One chat completion under way, to be read whole or as chunks.

    Attributes:
        id: Of the completion; equal requests have equal ids.
        is_streamed: Whether the client wants chunks.
    """

    def __init__(
        self, request: CompletionRequest, digest: str, model_name: str, fingerprint: str
    ) -> None:
        """Name a completion.

        Args:
            request: What is to be answered.
            digest: Hash of all that the reply depends on but the weights.
            model_name: The name that the client asked for.
            fingerprint: Hash of the weights.
        """
        self.request = request
        self.model_name = model_name
        self.fingerprint = fingerprint
        self.id = f"chatcmpl-{digest[:24]}"
        self.is_streamed = bool(request.stream)

    @abstractmethod
    async def complete(self) -> dict[str, Any]:
        """Wait for the whole completion.

        Returns:
            The body of the response.

        Raises:
            RequestRefused: Where it shows only now that the request cannot be honoured.
            RequestCancelled: After `cancel`.
            BatcherClosed: Where the server ends.
            GenerationFailed: Where the model broke.
        """

    @abstractmethod
    def iterate_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The completion piece by piece: a role, texts, how it ended, and the usage if the request wants it.

        Raises what `complete` raises.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop writing, because nobody waits any more; does nothing where all is written."""

    def make_body(
        self, choices: Sequence[Mapping[str, Any]], prompt_tokens: int, completion_tokens: int
    ) -> dict[str, Any]:
        """The body of a response that comes whole."""
        body = self._make_head("chat.completion")
        body["choices"] = list(choices)
        body["usage"] = make_usage(prompt_tokens, completion_tokens)
        return body

    def make_chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk with one choice."""
        chunk = self._make_head("chat.completion.chunk")
        if self.request.wants_usage_in_stream:
            chunk["usage"] = None  # in every chunk but the last
        chunk["choices"] = [choice]
        return chunk

    def make_usage_chunk(self, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
        """The chunk after all others."""
        chunk = self._make_head("chat.completion.chunk")
        chunk["usage"] = make_usage(prompt_tokens, completion_tokens)
        chunk["choices"] = []
        return chunk

    def make_tool_call(self, unique: str, name: str, arguments: str) -> dict[str, Any]:
        """A tool call.

        Args:
            unique: What tells it from the other calls of this completion.
            name: The tool's.
            arguments: JSON of an object.

        Returns:
            The call as a message holds it.
        """
        call_id = hashlib.sha256(f"{self.id}/{unique}".encode()).hexdigest()[:24]
        return {
            "id": f"call_{call_id}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def _make_head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": 0,  # no clock: equal requests get equal bytes
            "model": self.model_name,
            "system_fingerprint": self.fingerprint,
        }


class CompletionModel(ABC):
    """A model that completes chats: a lab model, or a Hugging Face folder.

    Attributes:
        name: By which clients ask for it.
    """

    name: str

    @abstractmethod
    async def start_completion(self, request: CompletionRequest) -> ChatCompletion:
        """Start on a reply.

        Args:
            request: What is to be answered.

        Returns:
            The completion under way.

        Raises:
            RequestRefused: Where this model cannot honour the request.
            QueueFull: Where as many requests wait as may.
            BatcherClosed: Where the server ends.
        """

    @abstractmethod
    def describe(self, with_vocabulary: bool = False) -> dict[str, Any]:
        """What is known about the model, as GET /v1/models gives it.

        Args:
            with_vocabulary: Whether to list the words that it knows, where they are few.
        """

    def make_description(self, **facts: Any) -> dict[str, Any]:
        """A description with the fields that OpenAI's API wants, and more facts."""
        head = {"id": self.name, "object": "model", "created": 0, "owned_by": OWNER}
        return head | facts

    @abstractmethod
    async def aclose(self) -> None:
        """End what runs in the background; who still waits gets BatcherClosed."""


def make_choice_chunk(
    index: int,
    delta: Mapping[str, Any],
    logprobs: Sequence[Mapping[str, Any]] = (),
    finish_reason: str | None = None,
) -> dict[str, Any]:
    """One choice of a chunk.

    Args:
        index: Of the choice.
        delta: What is new in its message.
        logprobs: Entries of the tokens that are new.
        finish_reason: How it ended; None while it goes on.

    Returns:
        The choice.
    """
    return {
        "index": index,
        "delta": delta,
        "logprobs": {"content": list(logprobs), "refusal": None} if logprobs else None,
        "finish_reason": finish_reason,
    }


def make_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Tokens read and written."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
