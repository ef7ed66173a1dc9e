"""An endpoint in this process, where the client would open connections, that does what a function says."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import httpx2

Act = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def answer(body: bytes, status: int = 200, **headers: str) -> httpx2.Response:
    """A response as it comes from a connection: unread. headers: with _ for -."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=told, stream=httpx2.ByteStream(body))


class Endpoint(httpx2.AsyncBaseTransport):
    """act: what a request is answered by; what it raises, the connection does."""

    def __init__(self, act: Act) -> None:
        self.act = act

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.act(request)


@contextmanager
def served(act: Act) -> Iterator[None]:
    """Every connection that a client opens leads to this endpoint, and nobody waits between attempts."""

    async def at_once(_seconds: float) -> None:
        return None

    with (
        mock.patch("httpx2.AsyncHTTPTransport", lambda **_: Endpoint(act)),
        mock.patch("openai._base_client.anyio.sleep", at_once),
    ):
        yield
