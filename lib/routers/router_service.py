"""A router behind the chat completions API: it chooses a model for each request, asks it, and accounts for the reply.

Clients ask for the model "router", for "router@0.002" (US dollars that a prompt may cost on average), or for one of its
models by name. Where the chosen model gives no reply, the next of the router's ranking is asked, as long as nothing
was sent to the client. Every choice is logged with its probability. Left out: HTTP, which is
`lib.language_models.serving.server`, and how a model is asked (`model_backend`).
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.experiment import seeds
from lib.language_models.batching import RequestCancelled
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.recorded_outcomes.user_tables import read_prompt_text
from lib.routers.choice_log import ChoiceLog
from lib.routers.collect_outcomes import hash_messages
from lib.routers.model_backend import BAD_GATEWAY, ModelBackend, ModelUnavailable
from lib.routers.prompt_batcher import PromptBatcher
from lib.routers.request_metrics import RequestMetrics
from lib.routers.saved_router import Route, Router

ROUTER_NAME = "router"
OWNER = "orchestration-bench"


@dataclass(frozen=True)
class RoutedRequest:
    """A request with the models that may answer it.

    Attributes:
        body: JSON of the request as the client sent it.
        asked_for: The model in the request: router, router@BUDGET, or the name of a model.
        budget_usd: Budget of the choice in USD; None where the client named a model.
        route: The router's choice; None where the client named a model.
        ranking: Models in the order in which they are asked until one replies.
        started: When the request came, by `time.perf_counter`.
        decision_seconds: How long the choice took.
    """

    body: Mapping[str, Any]
    asked_for: str
    budget_usd: float | None
    route: Route | None
    ranking: tuple[str, ...]
    started: float
    decision_seconds: float


class BaseService(ABC):
    """Serves several models under one API, and chooses one of them for each request that names none.

    Attributes:
        backends: The models by name.
        models: What clients may ask for, in the order in which it is listed.
        metrics: Counts of requests.
        log: Log of choices; None for none.
    """

    def __init__(self, backends: Mapping[str, ModelBackend], log: ChoiceLog | None) -> None:
        """
        Args:
            backends: Backends by name.
            log: Log of choices; None for none.
        """
        self.backends = dict(backends)
        self.models = {ROUTER_NAME: None, **self.backends}
        self.metrics = RequestMetrics()
        self.log = log

    async def start_completion(self, body: Any) -> RoutedCompletion:
        """Chooses a model for a request and asks it; a streamed reply is awaited until it begins.

        Args:
            body: The JSON of POST /v1/chat/completions, as Python values.

        Returns:
            The completion under way.

        Raises:
            RequestRefused: The body is no request, or no model gives a reply.
        """
        completion = RoutedCompletion(self, await self.choose(body))
        if completion.is_streamed:
            # The status of a stream is its first line, so a model must have begun before it is sent.
            await completion.begin_stream()
        return completion

    async def choose(self, body: Any) -> RoutedRequest:
        """Checks a request and chooses the models that may answer it.

        Args:
            body: The JSON, as Python values.

        Returns:
            The request with its budget and a ranking of models, of which the first that replies is used.

        Raises:
            RequestRefused: The body is no valid request, or its model or budget is unknown.
        """
        started = time.perf_counter()
        if not isinstance(body, dict):
            raise RequestRefused("the body is no JSON object")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RequestRefused("messages is a list with one message or more", param="messages")
        if not all(isinstance(message, dict) for message in messages):
            raise RequestRefused("every message is an object", param="messages")
        asked_for = body.get("model")
        if isinstance(asked_for, str) and asked_for in self.models and asked_for != ROUTER_NAME:
            return RoutedRequest(body, asked_for, None, None, (asked_for,), started, 0.0)

        self.check_router_name(asked_for)
        request = await self.choose_model(body, started)
        self.metrics.observe("decision_seconds", request.decision_seconds)
        return request

    @abstractmethod
    async def choose_model(self, body: Mapping[str, Any], started: float) -> RoutedRequest:
        """Chooses models for a request whose model is router, or router@BUDGET.

        Args:
            body: JSON of the request.
            started: When it came, by `time.perf_counter`.

        Raises:
            RequestRefused: The budget is not valid.
        """

    def check_router_name(self, asked_for: Any) -> None:
        """Checks that a request names the router, as router or router@BUDGET.

        Args:
            asked_for: The model that the request names.

        Raises:
            RequestRefused: It names anything else.
        """
        if not isinstance(asked_for, str) or asked_for.partition("@")[0] != ROUTER_NAME:
            raise RequestRefused(
                f"there is no model {str(asked_for)[:80]!r}; there are {ROUTER_NAME}, {ROUTER_NAME}@USD, "
                f"{', '.join(name for name in self.models if name != ROUTER_NAME)}",
                404,
                "model_not_found",
                "model",
            )

    def list_models(self) -> dict[str, Any]:
        """Lists the models that clients may ask for, as the reply to GET /v1/models."""
        return {"object": "list", "data": [self.describe_model(name) for name in self.models]}

    @abstractmethod
    def describe_model(self, name: str) -> dict[str, Any]:
        """Describes the router or one of its models, as the reply to GET /v1/models/NAME.

        Raises:
            RequestRefused: There is none of that name.
        """

    async def aclose(self) -> None:
        """Closes connections, threads and the log."""
        for backend in self.backends.values():
            await backend.aclose()
        if self.log is not None:
            self.log.close()


class RouterService(BaseService):
    """Serves a fitted router, and its models by name.

    Attributes:
        router: Chooses.
        explore: Share of requests that go to a model at random.
        budget_usd: Budget in USD of requests that name none.
    """

    def __init__(
        self,
        router: Router,
        backends: Mapping[str, ModelBackend],
        log: ChoiceLog | None = None,
        explore: float = 0.0,
        budget_usd: float | None = None,
        seed: int = 0,
    ) -> None:
        """
        Args:
            router: Chooses.
            backends: A model for each of the router's names.
            log: Log of choices; None for none.
            explore: Share of requests that go to a model at random.
            budget_usd: Budget in USD of requests that name none; None for the router's.
            seed: Seed of random choices.
        """
        super().__init__(backends, log)
        self.router = router
        self.explore = explore
        self.budget_usd = router.budget_usd if budget_usd is None else budget_usd
        self._draws = seeds.rng("router", "serve", seed=seed)
        # Words are counted in a tenth of a millisecond; a network computes beside the event loop.
        self._batcher = PromptBatcher(router.encoder) if router.encoder.is_network else None

    async def choose_model(self, body: Mapping[str, Any], started: float) -> RoutedRequest:
        """Lets the fitted router rank the models for a request.

        Args:
            body: The client's request.
            started: Time at which it came, in seconds.

        Returns:
            The request with its budget and the ranking.
        """
        asked_for = body["model"]
        budget_usd = self._read_budget(asked_for)
        # Drawn before anything is awaited, so that the draws come in the order of the requests.
        draw = float(self._draws.random())
        features = None
        if self._batcher is not None:
            features = await self._batcher.encode(read_prompt_text(body["messages"]))
        route = self.router.route(body["messages"], budget_usd, draw, self.explore, features)
        seconds = time.perf_counter() - started
        return RoutedRequest(body, asked_for, budget_usd, route, route.ranking, started, seconds)

    async def aclose(self) -> None:
        await super().aclose()
        if self._batcher is not None:
            self._batcher.close()

    def _read_budget(self, asked_for: str) -> float:
        """Reads the budget in USD from the model of a request: router (the default budget), or router@USD."""
        return self.budget_usd if asked_for == ROUTER_NAME else read_dollars(asked_for)

    def describe_model(self, name: str) -> dict[str, Any]:
        """Describes a model or the router as the API's list of models does.

        Args:
            name: Name in a request, such as a model or router@0.002.

        Returns:
            Identity, with the mean cost of a model or the budget of the router.
        """
        head = {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
        if name in self.backends:
            index = self.router.models.index(name)
            return head | {"mean_cost_usd": float(self.router.cost_usd[index])}
        self.check_router_name(name)
        return head | {
            "budget_usd": self._read_budget(name),
            "models": list(self.router.models),
            "promise": self.router.report.get("sentence", ""),
        }


def read_dollars(asked_for: str, alternatives: str = "") -> float:
    """Reads the budget in USD from the name of a model such as router@0.002.

    Args:
        asked_for: The model in the request.
        alternatives: What is allowed after the @ instead of a number, for the message, such as "low, or ".

    Returns:
        US dollars for a prompt.

    Raises:
        RequestRefused: What follows the @ is not a number above 0.
    """
    try:
        budget_usd = float(asked_for.partition("@")[2])
    except ValueError:
        budget_usd = math.nan
    if not 0 < budget_usd < math.inf:
        raise RequestRefused(
            f"{asked_for[:80]!r}: behind the @ stand {alternatives}US dollars for a prompt, such as router@0.002",
            param="model",
        )
    return budget_usd


class RoutedCompletion:
    """The completion of one request, by the first model of its ranking that replies.

    It has the interface of `ChatCompletion`, which the server calls.

    Attributes:
        is_streamed: Whether the client wants chunks.
    """

    def __init__(self, service: BaseService, request: RoutedRequest) -> None:
        self.service = service
        self.request = request
        self.is_streamed = bool(request.body.get("stream"))
        self._failures: list[ModelUnavailable] = []
        self._call: asyncio.Future | None = None
        self._chunks: AsyncIterator[dict[str, Any]] | None = None
        self._first_chunk: dict[str, Any] | None = None
        self._backend: ModelBackend | None = None
        self._is_cancelled = False

    async def complete(self) -> dict[str, Any]:
        """Asks the models in turn and returns the whole completion of the first that replies.

        Returns:
            The completion, as the API returns it.

        Raises:
            RequestRefused: No model gives a reply.
            RequestCancelled: After `cancel`.
        """
        for backend in self._iterate_backends():
            self._call = asyncio.ensure_future(backend.complete(self.request.body))
            try:
                reply = await self._call
            except ModelUnavailable as error:
                self._note_failure(backend, error)
                continue
            except asyncio.CancelledError:
                self._finish(backend, None, None, "cancelled")
                if self._is_cancelled:
                    raise RequestCancelled("the client is gone") from None
                raise
            self._finish(backend, reply.get("id"), reply.get("usage"), "ok")
            return reply
        raise self._refuse()

    async def begin_stream(self) -> None:
        """Asks the models in turn until one begins to stream its reply.

        Raises:
            RequestRefused: None has.
        """
        for backend in self._iterate_backends():
            chunks = backend.iterate_chunks(self.request.body)
            try:
                self._first_chunk = await anext(chunks)
            except StopAsyncIteration:
                self._note_failure(backend, ModelUnavailable(f"{backend.name}: an empty stream"))
                continue
            except ModelUnavailable as error:
                self._note_failure(backend, error)
                continue
            self._chunks = chunks
            self._backend = backend
            return
        raise self._refuse()

    async def iterate_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the chunks of the completion.

        Raises:
            RequestRefused: The model broke off; what was sent cannot be taken back.
            RequestCancelled: After `cancel`.
        """
        options = self.request.body.get("stream_options") or {}
        wants_usage = bool(options.get("include_usage"))
        usage = None
        status = "cancelled"
        completion_id = self._first_chunk.get("id")
        try:
            chunk = self._first_chunk
            while chunk is not None:
                usage = chunk.get("usage") or usage
                if not wants_usage:
                    chunk.pop("usage", None)
                # The chunk that has only the usage is for the router's account.
                if wants_usage or chunk["choices"]:
                    yield chunk
                if self._is_cancelled:
                    raise RequestCancelled("the client is gone")
                chunk = await anext(self._chunks, None)
            status = "ok"
        except ModelUnavailable as error:
            status = "broken"
            raise RequestRefused(str(error), error.status) from error
        finally:
            await self._chunks.aclose()
            self._finish(self._backend, completion_id, usage, status)

    def cancel(self) -> None:
        """Stops waiting for a reply, because the client has gone."""
        self._is_cancelled = True
        if self._call is not None:
            self._call.cancel()

    def _iterate_backends(self) -> Sequence[ModelBackend]:
        return [self.service.backends[name] for name in self.request.ranking]

    def _note_failure(self, backend: ModelBackend, error: ModelUnavailable) -> None:
        """Counts a failure of a model; the next one is then asked."""
        self._failures.append(error)
        self.service.metrics.add("failures", 1, model=backend.name, status=str(error.status))

    def _refuse(self) -> RequestRefused:
        """Makes the error for a request that no model answered.

        It is a client error only where every model says so.

        Returns:
            The error with the reasons of all models.
        """
        self._finish(None, None, None, "failed")
        statuses = [error.status for error in self._failures]
        status = statuses[0] if all(400 <= code < 500 for code in statuses) else BAD_GATEWAY
        if len(statuses) == 1:
            status = statuses[0]
        reasons = "; ".join(str(error) for error in self._failures)
        return RequestRefused(f"no model gave a reply: {reasons}", status, "no_model")

    def _finish(
        self,
        backend: ModelBackend | None,
        completion_id: str | None,
        usage: Mapping[str, Any] | None,
        status: str,
    ) -> None:
        """Counts a request and logs its choice.

        Args:
            backend: The model that answered; None where none did.
            completion_id: Id of the reply, by which an outcome can be joined.
            usage: Tokens, as the model reported them.
            status: ok, failed, broken (in the middle of a stream) or cancelled.
        """
        request = self.request
        metrics = self.service.metrics
        seconds = time.perf_counter() - request.started
        answered_by = backend.name if backend is not None else ""
        chosen = request.ranking[0]
        usage = usage or {}
        cost_usd = backend.price_usage(usage) if backend is not None else 0.0
        metrics.add("requests", 1, model=chosen, status=status)
        metrics.observe("request_seconds", seconds)
        if backend is not None:
            if answered_by != chosen:
                metrics.add("fallbacks", 1, model=answered_by)
            for direction, name in (("in", "prompt_tokens"), ("out", "completion_tokens")):
                metrics.add("tokens", usage.get(name) or 0, model=answered_by, direction=direction)
            metrics.add("cost_usd", cost_usd, model=answered_by)
        if self.service.log is None:
            return
        messages = request.body["messages"]
        route = request.route
        entry = {
            "time": time.time(),
            "id": completion_id,
            "asked_for": request.asked_for,
            "budget_usd": request.budget_usd,
            "chosen": chosen,
            "propensity": 1.0 if route is None else route.propensity,
            "probabilities": None if route is None else dict(route.probabilities),
            "success": None if route is None else dict(route.success),
            "answered_by": answered_by,
            # Of a controller: which experts it called, and what each call cost.
            "calls": usage.get("calls", []),
            "failures": [str(error) for error in self._failures],
            "status": status,
            "tokens_in": usage.get("prompt_tokens"),
            "tokens_out": usage.get("completion_tokens"),
            "cost_usd": cost_usd,
            "seconds": seconds,
            "decision_seconds": request.decision_seconds,
            "prompt_hash": hash_messages(messages),
        }
        self.service.log.write(entry, messages)
