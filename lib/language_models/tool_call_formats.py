"""Tool calls in the text of open models: which formats there are, and how they are read.

Hermes, Qwen, SmolLM3:  <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>
Mistral:                [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}], or [TOOL_CALLS]add[ARGS]{"a": 1}
Llama 3:                {"name": "add", "parameters": {"a": 1}}, the whole reply; perhaps after <|python_tag|>

Left out: formats that are no JSON, such as Qwen3-Coder's XML and Llama's Python lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

HERMES_OPEN, HERMES_CLOSE = "<tool_call>", "</tool_call>"
MISTRAL_OPEN, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
LLAMA_OPEN = "<|python_tag|>"
MARKERS = (HERMES_OPEN, MISTRAL_OPEN, LLAMA_OPEN)
SPECIAL_TOKENS = (*MARKERS, HERMES_CLOSE, MISTRAL_ARGUMENTS)  # that a decoder must not leave out

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_MISTRAL_NAME = re.compile(r"([^\[{\s]+)\s*(?=\[|\{)")
_BETWEEN_LLAMA_CALLS = re.compile(r"[\s;]*")


@dataclass(frozen=True)
class ParsedToolCalls:
    """The tool calls in the text of a model's reply, and the text around them.

    Attributes:
        text: What is left for the reader, without calls; the whole text where there is an error.
        calls: Names and arguments, the arguments as JSON of an object.
        error: Why a call cannot be read, in one line; "" where all can.
    """

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    error: str = ""


def parse_tool_calls(text: str, tool_names: Collection[str]) -> ParsedToolCalls:
    """Read all tool calls of a reply.

    Args:
        text: The reply, with the markers of calls.
        tool_names: Tools on offer. JSON without a marker is a call only where it names one of them.

    Returns:
        The calls and the text around them.
    """
    try:
        if HERMES_OPEN in text:
            return _parse_hermes(text)
        if MISTRAL_OPEN in text:
            return _parse_mistral(text)
        return _parse_llama(text, tool_names)
    except ValueError as error:
        return ParsedToolCalls(text, error=f"a tool call cannot be read: {error}")


def cut_before_tool_call(text: str) -> str:
    """Cut an unfinished reply to what a stream can show already: the text in front of a tool call.

    Args:
        text: The reply so far.

    Returns:
        The beginning of the text, up to the marker of a call or what may become one once more is written.
    """
    # A reply that begins as JSON may be a call without a marker, as Llama 3 writes it.
    if text.lstrip().startswith("{"):
        return ""
    positions = [text.find(marker) for marker in MARKERS if marker in text]
    end = min(positions) if positions else len(text) - measure_overlap(text, MARKERS)
    return text[:end].rstrip()


def measure_overlap(text: str, markers: Collection[str]) -> int:
    """Count the characters at the end of a text that may be the beginning of a marker.

    Args:
        text: Any text.
        markers: What may be under way at its end.

    Returns:
        The length of the longest end of `text` that a marker, longer than it, starts with.
    """
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest


def format_hermes_call(name: str, arguments: str) -> str:
    """Write a call in the Hermes format.

    Args:
        name: The tool's.
        arguments: JSON of an object.

    Returns:
        The call with its markers.
    """
    return (
        f'{HERMES_OPEN}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{HERMES_CLOSE}'
    )


def _parse_hermes(text: str) -> ParsedToolCalls:
    """Parse tool calls in the format of Hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

    Args:
        text: A reply with at least one opening marker.

    Returns:
        The calls, and the text around them.

    Raises:
        ValueError: For a call that cannot be read.
    """
    calls = []
    outside = []
    position = 0
    while (start := text.find(HERMES_OPEN, position)) >= 0:
        outside.append(text[position:start])
        # The JSON says where it ends: a closing marker may stand in a string, or be missing.
        content, position = _decode_json(text, start + len(HERMES_OPEN))
        calls.append(_read_call(content))
        position = _skip_space(text, position)
        if text.startswith(HERMES_CLOSE, position):
            position += len(HERMES_CLOSE)
    outside.append(text[position:])
    return ParsedToolCalls(_join_outside(outside), tuple(calls))


def _parse_mistral(text: str) -> ParsedToolCalls:
    """Parse tool calls in Mistral's two formats: [TOOL_CALLS][{"name": ...}, ...] and [TOOL_CALLS]name{...}.

    Args:
        text: A reply with at least one opening marker.

    Returns:
        The calls, and the text around them.

    Raises:
        ValueError: For a call that cannot be read.
    """
    calls = []
    start = text.find(MISTRAL_OPEN)
    outside = [text[:start]]
    position = start
    while text.startswith(MISTRAL_OPEN, position):
        position = _skip_space(text, position + len(MISTRAL_OPEN))
        name = _MISTRAL_NAME.match(text, position)
        # Older models write a list of calls, newer ones a name and its arguments.
        if name is None:
            content, position = _decode_json(text, position)
            contents = content if isinstance(content, list) else [content]
            calls += [_read_call(content) for content in contents]
        else:
            position = name.end()
            if text.startswith(MISTRAL_ARGUMENTS, position):
                position += len(MISTRAL_ARGUMENTS)
            arguments, position = _decode_json(text, position)
            calls.append(_read_call({"name": name[1], "arguments": arguments}))
        position = _skip_space(text, position)
    outside.append(text[position:])
    return ParsedToolCalls(_join_outside(outside), tuple(calls))


def _parse_llama(text: str, tool_names: Collection[str]) -> ParsedToolCalls:
    """Parse tool calls in the format of Llama: a reply that is nothing but JSON objects, with or without a marker.

    Args:
        text: A reply.
        tool_names: Names of the tools on offer. Without the marker, JSON that names none of them is an ordinary answer.

    Returns:
        The calls; or the text as it is, where it is an ordinary answer.

    Raises:
        ValueError: For a call behind the marker that cannot be read.
    """
    is_marked = text.lstrip().startswith(LLAMA_OPEN)
    body = text.strip().removeprefix(LLAMA_OPEN).strip()
    if not body.startswith("{"):
        return ParsedToolCalls(text)

    calls = []
    position = 0
    while position < len(body):
        try:
            content, position = _decode_json(body, position)
            call = _read_call(content)
        except ValueError:
            if is_marked:
                raise
            return ParsedToolCalls(text)  # JSON, or a brace, that is meant for the reader
        if not is_marked and call[0] not in tool_names:
            return ParsedToolCalls(text)
        calls.append(call)
        position = _BETWEEN_LLAMA_CALLS.match(body, position).end()
    return ParsedToolCalls("", tuple(calls))


def _decode_json(text: str, position: int) -> tuple[Any, int]:
    """Parse the JSON value that begins at a position of a text.

    Args:
        text: JSON, and perhaps more behind it.
        position: Where it begins, or blanks before it.

    Returns:
        (value, position of its end).

    Raises:
        ValueError: For anything else, with the reason in one line.
    """
    try:
        return _DECODER.raw_decode(text, _skip_space(text, position))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _read_call(content: Any) -> tuple[str, str]:
    """Read one tool call from its JSON.

    Args:
        content: {"name": ..., "arguments": {...}}, or a variant of it that some models write.

    Returns:
        (name of the tool, arguments as the text of a JSON object).

    Raises:
        ValueError: For JSON that is no call.
    """
    # Some models write the schema's {"type": "function", "function": {...}} around the call.
    if isinstance(content, dict) and isinstance(content.get("function"), dict):
        content = content["function"]
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise ValueError("its JSON is no object with a name")
    arguments = content.get("arguments", content.get("parameters", {}))
    if isinstance(arguments, str):  # JSON in JSON, as OpenAI's API has it
        arguments, _ = _decode_json(arguments, 0)
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {content['name'][:80]!r} are no JSON object")
    return content["name"], json.dumps(arguments, ensure_ascii=False)


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()


def _join_outside(pieces: list[str]) -> str:
    """The text around calls; blanks in front of the first call and at the end belong to the markup."""
    first, *following = pieces
    return (first.rstrip() + "".join(following)).rstrip()
