"""The parser of chat completions: what servers leave out, add or write in another form, one case each."""

import json

import pytest

from lib.llm.chat_model import ToolCall
from lib.llm.parse_response import CallInfo, Pricing, parse_response, split_reasoning
from tests.llm.server import completion

PRICING = Pricing(price_in=1e-6, price_out=8e-6, price_cached_in=2.5e-7, kwh_per_token=1e-6)
CALL = CallInfo("mine", "endpoint", PRICING, prompt_bytes=100, max_tokens=1_000)


def parse(body, call=CALL):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_response(content, call)


def with_usage(usage, message=None):
    message = message or {"role": "assistant", "content": "SO-d2"}
    return {"choices": [{"finish_reason": "stop", "message": message}], "usage": usage}


# No reply at all ----------------------------------------------------------------------------------

NO_REPLY = {
    "an empty body": (b"", "not_a_reply"),
    "blanks": (b" \n ", "not_a_reply"),
    "html": (b"<html><body>Bad gateway</body></html>", "not_a_reply"),
    "half a reply": (json.dumps(completion()).encode()[:70], "not_a_reply"),
    "bytes that are no text": (b"\xff\xfe{}", "not_a_reply"),
    "nested beyond reason": (b"[" * 100_000 + b"]" * 100_000, "not_a_reply"),
    "a number": (7, "not_a_reply"),
    "null": (None, "not_a_reply"),
    "a list": ([completion()], "not_a_reply"),
    "an empty object": ({}, "not_a_reply"),
    "no choices": (completion() | {"choices": []}, "not_a_reply"),
    "choices that are none": (completion() | {"choices": [None]}, "not_a_reply"),
    "an error": ({"error": {"message": "overloaded", "code": 503}}, "provider_error"),
    "an error in words": ({"error": "Unexpected endpoint or method"}, "provider_error"),
    "an error beside a reply": (completion() | {"error": "overloaded"}, "provider_error"),
}


@pytest.mark.parametrize("case", NO_REPLY)
def test_what_is_no_completion_is_a_failure_of_the_infrastructure_and_costs_nothing(case):
    body, kind = NO_REPLY[case]
    reply = parse(body)
    assert reply.failure.kind == kind and reply.failure.of_infrastructure
    assert (reply.text, reply.tokens_in, reply.tokens_out, reply.cost_usd) == ("", 0, 0, 0.0)


# A reply without an answer ------------------------------------------------------------------------

NO_ANSWER = {
    "null": (completion(None), "empty"),
    "blanks": (completion(" \n\t"), "empty"),
    "parts without text": (completion([{"type": "image_url"}, None]), "empty"),
    "no message": (completion() | {"choices": [{"finish_reason": "stop"}]}, "empty"),
    "only reasoning": (completion("<think> seven, I think </think>"), "empty"),
    "cut off": (completion("The answer is prob", finish_reason="length"), "truncated"),
    "cut off while reasoning": (completion("<think> 3 + 4", finish_reason="length"), "truncated"),
    "a refusal": (completion(message={"content": None, "refusal": "I cannot."}), "refusal"),
    "a nameless tool call": (
        completion(message={"content": None, "tool_calls": [{"id": "1"}]}),
        "malformed",
    ),
}


@pytest.mark.parametrize("case", NO_ANSWER)
def test_a_reply_without_an_answer_is_a_failure_of_the_model_with_its_bill(case):
    body, kind = NO_ANSWER[case]
    reply = parse(body)
    assert reply.failure.kind == kind and not reply.failure.of_infrastructure
    assert (reply.tokens_in, reply.tokens_out) == (10, 5) and reply.cost_usd > 0


def test_a_reply_that_was_cut_off_keeps_its_text():
    assert parse(completion('{"policy": "SO-', finish_reason="length")).text == '{"policy": "SO-'


def test_a_text_far_over_its_limit_is_no_answer_but_billed():
    call = CallInfo("mine", "endpoint", PRICING, prompt_bytes=100, max_tokens=100)
    reply = parse(completion("many words " * 2_000, 20, 6_000), call)
    assert reply.failure.kind == "malformed" and reply.tokens_out == 6_000


# Text and reasoning -------------------------------------------------------------------------------


def test_text_in_parts_is_joined():
    parts = [{"type": "text", "text": "SO-"}, {"type": "image_url"}, {"type": "text", "text": "d2"}]
    assert parse(completion(parts)).text == "SO-d2"


