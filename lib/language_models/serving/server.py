"""Lab models behind OpenAI's API, so that any client of it can ask them:

    python -m lib models serve --port 8000
    curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"model": "lab-nano", "messages": [{"role": "user", "content": "47 * 38"}]}'

Only HTTP is dealt with here; what a request means is the business of `answering`.
"""

import argparse
import asyncio
import contextlib
import gc
import hmac
import importlib
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lib.language_models import checkpoints
from lib.language_models.batching import AT_ONCE, WAITING, Busy, Closed, Failed, Left
from lib.language_models.serving.chat_completions import (
    Answering,
    ChatCompletion,
    Refused,
    ServedModel,
)
from lib.language_models.serving.connection import Connection, room

KEY_VARIABLE = "LAB_API_KEY"
MOST_BYTES = 2**20  # of a body
_READ_ON = (
    16 * MOST_BYTES
)  # a body that is too long is read so far, or its sender would not read the answer
_BODY_SECONDS = 30.0
_GRACE_SECONDS = 5
_RETRY_SECONDS = 1
_QUIET_SECONDS = 60.0  # in which one message is logged once, whoever brings it about how often
_DISCONNECTED = 499  # nobody sees it


def encoded(content: Any) -> bytes:
    """JSON in ASCII: the same bytes for the same content."""
    return json.dumps(content, separators=(",", ":")).encode()


class Json(Response):
    """A response in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encoded(content)


def failure(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """An error as OpenAI's API words it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Json(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}, status, headers
    )


class Events(Response):
    """A reply as server-sent events, one a chunk, and [DONE]."""

    def __init__(self, reply: ChatCompletion) -> None:
        super().__init__(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        del self.headers["content-length"]
        self.reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _while_connected(receive, self.reply):
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for data in self._lines():
                await send(
                    {
                        "type": "http.response.body",
                        "body": b"data: " + data + b"\n\n",
                        "more_body": True,
                    }
                )
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.reply.chunks():
                yield encoded(chunk)
            yield b"[DONE]"
        except Left:
            return
        except (Closed, Failed) as error:  # the status is sent already
            yield failure(500, f"the reply broke off: {error}").body


@contextlib.asynccontextmanager
async def _while_connected(receive: Receive, reply: ChatCompletion) -> AsyncIterator[None]:
    """Cancels the reply as soon as the client is gone, and on every way out."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        reply.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        reply.cancel()


# Endpoints ----------------------------------------------------------------------------------------


async def health(request: Request) -> Json:
    return Json({"status": "ok", "models": list(_answering(request).models)})


async def listing(request: Request) -> Json:
    return Json(_answering(request).listing())


async def about(request: Request) -> Json:
    return Json(_answering(request).about(request.path_params["name"]))


async def chat(request: Request) -> Response:
    reply = _answering(request).chat(await _body(request))
    if reply.stream:
        return Events(reply)
    async with _while_connected(request.receive, reply):
        return Json(await reply.whole())


def _answering(request: Request) -> Answering:
    return request.app.state.answering


async def _body(request: Request) -> Any:
    """The JSON of a request. Raises HTTPException for a body that is too long, too slow or no JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        raw = await asyncio.wait_for(_read(request), _BODY_SECONDS)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_BODY_SECONDS:g} s") from None
    if kind != "application/json":
        raise HTTPException(
            400, f"the body must be JSON, with content-type application/json, not {kind[:80]!r}"
        )
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON: {str(error)[:200]}") from None


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= MOST_BYTES:
            parts.append(part)
        elif size > _READ_ON:
            break
    if size > MOST_BYTES:
        raise HTTPException(413, f"a body may have {MOST_BYTES} bytes")
    return b"".join(parts)


# Errors -------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Refused) -> Json:
    return failure(error.status, str(error), error.code, error.param)


async def _busy(request: Request, error: Busy) -> Json:
    return failure(
        429, str(error), "rate_limit_exceeded", headers={"retry-after": str(_RETRY_SECONDS)}
    )


async def _closed(request: Request, error: Closed) -> Json:
    return failure(503, "the server is shutting down", headers={"retry-after": str(_RETRY_SECONDS)})


async def _gone(request: Request, error: Exception) -> Json:
    return failure(_DISCONNECTED, "the client is gone")


async def _http(request: Request, error: HTTPException) -> Json:
    says = {
        404: f"there is no {request.method} {request.url.path[:80]} here",
        405: "that method is not allowed here",
    }
    plain = error.status_code in says
    return failure(
        error.status_code, says[error.status_code] if plain else error.detail, headers=error.headers
    )


async def _broken(request: Request, error: Exception) -> Json:
    return failure(500, f"{type(error).__name__}: {error}")


class _Guard:
    """Lets no request without the key pass to /v1."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and scope["path"].startswith("/v1") and not self._knows(scope):
            message = f"the key is missing or wrong; it goes in the header Authorization: Bearer (see {KEY_VARIABLE})"
            app = failure(401, message, "invalid_api_key", headers={"www-authenticate": "Bearer"})
        await app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self.expected)


class _Named:
    """Lets no request pass that a page of another site may have sent.

    A name can be made to point to this machine, and then the browser sends requests here for whoever owns the name;
    its Host and Origin still tell. So both must be this machine's, or among `allowed`.
    """

    def __init__(self, app: ASGIApp, host: str, allowed: Collection[str] = ()) -> None:
        """host: where the server listens; where others can reach it, any address is its own, but no name is."""
        self.app, self.local = app, _loopback(host)
        self.names = {"localhost", *(name.lower().strip("[].") for name in (host, *allowed))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        for name, value in scope.get("headers", ()):
            if name in (b"host", b"origin") and not self._knows(
                value.decode("latin-1"), name == b"host"
            ):
                said = (
                    f"{name.decode().title()} {value[:80].decode('latin-1')!r} is not this server's"
                )
                app = failure(403, f"{said}; --allow-host NAME lets a name pass", "foreign_host")
        await app(scope, receive, send)

    def _knows(self, value: str, bare: bool) -> bool:
        try:
            name = urlsplit(f"//{value}" if bare else value).hostname or ""
        except ValueError:
            return False
        name = name.removesuffix(".")
        return name in self.names or _loopback(name) or (not self.local and _is_address(name))


class _Seldom(logging.Filter):
    """Lets a message pass once in a while: nobody can fill a disk by sending nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = str(record.msg), time.monotonic()
        fresh = now - self.last.get(message, -_QUIET_SECONDS) >= _QUIET_SECONDS
        if fresh:
            self.last[message] = now
        return fresh


