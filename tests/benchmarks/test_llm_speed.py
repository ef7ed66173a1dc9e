"""What a chat model adds to a call of a server, and what asking at once is worth.

A loopback server takes 300 ms for each reply, as an endpoint would. Thirty episodes of four decisions are
thirty chains of four calls, each of which needs the one before. Goals: the chains at once 20x as soon as
one after another; the model itself takes no longer than a bare request to a server on this machine.
"""

import asyncio
import time

import httpx2
import pytest

from lib.llm.chat_completion import make_completion
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.endpoint import Endpoint
from lib.llm.reply_store import Recording
from lib.llm.scripted_model import ScriptedModel
from lib.llm.spending_limit import SpendingLimit
from tests.benchmarks.clock import MOST_ROUNDS, relax, relax_limit, scale
from tests.llm import server as scripted
from tests.llm.server import QUESTION, Answer, Server, certificate, key

__all__ = ["certificate", "key"]

GOAL = {"plain": 20.0, "recorded and paid for": 15.0}  # times as soon as one chain after another
DELAY = 0.3  # seconds per reply
CHAINS, CALLS = 30, 4
MEASURED = scale(2)  # chains of the slow side that are really played; the others take as long
LIMITS = {  # a call, in bare requests to a server on loopback that answers at once
    "in process": 1.0,
    "from the cassette": 1.5,
    "recorded and paid for": 6.0,
}


async def play_chain(model: ChatModel, number: int) -> str:
    """Calls that each contain the reply before, as the decisions of an episode do."""
    text = f"chain {number}"
    for _ in range(CALLS):
        messages = [*QUESTION, {"role": "user", "content": text}]
        text = (await model.reply_to(ChatRequest(messages))).text
    return text


def script(asked) -> Answer:
    return Answer(scripted.completion(asked.body["messages"][-1]["content"] + "."), delay=DELAY)


async def play_chains(
    num_chains: int, together: bool, concurrency: int, **parts
) -> tuple[float, Server]:
    """Seconds for a number of chains, at once or one after another. parts: of the endpoint."""
    async with Server(script) as server:
        settings = scripted.settings_of(server.url, concurrency=concurrency)
        async with Endpoint("mine", settings, **parts) as model:
            started = time.perf_counter()
            if together:
                chains = [play_chain(model, number) for number in range(num_chains)]
                ends = await asyncio.gather(*chains)
            else:
                ends = [await play_chain(model, number) for number in range(num_chains)]
            seconds = time.perf_counter() - started
    assert ends == [f"chain {number}" + "." * CALLS for number in range(num_chains)]
    return seconds, server


def make_paid_parts(folder) -> dict:
    return {
        "recording": Recording(folder, "tape", "record"),
        "spending_limit": SpendingLimit(folder / "spent.sqlite", 1e6),
    }


@pytest.mark.parametrize("setup", GOAL)
def test_thirty_chains_at_once_are_many_times_as_soon_as_one_after_another(setup, tmp_path):
    """Twenty times; fifteen where every call is recorded and paid for, because SQLite lets no two write at once."""
    slow_parts, fast_parts = {}, {}
    if setup != "plain":
        slow_parts = make_paid_parts(tmp_path / "slow")
        fast_parts = make_paid_parts(tmp_path / "fast")
    slow, alone = asyncio.run(play_chains(MEASURED, False, CHAINS, **slow_parts))
    fast, server = asyncio.run(play_chains(CHAINS, True, CHAINS, **fast_parts))
    after_another = slow / MEASURED * CHAINS
    print(
        f"\n{setup}: {CHAINS} chains of {CALLS} calls, {DELAY * 1000:.0f} ms a reply: at once {fast:.2f} s; "
        f"one after another {after_another:.1f} s ({MEASURED} chains measured, {slow:.2f} s, times "
        f"{CHAINS / MEASURED:g}): {after_another / fast:.1f}x; "
        f"most in flight {server.most_in_flight} and {alone.most_in_flight}"
    )
    assert after_another >= relax(GOAL[setup]) * fast
    assert alone.most_in_flight == 1 and len(server.asked) == CHAINS * CALLS


@pytest.mark.parametrize("setup", LIMITS)
def test_a_call_takes_no_longer_than_a_few_bare_requests(setup, tmp_path):
    """In process nothing is sent. Paid for: to loopback and writes to disk come on top."""
    calls = scale(50, least=10)  # of a round
    limit = relax_limit(LIMITS[setup])

    async def measure() -> tuple[float, float]:
        """Milliseconds of a call and of a bare request, each in its best round, in turns."""
        async with Server() as server:
            settings = scripted.settings_of(server.url)
            if setup == "in process":
                completion = make_completion("mine", "SO-d2", 10, 5)
                model = ScriptedModel("mine", settings, lambda body: completion)
            else:
                model = Endpoint("mine", settings, **make_paid_parts(tmp_path))
            async with model, httpx2.AsyncClient(base_url=server.url) as bare:
                body = {"model": "served", "messages": QUESTION, "max_tokens": 100}
                headers = {"Authorization": f"Bearer {scripted.KEY}"}

                async def call_model(number: int, call: int) -> None:
                    seed = call if setup == "from the cassette" else calls * number + call
                    reply = await model.reply_to(ChatRequest(QUESTION, seed=seed))
                    assert reply.usable

                async def send_bare_request(number: int, call: int) -> None:
                    await bare.post("/chat/completions", json=body, headers=headers)

                async def time_round(ask, number: int) -> float:
                    started = time.perf_counter()
                    for call in range(calls):
                        await ask(number, call)
                    return 1_000 * (time.perf_counter() - started) / calls

                # The first round connects, or records.
                await time_round(call_model, 0)
                await time_round(send_bare_request, 0)
                best, best_bare = float("inf"), float("inf")
                for number in range(1, MOST_ROUNDS):
                    best = min(best, await time_round(call_model, number))
                    best_bare = min(best_bare, await time_round(send_bare_request, number))
                    if number >= scale(5, least=2) and best <= limit * best_bare:
                        break
        sent = len(server.asked) - calls * (number + 1)  # by the model
        expected = {"in process": 0, "from the cassette": calls}
        assert sent == expected.get(setup, calls * (number + 1))
        return best, best_bare

    best, best_bare = asyncio.run(measure())
    print(
        f"\na call {setup}: {best:.2f} ms, a bare request {best_bare:.2f} ms: {best / best_bare:.2f}x"
    )
    assert best <= limit * best_bare
