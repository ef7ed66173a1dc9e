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
    """Kill this process as soon as its parent is gone. Call it first thing in a child.

    parent: its process id, if the child was told; a parent that died before this line would go
    unnoticed otherwise.

    On Linux the signal is tied to the *thread* that started the child: start children from a
    thread that lives as long as the process, such as the main one.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the bond was made
            os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
