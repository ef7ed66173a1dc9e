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
_SHOWN = 60  # characters of a wrong value that an error repeats


class ToolError(ValueError):
    """What was wrong with a call: names the tool, the value and what is allowed."""


@dataclass(frozen=True)
class Tool:
    """Something that an agent may call.

    parameters: JSON-schema properties by name, all required, in the order in which a plain line gives them;
    run: takes them by name and returns text. Raises ValueError for a name or a type that OpenAI's API lacks.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]
    run: Callable[..., str]

    def __post_init__(self) -> None:
        for name in (self.name, *self.parameters):
            if not _NAME.fullmatch(name):
                raise ValueError(f"a name has 1 to 64 letters, digits, _ or -, not {name!r}")
        for name, about in self.parameters.items():
            if about.get("type") not in TYPES:
                raise ValueError(
                    f"{name} is of type {about.get('type')!r}; there are {', '.join(TYPES)}"
                )

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's API wants it among `tools`."""
        parameters = {
            "type": "object",
            "properties": {name: dict(about) for name, about in self.parameters.items()},
            "required": list(self.parameters),
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def __call__(self, arguments: str | Mapping[str, Any]) -> str:
        """The tool's reply. Raises ToolError for wrong arguments and for what the tool cannot do with them."""
        given = self.arguments(arguments)
        try:
            return self.run(**given)
        except ToolError:
            raise
        except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise self.error(f"failed with {type(error).__name__}: {error}") from error

    def arguments(self, given: str | Mapping[str, Any]) -> dict[str, Any]:
        """Arguments in the tool's own order, from a JSON object or a mapping.

        Raises ToolError where they are no object, one is missing, unknown, too long or of a wrong type.
        """
        given = self._object(given) if isinstance(given, str) else given
        if not isinstance(given, Mapping):
            raise self.error(f"takes an object with {self._wanted()}, not {_short(given)}")
        unknown = [name for name in given if name not in self.parameters]
        missing = [name for name in self.parameters if name not in given]
        if unknown or missing:
            found = f"{_short(unknown[0])} is unknown" if unknown else f"{missing[0]!r} is missing"
            raise self.error(f"takes {self._wanted()}: {found}")
        return {name: self._checked(name, given[name]) for name in self.parameters}

    def line(self, text: str) -> dict[str, Any]:
        """Arguments from a line of words, one for each parameter in order; the last one takes the rest.

        Raises ToolError where words are missing or left over, or one is of a wrong type.
        """
        words = text.strip().split(maxsplit=max(len(self.parameters) - 1, 0))
        if len(words) != len(self.parameters):
            raise self.error(f"takes a line with {self._wanted()}, not {_short(text)}")
        return self.arguments(
            {
                name: self._read(name, word)
                for name, word in zip(self.parameters, words, strict=True)
            }
        )

    def error(self, message: str) -> ToolError:
        """A ToolError that names this tool."""
        return ToolError(f"{self.name} {message}")

    def _wanted(self) -> str:
        return (
            ", ".join(f"{name!r} ({about['type']})" for name, about in self.parameters.items())
            or "nothing"
        )

    def _object(self, text: str) -> Any:
        if len(text) > LONGEST_JSON:
            raise self.error(
                f"takes at most {LONGEST_JSON:_} characters of JSON, not {len(text):_}"
            )
        try:
            return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise self.error(
                f"takes {self._wanted()} as a JSON object, not {_short(text)}: {error}"
            ) from error

    def _checked(self, name: str, value: Any) -> Any:
        """A value of the parameter's type. Raises ToolError otherwise."""
        about = self.parameters[name]
        if not _is(about["type"], value):
            raise self.error(f"takes {name!r} as {about['type']}, not {_short(value)}")
        if isinstance(value, str) and len(value) > LONGEST:
            raise self.error(
                f"takes at most {LONGEST:_} characters in {name!r}, not {len(value):_}"
            )
        if isinstance(value, str) and not encodes(value):
            raise self.error(
                f"takes {name!r} as text, not {_short(value)}, which has half a surrogate pair"
            )
        if "enum" in about and value not in about["enum"]:
            raise self.error(
                f"takes {name!r} as one of {', '.join(map(repr, about['enum']))}, not {_short(value)}"
            )
        return value

    def _read(self, name: str, word: str) -> Any:
        """A word as the parameter's type; left as it is, and refused later, where it is none."""
        readers = {
            "integer": int,
            "number": float,
            "boolean": lambda w: {"true": True, "false": False}[w.lower()],
        }
        try:
            return readers.get(self.parameters[name]["type"], str)(word)
        except (ValueError, KeyError):
            return word


def _is(kind: str, value: Any) -> bool:
    """Whether a value has a JSON type; a truth value is no number here, nor is one that is not finite."""
    if kind in ("string", "boolean"):
        return isinstance(value, str if kind == "string" else bool)
    if isinstance(value, bool) or not isinstance(
        value, (int,) if kind == "integer" else (int, float)
    ):
        return False
    return isinstance(value, int) or math.isfinite(value)


def encodes(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    """A value for an error message: never long, whatever it is, and never its inside."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() < 3 * _SHOWN else "a huge integer"
    return f"a {type(value).__name__}"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different; readers of JSON disagree about the others."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)
