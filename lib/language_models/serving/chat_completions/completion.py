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
        id: Id of the completion; equal requests have equal ids.
        is_streamed: Whether the client wants chunks.
    """

    def __init__(
        self, request: CompletionRequest, digest: str, model_name: str, fingerprint: str
    ) -> None:
        """
        Args:
            request: What is to be answered.
            digest: Hash of all that the reply depends on except the weights; the completion's id is made of it.
            model_name: The name of the model, as the client asked for it.
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
        """Make the body of a response that comes whole, as OpenAI's API has it.

        Args:
            choices: JSON of the n replies.
            prompt_tokens: Number of tokens of the prompt.
            completion_tokens: Number of tokens of all replies.

        Returns:
            JSON.
        """
        body = self._make_head("chat.completion")
        body["choices"] = list(choices)
        body["usage"] = make_usage(prompt_tokens, completion_tokens)
        return body

    def make_chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """Make a chunk of a streamed response, as OpenAI's API has it, with what is new of one choice."""
        chunk = self._make_head("chat.completion.chunk")
        if self.request.wants_usage_in_stream:
            chunk["usage"] = None  # in every chunk but the last
        chunk["choices"] = [choice]
        return chunk

    def make_usage_chunk(self, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
        """Make the last chunk of a streamed response, which has the numbers of tokens and no choice."""
        chunk = self._make_head("chat.completion.chunk")
        chunk["usage"] = make_usage(prompt_tokens, completion_tokens)
        chunk["choices"] = []
        return chunk

    def make_tool_call(self, unique: str, name: str, arguments: str) -> dict[str, Any]:
        """Make a tool call as an assistant message of OpenAI's API holds it.

        Args:
            unique: A text that no other call of this completion has; the call's id is made of it.
            name: Name of the tool.
            arguments: A JSON object, as text.

        Returns:
            JSON with id, type and function.
        """
        call_id = hashlib.sha256(f"{self.id}/{unique}".encode()).hexdigest()[:24]
        return {
            "id": f"call_{call_id}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def _make_head(self, kind: str) -> dict[str, Any]:
        """Make the fields that response bodies and chunks have in common."""
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
        """Make a model's description: the fields that OpenAI's API wants, and further facts."""
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
    """Make the entry of one choice (one of the n replies) in a chunk of a streamed response, as OpenAI's API has it.

    Args:
        index: Position of the choice.
        delta: What is new in its message, such as {"content": "Hello"}.
        logprobs: Log-probabilities of the new tokens, an entry each.
        finish_reason: "stop", "length" or "tool_calls"; None while the choice goes on.

    Returns:
        JSON.
    """
    return {
        "index": index,
        "delta": delta,
        "logprobs": {"content": list(logprobs), "refusal": None} if logprobs else None,
        "finish_reason": finish_reason,
    }


def make_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Make the usage of a response, as OpenAI's API has it: numbers of tokens read, written and together."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
