"""A model behind a server that speaks OpenAI's API: asked, paid, recorded.

One call goes through five steps, in this order: look it up in the recording; reserve what it can cost at most; send
it; settle what it did cost; keep the reply. A server that is busy or breaks off is asked again; what a second attempt
cannot mend ends the run with a remedy. Left out: streaming.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from lib.config import ModelSettings
from lib.experiment import artifacts
from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, RecordingMiss
from lib.llm.failure_policy import FailureWatch
from lib.llm.parse_response import SHOWN, CallInfo, Pricing, parse_response
from lib.llm.reply_store import Recording, hide_secret
from lib.llm.safe_transport import TOO_LARGE, SafeTransport
from lib.llm.spending_limit import SpendingLimit
from lib.llm.token_counts import count_bytes

FIRST_WAIT = 0.5  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds; a server that asks for more has failed this call
_MAX_SEED = 2**31 - 1  # larger numbers are refused by some servers
_TRANSIENT = ("timeout", "connection", "rate_limit", "server_error")
_ASK_ONCE_MORE = ("not_a_reply", "provider_error")  # a 200 that holds no reply
_HOPELESS = {  # status: what to check, for no second attempt mends it
    301: "check base_url, the server has moved",
    307: "check base_url, the server has moved",
    401: "check the key",
    402: "there is no credit left",
    403: "check the key's rights",
    404: "check base_url and model",
    405: "check base_url",
}
_MODERATION = re.compile(
    r"moderation|flagged|content[_ ]?(?:filter|policy)|safety|responsible.?ai", re.IGNORECASE
)
_PROVIDER = re.compile(r"provider returned error|provider_name|upstream", re.IGNORECASE)
_CONTEXT = re.compile(
    r"context[_ ]?(?:length|window|size)|maximum context|too many tokens|prompt is too long",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    "unsupported|not support|unrecognized|unexpected|unknown|extra|not permitted", re.IGNORECASE
)
_OPTIONAL = ("seed", "temperature", "max_tokens")  # parameters that some servers refuse


class Endpoint(ChatModel):
    """A server's model, asked through the `openai` client. One per event loop.

    Attributes:
        name: In the settings.
        settings: Where it answers and what it charges.
        watch: Counts of its replies; it ends the run where the server fails too often.
    """

    backend = "endpoint"

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        recording: Recording | None = None,
        spending_limit: SpendingLimit | None = None,
        processes: int = 1,
        watch: FailureWatch | None = None,
    ) -> None:
        """Prepare to ask a server; nothing is sent yet.

        Args:
            name: In the settings.
            settings: Where it answers and what it charges.
            recording: Where replies are kept and looked up; None asks every time.
            spending_limit: The hard stop for what is paid; None for no limit.
            processes: Those that ask at once and share the model's concurrency.
            watch: Counts of replies; None makes one of its own.
        """
        self.name = name
        self.settings = settings
        self.price_in = settings.price_in or 0.0
        self.price_out = settings.price_out or 0.0
        self.max_tokens = settings.max_tokens
        self.watch = watch or FailureWatch(name)
        self._recording = recording
        self._limit = spending_limit  # also without prices: some servers say what they bill
        self._pricing = Pricing(
            self.price_in,
            self.price_out,
            settings.price_cached_in,
            settings.kwh_per_token,
        )
        self._slots = asyncio.Semaphore(max(1, settings.concurrency // processes))
        self._calls_under_way = 0
        self._call_ended = asyncio.Condition()
        self._most_tokens_out = 0  # of any reply so far
        self._client: openai.AsyncOpenAI | None = None

    async def reply_to(self, request: ChatRequest) -> Reply:
        """Answers a request from the recording, or asks the server.

        Args:
            request: Messages, tools and sampling settings.

        Returns:
            The reply; a call that failed is a reply with a failure.

        Raises:
            RecordingMiss: Only recorded replies are allowed, and there is none.
        """
        body = self.build_body(request)
        key = self.compute_key(body, request.sample)
        entry = None if self._recording is None else self._recording.get(key)
        if entry is not None:
            return self._replay(entry, body)
        if self._recording is not None and self._recording.mode == "replay":
            ending = str(request.messages[-1].get("content"))[-80:]
            raise RecordingMiss(
                f"{self._recording.export_path} holds no reply of {self.name} to a request that ends in {ending!r} "
                f"(key {key[:16]}); record it with llm.cassette: record"
            )
        async with self._slots:
            reply = await self._ask(request, body, key)
        self.watch.add(reply)
        return reply

    def build_body(self, request: ChatRequest) -> dict[str, Any]:
        """Build the JSON body of a chat completion request.

        Args:
            request: Messages, tools and sampling parameters.

        Returns:
            The body, without parameters that are not set and without those that the settings omit for this server.
        """
        settings = self.settings
        temperature = settings.temperature if request.temperature is None else request.temperature
        body = {
            "model": settings.model or self.name,
            "messages": [dict(message) for message in request.messages],
            "temperature": temperature,
            "max_tokens": self._max_tokens(request),
            "seed": request.seed % _MAX_SEED,
            "stop": list(request.stop) or None,
            "tools": list(request.tools) or None,
            "tool_choice": request.tool_choice if request.tools else None,
            "response_format": request.response_format,
            "reasoning_effort": settings.reasoning_effort,
        }
        body = {
            name: value
            for name, value in body.items()
            if value is not None and name not in settings.omit
        }
        if "max_tokens" in body and settings.token_parameter != "max_tokens":
            body[settings.token_parameter] = body.pop("max_tokens")
        return _replace_half_characters(body | settings.extra_body)

    def compute_key(self, body: Mapping[str, Any], sample: int) -> str:
        """Compute the key under which a reply is recorded: SHA-256 of address, request body and sample index.

        API keys, headers, timeouts and prices do not enter, because they change no reply.

        Args:
            body: The request as it is sent.
            sample: Index of the sample, for several replies to one request.

        Returns:
            The hash in hexadecimal digits.
        """
        settings = self.settings
        described = {
            "address": settings.base_url,
            "query": settings.query,
            "sample": sample,
            "body": _normalize_numbers(body),
        }
        # Servers differ in the name of this parameter only.
        if "max_completion_tokens" in described["body"]:
            described["body"]["max_tokens"] = described["body"].pop("max_completion_tokens")
        return artifacts.sha256_json(described)

    def is_recorded(self, request: ChatRequest) -> bool:
        """Whether the reply to a request is recorded, so that nothing is paid for it."""
        if self._recording is None:
            return False
        key = self.compute_key(self.build_body(request), request.sample)
        return self._recording.get(key) is not None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
        if self._recording is not None:
            self._recording.close()

    # One call ------------------------------------------------------------------------------------

    async def _ask(self, request: ChatRequest, body: dict[str, Any], key: str) -> Reply:
        """Call the server, repeat after temporary failures, and record the reply.

        Args:
            request: As the caller asks.
            body: The request as it is sent.
            key: Under which the reply is recorded.

        Returns:
            The reply, with a `failure` where all attempts failed.
        """
        was_repeated = False
        delay = FIRST_WAIT  # seconds
        for remaining_attempts in reversed(range(self.settings.retries + 1)):
            reply, completion, server_wait = await self._attempt(request, body)
            kind = reply.failure.kind if reply.failure else ""
            if kind in _ASK_ONCE_MORE and not was_repeated:
                was_repeated = True
                continue
            if kind not in _TRANSIENT or not remaining_attempts:
                break
            if server_wait is not None and server_wait > LONGEST_WAIT:
                break
            await wait(delay if server_wait is None else server_wait)
            delay *= 2

        if completion is None or (reply.failure and reply.failure.of_infrastructure):
            return reply
        if self._recording is None:
            return reply
        shown_request = {"address": self.settings.base_url, "sample": request.sample, **body}
        response = keep_reply_fields(completion) | {"seconds": reply.seconds}
        entry = self._recording.put(key, shown_request, response, self._read_secret())
        if entry["response"] == response:
            return reply
        return self._replay(entry, body)  # another process was first, and a replay gives its reply

    async def _attempt(
        self, request: ChatRequest, body: dict[str, Any]
    ) -> tuple[Reply, dict[str, Any] | None, float | None]:
        """Send a request once, and book its cost on the spending limit.

        The most that the call can cost is reserved before it is sent, and replaced by its real cost afterwards. Where
        that is unknown the reservation stays, so that the limit holds even if the call was billed.

        Args:
            request: As the caller asks.
            body: The request as it is sent.

        Returns:
            (reply, completion, server_wait): the reply; the server's JSON that it was read from, None where there is
            none; seconds that the server asks to wait before the next attempt, None where it does not say.
        """
        reservation, reserved_usd = await self._reserve(request, body)
        self._calls_under_way += 1
        try:
            try:
                reply, completion, server_wait, may_be_billed = await self._post(body)
            except ConfigurationError:
                # The request was refused or never sent, so nothing was billed.
                if self._limit is not None:
                    self._limit.settle(reservation, 0.0)
                raise
            if self._limit is not None:
                if not may_be_billed:
                    self._limit.settle(reservation, 0.0)
                elif completion is not None:
                    cost_usd = self._bound_cost(reply, body, completion, reserved_usd)
                    self._limit.settle(reservation, cost_usd)
                # Otherwise no whole reply came: nobody knows its cost, and the whole reservation stays booked.
        finally:
            # Calls that did not fit under the limit wait for this one to release its reservation.
            self._calls_under_way -= 1
            async with self._call_ended:
                self._call_ended.notify_all()
        # Some servers bill more tokens than max_tokens; later reservations take that into account.
        self._most_tokens_out = max(self._most_tokens_out, reply.tokens_out)
        return reply, completion, server_wait

    def _bound_cost(
        self,
        reply: Reply,
        body: Mapping[str, Any],
        completion: Mapping[str, Any],
        reserved_usd: float,
    ) -> float:
        """Compute the dollars to book for a reply, an upper bound where the server reported no token counts.

        Args:
            reply: The reply, with its cost by the token counts, reported or estimated.
            body: The request as it was sent.
            completion: The server's JSON.
            reserved_usd: Dollars that were reserved for the call.

        Returns:
            Dollars: the cost by the server's counts, or the cost at one token per byte, at most the reservation.
        """
        if reply.is_counted:
            return reply.cost_usd
        # No token is shorter than a byte.
        bytes_in = count_bytes(json.dumps(body))
        bytes_out = count_bytes(json.dumps(completion))
        most = bytes_in * self._pricing.price_in + bytes_out * self._pricing.price_out
        return max(reply.cost_usd, min(most, reserved_usd))

    async def _reserve(self, request: ChatRequest, body: dict[str, Any]) -> tuple[int, float]:
        """Reserve the most that a call can cost: a token for each byte sent, max_tokens and hidden reasoning back.

        Where it does not fit beside the calls under way, it waits for them: they usually cost less than reserved.

        Args:
            request: As the caller asks.
            body: The request as it is sent.

        Returns:
            (reservation, dollars): the id by which `SpendingLimit.settle` finds the reservation, and its amount.

        Raises:
            BudgetExceeded: Where it does not fit though no call is under way.
        """
        if self._limit is None:
            return 0, 0.0
        tokens_out = max(
            self._max_tokens(request) + self.settings.reasoning_tokens, self._most_tokens_out
        )
        bytes_in = count_bytes(json.dumps(body))
        most = bytes_in * self._pricing.price_in + tokens_out * self._pricing.price_out
        caller = request.caller or self.name
        if self.settings.reasoning_tokens:
            caller += (
                f", whose calls may bill {self.settings.reasoning_tokens:,} hidden tokens beyond max_tokens "
                f"(llm.models.{self.name}.reasoning_tokens)"
            )
        while True:
            try:
                return self._limit.reserve(caller, most), most
            except BudgetExceeded:
                if not self._calls_under_way:
                    raise
            async with self._call_ended:
                if self._calls_under_way:
                    await self._call_ended.wait()

    async def _post(
        self, body: dict[str, Any]
    ) -> tuple[Reply, dict[str, Any] | None, float | None, bool]:
        """Send a request to the server, and turn whatever comes back into a reply.

        Args:
            body: The request as it is sent.

        Returns:
            (reply, completion, server_wait, may_be_billed): the reply, perhaps with a `failure`; the server's JSON,
            None where it is no completion; seconds that the server asks to wait; whether the call may cost something.

        Raises:
            ConfigurationError: Where no further call can succeed, as for a wrong key.
        """
        started = time.monotonic()
        response: httpx2.Response | None = None
        failure: Failure | None = None
        was_sent = True
        try:
            # The raw response: the typed call would read the body before us, and takes three times as long.
            response = await self._open_client().post(
                "/chat/completions",
                body=body,
                cast_to=httpx2.Response,
                options={"params": self.settings.query} if self.settings.query else {},
            )
        except openai.APIStatusError as error:
            response = error.response
        except openai.APITimeoutError:
            failure = Failure("timeout", f"no whole reply within {self.settings.timeout:g} s")
        except openai.APIConnectionError as error:
            cause = error.__cause__
            words = hide_secret(f"{error} {cause or ''}".strip(), self._read_secret())[:SHOWN]
            failure = Failure("malformed" if TOO_LARGE in words else "connection", words)
            was_sent = not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
        # Out here nothing is chained to what is raised: openai's errors hold all that the server said.
        if failure is not None:
            return (
                self._failed(failure, started),
                None,
                None,
                was_sent,
            )  # what was sent may be billed
        if response.status_code >= 300:
            failure = self._classify_status(response, body)
            server_wait = _read_retry_after(response.headers)
            if server_wait is not None and server_wait > LONGEST_WAIT:
                failure = Failure(failure.kind, f"the server asks to wait {server_wait:.0f} s")
            return self._failed(failure, started), None, server_wait, False
        # A status of 200 is no promise: the body may be a web page, an error, or half a completion.
        content = response.content
        call = self._describe_call(body)
        reply = parse_response(content, call, seconds=time.monotonic() - started)
        is_completion = bool(reply.message or reply.tokens_out)
        completion = json.loads(content) if is_completion else None
        # A page or an error was not billed; a completion that breaks off may have been.
        breaks_off = reply.failure is not None and reply.failure.kind == "not_a_reply"
        may_be_billed = is_completion or (breaks_off and content.lstrip().startswith(b"{"))
        return reply, completion, None, may_be_billed

    def _classify_status(self, response: httpx2.Response, body: Mapping[str, Any]) -> Failure:
        """Turn an error response into a failure of this one call, or end the run.

        Args:
            response: With a status of 300 or more.
            body: The request as it was sent.

        Returns:
            The failure.

        Raises:
            ConfigurationError: Where no further call can succeed, as for a wrong key; the message names the remedy.
        """
        # The order matters: some providers send moderation and their own failures as 400 or 403 of the whole service.
        status = response.status_code
        words = hide_secret(response.text, self._read_secret())[:SHOWN]
        host = urlsplit(self.settings.base_url or "").hostname
        if status in (400, 403) and _MODERATION.search(words):
            return Failure("moderation", words)
        if status in (400, 413, 422) and _CONTEXT.search(words):
            return Failure("context_too_long", words)
        if status == 403 and _PROVIDER.search(words):
            return Failure("provider_error", words)
        self._check_refused_parameter(status, words, body)
        if status in _HOPELESS or "insufficient_quota" in words:
            remedy = _HOPELESS.get(status, _HOPELESS[402])
            variable = f" ({self.settings.api_key_env})" if self.settings.api_key_env else ""
            raise ConfigurationError(
                f"{self.name} at {host} answers {status}: {remedy}{variable}. It says: {words}"
            )
        if status == 429:
            return Failure("rate_limit", words)
        if status in (408, 409) or status >= 500:
            return Failure("server_error", f"{status}: {words}")
        return Failure("bad_request", f"{status}: {words}")

    def _check_refused_parameter(self, status: int, words: str, body: Mapping[str, Any]) -> None:
        """Raise an error with the remedy where the server refuses a parameter that the settings can leave out.

        Args:
            status: HTTP status of the response.
            words: The beginning of its text.
            body: The request as it was sent.

        Raises:
            ConfigurationError: Where the response says that it does not support one of the request's parameters.
        """
        if status not in (400, 422) or not _UNSUPPORTED.search(words):
            return
        if "max_completion_tokens" in words and "max_tokens" in body:
            raise ConfigurationError(
                f"{self.name} refuses max_tokens: add `token_parameter: max_completion_tokens` to it in llm.models. "
                f"It says: {words}"
            )
        for name in _OPTIONAL:
            if name in body and name in words:
                raise ConfigurationError(
                    f"{self.name} refuses {name}: add `omit: [{name}]` to it in llm.models. It says: {words}"
                )

    # Parts of a call -----------------------------------------------------------------------------

    def _max_tokens(self, request: ChatRequest) -> int:
        """The limit of tokens of the visible reply: what the request asks for, at most what the settings allow."""
        if request.max_tokens is None:
            return self.max_tokens
        return min(request.max_tokens, self.max_tokens)

    def _describe_call(self, body: Mapping[str, Any]) -> CallInfo:
        """Collect what `parse_response` needs to know of a call: model, prices, size of the prompt, token limit."""
        prompt = json.dumps([body["messages"], body.get("tools", [])], ensure_ascii=False)
        max_tokens = body.get("max_tokens", body.get("max_completion_tokens"))
        return CallInfo(
            self.name,
            self.backend,
            self._pricing,
            count_bytes(prompt),
            max_tokens or self.settings.max_tokens,
            self._read_secret(),
        )

    def _replay(self, entry: Mapping[str, Any], body: Mapping[str, Any]) -> Reply:
        """Rebuild a reply from its recording.

        Args:
            entry: A recording with the server's "response".
            body: The request as it would be sent.

        Returns:
            The reply at its original price: a replayed run reports the same costs, and pays nothing.
        """
        response = dict(entry["response"])
        seconds = response.pop("seconds", 0.0)
        reply = parse_response(json.dumps(response).encode(), self._describe_call(body), seconds)
        return Reply(**(vars(reply) | {"replayed": True}))

    def _failed(self, failure: Failure, started: float) -> Reply:
        seconds = time.monotonic() - started
        return Reply("", self.name, self.backend, seconds=seconds, failure=failure)

    def _read_secret(self) -> str:
        """Read the server's API key from the environment variable that the settings name.

        Returns:
            The key; "" where none is needed, as for a replay of recorded replies.

        Raises:
            ConfigurationError: Where the variable is not set or holds no valid key.
        """
        variable = self.settings.api_key_env
        is_replay = self._recording is not None and self._recording.mode == "replay"
        if variable is None or is_replay:
            return ""
        secret = os.environ.get(
            variable, ""
        ).strip()  # a key read from a file may end in a line end
        host = urlsplit(self.settings.base_url or "").hostname
        if not secret:
            raise ConfigurationError(
                f"the environment variable {variable} is not set; it must hold the key of {host}"
            )
        if not re.fullmatch("[!-~]+", secret):
            raise ConfigurationError(
                f"the environment variable {variable} holds blanks or characters that are in no key"
            )
        return secret

    def _open_client(self) -> openai.AsyncOpenAI:
        """Returns the HTTP client, which is created at the first call; it never retries, since each attempt may
        cost.
        """
        if self._client is None:
            timeout = self.settings.timeout
            # As many connections as calls: `concurrency` is the limit, waiting for a connection would be a timeout.
            network = httpx2.AsyncHTTPTransport(limits=httpx2.Limits())
            is_azure = "api-version" in self.settings.query
            transport = SafeTransport(network, timeout, self._read_secret(), is_azure)
            self._client = openai.AsyncOpenAI(
                api_key="none",  # the transport adds the real one
                base_url=self.settings.base_url,
                max_retries=0,  # each attempt is paid for, so it is counted here
                timeout=httpx2.Timeout(timeout, connect=0.9 * timeout),
                http_client=httpx2.AsyncClient(transport=transport),
            )
        return self._client


async def wait(seconds: float) -> None:
    """Let time pass between two attempts."""
    await asyncio.sleep(seconds)


def keep_reply_fields(completion: Mapping[str, Any]) -> dict[str, Any]:
    """What of a completion is recorded: choices, model, and the usage whole; ids and times would differ each time."""
    return {name: completion[name] for name in ("choices", "model", "usage") if name in completion}


def _normalize_numbers(value: Any) -> Any:
    """Converts whole floats in nested JSON to integers, so that requests with 1 and 1.0 have the same hash."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _normalize_numbers(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize_numbers(element) for element in value]
    return value


def _replace_half_characters(body: dict[str, Any]) -> dict[str, Any]:
    """Replaces lone surrogates in a request by question marks, because they cannot be encoded as UTF-8.

    Args:
        body: The request as JSON values.
    """
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return body


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Reads how long a server asks to wait before the next attempt.

    Args:
        headers: Headers of its response; `retry-after` is a number of seconds or a date.

    Returns:
        Seconds; None where it does not say.
    """
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None:
        try:
            return max(0.0, float(milliseconds) / 1000)
        except ValueError:
            return None
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
