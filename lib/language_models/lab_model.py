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
    """A lab model, a small transformer that was trained here, as a chat model that replies to conversations.

    Any number of event loops may ask, one after another or at once; a thread of its own generates their replies in
    batches.

    Attributes:
        name: The name in `llm.models` of params.yaml; the weights may have another.
        served: The weights, with the model's card (measured accuracy and price).
        window: Context length: tokens of prompt and reply together, at most.
        store: Cache of replies, by a hash of all that decides a reply.
    """

    backend = "lab"

    def __init__(
        self,
        served: ServedModel,
        settings: ModelSettings | None = None,
        store: ReplyStore | None = None,
        name: str = "",
    ) -> None:
        """Start the thread that generates.

        Args:
            served: The loaded weights.
            settings: Limits and prices; None for greedy replies of checkpoints.LIMIT tokens at the card's price.
            store: Cache of replies; None for one in memory that ends with this object.
            name: The name in the settings; "" takes that of the weights.
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
        """Return a copy under another name with other limits and prices, which shares weights and generating thread.

        Args:
            name: The name in the settings, `llm.models` of params.yaml.
            settings: Limit of tokens, temperature, and US dollars per token; absent prices are taken from the model's
                card, as they were measured.

        Returns:
            The copy; replies that either computes are in the cache of both.

        Raises:
            ModelError: Where a price is absent and the model was never measured.
        """
        if settings.price_in is None or settings.price_out is None:
            measured_price = self.price_per_token
            price_in = measured_price if settings.price_in is None else settings.price_in
            price_out = measured_price if settings.price_out is None else settings.price_out
            settings = settings.model_copy(update={"price_in": price_in, "price_out": price_out})
        model = copy.copy(self)  # shallow: thread and cache are the same objects
        model.name = name
        model.settings = settings
        return model

    async def reply_to(self, request: ChatRequest) -> Reply:
        """Reply to a conversation, from the cache or by generating.

        Args:
            request: Messages and tools; its temperature and limit of tokens go before those of the settings.

        Returns:
            The reply with text, tool calls, tokens and cost; with a failure where the conversation has words outside
            the model's vocabulary, or does not fit its window.
        """
        settings = self.settings
        temperature = request.temperature
        if temperature is None:
            temperature = settings.temperature if settings else 0.0
        # The limit of the settings is a ceiling; the default limit without settings is not.
        max_tokens = self.max_tokens
        if request.max_tokens is not None:
            max_tokens = min(request.max_tokens, max_tokens) if settings else request.max_tokens

        unknown_words: list[str] = []
        for message in request.messages:
            content = message.get("content") or ""
            unknown_words += find_unknown_words(str(content))
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
        """Generate the assistant's next turn of a tokenized conversation, or take it from the cache.

        Args:
            ids: Token ids of the conversation, up to where the assistant is to reply.
            max_tokens: Limit of the reply's tokens.
            temperature: Temperature of sampling; 0 is greedy.
            seed: Seed of the random numbers that sampling draws.
            has_tools: Whether the model may call a tool, which ends the turn.

        Returns:
            The reply; a tool call stands in its text too, as the model wrote it. With a failure where it reached the
            limit, is empty, or prompt and limit do not fit the context window.
        """
        stops = self._stop_after_call if has_tools else ()
        # The cached content is JSON: [token ids of the reply, why it ended].
        fingerprint = self.served.fingerprint
        key = compute_reply_key(fingerprint, ids, max_tokens, temperature, seed, stops)
        content = self.store.get(key)
        if content is None:
            prompt = Prompt(tuple(ids), max_tokens, temperature, seed, stops)
            content = await self._generate_once(key, prompt)
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
        """Make a reply with its cost in US dollars and kWh; both are 0 for a model without settings.

        Args:
            text: What the model wrote.
            tokens_in: Number of tokens of the conversation.
            tokens_out: Number of tokens of the reply.
            fields: Further fields of Reply, such as its failure.

        Returns:
            The reply.
        """
        cost_usd = 0.0
        kwh = 0.0
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

    async def _generate_once(self, key: bytes, prompt: Prompt) -> bytes:
        """Generate the reply to a prompt; equal prompts that arrive while it is generated wait for the same reply.

        Args:
            key: Hash of all that decides the reply, see `compute_reply_key`.
            prompt: Token ids, limit, temperature, seed and stops.

        Returns:
            JSON: [token ids of the reply, why it ended].
        """
        # A task belongs to one event loop, so only requests of the same loop can share it.
        task_key = (id(asyncio.get_running_loop()), key)
        if task_key not in self._under_way:
            task = asyncio.ensure_future(self._generate_and_store(key, prompt))
            self._under_way[task_key] = task
        try:
            return await self._under_way[task_key]
        finally:
            self._under_way.pop(task_key, None)

    async def _generate_and_store(self, key: bytes, prompt: Prompt) -> bytes:
        """Generate the reply to a prompt in the model's thread, and put it into the cache.

        Args:
            key: Key of the reply in the cache.
            prompt: Token ids, limit, temperature, seed and stops.

        Returns:
            JSON: [token ids of the reply, why it ended]; nothing is cached where the prompt exceeds the window.
        """
        try:
            generation_request = self._batcher.submit([prompt])
        except ContextTooLong:
            return json.dumps([[], "context_too_long"]).encode()
        (generation,) = await generation_request.result()  # one prompt, one generation
        content = json.dumps([generation.ids, generation.finish], separators=(",", ":")).encode()
        return self.store.put(key, content)

    async def aclose(self) -> None:
        """Write cached replies to disk. The generating thread goes on, for others in this process may ask it."""
        self.store.flush()

    def stop(self) -> None:
        """Write cached replies to disk, and end the generating thread."""
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
    """Hash all that a model's reply depends on, as its key in the cache of replies.

    Args:
        fingerprint: Hash of the weights.
        ids: Token ids of the conversation.
        max_tokens: Limit of the reply's tokens.
        temperature: Temperature of sampling; 0 is greedy.
        seed: Seed of the random numbers that sampling draws.
        stops: Token sequences that end the reply.

    Returns:
        20 bytes. Versions of the code and the processor's instruction set are part of the hash, too: sums in another
        order can change a reply.
    """
    processor = torch.backends.cpu.get_cpu_capability()
    code = f"{kv_cache_forward.VERSION}.{generation.VERSION}"
    tokens = ",".join(map(str, ids))
    content = (
        f"{fingerprint}/{code}/{processor}/{max_tokens}/{temperature!r}/{seed}/{stops}/{tokens}"
    )
    return hashlib.sha256(content.encode()).digest()[:20]


def derive_request_seed(ids: Sequence[int], key: int) -> int:
    """Derive the random seed of a request from its tokens: other tokens draw independent numbers.

    Args:
        ids: Token ids of the conversation.
        key: Seed of the run.

    Returns:
        A whole number below 2**63; the same for the same tokens and key.
    """
    digest = hashlib.sha256(str(ids).encode()).hexdigest()
    return int(seeds.key("configuration", "say", digest, seed=key) >> 1)


# One engine per model and process -----------------------------------------------------------------


def find_store_path() -> Path | None:
    """Find the file that caches replies between processes; None if the environment variable BENCH_REPLIES is off."""
    setting = os.environ.get(SWITCH, "").strip()
    if setting.lower() in ("off", "0", "no"):
        return None
    return Path(setting) if setting else REPLIES


@cache
def open_shared_store() -> ReplyStore:
    """Open this process's cache of replies: once, on the first call; it is written when the process ends."""
    store = ReplyStore(find_store_path(), write_every=_WRITE_EVERY, required=False)
    atexit.register(store.close)
    return store


