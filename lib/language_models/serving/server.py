"""Lab models and Hugging Face folders behind OpenAI's API, so that any client of it can ask them:

    python -m lib models serve --port 8000
    curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"model": "lab-nano", "temperature": 0, "messages": [{"role": "user", "content": "3 + 4 = ?"}]}'

The reply's content is `<think> 3 + 4 = 7 </think> <answer> 7 </answer>`. Lab models know a few hundred words and refuse
others by name; models of the world are served beside them with `--model FOLDER`.

Only HTTP, the process and the command line are dealt with here; what a request means is the business of
`chat_completions`. Left out: TLS, users, and the older endpoints (`/v1/completions`, `/v1/responses`).
"""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from lib.language_models import checkpoints
from lib.language_models.batching import (
    MAX_BATCH_SIZE,
    MAX_QUEUE_LENGTH,
    BatcherClosed,
    QueueFull,
    RequestCancelled,
)
from lib.language_models.serving.access import (
    KEY_VARIABLE,
    HostGuard,
    KeyGuard,
    LogThrottle,
    is_loopback,
)
from lib.language_models.serving.chat_completions.completion import CompletionModel
from lib.language_models.serving.chat_completions.lab_completion import (
    LabCompletionModel,
    ServedModel,
)
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.language_models.serving.chat_completions.service import CompletionService
from lib.language_models.serving.connection import Connection, measure_room
from lib.language_models.serving.server_responses import (
    EventStream,
    JsonResponse,
    cancel_with_client,
    make_error,
)

MAX_BODY_BYTES = 2**20
# a body that is too long is read so far, or its sender would not read the answer
MAX_READ_BYTES = 16 * MAX_BODY_BYTES
BODY_SECONDS = 30.0
GRACE_SECONDS = 5
RETRY_SECONDS = 1
STATUS_DISCONNECTED = 499  # nobody sees it
LOG_THROTTLE = LogThrottle()

EXAMPLES = """examples:
  python -m lib models serve
  python -m lib models serve --model data/pretrained/SmolLM2-135M-Instruct --threads 4
  python -m lib models serve --no-lab --model ~/models/Qwen3-0.6B --model ~/models/SmolLM3-3B
  LAB_API_KEY=secret python -m lib models serve --host 0.0.0.0 --allow-host lab.example.org

then ask it:
  curl http://127.0.0.1:8000/v1/models
  curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
      -d '{"model": "lab-nano", "temperature": 0, "messages": [{"role": "user", "content": "3 + 4 = ?"}]}'
"""


# Endpoints ----------------------------------------------------------------------------------------


async def report_health(request: Request) -> JsonResponse:
    """GET /health: that the server runs, and the names of its models."""
    return JsonResponse({"status": "ok", "models": list(_get_service(request).models)})


async def list_models(request: Request) -> JsonResponse:
    """GET /v1/models: all models."""
    return JsonResponse(_get_service(request).list_models())


async def describe_model(request: Request) -> JsonResponse:
    """GET /v1/models/NAME: one model."""
    return JsonResponse(_get_service(request).describe_model(request.path_params["name"]))


async def complete_chat(request: Request) -> Response:
    """Handles POST /v1/chat/completions: a model's reply to a conversation.

    Args:
        request: Its body is JSON as OpenAI's API has it.

    Returns:
        The whole completion as JSON, or server-sent events where the body has "stream": true. Either ends the
        generation when the client disconnects.
    """
    body = await _read_json(request)
    completion = await _get_service(request).start_completion(body)
    if completion.is_streamed:
        return EventStream(completion)
    async with cancel_with_client(request.receive, completion):
        return JsonResponse(await completion.complete())


def _get_service(request: Request) -> CompletionService:
    return request.app.state.service


