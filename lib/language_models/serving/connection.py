"""One client's connection to the server, as cheap as it may be: what asks nothing makes room for what does.

uvicorn counts requests and closes a connection that is idle after a reply. Added here are a limit of
connections, a time in which a request's head and the reading of a reply must come about, and a reply for
clients that close their half once they have asked.
"""

import asyncio
import contextlib
import os
import socket
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 2_048  # connections at once; each takes about 20 kB
BACKLOG = 64  # connections that the system may hold until they are accepted
_LOOK_SECONDS = 0.1  # between two looks whether a client that sends no more is still there


def room() -> tuple[int, int]:
    """How many connections there may be at once and how many may wait, so that files are left for all else.

    Raises this process's own limit of open files where the system lets it.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST, BACKLOG
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST if most == resource.RLIM_INFINITY else min(most, 2 * MOST)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            allowed = wanted
    free = (wanted if allowed == resource.RLIM_INFINITY else allowed) - len(os.listdir("/dev/fd"))
    backlog = max(1, min(BACKLOG, free // 6))
    # a connection that makes room gives its file back two rounds of the event loop later
    return max(1, min(MOST, free - 3 * (backlog + 1))), backlog


class Connection(H11Protocol):
    """Who brings no whole head of a request within `patience` seconds, or does not read on for so long, is cut off.

    Above `most` connections the one that is dispensed with most easily is: the oldest of those that never asked,
    then of those that have their reply, then of those whose request is still arriving. One that waits for its reply
    is never cut off, and so the newest is, if all others wait.
    """

    most: ClassVar[int] = MOST
    patience: ClassVar[int] = 10

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()  # when it was made or had its last reply
        self.halved = False  # whether the client sends no more
        self.watch = self.unread = self.loop.call_later(self.patience, self._look_at_the_clock)
        if len(self.connections) > self.most:
            spare = min(self.connections, key=lambda other: (other.standing, other.since))
            self.connections.discard(spare)
            spare.transport.abort()

    @property
    def standing(self) -> int:
        """How dear it is: 0 asked nothing yet, 1 has its reply, 2 is still asking, 3 waits for its reply."""
        if self.cycle is None:
            return 0
        if self.cycle.response_complete:
            return 1
        return 2 if self.cycle.more_body else 3

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.cancel()
        self.unread.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()
        if self.halved and self.standing < 2:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.cancel()

    def eof_received(self) -> bool:
        """True, which keeps the connection, where a whole request waits for its reply.

        A client that is gone says the same as one that waits. So it is sent a line that every client skips: the
        machine of one that is gone answers it with a reset.
        """
        self.halved = self.standing == 3
        if self.halved:
            if self.conn.our_state is h11.SEND_RESPONSE and self.scope["http_version"] != "1.0":
                self.transport.write(
                    self.conn.send(h11.InformationalResponse(status_code=100, headers=[]))
                )
            self._look_for_a_reset()
        return self.halved

    def _look_for_a_reset(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.watch.cancel()
            self.watch = self.loop.call_later(_LOOK_SECONDS, self._look_for_a_reset)

    def _look_at_the_clock(self) -> None:
        idle = self.standing < 2
        left = self.since + self.patience - self.loop.time() if idle else self.patience
        if left <= 0:
            self.transport.abort()
        else:
            self.watch = self.loop.call_later(left, self._look_at_the_clock)
