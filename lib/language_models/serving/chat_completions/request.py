"""The body of a POST to /v1/chat/completions: what may stand in it, and by what name the rest is refused.

Accepted is what the models can do and everything that changes no reply: nulls, parameters at their neutral value
(`top_p: 1`, `logit_bias: {}`), labels (`user`, `metadata`, a message's `name`). Refused, in one line with the
parameter's name and what is supported, is what would change the reply and is not supported (`top_p: 0.5`, images).
Left out: what one model supports and another does not, which the model itself refuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
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

MAX_CHOICES = 8
MAX_STOPS = 4
MAX_MESSAGES = 1024
MAX_TOOLS = 128
NO_LIMIT = -1  # as max_tokens: up to the end of the window
IGNORED_PART_FIELDS = {"cache_control"}  # of a content part: they change costs elsewhere, no reply


class RequestRefused(ValueError):
    """A request that cannot be honoured.

    Attributes:
        status: The HTTP status.
        code: A word for programs, as in OpenAI's API.
        param: The parameter that is at fault, as a dotted path.
    """

    def __init__(
        self, message: str, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


# Checks of single values ------------------------------------------------------------------------


def check_unicode(text: str) -> str:
    """Refuse half a surrogate pair, which is no character though JSON can spell it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text") from None
    return text


def join_text_parts(content: Any) -> Any:
    """Join the content parts of a message, [{"type": "text", "text": ...}, ...], to one text, a line each.

    Content that is no list stays as it is. Raises ValueError for parts that are no text, such as images.
    """
    if not isinstance(content, list):
        return content
    return "\n".join(map(_read_text_part, content))


def _read_text_part(part: Any) -> str:
    """Return the text of one content part. Raises ValueError for anything but {"type": "text", "text": ...}."""
    supported = 'supported are parts {"type": "text", "text": ...}'
    if not isinstance(part, dict):
        raise ValueError(f"a content part is an object; {supported}")
    if part.get("type") != "text":
        kind = str(part.get("type"))[:40]
        raise ValueError(f"content parts of type {kind!r} are not supported; {supported}")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"a text part has a text; {supported}")
    for name, value in part.items():
        if value is not None and name not in {"type", "text", *IGNORED_PART_FIELDS}:
            raise ValueError(f"{name[:40]!r} in a content part is not supported; {supported}")
    return part["text"]


