"""Chat completions by a model in a Hugging Face folder, in batches of requests that arrive together.

The model's chat template shows the tools; what a reply holds of calls is read in the format that the template writes.
`tool_choice` "required" or a name begins the call for the model (`folder_forced_call`), `response_format` samples
until the JSON fits (`json_reply`). Both come in one piece in a stream. Left out: log-probabilities.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from lib.language_models.batching import (
    MAX_QUEUE_LENGTH,
    BatcherClosed,
    GenerationFailed,
    QueueFull,
    RequestCancelled,
)
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.hugging_face_prompts import PromptError
from lib.language_models.serving.chat_completions.completion import (
    ChatCompletion,
    CompletionModel,
    make_choice_chunk,
)
from lib.language_models.serving.chat_completions.folder_forced_call import (
    CallFormat,
    count_prefix_tokens,
    find_call_format,
    write_forced_call,
)
from lib.language_models.serving.chat_completions.json_reply import MAX_ATTEMPTS, JsonReplyReader
from lib.language_models.serving.chat_completions.json_schema import Mismatch
from lib.language_models.serving.chat_completions.lab_prompt import MAX_CHARACTERS_PER_TOKEN
from lib.language_models.serving.chat_completions.request import (
    NO_LIMIT,
    CompletionRequest,
    RequestRefused,
    refuse_length,
)
from lib.llm.chat_model import ChatRequest, Reply, ToolCall

NO_PARAMETERS = {"type": "object", "properties": {}}


class FolderCompletionModel(CompletionModel):
    """A model in a Hugging Face folder behind the chat completions API."""

    def __init__(self, model: HuggingFaceModel, max_queue_length: int = MAX_QUEUE_LENGTH) -> None:
        """
        Args:
            model: The loaded model.
            max_queue_length: Number of replies that may be under way; further requests are refused with QueueFull.
        """
        self.model = model
        self.name = model.name
        self.max_queue_length = max_queue_length
        self.call_format = find_call_format(str(model.tokenizer.chat_template))
        self.fingerprint = f"fp_{model.fingerprint[:12]}"
        self.is_closed = False
        self.num_preparing = 0  # choices whose prompt is being read
        self.tasks: set[asyncio.Task[None]] = set()  # one a choice that is being written

    @property
    def num_open(self) -> int:
        """Number of replies (choices, as OpenAI's API calls them) that are being prepared or written."""
        return self.num_preparing + sum(not task.done() for task in self.tasks)

    async def start_completion(self, request: CompletionRequest) -> FolderCompletion:
        """Check a chat request, and start generating its replies.

        Args:
            request: The body of POST /v1/chat/completions, already parsed.

        Returns:
            The completion under way. `complete` waits for the whole response, `iterate_chunks` streams it.

        Raises:
            RequestRefused: For a request that this model cannot honour: log-probabilities, JSON together with tools,
                a forced tool call in an unknown format, or too many tokens.
            QueueFull: Where as many requests wait as may.
            BatcherClosed: Where the server ends.
        """
        if request.logprobs:
            raise RequestRefused(
                f"{self.name} is a Hugging Face folder, for which logprobs is not supported; leave it out",
                param="logprobs",
            )
        json_reader = self._make_json_reader(request)  # None for a reply in free text
        call_format = self._get_call_format(request)  # None where no tool call is forced
        chat_request = self._make_chat_request(request, json_reader)
        self._check_characters(chat_request)
        if self.num_open >= self.max_queue_length:
            raise QueueFull(
                f"{self.max_queue_length} requests wait already, which is as many as may; ask again later"
            )
        if self.is_closed:
            raise BatcherClosed("the model is closed")

        # Counted as open already, because rendering and tokenizing the prompt takes a while.
        num_choices = request.n or 1
        self.num_preparing += num_choices
        try:
            chat_request = await asyncio.to_thread(
                self._set_limit, request, chat_request, call_format
            )
        finally:
            self.num_preparing -= num_choices
        # The constructor starts one task per reply, so generation starts here.
        return FolderCompletion(self, request, chat_request, json_reader, call_format)

    def _make_json_reader(self, request: CompletionRequest) -> JsonReplyReader | None:
        """Make the parser of replies that must be JSON (`response_format`); None for replies in free text.

        Raises RequestRefused for a schema that is not supported, or JSON together with tools.
        """
        if not request.wants_json:
            return None
        if request.offered_tools:
            raise RequestRefused(
                "response_format and tools are not supported together; ask for one of them",
                param="response_format",
            )
        return JsonReplyReader(request)

    def _get_call_format(self, request: CompletionRequest) -> CallFormat | None:
        """Return how the model writes a tool call, if the request forces one (`tool_choice`); else None.

        Raises RequestRefused where the format of the model's chat template is not known.
        """
        if not request.forces_a_call:
            return None
        if self.call_format is None:
            raise RequestRefused(
                f'{self.name}: its chat template writes tool calls in no format that is known; use tool_choice "auto"',
                param="tool_choice",
            )
        return self.call_format

    def _make_chat_request(
        self, request: CompletionRequest, json_reader: JsonReplyReader | None
    ) -> ChatRequest:
        """Translate a request of OpenAI's API into a request for the model, still without a limit of tokens.

        Args:
            request: The client's request.
            json_reader: Adds the required JSON format to the messages; None for free text.

        Returns:
            The request for the model.
        """
        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        for message in messages:
            message.setdefault("content", "")
        if json_reader is not None:
            messages = json_reader.add_instruction(messages)

        tools = []
        for name, function in request.offered_tools.items():
            # Where the request names the tool to call, the model sees no other.
            if request.forced_tool is None or request.forced_tool == name:
                schema = function.model_dump(exclude_none=True, exclude={"strict"})
                schema.setdefault("parameters", NO_PARAMETERS)
                tools.append({"type": "function", "function": schema})

        # Without a seed, a hash of the request is one, so that equal requests get equal replies.
        seed = request.seed
        if seed is None:
            seed = int(request.digest_with_schemas[:12], 16)
        return ChatRequest(
            messages,
            tools=tools,
            # "auto" for a forced call, too: its beginning is written for the model, see `write_forced_call`.
            tool_choice="auto" if tools else None,
            temperature=request.sampling_temperature,
            stop=tuple(request.stop or ()),
            seed=seed,
        )

    def _check_characters(self, chat_request: ChatRequest) -> None:
        """Refuse messages that are certain to exceed the context window, before time is spent to tokenize them."""
        num_characters = sum(len(message["content"]) for message in chat_request.messages)
        if num_characters > MAX_CHARACTERS_PER_TOKEN * self.model.window:
            raise refuse_length(
                f"the window has {self.model.window} tokens; messages has {num_characters} characters",
                "messages",
            )

    def _set_limit(
        self,
        request: CompletionRequest,
        chat_request: ChatRequest,
        call_format: CallFormat | None,
    ) -> ChatRequest:
        """Set the limit of reply tokens, after counting the tokens of the prompt.

        Args:
            request: The client's request.
            chat_request: The same for the model, without a limit.
            call_format: How the model writes a tool call, where the request forces one; else None.

        Returns:
            The request for the model with `max_tokens`.

        Raises:
            RequestRefused: For a prompt that cannot be rendered, or a limit that does not fit the context window or
                has no room for the beginning of a forced call.
        """
        try:
            prompt_tokens = self.model.count_prompt_tokens(chat_request)
        except PromptError as error:
            raise RequestRefused(str(error), param="messages") from None
        remaining_window = self.model.window - prompt_tokens
        limit = request.token_limit
        if limit == NO_LIMIT:
            limit = max(1, remaining_window)
        elif limit is None:
            limit = max(1, min(self.model.max_tokens, remaining_window))
        if limit > remaining_window:
            raise refuse_length(
                f"the window has {self.model.window} tokens; the prompt has {prompt_tokens} and max_tokens is {limit}",
                "messages",
            )
        if call_format is not None:
            names = [tool["function"]["name"] for tool in chat_request.tools]
            prefix_tokens = count_prefix_tokens(self.model, call_format, names)
            if limit <= prefix_tokens:
                raise RequestRefused(
                    f"max_tokens must be more than {prefix_tokens}, the tokens that begin a call",
                    param="max_tokens",
                )
        return dataclasses.replace(chat_request, max_tokens=limit)

    def describe(self, with_vocabulary: bool = False) -> dict[str, Any]:
        """Describe the model, as GET /v1/models returns it; its vocabulary is too large to be listed."""
        return self.make_description(
            context_length=self.model.window,
            system_fingerprint=self.fingerprint,
            card=dict(self.model.card),
        )

    async def aclose(self) -> None:
        self.is_closed = True
        await self.model.aclose()


class FolderCompletion(ChatCompletion):
    """A chat completion by a model in a Hugging Face folder, from the moment that its replies are under way.

    Each of the n replies that a request wants, which OpenAI's API calls choices, is written by a task of its own. The
    tasks put pieces of text, finished replies and errors into one queue, `events`, which `complete` and
    `iterate_chunks` read.
    """

    def __init__(
        self,
        completion_model: FolderCompletionModel,
        request: CompletionRequest,
        chat_request: ChatRequest,
        json_reader: JsonReplyReader | None,
        call_format: CallFormat | None,
    ) -> None:
        """Start the tasks that write the choices.

        Args:
            completion_model: The served model that answers; it counts the tasks as open.
            request: What is to be answered.
            chat_request: The same, translated for the model.
            json_reader: Parses replies that must be JSON; None for free text.
            call_format: How the model writes a tool call, where one is forced; else None.
        """
        super().__init__(
            request,
            request.digest_with_schemas,
            completion_model.name,
            completion_model.fingerprint,
        )
        self.chat_model = completion_model.model
        self.json_reader = json_reader
        self.call_format = call_format
        self.cancelled = threading.Event()
        self.events: asyncio.Queue[tuple[int, str | Reply | Exception]] = asyncio.Queue()
        self.tasks = []
        for index in range(request.n or 1):
            # Each choice has its own seed, or all would be the same.
            choice_request = dataclasses.replace(chat_request, seed=chat_request.seed + index)
            task = asyncio.create_task(self._write_choice(index, choice_request))
            completion_model.tasks.add(task)
            task.add_done_callback(completion_model.tasks.discard)
            self.tasks.append(task)

    def cancel(self) -> None:
        """Stop writing, because nobody waits any more; does nothing to a completion that is finished."""
        if all(task.done() for task in self.tasks):
            return
        self.cancelled.set()
        for task in self.tasks:
            task.cancel()
        # Ends whoever still reads the events.
        self.events.put_nowait((0, RequestCancelled("the request was cancelled")))

    async def complete(self) -> dict[str, Any]:
        """Wait for all choices, and return the body of the response, JSON in the format of OpenAI's API."""
        replies: dict[int, Reply] = {}  # by index of the choice
        async for index, event in self._iterate_events():
            if isinstance(event, Reply):
                replies[index] = event
        choices = [
            {
                "index": index,
                "message": self._make_message(index, replies[index]),
                "logprobs": None,
                "finish_reason": replies[index].finish_reason,
            }
            for index in sorted(replies)
        ]
        prompt_tokens, completion_tokens = _count_tokens(list(replies.values()))
        return self.make_body(choices, prompt_tokens, completion_tokens)

    async def iterate_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Stream the completion in the format of OpenAI's API, while it is written.

        Yields:
            JSON: for each choice a chunk with its role, chunks with new text, its tool calls, and a last one with the
            finish reason; after all choices a chunk with the token counts, if the request asks for it.
        """
        for index in range(len(self.tasks)):
            delta = {"role": "assistant", "content": ""}
            yield self.make_chunk(make_choice_chunk(index, delta))

        replies = []
        num_characters_sent = [0] * len(self.tasks)  # by index of the choice
        async for index, event in self._iterate_events():
            if isinstance(event, str):
                num_characters_sent[index] += len(event)
                yield self.make_chunk(make_choice_chunk(index, {"content": event}))
                continue

            # The event is a finished reply: what was held back of its text is sent, its tool calls, and its end.
            replies.append(event)
            message = self._make_message(index, event)
            remaining = (message["content"] or "")[num_characters_sent[index] :]
            if remaining:
                yield self.make_chunk(make_choice_chunk(index, {"content": remaining}))
            for number, call in enumerate(message.get("tool_calls", [])):
                delta = {"tool_calls": [{"index": number} | call]}
                yield self.make_chunk(make_choice_chunk(index, delta))
            finish_reason = event.finish_reason
            yield self.make_chunk(make_choice_chunk(index, {}, finish_reason=finish_reason))

        if self.request.wants_usage_in_stream:
            prompt_tokens, completion_tokens = _count_tokens(replies)
            yield self.make_usage_chunk(prompt_tokens, completion_tokens)

    async def _iterate_events(self) -> AsyncIterator[tuple[int, str | Reply]]:
        """Read the queue of events until each choice has its finished reply; then, or after an error, end all tasks.

        Yields:
            (index of the choice, new piece of its text or its finished reply).

        Raises:
            Exception: What a choice failed with.
        """
        num_open = len(self.tasks)
        try:
            while num_open:
                index, event = await self.events.get()
                if isinstance(event, Exception):
                    raise event
                yield index, event
                if isinstance(event, Reply):
                    num_open -= 1
        finally:
            # A choice that failed, or a client that is gone, ends the other choices. All tasks are over after this.
            self.cancelled.set()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    # One choice

    async def _write_choice(self, index: int, chat_request: ChatRequest) -> None:
        """Write one choice, and put pieces of its text, its finished reply, or an error into `events`.

        Args:
            index: Index of the choice.
            chat_request: The conversation, with the choice's own seed.
        """
        try:
            if self.call_format is not None:
                reply = await self._write_forced_call(chat_request)
                self.events.put_nowait((index, reply))
            elif self.json_reader is not None:
                reply = await self._write_json(chat_request)
                self.events.put_nowait((index, reply))
            else:
                await self._write_text(index, chat_request)
        except Exception as error:
            # Whoever reads the events raises it; an exception of a task that nobody awaits would only be logged.
            self.events.put_nowait((index, error))

    async def _write_text(self, index: int, chat_request: ChatRequest) -> None:
        """Write a reply in free text: pieces of it, and last the finished reply, go into `events` as they come."""
        stream = self.chat_model.stream(chat_request)
        async with contextlib.aclosing(stream):
            async for event in stream:
                if isinstance(event, Reply):
                    _raise_failure(event)
                self.events.put_nowait((index, event))

    async def _write_json(self, chat_request: ChatRequest) -> Reply:
        """Sample replies until one is JSON that fits the schema.

        Args:
            chat_request: The conversation, with the JSON format described in its system message.

        Returns:
            The first reply that fits, its text the JSON object alone; tokens_out counts all samples.

        Raises:
            RequestRefused: With status 422, where no sample fits.
        """
        tokens_out = 0
        max_samples = _limit_samples(chat_request)
        for sample in range(max_samples):
            # Equal requests with another `sample` draw other random numbers.
            sample_request = dataclasses.replace(chat_request, sample=sample)
            reply = await self.chat_model.reply_to(sample_request)
            _raise_failure(reply)
            tokens_out += reply.tokens_out
            try:
                content = self.json_reader.read(reply.text)
            except Mismatch as error:
                reason = str(error)
                continue
            return dataclasses.replace(
                reply, text=content, tokens_out=tokens_out, finish_reason="stop"
            )
        cut = ", and it was cut off at max_tokens" if reply.finish_reason == "length" else ""
        raise RequestRefused(
            f"{self.model_name} wrote no JSON that fits, in {max_samples} samples; of the last: {reason}{cut}; "
            "ask for less, or a larger model",
            422,
            "json_does_not_fit",
            "response_format",
        )

    async def _write_forced_call(self, chat_request: ChatRequest) -> Reply:
        """Sample tool calls, whose beginning is written for the model, until one has arguments in JSON.

        Args:
            chat_request: The conversation, with the tools of which one must be called.

        Returns:
            A reply with the first call that can be read and no text; tokens_out counts all samples.

        Raises:
            RequestRefused: With status 422, where no sample has arguments in JSON.
            GenerationFailed: Where the model broke, such as for lack of memory.
        """
        tokens_out = 0
        max_samples = _limit_samples(chat_request)
        for sample in range(max_samples):
            sample_request = dataclasses.replace(chat_request, sample=sample)
            try:
                call = await asyncio.to_thread(
                    write_forced_call,
                    self.chat_model,
                    sample_request,
                    self.call_format,
                    chat_request.max_tokens,
                    self.cancelled,
                )
            except RuntimeError as error:  # of torch: no memory, no device
                raise GenerationFailed(f"{type(error).__name__}: {error}") from error
            tokens_out += call.tokens_out
            if call.finish == "malformed":
                continue
            return Reply(
                text="",
                model=self.model_name,
                backend=self.chat_model.backend,
                tool_calls=(ToolCall("", call.name, call.arguments),),
                finish_reason="length" if call.finish == "length" else "tool_calls",
                tokens_in=call.tokens_in,
                tokens_out=tokens_out,
            )
        raise RequestRefused(
            f"{self.model_name} wrote no arguments that are JSON, in {max_samples} samples; use a larger model",
            422,
            "arguments_are_no_json",
            "tool_choice",
        )

    def _make_message(self, index: int, reply: Reply) -> dict[str, Any]:
        """Turn a finished reply into an assistant message of OpenAI's API: content, reasoning and tool calls.

        Args:
            index: Index of the choice; part of the ids of its calls.
            reply: Reply of the model.

        Returns:
            JSON.
        """
        calls = list(reply.tool_calls)
        # The model cannot be told to make one call only, so further ones are left out.
        if self.request.parallel_tool_calls is False:
            calls = calls[:1]
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        reasoning = reply.message.get("reasoning_content")
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["content"] = reply.text or None
            message["tool_calls"] = [
                self.make_tool_call(f"{index}/{number}", call.name, call.arguments)
                for number, call in enumerate(calls)
            ]
        return message


def _limit_samples(chat_request: ChatRequest) -> int:
    """How many replies to sample, at most, until one fits its format; 1 at temperature 0, where all are the same."""
    return 1 if chat_request.temperature == 0 else MAX_ATTEMPTS


def _count_tokens(replies: Sequence[Reply]) -> tuple[int, int]:
    """Count tokens for the usage of a response: (of the prompt, of all replies with samples that did not fit)."""
    prompt_tokens = max((reply.tokens_in for reply in replies), default=0)
    return prompt_tokens, sum(reply.tokens_out for reply in replies)


def _raise_failure(reply: Reply) -> None:
    """Raise the failure of a reply as the error that a client of the server gets.

    A reply that is cut off, empty, or holds a tool call that cannot be read raises nothing: clients of OpenAI's API
    expect it as an ordinary reply.

    Args:
        reply: Reply of the model; most have no failure.

    Raises:
        RequestRefused: Where the request is at fault.
        BatcherClosed: Where the server ends.
        GenerationFailed: Where the model broke.
    """
    failure = reply.failure
    if failure is None or failure.kind in ("truncated", "empty", "malformed"):
        return
    if failure.kind == "context_too_long":
        raise refuse_length(failure.detail, "messages")
    if failure.kind == "bad_request":
        raise RequestRefused(failure.detail, param="messages")
    if failure.kind == "connection":
        raise BatcherClosed(failure.detail)
    raise GenerationFailed(failure.detail)
