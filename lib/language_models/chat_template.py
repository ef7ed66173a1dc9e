"""How a conversation becomes tokens, and a reply a tool call.

Each message is its role's token and its text; an assistant's ends with the end-of-turn token. Tools on
offer are named at the end of the system message. A tool call is written in the lab's protocol,

    <call> calculator 47 * 38 </call>

one name and one argument; the tool's reply comes as a message of role `tool`.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lib.language_models.tokenizer import BOS, EOS, ROLES, encode, tokenizer

VERSION = 1  # of the tokens of a conversation, and the calls in a reply
_END = "</call>"
_CALL = re.compile(
    r"<call>\s*+((?!<call>)\S++)\s*+((?:(?!<call>).)*+)\Z", re.DOTALL
)  # nothing is read twice


@cache
def token(name: str) -> int:
    """The id of a special token."""
    return tokenizer().convert_tokens_to_ids(name)


def conversation(messages: Sequence[dict[str, Any]], tools: Sequence[str] = ()) -> list[int]:
    """Tokens of a conversation up to where the assistant is to speak.

    messages: {"role", "content"} as in OpenAI's API; tools: names of those on offer. Raises ValueError
    for a role that there is not, or content that is no text.
    """
    ids = [token(BOS)]
    for message in with_tools(messages, tools):
        ids += turn(message["role"], message["content"])
    return [*ids, token(ROLES["assistant"])]


def with_tools(messages: Sequence[dict[str, Any]], tools: Sequence[str]) -> list[dict[str, Any]]:
    """The conversation with the tools on offer named at the end of its system message."""
    if not tools:
        return list(messages)
    offer = "tools " + " ".join(tools)
    first, *rest = messages
    if first["role"] == "system":
        return [{"role": "system", "content": f"{first['content']} {offer}"}, *rest]
    return [{"role": "system", "content": offer}, first, *rest]


def turn(role: str, content: str) -> list[int]:
    """Tokens of one message. Raises ValueError for an unknown role or content that is no text."""
    if role not in ROLES:
        raise ValueError(f"a message has one of the roles {', '.join(ROLES)}, not {role!r}")
    if not isinstance(content, str):
        raise ValueError(f"the content of a message is text here, not {type(content).__name__}")
    return [token(ROLES[role]), *encode(content), *([token(EOS)] if role == "assistant" else [])]


def call(name: str, argument: str) -> str:
    """A tool call as the lab models write it."""
    return f"<call> {name} {argument} {_END}"


def called(text: str) -> tuple[str, str] | None:
    """Name and argument of the tool call that a reply ends in; None if it does not."""
    text = text.rstrip()
    found = _CALL.search(text.removesuffix(_END)) if text.endswith(_END) else None
    return (found.group(1), found.group(2).rstrip()) if found else None
