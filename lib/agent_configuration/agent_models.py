"""Who the agents of a workflow are: a lab model in this process, or any model of `llm.models` through the client.

`LabAgentModel` asks as all lessons ask lab models (`lib.language_models.in_process_client`); `EndpointAgentModel` as
any OpenAI client would. For a lab model both say the same.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lib.language_models import chat_template
from lib.language_models.in_process_client import Asker, Said, request_seed
from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.json_replies import arguments, words
from lib.tools.tool import Tool, ToolError

VERSION = 1  # of how a model is asked for a turn


class Speaker(Protocol):
    """A model that takes turns. price_in, price_out: dollars per token; pace: seconds per token written, declared."""

    name: str
    backend: str
    price_in: float
    price_out: float
    pace: float

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Tool], limit: int, key: int
    ) -> Said:
        """The next turn; `limit` tokens at the most, key: seed of its random numbers."""

    def called(self, tool: Tool, argument: str) -> str:
        """What a tool replies to a call. Raises ToolError for a call that is none."""

    def worded(self, argument: str) -> str:
        """What a tool was called with, in words, as it stands in notes."""

    def exchange(self, said: Said, result: str) -> list[dict[str, Any]]:
        """A call and its result as messages."""


class LabAgentModel:
    """A lab model at a temperature; a reply is a pure function of tokens, limit and key."""

    backend = "lab"

    def __init__(self, asker: Asker, temperature: float) -> None:
        """Raises ModelError for a model without a measured card."""
        self.asker, self.name, self.temperature = asker, asker.name, temperature
        self.price_in = self.price_out = asker.price
        self.pace = 1 / asker.model.card["tokens_per_second"]

    async def say(self, messages, tools, limit, key) -> Said:
        ids = chat_template.conversation(messages, tuple(tools))
        return await self.asker.go_on(
            ids, limit, self.temperature, request_seed(ids, key), bool(tools)
        )

    def called(self, tool: Tool, argument: str) -> str:
        return tool(tool.parse_line(argument))

    def worded(self, argument: str) -> str:
        return argument

    def exchange(self, said: Said, result: str) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": said.text}, {"role": "tool", "content": result}]


class EndpointAgentModel:
    """A model of `llm.models`, asked through the client. pace: declared, for endpoints tell no clock."""

    def __init__(self, client: Client, name: str, temperature: float, pace: float) -> None:
        about = client.settings.models[name]
        self.client, self.name, self.temperature, self.pace = client, name, temperature, pace
        self.backend = about.backend
        self.price_in, self.price_out = about.price_in or 0.0, about.price_out or 0.0

    async def say(self, messages, tools, limit, key) -> Said:
        offered = [tool.schema for tool in tools.values()] or None
        try:
            reply = await self.client.chat(
                self.name,
                messages,
                seed=key,
                temperature=self.temperature,
                max_tokens=limit,
                tools=offered,
                who=self.name,
            )
        except ReplyError as error:
            return Said(
                error.text,
                error.tokens_in,
                error.tokens_out,
                None,
                error.kind == "truncated",
                error.kind,
            )
        call = reply.calls[0] if reply.calls else None
        return Said(reply.text, reply.tokens_in, reply.tokens_out, call)

    def called(self, tool: Tool, argument: str) -> str:
        try:
            return tool(argument)
        except ToolError:
            told = list((arguments(argument) or {}).values())
            if len(told) != 1 or not isinstance(told[0], str) or len(tool.parameters) < 2:
                raise
            return tool(
                tool.parse_line(told[0])
            )  # a lab model behind a server writes a line, whatever the schema

    def worded(self, argument: str) -> str:
        told = arguments(argument)
        return argument if told is None else words(told.values())

    def exchange(self, said: Said, result: str) -> list[dict[str, Any]]:
        name, argument = said.call or ("", "")
        unique = "call_" + hashlib.sha256(json.dumps([name, argument]).encode()).hexdigest()[:16]
        function = {"name": name, "arguments": argument}
        call = {"id": unique, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": said.text or None, "tool_calls": [call]},
            {"role": "tool", "content": result, "tool_call_id": unique},
        ]


def answer_of(tool: Tool, argument: str, speaker: Speaker, wrong: str) -> str:
    """What a tool replies, or what is said where a call is none. wrong: instead of the error, "" for the error."""
    try:
        return speaker.called(tool, argument)
    except ToolError as error:
        return wrong or f"error: {error}"
