"""Chat completions as OpenAI's API returns them, for programs that answer in a model's place.

Left out: the id and the time that servers add, so that equal replies are equal bytes; and reading a completion, which
is `lib.llm.parse_response`.
"""

from __future__ import annotations

from typing import Any


def make_completion(
    model: str, text: str, tokens_in: int, tokens_out: int, finish_reason: str = "stop"
) -> dict[str, Any]:
    """Make a chat completion with one choice.

    Args:
        model: Which replies.
        text: Text of the reply.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply.
        finish_reason: "stop", or "length" where the reply was cut off.

    Returns:
        What a server would send, as JSON.
    """
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    usage = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}
