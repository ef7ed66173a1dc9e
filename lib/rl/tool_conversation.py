"""A conversation with JSON tool calls as the tokens of one model: what it reads, and what it wrote itself.

    conversation = ToolConversation(tokenizer, end_token_ids, "Qwen3-0.6B")
    opening = conversation.encode_opening(messages, tools)       # up to where the model writes its first turn
    turn_ids = ...                                               # sampled
    reply = conversation.read_turn(turn_ids, request, limit=500, opens_in_reasoning=False)
    between = conversation.encode_messages(new_messages, turn_ids[-1])  # results of calls, or what a user says

A turn stays as it was sampled: only what others say is encoded, so that a trainer's mask is exact. Tools, calls and
results have the form of the model's chat template. Where the template has none, or one that cannot be read here, they
are written in a plain form, which the system message explains:

    <tools>{"name": "get_order", "description": ..., "parameters": {...}}</tools>
    <tool_call>{"name": "get_order", "arguments": {"order_id": "#W1"}}</tool_call>
    <tool_response>{"status": "pending"}</tool_response>

Left out: what calls lead to, and call forms that are no JSON (`lib.language_models.tool_call_formats`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from lib.language_models.hugging_face_model import read_reply
from lib.language_models.hugging_face_prompts import PromptError, PromptRenderer, RenderedPrompt
from lib.language_models.reply_text import THINK_OPEN, ReplyText
from lib.language_models.tool_call_formats import (
    HERMES_CLOSE,
    MARKERS,
    format_hermes_call,
    parse_tool_calls,
)
from lib.llm.chat_model import ChatRequest, Message

VERSION = 1  # of what a model reads
_INSTRUCTION = """\
You can call these functions. Each line is one of them, with its parameters as a JSON schema:
<tools>
{tools}
</tools>
To call one, end your message with its name and arguments as JSON, in this form:
{example}
What it returns comes back inside <tool_response></tool_response>."""
_QUOTED_GREETING = "You have begun the conversation with: {text}"
_EXAMPLE = format_hermes_call("FUNCTION", '{"PARAMETER": "VALUE"}')
_QUESTION = {"role": "user", "content": "Hello"}
_PROBE = "blue-penguin"  # a text that no template holds
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "find_penguin",
        "description": "Finds a penguin.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
_PROBE_RESULT = {"role": "tool", "tool_call_id": "call00000", "content": "green-walrus"}
_CALL_START = re.compile("|".join([*map(re.escape, MARKERS), r'\{"name"']))


@dataclass
class TokenContext:
    """A conversation as tokens: what the policy read, and what it wrote.

    Attributes:
        ids: All tokens.
        mask: Mask of each token, whether the policy wrote it.
        num_messages: Messages of the conversation that are among the tokens.
        num_turns: That the policy wrote.
        opens_in_reasoning: Whether the tokens end with an open <think>.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    num_messages: int = 0
    num_turns: int = 0
    opens_in_reasoning: bool = False

    def append_prompt(self, prompt: RenderedPrompt) -> None:
        """Append what others say."""
        self.ids += prompt.ids
        self.mask += [False] * len(prompt.ids)
        self.opens_in_reasoning = prompt.opens_in_reasoning

    def append_turn(self, ids: Sequence[int]) -> None:
        """Append a turn of the policy."""
        self.ids += ids
        self.mask += [True] * len(ids)
        self.num_turns += 1


