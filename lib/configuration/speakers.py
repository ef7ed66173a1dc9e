"""Who the agents of a workflow are: a lab model in this process, or any model of `llm.models` through the client.

`Lab` puts the tokens of a request straight into the engine that the lab's server uses, because a training asks tens
of thousands of times; `Hosted` asks as any OpenAI client would. For a lab model both say the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lib import seeds
from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.replies import arguments, words
from lib.models import dialogue
from lib.models.answering import Model
from lib.models.batching import Batcher
from lib.models.generation import ContextTooLong, Prompt
from lib.models.tokenizer import EOS, decode, encode
from lib.tools.tool import Tool, ToolError

_CALLED = "</call>"
_AT_ONCE = 256  # sequences side by side
_WAITING = 2**16


@dataclass(frozen=True)
class Said:
    """One turn of a model. call: the tool's name and what it is called with; cut: whether the limit ended it;
    failure: why there is nothing, as the client's errors name it."""

    text: str
    tokens_in: int
    tokens_out: int
    call: tuple[str, str] | None = None
    cut: bool = False
    failure: str = ""


class Speaker(Protocol):
    """A model that takes turns. price_in, price_out: dollars per token; pace: seconds per token written, declared."""

    name: str
    backend: str
    price_in: float
    price_out: float
    pace: float

    async def say(self, messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Tool], limit: int, key: int) -> Said:
        """The next turn; `limit` tokens at the most, key: seed of its random numbers."""

    def called(self, tool: Tool, argument: str) -> str:
        """What a tool replies to a call. Raises ToolError for a call that is none."""

    def worded(self, argument: str) -> str:
        """What a tool was called with, in words, as it stands in notes."""

    def exchange(self, said: Said, result: str) -> list[dict[str, Any]]:
        """A call and its result as messages."""


class Lab:
    """A lab model. Equal requests are answered once: a reply is a pure function of tokens, limit and seed."""

    backend = "lab"

    def __init__(self, model: Model, temperature: float) -> None:
        """Raises KeyError for a model without a measured card."""
        self.name, self.temperature = model.name, temperature
        self.window = model.forward.window
        self.price_in = self.price_out = model.card["dollars_per_1k_tokens"] / 1000
        self.pace = 1 / model.card["tokens_per_second"]
        self.batcher = Batcher(model.forward, dialogue.token(EOS), _WAITING, _AT_ONCE)
        self.stop = (tuple(encode(_CALLED)),)
        self.known: dict[bytes, Said] = {}
        self.asking: dict[bytes, asyncio.Task[Said]] = {}

    async def say(self, messages, tools, limit, key) -> Said:
        ids = dialogue.conversation(messages, tuple(tools))
        asked = hashlib.sha256(f"{ids}/{limit}/{key}".encode()).digest()
        if asked not in self.known:
            if asked not in self.asking:
                self.asking[asked] = asyncio.ensure_future(self._say(ids, bool(tools), limit, key))
            try:
                self.known[asked] = await self.asking[asked]
            finally:
                self.asking.pop(asked, None)
        return self.known[asked]

    async def _say(self, ids: list[int], tools: bool, limit: int, key: int) -> Said:
        seed = request_seed(ids, key)
        try:
            ticket = self.batcher.submit([Prompt(tuple(ids), limit, self.temperature, seed, self.stop * tools)])
        except ContextTooLong:
            return Said("", 0, 0, failure="context_too_long")
        (written,) = await ticket.result()
        text = decode(written.ids)
        call = dialogue.called(text) if tools else None
        return Said(text, len(ids), len(written.ids), call, written.finish == "length")

    def called(self, tool: Tool, argument: str) -> str:
        return tool(tool.line(argument))

    def worded(self, argument: str) -> str:
        return argument

    def exchange(self, said: Said, result: str) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": said.text}, {"role": "tool", "content": result}]

    def close(self) -> None:
        """End the engine's thread."""
        self.batcher.close()


def request_seed(ids: Sequence[int], key: int) -> int:
    """The seed of a request: equal requests of one key draw the same numbers, others are independent."""
    return int(seeds.key("configuration", "say", hashlib.sha256(str(ids).encode()).hexdigest(), seed=key) >> 1)


class Hosted:
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
                self.name, messages, seed=key, temperature=self.temperature, max_tokens=limit, tools=offered,
                who=self.name,
            )  # fmt: skip
        except ReplyError as error:
            return Said(error.text, error.tokens_in, error.tokens_out, None, error.kind == "truncated", error.kind)
        call = reply.calls[0] if reply.calls else None
        return Said(reply.text, reply.tokens_in, reply.tokens_out, call)

    def called(self, tool: Tool, argument: str) -> str:
        try:
            return tool(argument)
        except ToolError:
            told = list((arguments(argument) or {}).values())
            if len(told) != 1 or not isinstance(told[0], str) or len(tool.parameters) < 2:
                raise
            return tool(tool.line(told[0]))  # a lab model behind a server writes a line, whatever the schema

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
