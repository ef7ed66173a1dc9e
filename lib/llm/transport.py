"""What lies between the client and those who answer: models in this process, and a limit on an attempt.

openai 3.x speaks through httpx2, so a transport that is handed to it sees exactly what a server would.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

Answer = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]


def completion(model: str, text: str, tokens_in: int, tokens_out: int, finish_reason: str = "stop") -> dict[str, Any]:
    """A chat completion as OpenAI's API returns it, without id and time, which differ between runs."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def problem(status: int, message: str) -> httpx2.Response:
    """An error as OpenAI's API words it."""
    return httpx2.Response(status, json={"error": {"message": message, "type": "invalid_request_error"}})


class InProcess(httpx2.AsyncBaseTransport):
    """Hands chat completions to `answer(body)`, sync or async; a ValueError of it is a 400."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            return problem(404, f"there is no {request.method} {request.url.path} here; POST /v1/chat/completions")
        try:
            reply = self.answer(json.loads(await request.aread()))
            if inspect.isawaitable(reply):
                reply = await reply
        except ValueError as error:
            return problem(400, str(error))
        return httpx2.Response(200, json=reply)


class Punctual(httpx2.AsyncBaseTransport):
    """Gives up an attempt that is not read to its end after `seconds`.

    The limit of httpx2 is on silence: a server that drips, or sends blanks to keep the line, never meets it.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, seconds: float) -> None:
        self.inner, self.seconds = inner, seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            async with asyncio.timeout(self.seconds):
                response = await self.inner.handle_async_request(request)
                content = await response.aread()
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no whole reply within {self.seconds:g} s", request=request) from None
        return whole(response, content)

    async def aclose(self) -> None:
        await self.inner.aclose()


def whole(response: httpx2.Response, content: bytes) -> httpx2.Response:
    """A response that can be read again, with the content that was read from one; what only a cassette of
    ours may say is not taken from a server."""
    taken = ("content-encoding", "content-length")
    headers = {n: v for n, v in response.headers.items() if n not in taken and not n.startswith("x-cassette")}
    return httpx2.Response(response.status_code, headers=headers, content=content)
