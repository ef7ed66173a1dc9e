"""How a conversation becomes tokens, and a reply a tool call.

Each message is its role's token and its text; an assistant's ends with the end-of-turn token. Tools on offer are
named at the end of the system message. A tool call is written in the protocol of the lab models,

    <call> calculator 47 * 38 </call>

one name and one argument; the tool's reply comes as a message of role `tool`.

Left out: calls with several arguments, and templates of other models (`lib.language_models.hugging_face_prompts`).
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lib.language_models.tokenizer import BOS, EOS, ROLES, encode, get_tokenizer

VERSION = 1  # of the tokens of a conversation, and the calls in a reply
_CALL_END = "</call>"
# Possessive quantifiers: nothing is read twice, so a long reply takes no longer than its length.
_CALL = re.compile(r"<call>\s*+((?!<call>)\S++)\s*+((?:(?!<call>).)*+)\Z", re.DOTALL)


@cache
def encode_special(name: str) -> int:
    """The id of a special token, such as `EOS`, which no text can write."""
    return get_tokenizer().convert_tokens_to_ids(name)


def encode_conversation(messages: Sequence[dict[str, Any]], tools: Sequence[str] = ()) -> list[int]:
    """Tokenize a conversation for a lab model (a small transformer trained here), up to where the assistant replies.

    Args:
        messages: {"role", "content"} each, as in OpenAI's API.
        tools: Names of the tools on offer.

    Returns:
        Token ids.

    Raises:
        ValueError: For an unknown role, or content that is no text.
    """
    ids = [encode_special(BOS)]
    for message in add_tools_to_system_message(messages, tools):
        role, content = message["role"], message["content"]
        ids += encode_message(role, content)
    # The model goes on behind the assistant's role token.
    ids.append(encode_special(ROLES["assistant"]))
    return ids


def add_tools_to_system_message(
    messages: Sequence[dict[str, Any]], tools: Sequence[str]
) -> list[dict[str, Any]]:
    """Name the tools on offer at the end of the system message.

    Args:
        messages: The conversation, at least one message where there are tools.
        tools: Names; none leaves the conversation as it is.

    Returns:
        The conversation; without a system message it gets one.
    """
    if not tools:
        return list(messages)
    offer = "tools " + " ".join(tools)
    first, *following = messages
    if first["role"] == "system":
        return [{"role": "system", "content": f"{first['content']} {offer}"}, *following]
    return [{"role": "system", "content": offer}, first, *following]


def encode_message(role: str, content: str) -> list[int]:
    """Encode one message: its role's token, its text, and after an assistant's the end of the turn.

    Args:
        role: A key of ROLES.
        content: The text.

    Returns:
        Token ids.

    Raises:
        ValueError: For an unknown role, or content that is no text.
    """
    if role not in ROLES:
        raise ValueError(f"a message has one of the roles {', '.join(ROLES)}, not {role!r}")
    if not isinstance(content, str):
        raise ValueError(f"the content of a message is text here, not {type(content).__name__}")
    ids = [encode_special(ROLES[role])]
    ids += encode(content)
    if role == "assistant":
        ids.append(encode_special(EOS))
    return ids


def format_tool_call(name: str, argument: str) -> str:
    """A tool call as the lab models write it."""
    return f"<call> {name} {argument} {_CALL_END}"


def parse_tool_call(text: str) -> tuple[str, str] | None:
    """Parse the tool call that a lab model's reply ends in: "<call> NAME ARGUMENT </call>".

    Args:
        text: The reply.

    Returns:
        The tool's name and the argument; None where the reply does not end in a call.
    """
    text = text.rstrip()
    if not text.endswith(_CALL_END):
        return None
    match = _CALL.search(text.removesuffix(_CALL_END))
    if match is None:
        return None
    name, argument = match.groups()
    return name, argument.rstrip()
