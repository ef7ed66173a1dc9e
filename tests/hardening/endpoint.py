"""A server in this process, where an endpoint would open connections, that does what a function says."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import httpx2

from lib.llm.chat_model import Reply
from lib.llm.failure_policy import FailureWatch

Act = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def answer(body: bytes, status: int = 200, **headers: str) -> httpx2.Response:
    """A response as it comes from a connection: unread.

    Args:
        body: Its bytes.
        status: Of HTTP.
        headers: With _ for -.
    """
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=fields, stream=httpx2.ByteStream(body))


class FunctionTransport(httpx2.AsyncBaseTransport):
    """Requests are answered by `act`; what it raises, the connection raises."""

    def __init__(self, act: Act) -> None:
        self.act = act

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.act(request)


@contextmanager
def served(act: Act) -> Iterator[None]:
    """Every connection that an endpoint opens leads to this function, and nobody waits between attempts."""

    async def wait_not(seconds: float) -> None:
        return None

    with (
        mock.patch("httpx2.AsyncHTTPTransport", lambda **_: FunctionTransport(act)),
        mock.patch("lib.llm.endpoint.wait", wait_not),
    ):
        yield


class PatientWatch(FailureWatch):
    """Counts failures and ends no run, so that whatever comes after them is tried too."""

    def add(self, reply: Reply) -> None:
        self.counts.add(reply)
