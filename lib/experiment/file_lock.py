"""A lock between processes, so that notebooks which are open at once do not make the same folder twice.

    with hold_lock(runs / "publishing.lock"):
        ...

The operating system frees it when its holder dies, however. Left out: file systems without locks (some of those that
clusters share), where nobody waits.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold_lock(path: str | Path) -> Iterator[None]:
    """Waits until no other process holds the lock, and holds it inside the `with` block.

    Args:
        path: An empty file, made if it is not there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        with contextlib.suppress(OSError):  # this file system has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
