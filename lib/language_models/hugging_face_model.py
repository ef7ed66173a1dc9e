"""A chat model in a Hugging Face folder, answered on this machine's CPU or GPU.

    model = HuggingFaceModel("models/Qwen3-0.6B")
    [reply] = model.generate([ChatRequest([{"role": "user", "content": "3 + 4 = ?"}])])

Requests that arrive side by side are answered in batches; every row has its own temperature, seed, limit and stop
strings, and replies the same alone and in a batch, as far as floating point allows. Replies are sampled from
softmax(logits / temperature), whatever top-p or penalty the folder recommends: what a study measures is the model.
Temperature 1 where a request names none; the limit of tokens counts reasoning too.

Left out: grammars (`response_format` is refused), log-probabilities of the reply, adapters, and several devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib.experiment import artifacts, seeds
from lib.language_models import hugging_face_folder
from lib.language_models.batch_worker import BatchWorker
from lib.language_models.batched_sampling import SampledSequence, sample_batch
from lib.language_models.hugging_face_prompts import (
    PromptError,
    PromptRenderer,
    RenderedPrompt,
    select_tools,
)
from lib.language_models.reply_text import ReplyText
from lib.language_models.tool_call_formats import ParsedToolCalls, parse_tool_calls
from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply, ToolCall

KWH_PER_TOKEN = 1.4e-6  # as params.yaml assumes of every model
_BACKEND = "hugging_face"


@dataclass(eq=False)
class _Job:
    """One request on its way to its reply.

    Attributes:
        request: The conversation.
        show_text: Is called with each new piece of the visible text, for streaming; None without streaming.
        future: Gets the reply.
        started: Seconds of the clock at which the request came.
        prompt: The conversation as text and tokens; None until it is rendered.
        sequence: The tokens of the reply so far; None until the prompt is rendered.
        text: The text of the reply so far; None until the prompt is rendered.
    """

    request: ChatRequest
    show_text: Callable[[str], None] | None = None
    future: Future[Reply] = field(default_factory=Future)
    started: float = field(default_factory=time.perf_counter)
    prompt: RenderedPrompt | None = None
    sequence: SampledSequence | None = None
    text: ReplyText | None = None

    def deliver(self, reply: Reply) -> None:
        # Nobody may wait for it any more.
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(reply)


class HuggingFaceModel(ChatModel):
    """A causal language model with a chat template, in a folder.

    Attributes:
        name: The folder's, unless another was chosen.
        backend: "hugging_face".
        window: Tokens that prompt and reply may have together.
        end_token_ids: A reply stops at the first of them.
        card: What card.json in the folder says of the model; {} without one.
        tokenizer: Tokenizer of transformers.
        net: The network, of transformers.
    """

    backend = _BACKEND

    def __init__(
        self,
        folder: str | Path,
        name: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 16,
        max_tokens: int = 1024,
        temperature: float = 1.0,
        price_in: float = 0.0,
        price_out: float = 0.0,
        kwh_per_token: float = KWH_PER_TOKEN,
    ) -> None:
        """
        Args:
            folder: Holds config.json, safetensors, and a tokenizer with a chat template.
            name: In the settings; the folder's name by default.
            device: "auto" (an accelerator if there is one), "cpu", "cuda", "cuda:1" or "mps".
            dtype: "auto" (float32 on a CPU, bfloat16 elsewhere), "float32", "bfloat16" or "float16".
            batch_size: Requests that are answered at once, at the most.
            max_tokens: Tokens of a reply where the request names no limit; less where the window has no room for it.
            temperature: Where the request names none; 0 is greedy.
            price_in: US dollars per token of a prompt.
            price_out: US dollars per token of a reply.
            kwh_per_token: Energy that is assumed per token of prompt and reply.

        Raises:
            ModelFolderError: The folder holds no such model, or the device is not there.
            ValueError: batch_size or max_tokens is below 1.
        """
        if batch_size < 1 or max_tokens < 1:
            raise ValueError(
                f"batch_size and max_tokens must be at least 1, got {batch_size} and {max_tokens}"
            )
        self.folder = Path(folder)
        self.name = name or self.folder.name
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.price_in = price_in
        self.price_out = price_out
        self.kwh_per_token = kwh_per_token

        self.device = hugging_face_folder.choose_device(device)
        chosen_dtype = hugging_face_folder.choose_dtype(dtype, self.device)
        self.tokenizer, self.net = hugging_face_folder.load_folder(
            self.folder, self.device, chosen_dtype
        )
        self.window = hugging_face_folder.read_window(self.net)
        self.end_token_ids = hugging_face_folder.find_end_token_ids(self.tokenizer, self.net)
        card_path = self.folder / "card.json"
        self.card: Mapping[str, Any] = artifacts.read_json(card_path) if card_path.is_file() else {}

        self._prompts = PromptRenderer(self.tokenizer, self.name)
        self._worker = BatchWorker(self._prepare_job, self._answer_batch, batch_size)
        self._open_jobs: set[_Job] = set()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights, config, tokenizer and chat template; takes as long as reading the files."""
        return hugging_face_folder.hash_folder(self.folder)

    def count_prompt_tokens(self, request: ChatRequest) -> int:
        """Count the tokens of a request's prompt.

        Args:
            request: Its messages and tools are read.

        Returns:
            Tokens, those of the chat template included.

        Raises:
            PromptError: The chat template cannot show the conversation.
        """
        return len(self.encode_prompt(request))

    def encode_prompt(self, request: ChatRequest) -> list[int]:
        """Tokenize a request's conversation with the chat template, up to where the reply begins.

        Args:
            request: Its messages and tools are read.

        Returns:
            Token ids.

        Raises:
            PromptError: The chat template cannot show the conversation.
        """
        return list(self._prompts.render(request).ids)

    async def reply_to(self, request: ChatRequest) -> Reply:
        """Reply to one conversation; calls that arrive side by side share a batch.

        Args:
            request: What the model is asked.

        Returns:
            The reply.
        """
        replies = await self.reply_to_all([request])
        return replies[0]

    async def reply_to_all(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Reply to many conversations, in batches of like lengths.

        Args:
            requests: What the model is asked.

        Returns:
            Replies in the order of the requests.
        """
        jobs = [_Job(request) for request in requests]
        self._submit(jobs)
        try:
            return list(await asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs)))
        finally:
            for job in jobs:
                job.future.cancel()  # does nothing to those that are done

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | Reply]:
        """Reply to one conversation piece by piece. Closing the iterator stops the generation at its next token.

        Args:
            request: What the model is asked.

        Yields:
            Pieces of the visible text, as their tokens are drawn; what may become a stop string, a tool call or
            reasoning is held back until it is certain. Together they are the reply's text. Last, the reply.
        """
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        # Called in the worker's thread; None says that the reply is complete.
        def show_text(piece: str | None) -> None:
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed, and with it whoever listened
                job.future.cancel()

        job = _Job(request, show_text)
        job.future.add_done_callback(lambda _: show_text(None))
        self._submit([job])
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield job.future.result()
        finally:
            job.future.cancel()

    async def aclose(self) -> None:
        """Stop what is under way; those who wait for it get a failure. The model may be asked again afterwards."""
        for job in list(self._open_jobs):
            self._fail(job, "connection", f"{self.name} was closed before the reply was whole")
        await asyncio.to_thread(self._worker.join)

    def _submit(self, jobs: Sequence[_Job]) -> None:
        """Hand jobs to the worker's thread, and remember them until they are done, so that `aclose` can end them."""
        for job in jobs:
            self._open_jobs.add(job)
            job.future.add_done_callback(lambda _, job=job: self._open_jobs.discard(job))
        self._worker.submit(jobs)

    # In the worker's thread

    def _prepare_job(self, job: _Job) -> int | None:
        """Prepare a job for a batch: render and tokenize its prompt.

        Args:
            job: A request that waits; it is answered by a failure where it cannot be read.

        Returns:
            Number of tokens of the prompt; None if the job is over already.
        """
        if job.future.done():
            return None
        try:
            return self._start_sequence(job)
        except PromptError as error:
            self._fail(job, "bad_request", str(error))
        except Exception as error:  # what stands in messages and tools is the caller's
            self._fail(job, "bad_request", f"the request cannot be read: {_describe(error)}")
        return None

    def _start_sequence(self, job: _Job) -> int | None:
        """Render and tokenize the prompt of a request, and check that its reply fits into the context window.

        Args:
            job: A request that waits for its reply; gets `prompt`, `text` and `sequence`, or is answered by a failure.

        Returns:
            Number of tokens of the prompt; None if the request cannot be answered.
        """
        request = job.request
        if request.response_format is not None:
            problem = f"{self.name} takes no response_format; ask for JSON in the prompt"
            self._fail(job, "bad_request", problem)
            return None
        prompt = self._prompts.render(request)
        temperature = request.temperature
        if temperature is None:
            temperature = self.temperature

        # A default limit shrinks to the room in the window. A limit that the caller chose is never changed: if it does
        # not fit, the call fails.
        room = self.window - len(prompt.ids)
        limit = (
            min(self.max_tokens, max(room, 1)) if request.max_tokens is None else request.max_tokens
        )
        if limit < 1 or temperature < 0 or not prompt.ids:
            self._fail(
                job,
                "bad_request",
                "a prompt, a limit of at least one token and a temperature of at least 0 are needed, got "
                f"{len(prompt.ids)} tokens, {limit} and {temperature}",
            )
            return None
        if limit > room:
            self._fail(
                job,
                "context_too_long",
                f"the window of {self.name} has {self.window} tokens; the prompt has {len(prompt.ids)} and max_tokens "
                f"is {limit}",
            )
            return None

        job.prompt = prompt
        job.text = ReplyText(
            self.tokenizer, request.stop, bool(select_tools(request)), prompt.opens_in_reasoning
        )
        job.sequence = SampledSequence(
            prompt.ids, limit, temperature, _derive_stream(request, prompt.ids)
        )
        return len(prompt.ids)

    def _answer_batch(self, jobs: Sequence[_Job]) -> None:
        """Generate the replies to a batch of requests.

        Args:
            jobs: Requests whose prompts are ready. Each gets its reply as soon as it is complete, or a failure.
        """
        jobs = [job for job in jobs if not job.future.done()]
        if not jobs:
            return
        jobs_by_sequence = {id(job.sequence): job for job in jobs}
        sequences = [job.sequence for job in jobs]
        try:
            for sequence in sample_batch(self.net, sequences, self.end_token_ids):
                self._take_token(jobs_by_sequence[id(sequence)])
        except torch.OutOfMemoryError:
            problem = (
                f"{self.device} has no memory for {len(jobs)} sequences; use a smaller batch_size"
            )
            for job in jobs:
                self._fail(job, "server_error", problem)
        except Exception as error:
            for job in jobs:
                self._fail(job, "server_error", _describe(error))

    def _take_token(self, job: _Job) -> None:
        """Process the newest token of a sequence: stop strings, streaming, and delivery of a complete reply.

        Args:
            job: The request, with its sequence and the text so far.
        """
        if job.future.done():  # nobody waits for it any more
            job.sequence.finish = "dropped"
            return
        if job.sequence.finish != "stop":  # an end token is no text
            job.text.add_token(job.sequence.ids[-1])
        if job.text.stopped:
            job.sequence.finish = "stop"
        if job.show_text is not None and (piece := job.text.read_new_visible()):
            job.show_text(piece)
        # What was held back is certain now: it was no tool call and no stop string after all.
        if job.sequence.finish:
            reply = self._make_reply(job)
            remaining = reply.text[job.text.num_shown :]
            if job.show_text is not None and remaining:
                job.show_text(remaining)
            job.deliver(reply)

    def _make_reply(self, job: _Job) -> Reply:
        """Turn a finished sequence into a reply: text, tool calls, failure, tokens and cost."""
        content = read_reply(job.text, job.request, job.sequence.finish, job.sequence.limit)
        return Reply(
            **content, **self._account(len(job.prompt.ids), len(job.sequence.ids), job.started)
        )

    def _fail(self, job: _Job, kind: str, detail: str) -> None:
        """Answer a job by a reply without text, whose failure has a kind, such as "bad_request", and a reason."""
        reply = Reply(
            text="",
            finish_reason="error",
            failure=Failure(kind, detail),
            **self._account(0, 0, job.started),
        )
        job.deliver(reply)

    def _account(self, tokens_in: int, tokens_out: int, started: float) -> dict[str, Any]:
        """Compute the fields of a reply that say which model gave it, and its tokens, cost (USD, kWh) and seconds."""
        return {
            "model": self.name,
            "backend": self.backend,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost_usd": tokens_in * self.price_in + tokens_out * self.price_out,
            "kwh": (tokens_in + tokens_out) * self.kwh_per_token,
            "seconds": time.perf_counter() - started,
        }


def _derive_stream(request: ChatRequest, prompt_ids: Sequence[int]) -> np.uint64:
    """Derive the key of a reply's random stream from its prompt, seed and sample number.

    The prompt is part of it: with the seed alone, replies to all questions of a study would share their numbers, and
    the error of their mean would be larger than the spread of single replies says.
    """
    prompt_digest = sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).hexdigest()
    return seeds.key("generation", prompt_digest, request.sample, seed=request.seed)


