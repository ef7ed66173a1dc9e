"""A real server on loopback that answers as it is told, and what the tests of `lib.llm` ask it with."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import certifi
import pytest

from lib import config
from lib.config import LLMSettings, ModelSettings
from lib.experiment import artifacts
from lib.llm import endpoint
from lib.llm.chat_model import ChatRequest
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.endpoint import Endpoint
from lib.llm.errors import LLMError

QUESTION = [
    {"role": "system", "content": "You choose."},
    {"role": "user", "content": "Which policy acts next?"},
]
KEY_VARIABLE = "BENCH_TEST_KEY"
KEY = "sk-planted-7f3a9c1e5b2d8f60"
PRICE_IN, PRICE_OUT = 1.0e-3, 1.0e-2  # dollars per token
BILL = 10 * PRICE_IN + 5 * PRICE_OUT  # of `completion()`
NOBODY = "http://127.0.0.1:9/v1"
INNER = {
    "backend": "scripted", "price_in": 0.0, "price_out": 0.0, "kwh_per_token": 0.0, "temperature": 0.0,
    "max_tokens": 50, "timeout": 5.0, "retries": 2, "concurrency": 2,
}  # fmt: skip


def completion(
    content: Any = "SO-d2", tokens_in: int = 10, tokens_out: int = 5, **choice: Any
) -> dict[str, Any]:
    """A chat completion with the id and the time that real servers add."""
    message = {"role": "assistant", "content": content}
    body = {"index": 0, "finish_reason": "stop", "message": message, **choice}
    usage = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    head = {
        "id": f"c-{time.time_ns()}",
        "object": "chat.completion",
        "created": time.time_ns(),
        "model": "served",
    }
    return {**head, "choices": [body], "usage": usage}


@dataclass
class Answer:
    """body: JSON, text or bytes; delay: seconds; cut: bytes of the body after which the connection ends.

    A status of 0 closes the connection without a word; drip: seconds between any ten bytes.
    """

    body: Any = field(default_factory=completion)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    drip: float = 0.0

    def raw(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass
class Asked:
    """A request as it arrived. at: on the monotonic clock."""

    path: str
    headers: dict[str, str]
    body: Any
    at: float


Script = Callable[[Asked], Answer]


class Server:
    """Answers each request with the next of `answers`, the last one for good; or with what a function says.

    It speaks just enough HTTP/1.1 for a client with kept-alive connections.
    """

    def __init__(self, *answers: Answer | Script) -> None:
        self.answers = answers or (Answer(),)
        self.asked: list[Asked] = []
        self.in_flight = self.most_in_flight = 0
        self._tasks: set[asyncio.Task] = set()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=256)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *exc) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while (asked := await self._read(reader)) is not None:
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    whole = await self._answer(asked, writer)
                finally:
                    self.in_flight -= 1
                if not whole:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, as it does after a timeout, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        except asyncio.IncompleteReadError:
            return None  # the connection was closed between requests
        headers = {
            n.strip().lower(): v.strip()
            for n, _, v in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(
            head[0].split()[1], headers, json.loads(body) if body else None, time.monotonic()
        )
        self.asked.append(asked)
        return asked

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Write the next answer; whether the connection is still good afterwards."""
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        answer = answer if isinstance(answer, Answer) else answer(asked)
        await asyncio.sleep(answer.delay)
        if not answer.status:
            return False
        body = answer.raw()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **answer.headers,
        }
        lines = [
            f"HTTP/1.1 {answer.status} Scripted",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        sent = "\r\n".join(lines).encode() + b"\r\n\r\n" + body[: answer.cut]
        step = 10 if answer.drip else len(sent)
        for start in range(0, len(sent), step):
            writer.write(sent[start : start + step])
            await writer.drain()
            await asyncio.sleep(answer.drip)
        return answer.cut is None


def settings(
    url: str = NOBODY, models: dict[str, Any] | None = None, **changes: Any
) -> LLMSettings:
    """Settings with a paid endpoint `mine` at `url` that needs a key. models: others beside it; changes: of mine."""
    mine = {
        "backend": "endpoint",
        "base_url": url,
        "model": "served",
        "api_key_env": KEY_VARIABLE,
        "price_in": PRICE_IN,
        "price_out": PRICE_OUT,
        "kwh_per_token": 1.0e-6,
        "temperature": 0.5,
        "max_tokens": 100,
        "timeout": 5.0,
        "retries": 2,
        "concurrency": 4,
        **changes,
    }
    llm = {"cassette": "off", "max_usd": 1_000.0, "models": {"mine": mine, **(models or {})}}
    return config.validate_settings(llm, LLMSettings, "a test")


def settings_of(url: str = NOBODY, **changes: Any) -> ModelSettings:
    """The settings of the endpoint `mine` alone."""
    return settings(url, **changes).models["mine"]


@dataclass
class Outcome:
    """What came of some requests: replies, and errors that ended the run, in order; and who took part."""

    results: list[Any]
    server: Server
    model: Endpoint

    @property
    def only(self) -> Any:
        (result,) = self.results
        return result


async def ask_all(model: Endpoint, requests: Sequence[dict[str, Any]]) -> list[Any]:
    """Replies to requests that are all under way at once, with the errors among them."""
    chats = [ChatRequest(**{"messages": QUESTION} | request) for request in requests]
    calls = [model.reply_to(chat) for chat in chats]
    return await asyncio.gather(*calls, return_exceptions=True)


def call(
    *answers: Answer | Script,
    times: int = 1,
    request: dict[str, Any] | None = None,
    parts: dict[str, Any] | None = None,
    **changes: Any,
) -> Outcome:
    """Ask `mine`, on a server with these answers, one call after the other.

    request: fields of the ChatRequest; parts: of the Endpoint (recording, spending_limit, processes, watch); changes:
    of its settings.
    """

    async def play() -> Outcome:
        async with Server(*answers) as server:
            model = Endpoint("mine", settings_of(server.url, **changes), **(parts or {}))
            results: list[Any] = []
            for _ in range(times):
                try:
                    chat = ChatRequest(**{"messages": QUESTION} | (request or {}))
                    results.append(await model.reply_to(chat))
                except (LLMError, BudgetExceeded, ValueError) as error:
                    results.append(error)
            await model.aclose()
            return Outcome(results, server, model)

    return asyncio.run(play())


def at_once(
    *answers: Answer | Script,
    requests: Sequence[dict[str, Any]],
    parts: dict[str, Any] | None = None,
    **changes: Any,
) -> Outcome:
    """Like `call`, for many requests at once; results: all that was raised among them."""

    async def play() -> Outcome:
        async with Server(*answers) as server:
            model = Endpoint("mine", settings_of(server.url, **changes), **(parts or {}))
            results = await ask_all(model, requests)
            await model.aclose()
            return Outcome(results, server, model)

    return asyncio.run(play())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """One certificate instead of all: every client loads them, loopback needs none."""
    end = "-----END CERTIFICATE-----\n"
    return artifacts.write_text(
        tmp_path_factory.mktemp("tls") / "one.pem", certifi.contents().partition(end)[0] + end
    )


@pytest.fixture(autouse=True)
def key(monkeypatch, certificate) -> str:
    """The planted key, where the client looks for it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return KEY


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """The seconds that would be waited between attempts, without the waiting."""
    seconds: list[float] = []

    async def wait(duration: float) -> None:
        seconds.append(duration)

    monkeypatch.setattr(endpoint, "wait", wait)
    return seconds
