"""No orphans: a process that is to die with the one that started it, and that clears up when it is told to stop.

Linux has a parent-death signal. Elsewhere a thread watches the parent's id twice a second.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None, number: int = signal.SIGKILL) -> None:
    """Makes this process end as soon as its parent is gone. Call it first thing in a child.

    On Linux the signal is tied to the *thread* that started the child: start children from a
    thread that lives as long as the process, such as the main one.

    Args:
        parent: The parent's process id, if it is known; otherwise a parent that died before this call goes unnoticed.
        number: The signal that this process gets then; SIGTERM where it has something to clear up.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the signal was set up
            os.kill(os.getpid(), number)
        return
    threading.Thread(target=_watch_parent, args=(parent, number), daemon=True).start()


def clear_up_at_signals(numbers: Sequence[int], max_seconds: int = 0) -> None:
    """Lets the first of these signals end this process through its `finally` blocks.

    Those that come while it clears up, as they do where a whole group is told to stop, change nothing.

    Args:
        numbers: Signals; one that is ignored already, as under nohup, stays ignored.
        max_seconds: After which clearing up is cut off; 0 for never.
    """

    def stop(number: int, *_) -> None:
        for later in numbers:
            signal.signal(later, signal.SIG_IGN)
        signal.alarm(max_seconds)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


def _watch_parent(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), number)
