"""JSON schemas as structured outputs use them: which are supported, and whether a value fits one.

Supported are the types, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, `enum`, `const`,
`anyOf`, `oneOf`, `allOf`, bounds of numbers, lengths and counts, and `$ref` to the schema's own `$defs` (or `#`).
`title`, `description`, `default`, `examples` and `format` are notes to the model and checked by nobody.

Left out, and refused by name: everything else. `pattern` is among it, because a regular expression that a client sends
can run for ever; so are references to other documents, for a server reads none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAX_STEPS = (
    20_000  # of one validation; alternatives inside of alternatives double the work at each level
)
MAX_DEPTH = 64
MAX_OPTIONS_IN_ERROR = 20

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _is_integer(value),
}
NOTES = {
    "title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "$comment",
}  # fmt: skip
SUBSCHEMAS = {"additionalProperties", "items"}  # a schema, or true or false
SUBSCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
SUBSCHEMA_MAPPINGS = {"properties", "$defs", "definitions"}
NUMBER_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: value % bound == 0,
}
LENGTH_BOUNDS: dict[str, tuple[type, Callable[[int, int], bool]]] = {
    "minLength": (str, lambda length, bound: length >= bound),
    "maxLength": (str, lambda length, bound: length <= bound),
    "minItems": (list, lambda length, bound: length >= bound),
    "maxItems": (list, lambda length, bound: length <= bound),
    "minProperties": (dict, lambda length, bound: length >= bound),
    "maxProperties": (dict, lambda length, bound: length <= bound),
}
SUPPORTED = {
    "type", "enum", "const", "required", "uniqueItems", "$ref",
    *SUBSCHEMAS, *SUBSCHEMA_LISTS, *SUBSCHEMA_MAPPINGS, *NUMBER_BOUNDS, *LENGTH_BOUNDS,
}  # fmt: skip


class UnsupportedSchema(ValueError):
    """A JSON schema that cannot be checked; the message has the path and the reason, in one line."""


class Mismatch(ValueError):
    """A JSON value that does not fit its schema; the message has the path and the reason, in one line."""


# Whether a schema is supported --------------------------------------------------------------------


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check that a JSON schema uses supported keywords only, and that it describes an object.

    Args:
        schema: The schema of a model's whole reply.

    Raises:
        UnsupportedSchema: For the first keyword that is not supported, with its path in the schema and the reason.
    """
    _check_subschema(schema, schema, "#", 0)
    root = _follow_references(schema, schema, "#")
    if root.get("type") != "object" and not ({"anyOf", "allOf", "oneOf"} & root.keys()):
        raise UnsupportedSchema('#: the type of the whole reply must be "object"')


