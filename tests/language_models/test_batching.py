"""The batcher: whoever comes and goes when, each gets what it would get alone, and none waits for ever."""

import asyncio
import gc
import random
import threading
import time

import pytest

from lib.language_models.batching import (
    Batcher,
    BatcherClosed,
    GenerationFailed,
    QueueFull,
    RequestCancelled,
)
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import ContextTooLong, Prompt, generate
from lib.language_models.tokenizer import EOS

END = encode_special(EOS)
WORDS = [
    "the",
    "red",
    "key",
    "is",
    "in",
    "the",
    "box",
    "and",
    "the",
    "blue",
    "key",
    "is",
    "not",
    "so",
    "look",
]


def prompt(number: int, limit: int = 12, temperature: float = 1.0) -> Prompt:
    words = " ".join(WORDS[: 1 + number % len(WORDS)])
    return Prompt(
        tuple(encode_conversation([{"role": "user", "content": words}])), limit, temperature, number
    )


@pytest.fixture
def forward(models):
    return models["lab-nano"].forward


@pytest.fixture
def batcher(forward):
    batcher = Batcher(forward, END)
    yield batcher
    batcher.close()


def alone(forward, given: Prompt) -> list[int]:
    return generate(forward, [given], END)[0].ids


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


# Replies ------------------------------------------------------------------------------------------


def test_whoever_arrives_when_gets_what_it_would_get_alone(forward, batcher):
    draw = random.Random(0)
    prompts = [prompt(n, draw.randint(1, 60), draw.choice([0.0, 0.7, 1.0])) for n in range(120)]

    async def one(given: Prompt):
        await asyncio.sleep(draw.random() * 0.2)
        (generation,) = await batcher.submit([given]).result()
        return generation

    async def play():
        return await asyncio.gather(*map(one, prompts))

    for given, generation in zip(prompts, asyncio.run(play()), strict=True):
        reference = generate(forward, [given], END)[0]
        assert generation.ids == reference.ids and generation.logprobs == reference.logprobs
        assert generation.finish == reference.finish


