"""Chat completions by lab models: what a reply depends on, streams, stop strings, tool calls, unknown words."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions.lab_completion import (
    LabCompletionModel,
    ServedModel,
)
from lib.language_models.serving.chat_completions.lab_prompt import LEAST_TOKENS
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.language_models.serving.chat_completions.service import CompletionService
from lib.language_models.tokenizer import EOS, decode, encode
from tests.language_models import tiny
from tests.language_models.conftest import CALLING, parrot
from tests.language_models.serving.requests import (
    CALCULATOR,
    CALL_REQUEST,
    REQUEST,
    SEARCH,
    complete,
    force,
    put_together,
    stream,
)


def make_service(*models: ServedModel) -> CompletionService:
    return CompletionService([LabCompletionModel(model) for model in models])


@pytest.fixture(scope="module")
def service(models):
    service = make_service(*models.values())
    yield service
    asyncio.run(service.aclose())


def refuse(service: CompletionService, body: dict) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        complete(service, body)
    assert "\n" not in str(caught.value)
    return caught.value


def write(models, body: dict) -> object:
    """What the model generates without a server."""
    prompt = Prompt(tuple(encode_conversation(body["messages"])), 12, 1.0, body["seed"])
    return generate(models["lab-nano"].forward, [prompt], encode_special(EOS))[0]


# Replies ------------------------------------------------------------------------------------------


def test_a_reply_is_what_the_model_writes(models, service):
    body = REQUEST | {"seed": 7}
    reply = complete(service, body)
    generation = write(models, body)
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": decode(generation.ids)}
    assert (choice["finish_reason"], choice["index"]) == (generation.finish, 0)
    num_prompt = len(encode_conversation(REQUEST["messages"]))
    assert reply["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": len(generation.ids),
        "total_tokens": num_prompt + len(generation.ids),
    }
    assert (reply["object"], reply["created"]) == ("chat.completion", 0)
    assert reply["model"] == "lab-nano"
    assert reply["system_fingerprint"] == models["lab-nano"].fingerprint


def test_equal_requests_are_equal_replies_however_they_are_spelled(service):
    reply = complete(service, REQUEST)
    spelled = REQUEST | {
        "max_tokens": None,
        "max_completion_tokens": 12,
        "temperature": 1,
        "n": 1,
        "stop": None,
        "user": "someone",
        "stream": False,
        "logprobs": None,
    }
    spelled["messages"] = [{"content": [{"type": "text", "text": "the red key"}], "role": "user"}]
    assert complete(service, REQUEST) == reply == complete(service, spelled)


def test_logprobs_are_those_of_the_text(models, service):
    body = REQUEST | {"seed": 3}
    (choice,) = complete(service, body | {"logprobs": True, "top_logprobs": 0})["choices"]
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    logprobs = write(models, body).logprobs
    assert [entry["logprob"] for entry in entries] == logprobs[: len(entries)]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in entries)


def test_several_choices_have_the_seeds_that_follow(service):
    reply = complete(service, REQUEST | {"n": 3, "seed": 5})
    alone = [complete(service, REQUEST | {"seed": 5 + i})["choices"][0] for i in range(3)]
    messages = [choice["message"] for choice in reply["choices"]]
    assert messages == [choice["message"] for choice in alone]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len({message["content"] for message in messages}) == 3


def test_without_max_tokens_the_limit_of_the_model_holds(service):
    body = REQUEST | {"max_tokens": None}
    lengths = [
        complete(service, body | {"seed": seed})["usage"]["completion_tokens"] for seed in range(4)
    ]
    assert max(lengths) == 24
    # 248 tokens with those around them
    messages = [{"role": "user", "content": "the " * 245}]
    usage = complete(service, body | {"messages": messages, "seed": 2})["usage"]
    assert usage["total_tokens"] <= 256


def test_max_tokens_minus_one_is_the_whole_window(service):
    body = REQUEST | {"max_tokens": -1, "temperature": 0}
    assert complete(service, body)["usage"]["total_tokens"] == 256


def test_developer_is_another_word_for_system(service):
    def reply_as(role: str) -> list:
        messages = [{"role": role, "content": "be brief"}, *REQUEST["messages"]]
        return complete(service, REQUEST | {"messages": messages, "seed": 1})["choices"]

    assert reply_as("developer") == reply_as("system")


def test_the_fingerprint_is_that_of_the_weights(models):
    assert models["lab-nano"].fingerprint != models["lab-mini"].fingerprint
    again = ServedModel("again", Forward(tiny.model(0)))
    assert again.fingerprint == models["lab-nano"].fingerprint


# Streams and stop strings -------------------------------------------------------------------------

STOPS = ["e", "o", " t", "th", "the", "key", "s a", "<", "n <call> c", "calculator 4 *"]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 50),
    limit=st.integers(4, 40),
    n=st.integers(1, 3),
    logprobs=st.booleans(),
    stop=st.none() | st.lists(st.sampled_from(STOPS), min_size=1, max_size=4),
    tool_choice=st.sampled_from([None, "auto", "required", force("search")]),
    model=st.sampled_from(["lab-nano", "lab-mini", "caller"]),
)
def test_what_is_streamed_is_what_comes_whole(
    service, seed, limit, n, logprobs, stop, tool_choice, model
):
    body = REQUEST | {"model": model, "seed": seed, "max_tokens": limit, "n": n}
    body |= {"logprobs": logprobs, "stop": stop}
    if tool_choice is not None:
        body |= {"tools": [CALCULATOR, SEARCH], "tool_choice": tool_choice}
    reply = complete(service, body)
    chunks = stream(service, body | {"stream_options": {"include_usage": True}})
    assert {chunk["id"] for chunk in chunks} == {reply["id"]}
    assert chunks[-1]["usage"] == reply["usage"]
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    for choice in reply["choices"]:
        streamed = put_together(chunks, choice["index"])
        assert streamed["message"] == choice["message"]
        assert streamed["finish_reason"] == choice["finish_reason"]
        entries = choice["logprobs"]["content"] if choice["logprobs"] else []
        assert streamed["entries"] == entries


def test_a_stop_string_ends_the_text_before_it(service):
    body = REQUEST | {"seed": 7}
    text = complete(service, body)["choices"][0]["message"]["content"]
    for stop in (text[5:8], text[0], text[-3:], text.split()[2]):
        (choice,) = complete(service, body | {"stop": stop})["choices"]
        assert choice["message"]["content"] == text[: text.find(stop)]
        assert choice["finish_reason"] == "stop"
    (choice,) = complete(service, body | {"stop": ["nowhere", text[4:7], text[3:6]]})["choices"]
    assert choice["message"]["content"] == text[:3]


def test_a_stop_string_stops_the_generation(service):
    body = REQUEST | {"seed": 7}
    reply = complete(service, body)
    text = reply["choices"][0]["message"]["content"]
    shorter = complete(service, body | {"stop": text[5:8]})
    assert shorter["usage"]["completion_tokens"] < reply["usage"]["completion_tokens"]


# Tool calls ---------------------------------------------------------------------------------------


def read_call(choice: dict) -> tuple[str, dict]:
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def test_a_call_of_a_tool_on_offer_is_a_tool_call(service):
    (choice,) = complete(service, CALL_REQUEST | {"tools": [CALCULATOR]})["choices"]
    assert read_call(choice) == ("calculator", {"expression": "4 * 8"})
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "then"


@pytest.mark.parametrize(
    "changes",
    [{}, {"tools": [CALCULATOR], "tool_choice": "none"}, {"tools": [SEARCH]}],
    ids=["no tools", "not to be called", "another tool"],
)
def test_a_call_of_what_is_not_on_offer_is_text(service, changes):
    (choice,) = complete(service, CALL_REQUEST | changes)["choices"]
    assert choice["message"] == {"role": "assistant", "content": CALLING}
    assert choice["finish_reason"] == "stop"


def test_tools_that_may_not_be_called_are_not_offered(service):
    body = CALL_REQUEST | {"tools": [CALCULATOR], "tool_choice": "none"}
    assert complete(service, body)["usage"] == complete(service, CALL_REQUEST)["usage"]


@pytest.mark.parametrize("tool_choice", ["required", force("calculator")])
def test_a_call_that_must_be_made_begins_with_the_call(service, tool_choice):
    body = CALL_REQUEST | {"tools": [CALCULATOR], "tool_choice": tool_choice}
    reply = complete(service, body)
    (choice,) = reply["choices"]
    assert read_call(choice) == ("calculator", {"expression": "4 * 8"})
    assert choice["message"]["content"] is None  # the caller would write "then" first
    written = encode("<call> calculator 4 * 8 </call>")
    assert reply["usage"]["completion_tokens"] == len(written)


@pytest.mark.parametrize("name", ["calculator", "search"])
@pytest.mark.parametrize("seed", range(5))
def test_the_tool_that_is_named_is_called_by_a_model_that_writes_at_random(service, name, seed):
    body = REQUEST | {"tools": [CALCULATOR, SEARCH], "tool_choice": force(name), "seed": seed}
    (choice,) = complete(service, body)["choices"]
    assert read_call(choice)[0] == name


def test_a_required_call_is_of_the_tool_that_the_model_prefers(service):
    tools = [SEARCH, CALCULATOR, {"type": "function", "function": {"name": "lookup"}}]
    body = CALL_REQUEST | {"tools": tools, "tool_choice": "required"}
    (choice,) = complete(service, body)["choices"]
    assert read_call(choice) == ("calculator", {"expression": "4 * 8"})


def test_a_required_call_is_sampled_where_the_model_has_no_preference(service):
    body = REQUEST | {"tools": [CALCULATOR, SEARCH], "tool_choice": "required", "n": 8}
    names = set()
    for seed in range(0, 40, 8):
        choices = complete(service, body | {"seed": seed, "temperature": 2})["choices"]
        names |= {read_call(choice)[0] for choice in choices}
    assert names == {"calculator", "search"}


def test_a_forced_call_that_the_limit_cuts_off_says_so(service):
    body = CALL_REQUEST | {"tools": [CALCULATOR], "tool_choice": "required", "max_tokens": 4}
    (choice,) = complete(service, body)["choices"]
    assert choice["finish_reason"] == "length"
    assert read_call(choice) == ("calculator", {"expression": "4 *"})


def test_a_limit_without_room_for_a_forced_call_is_refused(service):
    body = CALL_REQUEST | {"tools": [CALCULATOR], "tool_choice": "required", "max_tokens": 2}
    error = refuse(service, body)
    assert error.param == "max_tokens"
    assert "more than 2" in str(error)


def test_a_call_without_words_before_it_has_no_content(models):
    service = make_service(ServedModel("caller", parrot("<call> calculator 4 </call>")))
    (choice,) = complete(service, CALL_REQUEST | {"tools": [CALCULATOR]})["choices"]
    assert choice["message"]["content"] is None
    assert read_call(choice) == ("calculator", {"expression": "4"})
    asyncio.run(service.aclose())


def test_a_conversation_with_tools_is_read_as_it_was_written(service):
    body = CALL_REQUEST | {"tools": [CALCULATOR]}
    message = complete(service, body)["choices"][0]["message"]
    result = {"role": "tool", "content": "32", "tool_call_id": message["tool_calls"][0]["id"]}
    messages = [*CALL_REQUEST["messages"], message, result]
    reply = complete(service, body | {"messages": messages, "max_tokens": 1})
    spoken = [
        *CALL_REQUEST["messages"],
        {"role": "assistant", "content": CALLING},
        {"role": "tool", "content": "32"},
    ]
    num_prompt = len(encode_conversation(spoken, ["calculator"]))
    assert reply["usage"]["prompt_tokens"] == num_prompt


# Refusals -----------------------------------------------------------------------------------------


def ask(text: str) -> dict:
    return REQUEST | {"messages": [{"role": "user", "content": text}]}


def test_words_that_the_model_does_not_know_are_refused_by_name(service):
    error = refuse(service, ask("the duck has eggs , the lion has eggs and the duck !"))
    assert (error.status, error.code, error.param) == (400, "unknown_words", "messages")
    assert "lab-nano does not know: duck, lion; its vocabulary has " in str(error)
    assert str(error).endswith("see /v1/models/lab-nano")


def test_of_many_unknown_words_some_are_named_and_the_others_counted(service):
    words = " ".join(f"duck-{letter}" for letter in "abcdefghijklmnop")
    assert "duck-l and 4 more;" in str(refuse(service, ask(words)))


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_unknown_words_are_found_in_messages_of_every_role(service, role):
    messages = [{"role": role, "content": "quack"}, *REQUEST["messages"]]
    assert "quack" in str(refuse(service, REQUEST | {"messages": messages}))


def test_the_words_that_a_model_knows_can_be_read(service):
    vocabulary = service.describe_model("lab-nano")["vocabulary"]
    assert {"key", "?", "<call>", "7"} <= set(vocabulary)
    for word in vocabulary[:20]:
        assert complete(service, ask(word) | {"max_tokens": 1})
    assert all("vocabulary" not in model for model in service.list_models()["data"])


def test_a_tool_whose_name_the_model_cannot_write_is_refused(service):
    tool = {"type": "function", "function": {"name": "get_weather"}}
    error = refuse(service, REQUEST | {"tools": [tool]})
    assert error.param == "tools"
    assert "lab-nano does not know: get, _, weather" in str(error)


def test_a_tool_that_requires_several_arguments_is_refused(service):
    parameters = {"type": "object", "required": ["start", "end"]}
    tool = {"type": "function", "function": {"name": "search", "parameters": parameters}}
    error = refuse(service, REQUEST | {"tools": [tool]})
    assert error.param == "tools"
    assert "search requires several: start, end" in str(error)


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    ],
)
def test_json_is_refused_with_the_remedy(service, response_format):
    error = refuse(service, REQUEST | {"response_format": response_format})
    assert error.param == "response_format"
    assert "its vocabulary lacks { } [ ]" in str(error)
    assert "--model FOLDER" in str(error)


@pytest.mark.parametrize("arguments", ["", "7", "[]", "{}", '{"a": 1, "b": 2}', "[" * 9999, "{"])
def test_a_call_with_other_than_one_argument_is_refused(service, arguments):
    function = {"name": "calculator", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    messages = [*REQUEST["messages"], {"role": "assistant", "tool_calls": [call]}]
    assert "one value" in str(refuse(service, REQUEST | {"messages": messages}))


def test_a_message_with_two_calls_is_refused(service):
    function = {"name": "calculator", "arguments": '{"a": 1}'}
    call = {"id": "c", "type": "function", "function": function}
    messages = [*REQUEST["messages"], {"role": "assistant", "tool_calls": [call, call]}]
    assert "one tool call" in str(refuse(service, REQUEST | {"messages": messages}))


def test_an_unknown_model_is_a_404_that_names_those_there_are(service):
    error = refuse(service, REQUEST | {"model": "gpt"})
    assert (error.status, error.code) == (404, "model_not_found")
    assert "lab-nano, lab-mini" in str(error)


@pytest.mark.parametrize(
    "content", ["the " * 300, "!" * 2**20, "a" * 2**20 + " b" * 300, "the " * 240]
)
def test_a_prompt_that_is_too_long_is_refused(service, content):
    error = refuse(service, ask(content) | {"max_tokens": 20})
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert "256" in str(error)


@given(st.text(max_size=60) | st.text(" <>/-abcAB01!\n", max_size=60))
def test_the_quick_count_of_tokens_is_never_too_high(text):
    assert len(LEAST_TOKENS.findall(text)) <= len(encode(text))
