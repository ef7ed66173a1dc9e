"""A chat model that says what a test gives it, and remembers how it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.llm.open_models import ChatModels

Answer = str | Failure | Reply | Exception


class StubModel(ChatModel):
    """Replies with the given answers in turn, over and over.

    A text is a usable reply, a Failure a reply that failed, an exception is raised.
    """

    backend = "endpoint"
    price_in = price_out = 0.0
    max_tokens = 1_000

    def __init__(
        self,
        *answers: Answer,
        name: str = "stub",
        answer: Callable[[ChatRequest], Answer] | None = None,
    ) -> None:
        self.name = name
        self.answers = list(answers)
        self.answer = answer
        self.requests: list[ChatRequest] = []
        self.num_closed = 0

    async def reply_to(self, request: ChatRequest) -> Reply:
        self.requests.append(request)
        number = len(self.requests) - 1
        await asyncio.sleep(0)
        if self.answer is not None:
            answer = self.answer(request)
        else:
            answer = self.answers[number % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Reply):
            return answer
        if isinstance(answer, Failure):
            return Reply("", self.name, self.backend, failure=answer)
        message = {"role": "assistant", "content": answer}
        return Reply(answer, self.name, self.backend, tokens_in=1, tokens_out=1, message=message)

    async def aclose(self) -> None:
        self.num_closed += 1

    def open(self, *_: Any, **__: Any) -> ChatModels:
        """The stub as `open_models` would return it."""
        return ChatModels({self.name: self})


def contents(requests: Sequence[ChatRequest]) -> list[str]:
    """The text of each request's last message."""
    return [request.messages[-1]["content"] for request in requests]
