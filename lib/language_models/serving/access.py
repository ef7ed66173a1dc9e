"""Who may ask the server: holders of the key, and pages of this machine; and a log that nobody can fill.

The first two are ASGI middleware, around the application or around all of it. Left out: users, roles, TLS.
"""

import hmac
import ipaddress
import logging
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from lib.language_models.serving.server_responses import make_error

KEY_VARIABLE = "LAB_API_KEY"
LOG_INTERVAL_SECONDS = (
    60.0  # in which one message is logged once, whoever brings it about how often
)


class KeyGuard:
    """ASGI middleware that answers requests to /v1 without the API key with status 401."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        """
        Args:
            app: The application that gets the other requests.
            key: Requests send it in the header Authorization, as "Bearer KEY".
        """
        self.app = app
        self.expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request to the application, or to an error response in its place."""
        app = self.app
        is_guarded = scope["type"] == "http" and scope["path"].startswith("/v1")
        if is_guarded and not self._holds_key(scope):
            app = make_error(
                401,
                f"the key is missing or wrong; it goes in the header Authorization: Bearer (see {KEY_VARIABLE})",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        await app(scope, receive, send)

    def _holds_key(self, scope: Scope) -> bool:
        """Whether a request has exactly one header Authorization, with the right key."""
        keys = [value for name, value in scope["headers"] if name == b"authorization"]
        # compare_digest takes the same time wherever the first wrong letter is, so time tells nothing of the key.
        return len(keys) == 1 and hmac.compare_digest(keys[0], self.expected)


class HostGuard:
    """ASGI middleware that answers requests with status 403 that a web page of another site may have sent.

    Who owns a domain can make it point to this machine (DNS rebinding); a browser that shows a page of that domain
    then sends the page's requests here. Their headers Host and Origin still name the domain. So both must name this
    machine, or be among those that are allowed.
    """

    def __init__(self, app: ASGIApp, host: str, allowed_names: Collection[str] = ()) -> None:
        """
        Args:
            app: The application that gets the requests that pass.
            host: The address that the server listens at. If other machines can reach it, any IP address passes.
            allowed_names: Host names that pass besides localhost.
        """
        self.app = app
        self.is_local = is_loopback(host)
        names = [host, *allowed_names]
        self.names = {"localhost", *(name.lower().strip("[].") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request to the application, or to an error response in its place."""
        app = self.app
        for name, value in scope.get("headers", ()):
            if name not in (b"host", b"origin"):
                continue
            text = value.decode("latin-1")
            if not self.allows(text, is_host=name == b"host"):
                app = make_error(
                    403,
                    f"{name.decode().title()} {text[:80]!r} is not this server's; --allow-host NAME lets a name pass",
                    "foreign_host",
                )
        await app(scope, receive, send)

    def allows(self, value: str, is_host: bool) -> bool:
        """Whether the value of a Host or Origin header names this machine, or an allowed name.

        Args:
            value: Such as "localhost:8000" (Host) or "http://localhost:8000" (Origin).
            is_host: Whether the header is Host, whose value has no scheme; else it is Origin.

        Returns:
            Whether a request with this header may pass.
        """
        try:
            name = urlsplit(f"//{value}" if is_host else value).hostname or ""
        except ValueError:
            return False
        name = name.removesuffix(".")
        if name in self.names or is_loopback(name):
            return True
        return not self.is_local and is_address(name)


class LogThrottle(logging.Filter):
    """A logging filter that lets each message pass once in LOG_INTERVAL_SECONDS.

    So nobody can fill the disk by sending requests that are logged as wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last_logged: dict[str, float] = {}  # seconds of a monotonic clock, by message

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged: not if its message was logged within the interval."""
        message = str(record.msg)
        now = time.monotonic()
        if now - self.last_logged.get(message, -LOG_INTERVAL_SECONDS) < LOG_INTERVAL_SECONDS:
            return False
        self.last_logged[message] = now
        return True


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(host: str) -> bool:
    """Whether a host is an IP address and no name."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False
