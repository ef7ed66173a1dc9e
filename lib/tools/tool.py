"""What a tool is: a name, a description, parameters as JSON schema, and a function that gives text.

A tool is called with the arguments that a model wrote, which may be anything: JSON in the way of OpenAI's
API, or a plain line of words in the way of the lab models. They are checked before the tool runs, and what
is wrong with them is said in a `ToolError`, which an agent can read.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TYPES = ("string", "integer", "number", "boolean")
LONGEST = 16_384  # characters of one text argument
LONGEST_JSON = 4 * LONGEST  # characters of all arguments as JSON; escapes take room
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what OpenAI's API allows
_MAX_SHOWN = 60  # characters of a wrong value that an error repeats


class ToolError(ValueError):
    """What was wrong with a call: names the tool, the value and what is allowed."""


@dataclass(frozen=True)
class Tool:
    """Something that an agent may call.

    Attributes:
        name: 1 to 64 letters, digits, _ or -, as OpenAI's API allows.
        description: What the model reads about it.
        parameters: JSON-schema properties by name, all required, in the order in which a plain line gives them.
        run: Takes the arguments by name and returns text.

    Raises:
        ValueError: A name or a type that OpenAI's API lacks.

    Example:
        >>> tool = Tool("shout", "Says it louder.", {"text": {"type": "string"}}, run=lambda text: text.upper())
        >>> tool('{"text": "hello"}')
        'HELLO'
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]
    run: Callable[..., str]

    def __post_init__(self) -> None:
        for name in (self.name, *self.parameters):
            if not _NAME.fullmatch(name):
                raise ValueError(f"a name has 1 to 64 letters, digits, _ or -, not {name!r}")
        for name, parameter in self.parameters.items():
            if parameter.get("type") not in TYPES:
                raise ValueError(
                    f"{name} is of type {parameter.get('type')!r}; there are {', '.join(TYPES)}"
                )

    @property
    def schema(self) -> dict[str, Any]:
        """Describes the tool as an OpenAI function schema, an entry of `tools` in a chat request."""
        parameters = {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.parameters.items()},
            "required": list(self.parameters),
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def __call__(self, arguments: str | Mapping[str, Any]) -> str:
        """Runs the tool.

        Args:
            arguments: What a model wrote: a JSON object, or a mapping of one.

        Returns:
            The tool's reply.

        Raises:
            ToolError: The arguments are wrong, or the tool can do nothing with them.
        """
        checked_arguments = self.check_arguments(arguments)
        try:
            return self.run(**checked_arguments)
        except ToolError:
            raise
        # What a tool's own code raises of strange arguments; anything else is a mistake in the tool.
        except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise self.make_error(f"failed with {type(error).__name__}: {error}") from error

    def check_arguments(self, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
        """Checks arguments, and brings them into the order of the tool's parameters.

        Args:
            arguments: A JSON object as text, or a mapping.

        Raises:
            ToolError: They are no object, or one is missing, unknown, too long or of a wrong type.
        """
        if isinstance(arguments, str):
            arguments = self._parse_json(arguments)
        if not isinstance(arguments, Mapping):
            raise self.make_error(
                f"takes an object with {self._list_parameters()}, not {_shorten(arguments)}"
            )
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            raise self.make_error(
                f"takes {self._list_parameters()}: {_shorten(unknown[0])} is unknown"
            )
        missing = [name for name in self.parameters if name not in arguments]
        if missing:
            raise self.make_error(f"takes {self._list_parameters()}: {missing[0]!r} is missing")
        # In the order of the parameters, so that equal calls are equal texts.
        return {name: self._check_value(name, arguments[name]) for name in self.parameters}

    def parse_line(self, text: str) -> dict[str, Any]:
        """Parses arguments that stand in one line, separated by blanks, in the order of the parameters.

        Args:
            text: The line; the last parameter takes all words that remain.

        Returns:
            {parameter: value of its type}.

        Raises:
            ToolError: There are too few words, or one is of a wrong type.
        """
        # The last parameter may hold blanks: so many cuts and no more.
        words = text.strip().split(maxsplit=max(len(self.parameters) - 1, 0))
        if len(words) != len(self.parameters):
            raise self.make_error(
                f"takes a line with {self._list_parameters()}, not {_shorten(text)}"
            )
        arguments = {}
        for name, word in zip(self.parameters, words, strict=True):
            arguments[name] = self._convert_word(name, word)
        return self.check_arguments(arguments)

    def make_error(self, message: str) -> ToolError:
        """A ToolError that names this tool."""
        return ToolError(f"{self.name} {message}")

    def _list_parameters(self) -> str:
        """Names and types of the parameters, for an error message."""
        typed_names = [f"{name!r} ({schema['type']})" for name, schema in self.parameters.items()]
        return ", ".join(typed_names) or "nothing"

    def _parse_json(self, text: str) -> Any:
        """Parses the arguments of a call from JSON.

        Raises:
            ToolError: The text is too long, no JSON, or names an argument twice.
        """
        if len(text) > LONGEST_JSON:
            raise self.make_error(
                f"takes at most {LONGEST_JSON:_} characters of JSON, not {len(text):_}"
            )
        try:
            return json.loads(
                text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_names
            )
        except (ValueError, RecursionError) as error:
            raise self.make_error(
                f"takes {self._list_parameters()} as a JSON object, not {_shorten(text)}: {error}"
            ) from error

    def _check_value(self, name: str, value: Any) -> Any:
        """Checks the value of an argument against the schema of its parameter, and returns it.

        Args:
            name: Name of the parameter.
            value: What the model gave.

        Raises:
            ToolError: It has a wrong type, is too long, or is none of the allowed values.
        """
        schema = self.parameters[name]
        if not _has_json_type(value, schema["type"]):
            raise self.make_error(f"takes {name!r} as {schema['type']}, not {_shorten(value)}")
        if isinstance(value, str) and len(value) > LONGEST:
            raise self.make_error(
                f"takes at most {LONGEST:_} characters in {name!r}, not {len(value):_}"
            )
        if isinstance(value, str) and not is_encodable(value):
            raise self.make_error(
                f"takes {name!r} as text, not {_shorten(value)}, which has half a surrogate pair"
            )
        if "enum" in schema and value not in schema["enum"]:
            allowed_values = ", ".join(map(repr, schema["enum"]))
            raise self.make_error(
                f"takes {name!r} as one of {allowed_values}, not {_shorten(value)}"
            )
        return value

    def _convert_word(self, name: str, word: str) -> Any:
        """Converts a word to the type of a parameter; a word that cannot be converted stays text.

        Args:
            name: Name of the parameter.
            word: As the model wrote it.
        """
        json_type = self.parameters[name]["type"]
        try:
            if json_type == "integer":
                return int(word)
            if json_type == "number":
                return float(word)
            if json_type == "boolean":
                return {"true": True, "false": False}[word.lower()]
        except (ValueError, KeyError):
            pass
        return word


def _has_json_type(value: Any, json_type: str) -> bool:
    """Whether a Python value has a JSON type; True is no number here, and neither are nan and infinity.

    Args:
        value: The value.
        json_type: "string", "boolean", "integer" or "number".
    """
    if json_type == "string":
        return isinstance(value, str)
    if json_type == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):  # Python's bool is an int
        return False
    if isinstance(value, int):
        return True
    return json_type == "number" and isinstance(value, float) and math.isfinite(value)


def is_encodable(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, and so can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shorten(value: Any) -> str:
    """Formats a value for an error message: texts and numbers are shortened, others are named by their type."""
    if isinstance(value, str):
        shortened = value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "..."
        return repr(shortened)
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        # By bits, because Python refuses to print huge integers; a digit has about three.
        is_short = value.bit_length() < 3 * _MAX_SHOWN
        return repr(value) if is_short else "a huge integer"
    return f"a {type(value).__name__}"


def _refuse_constant(name: str) -> float:
    """Called by json for NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is no JSON number")


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different; readers of JSON disagree about the others."""
    json_object = dict(pairs)
    if len(json_object) < len(pairs):
        raise ValueError("a name stands twice")
    return json_object
