"""What a lab model answers to a request of OpenAI's API; no HTTP here.

A reply is a pure function of the request and the model's weights: no clock, no counter, and without a seed
the request's own hash is one. What cannot be honoured is refused with its name, never ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    model_validator,
)

from lib.language_models import chat_template
from lib.language_models.batching import AT_ONCE, WAITING, Batcher, Token
from lib.language_models.generation import ContextTooLong, Generation, Prompt, check
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode, encode, pieces

VERSION = 1  # of the seeds and limits of chat completions
MOST_CHOICES, MOST_STOPS, MOST_MESSAGES = 8, 4, 1024
_CALL, _CALLED = "<call>", "</call>"
_WORDS = re.compile(r"</?[a-z]+>|[A-Za-z]+(?:-[a-z]+)*|[^\sA-Za-z]")  # each at least one token
_LONGEST = 64  # characters of a text for each token of the window; a word of a megabyte is one token, and slow


@dataclass(frozen=True)
class ServedModel:
    """A model that can be asked. card: what is known about it, JSON; max_tokens: where a request says none."""

    name: str
    forward: Forward
    card: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 64

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the weights."""
        forward, digest = self.forward, hashlib.sha256()
        layers = [tensor for layer in forward.layers for tensor in vars(layer).values()]
        for tensor in (forward.embedding, forward.norm, forward.head, *layers):
            digest.update(f"{tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
        return f"fp_{digest.hexdigest()[:12]}"


class Refused(ValueError):
    """A request that cannot be honoured; status, code and param as OpenAI's API has them."""

    def __init__(
        self, message: str, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


# Requests -----------------------------------------------------------------------------------------


def _joined(content: Any) -> Any:
    """Text of a list of parts."""
    if not isinstance(content, list):
        return content
    parts = [
        p
        for p in content
        if isinstance(p, dict) and p.keys() == {"type", "text"} and p["type"] == "text"
    ]
    if len(parts) < len(content) or not all(isinstance(part["text"], str) for part in parts):
        raise ValueError(
            'content is text, or a list of parts {"type": "text", "text": ...}; nothing else is supported'
        )
    return "\n".join(part["text"] for part in parts)


def _writable(text: str) -> str:
    """Half a surrogate pair is no character, though JSON can spell it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text") from None
    return text


def _parameter(schema: Any) -> Any:
    """Name of the parameter that takes a call's one argument: the first required one, or the first."""
    if not isinstance(schema, dict | None):
        raise ValueError("parameters is a JSON schema")
    names = [
        *_names((schema or {}).get("required")),
        *_names((schema or {}).get("properties")),
        "argument",
    ]
    return names[0]


def _names(listed: Any) -> list[str]:
    return (
        [name for name in listed if isinstance(name, str)]
        if isinstance(listed, list | dict)
        else []
    )


def _listed(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """An object with more names than there are has an unknown one; to report them all would take its time."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            unknown = next(name for name in given if name not in cls.model_fields)
            raise ValueError(
                f"{unknown[:80]!r} is not supported here; supported are {', '.join(cls.model_fields)}"
            )
        return given


Writable = Annotated[str, AfterValidator(_writable)]
Text = Annotated[Writable, BeforeValidator(_joined)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class _System(_Strict):
    role: Literal["system", "developer"]
    content: Text


class _User(_Strict):
    role: Literal["user"]
    content: Text


class _Called(_Strict):
    name: ToolName
    arguments: Writable


class _Call(_Strict):
    id: str
    type: Literal["function"]
    function: _Called


class _Assistant(_Strict):
    role: Literal["assistant"]
    content: Text | None = None
    tool_calls: Annotated[list[_Call], Field(min_length=1, max_length=1)] | None = None
    refusal: None = None


class _Replied(_Strict):
    role: Literal["tool"]
    content: Text
    tool_call_id: Annotated[str, Field(min_length=1)]


Message = Annotated[_System | _User | _Assistant | _Replied, Field(discriminator="role")]


class _Function(_Strict):
    name: ToolName
    description: str | None = None
    parameters: Annotated[str, BeforeValidator(_parameter)] = "argument"
    strict: bool | None = None


class _Tool(_Strict):
    type: Literal["function"]
    function: _Function


class _StreamOptions(_Strict):
    include_usage: bool | None = None


class _Format(_Strict):
    type: Literal["text"]


class ChatRequest(_Strict):
    """The body of POST /v1/chat/completions; null is the same as nothing."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES), FailFast()]
    max_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: (
        Annotated[
            list[Annotated[str, Field(min_length=1)]],
            BeforeValidator(_listed),
            Field(min_length=1, max_length=MOST_STOPS),
        ]
        | None
    ) = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    tools: Annotated[list[_Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    response_format: _Format | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _together(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens are the same: give one of them")
        if self.top_logprobs:
            raise ValueError(
                "top_logprobs must be 0: only the log-probability of the token itself is supported"
            )
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        if len({tool.function.name for tool in self.tools or ()}) < len(self.tools or ()):
            raise ValueError("tools: each needs a name of its own")
        return self

    @property
    def offered(self) -> dict[str, str]:
        """The parameter of each tool that may be called, by name."""
        tools = () if self.tool_choice == "none" else self.tools or ()
        return {tool.function.name: tool.function.parameters for tool in tools}

    @property
    def sampling_temperature(self) -> float:
        return 1.0 if self.temperature is None else self.temperature

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @cached_property
    def digest(self) -> str:
        """Hash of all that the reply depends on, and of nothing else: not of how a default is spelled."""
        body = self.model_dump(include={"model", "messages", "seed", "stop"}, exclude_none=True)
        body |= {
            "max_tokens": self.limit,
            "temperature": self.sampling_temperature,
            "n": self.n or 1,
        }
        body |= {"tools": self.offered, "logprobs": bool(self.logprobs)}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


Shape = TypeVar("Shape", bound=_Strict)


def validated(body: Any, shape: type[Shape]) -> Shape:
    """A body as a request. Raises Refused naming the first field that is wrong, and what is supported."""
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "too_long" and first["loc"] == ("messages",):  # each is a token and more
        raise _too_long(f"there may be {MOST_MESSAGES} messages", "messages")
    path = [
        str(part)
        for i, part in enumerate(first["loc"])
        if not (i == 2 and first["loc"][0] == "messages")
    ]
    where, said = ".".join(path), first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        supported = f"; supported are {', '.join(shape.model_fields)}" if len(path) == 1 else ""
        raise Refused(f"{where} is not supported here{supported}", param=where)
    raise Refused(f"{where}: {said}" if where else said, param=where or None)


# Text and tokens ----------------------------------------------------------------------------------


def found(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins; None if there is none."""
    return min((at for at in (text.find(stop) for stop in stops) if at >= 0), default=None)


def settled(text: str, marks: Sequence[str]) -> str:
    """As much of an unfinished text as no mark can still take back: it ends where one begins, or may begin."""
    reach = max(map(len, marks), default=1) - 1
    begun = (
        at
        for at in range(max(0, len(text) - reach), len(text))
        if any(m.startswith(text[at:]) for m in marks)
    )
    ends = (found(text, marks), next(begun, None))
    return text[: min((at for at in ends if at is not None), default=None)]


def _fits(texts: Sequence[str], window: int, param: str) -> None:
    """Raises Refused for texts that are too long together, before the time is spent to tokenize them."""
    room, letters = window, _LONGEST * window
    for text in texts:
        letters -= len(text)
        if letters < 0:
            raise _too_long(
                f"the window has {window} tokens, and room for {_LONGEST} characters each", param
            )
        room -= 1 + sum(1 for _ in islice(_WORDS.finditer(text), max(0, room)))
        if room < 0:
            raise _too_long(f"the window has {window} tokens; {param} has more", param)


def _too_long(message: str, param: str) -> Refused:
    return Refused(message, code="context_length_exceeded", param=param)


# Replies ------------------------------------------------------------------------------------------


class ChatCompletion:
    """One chat completion under way, as a whole or as chunks. `cancel` it when nobody waits any more."""

    def __init__(self, request: ChatRequest, model: ServedModel, batcher: Batcher) -> None:
        self.request, self.model = request, model
        self.stream = bool(request.stream)
        self.stops = tuple(request.stop or ())
        self.tools = request.offered
        self.id = f"chatcmpl-{request.digest[:24]}"
        prompts = self._prompts()
        self.tokens_in = len(prompts[0].ids)
        until = (lambda ids: found(decode(ids), self.stops) is not None) if self.stops else None
        self.ticket = batcher.submit(prompts, until, each=self.stream)

    def cancel(self) -> None:
        """Stop writing it; nothing if it is written."""
        self.ticket.cancel()

    async def whole(self) -> dict[str, Any]:
        """The completion. Raises what Ticket.result raises."""
        generations = await self.ticket.result()
        choices = [self._choice(index, generation) for index, generation in enumerate(generations)]
        return self._head("chat.completion") | {
            "choices": choices,
            "usage": self._usage(generations),
        }

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The completion piece by piece: a role, texts, how it ended; the usage last if it was asked for."""
        with_usage = bool(self.request.stream_options and self.request.stream_options.include_usage)
        head = self._head("chat.completion.chunk") | ({"usage": None} if with_usage else {})
        choices = [_Streamed(self, index) for index in range(self.request.n or 1)]
        for choice in choices:
            yield head | {"choices": [choice.chunk({"role": "assistant", "content": ""})]}
        async for tokens in self.ticket:
            for token in tokens:
                for chunk in choices[token.index].take(token):
                    yield head | {"choices": [chunk]}
        if with_usage:
            yield head | {"choices": [], "usage": self._usage(self.ticket.generations)}

    def text(self, ids: Sequence[int]) -> str:
        """The text of a finished choice, tool call included, stop string not."""
        text = decode(ids)
        return text[: found(text, self.stops)]

    def message(self, index: int, text: str) -> dict[str, Any]:
        """A finished text as the assistant's message: content, and the tool call that it ends in."""
        call = chat_template.called(text) if self.tools else None
        if call is None or call[0] not in self.tools:
            return {"role": "assistant", "content": text}
        name, argument = call
        unique = hashlib.sha256(f"{self.id}/{index}".encode()).hexdigest()[:24]
        function = {"name": name, "arguments": json.dumps({self.tools[name]: argument})}
        calls = [{"id": f"call_{unique}", "type": "function", "function": function}]
        content = text[: text.index(_CALL)].rstrip() or None
        return {"role": "assistant", "content": content, "tool_calls": calls}

    def logprobs(self, generation: Generation, length: int) -> list[dict[str, Any]]:
        """Of the tokens that begin within the first `length` characters of the text."""
        told, entries, at = pieces(), [], 0
        for token, logprob in zip(generation.ids, generation.logprobs, strict=True):
            piece = told[token] if at else told[token].removeprefix(" ")
            if at >= length:
                break
            at += len(piece)
            entries.append(
                {
                    "token": piece,
                    "logprob": logprob,
                    "bytes": list(piece.encode()),
                    "top_logprobs": [],
                }
            )
        return entries

    def _prompts(self) -> list[Prompt]:
        request, window = self.request, self.model.forward.window
        ids = _conversation(request, tuple(self.tools), window)
        limit = request.limit or max(1, min(self.model.max_tokens, window - len(ids)))
        seed = int(request.digest[:12], 16) if request.seed is None else request.seed
        stops = (tuple(encode(_CALLED)),) if self.tools else ()
        prompts = [
            Prompt(tuple(ids), limit, request.sampling_temperature, seed + i, stops)
            for i in range(request.n or 1)
        ]
        try:
            check(prompts[0], window)
        except ContextTooLong as error:
            raise _too_long(str(error), "messages") from None
        return prompts

    def _head(self, kind: str) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": 0, "model": self.model.name}
        return head | {"system_fingerprint": self.model.fingerprint}

    def _choice(self, index: int, generation: Generation) -> dict[str, Any]:
        text = self.text(generation.ids)
        message = self.message(index, text)
        logprobs = (
            {"content": self.logprobs(generation, len(text)), "refusal": None}
            if self.request.logprobs
            else None
        )
        finish = "tool_calls" if "tool_calls" in message else generation.finish
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _usage(self, generations: Sequence[Generation]) -> dict[str, int]:
        return _usage(self.tokens_in, sum(len(generation.ids) for generation in generations))


class _Streamed:
    """One choice of a reply that is read as it is written: nothing is shown that the end could take back."""

    def __init__(self, reply: ChatCompletion, index: int) -> None:
        self.reply, self.index = reply, index
        self.marks = (*reply.stops, *([_CALL] if reply.tools else []))
        self.so_far = Generation()
        self.shown = self.told = 0  # characters, log-probabilities

    def take(self, token: Token) -> list[dict[str, Any]]:
        """The chunks that one more token makes."""
        self.so_far.ids.append(token.id)
        self.so_far.logprobs.append(token.logprob)
        if token.finish:
            return self._end(token.finish)
        text = settled(decode(self.so_far.ids), self.marks)
        text = text.rstrip() if self.reply.tools else text
        return [self.chunk(self._more(text), text)] if len(text) > self.shown else []

    def chunk(
        self, delta: dict[str, Any], text: str = "", finish: str | None = None
    ) -> dict[str, Any]:
        """A choice of a chunk. text: all that is written up to here, for its log-probabilities."""
        entries = (
            self.reply.logprobs(self.so_far, len(text))[self.told :]
            if self.reply.request.logprobs
            else []
        )
        self.told += len(entries)
        logprobs = {"content": entries, "refusal": None} if entries else None
        return {"index": self.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _more(self, text: str) -> dict[str, Any]:
        delta, self.shown = {"content": text[self.shown :]}, len(text)
        return delta

    def _end(self, finish: str) -> list[dict[str, Any]]:
        text = self.reply.text(self.so_far.ids)
        message = self.reply.message(self.index, text)
        content, calls = message["content"] or "", message.get("tool_calls")
        chunks = [self.chunk(self._more(content), content)] if len(content) > self.shown else []
        if calls:
            chunks.append(self.chunk({"tool_calls": [{"index": 0} | call for call in calls]}))
        return [*chunks, self.chunk({}, text, "tool_calls" if calls else finish)]


def _conversation(request: ChatRequest, tools: Sequence[str], window: int) -> list[int]:
    messages = [_spoken(message) for message in request.messages]
    _fits([message["content"] for message in messages], window, "messages")
    return chat_template.conversation(messages, tools)


def _spoken(message: _System | _User | _Assistant | _Replied) -> dict[str, str]:
    """A message as `dialogue` takes it. Raises Refused for a tool call with more than one argument."""
    content = message.content or ""
    if isinstance(message, _Assistant) and message.tool_calls:
        called = message.tool_calls[0].function
        content = f"{content} {chat_template.call(called.name, _argument(called.arguments))}"
    return {"role": "system" if message.role == "developer" else message.role, "content": content}


def _argument(arguments: str) -> str:
    try:
        (value,) = json.loads(arguments).values()
        return _writable(value if isinstance(value, str) else json.dumps(value))
    except (ValueError, AttributeError, RecursionError):
        raise Refused(
            "arguments of a tool call is a JSON object with one value here", param="messages"
        ) from None


def _usage(tokens_in: int, tokens_out: int | None = None) -> dict[str, int]:
    out = {} if tokens_out is None else {"completion_tokens": tokens_out}
    return {"prompt_tokens": tokens_in} | out | {"total_tokens": tokens_in + (tokens_out or 0)}


# Everything together ------------------------------------------------------------------------------


class Answering:
    """Models by name, each with its batcher. waiting: requests that may wait for a model; at_once: sequences."""

    def __init__(
        self, models: Mapping[str, ServedModel], waiting: int = WAITING, at_once: int = AT_ONCE
    ) -> None:
        self.models = dict(models)
        self.batchers = {
            name: Batcher(model.forward, chat_template.token(EOS), waiting, at_once)
            for name, model in models.items()
        }

    def chat(self, body: Any) -> ChatCompletion:
        """Start on a chat completion. Raises Refused, Busy, Closed."""
        request = validated(body, ChatRequest)
        return ChatCompletion(request, self.model(request.model), self.batchers[request.model])

    def listing(self) -> dict[str, Any]:
        """All models, as GET /v1/models gives them."""
        return {"object": "list", "data": [self.about(name) for name in self.models]}

    def about(self, name: str) -> dict[str, Any]:
        """One model. Raises Refused for one that there is not."""
        model = self.model(name)
        head = {"id": name, "object": "model", "created": 0, "owned_by": "orchestration-bench"}
        known = {"context_length": model.forward.window, "system_fingerprint": model.fingerprint}
        return head | known | {"card": dict(model.card)}

    def model(self, name: str) -> ServedModel:
        """A model by name. Raises Refused with status 404."""
        if name not in self.models:
            have = ", ".join(self.models)
            raise Refused(
                f"there is no model {name[:80]!r}; there are {have}",
                404,
                "model_not_found",
                "model",
            )
        return self.models[name]

    async def aclose(self) -> None:
        """End the workers; who still waits gets Closed."""
        for batcher in self.batchers.values():
            await batcher.aclose()
