"""Arguments that models write: right ones arrive typed and in order, all others are told apart from a crash."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tools import Tool, ToolError, calculator, lookup, python, search
from lib.tools.sandbox import Sandbox
from lib.tools.search import Index
from lib.tools.tool import LONGEST, LONGEST_JSON

PARAMETERS = {
    "word": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "loud": {"type": "boolean"},
    "mode": {"type": "string", "enum": ["fast", "slow"]},
}
RIGHT = {"word": "a", "count": 3, "share": 0.5, "loud": True, "mode": "fast"}
TOOL = Tool("echo", "Repeats.", PARAMETERS, lambda **given: json.dumps(given))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def all_tools() -> list[Tool]:
    return [
        calculator(),
        search(Index(["a"])),
        lookup({"home": {"Ana": "Loro"}}),
        python(Sandbox()),
    ]


@pytest.mark.parametrize("given", [RIGHT, json.dumps(RIGHT), dict(reversed(RIGHT.items()))])
def test_right_arguments_arrive_in_the_tools_order(given):
    assert list(TOOL.check_arguments(given).items()) == list(RIGHT.items())
    assert json.loads(TOOL(given)) == RIGHT


@pytest.mark.parametrize(
    "given, message",
    [
        *((given, "JSON object") for given in ("", "{", '{"word": "a"')),
        *((given, "not a list") for given in ("[1]", [("word", "a")])),
        *((given, "no JSON number") for given in ("NaN", '{"share": Infinity}')),
        ('{"word": "a", "word": "b"}', "stands twice"),
        ("[" * 50_000, "echo takes"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "echo takes"),
        ('{"count": ' + "9" * 5_000 + "}", "echo takes"),
        (" " * (LONGEST_JSON + 1), "at most 65_536"),
        ({}, "'word' is missing"),
        ({**RIGHT, "extra": 1}, "'extra' is unknown"),
        ({**RIGHT, 5: 1}, "5 is unknown"),
        ({k: v for k, v in RIGHT.items() if k != "mode"}, "'mode' is missing"),
        ({**RIGHT, "word": 1}, "'word' as string, not 1"),
        ({**RIGHT, "word": {"a": {}}}, "not a dict"),
        ({**RIGHT, "word": "x" * (LONGEST + 1)}, "at most 16_384"),
        ({**RIGHT, "word": "\ud800"}, "surrogate"),
        *(({**RIGHT, "count": wrong}, "'count' as integer") for wrong in ("3", 3.5, True)),
        *(({**RIGHT, "share": wrong}, "'share' as number") for wrong in (float("nan"), False)),
        ({**RIGHT, "loud": 1}, "'loud' as boolean"),
        ({**RIGHT, "mode": "medium"}, "one of 'fast', 'slow'"),
        (7, "not 7"),
    ],
)
def test_wrong_arguments_are_named(given, message):
    with pytest.raises(ToolError, match="^echo ") as caught:
        TOOL(given)
    assert message in str(caught.value) and len(str(caught.value)) < 400


@given(JSON)
def test_any_json_is_taken_or_refused_by_every_tool(value):
    for tool in all_tools():
        try:
            arguments = tool.check_arguments(json.dumps(value))
        except ToolError:
            continue
        assert list(arguments) == list(tool.parameters)


@given(st.text(max_size=200))
def test_any_text_as_arguments_or_as_a_line_is_taken_or_refused(text):
    for tool in (TOOL, *all_tools()):
        for bound in (tool.check_arguments, tool.parse_line):
            with contextlib.suppress(ToolError):
                assert list(bound(text)) == list(tool.parameters)


def test_a_line_gives_words_in_order_and_the_rest_to_the_last():
    pair = Tool(
        "pair",
        "",
        {"first": {"type": "string"}, "rest": {"type": "string"}},
        lambda first, rest: rest,
    )
    assert pair.parse_line("  a  b  c\nd ") == {"first": "a", "rest": "b  c\nd"}
    assert calculator().parse_line(" 47 * 38 ") == {"expression": "47 * 38"}
    assert TOOL.parse_line("a 3 0.5 true fast") == RIGHT
    assert Tool("now", "", {}, lambda: "noon").parse_line("  ") == {}


@pytest.mark.parametrize(
    "line", ["", "  ", "a", "a 3 0.5 true", "a three 0.5 true fast", "a 3 nan true fast"]
)
def test_a_line_that_lacks_a_word_has_a_wrong_one_or_one_too_many_is_refused(line):
    with pytest.raises(ToolError, match="^echo takes"):
        TOOL.parse_line(line)
    with pytest.raises(ToolError, match="takes a line with nothing"):
        Tool("now", "", {}, lambda: "noon").parse_line("please")


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_schemas_are_what_openai_takes(tool):
    schema = tool.schema
    assert json.loads(json.dumps(schema)) == schema and set(schema) == {"type", "function"}
    function = schema["function"]
    assert schema["type"] == "function" and set(function) == {"name", "description", "parameters"}
    parameters = function["parameters"]
    assert parameters["type"] == "object" and parameters["additionalProperties"] is False
    assert parameters["required"] == list(parameters["properties"])
    assert all(
        about["type"] == "string" and about["description"]
        for about in parameters["properties"].values()
    )
    assert 0 < len(function["description"]) <= 1_024


@pytest.mark.parametrize(
    "error", [ValueError("v"), ZeroDivisionError("z"), KeyError("k"), RecursionError("r")]
)
def test_what_a_tool_cannot_do_is_a_tool_error(error):
    def run() -> str:
        raise error

    with pytest.raises(ToolError, match=f"^broken failed with {type(error).__name__}"):
        Tool("broken", "", {}, run)({})


def test_a_tool_that_openai_would_refuse_is_not_made():
    with pytest.raises(ValueError, match="letters"):
        Tool("two words", "", {}, str)
    with pytest.raises(ValueError, match="letters"):
        Tool("fine", "", {"": {"type": "string"}}, str)
    with pytest.raises(ValueError, match="'array'"):
        Tool("fine", "", {"x": {"type": "array"}}, str)
