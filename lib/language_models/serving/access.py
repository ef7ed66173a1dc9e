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
    """Lets no request without the key pass to /v1."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        keys = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(keys) == 1 and hmac.compare_digest(keys[0], self.expected)


class HostGuard:
    """Lets no request pass that a page of another site may have sent.

    A name can be made to point to this machine, and then the browser sends requests here for whoever owns the name;
    its Host and Origin still tell. So both must be this machine's, or among those that are allowed.
    """

    def __init__(self, app: ASGIApp, host: str, allowed_names: Collection[str] = ()) -> None:
        """Guard an application.

        Args:
            app: The application.
            host: Where the server listens; where others can reach it, any address is its own, but no name is.
            allowed_names: Names that pass besides.
        """
        self.app = app
        self.is_local = is_loopback(host)
        names = [host, *allowed_names]
        self.names = {"localhost", *(name.lower().strip("[].") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        """Whether a header names this machine.

        Args:
            value: Of the header.
            is_host: Whether it is Host, which has no scheme; else it is Origin.

        Returns:
            Whether the request may pass.
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
    """Lets a message pass once in a while: nobody can fill a disk by sending nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.last_logged: dict[str, float] = {}  # seconds of a monotonic clock, by message

    def filter(self, record: logging.LogRecord) -> bool:
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
