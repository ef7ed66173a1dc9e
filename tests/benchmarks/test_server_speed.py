"""What the server of the lab models adds to a reply, and what asking it at once is worth.

The server is a process of its own on loopback. Alone, a reply through the official client may take 5 ms
longer than the same generation called directly. With 64 requests under way their sequences share steps.
"""

import asyncio
import statistics
import time

import httpx2
import pytest

from lib.language_models.chat_template import conversation, token
from lib.language_models.generation import Prompt, generate
from lib.language_models.tokenizer import EOS, decode
from tests.language_models.conftest import tiny
from tests.language_models.serving.test_server import serving

GOAL_MS = 5.0  # on top of a reply
GOAL_AT_ONCE = 4.0  # times as many replies a second; client and server share two cores
ROUNDS, REPLIES, CONCURRENCY = 8, 30, 64
ASKED = {
    "model": "lab-nano",
    "messages": [{"role": "user", "content": "the red key is in the box"}],
    "max_tokens": 16,
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def served():
    with serving() as served:
        yield served


def milliseconds(function, seeds: range) -> tuple[float, list]:
    """The median of calls function(seed), and what they return."""
    took, results = [], []
    for seed in seeds:
        began = time.perf_counter()
        results.append(function(seed))
        took.append(1_000 * (time.perf_counter() - began))
    return statistics.median(took), results


def test_the_server_adds_little_to_a_reply(served):
    """Both in turns, so that what else the machine does meets them alike; the first round connects."""
    forward, ids = tiny()["lab-nano"].forward, tuple(conversation(ASKED["messages"]))
    limit, rounds = ASKED["max_tokens"], []

    def directly(seed: int) -> str:
        return decode(generate(forward, [Prompt(ids, limit, 1.0, seed)], token(EOS))[0].ids)

    with served.client() as client:

        def through(seed: int) -> str:
            return client.chat.completions.create(**ASKED, seed=seed).choices[0].message.content

        for number in range(ROUNDS):
            seeds = range(number * REPLIES, (number + 1) * REPLIES)
            (direct, expected), (served_in, texts) = (
                milliseconds(directly, seeds),
                milliseconds(through, seeds),
            )
            assert texts == expected
            rounds.append((served_in - direct, direct, served_in))
    more, direct, served_in = statistics.median_low(rounds[1:])
    print(
        f"\n{limit} tokens: directly {direct:.2f} ms, through the server {served_in:.2f} ms, +{more:.2f} ms"
    )
    assert more <= GOAL_MS


def test_asked_at_once_the_server_gives_more_replies_a_second(served):
    async def rate(together: int, replies: int) -> float:
        limit = asyncio.Semaphore(together)
        async with httpx2.AsyncClient(
            base_url=served.url, limits=httpx2.Limits(), timeout=60.0
        ) as client:

            async def one(seed: int) -> None:
                async with limit:
                    reply = await client.post(
                        "/chat/completions", json=ASKED | {"max_tokens": 64, "seed": seed}
                    )
                assert reply.status_code == 200

            await asyncio.gather(*map(one, range(together)))  # connects
            began = time.perf_counter()
            await asyncio.gather(*map(one, range(replies)))
            return replies / (time.perf_counter() - began)

    alone, at_once = asyncio.run(rate(1, 60)), asyncio.run(rate(CONCURRENCY, 8 * CONCURRENCY))
    print(
        f"\n64 tokens a reply: one at a time {alone:.0f} replies/s, {CONCURRENCY} at once {at_once:.0f} replies/s: "
        f"{at_once / alone:.1f}x"
    )
    assert at_once >= GOAL_AT_ONCE * alone
