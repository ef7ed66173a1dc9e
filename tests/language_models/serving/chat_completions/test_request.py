"""Bodies of requests: what changes nothing is accepted, what cannot be honoured is refused by its name."""

import pytest

from lib.language_models.serving.chat_completions.request import (
    NO_LIMIT,
    RequestRefused,
    parse_body,
)
from tests.language_models.serving.requests import CALCULATOR, REQUEST, force

NEUTRAL = {
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "stop": [],
    "parallel_tool_calls": False,
    "metadata": {"purpose": "test"},
    "store": False,
    "user": "somebody",
    "service_tier": "auto",
    "logit_bias": {},
    "n": 1,
    "max_completion_tokens": 12,
    "reasoning_effort": "low",
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "stream_options": {"include_usage": True},
    "logprobs": False,
    "top_logprobs": 0,
    "tool_choice": "auto",
    "safety_identifier": "somebody",
    "prompt_cache_key": "key",
    "verbosity": "medium",
}
DUMPED_REPLY = {
    "role": "assistant",
    "content": "a box",
    "refusal": None,
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "annotations": [],
}


def refuse(body) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse_body(body)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_parameter_that_changes_nothing_makes_the_same_request(name):
    body = REQUEST | {"temperature": 1.0}
    assert parse_body(body | {name: NEUTRAL[name]}).digest == parse_body(body).digest


@pytest.mark.parametrize("name", [*NEUTRAL, "tools", "temperature", "seed", "anything"])
def test_null_is_the_same_as_nothing(name):
    assert parse_body(REQUEST | {name: None}).digest == parse_body(REQUEST).digest


def test_all_that_changes_nothing_is_accepted_at_once():
    assert parse_body(REQUEST | NEUTRAL).digest == parse_body(REQUEST).digest


def test_a_dumped_reply_stands_for_its_role_and_content():
    plain = {"role": "assistant", "content": "a box"}
    bodies = [REQUEST | {"messages": [*REQUEST["messages"], m]} for m in (plain, DUMPED_REPLY)]
    assert parse_body(bodies[0]).digest == parse_body(bodies[1]).digest


def test_names_of_speakers_and_marks_for_caches_change_nothing():
    part = {"type": "text", "text": "the red key", "cache_control": {"type": "ephemeral"}}
    message = {"role": "user", "name": "Ana", "content": [part]}
    assert parse_body(REQUEST | {"messages": [message]}).digest == parse_body(REQUEST).digest


def test_text_parts_are_joined_line_by_line():
    parts = [{"type": "text", "text": "the red"}, {"type": "text", "text": "key"}]
    request = parse_body(REQUEST | {"messages": [{"role": "user", "content": parts}]})
    assert request.messages[0].content == "the red\nkey"


def test_no_limit_is_spelled_minus_one():
    assert parse_body(REQUEST | {"max_tokens": -1}).token_limit == NO_LIMIT


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.9},
        {"seed": 0},
        {"max_tokens": 11},
        {"stop": "key"},
        {"tools": [CALCULATOR]},
        {"tools": [CALCULATOR], "tool_choice": "required"},
        {"tools": [CALCULATOR], "tool_choice": force("calculator")},
    ],
)
def test_what_changes_the_reply_changes_the_digest(change):
    digests = {parse_body(REQUEST | other).digest for other in ({}, change)}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"properties": {"a": {}, "b": {}}, "required": ["b"]}, "b"),
        ({"properties": {"a": {}, "b": {}}}, "a"),
        ({"type": "object", "required": []}, "argument"),
        (None, "argument"),
        ({"properties": 7, "required": [7]}, "argument"),
    ],
)
def test_a_lab_model_s_argument_goes_by_the_name_of_the_schema(parameters, name):
    tool = {"type": "function", "function": {"name": "calculator", "parameters": parameters}}
    request = parse_body(REQUEST | {"tools": [tool]})
    assert request.offered_tools["calculator"].argument == name


def content(value) -> dict:
    return {"messages": [{"role": "user", "content": value}]}