def _check_schema_is_writable(schema: Any) -> Any:
    """Return a JSON schema as it is. Raises ValueError for one that cannot be written as JSON text again."""
    if not isinstance(schema, dict):
        raise ValueError("a JSON schema is an object")
    try:
        json.dumps(schema, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ValueError(
            "the JSON schema cannot be written: half a character, or too deep"
        ) from None
    return schema


def _check_token_limit(limit: int) -> int:
    if limit != NO_LIMIT and limit < 1:
        raise ValueError(f"{limit} is not supported; at least 1, or {NO_LIMIT} for no limit")
    return limit


def _check_not_empty(stop: str) -> str:
    if not stop:
        raise ValueError("a stop string has at least one character")
    return stop


def _list_stops(stop: Any) -> Any:
    """Normalise the parameter `stop`: one string becomes a list of it, an empty list None; all else stays."""
    if isinstance(stop, str):
        return [stop]
    if stop == []:
        return None
    return stop


def _check_tool_choice(choice: Any) -> Any:
    """Return a supported value of the parameter `tool_choice` as it is. Raises ValueError for any other."""
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice
    if _is_named_function(choice):
        return choice
    raise ValueError(
        'supported are "auto", "none", "required" and {"type": "function", "function": {"name": ...}}'
    )


def _is_named_function(choice: Any) -> bool:
    """Whether it is {"type": "function", "function": {"name": ...}}."""
    if not isinstance(choice, dict) or choice.keys() != {"type", "function"}:
        return False
    function = choice["function"]
    if choice["type"] != "function" or not isinstance(function, dict):
        return False
    return function.keys() == {"name"} and isinstance(function["name"], str)


def only(*neutral_values: Any) -> Any:
    """Make the type of a request's parameter that may have neutral values only, which change no reply.

    Args:
        neutral_values: Such as 1 for top_p.

    Returns:
        A pydantic type, whose validation raises ValueError for any other value.
    """

    def check(value: Any) -> Any:
        for neutral in neutral_values:
            # in Python true equals 1, in JSON it does not
            if value == neutral and isinstance(value, bool) == isinstance(neutral, bool):
                return value
        supported = " or ".join(json.dumps(neutral) for neutral in neutral_values)
        raise ValueError(f"{str(value)[:40]} is not supported; supported is {supported}")

    return Annotated[Any, BeforeValidator(check)]


UnicodeText = Annotated[str, AfterValidator(check_unicode)]
Content = Annotated[UnicodeText, BeforeValidator(join_text_parts)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Schema = Annotated[dict[str, Any], BeforeValidator(_check_schema_is_writable)]
TokenLimit = Annotated[int, Field(le=2**31), AfterValidator(_check_token_limit)]
Unused = Annotated[Any, Field(exclude=True)]  # accepted, and no part of the request's digest


# Messages ---------------------------------------------------------------------------------------


class StrictShape(BaseModel):
    """An object of the API without any field that is not named here; null is the same as nothing."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        """Leave out fields that are null, before pydantic validates the others; refuse one of far too many fields."""
        if not isinstance(body, dict):
            return body
        fields = {name: value for name, value in body.items() if value is not None}
        # pydantic would report every unknown field of an object of 80,000, for a second
        if len(fields) > len(cls.model_fields):
            unknown = next(name for name in fields if name not in cls.model_fields)
            supported = ", ".join(cls.model_fields)
            raise ValueError(f"{unknown[:80]!r} is not supported here; supported are {supported}")
        return fields


class SystemMessage(StrictShape):
    role: Literal["system", "developer"]
    content: Content
    name: Unused = None


class UserMessage(StrictShape):
    role: Literal["user"]
    content: Content
    name: Unused = None


class CalledFunction(StrictShape):
    name: ToolName
    arguments: UnicodeText
    parsed_arguments: Unused = None  # of the openai package's `parse`


class CallInHistory(StrictShape):
    id: UnicodeText
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Unused = None  # of a call put together from a stream


class AssistantMessage(StrictShape):
    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[CallInHistory], Field(max_length=MAX_TOOLS)] | None = None
    name: Unused = None
    annotations: Unused = None
    reasoning_content: Unused = None  # as this server returns it
    parsed: Unused = None  # of the openai package's `parse`

    @model_validator(mode="after")
    def _drop_empty_tool_calls(self) -> AssistantMessage:
        if self.tool_calls == []:
            self.tool_calls = None
        return self


class ToolMessage(StrictShape):
    role: Literal["tool"]
    content: Content
    tool_call_id: Annotated[UnicodeText, Field(min_length=1)]
    name: Unused = None


AnyMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Message = Annotated[AnyMessage, Field(discriminator="role")]


# Tools and formats ------------------------------------------------------------------------------


class OfferedFunction(StrictShape):
    name: ToolName
    description: UnicodeText | None = None
    parameters: Schema | None = None
    strict: bool | None = None

    @property
    def required_arguments(self) -> list[str]:
        """Names of the arguments without which the function cannot be called."""
        return _list_names((self.parameters or {}).get("required"))

    @property
    def argument(self) -> str:
        """Name of the argument that takes a lab model's one line: the first required one, or the first."""
        properties = _list_names((self.parameters or {}).get("properties"))
        return [*self.required_arguments, *properties, "argument"][0]


def _list_names(names: Any) -> list[str]:
    if not isinstance(names, list | dict):
        return []
    return [name for name in names if isinstance(name, str)]


class OfferedTool(StrictShape):
    type: Literal["function"]
    function: OfferedFunction


class StreamOptions(StrictShape):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding against eavesdroppers, of which there is none


class TextFormat(StrictShape):
    type: Literal["text"]


class JsonObjectFormat(StrictShape):
    type: Literal["json_object"]


class NamedSchema(StrictShape):
    name: str = ""
    description: UnicodeText | None = None
    schema_: Annotated[Schema, Field(alias="schema")]
    strict: bool | None = None


class JsonSchemaFormat(StrictShape):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


# The request ------------------------------------------------------------------------------------


class CompletionRequest(StrictShape):
    """The body of POST /v1/chat/completions."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES), FailFast()]
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[
        Annotated[
            list[Annotated[UnicodeText, AfterValidator(_check_not_empty)]],
            Field(min_length=1, max_length=MAX_STOPS),
        ]
        | None,
        BeforeValidator(_list_stops),
    ] = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: only(0) = 0
    tools: Annotated[list[OfferedTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Annotated[Any, BeforeValidator(_check_tool_choice)] = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    # accepted at the value that changes nothing
    top_p: only(1) = 1
    frequency_penalty: only(0) = 0
    presence_penalty: only(0) = 0
    logit_bias: only({}) = {}
    modalities: only(["text"]) = ["text"]
    store: only(False) = False
    verbosity: only("medium") = "medium"

    # accepted, and change nothing here; no model that is served reasons by effort
    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @model_validator(mode="after")
    def _check_fields_together(self) -> CompletionRequest:
        """Check what concerns several fields: limits that agree, tools with different names, a forced tool on offer."""
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError("max_tokens and max_completion_tokens are the same: give one of them")

        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("tools: each needs a name of its own")

        if self.forces_a_call and not names:
            raise ValueError("tool_choice asks for a call, but there are no tools")
        if self.forced_tool is not None and self.forced_tool not in names:
            raise ValueError(
                f"tool_choice names {self.forced_tool[:64]!r}, which is none of the tools {', '.join(names)}"
            )
        return self

    @property
    def offered_tools(self) -> dict[str, OfferedFunction]:
        """The tools that may be called, by name."""
        if self.tool_choice == "none":
            return {}
        return {tool.function.name: tool.function for tool in self.tools or ()}

    @property
    def forced_tool(self) -> str | None:
        """Name of the tool that must be called, if the request names one."""
        if isinstance(self.tool_choice, Mapping):
            return self.tool_choice["function"]["name"]
        return None

    @property
    def forces_a_call(self) -> bool:
        """Whether the reply must be a tool call."""
        return self.tool_choice == "required" or self.forced_tool is not None

    @property
    def wants_json(self) -> bool:
        """Whether the reply must be JSON."""
        return self.response_format is not None and self.response_format.type != "text"

    @property
    def wants_usage_in_stream(self) -> bool:
        """Whether the stream ends with the number of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema that the reply must fit, if there is one."""
        if isinstance(self.response_format, JsonSchemaFormat):
            return self.response_format.json_schema.schema_
        return None

    @property
    def sampling_temperature(self) -> float:
        return 1.0 if self.temperature is None else self.temperature

    @property
    def token_limit(self) -> int | None:
        """Tokens of the reply at the most, NO_LIMIT for the whole window; None where the model decides."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @cached_property
    def digest(self) -> str:
        """Hash of all that a lab model's reply depends on: a default that is spelled out does not change it."""
        # Seeds are made of this hash: another field here changes the replies of requests without a seed.
        body = self.model_dump(include={"model", "messages", "seed", "stop"}, exclude_none=True)
        body["max_tokens"] = self.token_limit
        body["temperature"] = self.sampling_temperature
        body["n"] = self.n or 1
        body["tools"] = {name: tool.argument for name, tool in self.offered_tools.items()}
        body["logprobs"] = bool(self.logprobs)
        # only where it matters, so that older requests keep their hash
        if self.forces_a_call:
            body["tool_choice"] = self.tool_choice
        return _hash_json(body)

    @cached_property
    def digest_with_schemas(self) -> str:
        """Hash of what a reply depends on where the model reads the schemas of the tools as well."""
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        response_format = None
        if self.response_format is not None:
            response_format = self.response_format.model_dump(by_alias=True, exclude_none=True)
        return _hash_json([self.digest, tools, response_format, self.parallel_tool_calls])


def _hash_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


Shape = TypeVar("Shape", bound=StrictShape)


def parse_body(body: Any, shape: type[Shape] = CompletionRequest) -> Shape:
    """Validate the JSON body of a request.

    Args:
        body: The JSON as Python values.
        shape: The pydantic model that it must fit.

    Returns:
        The request, an instance of `shape`.

    Raises:
        RequestRefused: Naming the first field that is wrong, and what is supported.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    except RecursionError:
        raise RequestRefused("the body is nested too deep") from None

    if first["type"] == "too_long" and first["loc"] == ("messages",):  # each is a token and more
        raise refuse_length(f"there may be {MAX_MESSAGES} messages", "messages")
    path = _name_field(first["loc"])
    if first["type"] == "extra_forbidden":
        supported = f"; supported are {', '.join(shape.model_fields)}" if "." not in path else ""
        raise RequestRefused(f"{path} is not supported here{supported}", param=path)

    message = first["msg"].removeprefix("Value error, ")
    if not path:
        # a check of several fields begins with the field's name
        name = message.split()[0].strip("':")
        param = name if name in shape.model_fields else None
        raise RequestRefused(message, param=param)
    raise RequestRefused(f"{path}: {message}", param=path)


def refuse_length(message: str, param: str) -> RequestRefused:
    """The refusal of a prompt that does not fit into the model's window."""
    return RequestRefused(message, code="context_length_exceeded", param=param)


def _name_field(location: tuple[int | str, ...]) -> str:
    """Write the location of a field as a dotted path: ("messages", 0, "user", "content") -> "messages.0.content".

    Args:
        location: As pydantic reports it, with the kind of a message or format in it, which is left out.

    Returns:
        The path.
    """
    steps = list(location)
    if steps[:1] == ["messages"]:
        del steps[2:3]
    elif steps[:1] == ["response_format"]:
        del steps[1:2]
    return ".".join(map(str, steps))
