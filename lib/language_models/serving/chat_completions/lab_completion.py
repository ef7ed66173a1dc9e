"""Chat completions by the lab models of this process, many side by side in one batch.

A tool call is read from the lab's protocol, `<call> NAME ARGUMENT </call>`, and handed on as JSON; one that must be
made (`tool_choice`) is begun for the model. Left out: JSON replies, for which the vocabulary has no signs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lib.language_models import chat_template
from lib.language_models.batching import MAX_BATCH_SIZE, MAX_QUEUE_LENGTH, Batcher, GeneratedToken
from lib.language_models.generation import ContextTooLong, Generation, Prompt, check_fits_window
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions import forced_call, lab_prompt
from lib.language_models.serving.chat_completions.completion import (
    ChatCompletion,
    CompletionModel,
    make_choice_chunk,
)
from lib.language_models.serving.chat_completions.request import (
    NO_LIMIT,
    CompletionRequest,
    RequestRefused,
    refuse_length,
)
from lib.language_models.serving.chat_completions.stop_strings import (
    cut_at_stop,
    find_stop,
    hold_back,
)
from lib.language_models.tokenizer import EOS, decode, encode, list_token_texts, list_words

CALL_TAG = forced_call.CALL_TAG
CALL_END_TAG = "</call>"


@dataclass(frozen=True)
class ServedModel:
    """A lab model with its weights.

    Attributes:
        name: By which it is asked for.
        forward: Its weights.
        card: What is known about it, JSON.
        max_tokens: Of a reply where the request says nothing.
    """

    name: str
    forward: Forward
    card: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 64

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the weights."""
        forward = self.forward
        tensors = [forward.embedding, forward.norm, forward.head]
        for layer in forward.layers:
            tensors += vars(layer).values()

        digest = hashlib.sha256()
        for tensor in tensors:
            # the shape too, or two layouts of the same numbers would be one model
            shape = tuple(tensor.shape)
            digest.update(f"{shape}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return f"fp_{digest.hexdigest()[:12]}"


class LabCompletionModel(CompletionModel):
    """A lab model and the thread that generates with it."""

    def __init__(
        self,
        model: ServedModel,
        max_queue_length: int = MAX_QUEUE_LENGTH,
        max_batch_size: int = MAX_BATCH_SIZE,
    ) -> None:
        """Make a model askable.

        Args:
            model: The weights.
            max_queue_length: Requests that may wait, until more are refused.
            max_batch_size: Sequences side by side.
        """
        self.model = model
        self.name = model.name
        self.batcher = Batcher(
            model.forward, chat_template.encode_special(EOS), max_queue_length, max_batch_size
        )

    async def start_completion(self, request: CompletionRequest) -> LabCompletion:
        if request.wants_json:
            raise lab_prompt.refuse_json(self.name)
        # the length first: to look for unknown words in a megabyte takes seconds
        prompt_ids = lab_prompt.encode_conversation(request, self.model.forward.window)
        lab_prompt.check_vocabulary(request, self.name)

        if not request.forces_a_call:
            return LabCompletion(request, self.model, self.batcher, prompt_ids)
        tools = await self._choose_forced_tools(request, prompt_ids)
        return LabCompletion(request, self.model, self.batcher, prompt_ids, tools)

    async def _choose_forced_tools(
        self, request: CompletionRequest, prompt_ids: list[int]
    ) -> list[str]:
        """The tool that each choice must call."""
        tools = list(request.offered_tools)
        if request.forced_tool is not None:
            tools = [request.forced_tool]
        if len(tools) == 1:
            return tools * (request.n or 1)

        # the longest name must fit before the model is asked for its choice
        longest = max(len(forced_call.encode_call_prefix(tool)) for tool in tools)
        _check_window(prompt_ids, longest, self.model.forward.window)
        logprobs = await asyncio.to_thread(
            forced_call.measure_tool_logprobs, self.model.forward, prompt_ids, tools
        )
        return [
            forced_call.choose_tool(logprobs, tools, request.sampling_temperature, seed)
            for seed in _list_seeds(request)
        ]

    def describe(self, with_vocabulary: bool = False) -> dict[str, Any]:
        facts = {
            "context_length": self.model.forward.window,
            "system_fingerprint": self.model.fingerprint,
            "card": dict(self.model.card),
        }
        if with_vocabulary:
            facts["vocabulary"] = list_words()
        return self.make_description(**facts)

    async def aclose(self) -> None:
        await self.batcher.aclose()


class LabCompletion(ChatCompletion):
    """A chat completion by a lab model, from the moment that its sequences are queued."""

    def __init__(
        self,
        request: CompletionRequest,
        model: ServedModel,
        batcher: Batcher,
        prompt_ids: Sequence[int],
        forced_tools: Sequence[str] = (),
    ) -> None:
        """Queue the sequences of a request.

        Args:
            request: What is to be answered.
            model: Who is asked.
            batcher: The model's.
            prompt_ids: Tokens of the conversation.
            forced_tools: The tool that each choice must call; empty where none must.
        """
        super().__init__(request, request.digest, model.name, model.fingerprint)
        self.model = model
        self.stops = tuple(request.stop or ())
        self.tools = request.offered_tools
        self.forced_tools = forced_tools
        self.prompt_tokens = len(prompt_ids)
        self.prefixes = [forced_call.encode_call_prefix(tool) for tool in forced_tools]

        # from here on the model works, whether the client reads the whole or chunks
        prompts = self._make_prompts(prompt_ids)
        self.generation_request = batcher.submit(
            prompts, self._make_stop_check(), stream_tokens=self.is_streamed
        )

    def cancel(self) -> None:
        self.generation_request.cancel()

    async def complete(self) -> dict[str, Any]:
        generations = await self.generation_request.result()
        choices = [self._make_choice(index, written) for index, written in enumerate(generations)]
        return self.make_body(choices, self.prompt_tokens, self._count_written(generations))

    async def iterate_chunks(self) -> AsyncIterator[dict[str, Any]]:
        streams = [LabChoiceStream(self, index) for index in range(self.request.n or 1)]
        for stream in streams:
            delta = {"role": "assistant", "content": ""}
            yield self.make_chunk(make_choice_chunk(stream.index, delta))

        async for tokens in self.generation_request:
            for token in tokens:
                for choice in streams[token.index].add_token(token):
                    yield self.make_chunk(choice)

        if self.request.wants_usage_in_stream:
            completion_tokens = self._count_written(self.generation_request.generations)
            yield self.make_usage_chunk(self.prompt_tokens, completion_tokens)

    # The prompts

    def _make_prompts(self, prompt_ids: Sequence[int]) -> list[Prompt]:
        window = self.model.forward.window
        stop_ids = (tuple(encode(CALL_END_TAG)),) if self.tools else ()
        prompts = []
        for index, seed in enumerate(_list_seeds(self.request)):
            prefix = self._get_prefix(index)
            limit = self._limit_tokens(len(prompt_ids)) - len(prefix)
            if limit < 1:
                raise RequestRefused(
                    f"max_tokens must be more than {len(prefix)}, the tokens of {decode(prefix)!r}",
                    param="max_tokens",
                )
            _check_window(prompt_ids, len(prefix) + limit, window)
            prompts.append(
                Prompt(
                    (*prompt_ids, *prefix), limit, self.request.sampling_temperature, seed, stop_ids
                )
            )
        return prompts

    def _limit_tokens(self, prompt_tokens: int) -> int:
        """Tokens of the reply at the most; at least one, so that a full window is refused by its size."""
        remaining_window = self.model.forward.window - prompt_tokens
        limit = self.request.token_limit
        if limit == NO_LIMIT:
            return max(1, remaining_window)
        if limit is None:
            return max(1, min(self.model.max_tokens, remaining_window))
        return limit

    def _make_stop_check(self) -> Callable[[list[int]], bool] | None:
        """What ends a sequence beside the tokens that do, called after every token."""
        if not self.stops:
            return None
        return lambda ids: find_stop(decode(ids), self.stops) is not None

    def _get_prefix(self, index: int) -> list[int]:
        """Tokens of the call that the choice must begin with."""
        return self.prefixes[index] if self.prefixes else []

    # The texts

    def read_text(self, ids: Sequence[int]) -> str:
        """The text of a finished choice up to the first stop string, a tool call as the model wrote it."""
        return cut_at_stop(decode(ids), self.stops)

    def make_message(self, index: int, text: str) -> dict[str, Any]:
        """A finished text as the assistant's message: content, and the tool call that it ends in."""
        if self.forced_tools:
            # the beginning of the call stands in the prompt, so the text is its argument
            argument = text.strip().removesuffix(CALL_END_TAG).rstrip()
            return self._make_call_message(index, "", self.forced_tools[index], argument)

        call = chat_template.parse_tool_call(text) if self.tools else None
        # a call of what is not on offer is text: no client could answer it
        if call is None or call[0] not in self.tools:
            return {"role": "assistant", "content": text}
        content = text[: text.index(CALL_TAG)].rstrip()
        return self._make_call_message(index, content, *call)

    def _make_call_message(
        self, index: int, content: str, tool: str, argument: str
    ) -> dict[str, Any]:
        arguments = json.dumps({self.tools[tool].argument: argument})
        call = self.make_tool_call(str(index), tool, arguments)
        return {"role": "assistant", "content": content or None, "tool_calls": [call]}

    def read_finish_reason(self, message: Mapping[str, Any], finish: str) -> str:
        """How a choice ended. A call that was begun for the model may be cut off, one of its own is whole."""
        if self.forced_tools and finish == "length":
            return "length"
        return "tool_calls" if "tool_calls" in message else finish

    def make_logprobs(self, generation: Generation, length: int) -> list[dict[str, Any]]:
        """Log-probabilities of the tokens that begin within the first characters of the text.

        Args:
            generation: What is written.
            length: Characters of the text that count.

        Returns:
            One entry a token, as OpenAI's API has them.
        """
        if not self.request.logprobs:
            return []
        piece_of = list_token_texts()
        entries: list[dict[str, Any]] = []
        position = 0
        for token, logprob in zip(generation.ids, generation.logprobs, strict=True):
            piece = piece_of[token]
            # as `decode` takes the blank off the beginning of a text
            if position == 0:
                piece = piece.removeprefix(" ")
            if position >= length:
                break
            position += len(piece)
            entries.append(
                {
                    "token": piece,
                    "logprob": logprob,
                    "bytes": list(piece.encode()),
                    "top_logprobs": [],
                }
            )
        return entries

    def _make_choice(self, index: int, generation: Generation) -> dict[str, Any]:
        text = self.read_text(generation.ids)
        message = self.make_message(index, text)
        logprobs = None
        if self.request.logprobs:
            entries = self.make_logprobs(generation, len(text))
            logprobs = {"content": entries, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.read_finish_reason(message, generation.finish),
        }

    def _count_written(self, generations: Sequence[Generation]) -> int:
        """Tokens of all choices, with those that were written for the model."""
        return sum(len(written.ids) for written in generations) + sum(map(len, self.prefixes))


class LabChoiceStream:
    """One choice of a completion that is read while it is written: nothing is shown that the end could take back."""

    def __init__(self, completion: LabCompletion, index: int) -> None:
        self.completion = completion
        self.index = index
        self.marks = list(completion.stops)
        if completion.tools:
            self.marks.append(CALL_TAG)
        self.written = Generation()
        self.shown_characters = 0
        self.shown_logprobs = 0

    def add_token(self, token: GeneratedToken) -> list[dict[str, Any]]:
        """The chunks of a choice that one more token makes."""
        self.written.ids.append(token.id)
        self.written.logprobs.append(token.logprob)
        if token.finish:
            return self._make_last_chunks(token.finish)
        if self.completion.forced_tools:
            return []  # a call comes in one piece

        text = hold_back(decode(self.written.ids), self.marks)
        if self.completion.tools:
            text = text.rstrip()  # the blank before a call belongs to no content
        return self._show(text)

    def _show(self, text: str) -> list[dict[str, Any]]:
        if len(text) <= self.shown_characters:
            return []
        delta = {"content": text[self.shown_characters :]}
        self.shown_characters = len(text)
        return [make_choice_chunk(self.index, delta, self._take_logprobs(text))]

    def _take_logprobs(self, text: str) -> list[dict[str, Any]]:
        """Entries of the tokens up to the end of a text, but for those that were taken before."""
        entries = self.completion.make_logprobs(self.written, len(text))[self.shown_logprobs :]
        self.shown_logprobs += len(entries)
        return entries

    def _make_last_chunks(self, finish: str) -> list[dict[str, Any]]:
        text = self.completion.read_text(self.written.ids)
        message = self.completion.make_message(self.index, text)
        chunks = self._show(message["content"] or "")
        # in one piece: an argument is one line, and only the end says that it is a call
        for number, call in enumerate(message.get("tool_calls", [])):
            delta = {"tool_calls": [{"index": number} | call]}
            chunks.append(make_choice_chunk(self.index, delta))

        finish_reason = self.completion.read_finish_reason(message, finish)
        logprobs = self._take_logprobs(text)
        chunks.append(make_choice_chunk(self.index, {}, logprobs, finish_reason))
        return chunks


def _list_seeds(request: CompletionRequest) -> list[int]:
    """The seed of each choice: the request's own or its hash, and those that follow."""
    first = int(request.digest[:12], 16) if request.seed is None else request.seed
    return [first + index for index in range(request.n or 1)]


def _check_window(prompt_ids: Sequence[int], reply_tokens: int, window: int) -> None:
    try:
        check_fits_window(Prompt(tuple(prompt_ids), reply_tokens), window)
    except ContextTooLong as error:
        raise refuse_length(str(error), "messages") from None
