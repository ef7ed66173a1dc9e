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
    """A lab model, a small transformer that was trained here, loaded for generation.

    Attributes:
        name: The name that requests ask for, such as "lab-nano".
        forward: Its weights and forward pass; `forward.window` is the context length in tokens.
        card: What was measured of it (accuracy, price of a token), as JSON; {} where nothing was.
        max_tokens: Limit of a reply's tokens where the request names none.
    """

    name: str
    forward: Forward
    card: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 64

    @cached_property
    def fingerprint(self) -> str:
        """Hashes the weights to a short text such as "fp_0a1b2c3d4e5f"; other weights have another one."""
        forward = self.forward
        tensors = [forward.embedding, forward.norm, forward.head]
        for layer in forward.layers:
            tensors += vars(layer).values()  # a layer's attributes are its weight tensors

        digest = hashlib.sha256()
        for tensor in tensors:
            # the shape too, or two layouts of the same numbers would be one model
            shape = tuple(tensor.shape)
            digest.update(f"{shape}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return f"fp_{digest.hexdigest()[:12]}"


class LabCompletionModel(CompletionModel):
    """A lab model, a small transformer that was trained here, behind the chat completions API.

    Attributes:
        model: The loaded model.
        name: The name that requests ask for.
        batcher: Its queue of requests, and the thread that generates the replies to many of them in one batch.
    """

    def __init__(
        self,
        model: ServedModel,
        max_queue_length: int = MAX_QUEUE_LENGTH,
        max_batch_size: int = MAX_BATCH_SIZE,
    ) -> None:
        """Start the queue and the generating thread of a model.

        Args:
            model: The loaded model.
            max_queue_length: Number of requests that may wait; further ones are refused with QueueFull.
            max_batch_size: Number of sequences that are generated at once, at most.
        """
        self.model = model
        self.name = model.name
        self.batcher = Batcher(
            model.forward, chat_template.encode_special(EOS), max_queue_length, max_batch_size
        )

    async def start_completion(self, request: CompletionRequest) -> LabCompletion:
        """Check a chat request, tokenize it, and queue it for generation.

        Args:
            request: The body of POST /v1/chat/completions, already parsed.

        Returns:
            The completion under way: its sequences are in the queue of the generating thread. `complete` waits for the
            whole response, `iterate_chunks` streams it.

        Raises:
            RequestRefused: For a JSON reply format, words outside the model's vocabulary, or too many tokens.
            QueueFull: Where as many requests wait as may.
            BatcherClosed: Where the server ends.
        """
        if request.wants_json:
            raise lab_prompt.refuse_json(self.name)
        # The length is checked before the words: finding unknown words in a megabyte of text takes seconds.
        context_length = self.model.forward.window  # tokens of prompt and reply together
        prompt_ids = lab_prompt.encode_conversation(request, context_length)
        lab_prompt.check_vocabulary(request, self.name)

        # A request with `tool_choice` forces each of its n replies to call a tool. Which one is chosen now, because
        # the beginning of the call, "<call> NAME", becomes part of the prompt.
        forced_tools: list[str] = []
        if request.forces_a_call:
            forced_tools = await self._choose_forced_tools(request, prompt_ids)

        # The constructor submits the sequences to the queue, so generation starts here.
        return LabCompletion(request, self.model, self.batcher, prompt_ids, forced_tools)

    async def _choose_forced_tools(
        self, request: CompletionRequest, prompt_ids: list[int]
    ) -> list[str]:
        """Choose which tool each reply must call, where the request demands a call (`tool_choice`).

        Args:
            request: Names one tool, or leaves the choice among all tools on offer to the model.
            prompt_ids: Token ids of the conversation.

        Returns:
            Names of tools, one for each of the request's n replies.

        Raises:
            RequestRefused: Where the beginning of a call does not fit the context window.
        """
        num_replies = request.n or 1
        tools = list(request.offered_tools)
        if request.forced_tool is not None:
            tools = [request.forced_tool]
        if len(tools) == 1:
            return tools * num_replies

        # The longest beginning of a call must fit before the model computes the probabilities of the names.
        longest_prefix = max(len(forced_call.encode_call_prefix(tool)) for tool in tools)
        _check_window(prompt_ids, longest_prefix, self.model.forward.window)
        tool_logprobs = await asyncio.to_thread(  # (tools,)
            forced_call.measure_tool_logprobs, self.model.forward, prompt_ids, tools
        )
        temperature = request.sampling_temperature
        return [
            forced_call.choose_tool(tool_logprobs, tools, temperature, seed)
            for seed in _list_seeds(request)
        ]

    def describe(self, with_vocabulary: bool = False) -> dict[str, Any]:
        """Describe the model, as GET /v1/models returns it.

        Args:
            with_vocabulary: Whether to list the few hundred words that the model knows.

        Returns:
            JSON: the fields of OpenAI's API, the context length, a hash of the weights, and the model's card.
        """
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
    """A chat completion by a lab model, from the moment that its sequences are queued.

    A request with `n` wants that many replies, which OpenAI's API calls choices; each is one sequence.
    """

    def __init__(
        self,
        request: CompletionRequest,
        model: ServedModel,
        batcher: Batcher,
        prompt_ids: Sequence[int],
        forced_tools: Sequence[str] = (),
    ) -> None:
        """Submit the sequences of a request to the generating thread.

        Args:
            request: What is to be answered.
            model: The model that answers.
            batcher: The model's queue and generating thread.
            prompt_ids: Token ids of the conversation.
            forced_tools: The tool that each choice must call; empty where none must.
        """
        super().__init__(request, request.digest, model.name, model.fingerprint)
        self.model = model
        self.stops = tuple(request.stop or ())
        self.tools = request.offered_tools
        self.forced_tools = forced_tools
        self.prompt_tokens = len(prompt_ids)
        self.prefixes = [forced_call.encode_call_prefix(tool) for tool in forced_tools]

        # From here on the model generates, whether the client waits for the whole or reads chunks.
        prompts = self._make_prompts(prompt_ids)
        self.generation_request = batcher.submit(
            prompts, self._make_stop_check(), stream_tokens=self.is_streamed
        )

    def cancel(self) -> None:
        self.generation_request.cancel()

    async def complete(self) -> dict[str, Any]:
        """Wait for all choices, and return the body of the response, JSON in the format of OpenAI's API."""
        generations = await self.generation_request.result()
        choices = []
        for index, generation in enumerate(generations):
            choices.append(self._make_choice(index, generation))
        return self.make_body(choices, self.prompt_tokens, self._count_written(generations))

    async def iterate_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Stream the completion in the format of OpenAI's API, while it is generated.

        Yields:
            JSON: for each choice a chunk with its role, chunks with new text, and a last one with the finish reason;
            after all choices a chunk with the token counts, if the request asks for it.
        """
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
        """Make the sequences to generate, one for each choice.

        Args:
            prompt_ids: Token ids of the conversation.

        Returns:
            Prompts: tokens to go on from, limit of new tokens, temperature, seed, and token sequences that stop it.

        Raises:
            RequestRefused: Where max_tokens has no room for a forced call, or a prompt does not fit the window.
        """
        window = self.model.forward.window
        stop_ids = (tuple(encode(CALL_END_TAG)),) if self.tools else ()
        prompts = []
        for index, seed in enumerate(_list_seeds(self.request)):
            # The beginning of a forced call is written for the model, and counts as part of the reply.
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
        """Compute the limit of a reply's tokens from the request, the model's default and the context window.

        Args:
            prompt_tokens: Number of tokens of the conversation.

        Returns:
            The limit, at least 1: where the window is full already, the check of its size refuses the request.
        """
        remaining_window = self.model.forward.window - prompt_tokens
        limit = self.request.token_limit
        if limit == NO_LIMIT:
            return max(1, remaining_window)
        if limit is None:
            return max(1, min(self.model.max_tokens, remaining_window))
        return limit

    def _make_stop_check(self) -> Callable[[list[int]], bool] | None:
        """Make a function from a sequence's token ids to whether its text holds a stop string; None without any.

        The generating thread calls it after every token.
        """
        if not self.stops:
            return None
        return lambda ids: find_stop(decode(ids), self.stops) is not None

    def _get_prefix(self, index: int) -> list[int]:
        """Tokens of the call that the choice must begin with."""
        return self.prefixes[index] if self.prefixes else []

    # The texts

    def read_text(self, ids: Sequence[int]) -> str:
        """Decode a finished choice up to its first stop string; a tool call stays in the text as "<call> ..."."""
        return cut_at_stop(decode(ids), self.stops)

    def make_message(self, index: int, text: str) -> dict[str, Any]:
        """Turn the text of a finished choice into an assistant message of OpenAI's API.

        Args:
            index: Index of the choice.
            text: What the model wrote; it may end in a tool call, "<call> NAME ARGUMENT </call>".

        Returns:
            JSON: role, content, and tool_calls if the text ends in the call of a tool on offer.
        """
        if self.forced_tools:
            # The beginning of the call stands in the prompt, so the text is its argument.
            argument = text.strip().removesuffix(CALL_END_TAG).rstrip()
            return self._make_call_message(index, "", self.forced_tools[index], argument)

        call = chat_template.parse_tool_call(text) if self.tools else None
        if call is None:
            return {"role": "assistant", "content": text}
        tool, argument = call
        # The call of a tool that is not on offer stays text: no client could answer it.
        if tool not in self.tools:
            return {"role": "assistant", "content": text}
        content = text[: text.index(CALL_TAG)].rstrip()
        return self._make_call_message(index, content, tool, argument)

    def _make_call_message(
        self, index: int, content: str, tool: str, argument: str
    ) -> dict[str, Any]:
        """Make an assistant message with one tool call.

        Args:
            index: Index of the choice; part of the call's id.
            content: Text in front of the call; may be empty.
            tool: Name of the tool.
            argument: The call's one argument, as the lab model wrote it.

        Returns:
            JSON in the format of OpenAI's API, where arguments are a JSON object: {"expression": "3 + 4"}.
        """
        # Lab models write a value only. The name that belongs to it comes from the tool's schema.
        arguments = json.dumps({self.tools[tool].argument: argument})
        call = self.make_tool_call(str(index), tool, arguments)
        return {"role": "assistant", "content": content or None, "tool_calls": [call]}

    def read_finish_reason(self, message: Mapping[str, Any], finish: str) -> str:
        """Translate why generation ended into the finish_reason of OpenAI's API.

        Args:
            message: The finished message of the choice.
            finish: "stop" or "length".

        Returns:
            "stop", "length" or "tool_calls".
        """
        # Only a forced call, whose beginning was written for the model, can be cut off: others are parsed when whole.
        if self.forced_tools and finish == "length":
            return "length"
        return "tool_calls" if "tool_calls" in message else finish

    def make_logprobs(self, generation: Generation, length: int) -> list[dict[str, Any]]:
        """List the log-probabilities of the tokens that make up the beginning of a text.

        Args:
            generation: Token ids of the text, and their log-probabilities.
            length: Number of characters; tokens that begin behind them are left out.

        Returns:
            One entry per token, in the format of OpenAI's API; none where the request does not ask for them.
        """
        if not self.request.logprobs:
            return []
        token_texts = list_token_texts()  # by token id
        entries: list[dict[str, Any]] = []
        position = 0  # characters so far
        for token_id, logprob in zip(generation.ids, generation.logprobs, strict=True):
            piece = token_texts[token_id]
            # As `decode` takes the blank off the beginning of a text.
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
        """Make one choice of a response: the JSON with message, log-probabilities and finish reason."""
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
        """Count the tokens of all choices, with the beginnings of forced calls, which were written for the model."""
        num_generated = sum(len(generation.ids) for generation in generations)
        num_prefixed = sum(len(prefix) for prefix in self.prefixes)
        return num_generated + num_prefixed


class LabChoiceStream:
    """One choice of a completion that is streamed while it is written.

    Nothing is sent that a later token could take back, such as the first half of a stop string.
    """

    def __init__(self, completion: LabCompletion, index: int) -> None:
        """Start a stream with no tokens.

        Args:
            completion: The completion that the choice belongs to.
            index: Position of the choice in it.
        """
        self.completion = completion
        self.index = index
        # Texts that end what may be sent: stop strings, and the beginning of a tool call.
        self.marks = list(completion.stops)
        if completion.tools:
            self.marks.append(CALL_TAG)
        self.written = Generation()  # tokens so far
        self.shown_characters = 0  # number sent
        self.shown_logprobs = 0  # number sent

    def add_token(self, token: GeneratedToken) -> list[dict[str, Any]]:
        """Take in one more generated token.

        Args:
            token: Its id, log-probability, and finish reason if it is the last.

        Returns:
            The choice's chunks that can be sent now, JSON of OpenAI's API; none while text is held back.
        """
        self.written.ids.append(token.id)
        self.written.logprobs.append(token.logprob)
        if token.finish:
            return self._make_last_chunks(token.finish)
        if self.completion.forced_tools:
            return []  # a tool call is sent in one piece, at its end

        text = hold_back(decode(self.written.ids), self.marks)
        if self.completion.tools:
            text = text.rstrip()  # the blank before a call belongs to no content
        return self._make_text_chunks(text)

    def _make_text_chunks(self, text: str) -> list[dict[str, Any]]:
        """Make the chunk with what is new in a text since the last call; no chunk where nothing is."""
        if len(text) <= self.shown_characters:
            return []
        delta = {"content": text[self.shown_characters :]}
        self.shown_characters = len(text)
        return [make_choice_chunk(self.index, delta, self._take_logprobs(text))]

    def _take_logprobs(self, text: str) -> list[dict[str, Any]]:
        """List the log-probabilities of a text's tokens, without those that an earlier call returned."""
        entries = self.completion.make_logprobs(self.written, len(text))[self.shown_logprobs :]
        self.shown_logprobs += len(entries)
        return entries

    def _make_last_chunks(self, finish: str) -> list[dict[str, Any]]:
        """Make the chunks that end a choice: text that was held back, a tool call if any, and the finish reason.

        Args:
            finish: Why generation ended, "stop" or "length".

        Returns:
            Chunks, JSON of OpenAI's API.
        """
        text = self.completion.read_text(self.written.ids)
        message = self.completion.make_message(self.index, text)
        chunks = self._make_text_chunks(message["content"] or "")
        # A call is sent in one piece: its argument is one line, and only its end shows that it is a call.
        for number, call in enumerate(message.get("tool_calls", [])):
            delta = {"tool_calls": [{"index": number} | call]}
            chunks.append(make_choice_chunk(self.index, delta))

        finish_reason = self.completion.read_finish_reason(message, finish)
        logprobs = self._take_logprobs(text)
        chunks.append(make_choice_chunk(self.index, {}, logprobs, finish_reason))
        return chunks


def _list_seeds(request: CompletionRequest) -> list[int]:
    """List the random seeds of a request's choices: its own seed, or else a hash of it, and the numbers that follow."""
    first_seed = request.seed
    if first_seed is None:
        first_seed = int(request.digest[:12], 16)  # equal requests get equal replies
    num_choices = request.n or 1
    return [first_seed + index for index in range(num_choices)]


def _check_window(prompt_ids: Sequence[int], reply_tokens: int, window: int) -> None:
    """Raise RequestRefused where prompt and reply together have more tokens than the context window."""
    try:
        check_fits_window(Prompt(tuple(prompt_ids), reply_tokens), window)
    except ContextTooLong as error:
        raise refuse_length(str(error), "messages") from None
