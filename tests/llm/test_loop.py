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


def test_a_coroutine_gives_its_result(loop):
    async def doubled(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    assert loop.run(doubled(21)) == 42


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


def test_two_loops_are_apart(loop):
    other = Loop()
    try:
        assert loop.run(place())[0] is not other.run(place())[0]
    finally:
        other.close()


def refuses(closed: Loop) -> bool:
    """Whether a loop takes no more work."""
    late = asyncio.sleep(0)
    try:
        closed.run(late)
    except RuntimeError:
        return True
    finally:
        late.close()
    return False


def test_closing_ends_the_loop_and_its_thread():
    made = Loop()
    inner, thread = made.run(place())
    made.close()
    assert inner.is_closed() and not thread.is_alive() and refuses(made)


def test_a_loop_that_was_never_used_can_be_closed():
    made = Loop()
    made.close()
    assert refuses(made)
