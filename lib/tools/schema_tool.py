"""A tool that another program defines: its parameters are a whole JSON schema, and its own function checks them.

`lib.tools.Tool` knows words, numbers and truth values, all of them required. Tools of other projects take lists,
objects and optional parameters too. What a model wrote is read here with the same limits (an object of JSON, of bounded
length, no name twice, no NaN); whether names and types fit is for the tool's function to say, as it is in its project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lib.tools.tool import LONGEST_JSON, Tool, is_encodable

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what OpenAI's API allows


@dataclass(frozen=True)
class SchemaTool(Tool):
    """Something that an agent may call, with parameters of any JSON type.

    Attributes:
        name: 1 to 64 letters, digits, _ or -, as OpenAI's API allows.
        description: What the model reads about it.
        parameters: JSON-schema properties by name.
        run: Takes the arguments by name and returns text; raises ToolError where they do not fit.
        json_schema: The whole schema of the parameters, with what is required and shared definitions.

    Example:
        >>> schema = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "string"}}}}
        >>> tool = SchemaTool("count", "Counts ids.", schema["properties"], lambda ids: str(len(ids)), schema)
        >>> tool('{"ids": ["a", "b"]}')
        '2'
    """

    json_schema: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a name has 1 to 64 letters, digits, _ or -, not {self.name!r}")

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's API wants it among `tools`."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.json_schema),
        }
        return {"type": "function", "function": function}

    def check_arguments(self, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
        """Read arguments, without a look at names and types.

        Args:
            arguments: A JSON object as text, or a mapping.

        Raises:
            ToolError: They are no object, too long, or no text that can be written as UTF-8.
        """
        if isinstance(arguments, str):
            # Models leave the arguments of a tool without parameters empty.
            arguments = self._parse_json(arguments if arguments.strip() else "{}")
        if not isinstance(arguments, Mapping):
            raise self.make_error("takes a JSON object")
        text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
        if len(text) > LONGEST_JSON:
            raise self.make_error(f"takes at most {LONGEST_JSON:_} characters of JSON")
        if not is_encodable(text):
            raise self.make_error("takes text, not half a surrogate pair")
        return dict(arguments)

    def _list_parameters(self) -> str:
        """Names of the parameters, for an error message."""
        return ", ".join(map(repr, self.parameters)) or "nothing"
