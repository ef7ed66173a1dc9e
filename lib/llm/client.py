"""One client for every language model: scripted, trained here, or an endpoint.

Models go by the names of params.yaml. All of them are asked through the `openai` client; those that
answer in this process are handed to it as a transport. Its own retries and timeouts deal with busy
servers (408, 409, 429, 5xx, broken connections); what it cannot see, a 200 whose body is no reply, is
asked once more here. Every outcome is a `Reply` or a typed error, and everything billed is accounted
for once. Left out: streaming, and any knowledge of what the prompts are about.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from lib.config import LLMSettings, ModelSettings
from lib.llm import replay_cache as tape
from lib.llm import token_counts
from lib.llm.cost_ledger import Ledger, LedgerEntry
from lib.llm.errors import CassetteMiss, ConfigurationError, ReplyError
from lib.llm.replay_cache import Cassette, CassetteTransport
from lib.llm.spending_limit import ASKED, Paying, SpendingLimit
from lib.llm.token_counts import Asked
from lib.llm.transport import Guarded

IN_PROCESS = "http://in-process/v1"
DENSEST = 64  # bytes of a token, on average, at the most: more were not asked for
_SHOWN = 300  # characters of a server's words in an error
_ODD = (
    "empty_body",
    "not_json",
    "error_in_reply",
    "no_choices",
)  # a 200 that is none: ask once more
_HOPELESS = {  # what no second try mends, and where to look
    301: "check base_url, the server has moved",
    307: "check base_url, the server has moved",
    401: "check the key",
    402: "there is no credit left",
    403: "check the key's rights",
    404: "check base_url and model",
    405: "check base_url",
}
_UNSUPPORTED = re.compile(
    "unsupported|not support|unrecognized|unexpected|unknown|extra|not permitted", re.IGNORECASE
)
_OPTIONAL = ("seed", "temperature", "max_tokens")  # some endpoints refuse some of them

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Reply:
    """A usable reply. dollars and kwh: at the model's prices, also where it came from a cassette (`cached`)."""

    text: str
    tokens_in: int
    tokens_out: int
    cost_usd: float
    kwh: float
    finish_reason: str
    model: str
    backend: str
    cached: bool = False
    calls: tuple[tuple[str, str], ...] = ()  # of tools: name, and arguments as the model wrote them


