"""What the server of the lab models adds to a reply, and what asking it at once is worth.

The server is a process of its own on loopback. Alone, a reply of 16 tokens through the official client may take three
times as long as the same generation called directly, by a model so small that the way there and back (client, HTTP,
the server's event loop and its thread that generates) is as long as the generation. With 64 requests under way their
sequences share steps.
"""

import asyncio
import statistics
import time
from functools import partial

import httpx2
import pytest

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.tokenizer import EOS, decode
from tests.benchmarks.clock import MOST_ROUNDS, relax, relax_limit, scale, time_once
from tests.language_models.conftest import tiny
from tests.language_models.serving.test_server import serving

LIMIT = 3.0  # a reply through the server, in replies directly
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


def test_a_reply_through_the_server_takes_no_longer_than_a_few_direct_ones(served):
    """Both take turns, beside requests that generate nothing, which tell how much of it is the way."""
    forward, ids = tiny()["lab-nano"].forward, tuple(encode_conversation(ASKED["messages"]))
    limit = ASKED["max_tokens"]
    rounds = scale(ROUNDS, least=3)
    times = {"directly": [], "through the server": [], "empty": []}  # median seconds of each round

    def reply_directly(seed: int) -> str:
        return decode(
            generate(forward, [Prompt(ids, limit, 1.0, seed)], encode_special(EOS))[0].ids
        )

    with served.client() as client:

        def reply_through_server(seed: int) -> str:
            return client.chat.completions.create(**ASKED, seed=seed).choices[0].message.content

        assert reply_directly(1) == reply_through_server(1)
        for number in range(MOST_ROUNDS):
            seeds = range(number * REPLIES, (number + 1) * REPLIES)
            for name, run in (
                ("directly", reply_directly),
                ("through the server", reply_through_server),
                ("empty", lambda seed: client.models.list()),
            ):
                times[name].append(statistics.median(time_once(partial(run, s)) for s in seeds))
            direct, through, empty = (min(each) for each in times.values())
            if number + 1 >= rounds and through <= relax_limit(LIMIT) * direct:
                break
    print(
        f"\n{limit} tokens: directly {1_000 * direct:.2f} ms, through the server {1_000 * through:.2f} ms, "
        f"{through / direct:.1f}x; an empty request {1_000 * empty:.2f} ms"
    )
    assert through <= relax_limit(LIMIT) * direct


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

    goal = relax(GOAL_AT_ONCE)
    alone = at_once = 0.0  # replies a second in the best round
    for _ in range(MOST_ROUNDS):
        alone = max(alone, asyncio.run(rate(1, scale(60, least=10))))
        at_once = max(at_once, asyncio.run(rate(CONCURRENCY, scale(8, least=2) * CONCURRENCY)))
        if at_once >= goal * alone:
            break
    print(
        f"\n64 tokens a reply: one at a time {alone:.0f} replies/s, {CONCURRENCY} at once {at_once:.0f} replies/s: "
        f"{at_once / alone:.1f}x"
    )
    assert at_once >= goal * alone