async def _read_json(request: Request) -> Any:
    """Read the body of a request as JSON.

    Args:
        request: Not read yet.

    Returns:
        The JSON as Python values.

    Raises:
        HTTPException: For a body that is too long (status 413), too slow (408) or no JSON (400).
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        body = await asyncio.wait_for(_read_bytes(request), BODY_SECONDS)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None
    if content_type != "application/json":
        raise HTTPException(
            400,
            f"the body must be JSON, with content-type application/json, not {content_type[:80]!r}",
        )
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON: {str(error)[:200]}") from None


async def _read_bytes(request: Request) -> bytes:
    """Read the body of a request. Raises HTTPException with status 413 for more than MAX_BODY_BYTES."""
    pieces = []
    num_bytes = 0
    async for piece in request.stream():
        num_bytes += len(piece)
        if num_bytes <= MAX_BODY_BYTES:
            pieces.append(piece)
        elif num_bytes > MAX_READ_BYTES:
            break  # a body that is a little too long is read to its end, so that the client reads the error
    if num_bytes > MAX_BODY_BYTES:
        raise HTTPException(413, f"a body may have {MAX_BODY_BYTES} bytes")
    return b"".join(pieces)


# Errors -------------------------------------------------------------------------------------------


async def _answer_refused(request: Request, error: RequestRefused) -> JsonResponse:
    """The response to a request that cannot be honoured: mostly status 400, with the parameter at fault."""
    return make_error(error.status, str(error), error.code, error.param)


async def _answer_queue_full(request: Request, error: QueueFull) -> JsonResponse:
    """The response where too many requests wait: status 429, and after how many seconds to try again."""
    headers = {"retry-after": str(RETRY_SECONDS)}
    return make_error(429, str(error), "rate_limit_exceeded", headers=headers)


async def _answer_closed(request: Request, error: BatcherClosed) -> JsonResponse:
    """The response while the server shuts down: status 503."""
    headers = {"retry-after": str(RETRY_SECONDS)}
    return make_error(503, "the server is shutting down", headers=headers)


async def _answer_disconnected(request: Request, error: Exception) -> JsonResponse:
    return make_error(STATUS_DISCONNECTED, "the client is gone")


async def _answer_http_error(request: Request, error: HTTPException) -> JsonResponse:
    """Makes the response to an error of HTTP, such as an unknown path (404) or method (405)."""
    message = error.detail
    if error.status_code == 404:
        message = f"there is no {request.method} {request.url.path[:80]} here"
    elif error.status_code == 405:
        message = "that method is not allowed here"
    return make_error(error.status_code, message, headers=error.headers)


async def _answer_defect(request: Request, error: Exception) -> JsonResponse:
    """The response to an unexpected exception: status 500, with the exception in one line."""
    reason = " ".join(str(error).split())
    return make_error(500, f"{type(error).__name__}: {reason}")


# The application ----------------------------------------------------------------------------------


def app(
    models: Sequence[CompletionModel] | dict[str, ServedModel],
    key: str = "",
    max_queue_length: int = MAX_QUEUE_LENGTH,
    max_batch_size: int = MAX_BATCH_SIZE,
) -> Starlette:
    """Build the web application that serves models at OpenAI's API.

    Args:
        models: The models that are served; or lab models (small transformers that were trained here) by name, as
            loaded weights.
        key: The API key that requests must send; "" lets all pass.
        max_queue_length: Number of requests that may wait for a lab model; more are answered with status 429.
        max_batch_size: Number of sequences that a lab model generates at once, at most.

    Returns:
        The ASGI application.
    """
    if isinstance(models, dict):
        models = [
            LabCompletionModel(model, max_queue_length, max_batch_size) for model in models.values()
        ]
    return make_application(CompletionService(models), key)


def make_application(
    service: CompletionService, key: str = "", extra_routes: Sequence[Route] = ()
) -> Starlette:
    """Build the web application of a service that completes chats.

    Args:
        service: The models by name; or anything else with `models`, `start_completion`, `list_models`,
            `describe_model` and `aclose`, such as a router.
        key: The API key that requests to /v1 must send; "" lets all pass.
        extra_routes: Further addresses.

    Returns:
        The ASGI application.
    """

    @contextlib.asynccontextmanager
    async def close_after_serving(_: Starlette) -> AsyncIterator[None]:
        yield  # the server runs
        await service.aclose()

    application = Starlette(
        routes=[
            Route("/health", report_health, methods=["GET"]),
            Route("/v1/models", list_models, methods=["GET"]),
            Route("/v1/models/{name:path}", describe_model, methods=["GET"]),
            Route("/v1/chat/completions", complete_chat, methods=["POST"]),
            *extra_routes,
        ],
        middleware=[Middleware(KeyGuard, key=key)] if key else [],
        exception_handlers={
            RequestRefused: _answer_refused,
            QueueFull: _answer_queue_full,
            BatcherClosed: _answer_closed,
            RequestCancelled: _answer_disconnected,
            ClientDisconnect: _answer_disconnected,
            HTTPException: _answer_http_error,
            Exception: _answer_defect,
        },
        lifespan=close_after_serving,
    )
    application.router.redirect_slashes = False
    application.state.service = service
    return application


# The process --------------------------------------------------------------------------------------


class GracefulServer(uvicorn.Server):
    """A uvicorn server that ends unfinished completions GRACE_SECONDS after it is told to shut down.

    Their clients get an error then, instead of a connection that breaks off.
    """

    def __init__(self, config: uvicorn.Config, service: CompletionService) -> None:
        """
        Args:
            config: Configuration of uvicorn.
            service: The models, which generate in threads of their own.
        """
        super().__init__(config)
        self.service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the requests under way; after GRACE_SECONDS, end their completions with an error."""

        async def close_models_after_grace() -> None:
            await asyncio.sleep(GRACE_SECONDS)
            await self.service.aclose()

        closing = asyncio.create_task(close_models_after_grace())
        await super().shutdown(sockets)  # returns when all requests are answered
        closing.cancel()


