"""Responses of the server: JSON, errors as OpenAI's API words them, and a chat completion as server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lib.language_models.batching import BatcherClosed, GenerationFailed, RequestCancelled
from lib.language_models.serving.chat_completions.completion import ChatCompletion
from lib.language_models.serving.chat_completions.request import RequestRefused


class JsonResponse(Response):
    """A response in ASCII JSON: the same bytes for the same content."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode_json(content)


class EventStream(Response):
    """A response that streams a chat completion as server-sent events: one a chunk, and [DONE] at the end."""

    def __init__(self, completion: ChatCompletion) -> None:
        """
        Args:
            completion: Under way; it is cancelled when the client disconnects.
        """
        super().__init__(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        # The length of a stream is not known beforehand.
        del self.headers["content-length"]
        self.completion = completion

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, as an ASGI application: the head of the response, a message an event, an empty last one."""
        async with cancel_with_client(receive, self.completion):
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for data in self._iterate_data():
                event = b"data: " + data + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _iterate_data(self) -> AsyncIterator[bytes]:
        """Yield the content of each event, JSON; an error that happens under way is the last one."""
        # The status of the response has been sent already, so an error can only be told as an event.
        try:
            async for chunk in self.completion.iterate_chunks():
                yield encode_json(chunk)
            yield b"[DONE]"
        except RequestCancelled:
            return
        except RequestRefused as error:
            yield make_error(error.status, str(error), error.code, error.param).body
        except (BatcherClosed, GenerationFailed) as error:
            yield make_error(500, f"the reply broke off: {error}").body


@contextlib.asynccontextmanager
async def cancel_with_client(receive: Receive, completion: ChatCompletion) -> AsyncIterator[None]:
    """A context manager that cancels a completion when its client disconnects, and when the block ends.

    Args:
        receive: The ASGI channel of the request, which reports that the client disconnected.
        completion: What the client waits for; cancelling a finished one does nothing.
    """

    async def cancel_after_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        completion.cancel()

    watcher = asyncio.create_task(cancel_after_disconnect())
    try:
        yield
    finally:
        watcher.cancel()
        completion.cancel()


def make_error(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """Make an error response with the JSON that OpenAI's API has for errors.

    Args:
        status: HTTP status; from 500 on the server is at fault, below the request.
        message: What is wrong and what to do, in one line.
        code: A word for programs, such as "rate_limit_exceeded".
        param: The parameter at fault.
        headers: Further headers of the response.

    Returns:
        The response.
    """
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return JsonResponse({"error": error}, status, headers)


def encode_json(content: Any) -> bytes:
    """JSON without blanks, in ASCII."""
    return json.dumps(content, separators=(",", ":")).encode()