@cache
def load_lab_models(root: str) -> dict[str, LabModel]:
    """Load the lab models of a folder (small transformers that were trained here) as chat models, by name.

    Later calls in this process return the same objects, so weights are read once, and each model has one thread that
    generates.
    """
    store = open_shared_store()
    served = checkpoints.load_all(root)
    return {name: LabModel(model, store=store) for name, model in served.items()}


def open_lab_model(
    name: str, root: str | Path = checkpoints.MODELS, settings: ModelSettings | None = None
) -> LabModel:
    """Open a lab model, a small transformer that was trained here, as a chat model that answers in this process.

    Args:
        name: Name of the model's subfolder in `root`, such as "lab-nano". Where `settings.model` names the subfolder,
            `name` is only what the returned model is called.
        root: Folder with a subfolder for each lab model.
        settings: Limit of tokens, temperature and prices; None for the prices of the model's card.

    Returns:
        The model. All that are opened of one folder share their weights, and one generating thread a model.

    Raises:
        ModelError: Where there is no model of that name.
    """
    models = load_lab_models(str(root))  # by name; read from disk on the first call only
    folder_name = name
    if settings is not None and settings.model:
        folder_name = settings.model
    if folder_name not in models:
        raise checkpoints.ModelError(
            f"there is no lab model {folder_name!r} in {root}; it has {sorted(models)}"
        )
    model = models[folder_name]
    if settings is None:
        return model
    # A copy, so that one model can be opened under several names with other limits and prices.
    return model.with_settings(name, settings)