@pytest.mark.parametrize(
    ("text", "reasoning", "visible"),
    [
        ("7", "", "7"),
        ("<think> 3 + 4 </think>\n7", " 3 + 4 ", "7"),
        ("<thinking>3 + 4</thinking> 7", "3 + 4", "7"),
        ("3 + 4 is 7</think> The answer is 7.", "3 + 4 is 7", "The answer is 7."),
        ("<think> 3 + 4", " 3 + 4", ""),
        ("I think 7", "", "I think 7"),
        ("<think>a</think> x <think>b</think> y", "ab", "x  y"),
    ],
)
def test_reasoning_inside_a_text_is_taken_off_it(text, reasoning, visible):
    assert split_reasoning(text) == (reasoning, visible)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_beside_the_text_is_no_part_of_it_and_stays_in_the_message(field):
    message = {"role": "assistant", "content": "7", field: "3 + 4 = 7"}
    reply = parse(completion(message=message))
    assert reply.text == "7" and reply.message == message


# Tool calls ---------------------------------------------------------------------------------------

ARGUMENTS = {
    "text": ('{"x": 1}', '{"x": 1}'),
    "an object": ({"x": 1}, '{"x": 1}'),
    "nothing": (None, "{}"),
    "an empty text": ("", ""),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_are_text_whatever_form_the_server_sends(case):
    sent, expected = ARGUMENTS[case]
    entry = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": sent}}
    message = {"role": "assistant", "content": None, "tool_calls": [entry]}
    reply = parse(completion(message=message, finish_reason="tool_calls"))
    assert reply.tool_calls == (ToolCall("abcdefghi", "f", expected),)
    assert reply.usable and reply.message == message


# Money --------------------------------------------------------------------------------------------

USAGE = {
    "as usual": ({"prompt_tokens": 10, "completion_tokens": 5}, (10, 5, 0), 50e-6),
    "completion left out": ({"prompt_tokens": 10, "total_tokens": 900_010}, (10, 2, 0), None),
    "total alone tells of the reply": (
        {"prompt_tokens": 10, "total_tokens": 60},
        (10, 50, 0),
        410e-6,
    ),
    "reasoning in the total only": (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 10_015},
        (10, 10_005, 0),
        10e-6 + 10_005 * 8e-6,
    ),
    "prompt left out": ({"completion_tokens": 5, "total_tokens": 15}, (10, 5, 0), 50e-6),
    "a cached prompt": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
        (10, 5, 8),
        2e-6 + 8 * 2.5e-7 + 40e-6,
    ),
    "DeepSeek's cached prompt": (
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8},
        (10, 5, 8),
        2e-6 + 8 * 2.5e-7 + 40e-6,
    ),
    "billed by the server": (
        {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0056},
        (10, 5, 0),
        0.0056,
    ),
    "free": ({"prompt_tokens": 10, "completion_tokens": 5, "cost": 0}, (10, 5, 0), 0.0),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_call_is_billed_as_the_server_bills_it(case):
    usage, (tokens_in, tokens_out, cached), cost_usd = USAGE[case]
    reply = parse(with_usage(usage))
    assert (reply.tokens_in, reply.tokens_out, reply.tokens_cached) == (
        tokens_in,
        tokens_out,
        cached,
    )
    if cost_usd is not None:
        assert reply.cost_usd == pytest.approx(cost_usd)


NO_COUNT = [
    None,
    [10, 5],
    {},
    {"prompt_tokens": -10, "completion_tokens": -5},
    {"prompt_tokens": "10", "completion_tokens": "5"},
    {"prompt_tokens": 10.5, "completion_tokens": 5.5},
    {"prompt_tokens": True, "completion_tokens": False},
    {"prompt_tokens": 10**12, "completion_tokens": 10**12},
    {"prompt_tokens": 0, "completion_tokens": 0},
]


@pytest.mark.parametrize("usage", NO_COUNT, ids=str)
def test_where_a_server_does_not_count_bytes_are_counted_and_that_is_said(usage):
    reply = parse(with_usage(usage))
    assert (reply.tokens_in, reply.tokens_out) == (25, 2)  # 100 and 5 bytes at 4 a token
    assert not reply.is_counted


def test_reasoning_without_a_count_is_billed_by_its_bytes():
    message = {"role": "assistant", "content": None, "reasoning_content": "x" * 450}
    reply = parse(with_usage(None, message))
    assert reply.failure.kind == "empty" and reply.tokens_out == 113


def test_hidden_reasoning_that_is_counted_stands_beside_the_reply():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 10_005,
        "completion_tokens_details": {"reasoning_tokens": 10_000},
    }
    reply = parse(with_usage(usage))
    assert (reply.tokens_out, reply.tokens_reasoning) == (10_005, 10_000)


def test_text_that_is_no_unicode_can_be_kept_and_sent_back():
    reply = parse(completion("SO\ud83d-d2"))
    assert reply.text.encode().startswith(b"SO") and reply.text.endswith("-d2")
    json.dumps(reply.message, ensure_ascii=False).encode()