def test_it_serves_one_event_loop_after_another_and_several_at_once(forward, batcher):
    async def ask(number: int):
        return (await batcher.submit([prompt(number)]).result())[0].ids

    replies = {}
    threads = [
        threading.Thread(target=lambda n=n: replies.update({n: asyncio.run(ask(n))}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {n: alone(forward, prompt(n)) for n in range(8)}
    assert asyncio.run(ask(9)) == alone(forward, prompt(9)) == asyncio.run(ask(9))


def test_requests_share_steps(batcher):
    steps, step = [], batcher._batch.step
    batcher._batch.step = lambda: steps.append(1) or step()

    async def play():
        await asyncio.gather(*(batcher.submit([prompt(n, 40, 0.0)]).result() for n in range(32)))

    asyncio.run(play())
    assert len(steps) < 32 * 40 / 4


# Limits -------------------------------------------------------------------------------------------


def test_a_full_queue_is_said_at_once_and_the_others_are_served(forward):
    batcher = Batcher(forward, END, max_queue_length=4, max_batch_size=2)

    async def play():
        tickets, busy = [], 0
        for number in range(40):  # nobody is let in while this loop does not yield
            try:
                tickets.append((number, batcher.submit([prompt(number)])))
            except QueueFull:
                busy += 1
        return busy, [(number, (await ticket.result())[0].ids) for number, ticket in tickets]

    try:
        busy, replies = asyncio.run(play())
    finally:
        batcher.close()
    assert busy + len(replies) == 40 and busy > 0 and len(replies) >= 4
    assert all(ids == alone(forward, prompt(number)) for number, ids in replies)


def test_no_more_run_side_by_side_than_may_but_a_large_request_is_served(forward):
    batcher = Batcher(forward, END, max_batch_size=3)
    most, step = [], batcher._batch.step
    batcher._batch.step = lambda: most.append(len(batcher._batch)) or step()

    async def play():
        await asyncio.gather(*(batcher.submit([prompt(n, 5)]).result() for n in range(10)))
        assert max(most) <= 3
        assert len(await batcher.submit([prompt(n, 5) for n in range(6)]).result()) == 6

    asyncio.run(play())
    batcher.close()


def test_what_cannot_be_run_is_refused_before_it_disturbs_anyone(batcher):
    async def play():
        with pytest.raises(ContextTooLong, match="256"):
            batcher.submit([prompt(0, 1000)])
        with pytest.raises(ValueError, match="at least one"):
            batcher.submit([])
        with pytest.raises(ValueError, match="at least one token"):
            batcher.submit([Prompt((), 5)])

    asyncio.run(play())
    assert batcher._thread is None  # and nothing was started for it


# Leaving ------------------------------------------------------------------------------------------


def test_one_who_leaves_frees_its_place_and_disturbs_nobody(forward, batcher):
    async def play():
        left = batcher.submit([prompt(1, 200, 0.0)] * 3, stream_tokens=True)
        stays = batcher.submit([prompt(5, 40)])
        async for _ in left:
            break
        left.cancel()
        left.cancel()  # twice is once
        await until(lambda: len(batcher._batch) <= 1)
        with pytest.raises(RequestCancelled):
            await left.result()
        return (await stays.result())[0].ids

    assert asyncio.run(play()) == alone(forward, prompt(5, 40))


def test_one_who_leaves_the_queue_is_never_run(forward):
    batcher = Batcher(forward, END, max_batch_size=1)

    async def play():
        first = batcher.submit([prompt(1, 100, 0.0)])
        waiting = batcher.submit([prompt(2)])
        waiting.cancel()
        await first.result()
        assert waiting.generations == []
        with pytest.raises(RequestCancelled):
            await waiting.result()

    asyncio.run(play())
    batcher.close()


# Errors -------------------------------------------------------------------------------------------


def test_an_error_of_the_worker_reaches_all_and_the_next_are_served(forward, batcher, monkeypatch):
    step, broken = batcher._batch.step, threading.Event()

    def breaks():
        if broken.is_set():
            raise ZeroDivisionError("planted")
        return step()

    monkeypatch.setattr(batcher._batch, "step", breaks)

    async def play():
        tickets = [batcher.submit([prompt(n, 100)], stream_tokens=n % 2 == 0) for n in range(5)]
        async for _ in tickets[0]:
            break
        broken.set()
        results = await asyncio.gather(
            *(ticket.result() for ticket in tickets), return_exceptions=True
        )
        failed = [error for error in results if isinstance(error, GenerationFailed)]
        assert failed and all(
            "planted" in str(e) and isinstance(e.__cause__, ZeroDivisionError) for e in failed
        )
        assert len({id(error) for error in failed}) == len(failed)  # each its own traceback
        return (await batcher.submit([prompt(9)]).result())[0].ids

    assert asyncio.run(play()) == alone(forward, prompt(9))


def test_closing_tells_those_who_wait_and_refuses_new_ones(forward):
    batcher = Batcher(forward, END, max_batch_size=1)

    async def play():
        tickets = [batcher.submit([prompt(n, 200, 0.0)]) for n in range(3)]
        async with asyncio.timeout(5):
            await batcher.aclose()
        for ticket in tickets:
            with pytest.raises(BatcherClosed):
                await ticket.result()
        with pytest.raises(BatcherClosed):
            batcher.submit([prompt(1)])
        await batcher.aclose()  # twice is once

    asyncio.run(play())
    assert not batcher._thread.is_alive()


def test_an_idle_worker_uses_no_time(batcher):
    async def play():
        await batcher.submit([prompt(1)]).result()

    asyncio.run(play())
    gc.collect()
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03


def test_tokens_come_one_by_one_and_make_up_the_whole(forward, batcher):
    async def play():
        ticket = batcher.submit([prompt(1), prompt(2, 5)], stream_tokens=True)
        return [
            token for tokens in [t async for t in ticket] for token in tokens
        ], ticket.generations

    tokens, generations = asyncio.run(play())
    for index, given in enumerate((prompt(1), prompt(2, 5))):
        mine = [token for token in tokens if token.index == index]
        assert [token.id for token in mine] == alone(forward, given) == generations[index].ids
        assert [token.logprob for token in mine] == generations[index].logprobs
        assert [bool(token.finish) for token in mine] == [False] * (len(mine) - 1) + [True]


def test_a_sequence_ends_where_its_condition_says(forward, batcher):
    async def play():
        return await batcher.submit(
            [prompt(1), prompt(2)], should_stop=lambda ids: len(ids) == 3
        ).result()

    for number, generation in enumerate(asyncio.run(play()), 1):
        assert generation.ids == alone(forward, prompt(number))[:3] and generation.finish == "stop"


def test_an_event_loop_that_is_closed_is_forgotten(forward, batcher):
    async def leave():
        batcher.submit([prompt(1, 250 - 20, 0.0)], stream_tokens=True)

    asyncio.run(leave())

    async def ask():
        reply = await batcher.submit([prompt(2)]).result()
        await until(lambda: not batcher._active)
        return reply[0].ids

    assert asyncio.run(ask()) == alone(forward, prompt(2))
