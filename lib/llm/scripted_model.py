"""A program that reads the prompt and replies as a model would: a stand-in, labelled as one wherever it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lib.config import ModelSettings
from lib.llm import scripted
from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.llm.parse_response import CallInfo, Pricing, parse_response
from lib.llm.token_counts import count_bytes

Respond = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ScriptedModel(ChatModel):
    """Replies computed from the text of the request; charged like a model, so that ledgers have something to count.

    Attributes:
        name: In the settings.
        settings: Its prices and limits.
    """

    backend = "scripted"

    def __init__(
        self, name: str, settings: ModelSettings, respond: Respond = scripted.complete_chat
    ) -> None:
        """Wrap a program.

        Args:
            name: In the settings.
            settings: Its prices and limits.
            respond: From the body of a request to a chat completion, both as in OpenAI's API. A ValueError of it
                is a refused request.
        """
        self.name = name
        self.settings = settings
        self.price_in = settings.price_in or 0.0
        self.price_out = settings.price_out or 0.0
        self.max_tokens = settings.max_tokens
        self._respond = respond
        self._pricing = Pricing(
            self.price_in,
            self.price_out,
            kwh_per_token=settings.kwh_per_token,
        )

    async def reply_to(self, request: ChatRequest) -> Reply:
        """Answers a request by the model's program, which gets the same body as a server would.

        Args:
            request: Messages, tools and sampling settings.

        Returns:
            The reply; where the program refuses the request, a reply with a failure.
        """
        settings = self.settings
        max_tokens = settings.max_tokens
        if request.max_tokens is not None:
            max_tokens = min(request.max_tokens, max_tokens)
        # The program gets what a server would get, so that it could stand behind one.
        body = {
            "model": settings.model or self.name,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": max_tokens,
            "seed": request.seed,
        }
        optional = {
            "temperature": request.temperature,
            "response_format": request.response_format,
            "tools": list(request.tools) or None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        prompt_bytes = count_bytes(json.dumps(body["messages"], ensure_ascii=False))
        call = CallInfo(self.name, self.backend, self._pricing, prompt_bytes, max_tokens)
        try:
            completion = self._respond(body)
        except ValueError as error:
            # As of a server: a call that fails is a reply with a failure.
            failure = Failure("bad_request", str(error))
            return Reply("", self.name, self.backend, failure=failure)
        return parse_response(json.dumps(completion).encode(), call)
