"""From the messages of a request to the tokens that a lab model reads, and what it cannot read refused by name.

A lab model knows a few hundred words (`lib.language_models.tokenizer`). A text with another one would reach it with a
hole, so it is refused with the words that are unknown.
"""

import json
import re
from collections.abc import Sequence
from itertools import islice

from lib.language_models import chat_template
from lib.language_models.serving.chat_completions.request import (
    AnyMessage,
    AssistantMessage,
    CallInHistory,
    CompletionRequest,
    RequestRefused,
    check_unicode,
    refuse_length,
)
from lib.language_models.tokenizer import find_unknown_words, list_words

# each match is at least one token; counting them is much faster than to tokenize
LEAST_TOKENS = re.compile(r"</?[a-z]+>|[A-Za-z]+(?:-[a-z]+)*|[^\sA-Za-z]")
# a word of a megabyte is one token, and takes seconds
MAX_CHARACTERS_PER_TOKEN = 64
MAX_WORDS_IN_ERROR = 12
JSON_SIGNS = '{ } [ ] " : ,'


def encode_conversation(request: CompletionRequest, window: int) -> list[int]:
    """Tokenize the conversation of a chat request, up to where the assistant is to reply.

    Args:
        request: Messages and tools of POST /v1/chat/completions.
        window: Context length of the lab model (a small transformer that was trained here), in tokens.

    Returns:
        Token ids.

    Raises:
        RequestRefused: For a text that is too long, and for a tool call with other than one argument.
    """
    messages = [make_lab_message(message) for message in request.messages]
    check_length([message["content"] for message in messages], window, "messages")
    return chat_template.encode_conversation(messages, tuple(request.offered_tools))


def make_lab_message(message: AnyMessage) -> dict[str, str]:
    """Convert a message of OpenAI's API into what the lab models' chat template reads.

    Args:
        message: Of any role; a tool call of an assistant is JSON.

    Returns:
        {"role", "content"}; a tool call stands in the content, as "<call> NAME ARGUMENT </call>".

    Raises:
        RequestRefused: For several calls in one message, or a call with other than one argument.
    """
    content = message.content or ""
    if isinstance(message, AssistantMessage) and message.tool_calls:
        if len(message.tool_calls) > 1:
            raise RequestRefused(
                "a lab model makes one tool call a message; give each call a message of its own",
                param="messages",
            )
        content = f"{content} {_write_call(message.tool_calls[0])}"
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": content}


def _write_call(call: CallInHistory) -> str:
    """Write a tool call of OpenAI's API as lab models do: "<call> NAME ARGUMENT </call>"."""
    return chat_template.format_tool_call(
        call.function.name, _read_argument(call.function.arguments)
    )


def _read_argument(arguments: str) -> str:
    """Read the one value of a tool call's arguments: '{"expression": "3 + 4"}' -> "3 + 4".

    Raises RequestRefused for anything but a JSON object with one value.
    """
    try:
        (value,) = json.loads(arguments).values()
        return check_unicode(value if isinstance(value, str) else json.dumps(value))
    except (ValueError, AttributeError, RecursionError):
        raise RequestRefused(
            "arguments of a tool call is a JSON object with one value here", param="messages"
        ) from None


def check_length(texts: Sequence[str], window: int, param: str) -> None:
    """Refuse texts that are certain to exceed the context window, before time is spent to tokenize them.

    Args:
        texts: Contents of all messages.
        window: Context length in tokens.
        param: The parameter that holds the texts.

    Raises:
        RequestRefused: With code context_length_exceeded.
    """
    remaining_tokens = window
    remaining_characters = MAX_CHARACTERS_PER_TOKEN * window
    for text in texts:
        remaining_characters -= len(text)
        if remaining_characters < 0:
            raise refuse_length(
                f"the window has {window} tokens, and room for {MAX_CHARACTERS_PER_TOKEN} characters each",
                param,
            )
        # Every match is at least one token, and a message has a token for its role. Counting ends at the limit.
        matches = islice(LEAST_TOKENS.finditer(text), max(0, remaining_tokens))
        remaining_tokens -= 1 + sum(1 for _ in matches)
        if remaining_tokens < 0:
            raise refuse_length(f"the window has {window} tokens; {param} has more", param)


def check_vocabulary(request: CompletionRequest, model_name: str) -> None:
    """Refuse a request with words that a lab model does not know, or tools that it cannot call.

    A lab model is a small transformer that was trained here; its vocabulary has a few hundred words.

    Args:
        request: Messages and tools of POST /v1/chat/completions.
        model_name: Named in the error.

    Raises:
        RequestRefused: Naming the words, or the tool.
    """
    messages = [make_lab_message(message)["content"] for message in request.messages]
    _check_words(messages, model_name, "messages")
    _check_words(list(request.offered_tools), model_name, "tools")
    # the protocol of the lab models has one argument a call
    for name, function in request.offered_tools.items():
        if len(function.required_arguments) > 1:
            arguments = ", ".join(function.required_arguments[:MAX_WORDS_IN_ERROR])
            raise RequestRefused(
                f"{model_name} writes one argument a call, but {name} requires several: {arguments[:200]}",
                param="tools",
            )


def _check_words(texts: Sequence[str], model_name: str, param: str) -> None:
    """Raise RequestRefused, with the words, where texts hold words outside the model's vocabulary.

    Args:
        texts: Messages, or names of tools.
        model_name: Named in the error.
        param: The parameter of the request that holds the texts.
    """
    unknown_words = list(dict.fromkeys(word for text in texts for word in find_unknown_words(text)))
    if not unknown_words:
        return
    listed = ", ".join(word[:40] for word in unknown_words[:MAX_WORDS_IN_ERROR])
    if len(unknown_words) > MAX_WORDS_IN_ERROR:
        listed += f" and {len(unknown_words) - MAX_WORDS_IN_ERROR} more"
    raise RequestRefused(
        f"{model_name} does not know: {listed}; its vocabulary has {len(list_words())} words, "
        f"see /v1/models/{model_name}",
        code="unknown_words",
        param=param,
    )


def refuse_json(model_name: str) -> RequestRefused:
    """Make the error for a request of a JSON reply: lab models have no tokens for JSON's brackets."""
    missing_signs = " ".join(find_unknown_words(JSON_SIGNS))
    return RequestRefused(
        f"{model_name} cannot write JSON: its vocabulary lacks {missing_signs}; ask without response_format, "
        "or a model that is served with --model FOLDER",
        param="response_format",
    )