def serve(
    application: Starlette,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "warning",
    allowed_names: Collection[str] = (),
) -> int:
    """Serve a web application until SIGINT or SIGTERM; then requests under way are finished, and no new ones taken.

    Args:
        application: The application with the models, see `app`.
        host: The address to listen at.
        port: The port to listen at; 0 takes a free one.
        log_level: Level of uvicorn.
        allowed_names: Host names by which requests may address the server, besides localhost and addresses.

    Returns:
        The exit code: 0.

    Raises:
        OSError: Where the port cannot be listened at.
    """
    # Objects that exist now are taken out of garbage collection: parsing a body with many objects would have the
    # collector walk through all of torch again and again, .3 s for 1 MB.
    gc.collect()
    gc.freeze()

    # As many connections as this process may have open files.
    Connection.max_connections, backlog = measure_room()
    listening = _listen(host, port, backlog)

    # uvicorn raises the signal that it caught once more when it is done; that one shall do nothing.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    names = ", ".join(application.state.service.models)
    shown_host = f"[{host}]" if ":" in host else host
    url = f"http://{shown_host}:{listening.getsockname()[1]}/v1"
    print(f"serving models at {url}: {names}; Ctrl-C ends it", file=sys.stderr, flush=True)
    make_server(application, host, log_level, allowed_names, backlog).run(sockets=[listening])
    return 0


def make_server(
    application: Starlette,
    host: str = "127.0.0.1",
    log_level: str = "warning",
    allowed_names: Collection[str] = (),
    backlog: int = 64,
) -> GracefulServer:
    """Make the uvicorn server of an application, which does not listen yet.

    Args:
        application: The application with the models, see `app`.
        host: The address that it will listen at, which requests may name.
        log_level: Level of uvicorn; at any but "warning", requests are logged, too.
        allowed_names: Host names by which requests may address the server, besides localhost and addresses.
        backlog: Number of connections that may wait until they are accepted.

    Returns:
        The server, to be run with a listening socket.
    """
    config = uvicorn.Config(
        HostGuard(application, host, allowed_names),
        log_level=log_level,
        timeout_graceful_shutdown=2 * GRACE_SECONDS,
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
        logging.getLogger(name).addFilter(LOG_THROTTLE)
    return GracefulServer(config, application.state.service)


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    """Open a TCP socket that listens at an address. Raises OSError where that is not possible.

    Args:
        host: A name, or an address of IPv4 or IPv6.
        port: 0 takes a free one.
        backlog: Number of connections that may wait until they are accepted.

    Returns:
        The socket.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm, which delays a reply by 40 ms, only where the protocol is spelled out.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


# The command line ---------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m lib models serve`: load the models and serve them until Ctrl-C.

    Args:
        arguments: Arguments of the command line; None takes those of the process.

    Returns:
        The exit code: 0, or 1 where models cannot be loaded or the port cannot be listened at.
    """
    options = _parse_options(arguments)
    key = os.environ.get(KEY_VARIABLE, "").strip()

    # Imported here: the transport of this process needs no folders, and no released weights.
    from lib.language_models.serving.model_sources import load_models

    torch.set_num_threads(options.threads)
    lab_folder = None if options.no_lab else options.models
    try:
        models = load_models(lab_folder, options.model, options.queue)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        print(f"error: {reason}", file=sys.stderr)
        return 1

    if not key and not is_loopback(options.host):
        print(
            f"warning: anyone who reaches {options.host} can ask; set {KEY_VARIABLE} to a key",
            file=sys.stderr,
        )
    try:
        application = app(models, key)
        return serve(application, options.host, options.port, options.log_level, options.allow_host)
    except OSError as error:
        print(
            f"error: {options.host}:{options.port} cannot be listened at: {error.strerror}",
            file=sys.stderr,
        )
        return 1


def _parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake in it prints the usage and ends the process with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m lib models serve",
        description="Serve the lab models, and any Hugging Face folders, at OpenAI's API. The environment variable "
        f"{KEY_VARIABLE} holds the key that clients must show; without it all may ask.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="default %(default)s: this machine only")
    add("--port", type=int, default=8000, help="default %(default)s; 0 takes a free one")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that requests and pages may address this server by, besides localhost and addresses; repeatable",
    )
    add(
        "--models",
        type=Path,
        default=checkpoints.MODELS,
        metavar="FOLDER",
        help="of the lab models; default data/models, and released weights for those that it lacks",
    )
    add("--no-lab", action="store_true", help="serve no lab models, only those of --model")
    add(
        "--model",
        action="append",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="a Hugging Face folder to serve as well, under its name; repeatable",
    )
    add(
        "--queue",
        type=int,
        default=MAX_QUEUE_LENGTH,
        help="requests that may wait for a model, default %(default)s",
    )
    add(
        "--threads",
        type=int,
        default=1,
        help="of torch, default %(default)s, which is bit-reproducible; more are faster for a folder on a CPU",
    )
    levels = ["critical", "error", "warning", "info", "debug"]
    add("--log-level", choices=levels, default="warning", help="default %(default)s")

    options = parser.parse_args(arguments)
    if options.queue < 1 or options.threads < 1 or not 0 <= options.port < 2**16:
        parser.error("--queue and --threads are at least 1, --port is from 0 to 65535")
    if options.no_lab and not options.model:
        parser.error("--no-lab leaves nothing to serve; name a folder with --model")
    return options
