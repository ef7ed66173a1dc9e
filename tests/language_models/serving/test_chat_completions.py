"""Requests: what they mean, what is refused, and that a reply depends on nothing else."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.language_models.chat_template import conversation, token
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions import (
    _WORDS,
    Answering,
    Refused,
    ServedModel,
    found,
    settled,
)
from lib.language_models.tokenizer import EOS, decode, encode
from tests.language_models import tiny
from tests.language_models.conftest import CALLING, parrot

ASKED = {
    "model": "lab-nano",
    "messages": [{"role": "user", "content": "the red key"}],
    "max_tokens": 12,
}
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "computes",
        "parameters": {
            "type": "object",
            "properties": {"note": {}, "expression": {}},
            "required": ["expression"],
        },
    },
}
CALLER = {
    "model": "caller",
    "messages": [{"role": "user", "content": "4 * 8"}],
    "temperature": 0,
    "max_tokens": 30,
}


@pytest.fixture(scope="module")
def answering(models):
    answering = Answering(models)
    yield answering
    asyncio.run(answering.aclose())


def whole(answering: Answering, body: dict) -> dict:
    async def play():
        return await answering.chat(body).whole()

    return asyncio.run(play())


def chunks(answering: Answering, body: dict) -> list[dict]:
    async def play():
        return [chunk async for chunk in answering.chat(body | {"stream": True}).chunks()]

    return asyncio.run(play())


def put_together(parts: list[dict], index: int = 0) -> dict:
    """A choice as a client puts it together from chunks."""
    mine = [choice for part in parts for choice in part["choices"] if choice["index"] == index]
    deltas = [choice["delta"] for choice in mine]
    entries = [
        entry for choice in mine if choice["logprobs"] for entry in choice["logprobs"]["content"]
    ]
    assert deltas[0] == {"role": "assistant", "content": ""} and not any(
        "role" in delta for delta in deltas[1:]
    )
    assert [bool(choice["finish_reason"]) for choice in mine] == [False] * (len(mine) - 1) + [True]
    calls = [
        {n: v for n, v in c.items() if n != "index"}
        for delta in deltas
        for c in delta.get("tool_calls", [])
    ]
    content = "".join(delta.get("content", "") for delta in deltas)
    message = {"role": "assistant", "content": (content or None) if calls else content}
    message |= {"tool_calls": calls} if calls else {}
    return {"message": message, "entries": entries, "finish_reason": mine[-1]["finish_reason"]}


def refused(answering: Answering, body) -> Refused:
    with pytest.raises(Refused) as caught:
        whole(answering, body)
    return caught.value


# Replies ------------------------------------------------------------------------------------------


def test_a_reply_is_what_the_model_writes(models, answering):
    reply = whole(answering, ASKED | {"seed": 7})
    ids = conversation(ASKED["messages"])
    (generation,) = generate(
        models["lab-nano"].forward, [Prompt(tuple(ids), 12, 1.0, 7)], token(EOS)
    )
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": decode(generation.ids)}
    assert choice["finish_reason"] == generation.finish and choice["index"] == 0
    written = len(generation.ids)
    assert reply["usage"] == {
        "prompt_tokens": len(ids),
        "completion_tokens": written,
        "total_tokens": len(ids) + written,
    }
    assert (
        reply["object"] == "chat.completion"
        and reply["created"] == 0
        and reply["model"] == "lab-nano"
    )
    assert reply["system_fingerprint"] == models["lab-nano"].fingerprint


def test_equal_requests_are_equal_replies_however_they_are_spelled(answering):
    reply = whole(answering, ASKED)
    spelled = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    spelled |= {
        "max_completion_tokens": 12,
        "temperature": 1,
        "n": 1,
        "stop": None,
        "user": "someone",
        "stream": False,
    }
    spelled |= {
        "messages": [{"content": [{"type": "text", "text": "the red key"}], "role": "user"}],
        "logprobs": None,
    }
    assert whole(answering, ASKED) == reply == whole(answering, spelled)
    others = [ASKED | {"temperature": 0.9}, ASKED | {"seed": 0}, ASKED | {"max_tokens": 11}]
    assert len({whole(answering, other)["id"] for other in others} | {reply["id"]}) == 4


def test_logprobs_are_those_of_the_text(models, answering):
    reply = whole(answering, ASKED | {"logprobs": True, "top_logprobs": 0, "seed": 3})
    (generation,) = generate(
        models["lab-nano"].forward,
        [Prompt(tuple(conversation(ASKED["messages"])), 12, 1.0, 3)],
        token(EOS),
    )
    (choice,) = reply["choices"]
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    assert [entry["logprob"] for entry in entries] == generation.logprobs[: len(entries)]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in entries)


STOPS = ["e", "o", " t", "th", "the", "key", "s a", "<", "n <call> c", "calculator 4 *"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 50),
    limit=st.integers(1, 40),
    n=st.integers(1, 3),
    logprobs=st.booleans(),
    stop=st.none() | st.lists(st.sampled_from(STOPS), min_size=1, max_size=4),
    tools=st.booleans(),
    model=st.sampled_from(["lab-nano", "lab-mini", "caller"]),
)
def test_what_is_streamed_is_what_comes_whole(
    answering, seed, limit, n, logprobs, stop, tools, model
):
    body = ASKED | {
        "model": model,
        "seed": seed,
        "max_tokens": limit,
        "n": n,
        "logprobs": logprobs,
        "stop": stop,
    }
    body |= {"tools": [CALCULATOR]} if tools else {}
    reply = whole(answering, body)
    parts = chunks(answering, body | {"stream_options": {"include_usage": True}})
    assert {part["id"] for part in parts} == {reply["id"]} and parts[-1]["usage"] == reply["usage"]
    assert parts[-1]["choices"] == [] and all(part["usage"] is None for part in parts[:-1])
    for choice in reply["choices"]:
        streamed = put_together(parts, choice["index"])
        assert streamed["message"] == choice["message"]
        assert streamed["finish_reason"] == choice["finish_reason"]
        assert streamed["entries"] == (choice["logprobs"] or {"content": []})["content"]


# Stops --------------------------------------------------------------------------------------------


def test_a_stop_string_ends_the_text_before_it(answering):
    text = whole(answering, ASKED | {"seed": 7})["choices"][0]["message"]["content"]
    for stop in (text[5:8], text[0], text[-3:], text.split()[2]):
        (choice,) = whole(answering, ASKED | {"seed": 7, "stop": stop})["choices"]
        assert (
            choice["message"]["content"] == text[: text.find(stop)]
            and choice["finish_reason"] == "stop"
        )
    (choice,) = whole(answering, ASKED | {"seed": 7, "stop": ["nowhere", text[4:7], text[3:6]]})[
        "choices"
    ]
    assert choice["message"]["content"] == text[:3]
    shorter = whole(answering, ASKED | {"seed": 7, "stop": text[5:8]})["usage"]["completion_tokens"]
    assert shorter < whole(answering, ASKED | {"seed": 7})["usage"]["completion_tokens"]


@given(text=st.text("abc"), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4))
def test_what_is_shown_of_an_unfinished_text_is_never_taken_back(text, stops):
    end = text[: found(text, stops)]
    shown = [settled(text[:length], stops) for length in range(len(text) + 1)]
    for before, after in pairwise(shown):
        assert after.startswith(before)
    first = next((n for n in range(len(text) + 1) if found(text[:n], stops) is not None), len(text))
    assert all(end.startswith(part) for part in shown[: first + 1])


@given(st.text(max_size=60) | st.text(" <>/-abcAB01!\n", max_size=60))
def test_the_quick_count_of_tokens_is_never_too_high(text):
    assert len(_WORDS.findall(text)) <= len(encode(text))


# Tools --------------------------------------------------------------------------------------------


def test_a_call_of_a_tool_on_offer_is_a_tool_call(answering):
    (choice,) = whole(answering, CALLER | {"tools": [CALCULATOR]})["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "then"
    assert (
        call["type"] == "function"
        and call["function"]["name"] == "calculator"
        and call["id"].startswith("call_")
    )
    assert json.loads(call["function"]["arguments"]) == {"expression": "4 * 8"}


SEARCH = {"type": "function", "function": {"name": "search"}}


@pytest.mark.parametrize(
    "changes",
    [{}, {"tools": [CALCULATOR], "tool_choice": "none"}, {"tools": [SEARCH]}],
    ids=["no tools", "not to be called", "another tool"],
)
def test_a_call_of_what_is_not_on_offer_is_text(answering, changes):
    (choice,) = whole(answering, CALLER | changes)["choices"]
    assert (
        choice["message"] == {"role": "assistant", "content": CALLING}
        and choice["finish_reason"] == "stop"
    )


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
def test_the_argument_goes_by_the_name_of_the_schema(answering, parameters, name):
    tool = {"type": "function", "function": {"name": "calculator", "parameters": parameters}}
    (choice,) = whole(answering, CALLER | {"tools": [tool]})["choices"]
    assert list(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])) == [name]


def test_a_conversation_with_tools_is_read_as_it_was_written(answering):
    message = whole(answering, CALLER | {"tools": [CALCULATOR]})["choices"][0]["message"]
    turned = {"role": "tool", "content": "32", "tool_call_id": message["tool_calls"][0]["id"]}
    body = CALLER | {
        "tools": [CALCULATOR],
        "messages": [*CALLER["messages"], message, turned],
        "max_tokens": 1,
    }
    spoken = [
        *CALLER["messages"],
        {"role": "assistant", "content": CALLING},
        {"role": "tool", "content": "32"},
    ]
    assert whole(answering, body)["usage"]["prompt_tokens"] == len(
        conversation(spoken, ["calculator"])
    )


# Refusals -----------------------------------------------------------------------------------------

WRONG = {
    "functions": ({"functions": []}, "functions is not supported here; supported are model"),
    "top_p": ({"top_p": 0.5}, "top_p is not supported"),
    "a format": ({"response_format": {"type": "json_object"}}, "response_format.type"),
    "images": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages.0.content",
    ),
    "a role": ({"messages": [{"role": "boss", "content": "x"}]}, "'boss'"),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content"),
    "null content": ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
    "no messages": ({"messages": []}, "messages"),
    "a tool's reply to nothing": ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
    "half a surrogate pair": ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
    "temperature": ({"temperature": 2.1}, "temperature"),
    "cold": ({"temperature": -0.1}, "temperature"),
    "no number": ({"temperature": float("nan")}, "temperature"),
    "truth for a number": ({"temperature": True}, "temperature"),
    "a number in quotes": ({"max_tokens": "5"}, "max_tokens"),
    "no room": ({"max_tokens": 0}, "max_tokens"),
    "two limits": ({"max_completion_tokens": 5}, "max_completion_tokens"),
    "a vast seed": ({"seed": 2**63}, "seed"),
    "too many choices": ({"n": 9}, "n:"),
    "too many stops": ({"stop": list("abcde")}, "stop"),
    "an empty stop": ({"stop": ""}, "stop"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 2}, "top_logprobs must be 0"),
    "a forced tool": ({"tools": [CALCULATOR], "tool_choice": "required"}, "tool_choice"),
    "a tool's name": (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools.0.function.name",
    ),
    "twins": ({"tools": [CALCULATOR, CALCULATOR]}, "a name of its own"),
    "usage without a stream": ({"stream_options": {"include_usage": True}}, "stream_options"),
    "no model": ({"model": None}, "model"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_honoured_is_refused_by_name(answering, wrong):
    changes, says = WRONG[wrong]
    error = refused(answering, ASKED | changes)
    assert error.status == 400 and says in str(error)


@pytest.mark.parametrize("arguments", ["", "7", "[]", "{}", '{"a": 1, "b": 2}', "[" * 100_000, "{"])
def test_a_call_with_other_than_one_argument_is_refused(answering, arguments):
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "calculator", "arguments": arguments},
    }
    messages = [*ASKED["messages"], {"role": "assistant", "tool_calls": [call]}]
    assert "one value" in str(refused(answering, ASKED | {"messages": messages}))


@pytest.mark.parametrize("body", [None, 7, "text", [], {}])
def test_a_body_that_is_no_request_is_refused(answering, body):
    assert refused(answering, body).status == 400


def test_an_unknown_model_is_a_404_that_names_those_there_are(answering):
    error = refused(answering, ASKED | {"model": "gpt"})
    assert (error.status, error.code) == (404, "model_not_found") and "lab-nano, lab-mini" in str(
        error
    )


@pytest.mark.parametrize(
    "content", ["the " * 300, "!" * 2**20, "a" * 2**20 + " b" * 300, "the " * 240]
)
def test_a_prompt_that_is_too_long_is_refused(answering, content):
    error = refused(
        answering, ASKED | {"messages": [{"role": "user", "content": content}], "max_tokens": 20}
    )
    assert (error.status, error.code) == (400, "context_length_exceeded") and "256" in str(error)


def test_the_id_and_the_fingerprint_say_what_a_reply_depends_on(models):
    assert models["lab-nano"].fingerprint != models["lab-mini"].fingerprint
    assert (
        ServedModel("again", Forward(tiny.model(0))).fingerprint == models["lab-nano"].fingerprint
    )


def test_several_choices_have_the_seeds_that_follow(answering):
    reply = whole(answering, ASKED | {"n": 3, "seed": 5})
    single = [whole(answering, ASKED | {"seed": 5 + i})["choices"][0]["message"] for i in range(3)]
    assert [choice["message"] for choice in reply["choices"]] == single
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len({message["content"] for message in single}) == 3


def test_without_max_tokens_the_models_own_limit_holds(answering):
    body = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    seeds = range(4)
    assert (
        max(whole(answering, body | {"seed": s})["usage"]["completion_tokens"] for s in seeds) == 24
    )
    long = [{"role": "user", "content": "the " * 245}]  # 248 tokens with those around them
    assert whole(answering, body | {"messages": long, "seed": 2})["usage"]["total_tokens"] <= 256


def test_a_call_without_words_before_it_has_no_content(models):
    answering = Answering({"caller": ServedModel("caller", parrot("<call> calculator 4 </call>"))})
    (choice,) = whole(answering, CALLER | {"tools": [CALCULATOR]})["choices"]
    assert choice["message"]["content"] is None and choice["message"]["tool_calls"]
    asyncio.run(answering.aclose())


def test_developer_is_another_word_for_system(answering):
    def said(role: str) -> str:
        messages = [{"role": role, "content": "be brief"}, *ASKED["messages"]]
        return whole(answering, ASKED | {"messages": messages, "seed": 1})["choices"]

    assert said("developer") == said("system")


def test_many_short_messages_are_too_long_as_well(answering):
    body = ASKED | {"messages": [{"role": "user", "content": ""}] * 20_000}
    assert refused(answering, body).code == "context_length_exceeded"
