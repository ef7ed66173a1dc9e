"""A lab model that is asked in this process: its tokens go straight into the engine that the server uses.

Experts, tools and agents of every lesson ask here, tens of thousands of times, so no request takes the way of an HTTP
client; what the server would reply to the same conversation, limit, temperature and seed is the same. Equal requests
are answered once, and replies are kept by content: what was asked once, by whatever lesson, method or seed, is not
computed again. Left out: JSON formats and a choice of tools, which the server constrains.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lib.config import ROOT, ModelSettings
from lib.experiment import seeds
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward
from lib.language_models.batching import Batcher
from lib.language_models.generation import ContextTooLong, Prompt
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.tokenizer import EOS, decode, encode, find_unknown_words
from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply, ToolCall
from lib.llm.reply_store import ReplyStore

VERSION = 1  # of the seeds and limits of requests
REPLIES = ROOT / "data/replies/lab.sqlite"
SWITCH = "BENCH_REPLIES"  # environment variable: off, or the path of another file
_CALL_END = "</call>"
_SHOWN_WORDS = 10  # in an error
_MAX_BATCH = 256  # sequences side by side
_MAX_WAITING = 2**16
_WRITE_EVERY = 512  # replies that are written together; a kill costs their computation only


class LabModel(ChatModel):
    """A lab model that replies to conversations; any number of event loops may ask, one after another or at once.

    Attributes:
        name: As the study calls it.
        served: The model itself, with its card.
        window: Tokens that it reads and writes at most.
        store: Where replies are kept.
    """

    backend = "lab"

    def __init__(
        self,
        served: ServedModel,
        settings: ModelSettings | None = None,
        store: ReplyStore | None = None,
        name: str = "",
    ) -> None:
        """Start the engine.

        Args:
            served: The model.
            settings: Limits and prices; None for greedy replies of checkpoints.LIMIT tokens at the card's price.
            store: Where replies are kept; None for the life of this object.
            name: In the settings; the model's own, if empty.
        """
        self.served = served
        self.settings = settings
        self.name = name or served.name
        self.window = served.forward.window
        self.store = ReplyStore(None) if store is None else store
        self._batcher = Batcher(
            served.forward, chat_template.encode_special(EOS), _MAX_WAITING, _MAX_BATCH
        )
        self._stop_after_call = (tuple(encode(_CALL_END)),)
        self._under_way: dict[tuple[int, bytes], asyncio.Task[bytes]] = {}

    @property
    def price_in(self) -> float:
        """Dollars per token read: of the settings, else of the card."""
        return self.price_per_token if self.settings is None else self.settings.price_in

    @property
    def price_out(self) -> float:
        """Dollars per token written: of the settings, else of the card."""
        return self.price_per_token if self.settings is None else self.settings.price_out

    @property
    def max_tokens(self) -> int:
        """Tokens of a reply at the most."""
        return checkpoints.LIMIT if self.settings is None else self.settings.max_tokens

    @property
    def price_per_token(self) -> float:
        """Dollars per token, read or written, as the card measured.

        Raises:
            ModelError: For a model that was never measured.
        """
        if "dollars_per_1k_tokens" not in self.served.card:
            raise checkpoints.ModelError(
                f"{self.served.name} has no card, hence no price; measure it with `make repro`"
            )
        return self.served.card["dollars_per_1k_tokens"] / 1000

    def with_settings(self, name: str, settings: ModelSettings) -> LabModel:
        """The same engine under another name, with limits and prices; absent prices are the card's.

        Args:
            name: In the settings.
            settings: Of llm.models.

        Returns:
            A model that shares engine and store with this one.
        """
        if settings.price_in is None or settings.price_out is None:
            measured = self.price_per_token
            price_in = measured if settings.price_in is None else settings.price_in
            price_out = measured if settings.price_out is None else settings.price_out
            settings = settings.model_copy(update={"price_in": price_in, "price_out": price_out})
        model = copy.copy(self)
        model.name = name
        model.settings = settings
        return model

    async def reply_to(self, request: ChatRequest) -> Reply:
        settings = self.settings
        temperature = request.temperature
        if temperature is None:
            temperature = settings.temperature if settings else 0.0
        max_tokens = self.max_tokens
        if request.max_tokens is not None:
            max_tokens = min(request.max_tokens, max_tokens) if settings else request.max_tokens
        unknown_words = [
            word
            for message in request.messages
            for word in find_unknown_words(str(message.get("content") or ""))
        ]
        if unknown_words:
            shown = ", ".join(dict.fromkeys(unknown_words[:_SHOWN_WORDS]))
            detail = f"{self.served.name} does not know {shown}; it reads the bench's own language"
            return self._make_reply("", 0, 0, failure=Failure("unknown_words", detail))
        tool_names = [tool["function"]["name"] for tool in request.tools]
        ids = chat_template.encode_conversation(request.messages, tuple(tool_names))
        return await self.continue_tokens(
            ids, max_tokens, temperature, request.seed, has_tools=bool(tool_names)
        )

    async def continue_tokens(
        self,
        ids: Sequence[int],
        max_tokens: int,
        temperature: float,
        seed: int,
        has_tools: bool = False,
    ) -> Reply:
        """The next turn of a conversation in tokens.

        Args:
            ids: Tokens up to where the assistant is to speak.
            max_tokens: Of the reply.
            temperature: 0 is greedy.
            seed: Of its random numbers.
            has_tools: Whether it may call a tool, which ends the turn.

        Returns:
            The reply; a tool call stands in its text too, as the model wrote it.
        """
        stops = self._stop_after_call if has_tools else ()
        fingerprint = self.served.fingerprint
        key = compute_reply_key(fingerprint, ids, max_tokens, temperature, seed, stops)
        content = self.store.get(key)
        if content is None:
            content = await self._generate_once(key, ids, max_tokens, temperature, seed, stops)
        reply_ids, finish_reason = json.loads(content)
        if finish_reason == "context_too_long":
            detail = f"{len(ids)} tokens and a limit of {max_tokens} in a window of {self.window}"
            return self._make_reply("", 0, 0, failure=Failure("context_too_long", detail))

        text = decode(reply_ids)
        call = chat_template.parse_tool_call(text) if has_tools else None
        tool_calls = (ToolCall("", *call),) if call else ()
        failure = None
        if finish_reason == "length":
            failure = Failure("truncated", f"the reply reached its limit of {max_tokens} tokens")
        elif not text.strip():
            failure = Failure("empty", "neither text nor a tool call")
        return self._make_reply(
            text,
            len(ids),
            len(reply_ids),
            tool_calls=tool_calls,
            finish_reason="tool_calls" if call else finish_reason,
            message={"role": "assistant", "content": text},
            failure=failure,
        )

    def _make_reply(self, text: str, tokens_in: int, tokens_out: int, **fields: Any) -> Reply:
        cost_usd, kwh = 0.0, 0.0
        if self.settings is not None:
            cost_usd = tokens_in * (self.settings.price_in or 0.0)
            cost_usd += tokens_out * (self.settings.price_out or 0.0)
            kwh = (tokens_in + tokens_out) * self.settings.kwh_per_token
        return Reply(
            text,
            self.name,
            self.backend,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=cost_usd,
            kwh=kwh,
            **fields,
        )

    async def _generate_once(self, key: bytes, *request: Any) -> bytes:
        """Generate a reply; equal requests that come while the first is under way wait for it."""
        task_key = (id(asyncio.get_running_loop()), key)
        if task_key not in self._under_way:
            task = asyncio.ensure_future(self._generate(key, *request))
            self._under_way[task_key] = task
        try:
            return await self._under_way[task_key]
        finally:
            self._under_way.pop(task_key, None)

    async def _generate(
        self,
        key: bytes,
        ids: Sequence[int],
        max_tokens: int,
        temperature: float,
        seed: int,
        stops: tuple[tuple[int, ...], ...],
    ) -> bytes:
        prompt = Prompt(tuple(ids), max_tokens, temperature, seed, stops)
        try:
            ticket = self._batcher.submit([prompt])
        except ContextTooLong:
            return json.dumps([[], "context_too_long"]).encode()
        (generated,) = await ticket.result()
        content = json.dumps([generated.ids, generated.finish], separators=(",", ":")).encode()
        return self.store.put(key, content)

    async def aclose(self) -> None:
        """Write what is to be kept. The engine goes on, for others in this process may ask it."""
        self.store.flush()

    def stop(self) -> None:
        """Write what is to be kept, and end the engine's thread."""
        self.store.flush()
        self._batcher.close()


