"""An event loop in a thread of its own: one for many batches, also where a loop runs already."""

import asyncio
import signal
import threading

import pytest

from lib.llm.event_loop import EventLoopThread, run_coroutine


@pytest.fixture
def loop():
    made = EventLoopThread()
    yield made
    made.close()


async def place() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()


def test_one_batch_after_another_has_the_same_loop_in_the_same_thread_also_where_a_loop_runs_already(
    loop,
):
    async def notebook():
        return loop.run(place()), await place()

    inside, outside = asyncio.run(notebook())
    assert loop.run(place()) == loop.run(place()) == inside
    assert inside[0] is not outside[0] and inside[1] is not outside[1]


def test_what_a_coroutine_raises_comes_out_and_the_loop_lives_on(loop):
    async def wrong():
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        loop.run(wrong())
    assert loop.run(asyncio.sleep(0, "alive")) == "alive"


@pytest.mark.parametrize("used", [True, False])
def test_closing_ends_a_loop_and_its_thread_and_no_other(used, loop):
    made, late = EventLoopThread(), asyncio.sleep(0)
    inner, thread = made.run(place()) if used else (None, None)
    assert loop.run(place())[0] is not inner
    made.close()
    assert not used or (inner.is_closed() and not thread.is_alive())
    with pytest.raises(RuntimeError):
        made.run(late)
    late.close()
    assert loop.run(asyncio.sleep(0, "alive")) == "alive"


async def name_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise KeyError("in there")


def test_without_a_loop_a_coroutine_runs_here():
    assert run_coroutine(name_thread()) == threading.current_thread().name


def test_beside_a_notebooks_loop_a_coroutine_runs_in_a_thread_of_its_own():
    async def notebook():
        return run_coroutine(name_thread()), run_coroutine(name_thread())

    assert threading.current_thread().name not in asyncio.run(notebook())


def test_what_goes_wrong_in_a_coroutine_comes_out():
    with pytest.raises(KeyError, match="in there"):
        run_coroutine(fail())

    async def notebook():
        run_coroutine(fail())

    with pytest.raises(KeyError, match="in there"):
        asyncio.run(notebook())


def test_ctrl_c_cancels_what_runs_and_the_loop_lives_on(loop):
    ended = []

    async def wait_long() -> None:
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        loop.run(wait_long())
    assert loop.run(asyncio.sleep(0, "alive")) == "alive"
    assert ended
