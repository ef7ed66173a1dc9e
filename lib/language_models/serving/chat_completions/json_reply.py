"""A reply that must be JSON (`response_format`), from a model that writes text.

The model is asked in its system message for one JSON object, with the schema if there is one. What it writes is
cleaned of reasoning, code fences and prose around the object, repaired where the JSON has slips (json-repair: a
trailing comma, single quotes), and checked against the schema. A reply that does not fit is sampled again with another
seed, MAX_ATTEMPTS times in all (once at temperature 0, where every sample is the same); then the request is refused.

Left out: constraining the tokens. What is returned always fits the schema; that there is a reply is not promised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import json_repair

from lib.language_models.serving.chat_completions.json_schema import (
    Mismatch,
    SchemaValidator,
    UnsupportedSchema,
)
from lib.language_models.serving.chat_completions.request import (
    CompletionRequest,
    RequestRefused,
)

MAX_ATTEMPTS = 3
MAX_CHARACTERS = 65_536  # of a reply
MAX_REPAIRED_CHARACTERS = 4_000  # the time to repair an object grows with their square
INSTRUCTION = "Reply with one JSON object and nothing else."


class JsonReplyReader:
    """Asks a model for JSON, and parses and checks the JSON of its replies, for one request with `response_format`."""

    def __init__(self, request: CompletionRequest) -> None:
        """
        Args:
            request: Its `response_format` is any JSON object, or JSON by a schema.

        Raises:
            RequestRefused: For a schema that is not supported, with the reason.
        """
        self.schema = request.json_schema
        self.validator = None
        if self.schema is not None:
            try:
                self.validator = SchemaValidator(self.schema)
            except UnsupportedSchema as error:
                raise RequestRefused(
                    f"response_format.json_schema.schema: {error}",
                    param="response_format.json_schema.schema",
                ) from None

    def add_instruction(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Add the instruction to reply in JSON, with the schema if there is one, to a conversation.

        Args:
            messages: {"role", "content"} each, as in OpenAI's API.

        Returns:
            A copy with the instruction at the end of the system message, or in a new one.
        """
        instruction = INSTRUCTION
        if self.schema is not None:
            schema = json.dumps(self.schema, ensure_ascii=False)
            instruction += f" It must fit this JSON schema:\n{schema}"
        first, *following = messages
        if first["role"] in ("system", "developer"):
            content = f"{first['content']}\n\n{instruction}"
            return [{"role": "system", "content": content}, *following]
        return [{"role": "system", "content": instruction}, *messages]

    def read(self, text: str) -> str:
        """Extract the JSON object of a model's reply, and check it against the schema.

        Args:
            text: The reply, perhaps with reasoning, a code fence or prose around the object, or with slips in it.

        Returns:
            The object as JSON text: as the model wrote it, or repaired where that was no valid JSON.

        Raises:
            Mismatch: Where there is no object, or it does not fit the schema.
        """
        value, content = _parse_object(text)
        if not isinstance(value, dict):
            raise Mismatch("the reply is no JSON object")
        if self.validator is not None:
            self.validator.check(value)
        return content


def _parse_object(text: str) -> tuple[Any, str]:
    """Parse the JSON value in a model's reply: the text as it is, the object in it, or that object repaired.

    Args:
        text: The reply.

    Returns:
        (value, JSON text of the value).

    Raises:
        Mismatch: Where the reply is too long, or holds no object that can be parsed or repaired.
    """
    if len(text) > MAX_CHARACTERS:
        raise Mismatch(f"the reply has {len(text)} characters; {MAX_CHARACTERS} are read")
    # Reasoning is left out. Where the prompt has opened it with <think>, the reply holds only its end.
    text = text.rpartition("</think>")[2].strip()
    try:
        return _parse_strictly(text), text
    except ValueError:
        pass

    # A code fence, or prose around the object, is left out.
    start = text.find("{")
    end = text.rfind("}")
    if start < 0 or end < start:
        raise Mismatch("the reply holds no whole JSON object")
    candidate = text[start : end + 1]
    try:
        return _parse_strictly(candidate), candidate
    except ValueError as error:
        if len(candidate) > MAX_REPAIRED_CHARACTERS:
            raise Mismatch(f"the JSON of the reply is broken: {error}") from None
    # The braces are there, so nothing that is missing is guessed: only slips inside of them are repaired.
    try:
        value = json_repair.loads(candidate)
        return value, json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise Mismatch("the JSON of the reply cannot be repaired") from None


def _parse_strictly(text: str) -> Any:
    """Parse a JSON text. Raises ValueError for anything else, even NaN and Infinity, which json.loads would take."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
