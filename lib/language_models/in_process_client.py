"""The way to ask a lab model in this process: its tokens go straight into the engine that the server uses.

Experts, tools and agents of every lesson ask here, tens of thousands of times, so no request takes the way of an HTTP
client; what the server would say to the same conversation, limit, temperature and seed is the same. Equal requests
are answered once, and what was ever answered is remembered (`lib.language_models.reply_cache`).
"""

import asyncio
import atexit
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lib.experiment import seeds
from lib.language_models import chat_template, checkpoints, reply_cache
from lib.language_models.batching import Batcher
from lib.language_models.generation import ContextTooLong, Prompt
from lib.language_models.reply_cache import Memory
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.tokenizer import EOS, decode, encode

VERSION = 1  # of the seeds and limits of requests
_CALLED = "</call>"
_AT_ONCE = 256  # sequences side by side
_WAITING = 2**16


@dataclass(frozen=True)
class Said:
    """One turn of a model. call: the tool's name and what it is called with; cut: whether the limit ended it;
    failure: why there is nothing, as the client's errors name it."""

    text: str
    tokens_in: int
    tokens_out: int
    call: tuple[str, str] | None = None
    cut: bool = False
    failure: str = ""


class Asker:
    """A lab model that answers conversations; any number of event loops, one after another or at once.

    kept: where replies are remembered; None for no longer than this object lives.
    """

    def __init__(self, model: ServedModel, kept: Memory | None = None) -> None:
        self.model, self.name, self.window = model, model.name, model.forward.window
        self.batcher = Batcher(model.forward, chat_template.token(EOS), _WAITING, _AT_ONCE)
        self.memory = kept if kept is not None else Memory(None)
        self._stop = (tuple(encode(_CALLED)),)
        self._asking: dict[tuple[int, bytes], asyncio.Task[bytes]] = {}

    @property
    def price(self) -> float:
        """Dollars per token, read or written. Raises ModelError for a model that was never measured."""
        if "dollars_per_1k_tokens" not in self.model.card:
            raise checkpoints.ModelError(
                f"{self.name} has no card, hence no price; measure it with `make repro`"
            )
        return self.model.card["dollars_per_1k_tokens"] / 1000

    async def say(
        self,
        messages: Sequence[Mapping[str, Any]],
        limit: int,
        temperature: float,
        seed: int,
        tools: Sequence[str] = (),
    ) -> Said:
        """The next turn. limit: tokens at the most; seed: of its draws; tools: names on offer."""
        return await self.go_on(
            chat_template.conversation(messages, tuple(tools)),
            limit,
            temperature,
            seed,
            bool(tools),
        )

    async def go_on(
        self, ids: Sequence[int], limit: int, temperature: float, seed: int, tools: bool = False
    ) -> Said:
        """The next turn of a conversation in tokens; tools: whether it may call one, which ends the turn."""
        stops = self._stop * tools
        asked = reply_cache.key(self.model.fingerprint, ids, limit, temperature, seed, stops)
        known = self.memory.get([asked]).get(asked) or await self._once(
            asked, ids, limit, temperature, seed, stops
        )
        written, finish = json.loads(known)
        if finish == "context_too_long":
            return Said("", 0, 0, failure=finish)
        text = decode(written)
        call = chat_template.called(text) if tools else None
        return Said(text, len(ids), len(written), call, finish == "length")

    async def _once(self, asked: bytes, *request: Any) -> bytes:
        """Equal requests that come while the first is under way wait for it."""
        mine = id(asyncio.get_running_loop()), asked
        if mine not in self._asking:
            self._asking[mine] = asyncio.ensure_future(self._generate(asked, *request))
        try:
            return await self._asking[mine]
        finally:
            self._asking.pop(mine, None)

    async def _generate(self, asked: bytes, ids, limit, temperature, seed, stops) -> bytes:
        try:
            ticket = self.batcher.submit([Prompt(tuple(ids), limit, temperature, seed, stops)])
        except ContextTooLong:
            return json.dumps([[], "context_too_long"]).encode()
        (written,) = await ticket.result()
        said = json.dumps([written.ids, written.finish], separators=(",", ":")).encode()
        self.memory.put({asked: said})
        return said

    def close(self) -> None:
        """End the engine's thread, and write what is to be remembered."""
        self.memory.flush()
        self.batcher.close()


@cache
def store() -> Memory:
    """The store of this process."""
    kept = Memory(reply_cache.place())
    atexit.register(kept.close)
    return kept


@cache
def _models(root: str) -> dict[str, Asker]:
    """Lab models are read once per process, whose threads keep them from one cell to the next."""
    return {name: Asker(model, store()) for name, model in checkpoints.load_all(root).items()}


def asker(name: str, root: str | Path = checkpoints.MODELS) -> Asker:
    """A lab model under `root`, one per process. Raises ModelError where there is none of that name."""
    known = _models(str(root))
    if name not in known:
        raise checkpoints.ModelError(
            f"there is no lab model {name!r} in {root}; it has {sorted(known)}"
        )
    return known[name]


def request_seed(ids: Sequence[int], key: int) -> int:
    """The seed of a request: equal requests of one key draw the same numbers, others are independent."""
    return int(
        seeds.key("configuration", "say", hashlib.sha256(str(ids).encode()).hexdigest(), seed=key)
        >> 1
    )
