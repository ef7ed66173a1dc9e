"""What lies between the client and those who answer: models in this process, and what guards an endpoint.

openai 3.x speaks through httpx2, so a transport that is handed to it sees exactly what a server would.
"""

import asyncio
import inspect
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from lib.llm.errors import ReplyError

LARGEST = 2**23  # bytes of a body; the longest replies of models have a tenth of it
_OURS = (
    "host",
    "accept",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
    "connection",
)
_THEIRS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
logging.getLogger("httpcore2").setLevel(
    logging.INFO
)  # its debug lines repeat headers, and what a server echoes there

Answer = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]


def completion(
    model: str, text: str, tokens_in: int, tokens_out: int, finish_reason: str = "stop"
) -> dict[str, Any]:
    """A chat completion as OpenAI's API returns it, without id and time, which differ between runs."""
    message = {"role": "assistant", "content": text}
    usage = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def problem(status: int, message: str) -> httpx2.Response:
    """An error as OpenAI's API words it."""
    return httpx2.Response(
        status, json={"error": {"message": message, "type": "invalid_request_error"}}
    )


class InProcess(httpx2.AsyncBaseTransport):
    """Hands chat completions to `answer(body)`, sync or async; a ValueError of it is a 400."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            return problem(
                404,
                f"there is no {request.method} {request.url.path} here; POST /v1/chat/completions",
            )
        try:
            reply = self.answer(json.loads(await request.aread()))
            if inspect.isawaitable(reply):
                reply = await reply
        except ValueError as error:
            return problem(400, str(error))
        return httpx2.Response(200, content=json.dumps(reply))


class Guarded(httpx2.AsyncBaseTransport):
    """Attempts at an endpoint, with this key and no other header than ours, that end in time and within LARGEST.

    seconds: for a whole attempt, since the limit of httpx2 is on silence, which a server that drips, or sends blanks
    to keep the line, never meets; secret: the endpoint's key, empty for none. The openai client takes headers from
    the environment (OPENAI_CUSTOM_HEADERS and others), which are another program's: they do not pass.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, seconds: float, secret: str = "") -> None:
        self.inner, self.seconds, self._secret = inner, seconds, secret

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: request.headers[name] for name in _OURS if name in request.headers}
        headers["accept-encoding"] = "identity"
        if self._secret:
            headers["authorization"] = f"Bearer {self._secret}"
        asked = httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        try:
            async with asyncio.timeout(self.seconds):
                response = await self.inner.handle_async_request(asked)
                try:
                    content = await _content(response, request)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout(
                f"no whole reply within {self.seconds:g} s", request=request
            ) from None
        return whole(response, content)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def _content(response: httpx2.Response, request: httpx2.Request) -> bytes:
    """The body, plain. Raises ReplyError for more than LARGEST bytes, packed or not, and DecodingError."""
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "", "gzip"):
        raise httpx2.DecodingError(
            f"a body in {packing[:20]!r}, though identity was asked for", request=request
        )
    unpack, parts, taken = zlib.decompressobj(31) if packing == "gzip" else None, [], 0
    async for part in response.aiter_raw():
        try:
            part = unpack.decompress(part, LARGEST + 1 - taken) if unpack else part
        except zlib.error:
            raise httpx2.DecodingError(
                "a body that is not packed as it says", request=request
            ) from None
        parts.append(part)
        taken += len(part)
        if taken > LARGEST:
            raise ReplyError("too_large", f"a body of more than {LARGEST:,} bytes")
    if unpack and taken and not unpack.eof:
        raise httpx2.DecodingError("a packed body that breaks off", request=request)
    return b"".join(parts)


def whole(response: httpx2.Response, content: bytes) -> httpx2.Response:
    """A response that can be read again, with the content that was read from one, and of its headers what the
    openai client needs: it logs others, whatever a server echoes in them, and some only a cassette of ours may say."""
    headers = {name: response.headers[name] for name in _THEIRS if name in response.headers}
    return httpx2.Response(response.status_code, headers=headers, content=content)