_SELDOM = _Seldom()


def app(
    models: Mapping[str, ServedModel], key: str = "", waiting: int = WAITING, at_once: int = AT_ONCE
) -> Starlette:
    """The server's application. key: what requests must show, if any; waiting: requests that may wait for a
    model, more are told 429; at_once: sequences side by side."""
    answering = Answering(models, waiting, at_once)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await answering.aclose()

    application = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/v1/models", listing, methods=["GET"]),
            Route("/v1/models/{name:path}", about, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ],
        middleware=[Middleware(_Guard, key=key)] if key else [],
        exception_handlers={
            Refused: _refused,
            Busy: _busy,
            Closed: _closed,
            Left: _gone,
            ClientDisconnect: _gone,
            HTTPException: _http,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False
    application.state.answering = answering
    return application


# The process --------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """Ends what is still under way when the time to finish is over, so that its clients are told."""

    def __init__(self, config: uvicorn.Config, answering: Answering) -> None:
        super().__init__(config)
        self.answering = answering

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        async def end() -> None:
            await asyncio.sleep(_GRACE_SECONDS)
            await self.answering.aclose()

        ending = asyncio.create_task(end())
        await super().shutdown(sockets)
        ending.cancel()


def serve(
    application: Starlette,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "warning",
    allowed: Collection[str] = (),
) -> int:
    """Serve until SIGINT or SIGTERM; then what is under way is finished, and nothing new is taken.

    allowed: names under which the server may be addressed besides its own. Returns the exit code: 0. Port 0 takes a
    free one. Raises OSError for a port that cannot be had.
    """
    gc.collect()
    gc.freeze()  # a body of many objects would have the collector walk through torch again and again: .3 s for 1 MB
    Connection.most, backlog = room()
    listening = _listening(host, port, backlog)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, lambda *_: None
        )  # uvicorn raises what it caught once more when it is done
    names = ", ".join(application.state.answering.models)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/v1"
    print(f"lab models at {url}: {names}; Ctrl-C ends it", file=sys.stderr, flush=True)
    _server(application, host, log_level, allowed, backlog).run(sockets=[listening])
    return 0


def _server(
    application: Starlette,
    host: str = "127.0.0.1",
    log_level: str = "warning",
    allowed: Collection[str] = (),
    backlog: int = 64,
) -> _Server:
    config = uvicorn.Config(
        _Named(application, host, allowed),
        log_level=log_level,
        timeout_graceful_shutdown=2 * _GRACE_SECONDS,
        timeout_keep_alive=Connection.patience,
        backlog=backlog,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        server_header=False,
        access_log=log_level != "warning",
    )
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_SELDOM)
    return _Server(config, application.state.answering)


def _listening(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm, 40 ms a reply, off only where the protocol is spelled out
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lib models serve",
        description=f"Serve the lab models at OpenAI's API. {KEY_VARIABLE} holds the key that clients must show.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="default %(default)s: this machine only"
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="default %(default)s; 0 takes a free one"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that requests and pages may address this server by, besides localhost and addresses; repeatable",
    )
    parser.add_argument(
        "--models", type=Path, default=Path("data/models"), help="folder, default %(default)s"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="instead: one Hugging Face folder of any model, such as a pretrained one",
    )
    parser.add_argument(
        "--queue", type=int, default=WAITING, help="requests that may wait, default %(default)s"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="of torch, default %(default)s; 1 is bit-reproducible",
    )
    levels = ["critical", "error", "warning", "info", "debug"]
    parser.add_argument(
        "--log-level", choices=levels, default="warning", help="default %(default)s"
    )
    options = parser.parse_args(arguments)
    if options.queue < 1 or options.threads < 1 or not 0 <= options.port < 2**16:
        parser.error("--queue and --threads are at least 1, --port is from 0 to 65535")
    return options


def _hosted(folder: Path) -> Any:
    """Any causal language model; imported by its place, so that no lesson depends on what this option alone needs."""
    return importlib.import_module("lib.language_models.training.smollm_baseline").HuggingFaceModel(
        folder
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line of the server."""
    options, key = _options(arguments), os.environ.get(KEY_VARIABLE, "").strip()
    try:
        models = checkpoints.load_all(options.models) if options.model is None else {}
        hosted = None if options.model is None else _hosted(options.model)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    torch.set_num_threads(options.threads)
    if not key and not _loopback(options.host):
        print(
            f"warning: anyone who reaches {options.host} can ask; set {KEY_VARIABLE} to a key",
            file=sys.stderr,
        )
    try:
        served = app(models, key, options.queue)
        if hosted is not None:
            served.state.answering = hosted
        return serve(served, options.host, options.port, options.log_level, options.allow_host)
    except OSError as error:
        print(
            f"error: {options.host}:{options.port} cannot be listened at: {error.strerror}",
            file=sys.stderr,
        )
        return 1