class ToolConversation:
    """Turns messages and tool calls into the tokens of one model, and its tokens into calls.

    Attributes:
        is_plain: Whether calls have the plain form, for want of a form of the chat template.
        quotes_greeting: Whether what the model says before any user stands in the system message, since the template
            wants a user to begin.
        stop_strings: Texts that end a turn, beside the end tokens: a model that was not trained to call tools would
            write the results itself.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, end_token_ids: Collection[int], name: str
    ) -> None:
        """
        Args:
            tokenizer: With a chat template.
            end_token_ids: A turn ends at the first of them.
            name: The model's, for messages.

        Raises:
            PromptError: The template can show no conversation with a user and tools.
            ModelFolderError: There is no template.
        """
        self._tokenizer = tokenizer
        self._end_token_ids = frozenset(end_token_ids)
        end_texts = [tokenizer.decode([token]) for token in end_token_ids]
        self._end_pattern = re.compile("|".join(map(re.escape, end_texts)))
        self._renderer = PromptRenderer(tokenizer, name)
        self._name = name

        self.is_plain = False
        self.quotes_greeting = False
        self._choose_form()
        self.stop_strings = (HERMES_CLOSE,) if self.is_plain else ()

    def encode_opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> RenderedPrompt:
        """Encode a conversation up to where the model writes its first turn.

        Args:
            messages: As in OpenAI's API, a system message first.
            tools: OpenAI function schemas.

        Returns:
            The prompt.

        Raises:
            PromptError: The template cannot show the conversation.
        """
        system, *following = messages
        system_texts = [system["content"]]
        if self.is_plain:
            system_texts.append(write_instruction(tools))
            tools = ()
        if self.quotes_greeting and following[0]["role"] == "assistant":
            greeting = following.pop(0)
            system_texts.append(_QUOTED_GREETING.format(text=greeting["content"]))
        system = {**system, "content": "\n\n".join(system_texts)}
        return self._renderer.render(ChatRequest([system, *following], tools=tools))

    def encode_messages(self, messages: Sequence[Message], last_id: int) -> RenderedPrompt:
        """Encode what others say after a turn of the model, up to where it writes its next one.

        Args:
            messages: Results of its calls, or what a user says.
            last_id: The last token of its turn.

        Returns:
            What is to be appended: the end of the turn where the model did not write it itself, the messages, and the
            beginning of the next turn.

        Raises:
            PromptError: The template cannot show them.
        """
        text = self._render_after_probe(messages)
        if last_id in self._end_token_ids:
            # The model wrote the end of its turn itself.
            end = self._end_pattern.match(text)
            text = text[end.end() :]
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return RenderedPrompt(text, tuple(ids), text.rstrip().endswith(THINK_OPEN))

    def read_turn(
        self, ids: Sequence[int], request: ChatRequest, limit: int, opens_in_reasoning: bool
    ) -> dict[str, Any]:
        """Read a turn of the model.

        Args:
            ids: As it was sampled.
            request: The conversation before it, with the tools that may be called.
            limit: Tokens of a turn at the most.
            opens_in_reasoning: Whether the prompt ended with an open <think>.

        Returns:
            Fields of `lib.llm.chat_model.Reply`: text, calls, and a failure where it was cut off or cannot be read.
        """
        text = ReplyText(self._tokenizer, has_tools=True, opens_in_reasoning=opens_in_reasoning)
        is_ended = ids[-1] in self._end_token_ids
        text_ids = ids[:-1] if is_ended else ids  # an end token is no text
        for token_id in text_ids:
            text.add_token(token_id)
        has_stop_string = any(stop in text.raw for stop in self.stop_strings)
        is_cut_off = len(ids) >= limit and not is_ended and not has_stop_string
        return read_reply(text, request, "length" if is_cut_off else "stop", limit)

    def _render_after_probe(self, messages: Sequence[Message]) -> str:
        """Renders messages that follow a turn of the model with its chat template.

        A known text (_PROBE) stands in for that turn, and everything before its end is cut off.

        Args:
            messages: Tool results, or messages of the user.

        Returns:
            The text from the end of the turn on.

        Raises:
            PromptError: The template shows no end of a turn.
        """
        is_result = messages[0]["role"] == "tool"
        if is_result and self.is_plain:
            messages = [_join_results(messages)]
        # Templates want to see the call that a result belongs to. Some show a single call in a turn only.
        own_message = {"role": "assistant", "content": _PROBE}
        if is_result and not self.is_plain:
            own_message = _make_probe_call(messages[-1]["tool_call_id"])
        text = self._renderer.render(ChatRequest([_QUESTION, own_message, *messages])).text

        _, _, after_probe = text.partition(_PROBE)
        end = self._end_pattern.search(after_probe)
        if end is None:
            raise PromptError(
                f"the chat template of {self._name} shows no end of a turn, so that nothing can follow it"
            )
        return after_probe[end.start() :]

    def _choose_form(self) -> None:
        """Chooses how conversations are presented to the chat template: the first form that it can render.

        Raises:
            PromptError: It can render none.
        """
        reasons = []
        for is_plain, quotes_greeting in itertools.product((False, True), repeat=2):
            self.is_plain = is_plain
            self.quotes_greeting = quotes_greeting
            try:
                self._try_form()
                return
            except PromptError as error:
                reasons.append(error)
        raise reasons[-1]

    def _try_form(self) -> None:
        """Tries whether the chat template can render a conversation with tools in the present form.

        Raises:
            PromptError: It cannot.
        """
        greeting = {"role": "assistant", "content": "Hello"}
        system = {"role": "system", "content": "You help."}
        self.encode_opening([system, greeting, _QUESTION], [_PROBE_TOOL])
        end_id = min(self._end_token_ids)
        self.encode_messages([_QUESTION], end_id)
        if _PROBE_RESULT["content"] not in self.encode_messages([_PROBE_RESULT], end_id).text:
            raise PromptError(f"the chat template of {self._name} shows no results of tools")
        if not self.is_plain:
            self._try_reading_call()

    def _try_reading_call(self) -> None:
        """Tries whether a tool call that the chat template writes can be parsed.

        Raises:
            PromptError: It cannot.
        """
        own_message = _make_probe_call(_PROBE_RESULT["tool_call_id"])
        request = ChatRequest([_QUESTION, own_message, _PROBE_RESULT])
        text = self._renderer.render(request).text
        start = _CALL_START.search(text)
        turn = text[start.start() :] if start else ""
        turn = self._end_pattern.split(turn, maxsplit=1)[0]
        name = _PROBE_TOOL["function"]["name"]
        expected_calls = ((name, json.dumps({"name": _PROBE})),)
        if parse_tool_calls(turn, [name]).calls != expected_calls:
            raise PromptError(
                f"the chat template of {self._name} writes calls in a form that is not known"
            )


def write_instruction(tools: Sequence[Mapping[str, Any]]) -> str:
    """Write what a system message says of tools in the plain form.

    Args:
        tools: OpenAI function schemas.

    Returns:
        The text: the functions, and the form of a call.
    """
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return _INSTRUCTION.format(tools="\n".join(lines), example=_EXAMPLE)


def _make_probe_call(call_id: str) -> dict[str, Any]:
    """Make a message of the model that calls a tool with the probe as its argument."""
    arguments = json.dumps({"name": _PROBE})
    function = {"name": _PROBE_TOOL["function"]["name"], "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _join_results(messages: Sequence[Message]) -> dict[str, str]:
    """Join results of tools in one message of the user, in the plain form."""
    results = [f"<tool_response>\n{message['content']}\n</tool_response>" for message in messages]
    return {"role": "user", "content": "\n".join(results)}
