"""No orphans: a process that is to die with the one that started it.

Linux has a parent-death signal. Elsewhere a thread watches the parent's id twice a second.
"""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Makes this process die as soon as its parent is gone. Call it first thing in a child.

    On Linux the signal is tied to the *thread* that started the child: start children from a
    thread that lives as long as the process, such as the main one.

    Args:
        parent: The parent's process id, if it is known; otherwise a parent that died before this call goes unnoticed.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the signal was set up
            os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
