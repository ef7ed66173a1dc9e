"""How many tokens a call is billed for: as the server counts them where that can be, else by bytes.

A server's count is believed where it is possible: a token is a byte of text at the least and MAX_BYTES_PER_TOKEN
bytes at the most, and neither a prompt nor a reply is longer than any model reads and writes. 0 beside a text is no
count. Counts beyond `max_tokens` are believed, since a model may reason unseen and be paid for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1  # of the tokens counted
BYTES_PER_TOKEN = 4  # an estimate, where a server does not count
MAX_BYTES_PER_TOKEN = 32  # on average
LONGEST_PROMPT = 2**21  # tokens
LONGEST_REPLY = 2**17  # tokens, reasoning included


@dataclass(frozen=True)
class Usage:
    """What a call is billed for, in tokens and perhaps in dollars.

    Attributes:
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply, reasoning included.
        tokens_cached: Of tokens_in, those from the server's cache.
        tokens_reasoning: Of tokens_out, those of hidden reasoning.
        cost_usd: As the server bills it; None where it does not say.
        is_counted: Whether the server counted both; else they are estimates.
    """

    tokens_in: int
    tokens_out: int
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost_usd: float | None = None
    is_counted: bool = True


def count_bytes(text: str) -> int:
    """Bytes of a text in UTF-8, whatever is in it."""
    return len(text.encode(errors="replace"))


def estimate_tokens(num_bytes: int) -> int:
    """Tokens of so many bytes of text, rounded up."""
    return math.ceil(num_bytes / BYTES_PER_TOKEN)


def read_usage(usage: Any, prompt_bytes: int, reply_bytes: int) -> Usage:
    """Reads a server's `usage`, and completes it by estimates.

    Some servers leave fields out, some leave the hidden reasoning out of completion_tokens and count it in
    total_tokens only; it is billed all the same.

    Args:
        usage: The field of the reply, whatever it holds.
        prompt_bytes: Bytes of the messages and tools that were sent.
        reply_bytes: Bytes of text, reasoning and tool calls that came back.

    Returns:
        The tokens and dollars of the call.
    """
    fields = usage if isinstance(usage, Mapping) else {}
    counted_in = _to_possible_count(fields.get("prompt_tokens"), prompt_bytes, LONGEST_PROMPT)
    counted_out = _to_possible_count(fields.get("completion_tokens"), reply_bytes, LONGEST_REPLY)
    total = _to_count(fields.get("total_tokens"))
    # A total tells what one count leaves out: hidden reasoning, or a count that is missing.
    if total is not None and counted_in is not None:
        remaining = _to_possible_count(total - counted_in, reply_bytes, LONGEST_REPLY)
        if remaining is not None:
            counted_out = max(counted_out or 0, remaining)
    elif total is not None and counted_out is not None:
        counted_in = _to_possible_count(total - counted_out, prompt_bytes, LONGEST_PROMPT)

    tokens_in = estimate_tokens(prompt_bytes) if counted_in is None else counted_in
    tokens_out = estimate_tokens(reply_bytes) if counted_out is None else counted_out
    cached = _read_detail(fields, "prompt_tokens_details", "cached_tokens")
    if not cached:
        cached = _to_count(fields.get("prompt_cache_hit_tokens")) or 0  # DeepSeek's name for it
    reasoning = _read_detail(fields, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        tokens_in,
        tokens_out,
        min(cached, tokens_in),
        min(reasoning, tokens_out),
        _to_amount(fields.get("cost")),
        counted_in is not None and counted_out is not None,
    )


def _read_detail(fields: Mapping[str, Any], group: str, name: str) -> int:
    """A count inside an object of a server's `usage`, such as cached_tokens; 0 where it is missing or no count."""
    details = fields.get(group)
    return (_to_count(details.get(name)) or 0) if isinstance(details, Mapping) else 0


def _to_count(value: Any) -> int | None:
    """A whole number of tokens, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or value < 0 or value != int(value):
        return None
    return int(value)


def _to_possible_count(value: Any, text_bytes: int, longest: int) -> int | None:
    """Read a server's count of tokens, and refuse one that cannot be true.

    Args:
        value: As the server sent it.
        text_bytes: Bytes of the text that was counted.
        longest: Most tokens of any prompt or reply.

    Returns:
        The count; None where the value is no count, or one that a text of so many bytes cannot have.
    """
    count = _to_count(value)
    # A text that is not empty has at least one token.
    fewest = max(min(text_bytes, 1), math.ceil(text_bytes / MAX_BYTES_PER_TOKEN))
    if count is None or not fewest <= count <= longest:
        return None
    return count


def _to_amount(value: Any) -> float | None:
    """A number of dollars, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
