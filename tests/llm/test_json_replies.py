"""Reading JSON: one object out of a reply, and the arguments of a tool call in every form that servers send."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.llm.json_replies import (
    DEEPEST,
    KINDS,
    LONGEST,
    LONGEST_ARGUMENTS,
    InvalidReply,
    join_values,
    read_arguments,
    read_object,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


# Arguments of tool calls --------------------------------------------------------------------------


@given(OBJECTS)
def test_arguments_come_as_text_as_text_of_a_text_or_as_an_object(arguments):
    text = json.dumps(arguments)
    assert read_arguments(text) == arguments
    assert read_arguments(json.dumps(text)) == arguments
    assert read_arguments(arguments) == arguments


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"words": "3 + 4",}', {"words": "3 + 4"}),
        ('{"words": ["a", "b", ], }', {"words": ["a", "b"]}),
        ('{"words": {"a": 1,\n},\n}', {"words": {"a": 1}}),
        ('{"words": ",}", }', {"words": ",}"}),
        (r'{"words": "say \",]\"",}', {"words": 'say ",]"'}),
    ],
)
def test_a_trailing_comma_is_repaired_as_in_a_reply_and_never_inside_a_string(text, arguments):
    assert read_arguments(text) == read_arguments(json.dumps(text)) == arguments
    assert read_object(text) == (arguments, True)


@given(st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4))
def test_of_any_object_a_comma_before_its_last_bracket_is_all_that_a_repair_removes(arguments):
    text = json.dumps(arguments)
    assert read_arguments(text[:-1] + ",}") == arguments


def test_whole_numbers_of_arguments_stay_whole():
    assert repr(read_arguments('{"n": 7,}')) == repr(read_arguments('{"n": 7}')) == "{'n': 7}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3 + 4",
        "[1, 2]",
        '"3 + 4"',
        "null",
        "{1, 2,}",  # a set of Python's
        "{'words': 'a'}",
        '{"words": "a"',
        '{"words": "a"},',
        'Here it is: {"words": "a"}',
        '{"words",}',
    ],
)
def test_what_is_no_object_or_could_be_code_is_not_read_as_arguments(text):
    assert read_arguments(text) is None


def nest(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_arguments_that_are_too_deep_or_too_long_are_none_in_every_form():
    assert read_arguments(nest(DEEPEST)) == nest(DEEPEST)
    for deep in (nest(DEEPEST + 1), nest(DEEPEST + 1) | {"b": [1]}):
        assert read_arguments(deep) is None
        assert read_arguments(json.dumps(deep)) is None
    long = {"a": "x" * LONGEST_ARGUMENTS}
    assert read_arguments(long) is None and read_arguments(json.dumps(long)) is None
    assert read_arguments({"a": object()}) is None  # no JSON, so nothing to hand on


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + '\\"' * 30_000,
        "," * 60_000,
        "{" * 60_000,
        '{"a": ' + ", " * 30_000 + "}",
        '"' * 60_001,
    ],
    ids=["open string", "commas", "braces", "commas in an object", "quotes"],
)
def test_no_text_of_arguments_takes_long(text):
    start = time.perf_counter()
    assert read_arguments(text) is None
    assert time.perf_counter() - start < 1.0


@given(st.text())
def test_any_text_is_an_object_or_none(text):
    arguments = read_arguments(text)
    assert arguments is None or isinstance(arguments, dict)


@given(st.lists(SCALARS))
def test_joined_values_are_one_text_that_a_file_can_hold(values):
    assert join_values([*values, "\ud800"]).encode().decode().endswith("?")


# Objects in replies -------------------------------------------------------------------------------


@given(OBJECTS.filter(lambda content: "NaN" not in json.dumps(content)))
def test_an_object_is_read_bare_fenced_behind_thoughts_and_in_prose(content):
    text = json.dumps(content)
    expected = json.loads(text, parse_int=float)
    assert read_object(text) == (expected, False)
    if "```" not in text and "<" not in text:
        assert read_object(f"```json\n{text}\n```") == (expected, False)
        assert read_object(f"<think> {{ or not </think>{text}") == (expected, False)


@given(st.text())
def test_any_reply_is_an_object_or_a_complaint_of_a_kind(text):
    try:
        content, _ = read_object(text)
    except InvalidReply as error:
        assert error.kind in KINDS and str(error)
    else:
        assert isinstance(content, dict)


def test_a_reply_that_is_too_long_is_refused_with_both_numbers():
    with pytest.raises(InvalidReply, match=f"{LONGEST + 1} characters; {LONGEST}"):
        read_object("x" * (LONGEST + 1))