WRONG = {
    "functions": ({"functions": []}, "functions", "functions is not supported here; supported are"),
    "top_p": ({"top_p": 0.5}, "top_p", "0.5 is not supported; supported is 1"),
    "truth for top_p": ({"top_p": True}, "top_p", "supported is 1"),
    "a penalty": ({"frequency_penalty": 0.1}, "frequency_penalty", "supported is 0"),
    "a bias": ({"logit_bias": {"50256": -100}}, "logit_bias", "supported is {}"),
    "storage": ({"store": True}, "store", "supported is false"),
    "an unknown format": ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
    "a schema without one": (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "required",
    ),
    "images": (content([{"type": "image_url"}]), "messages.0.content", "'image_url'"),
    "an image behind text": (
        content([{"type": "text", "text": "x"}, {"type": "input_audio"}]),
        "messages.0.content",
        "'input_audio'",
    ),
    "a part without text": (content([{"type": "text"}]), "messages.0.content", "has a text"),
    "a part that is text": (content(["x"]), "messages.0.content", "is an object"),
    "a strange part": (
        content([{"type": "text", "text": "x", "detail": 1}]),
        "messages.0.content",
        "'detail'",
    ),
    "a role": ({"messages": [{"role": "boss", "content": "x"}]}, "messages.0", "'boss'"),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content", "required"),
    "null content": (content(None), "messages.0.content", "required"),
    "no messages": ({"messages": []}, "messages", "at least 1"),
    "a tool's reply to nothing": (
        {"messages": [{"role": "tool", "content": "x"}]},
        "messages.0.tool_call_id",
        "required",
    ),
    "half a surrogate pair": (content("\ud800"), "messages.0.content", "surrogate"),
    "a refusal": (
        {"messages": [DUMPED_REPLY | {"refusal": "no"}]},
        "messages.0.refusal",
        "not supported",
    ),
    "temperature": ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
    "cold": ({"temperature": -0.1}, "temperature", "greater than or equal to 0"),
    "no number": ({"temperature": float("nan")}, "temperature", "finite"),
    "truth for a number": ({"temperature": True}, "temperature", "number"),
    "a number in quotes": ({"max_tokens": "5"}, "max_tokens", "integer"),
    "no room": ({"max_tokens": 0}, "max_tokens", "at least 1, or -1"),
    "two limits": ({"max_completion_tokens": 5}, "max_tokens", "are the same"),
    "a vast seed": ({"seed": 2**63}, "seed", "less than"),
    "too many choices": ({"n": 9}, "n", "less than or equal to 8"),
    "too many stops": ({"stop": list("abcde")}, "stop", "at most 4"),
    "an empty stop": ({"stop": ""}, "stop.0", "at least one character"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 2}, "top_logprobs", "supported is 0"),
    "a call without tools": ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    "a call of another tool": (
        {"tools": [CALCULATOR], "tool_choice": force("search")},
        "tool_choice",
        "'search', which is none of the tools calculator",
    ),
    "a choice of several": (
        {"tools": [CALCULATOR], "tool_choice": {"type": "allowed_tools"}},
        "tool_choice",
        'supported are "auto"',
    ),
    "a tool's name": (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools.0.function.name",
        "pattern",
    ),
    "parameters that are no schema": (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": [1]}}]},
        "tools.0.function.parameters",
        "is an object",
    ),
    "twins": ({"tools": [CALCULATOR, CALCULATOR]}, "tools", "a name of its own"),
    "no model": ({"model": None}, "model", "required"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_honoured_is_refused_with_its_name(name):
    changes, param, message = WRONG[name]
    error = refuse(REQUEST | changes)
    assert (error.status, error.param) == (400, param)
    assert message in str(error)


@pytest.mark.parametrize("body", [None, 7, "text", [], {}])
def test_a_body_that_is_no_request_is_refused(body):
    assert refuse(body).status == 400


def test_many_short_messages_are_too_long():
    body = REQUEST | {"messages": [{"role": "user", "content": ""}] * 20_000}
    assert refuse(body).code == "context_length_exceeded"
