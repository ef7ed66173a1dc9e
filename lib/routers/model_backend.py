"""The models behind a served router: servers that speak OpenAI's API, and models of this process.

A request is passed on as it came (tools, formats, limits and all that a server may know), under the model's own name.
Whatever goes wrong is one error, `ModelUnavailable`, so that the router can ask the next model. Left out: retries of
one model, which would cost the time that the next one needs.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import httpx2

from lib.config import ModelSettings
from lib.language_models.batching import BatcherClosed, GenerationFailed, QueueFull
from lib.language_models.serving.chat_completions.completion import CompletionModel
from lib.language_models.serving.chat_completions.request import RequestRefused, parse_body
from lib.llm.errors import ConfigurationError
from lib.llm.reply_store import hide_secret

SHOWN = 300  # characters of a server's error
BAD_GATEWAY = 502
# An idle connection is closed before servers close it (5 s is usual), so that no request meets a closed one.
KEEP_ALIVE_SECONDS = 4.0
LONGEST_EVENT = (
    2**20
)  # bytes of a line of a stream, such as the arguments of a call; aiohttp takes twice as many
# ValueError: a line of a stream that is longer.
NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class ModelUnavailable(RuntimeError):
    """Raised where a model gave no reply.

    Attributes:
        status: The HTTP status that says so; from 400 to 499 the request is at fault.
    """

    def __init__(self, message: str, status: int = BAD_GATEWAY) -> None:
        super().__init__(message)
        self.status = status


class ModelBackend(ABC):
    """A model that a router can ask.

    Attributes:
        name: Name in llm.models, and in the router.
        settings: Where it answers and what it charges.
    """

    def __init__(self, name: str, settings: ModelSettings) -> None:
        self.name = name
        self.settings = settings

    @abstractmethod
    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a chat request with a whole completion, as JSON.

        Args:
            body: The request, as the client sent it.

        Raises:
            ModelUnavailable: There is none.
        """

    @abstractmethod
    def iterate_chunks(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yields the chunks of a streamed completion; the last one has the usage.

        Raises what `complete` raises; before the first chunk another model can still be asked.
        """

    def price_usage(self, usage: Mapping[str, Any] | None) -> float:
        """Computes the cost of a reply, as the server bills it or else by its tokens and the model's prices.

        Args:
            usage: The field `usage` of a completion.

        Returns:
            US dollars.
        """
        usage = usage or {}
        billed = usage.get("cost")
        if isinstance(billed, int | float) and not isinstance(billed, bool):
            return float(billed)
        tokens_in = usage.get("prompt_tokens") or 0
        tokens_out = usage.get("completion_tokens") or 0
        price_in = self.settings.price_in or 0.0
        price_out = self.settings.price_out or 0.0
        return tokens_in * price_in + tokens_out * price_out

    async def aclose(self) -> None:  # noqa: B027, a model of this process is closed by who opened it
        """Closes connections."""


class EndpointBackend(ModelBackend):
    """A server that speaks OpenAI's API: LiteLLM, vLLM, Ollama, OpenRouter and others.

    It is asked through aiohttp, whose parser is C: a call takes .3 ms of a core, and 1.5 ms through httpx2.
    """

    def __init__(self, name: str, settings: ModelSettings) -> None:
        super().__init__(name, settings)
        self._secret = read_secret(name, settings)
        self._headers = {}
        if self._secret:
            is_azure = "api-version" in settings.query
            self._headers = (
                {"api-key": self._secret}
                if is_azure
                else {"authorization": f"Bearer {self._secret}"}
            )
        self._url = f"{settings.base_url.rstrip('/')}/chat/completions"
        self._session: aiohttp.ClientSession | None = None

    def _open_session(self) -> aiohttp.ClientSession:
        """Opens the HTTP connections to the server with the first request, in whose event loop they belong.

        Returns:
            The session, the same one for all requests.
        """
        if self._session is None:
            # The certificates that every other client of this project trusts.
            is_secure = self._url.startswith("https:")
            connector = aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=KEEP_ALIVE_SECONDS,
                ssl=httpx2.create_ssl_context() if is_secure else False,
            )
            seconds = self.settings.timeout
            # Proxies, passwords and headers of the environment are another program's, so they are not read.
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, connect=seconds, sock_read=seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=LONGEST_EVENT,
            )
        return self._session

    def _post(self, body: Mapping[str, Any]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Sends a request; the result is an asynchronous context manager of the response."""
        return self._open_session().post(
            self._url, json=body, params=self.settings.query or None, allow_redirects=False
        )

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Asks the server for a whole completion.

        Args:
            body: The client's request.

        Returns:
            The completion, under this model's name.

        Raises:
            ModelUnavailable: The server refuses, breaks off, or sends no completion.
        """
        try:
            async with self._post(self._make_body(body)) as response:
                content = await response.read()
        except NETWORK_ERRORS as error:
            raise self._explain(error) from None
        if response.status >= 300:
            raise self._refuse(response.status, content.decode("utf-8", "replace"))
        try:
            completion = json.loads(content)
            is_reply = bool(completion["choices"])
        except (ValueError, KeyError, TypeError):
            is_reply = False
        if not is_reply:
            raise self._refuse(BAD_GATEWAY, content.decode("utf-8", "replace"))
        completion["model"] = self.name
        return completion

    async def iterate_chunks(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Asks the server for a completion as a stream of chunks.

        Args:
            body: The client's request.

        Raises:
            ModelUnavailable: The server refuses, or the stream ends too early.
        """
        sent = self._make_body(body)
        # The router accounts for every reply, so it wants the usage whether or not its client does.
        sent["stream_options"] = {**(sent.get("stream_options") or {}), "include_usage": True}
        is_finished = False
        try:
            async with self._post(sent) as response:
                if response.status >= 300:
                    content = await response.read()
                    raise self._refuse(response.status, content.decode("utf-8", "replace"))
                async for line in response.content:
                    if not line.startswith(b"data:"):
                        continue
                    data = line.removeprefix(b"data:").strip().decode("utf-8", "replace")
                    if data == "[DONE]":
                        return
                    chunk = self._read_chunk(data)
                    choices = chunk.get("choices") or [{}]
                    is_finished = is_finished or bool(choices[0].get("finish_reason"))
                    yield chunk
        except NETWORK_ERRORS as error:
            raise self._explain(error) from None
        if not is_finished:
            raise ModelUnavailable(f"{self.name}: the reply broke off")

    def _read_chunk(self, data: str) -> dict[str, Any]:
        """Parses one event of a stream, and puts this model's name in place of the server's.

        Args:
            data: JSON of the event.

        Returns:
            The chunk.
        """
        try:
            chunk = json.loads(data)
            is_chunk = isinstance(chunk["choices"], list)
        except (ValueError, KeyError, TypeError):
            is_chunk = False
        if not is_chunk:
            raise self._refuse(BAD_GATEWAY, data)
        chunk["model"] = self.name
        return chunk

    def _make_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the request that is sent to this server from the client's."""
        settings = self.settings
        sent = {name: value for name, value in body.items() if name not in settings.omit}
        sent["model"] = settings.model
        if settings.token_parameter != "max_tokens" and "max_tokens" in sent:
            sent[settings.token_parameter] = sent.pop("max_tokens")
        if settings.reasoning_effort is not None:
            sent.setdefault("reasoning_effort", settings.reasoning_effort)
        return sent | settings.extra_body

    def _refuse(self, status: int, text: str) -> ModelUnavailable:
        """Makes the error for a response that is no reply; a redirection or a success becomes status 502."""
        words = " ".join(hide_secret(text, self._secret).split())[:SHOWN]
        return ModelUnavailable(
            f"{self.name} answers {status}: {words}", status if status >= 400 else BAD_GATEWAY
        )

    def _explain(self, error: Exception) -> ModelUnavailable:
        """Makes the error for a connection that failed, without the API key in its text.

        Args:
            error: Error of the network.

        Returns:
            The error for the client.
        """
        if isinstance(error, TimeoutError):
            return ModelUnavailable(
                f"{self.name}: no reply within {self.settings.timeout:g} s (timeout of the model)",
                504,
            )
        words = hide_secret(f"{type(error).__name__} {error}", self._secret)[:SHOWN]
        return ModelUnavailable(f"{self.name} at {self.settings.base_url}: {words}")

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class InProcessBackend(ModelBackend):
    """A model that runs in this process: a lab model, or one from a Hugging Face folder."""

    def __init__(self, name: str, settings: ModelSettings, model: CompletionModel) -> None:
        super().__init__(name, settings)
        self.model = model

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Generates a whole completion in this process.

        Args:
            body: The client's request.

        Returns:
            The completion, under this model's name.

        Raises:
            ModelUnavailable: The model refuses or fails.
        """
        completion = None
        try:
            completion = await self.model.start_completion(parse_body(self._make_body(body)))
            reply = await completion.complete()
        except (RequestRefused, QueueFull, BatcherClosed, GenerationFailed) as error:
            raise self._explain(error) from error
        finally:
            if completion is not None:
                completion.cancel()  # does nothing where all is written
        reply["model"] = self.name
        return reply

    async def iterate_chunks(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Generates a completion in this process as a stream of chunks.

        Args:
            body: The client's request.

        Raises:
            ModelUnavailable: The model refuses or fails.
        """
        request = self._make_body(body)
        # The last chunk reports the tokens, of which the router computes the cost.
        request["stream_options"] = {**(request.get("stream_options") or {}), "include_usage": True}
        completion = None
        try:
            completion = await self.model.start_completion(parse_body(request))
            async for chunk in completion.iterate_chunks():
                chunk["model"] = self.name
                yield chunk
        except (RequestRefused, QueueFull, BatcherClosed, GenerationFailed) as error:
            raise self._explain(error) from error
        finally:
            if completion is not None:
                completion.cancel()

    def _make_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the model's request from the client's, with the token limit of the settings where it has none."""
        request = {**body, "model": self.model.name}
        if request.get("max_tokens") is None and request.get("max_completion_tokens") is None:
            request["max_tokens"] = self.settings.max_tokens
        return request

    def _explain(self, error: Exception) -> ModelUnavailable:
        """Makes the error for a request that this model cannot honour, or for a model that is busy or broken."""
        status = BAD_GATEWAY
        if isinstance(error, RequestRefused):
            status = error.status
        elif isinstance(error, QueueFull):
            status = 429
        return ModelUnavailable(f"{self.name}: {error}", status)

    async def aclose(self) -> None:
        await self.model.aclose()


def read_secret(name: str, settings: ModelSettings) -> str:
    """Reads the server's API key from the environment variable that the settings name.

    Args:
        name: Name of the model, for the message.
        settings: Address and key variable of the server.

    Returns:
        The key; "" where none is needed.

    Raises:
        ConfigurationError: The variable is not set.
    """
    variable = settings.api_key_env
    if variable is None:
        return ""
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise ConfigurationError(
            f"{name}: the environment variable {variable} is not set; it must hold the key of {settings.base_url}"
        )
    return secret


def open_backend(name: str, settings: ModelSettings) -> ModelBackend:
    """Opens a model of llm.models for serving.

    Args:
        name: Name in llm.models.
        settings: Settings of the model.

    Returns:
        The backend; a lab model or a folder is read from disk.

    Raises:
        ConfigurationError: Models of this kind cannot be served, or a key is missing.
        ModelError: A model cannot be read.
    """
    if settings.backend == "endpoint":
        return EndpointBackend(name, settings)
    if settings.backend == "lab":
        # Imported here: torch takes seconds, which a router of endpoints alone does not need.
        from lib.language_models.lab_model import open_lab_model
        from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel

        lab_model = open_lab_model(name, settings=settings)
        return InProcessBackend(name, lab_model.settings, LabCompletionModel(lab_model.served))
    if settings.backend == "hugging_face":
        from lib.language_models.batching import MAX_QUEUE_LENGTH
        from lib.language_models.hugging_face_model import HuggingFaceModel
        from lib.language_models.serving.chat_completions.folder_completion import (
            FolderCompletionModel,
        )

        folder_model = FolderCompletionModel(HuggingFaceModel(settings.model), MAX_QUEUE_LENGTH)
        return InProcessBackend(name, settings, folder_model)
    raise ConfigurationError(
        f"{name} is {settings.backend}, and served are endpoints, lab models and folders; fit the router on those"
    )