def read_reply(text: ReplyText, request: ChatRequest, finish: str, limit: int) -> dict[str, Any]:
    """Read what a model wrote: text for the reader, tool calls, and why the reply cannot be used.

    Args:
        text: All tokens of the reply.
        request: The conversation, with the tools that may be called.
        finish: Why the reply ended: "stop" or "length".
        limit: Tokens that it could have at the most.

    Returns:
        The fields of `Reply` that do not depend on who wrote it.
    """
    text.finish()
    parsed = ParsedToolCalls(text.visible)
    tools = select_tools(request)
    if tools:
        names = [tool["function"]["name"] for tool in tools]
        parsed = parse_tool_calls(text.visible, names)

    # Ids are new in their conversation. Mistral's templates want nine letters and digits.
    num_earlier = sum(len(message.get("tool_calls") or ()) for message in request.messages)
    calls = tuple(
        ToolCall(f"call{num_earlier + index:05d}", name, arguments)
        for index, (name, arguments) in enumerate(parsed.calls)
    )
    return {
        "text": parsed.text,
        "tool_calls": calls,
        "finish_reason": "tool_calls" if calls and finish == "stop" else finish,
        "tokens_reasoning": text.num_reasoning_tokens,
        "message": _make_message(parsed.text, calls, text.reasoning),
        "failure": _find_failure(text, request, finish, limit, parsed),
    }


def _make_message(text: str, calls: Sequence[ToolCall], reasoning: str) -> dict[str, Any]:
    """Makes the reply a message of OpenAI's API, ready to be appended to the conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    return message


def _find_failure(
    text: ReplyText, request: ChatRequest, finish: str, limit: int, parsed: ParsedToolCalls
) -> Failure | None:
    """Find out why a complete reply cannot be used: it is truncated, malformed or empty; None for a usable reply."""
    if finish == "length":
        num_reasoning = text.num_reasoning_tokens
        return Failure(
            "truncated",
            f"cut off at {limit} tokens, {num_reasoning} of them reasoning; use a larger max_tokens",
        )
    if parsed.error:
        return Failure("malformed", parsed.error)
    must_call = request.tool_choice not in (None, "auto", "none")
    if must_call and not parsed.calls:
        return Failure("malformed", "the reply calls no tool, though tool_choice requires it")
    if not parsed.text.strip() and not parsed.calls:
        return Failure("empty", "the reply ended without text and without a tool call")
    return None


def _describe(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