def compute_reply_key(
    fingerprint: str,
    ids: Iterable[int],
    max_tokens: int,
    temperature: float,
    seed: int,
    stops: object,
) -> bytes:
    """What a reply follows from: weights, tokens, limit, temperature, seed, stops, code and processor class.

    Args:
        fingerprint: Of the weights.
        ids: Tokens of the conversation.
        max_tokens: Of the reply.
        temperature: 0 is greedy.
        seed: Of its random numbers.
        stops: Token sequences that end it.

    Returns:
        20 bytes.
    """
    processor = torch.backends.cpu.get_cpu_capability()
    code = f"{kv_cache_forward.VERSION}.{generation.VERSION}"
    tokens = ",".join(map(str, ids))
    content = (
        f"{fingerprint}/{code}/{processor}/{max_tokens}/{temperature!r}/{seed}/{stops}/{tokens}"
    )
    return hashlib.sha256(content.encode()).digest()[:20]


def derive_request_seed(ids: Sequence[int], key: int) -> int:
    """The seed of a request: equal requests of one key draw the same numbers, others are independent."""
    digest = hashlib.sha256(str(ids).encode()).hexdigest()
    return int(seeds.key("configuration", "say", digest, seed=key) >> 1)


# One engine per model and process -----------------------------------------------------------------


def find_store_path() -> Path | None:
    """Where replies are kept between processes; None where the environment says off."""
    setting = os.environ.get(SWITCH, "").strip()
    if setting.lower() in ("off", "0", "no"):
        return None
    return Path(setting) if setting else REPLIES


@cache
def open_shared_store() -> ReplyStore:
    """The store of this process."""
    store = ReplyStore(find_store_path(), write_every=_WRITE_EVERY, required=False)
    atexit.register(store.close)
    return store


@cache
def load_lab_models(root: str) -> dict[str, LabModel]:
    """The lab models of a folder; they are read once per process, whose threads keep them from one cell to the next."""
    store = open_shared_store()
    served = checkpoints.load_all(root)
    return {name: LabModel(model, store=store) for name, model in served.items()}


def open_lab_model(
    name: str, root: str | Path = checkpoints.MODELS, settings: ModelSettings | None = None
) -> LabModel:
    """A lab model of a folder; its engine runs once per process.

    Args:
        name: Of the model; the study's name for it where `settings` says which model it is.
        root: Folder of the models.
        settings: Limits and prices; None for those of the card.

    Returns:
        The model.

    Raises:
        ModelError: Where there is none of that name.
    """
    models = load_lab_models(str(root))
    model_name = (settings.model if settings else None) or name
    if model_name not in models:
        raise checkpoints.ModelError(
            f"there is no lab model {model_name!r} in {root}; it has {sorted(models)}"
        )
    model = models[model_name]
    if settings is None:
        return model
    return model.with_settings(name, settings)
