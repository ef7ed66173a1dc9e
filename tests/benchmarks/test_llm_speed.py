"""What the client for language models adds to a call, and what asking at once is worth.

A loopback server takes 300 ms for each reply, as an endpoint would. Thirty episodes of four decisions are
thirty chains of four calls, each of which needs the one before. Goals: the chains at once 20x as soon as
one after another; the client itself within 2 ms a call.
"""

import asyncio
import time

import pytest

from lib.llm.client import Client
from lib.llm.replay_cache import Cassette
from lib.llm.spending_limit import Purse
from lib.llm.transport import InProcess, completion
from tests.llm import server as scripted
from tests.llm.server import QUESTION, Answer, Server, certificate, key

__all__ = ["certificate", "key"]

GOAL = {"plain": 20.0, "recorded and paid for": 15.0}  # times as soon as one chain after another
DELAY = 0.3  # seconds per reply
CHAINS, CALLS = 30, 4
MEASURED = 2  # chains of the slow side that are really played; the others take as long
OVERHEAD = {
    "in process": 2.0,
    "from the cassette": 4.0,
    "recorded and paid for": 10.0,
}  # ms per call


async def chain(client: Client, number: int) -> str:
    """Calls that each contain the reply before, as the decisions of an episode do."""
    text = f"chain {number}"
    for _ in range(CALLS):
        text = (await client.chat("mine", [*QUESTION, {"role": "user", "content": text}])).text
    return text


def script(asked) -> Answer:
    return Answer(scripted.completion(asked.body["messages"][-1]["content"] + "."), delay=DELAY)


async def played(chains: int, together: bool, concurrency: int, **parts) -> tuple[float, Server]:
    """Seconds for a number of chains, at once or one after another. parts: of the client."""
    limits = {"concurrency": concurrency}
    async with (
        Server(script) as server,
        Client(scripted.settings(server.url, **limits), **parts) as client,
    ):
        began = time.perf_counter()
        if together:
            ends = await asyncio.gather(*(chain(client, number) for number in range(chains)))
        else:
            ends = [await chain(client, number) for number in range(chains)]
        seconds = time.perf_counter() - began
    assert ends == [f"chain {number}" + "." * CALLS for number in range(chains)]
    return seconds, server


def paying(folder) -> dict:
    return {
        "cassette": Cassette(folder, "tape", "record"),
        "purse": Purse(folder / "spent.sqlite", 1e6),
    }


@pytest.mark.parametrize("setup", GOAL)
def test_thirty_chains_at_once_are_many_times_as_soon_as_one_after_another(setup, tmp_path):
    """Twenty times; fifteen where every call is recorded and paid for, because SQLite lets no two write at once."""
    slow_parts, fast_parts = (
        ({}, {}) if setup == "plain" else (paying(tmp_path / "slow"), paying(tmp_path / "fast"))
    )
    slow, alone = asyncio.run(played(MEASURED, together=False, concurrency=CHAINS, **slow_parts))
    fast, server = asyncio.run(played(CHAINS, together=True, concurrency=CHAINS, **fast_parts))
    after_another = slow / MEASURED * CHAINS
    print(
        f"\n{setup}: {CHAINS} chains of {CALLS} calls, {DELAY * 1000:.0f} ms a reply: at once {fast:.2f} s; "
        f"one after another {after_another:.1f} s ({MEASURED} chains measured, {slow:.2f} s, times "
        f"{CHAINS / MEASURED:g}): {after_another / fast:.1f}x; "
        f"most in flight {server.most_in_flight} and {alone.most_in_flight}"
    )
    assert after_another >= GOAL[setup] * fast
    assert alone.most_in_flight == 1 and len(server.asked) == CHAINS * CALLS


@pytest.mark.parametrize("setup", OVERHEAD)
def test_the_client_adds_little_to_a_call(setup, tmp_path):
    """In process: hardly more than the client. Paid for: loopback and writes to disk come on top."""
    own = scripted.settings().models["mine"].model_dump() | {"backend": "scripted"}
    transports = {"scripted": InProcess(lambda body: completion("own", "SO-d2", 10, 5))}

    async def measured() -> list[float]:
        async with Server() as server:
            settings = scripted.settings(server.url, models={"own": own})
            async with Client(
                settings, transports, **({} if setup == "in process" else paying(tmp_path))
            ) as client:
                model, rounds = ("own" if setup == "in process" else "mine"), []
                for number in range(6):
                    began = time.perf_counter()
                    for call in range(50):
                        seed = call if setup == "from the cassette" else 50 * number + call
                        await client.chat(model, QUESTION, seed=seed)
                    rounds.append(1_000 * (time.perf_counter() - began) / 50)
        assert (
            len(server.asked)
            == {"in process": 0, "from the cassette": 50, "recorded and paid for": 300}[setup]
        )
        return rounds[1:]  # the first one connects, or records

    best = min(asyncio.run(measured()))
    print(f"\na call {setup}: {best:.2f} ms")
    assert best <= OVERHEAD[setup]
