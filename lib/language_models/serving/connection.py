"""One client's connection to the server: idle ones are cheap and short-lived, so that requests find room.

uvicorn counts requests and closes a connection that is idle after a reply. Added here are a limit of connections, a
time in which a request's head must arrive and a reply must be read, and replies for clients that close their half of
the connection once they have sent their request.
"""

import asyncio
import contextlib
import os
import socket
from enum import IntEnum
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 2_048  # each takes about 20 kB
MAX_BACKLOG = 64  # connections that the system may hold until they are accepted
RESET_CHECK_SECONDS = 0.1  # between two checks whether a client that sends no more is still there


class ConnectionState(IntEnum):
    """How far a client is with its request; the lowest is the first to be cut off for lack of room."""

    SILENT = 0
    ANSWERED = 1
    SENDING = 2
    WAITING = 3


def measure_room() -> tuple[int, int]:
    """Compute how many client connections this process can hold, after raising its limit of open files.

    Returns:
        (max_connections, backlog): how many connections there may be at once, so that files are left for all else,
        and how many more may wait until they are accepted.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS, MAX_BACKLOG

    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 2 * MAX_CONNECTIONS
    if hard_limit != resource.RLIM_INFINITY:
        target = min(hard_limit, target)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < target:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))
            soft_limit = target

    # Every connection is an open file.
    num_allowed = target if soft_limit == resource.RLIM_INFINITY else soft_limit
    num_free = num_allowed - len(os.listdir("/dev/fd"))
    backlog = max(1, min(MAX_BACKLOG, num_free // 6))
    # A connection that is cut off to make room gives its file back two rounds of the event loop later, so files for
    # three backlogs stay free.
    max_connections = max(1, min(MAX_CONNECTIONS, num_free - 3 * (backlog + 1)))
    return max_connections, backlog


class Connection(H11Protocol):
    """A connection with limits of time and number.

    A client that brings no whole head of a request within `patience` seconds, or does not read on for so long, is cut
    off. Above `max_connections` the one with the lowest state is, and of those the oldest: first the silent, then those
    that have their reply, then those whose request is still arriving. One that waits for its reply is never cut off,
    and so the newest is, if all others wait.

    Attributes:
        max_connections: Largest number of connections of all clients at once.
        patience: Seconds.
    """

    max_connections: ClassVar[int] = MAX_CONNECTIONS
    patience: ClassVar[int] = 10

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timers of a new connection, and cut another one off where there are too many."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()  # when it was made or had its last reply
        self.is_half_closed = False  # whether the client sends no more
        self.idle_timer = self.loop.call_later(self.patience, self._cut_off_if_idle)
        self.read_timer = self.idle_timer
        if len(self.connections) > self.max_connections:
            # The connection that is least far with a request, and of those the oldest.
            least_needed = min(
                self.connections, key=lambda connection: (connection.state, connection.idle_since)
            )
            self.connections.discard(least_needed)
            least_needed.transport.abort()

    @property
    def state(self) -> ConnectionState:
        """How far the client is with its request; `cycle`, of uvicorn, is the request and its response."""
        if self.cycle is None:
            return ConnectionState.SILENT
        if self.cycle.response_complete:
            return ConnectionState.ANSWERED
        return ConnectionState.SENDING if self.cycle.more_body else ConnectionState.WAITING

    @property
    def is_idle(self) -> bool:
        return self.state in (ConnectionState.SILENT, ConnectionState.ANSWERED)

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle_timer.cancel()
        self.read_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Count idle time from the end of a response; close the connection of a client that sends no more."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
        if self.is_half_closed and self.is_idle:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.read_timer = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.read_timer.cancel()

    def eof_received(self) -> bool:
        """Handle the end of what a client sends: keep the connection open if the client waits for a reply.

        A client that is gone sends the same as one that waits for its reply. To tell them apart, the client is sent
        an interim response (100 Continue), which every client skips; the machine of a client that is gone answers it
        with a reset.

        Returns:
            Whether the connection stays open, as asyncio has it.
        """
        self.is_half_closed = self.state == ConnectionState.WAITING
        if self.is_half_closed:
            if self.conn.our_state is h11.SEND_RESPONSE and self.scope["http_version"] != "1.0":
                line_to_skip = h11.InformationalResponse(status_code=100, headers=[])
                self.transport.write(self.conn.send(line_to_skip))
            self._cut_off_after_reset()
        return self.is_half_closed

    def _cut_off_after_reset(self) -> None:
        """Cut the connection off if the client's machine has sent a reset; else look again in a moment."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.idle_timer.cancel()
            self.idle_timer = self.loop.call_later(RESET_CHECK_SECONDS, self._cut_off_after_reset)

    def _cut_off_if_idle(self) -> None:
        """Cut the connection off if it has been idle for `patience` seconds; else look again when it may have been."""
        remaining_seconds = float(self.patience)
        if self.is_idle:
            remaining_seconds += self.idle_since - self.loop.time()
        if remaining_seconds <= 0:
            self.transport.abort()
        else:
            self.idle_timer = self.loop.call_later(remaining_seconds, self._cut_off_if_idle)
