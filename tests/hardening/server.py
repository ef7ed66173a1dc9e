"""The lab server among connections that ask nothing: does every question of the others get its own reply?"""

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable

import httpx2

from tests.language_models.conftest import tiny
from tests.language_models.serving.requests import generate_alone, numbered_request
from tests.language_models.serving.test_server import Served, serving

IDLE, SLOW, BUSY = 2_000, 200, 64
QUESTIONS = 10  # of each busy client
LONGEST = 180.0  # seconds for all of it
_PAUSE = 3.0  # seconds until one that was cut off comes back
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n"
_LOGGED = 4_096  # bytes that the server may have said by then


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """server.connections: idle and slow clients that press at once; server.lost: questions without their own reply."""
    idle, slow, busy = (max(4, round(scale * many)) for many in (IDLE, SLOW, BUSY))
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, most), most))
    try:
        with serving() as served:
            pressed = _Pressed(served)
            lost, seconds = asyncio.run(asyncio.wait_for(pressed.play(idle, slow, busy), LONGEST))
            code, logged = served.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    say(
        f"{busy} clients asked {busy * QUESTIONS} questions beside {idle} idle and {slow} slow connections: {lost} lost"
    )
    say(
        f"in {seconds:.1f} s; {pressed.made} connections were made; the server said {len(logged)} bytes"
    )
    ended = code == 0 and len(logged) <= _LOGGED
    return {"server.connections": pressed.pressing, "server.lost": lost + (not ended)}


class _Pressed:
    """A server and those that press upon it; pressing: how many have; made: how often they have connected."""

    def __init__(self, served: Served) -> None:
        self.served, self.pressing, self.made = served, 0, 0

    async def play(self, idle: int, slow: int, busy: int) -> tuple[int, float]:
        """Questions that were lost, and the seconds that all took."""
        tasks = [
            asyncio.create_task(self._press(slowly=number < slow)) for number in range(idle + slow)
        ]
        try:
            while self.pressing < idle + slow:
                await asyncio.sleep(0.05)
            began = time.monotonic()
            given = await asyncio.gather(*(self._ask(number * QUESTIONS) for number in range(busy)))
            seconds = time.monotonic() - began
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        models, texts = tiny(), [text for texts in given for text in texts]
        return sum(
            text != generate_alone(models, numbered_request(number))
            for number, text in enumerate(texts)
        ), seconds

    async def _press(self, slowly: bool) -> None:
        """Connect, say nothing or a letter at a time, and come back when cut off."""
        first = True
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.served.port)
                self.made, self.pressing, first = self.made + 1, self.pressing + first, False
                try:
                    for letter in _HEAD if slowly else b"":
                        writer.write(bytes([letter]))
                        await writer.drain()
                        await asyncio.sleep(0.2)
                    await reader.read(1)
                finally:
                    writer.close()
            await asyncio.sleep(_PAUSE)

    async def _ask(self, first: int) -> list[str | None]:
        async with httpx2.AsyncClient(
            base_url=self.served.url, timeout=60.0, verify=False
        ) as client:
            return [
                await _reply(client, numbered_request(number))
                for number in range(first, first + QUESTIONS)
            ]


async def _reply(client: httpx2.AsyncClient, body: dict) -> str | None:
    try:
        answered = await client.post("/chat/completions", json=body)
        return answered.json()["choices"][0]["message"]["content"]
    except (httpx2.HTTPError, ValueError, KeyError):
        return None
