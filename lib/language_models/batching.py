"""One worker thread per model that steps all of its sequences; around it, futures of any event loop.

A step is a millisecond of arithmetic, and the more sequences share it the less each one costs. So
requests do not run beside each other but join what runs, at the next step. Nothing here polls: the worker
sleeps until something arrives, and tells each event loop once a step what its callers wait for.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lib.language_models.generation import Generation, Prompt, Running, check
from lib.language_models.kv_cache_forward import Forward

AT_ONCE = 128  # sequences side by side
WAITING = 256  # requests that may wait for a place

Until = Callable[[list[int]], bool]
_END = object()


class Busy(RuntimeError):
    """As many requests wait as may; ask again later."""


class Closed(RuntimeError):
    """The batcher takes nothing any more, or was closed before the reply was there."""


class Left(RuntimeError):
    """The one who asked went away."""


class Failed(RuntimeError):
    """The worker met an error while this request was under way; its cause is the error."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the index-th prompt of a request; finish: "" while it goes on."""

    index: int
    id: int
    logprob: float
    finish: str


class Ticket:
    """A request under way. `async for tokens in ticket` gives the tokens of each step, `result` the whole."""

    def __init__(
        self, batcher: Batcher, prompts: Sequence[Prompt], until: Until | None, each: bool
    ) -> None:
        self.batcher, self.prompts, self.until, self.each = batcher, list(prompts), until, each
        self.generations: list[Generation] = []
        self.open = list(range(len(self.prompts)))  # those that are not finished
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.over = False

    async def __aiter__(self) -> AsyncIterator[list[Token]]:
        while (event := await self.events.get()) is not _END:
            if isinstance(event, Exception):
                raise event
            yield event

    async def result(self) -> list[Generation]:
        """The generations, in the order of the prompts. Raises Failed, Closed, Left."""
        async for _ in self:
            pass
        return self.generations

    def cancel(self) -> None:
        """Leave the batch; whoever still waits for this ticket gets `Left`. Once it is over, nothing."""
        if not self.over:
            self.deliver(Left("the request was cancelled"))
            self.batcher._leave(self)

    def deliver(self, event: Any) -> None:
        """On the event loop: what the worker, or the one who cancels, has to say."""
        if not self.over:
            self.over = event is _END or isinstance(event, Exception)
            self.events.put_nowait(event)

    def advance(self) -> list[Any]:
        """On the worker, after a step: what there is to say about it."""
        tokens = []
        for index in self.open:
            generation = self.generations[index]
            if self.until is not None and self.until(generation.ids):
                generation.finish = "stop"  # so it leaves the batch
            if self.each:
                tokens.append(
                    Token(index, generation.ids[-1], generation.logprobs[-1], generation.finish)
                )
        self.open = [index for index in self.open if not self.generations[index].finish]
        return [*([tokens] if tokens else []), *([] if self.open else [_END])]


class Batcher:
    """The queue of one model and the thread that works it off. Its methods are for event loops, any number of them.

    end: the token that ends a turn; limit: requests that may wait; at_once: sequences side by side.
    """

    def __init__(
        self, forward: Forward, end: int, limit: int = WAITING, at_once: int = AT_ONCE
    ) -> None:
        self.forward, self.end, self.limit, self.at_once = forward, end, limit, at_once
        self._running = Running(forward, end)
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._left: list[Ticket] = []
        self._under_way: list[Ticket] = []  # the worker's own
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(
        self, prompts: Sequence[Prompt], until: Until | None = None, each: bool = False
    ) -> Ticket:
        """Queue sequences that are to start together. Call it on the event loop that will wait for them.

        until(ids): called on the worker after every token, True ends that sequence; each: tell every token.
        Raises Busy, Closed, ContextTooLong, and ValueError without prompts.
        """
        if not prompts:
            raise ValueError("a request needs at least one prompt")
        for prompt in prompts:
            check(prompt, self.forward.window)
        ticket = Ticket(self, prompts, until, each)
        self._enter(ticket)
        return ticket

    def close(self) -> None:
        """End the worker; whoever still waits gets `Closed`. Blocks for at most a step."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self.close)

    async def aclose(self) -> None:
        """`close`, without holding up the event loop."""
        await asyncio.to_thread(self.close)

    def _enter(self, ticket: Ticket) -> None:
        with self._changed:
            if self._closed:
                raise Closed("the batcher is closed")
            if len(self._waiting) >= self.limit:
                raise Busy(
                    f"{self.limit} requests wait already, which is as many as may; ask again later"
                )
            self._waiting.append(ticket)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # no step may be under way while Python ends
            self._changed.notify()

    def _leave(self, ticket: Ticket) -> None:
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            else:
                self._left.append(ticket)
                self._changed.notify()

    # The worker ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._under_way or self._waiting or self._left):
                    self._changed.wait()
                if self._closed:
                    break
                left, self._left = self._left, []
                self._drop(left)
                arrived = self._admit()
            self._tell(self._turn(arrived))
        everyone = [*self._under_way, *self._waiting]
        self._tell(
            [
                (ticket, Closed("the batcher was closed before the reply was there"))
                for ticket in everyone
            ]
        )

    def _admit(self) -> list[Ticket]:
        """Those at the head of the queue for whom there is room; a request alone always has it."""
        arrived, free = [], self.at_once - len(self._running)
        while self._waiting and (
            len(self._waiting[0].prompts) <= free or not (arrived or self._under_way)
        ):
            arrived.append(self._waiting.popleft())
            free -= len(arrived[-1].prompts)
        return arrived

    def _turn(self, arrived: list[Ticket]) -> list[tuple[Ticket, Any]]:
        """One step, and what there is to say to whom; an error reaches all who are under way, and ends with them."""
        said: list[tuple[Ticket, Any]] = []
        try:
            self._under_way += arrived
            self._add(arrived)
            self._running.step()
            said += [(ticket, event) for ticket in self._under_way for event in ticket.advance()]
            self._under_way = [ticket for ticket in self._under_way if ticket.open]
        except Exception as error:
            said += [(ticket, _failed(error)) for ticket in self._under_way]
            self._under_way, self._running = [], Running(self.forward, self.end)
        return said

    def _add(self, tickets: list[Ticket]) -> None:
        if tickets:
            generations = iter(
                self._running.add([prompt for ticket in tickets for prompt in ticket.prompts])
            )
            for ticket in tickets:
                ticket.generations = [next(generations) for _ in ticket.prompts]

    def _drop(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            for generation in ticket.generations:
                self._running.drop(generation)
            if ticket in self._under_way:  # it may have finished in between
                self._under_way.remove(ticket)

    def _tell(self, said: list[tuple[Ticket, Any]]) -> None:
        """Every event loop is woken once; those whose loop is gone wait no more."""
        by_loop = defaultdict(list)
        for ticket, event in said:
            by_loop[ticket.loop].append((ticket, event))
        for loop, events in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, events)
            except RuntimeError:  # the loop is closed
                self._drop([ticket for ticket, _ in events])


def _deliver(events: list[tuple[Ticket, Any]]) -> None:
    for ticket, event in events:
        ticket.deliver(event)


def _failed(error: Exception) -> Failed:
    failed = Failed(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
