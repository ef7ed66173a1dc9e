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
    """Tokens of a request's conversation, up to where the assistant is to write.

    Args:
        request: With the messages and the tools on offer.
        window: Tokens that the model can see.

    Returns:
        Token ids.

    Raises:
        RequestRefused: For a text that is too long, and for a tool call with other than one argument.
    """
    messages = [make_lab_message(message) for message in request.messages]
    check_length([message["content"] for message in messages], window, "messages")
    return chat_template.encode_conversation(messages, tuple(request.offered_tools))


def make_lab_message(message: AnyMessage) -> dict[str, str]:
    """A message in the two fields that the lab's chat template reads, its tool call written in the text."""
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
    return chat_template.format_tool_call(
        call.function.name, _read_argument(call.function.arguments)
    )


def _read_argument(arguments: str) -> str:
    """The one value of a tool call's arguments, as text."""
    try:
        (value,) = json.loads(arguments).values()
        return check_unicode(value if isinstance(value, str) else json.dumps(value))
    except (ValueError, AttributeError, RecursionError):
        raise RequestRefused(
            "arguments of a tool call is a JSON object with one value here", param="messages"
        ) from None


def check_length(texts: Sequence[str], window: int, param: str) -> None:
    """Refuse texts that are too long together, before time is spent to tokenize them.

    Args:
        texts: All that the model is to read.
        window: Tokens that it can see.
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
        words = islice(LEAST_TOKENS.finditer(text), max(0, remaining_tokens))
        remaining_tokens -= 1 + sum(1 for _ in words)
        if remaining_tokens < 0:
            raise refuse_length(f"the window has {window} tokens; {param} has more", param)


def check_vocabulary(request: CompletionRequest, model_name: str) -> None:
    """Refuse words that a lab model does not know, and tools that it cannot call.

    Args:
        request: With the messages and the tools on offer.
        model_name: For the error.

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
    """The refusal of a format that lab models have no signs for."""
    missing_signs = " ".join(find_unknown_words(JSON_SIGNS))
    return RequestRefused(
        f"{model_name} cannot write JSON: its vocabulary lacks {missing_signs}; ask without response_format, "
        "or a model that is served with --model FOLDER",
        param="response_format",
    )
