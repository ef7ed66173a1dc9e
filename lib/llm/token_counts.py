"""How many tokens a call took: as the server counts them where that can be, else estimates and bounds.

A server's count is believed where it is possible: a token is a byte of text at the least and SPARSE bytes at the
most, and neither a prompt nor a reply is longer than any model reads and writes. 0 beside a text is no count.
Counts beyond `max_tokens` are believed, since a model may think unseen and be paid for it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

VERSION = 1  # of the tokens counted
BYTES_PER_TOKEN = 4  # an estimate, where a server does not count
SPARSE = 32  # bytes of a token, on average, at the most
WINDOW = 2**21  # tokens of a prompt at the most
LONGEST_REPLY = 2**17  # tokens of a reply at the most, thoughts included


def size(text: str) -> int:
    """Bytes of a text in UTF-8, whatever is in it."""
    return len(text.encode(errors="replace"))


def text_of(content: Any) -> str:
    """Text of a message's content: a string, or a list of parts with text."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def message_of(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message of a reply's first choice; an empty one where there is none."""
    choices = content.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def calls_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tool calls of a message: name and arguments; what has not the shape of one is none."""
    told = message.get("tool_calls")
    for one in told if isinstance(told, list) else ():
        function = one.get("function") if isinstance(one, dict) else None
        pair = (
            (function.get("name"), function.get("arguments"))
            if isinstance(function, dict)
            else (None, None)
        )
        if all(isinstance(part, str) for part in pair):
            yield pair


def written(content: Mapping[str, Any]) -> int:
    """Bytes that a model wrote in a reply: text, and calls of tools."""
    message = message_of(content)
    return size(text_of(message.get("content"))) + sum(
        size(name + given) for name, given in calls_of(message)
    )


@dataclass(frozen=True)
class Asked:
    """What a call asked for. prompt: bytes of its messages; max_tokens: of the reply; who: for the purse."""

    prompt: int
    max_tokens: int
    who: str = ""


def told(
    content: Mapping[str, Any], asked: Asked, sparse: float = SPARSE
) -> tuple[int | None, int | None]:
    """Tokens in and out as a server counts them; None for a count that cannot be. sparse: bytes of a token."""
    usage = content.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in = _possible(counts.get("prompt_tokens"), max(asked.prompt, 1), WINDOW, sparse)
    return tokens_in, _possible(
        counts.get("completion_tokens"), written(content), LONGEST_REPLY, sparse
    )


def estimated(content: Mapping[str, Any], asked: Asked, sent: int) -> tuple[int, int]:
    """Tokens in and out: the server's counts, however low, else by bytes. sent: bytes of the whole request."""
    guesses = (
        math.ceil(asked.prompt / BYTES_PER_TOKEN),
        math.ceil(written(content) / BYTES_PER_TOKEN),
    )
    return _filled(told(content, asked, math.inf), guesses, sent)


def bounded(content: Mapping[str, Any], asked: Asked, sent: int) -> tuple[int, int]:
    """Tokens in and out: the server's counts, else the most that they can be. sent: bytes of the whole request.

    A text of more than 2 BYTES_PER_TOKEN bytes for each token of the limit did not keep to it.
    """
    said, limit = written(content), asked.max_tokens
    most = said if said > 2 * BYTES_PER_TOKEN * limit else min(said, limit)
    return _filled(told(content, replace(asked, prompt=sent)), (sent, most), sent)


def _filled(
    counts: tuple[int | None, int | None], otherwise: tuple[int, int], sent: int
) -> tuple[int, int]:
    tokens_in, tokens_out = (
        other if count is None else count for count, other in zip(counts, otherwise, strict=True)
    )
    return min(tokens_in, sent), tokens_out


def _possible(count: Any, text: int, most: int, sparse: float) -> int | None:
    """A count of tokens of so many bytes of text, or None."""
    whole = isinstance(count, int) and not isinstance(count, bool)
    return count if whole and max(min(text, 1), math.ceil(text / sparse)) <= count <= most else None
