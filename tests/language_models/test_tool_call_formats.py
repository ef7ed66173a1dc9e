"""Tool calls are read in the formats of open models, and what is shown early of a reply is never part of a call."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.language_models.tool_call_formats import (
    cut_before_tool_call,
    format_hermes_call,
    parse_tool_calls,
)

ARGUMENTS = {"text": "a </tool_call> in a string, é", "n": 1}
JSON = json.dumps(ARGUMENTS, ensure_ascii=False)
FORMATS = {
    "hermes": f'<tool_call>\n{{"name": "add", "arguments": {JSON}}}\n</tool_call>',
    "hermes without its end": f'<tool_call>{{"name": "add", "arguments": {JSON}}}',
    "hermes, JSON in JSON": f'<tool_call>{{"name": "add", "arguments": {json.dumps(JSON)}}}</tool_call>',
    "mistral": f'[TOOL_CALLS] [{{"name": "add", "arguments": {JSON}}}]',
    "mistral, newer": f"[TOOL_CALLS]add[ARGS]{JSON}",
    "llama": f'{{"name": "add", "parameters": {JSON}}}',
    "llama, as a function": f'{{"type": "function", "function": {{"name": "add", "parameters": {JSON}}}}}',
    "llama, marked": f'<|python_tag|>{{"name": "add", "parameters": {JSON}}}',
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_call_is_read_in_every_format(text):
    parsed = parse_tool_calls(text, ["add"])
    assert parsed.calls == (("add", JSON),)
    assert (parsed.text, parsed.error) == ("", "")


def test_several_calls_and_the_text_around_them_are_read():
    one, two = format_hermes_call("add", '{"a": 1}'), format_hermes_call("sub", "{}")
    parsed = parse_tool_calls(f"First this.\n{one}\n{two}\nDone.", ["add"])
    assert parsed.calls == (("add", '{"a": 1}'), ("sub", "{}"))
    assert parsed.text.startswith("First this.") and parsed.text.endswith("Done.")
    llama = '{"name": "add", "parameters": {}}; {"name": "add", "parameters": {"a": 2}}'
    assert parse_tool_calls(llama, ["add"]).calls == (("add", "{}"), ("add", '{"a": 2}'))
    mistral = '[TOOL_CALLS][{"name": "add", "arguments": {}}, {"name": "sub", "arguments": {}}]'
    assert [name for name, _ in parse_tool_calls(mistral, []).calls] == ["add", "sub"]


@pytest.mark.parametrize(
    "text", ['{"name": "Ada", "age": 36}', "{not JSON", '{"a": 1}', "plain", "", "[1, 2]"]
)
def test_text_that_calls_no_tool_on_offer_stays_text(text):
    parsed = parse_tool_calls(text, ["add"])
    assert parsed.text == text and not parsed.calls and not parsed.error


@pytest.mark.parametrize(
    "text, reason",
    [
        ('<tool_call>{"name": "add", "arg', "no JSON"),
        ("<tool_call>[1]</tool_call>", "no object with a name"),
        ('<tool_call>{"name": "add", "arguments": 3}</tool_call>', "arguments of 'add'"),
        ("[TOOL_CALLS]add[ARGS]nothing", "no JSON"),
        ("<|python_tag|>{", "no JSON"),
        ("<tool_call>" + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_marked_call_that_cannot_be_read_is_an_error_and_its_text_is_there(text, reason):
    parsed = parse_tool_calls(text, ["add"])
    assert reason in parsed.error and "\n" not in parsed.error
    assert parsed.text == text and not parsed.calls


_PIECES = [*FORMATS.values(), "Hello", " ", "\n", "<", "<tool", "[TOOL", "{", "}", "é"]


@given(st.lists(st.sampled_from(_PIECES), max_size=5).map("".join))
def test_what_is_shown_of_a_reply_under_way_begins_the_text_that_comes_out(text):
    final = parse_tool_calls(text, ["add"]).text
    for end in range(len(text) + 1):
        assert final.startswith(cut_before_tool_call(text[:end]))
