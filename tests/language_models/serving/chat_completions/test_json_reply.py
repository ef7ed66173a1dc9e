"""JSON in what models write: found, repaired, checked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.language_models.serving.chat_completions.json_reply import JsonReplyReader
from lib.language_models.serving.chat_completions.json_schema import Mismatch
from lib.language_models.serving.chat_completions.request import RequestRefused, parse_body
from tests.language_models.serving.requests import REQUEST

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def make_reader(schema: dict | None = SCHEMA) -> JsonReplyReader:
    response_format = {"type": "json_object"}
    if schema is not None:
        named = {"name": "answer", "schema": schema, "strict": True}
        response_format = {"type": "json_schema", "json_schema": named}
    return JsonReplyReader(parse_body(REQUEST | {"response_format": response_format}))


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 3}',
        '\n {"n": 3}\n',
        '```json\n{"n": 3}\n```',
        'Here it is: {"n": 3}. Anything else?',
        '<think>{"n": 4}? No.</think>{"n": 3}',
        "{'n': 3}",
        '{"n": 3,}',
        "{n: 3}",
    ],
)
def test_an_object_is_found_and_its_slips_are_repaired(text):
    assert json.loads(make_reader().read(text)) == {"n": 3}


def test_json_is_returned_as_the_model_wrote_it():
    assert make_reader().read('{"n":   3}') == '{"n":   3}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("three", "no whole JSON object"),
        ('{"n": 3', "no whole JSON object"),
        ("[3]", "no JSON object"),
        ('{"n": "3"}', "reply.n: must be of type integer"),
        ('{"m": 3}', "lacks 'n'"),
        ("", "no whole JSON object"),
        ("{" * 2000 + "}" * 2000, ""),
        ("[" * 50_000, ""),
        ('{"n": NaN}', ""),
    ],
)
def test_what_is_no_such_object_is_refused_with_the_reason(text, message):
    with pytest.raises(Mismatch) as caught:
        make_reader().read(text)
    assert message in str(caught.value)


@given(st.text(max_size=40) | st.text('{}[]":,n3 \\', max_size=40))
def test_what_is_returned_is_always_an_object_that_fits(text):
    try:
        content = make_reader().read(text)
    except Mismatch:
        return
    value = json.loads(content)
    assert isinstance(value["n"], int | float)


def test_the_model_is_asked_for_json_in_its_system_message():
    reader = make_reader()
    user = {"role": "user", "content": "x"}
    system = {"role": "system", "content": "Be kind."}
    assert reader.add_instruction([user])[1:] == [user]
    first, second = reader.add_instruction([system, user])
    assert first["content"].startswith("Be kind.\n\nReply with one JSON object")
    assert json.dumps(SCHEMA) in first["content"]
    assert second == user
    assert "schema" not in make_reader(None).add_instruction([user])[0]["content"]


def test_a_schema_that_is_not_supported_is_refused_with_its_place():
    with pytest.raises(RequestRefused, match="#/properties/a/pattern: not supported") as caught:
        make_reader({"type": "object", "properties": {"a": {"pattern": "x"}}})
    assert caught.value.param == "response_format.json_schema.schema"