class Client:
    """Asks models by name. One per event loop; use it as an async context manager.

    transports: in-process models by backend name; purse: the hard stop for what is paid; cassette: for
    endpoints; share: processes that share a model's concurrency limit.
    """

    def __init__(
        self,
        settings: LLMSettings,
        transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None,
        purse: SpendingLimit | None = None,
        cassette: Cassette | None = None,
        share: int = 1,
    ) -> None:
        self.settings, self.transports = settings, dict(transports or {})
        self.purse, self.cassette, self.share = purse, cassette, share
        self.ledger = Ledger()
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._limits: dict[str, asyncio.Semaphore] = {}

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc) -> None:
        for client in self._clients.values():
            await client.close()

    async def chat(
        self,
        model: str,
        messages: Messages,
        *,
        seed: int = 0,
        sample: int = 0,
        who: str = "",
        temperature: float | None = None,
        max_tokens: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Reply:
        """Ask a model. sample: which asking of an equal request this is (votes); who: for the ledger.

        Raises ReplyError where nothing usable came, ConfigurationError where no retry can help,
        CassetteMiss in replay, BudgetExceeded at llm.max_usd.
        """
        about = self._model(model)
        body = {
            "model": about.model or model,
            "messages": [dict(message) for message in messages],
            "temperature": about.temperature if temperature is None else temperature,
            "max_tokens": about.max_tokens
            if max_tokens is None
            else min(max_tokens, about.max_tokens),
            "seed": seed,
            "response_format": response_format,
            "tools": tools,
        }
        body = {
            name: value
            for name, value in body.items()
            if value is not None and name not in about.omit
        }
        tape.SAMPLE.set(sample)
        prompt = sum(
            token_counts.size(str(message.get("content", ""))) for message in body["messages"]
        )
        ASKED.set(Asked(prompt, body.get("max_tokens", about.max_tokens), who or model))
        async with self._limit(model, about):
            return await self._twice(model, about, body, who or model)

    async def _twice(
        self, model: str, about: ModelSettings, body: dict[str, Any], who: str
    ) -> Reply:
        """Ask, and ask once more after a 200 that holds no reply."""
        for last in (False, True):
            try:
                return await self._booked(model, about, body, who)
            except ReplyError as error:
                if last or error.kind not in _ODD:
                    raise
        raise AssertionError("unreachable")

    async def _booked(
        self, model: str, about: ModelSettings, body: dict[str, Any], who: str
    ) -> Reply:
        """One call, booked in the ledger."""
        try:
            reply = _read(await self._post(model, about, body), model, about, self._secret(about))
        except ReplyError as error:
            if error.tokens_in:
                self.ledger.add(
                    LedgerEntry(
                        who, 1, error.tokens_in, error.tokens_out, error.cost_usd, kwh=error.kwh
                    )
                )
            raise
        self.ledger.add(
            LedgerEntry(who, 1, reply.tokens_in, reply.tokens_out, reply.cost_usd, kwh=reply.kwh)
        )
        return reply

    async def _post(
        self, model: str, about: ModelSettings, body: dict[str, Any]
    ) -> httpx2.Response:
        """The raw 200 response of the endpoint; every other outcome as one of our errors."""
        try:
            # The raw response: the typed call would read the body before we can, and takes three times as long.
            return await self._client(model, about).post(
                "/chat/completions", body=body, cast_to=httpx2.Response
            )
        except openai.APIStatusError as error:
            trouble = self._status(error, model, about, body)
        except openai.APITimeoutError:
            trouble = ReplyError("timeout", f"{model}: no reply within {about.timeout:g} s")
        except openai.APIConnectionError as error:
            why = tape.clean(f"{error} {error.__cause__ or ''}".strip(), self._secret(about))
            trouble = ReplyError("connection", f"{model}: {why}")
        except UnicodeEncodeError:  # half a character, which no request can hold
            body = json.loads(tape.clean(json.dumps(body, ensure_ascii=False), ""))
            return await self._post(model, about, body)
        raise trouble  # out here nothing is chained to it: openai's errors hold all that the server said

    def _status(
        self, error: openai.APIStatusError, model: str, about: ModelSettings, body
    ) -> Exception:
        miss = error.response.headers.get(tape.MISS)
        if miss:
            last = body["messages"][-1]["content"][:80]
            return CassetteMiss(
                f"{self.cassette.export_path} holds no reply of {model} to a request that ends in {last!r} "
                f"(key {miss[:16]}); record it with llm.cassette: record"
            )
        said, code = tape.clean(str(error), self._secret(about))[:_SHOWN], error.status_code
        refused = next((name for name in _OPTIONAL if name in body and name in said), None)
        host = urlsplit(about.base_url or IN_PROCESS).hostname
        if code in (400, 422) and refused and _UNSUPPORTED.search(said):
            return ConfigurationError(
                f"{model} refuses {refused}: add `omit: [{refused}]` to it. It says: {said}"
            )
        if code in _HOPELESS or "insufficient_quota" in error.response.text:
            remedy = _HOPELESS.get(code, _HOPELESS[402])
            variable = f" ({about.api_key_env})" if about.api_key_env else ""
            return ConfigurationError(
                f"{model} at {host} answers {code}: {remedy}{variable}. It says: {said}"
            )
        kind = "rate_limit" if code == 429 else "server_error" if code >= 500 else "bad_request"
        return ReplyError(kind, f"{model} at {host}: {said}")

    def _secret(self, about: ModelSettings) -> str:
        """The endpoint's key, from the environment and from nowhere else; empty where none is needed."""
        if about.backend != "endpoint" or about.api_key_env is None or self._replays:
            return ""
        secret = os.environ.get(
            about.api_key_env, ""
        ).strip()  # a key read from a file may end in a line end
        if not secret:
            raise ConfigurationError(
                f"the environment variable {about.api_key_env} is not set; it must hold the key of "
                f"{urlsplit(about.base_url or IN_PROCESS).hostname}"
            )
        if not re.fullmatch("[!-~]+", secret):
            raise ConfigurationError(
                f"the environment variable {about.api_key_env} holds blanks or characters that are in no key"
            )
        return secret

    @property
    def _replays(self) -> bool:
        return self.cassette is not None and self.cassette.mode == "replay"

    def _model(self, name: str) -> ModelSettings:
        if name not in self.settings.models:
            raise ConfigurationError(
                f"there is no model {name!r} in llm.models; there are {sorted(self.settings.models)}"
            )
        return self.settings.models[name]

    def _limit(self, name: str, about: ModelSettings) -> asyncio.Semaphore:
        if name not in self._limits:
            self._limits[name] = asyncio.Semaphore(max(1, about.concurrency // self.share))
        return self._limits[name]

    def _client(self, name: str, about: ModelSettings) -> openai.AsyncOpenAI:
        if name not in self._clients:
            self._clients[name] = openai.AsyncOpenAI(
                api_key="none",  # the endpoint's own is added on the way, and nobody else sees it
                base_url=about.base_url if about.backend == "endpoint" else IN_PROCESS,
                max_retries=about.retries,
                timeout=httpx2.Timeout(
                    about.timeout, connect=0.9 * about.timeout
                ),  # what was not sent is not billed
                http_client=httpx2.AsyncClient(transport=self._transport(name, about)),
            )
        return self._clients[name]

    def _transport(self, name: str, about: ModelSettings) -> httpx2.AsyncBaseTransport:
        if about.backend == "endpoint":
            # As many connections as calls: about.concurrency is the limit, waiting for another would be a timeout.
            secret = self._secret(about)
            network: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(limits=httpx2.Limits())
            network = Guarded(network, about.timeout, secret)
            if self.purse and (about.price_in or about.price_out):
                network = Paying(network, self.purse, about.price_in, about.price_out)
            return CassetteTransport(network, self.cassette, secret) if self.cassette else network
        if about.backend not in self.transports:
            have = sorted(self.transports) or "none"
            raise ConfigurationError(
                f"{name}: no transport for backend {about.backend!r} was handed in; there is {have}"
            )
        return self.transports[about.backend]


def _read(response: httpx2.Response, model: str, about: ModelSettings, secret: str) -> Reply:
    """A 200 response as a reply. Raises ReplyError for everything that is none."""
    content = _json(response, secret)
    if content.get("error"):
        raise ReplyError(
            "error_in_reply", f"{model}: {tape.clean(str(content['error']), secret)[:_SHOWN]}"
        )
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ReplyError("no_choices", f"{model}: a reply without choices")
    message = token_counts.message_of(content)
    text = tape.clean(token_counts.text_of(message.get("content")), secret)
    finish = tape.clean(str(choices[0].get("finish_reason") or "stop"), secret)[:_SHOWN]
    asked = ASKED.get()
    tokens_in, tokens_out = token_counts.estimated(content, asked, len(response.request.content))
    bill = {
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cost_usd": tokens_in * about.price_in + tokens_out * about.price_out,
        "kwh": (tokens_in + tokens_out) * about.kwh_per_token,
    }
    if token_counts.written(content) > DENSEST * (asked.max_tokens + DENSEST):
        raise ReplyError("too_large", f"{model}: a reply of {len(text):,} characters", **bill)
    wrong = _unusable(message, text, finish)
    if wrong:
        raise ReplyError(wrong, f"{model}: {wrong.replace('_', ' ')}", text=text, **bill)
    cached = tape.HIT in response.headers
    calls = tuple(
        (tape.clean(name, secret), tape.clean(given, secret))
        for name, given in token_counts.calls_of(message)
    )
    return Reply(
        text,
        **bill,
        finish_reason=finish,
        model=model,
        backend=about.backend,
        cached=cached,
        calls=calls,
    )


def _json(response: httpx2.Response, secret: str) -> dict[str, Any]:
    raw = response.content
    if not raw.strip():
        raise ReplyError("empty_body", "an empty body")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        content = (
            None  # raised from here, our error would be chained to one that holds all of the body
        )
    if not isinstance(content, dict):
        shown = tape.clean(raw.decode("utf-8", "replace"), secret)[:80]
        raise ReplyError("not_json", f"a body that is no JSON object: {shown!r}")
    return content


def _unusable(message: Mapping[str, Any], text: str, finish: str) -> str:
    if message.get("refusal"):
        return "refusal"
    if finish in ("length", "content_filter"):
        return {"length": "truncated"}.get(finish, finish)
    return "" if text.strip() or message.get("tool_calls") else "null_content"
