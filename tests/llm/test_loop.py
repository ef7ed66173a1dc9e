"""An event loop in a thread of its own: one for many batches, also where a loop runs already."""

import asyncio
import threading

import pytest

from lib.llm.loop import Loop


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


async def place() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()


def test_one_batch_after_another_has_the_same_loop_in_the_same_thread(loop):
    first, second = loop.run(place()), loop.run(place())
    assert first == second and first[1] is not threading.current_thread()


def test_what_a_coroutine_raises_comes_out_and_the_loop_lives_on(loop):
    async def wrong():
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        loop.run(wrong())
    assert loop.run(asyncio.sleep(0, "alive")) == "alive"


def test_it_works_where_a_loop_runs_already(loop):
    async def notebook():
        return loop.run(place())[0] is not asyncio.get_running_loop()

    assert asyncio.run(notebook())


def test_what_was_opened_in_one_batch_can_be_used_in_the_next(loop):
    async def opened():
        return asyncio.Event(), asyncio.get_running_loop().create_future()

    async def used(event, future):
        event.set()
        future.set_result("done")
        await event.wait()
        return await future

    assert loop.run(used(*loop.run(opened()))) == "done"


@pytest.mark.parametrize("used", [True, False])
def test_closing_ends_a_loop_and_its_thread_and_no_other(used, loop):
    made, late = Loop(), asyncio.sleep(0)
    inner, thread = made.run(place()) if used else (None, None)
    assert loop.run(place())[0] is not inner
    made.close()
    assert not used or (inner.is_closed() and not thread.is_alive())
    with pytest.raises(RuntimeError):
        made.run(late)
    late.close()
    assert loop.run(asyncio.sleep(0, "alive")) == "alive"
