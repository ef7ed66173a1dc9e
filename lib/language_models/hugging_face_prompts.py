"""A conversation as the prompt of a Hugging Face model: its chat template, and what templates differ in.

Some take no system role, some show no tools, some have tool calls as objects where OpenAI's API has JSON text.
Left out: images and other parts of a message that are no text.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from lib.language_models.hugging_face_folder import ModelFolderError
from lib.language_models.reply_text import THINK_OPEN
from lib.language_models.tool_call_formats import format_hermes_call
from lib.llm.chat_model import ChatRequest

_PROBE = "blue-penguin"  # a text that no template holds


class PromptError(ValueError):
    """A conversation that the chat template cannot show; the message says why, in one line."""


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt, ready for the reply.

    Attributes:
        text: As the template writes it.
        ids: Its tokens.
        opens_in_reasoning: Whether it ends with an open <think>, so that the reply begins with reasoning.
    """

    text: str
    ids: tuple[int, ...]
    opens_in_reasoning: bool


class PromptRenderer:
    """Renders requests with the chat template of one tokenizer.

    Attributes:
        takes_system_role: Whether the template shows system messages. Where it does not, their text goes in front
            of the first user message.
        takes_tool_calls: Whether the template shows tool calls of earlier turns by itself.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        """
        Args:
            tokenizer: Tokenizer of a chat model.
            name: The model's, for messages.

        Raises:
            ModelFolderError: The tokenizer has no chat template.
        """
        if not tokenizer.chat_template:
            raise ModelFolderError(
                f"{name}: its tokenizer has no chat template; use the instruction-tuned model, or put the template "
                "into chat_template.jinja in its folder"
            )
        self._tokenizer = tokenizer
        self._name = name
        self.takes_tool_calls = "tool_calls" in str(tokenizer.chat_template)
        self.takes_system_role = self._shows_system_message()
        self._has_warned = False

    def render(self, request: ChatRequest) -> RenderedPrompt:
        """Render a conversation with the model's chat template, and tokenize it.

        Args:
            request: Its messages and tools are read.

        Returns:
            The prompt as text and token ids, up to where the reply begins.

        Raises:
            PromptError: The template cannot show the conversation.
        """
        messages = [self._convert_message(message) for message in request.messages]
        is_system = [message["role"] == "system" for message in messages]
        if any(is_system) and not self.takes_system_role:
            messages = _move_system_text(messages)
            self._warn_once()

        # A template that knows no tools leaves them out in silence, and the model would never call any.
        tools = select_tools(request)
        text = self._apply_template(messages, tools)
        for tool in tools:
            name = tool["function"]["name"]
            if name not in text:
                raise PromptError(
                    f"the chat template of {self._name} shows no tools, so it cannot call {name}; ask without tools, "
                    "or use a model that was trained to call them"
                )
        # The template has written the special tokens already.
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return RenderedPrompt(text, tuple(ids), text.rstrip().endswith(THINK_OPEN))

    def _apply_template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Render messages and tools as text, up to where the assistant replies; raises PromptError if that fails."""
        try:
            return self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except Exception as error:  # a template raises what it likes
            reason = " ".join(str(error).split())
            raise PromptError(
                f"the conversation does not fit the chat template of {self._name}: {reason}"
            ) from error

    def _shows_system_message(self) -> bool:
        """Whether the text of a system message appears in the rendered prompt."""
        # Some templates raise an error, others leave the system text out.
        system = {"role": "system", "content": _PROBE}
        try:
            return _PROBE in self._apply_template([system, {"role": "user", "content": "Hello"}])
        except PromptError:
            return False

    def _convert_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a message of OpenAI's API into what chat templates expect: plain text, arguments as objects.

        Args:
            message: With role, content and perhaps tool calls.

        Returns:
            A copy. Where the template cannot show tool calls, they stand in the content as text.
        """
        converted = dict(message)
        # OpenAI's newer name of the system role; no open model's template has it.
        if converted.get("role") == "developer":
            converted["role"] = "system"
        converted["content"] = _join_text(message.get("content"))

        calls = [call["function"] for call in message.get("tool_calls") or ()]
        if calls and self.takes_tool_calls:
            # Templates write arguments as JSON; JSON text would be quoted a second time.
            converted["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _parse_arguments(call)}}
                for call in message["tool_calls"]
            ]
        elif calls:
            texts = [format_hermes_call(call["name"], call["arguments"]) for call in calls]
            converted["content"] = "\n".join([converted["content"], *texts]).lstrip("\n")
        return converted

    def _warn_once(self) -> None:
        """Warn, on the first call only, that the template takes no system role."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self._name}: its chat template takes no system role; the system text goes in front of the first "
                "user message",
                stacklevel=3,
            )


def select_tools(request: ChatRequest) -> list[Mapping[str, Any]]:
    """List the tools that a model may call under the `tool_choice` of a request.

    Args:
        request: Its tools and its choice of them.

    Returns:
        None of them for the choice "none", the one that it names, else all.
    """
    if request.tool_choice == "none":
        return []
    if isinstance(request.tool_choice, Mapping):
        name = request.tool_choice["function"]["name"]
        return [tool for tool in request.tools if tool["function"]["name"] == name]
    return list(request.tools)


def _join_text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    """Return the content of a message as one text; OpenAI's API has it as text, as a list of parts, or as null.

    Raises PromptError for parts that are no text, such as images.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for item in content:
        if item.get("type") != "text":
            raise PromptError(
                f"a message has content of type {item.get('type')!r}; only text is supported"
            )
        texts.append(item["text"])
    return "".join(texts)


def _parse_arguments(call: Mapping[str, Any]) -> Any:
    """Parse the arguments of a tool call, JSON text in OpenAI's API, into an object; other text stays as it is."""
    arguments = call["function"].get("arguments", "{}")
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except json.JSONDecodeError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _move_system_text(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Move the text of all system messages to the front of the first user message, for templates without that role.

    Args:
        messages: {"role", "content"} each.

    Returns:
        A copy without system messages; it gets a user message where it has none.
    """
    system_texts = []
    conversation = []
    for message in messages:
        if message["role"] == "system":
            system_texts.append(message["content"])
        else:
            conversation.append(dict(message))

    for message in conversation:
        if message["role"] == "user":
            message["content"] = "\n\n".join([*system_texts, message["content"]])
            return conversation
    return [{"role": "user", "content": "\n\n".join(system_texts)}, *conversation]
