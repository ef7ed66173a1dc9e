"""Who the agents of a workflow are: a lab model in this process, or any other chat model.

A lab model reads roles as single words and writes the argument of a tool as one line; other models read sentences and
call tools by JSON. Both are asked through `lib.llm.chat_model`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lib.language_models import chat_template
from lib.language_models.lab_model import LabModel, derive_request_seed
from lib.llm.chat_model import ChatModel, ChatRequest, Reply, ToolCall
from lib.llm.json_replies import join_values, read_arguments
from lib.tools.tool import Tool, ToolError

VERSION = 1  # of how a model is asked for a turn


class AgentModel(Protocol):
    """A model that takes turns in a workflow.

    Attributes:
        name: Name in the settings.
        backend: Where it runs, as of `Reply`.
        price_in: US dollars per token read.
        price_out: US dollars per token written.
        seconds_per_token: Per token written, by the declared clock.
    """

    name: str
    backend: str
    price_in: float
    price_out: float
    seconds_per_token: float

    async def take_turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Mapping[str, Tool],
        max_tokens: int,
        key: int,
    ) -> Reply:
        """The next turn.

        Args:
            messages: The conversation.
            tools: Tools on offer, by name.
            max_tokens: Most tokens that the turn may have.
            key: Seed of its random numbers.

        Returns:
            The reply; one that failed has a `failure`.
        """

    def run_tool(self, tool: Tool, arguments_text: str) -> str:
        """Carry out a call of a tool and return its reply. Raises ToolError for a call that cannot be carried out."""

    def describe_arguments(self, arguments_text: str) -> str:
        """Write the arguments of a call as they stand in notes."""

    def write_exchange(self, reply: Reply, result: str) -> list[dict[str, Any]]:
        """A tool call and its result as messages."""


class LabAgentModel:
    """A lab model at a temperature; a reply is a pure function of tokens, limit and key."""

    backend = "lab"

    def __init__(self, model: LabModel, temperature: float) -> None:
        """Prepare to ask. Raises ModelError for a model without a measured card."""
        self.model = model
        self.name = model.name
        self.temperature = temperature
        self.price_in = self.price_out = model.price_per_token
        self.seconds_per_token = 1 / model.served.card["tokens_per_second"]

    async def take_turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Mapping[str, Tool],
        max_tokens: int,
        key: int,
    ) -> Reply:
        """Let the model write the next turn of a conversation.

        Args:
            messages: The conversation so far.
            tools: Tools on offer, by name.
            max_tokens: Largest number of tokens of the turn.
            key: Seeds the random numbers, together with the tokens.

        Returns:
            The turn.
        """
        token_ids = chat_template.encode_conversation(messages, tuple(tools))
        seed = derive_request_seed(token_ids, key)
        reply = await self.model.continue_tokens(
            token_ids, max_tokens, self.temperature, seed, bool(tools)
        )
        if reply.failure is not None and reply.failure.kind == "empty":
            return replace(reply, failure=None)  # an agent may leave an empty note
        return reply

    def run_tool(self, tool: Tool, arguments_text: str) -> str:
        return tool(tool.parse_line(arguments_text))

    def describe_arguments(self, arguments_text: str) -> str:
        return arguments_text

    def write_exchange(self, reply: Reply, result: str) -> list[dict[str, Any]]:
        return [
            {"role": "assistant", "content": reply.text},
            {"role": "tool", "content": result},
        ]


class ChatAgentModel:
    """Any other chat model."""

    def __init__(self, model: ChatModel, temperature: float, seconds_per_token: float) -> None:
        """Prepare to ask.

        Args:
            model: The model that is asked.
            temperature: Sampling temperature of its turns.
            seconds_per_token: Declared, for servers tell no clock.
        """
        self.model = model
        self.name = model.name
        self.backend = model.backend
        self.temperature = temperature
        self.seconds_per_token = seconds_per_token
        self.price_in = model.price_in
        self.price_out = model.price_out

    async def take_turn(self, messages, tools, max_tokens, key) -> Reply:
        request = ChatRequest(
            messages,
            tools=[tool.schema for tool in tools.values()],
            temperature=self.temperature,
            max_tokens=max_tokens,
            seed=key,
            caller=self.name,
        )
        return await self.model.reply_to(request)

    def run_tool(self, tool: Tool, arguments_text: str) -> str:
        """Call a tool with the arguments that a model wrote.

        Small models behind a server write one line of text whatever the schema; it is taken as the tool's line of
        arguments.

        Args:
            tool: The tool.
            arguments_text: JSON of the arguments.

        Returns:
            The tool's reply.
        """
        try:
            return tool(arguments_text)
        except ToolError:
            values = list((read_arguments(arguments_text) or {}).values())
            is_one_line = len(values) == 1 and isinstance(values[0], str)
            if not is_one_line or len(tool.parameters) < 2:
                raise
            # A lab model behind a server writes a line, whatever the schema.
            return tool(tool.parse_line(values[0]))

    def describe_arguments(self, arguments_text: str) -> str:
        fields = read_arguments(arguments_text)
        return arguments_text if fields is None else join_values(fields.values())

    def write_exchange(self, reply: Reply, result: str) -> list[dict[str, Any]]:
        """A tool call and its result as messages.

        Args:
            reply: The reply whose first tool call was carried out.
            result: What the tool replied.

        Returns:
            The message of the assistant and that of the tool, with the same id.
        """
        call = reply.tool_calls[0]
        call_id = call.id or _make_call_id(call)
        # The server's own message, verbatim: some refuse a conversation that lacks their ids or their reasoning.
        message = dict(reply.message)
        if not message.get("tool_calls") or not call.id:
            function = {"name": call.name, "arguments": call.arguments}
            tool_call = {"id": call_id, "type": "function", "function": function}
            message = {
                "role": "assistant",
                "content": reply.text or None,
                "tool_calls": [tool_call],
            }
        else:
            # Every call needs a result, and one call is carried out per turn.
            message["tool_calls"] = message["tool_calls"][:1]
            message.setdefault("role", "assistant")
        return [message, {"role": "tool", "content": result, "tool_call_id": call_id}]


def _make_call_id(call: ToolCall) -> str:
    """Make an id for a call of a server that gives none: equal calls have equal ids."""
    content = json.dumps([call.name, call.arguments])
    return "call_" + hashlib.sha256(content.encode()).hexdigest()[:16]


def answer_call(tool: Tool, arguments_text: str, model: AgentModel, replacement: str) -> str:
    """Carry out a call of a tool, and say what the model reads of it.

    Args:
        tool: The tool that is called.
        arguments_text: The arguments as the model wrote them.
        model: The model whose call it is.
        replacement: What is said in place of the tool's complaint; "" for the complaint itself.

    Returns:
        The tool's reply, or a complaint where the call is none.
    """
    try:
        return model.run_tool(tool, arguments_text)
    except ToolError as error:
        return replacement or f"error: {error}"
