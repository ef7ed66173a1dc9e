"""An event loop of one's own, in a thread of its own, that lives as long as the clients on it.

A client's connections belong to the loop that opened them, so batches of calls that follow one another share one
loop; and a notebook has a loop already, which may not wait for another one.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class EventLoopThread:
    """Runs coroutines one after another. `close` it at the end."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine in the thread's event loop and waits for its result; Ctrl-C cancels it.

        Args:
            work: The coroutine.

        Returns:
            Its result.

        Raises:
            BaseException: Whatever it raises.
        """
        future = self._thread.submit(self._runner.run, work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self._cancel_work()
            raise

    def _cancel_work(self) -> None:
        """Cancel whatever runs on the loop."""
        loop = self._runner.get_loop()

        def cancel_tasks() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        loop.call_soon_threadsafe(cancel_tasks)

    def close(self) -> None:
        """End the loop and its thread."""
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


def run_coroutine(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine and returns its result, also where an event loop runs already, as in a notebook.

    Args:
        coroutine: What is run to its end.

    Returns:
        Its result; what it raises is raised here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # The loop that runs here may not wait for another one, so the coroutine gets a thread of its own.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