def _check_subschema(schema: Any, root: Mapping[str, Any], path: str, depth: int) -> None:
    """Check one schema and all schemas nested in it for keywords that are not supported.

    Args:
        schema: Part of `root`; true and false are schemas, too.
        root: The whole schema, which references point into.
        path: Where `schema` stands in `root`, for the error.
        depth: How many schemas it is nested in.

    Raises:
        UnsupportedSchema: With the path and the reason.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise UnsupportedSchema(f"{path}: a schema is an object, true or false")
    if depth > MAX_DEPTH:
        raise UnsupportedSchema(f"{path[:80]}...: schemas may be nested {MAX_DEPTH} levels deep")

    for keyword, content in schema.items():
        subpath = f"{path}/{keyword[:40]}"
        if keyword in NOTES:
            continue
        if keyword not in SUPPORTED:
            supported = ", ".join(sorted(SUPPORTED))
            raise UnsupportedSchema(f"{subpath}: not supported; supported are {supported}")
        _check_keyword(keyword, content, subpath)

        # Keywords that hold further schemas: one, a list of them, or a mapping by name.
        if keyword in SUBSCHEMAS:
            _check_subschema(content, root, subpath, depth + 1)
        elif keyword in SUBSCHEMA_LISTS:
            for index, subschema in enumerate(content):
                _check_subschema(subschema, root, f"{subpath}/{index}", depth + 1)
        elif keyword in SUBSCHEMA_MAPPINGS:
            for name, subschema in content.items():
                _check_subschema(subschema, root, f"{subpath}/{name[:40]}", depth + 1)
    # References are followed now, so that no reply is generated for one that leads nowhere.
    if "$ref" in schema:
        _follow_references(schema, root, path)


def _check_keyword(keyword: str, content: Any, path: str) -> None:
    """Check the value of one schema keyword: `minimum` needs a number, `required` a list of names, and so on.

    Args:
        keyword: Such as "minimum".
        content: Its value in the schema.
        path: Where the keyword stands, for the error.

    Raises:
        UnsupportedSchema: Where the value is of another kind.
    """
    if keyword == "type":
        types = content if isinstance(content, list) else [content]
        is_valid = bool(types) and all(isinstance(name, str) and name in TYPES for name in types)
        expectation = f"one or several of {', '.join(TYPES)}"
    elif keyword in NUMBER_BOUNDS:
        is_valid = TYPES["number"](content) and not (keyword == "multipleOf" and content <= 0)
        expectation = "a number, above 0 for multipleOf"
    elif keyword in LENGTH_BOUNDS:
        is_valid = TYPES["integer"](content) and content >= 0
        expectation = "a whole number"
    elif keyword == "required":
        is_valid = isinstance(content, list) and all(isinstance(name, str) for name in content)
        expectation = "a list of names"
    elif keyword in SUBSCHEMA_LISTS:
        is_valid = isinstance(content, list) and bool(content)
        expectation = "a list of schemas"
    elif keyword in SUBSCHEMA_MAPPINGS:
        is_valid = isinstance(content, dict)
        expectation = "an object of schemas"
    elif keyword == "enum":
        is_valid = isinstance(content, list) and bool(content)
        expectation = "a list of values"
    elif keyword == "uniqueItems":
        is_valid = isinstance(content, bool)
        expectation = "true or false"
    else:
        return
    if not is_valid:
        raise UnsupportedSchema(f"{path}: must be {expectation}")


def _follow_references(
    schema: Mapping[str, Any], root: Mapping[str, Any], path: str
) -> Mapping[str, Any]:
    """Return the schema that a `$ref`, or a chain of them, leads to; a schema without `$ref` is returned as it is.

    Args:
        schema: Part of `root`.
        root: The whole schema, which references point into.
        path: Where `schema` stands in `root`, for the error.

    Returns:
        A schema without `$ref`.

    Raises:
        UnsupportedSchema: For a reference to another document, to nothing, or back to itself.
    """
    visited = set()  # references so far, to notice a circle
    while isinstance(schema, dict) and "$ref" in schema:
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnsupportedSchema(
                f"{path}/$ref: {str(reference)[:80]!r} is not in this schema; supported are references to #/$defs"
            )
        if reference in visited:
            raise UnsupportedSchema(f"{path}/$ref: {reference[:80]!r} leads back to itself")
        visited.add(reference)
        schema = _resolve_pointer(reference, root, path)
    if isinstance(schema, bool):
        # The schema true allows every value, as {} does; false allows none, as an empty enum does.
        return {} if schema else {"enum": []}
    return schema


def _resolve_pointer(reference: str, root: Mapping[str, Any], path: str) -> Any:
    """Return the part of a schema that a JSON pointer such as "#/$defs/person" names.

    Args:
        reference: Begins with "#", the whole schema.
        root: The whole schema.
        path: Where the reference stands, for the error.

    Returns:
        A schema: a mapping, or true or false.

    Raises:
        UnsupportedSchema: Where the pointer names nothing, or something that is no schema.
    """
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")  # escapes of JSON pointers, RFC 6901
        if not isinstance(target, dict) or name not in target:
            raise UnsupportedSchema(f"{path}/$ref: {reference[:80]!r} leads nowhere")
        target = target[name]
    if not isinstance(target, dict | bool):
        raise UnsupportedSchema(f"{path}/$ref: {reference[:80]!r} leads to no schema")
    return target


# Whether a value fits -----------------------------------------------------------------------------


class SchemaValidator:
    """Checks whether JSON values, such as the replies of a model, fit one JSON schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """
        Args:
            schema: Schema of an object.

        Raises:
            UnsupportedSchema: Where it uses keywords that are not supported, see `check_schema`.
        """
        check_schema(schema)
        self.root = schema
        self.steps = 0  # subschemas that the check of one value has visited

    def check(self, value: Any) -> None:
        """Check that a JSON value fits the schema.

        Args:
            value: As json.loads returns it.

        Raises:
            Mismatch: For the first part of the value that does not fit, with its path and the reason.
        """
        self.steps = 0
        self._check(value, self.root, "reply", 0)

    def _check(self, value: Any, schema: Any, path: str, depth: int) -> None:
        """Check that a part of the value fits a subschema.

        Args:
            value: Part of the whole value.
            schema: Part of the whole schema; true fits every value, false none.
            path: Where `value` stands, such as "reply.people[0]", for the error.
            depth: How many checks this one is nested in.

        Raises:
            Mismatch: With the path and the reason.
        """
        # References and alternatives can make even a small schema take for ever.
        self.steps += 1
        if self.steps > MAX_STEPS or depth > 4 * MAX_DEPTH:
            raise Mismatch(f"{path[:80]}: checking it takes too long; use a simpler schema")
        if schema is True:
            return
        if schema is False:
            raise Mismatch(f"{path}: must not be there")

        if "$ref" in schema:
            target = _resolve_pointer(schema["$ref"], self.root, path)
            self._check(value, target, path, depth + 1)
        self._check_type_and_values(value, schema, path)
        self._check_alternatives(value, schema, path, depth)
        _check_bounds(value, schema, path)
        if isinstance(value, dict):
            self._check_object(value, schema, path, depth)
        elif isinstance(value, list):
            self._check_array(value, schema, path, depth)

    def _check_type_and_values(self, value: Any, schema: Mapping[str, Any], path: str) -> None:
        """Check the keywords `type`, `enum` and `const`. Raises Mismatch with the path of a value that does not fit."""
        if "type" in schema:
            types = _list_types(schema)
            if not any(TYPES[name](value) for name in types):
                names = " or ".join(types)
                raise Mismatch(f"{path}: must be of type {names}, not {_show(value)}")
        if "enum" in schema:
            is_option = any(_is_same(value, option) for option in schema["enum"])
            if not is_option:
                options = ", ".join(map(_show, schema["enum"][:MAX_OPTIONS_IN_ERROR]))
                raise Mismatch(f"{path}: must be one of {options}, not {_show(value)}")
        if "const" in schema:
            constant = schema["const"]
            if not _is_same(value, constant):
                raise Mismatch(f"{path}: must be {_show(constant)}, not {_show(value)}")

    def _check_alternatives(
        self, value: Any, schema: Mapping[str, Any], path: str, depth: int
    ) -> None:
        """Check the keywords `allOf` (every subschema fits), `anyOf` (at least one) and `oneOf` (exactly one).

        Args:
            value: Part of the whole value.
            schema: The subschema with the keywords.
            path: Where `value` stands, for the error.
            depth: How many checks this one is nested in.

        Raises:
            Mismatch: With the path and the reason.
        """
        for subschema in schema.get("allOf", ()):
            self._check(value, subschema, path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword not in schema:
                continue
            mismatches = []
            for subschema in schema[keyword]:
                try:
                    self._check(value, subschema, path, depth + 1)
                except Mismatch as error:
                    mismatches.append(str(error))
            num_fitting = len(schema[keyword]) - len(mismatches)
            if num_fitting == 0:
                # The first alternative says the most: optional fields have null as their last one.
                raise Mismatch(f"{path}: fits no alternative; {mismatches[0]}")
            if keyword == "oneOf" and num_fitting > 1:
                raise Mismatch(f"{path}: fits {num_fitting} of oneOf's alternatives")

    def _check_object(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> None:
        """Check an object: required names, and the value of each property by its own subschema.

        Args:
            value: The object.
            schema: Its schema; properties that it does not list follow `additionalProperties`.
            path: Where the object stands, for the error.
            depth: How many checks this one is nested in.

        Raises:
            Mismatch: With the path and the reason.
        """
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                raise Mismatch(f"{path}: lacks {name[:40]!r}")
        for name, content in value.items():
            subpath = f"{path}.{name[:40]}"
            if name in properties:
                self._check(content, properties[name], subpath, depth + 1)
            elif "additionalProperties" in schema:
                self._check(content, schema["additionalProperties"], subpath, depth + 1)

    def _check_array(
        self, value: list[Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> None:
        """Check an array: the first items by their own subschemas (`prefixItems`), the others by `items`, no repeats.

        Args:
            value: The array.
            schema: Its schema.
            path: Where the array stands, for the error.
            depth: How many checks this one is nested in.

        Raises:
            Mismatch: With the path and the reason.
        """
        first_items = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            subpath = f"{path}[{index}]"
            if index < len(first_items):
                self._check(item, first_items[index], subpath, depth + 1)
            elif "items" in schema:
                self._check(item, schema["items"], subpath, depth + 1)
        if schema.get("uniqueItems"):
            for index, item in enumerate(value):
                self.steps += index  # the comparisons of the next line count towards MAX_STEPS
                if any(_is_same(item, earlier) for earlier in value[:index]):
                    raise Mismatch(f"{path}[{index}]: stands in it twice")


def _list_types(schema: Mapping[str, Any]) -> list[str]:
    types = schema["type"]
    return types if isinstance(types, list) else [types]


def _check_bounds(value: Any, schema: Mapping[str, Any], path: str) -> None:
    """Check bounds of a number (`minimum` ...), and of lengths (`maxLength` of a string, `minItems` of an array ...).

    Args:
        value: Any JSON value; bounds for other types than its own are ignored.
        schema: Its schema.
        path: Where the value stands, for the error.

    Raises:
        Mismatch: With the path, the value and the bound.
    """
    if TYPES["number"](value):
        for keyword, fits in NUMBER_BOUNDS.items():
            bound = schema.get(keyword)
            if bound is not None and not fits(value, bound):
                raise Mismatch(f"{path}: {_show(value)} breaks {keyword} {bound}")

    # A bound of length concerns values of its own type only.
    for keyword, (value_type, fits) in LENGTH_BOUNDS.items():
        bound = schema.get(keyword)
        if bound is not None and isinstance(value, value_type):
            length = len(value)
            if not fits(length, bound):
                raise Mismatch(f"{path}: {length} breaks {keyword} {bound}")


def _is_integer(value: Any) -> bool:
    """Whether a JSON value is a whole number; 2.0 is one, true is none, though Python counts bool as int."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_same(value: Any, option: Any) -> bool:
    """Whether two JSON values are equal; other than in Python, true is not 1."""
    if isinstance(value, bool) or isinstance(option, bool):
        return value is option
    if isinstance(value, list) and isinstance(option, list):
        if len(value) != len(option):
            return False
        return all(map(_is_same, value, option))
    if isinstance(value, dict) and isinstance(option, dict):
        if value.keys() != option.keys():
            return False
        return all(_is_same(content, option[name]) for name, content in value.items())
    return value == option


def _show(value: Any) -> str:
    return repr(value)[:60]
