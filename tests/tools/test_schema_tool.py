"""Tools of other projects: any JSON schema, arguments that are read with limits and checked by the tool itself."""

import json

import pytest

from lib.tools import SchemaTool, ToolError

SCHEMA = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"type": "string"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["ids"],
}


def count(ids, note=None):
    if not isinstance(ids, list):
        raise ToolError("ids is no list")
    return f"{len(ids)} {note}"


TOOL = SchemaTool("count", "Counts ids.", SCHEMA["properties"], count, SCHEMA)


def test_the_whole_schema_is_what_a_model_reads():
    function = TOOL.schema["function"]
    assert function["parameters"] == SCHEMA and function["description"] == "Counts ids."
    assert json.loads(json.dumps(TOOL.schema)) == TOOL.schema


def test_lists_and_optional_parameters_are_passed_on():
    assert TOOL('{"ids": ["a", "b"]}') == "2 None"
    assert TOOL({"ids": [], "note": "x"}) == "0 x"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("[]", "takes a JSON object"),
        ("{", "as a JSON object"),
        ('{"ids": [], "ids": ["a"]}', "a name stands twice"),
        ('{"ids": NaN}', "NaN is no JSON number"),
        ('{"ids": ["\\ud800"]}', "half a surrogate pair"),
        ({"ids": ["a" * 100_000]}, "at most 65_536 characters"),
        ('{"ids": 3}', "ids is no list"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(ToolError, match=message):
        TOOL(arguments)


def test_no_arguments_at_all_are_an_empty_object():
    ping = SchemaTool("ping", "Replies.", {}, lambda: "pong", {"type": "object"})
    assert ping("") == ping("  ") == ping("{}") == "pong"


def test_a_name_that_openais_api_lacks_is_refused():
    with pytest.raises(ValueError, match="letters, digits"):
        SchemaTool("a b", "", {}, str)
