"""One worker thread per model that steps all of its sequences; around it, requests of any event loop.

A step is a millisecond of arithmetic, and the more sequences share it the less each one costs. So requests do not run
beside each other but join the running batch at the next step. Nothing here polls: the worker sleeps until something
arrives, and wakes each event loop once a step with what its requests wait for.

    batcher = Batcher(Forward(model), end_token)
    generations = await batcher.submit([Prompt(ids, limit=20)]).result()

Left out: text, tool calls and OpenAI's API (`lib.language_models.serving`).
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from lib.language_models.generation import (
    Generation,
    GenerationBatch,
    Prompt,
    check_fits_window,
)
from lib.language_models.kv_cache_forward import Forward

MAX_BATCH_SIZE = 128  # sequences side by side
MAX_QUEUE_LENGTH = 256  # requests that may wait to join the batch

StopCondition = Callable[[list[int]], bool]


class QueueFull(RuntimeError):
    """As many requests wait as may; ask again later."""


class BatcherClosed(RuntimeError):
    """The batcher takes no requests any more, or was closed before the reply was there."""


class RequestCancelled(RuntimeError):
    """The request was cancelled while something still waited for it."""


class GenerationFailed(RuntimeError):
    """The worker met an error while this request was under way; its cause is the error."""


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """One token of a request, for streaming.

    Attributes:
        index: Index of the prompt in the request.
        id: The token.
        logprob: Its log-probability at temperature 1, in nats.
        finish: "stop" or "length" where it is the sequence's last, else "".
    """

    index: int
    id: int
    logprob: float
    finish: str


@dataclass(frozen=True)
class _Finished:
    """The last event of a request that ended as it should."""


# What the worker tells a request after a step.
_Event = list[GeneratedToken] | _Finished | Exception


class GenerationRequest:
    """A request under way. `async for tokens in request` gives the tokens of each step, `result` all of them.

    Attributes:
        prompts: What its sequences start from.
        generations: One a prompt, filled by the worker; empty while the request waits in the queue.
        loop: The event loop that waits for it.
    """

    def __init__(
        self,
        batcher: Batcher,
        prompts: Sequence[Prompt],
        should_stop: StopCondition | None,
        stream_tokens: bool,
    ) -> None:
        """Made by `Batcher.submit`."""
        self.batcher = batcher
        self.prompts = list(prompts)
        self.should_stop = should_stop
        self.stream_tokens = stream_tokens
        self.generations: list[Generation] = []
        self.unfinished = list(range(len(self.prompts)))  # indices of prompts
        self.loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._is_over = False

    async def __aiter__(self) -> AsyncIterator[list[GeneratedToken]]:
        while True:
            event = await self._events.get()
            if isinstance(event, _Finished):
                return
            if isinstance(event, Exception):
                raise event
            yield event

    async def result(self) -> list[Generation]:
        """Wait until every sequence is finished.

        Returns:
            The generations, in the order of the prompts.

        Raises:
            GenerationFailed, BatcherClosed, RequestCancelled: Where they never will be.
        """
        async for _ in self:
            pass
        return self.generations

    def cancel(self) -> None:
        """Leave the batch. What still waits for this request gets `RequestCancelled`; once it is over, nothing."""
        if not self._is_over:
            self.deliver(RequestCancelled("the request was cancelled"))
            self.batcher._remove(self)

    def deliver(self, event: _Event) -> None:
        """Pass an event on to what waits for this request. To be called on its event loop."""
        # A cancelled request may still be in the step that is under way; its last event comes too late.
        if not self._is_over:
            self._is_over = isinstance(event, _Finished | Exception)
            self._events.put_nowait(event)

    def collect_events(self) -> list[_Event]:
        """Collects the new tokens of a request after a step, and whether it is finished; called on the worker."""
        tokens = []
        for index in self.unfinished:
            generation = self.generations[index]
            if self.should_stop is not None and self.should_stop(generation.ids):
                generation.finish = "stop"  # so it leaves the batch
            if self.stream_tokens:
                token_id, logprob = generation.ids[-1], generation.logprobs[-1]
                tokens.append(GeneratedToken(index, token_id, logprob, generation.finish))
        self.unfinished = [i for i in self.unfinished if not self.generations[i].finish]

        events: list[_Event] = []
        if tokens:
            events.append(tokens)
        if not self.unfinished:
            events.append(_Finished())
        return events


class Batcher:
    """The queue of one model and the thread that works it off. Its methods are for event loops, any number of
    them."""

    def __init__(
        self,
        forward: Forward,
        end_token: int,
        max_queue_length: int = MAX_QUEUE_LENGTH,
        max_batch_size: int = MAX_BATCH_SIZE,
    ) -> None:
        """
        Args:
            forward: The model.
            end_token: The token that ends a turn.
            max_queue_length: Requests that may wait.
            max_batch_size: Sequences side by side; a request with more prompts runs alone.
        """
        self.forward = forward
        self.end_token = end_token
        self.max_queue_length = max_queue_length
        self.max_batch_size = max_batch_size
        # The condition guards the queue, the cancelled requests and the flag.
        self._changed = threading.Condition()
        self._queue: deque[GenerationRequest] = deque()
        self._cancelled: list[GenerationRequest] = []
        self._is_closed = False
        # These belong to the worker; nothing else changes them.
        self._batch = GenerationBatch(forward, end_token)
        self._active: list[GenerationRequest] = []
        self._thread: threading.Thread | None = None

    def submit(
        self,
        prompts: Sequence[Prompt],
        should_stop: StopCondition | None = None,
        stream_tokens: bool = False,
    ) -> GenerationRequest:
        """Queue sequences that are to start together. To be called on the event loop that will wait for them.

        Args:
            prompts: At least one.
            should_stop: should_stop(ids) is called on the worker after every token; True ends that sequence.
            stream_tokens: Whether the request gives every token as it comes.

        Returns:
            The request, to be awaited.

        Raises:
            QueueFull: Where as many requests wait as may.
            BatcherClosed: After `close`.
            ContextTooLong: For a prompt that does not fit the window.
            ValueError: Without prompts, and for an empty one.
        """
        if not prompts:
            raise ValueError("a request needs at least one prompt")
        for prompt in prompts:
            check_fits_window(prompt, self.forward.window)
        request = GenerationRequest(self, prompts, should_stop, stream_tokens)
        with self._changed:
            if self._is_closed:
                raise BatcherClosed("the batcher is closed")
            if len(self._queue) >= self.max_queue_length:
                raise QueueFull(
                    f"{self.max_queue_length} requests wait already, which is as many as may; ask again later"
                )
            self._queue.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # no step may be under way while Python ends
            self._changed.notify()
        return request

    def close(self) -> None:
        """End the worker; what still waits gets `BatcherClosed`. Blocks for at most a step."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self.close)

    async def aclose(self) -> None:
        """`close`, without holding up the event loop."""
        await asyncio.to_thread(self.close)

    def _remove(self, request: GenerationRequest) -> None:
        """Forget a cancelled request: at once in the queue, at the next step in the batch."""
        with self._changed:
            if request in self._queue:
                self._queue.remove(request)
            else:
                self._cancelled.append(request)
                self._changed.notify()

    # The worker ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Steps the batch until the batcher is closed, and admits waiting requests; runs in the worker thread."""
        while True:
            with self._changed:
                while not (self._is_closed or self._active or self._queue or self._cancelled):
                    self._changed.wait()
                if self._is_closed:
                    break
                # Cancelled requests make room before others are let in.
                cancelled = self._cancelled
                self._cancelled = []
                self._drop(cancelled)
                admitted = self._admit()
            self._send(self._step(admitted))

        # Nothing steps any more, so these would wait for ever.
        message = "the batcher was closed before the reply was there"
        remaining = [*self._active, *self._queue]
        self._send([(request, BatcherClosed(message)) for request in remaining])

    def _admit(self) -> list[GenerationRequest]:
        """Take requests from the head of the queue while there is room; one that would run alone always has it."""
        admitted = []
        num_free = self.max_batch_size - len(self._batch)
        while self._queue:
            num_prompts = len(self._queue[0].prompts)
            runs_alone = not (admitted or self._active)
            if num_prompts > num_free and not runs_alone:
                break
            admitted.append(self._queue.popleft())
            num_free -= num_prompts
        return admitted

    def _step(self, admitted: list[GenerationRequest]) -> list[tuple[GenerationRequest, _Event]]:
        """Generates one token for every sequence of the batch.

        An error reaches every request that is under way, and ends with them: the next ones get a new batch.

        Args:
            admitted: Requests that join before the step.

        Returns:
            What there is to tell to which request.
        """
        events: list[tuple[GenerationRequest, _Event]] = []
        try:
            self._active += admitted
            if admitted:
                prompts = [prompt for request in admitted for prompt in request.prompts]
                generations = iter(self._batch.add(prompts))
                for request in admitted:
                    request.generations = [next(generations) for _ in request.prompts]
            self._batch.step()
            for request in self._active:
                events += [(request, event) for event in request.collect_events()]
            self._active = [request for request in self._active if request.unfinished]
        except Exception as error:
            # Every request raises an exception of its own, so that tracebacks do not grow into each other.
            for request in self._active:
                failure = GenerationFailed(f"{type(error).__name__}: {error}")
                failure.__cause__ = error
                events.append((request, failure))
            self._active = []
            self._batch = GenerationBatch(self.forward, self.end_token)
        return events

    def _drop(self, requests: list[GenerationRequest]) -> None:
        for request in requests:
            for generation in request.generations:
                self._batch.drop(generation)
            if request in self._active:  # it may have finished in between
                self._active.remove(request)

    def _send(self, events: list[tuple[GenerationRequest, _Event]]) -> None:
        """Wake every event loop once; requests whose loop is closed are dropped."""
        events_by_loop = defaultdict(list)
        for request, event in events:
            events_by_loop[request.loop].append((request, event))
        for loop, loop_events in events_by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, loop_events)
            except RuntimeError:  # the loop is closed
                self._drop([request for request, _ in loop_events])


def _deliver(events: list[tuple[GenerationRequest, _Event]]) -> None:
    for request, event in events:
        request.deliver(event)
