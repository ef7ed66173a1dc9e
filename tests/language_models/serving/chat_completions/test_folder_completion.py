"""Chat completions by Hugging Face folders: text, streams, stop strings, tool calls, JSON."""

import asyncio
import json
import time

import pytest

from lib.language_models.batching import QueueFull, RequestCancelled
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.serving.chat_completions.folder_completion import FolderCompletionModel
from lib.language_models.serving.chat_completions.json_reply import MAX_ATTEMPTS
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.language_models.serving.chat_completions.service import CompletionService
from tests.language_models.serving.folders import (
    END,
    PLAIN_TEMPLATE,
    START,
    follow,
    make_folder,
)
from tests.language_models.serving.requests import complete, force, put_together, stream

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
SENTENCE = ["Paris ", "is the ", "capital ", "of France."]
HERMES_CALL = [
    "Let me look. ",
    "<tool_call>",
    '{"name": "get_weather", ',
    '"arguments": {"city": "Rome"}}',
]
ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ANSWER_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": ANSWER_SCHEMA, "strict": True},
}
FOLDERS = {
    "sentence": follow(*SENTENCE),
    "caller": follow(*HERMES_CALL, "</tool_call>"),
    # a forced call ends with ":" before the arguments
    "arguments": {":": [' {"city": "Oslo"'], ' {"city": "Oslo"': ["}"], "}": ["x"], "x": ["x"]},
    "no arguments": {":": [" nothing"], " nothing": [END]},
    "json": follow('Sure: {"n": 3', "}"),
    "wrong json": follow('{"n": "three"', "}"),
    # half of the samples fit
    "sometimes json": {START: ['{"n": 3}', "no"], '{"n": 3}': [END], "no": [END]},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    folders = [make_folder(root / name, successors) for name, successors in FOLDERS.items()]
    folders.append(make_folder(root / "plain", FOLDERS["sentence"], PLAIN_TEMPLATE))
    service = CompletionService([FolderCompletionModel(HuggingFaceModel(f)) for f in folders])
    yield service
    asyncio.run(service.aclose())


def ask(model: str, **changes) -> dict:
    messages = [{"role": "user", "content": "Where is it?"}]
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": 60} | changes


def refuse(service: CompletionService, body: dict) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        complete(service, body)
    assert "\n" not in str(caught.value)
    return caught.value


def read_call(choice: dict) -> tuple[str, dict]:
    (call,) = choice["message"]["tool_calls"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


# Text ---------------------------------------------------------------------------------------------


def test_a_reply_is_the_model_s_text_with_its_tokens(service):
    reply = complete(service, ask("sentence"))
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": "".join(SENTENCE)}
    assert choice["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == len(SENTENCE) + 1
    assert reply["usage"]["prompt_tokens"] == len("Where is it?") + 2
    assert reply["system_fingerprint"].startswith("fp_")


def test_equal_requests_are_equal_replies(service):
    body = ask("sometimes json", temperature=1.0)
    assert complete(service, body) == complete(service, body)
    texts = {
        complete(service, body | {"seed": seed})["choices"][0]["message"]["content"]
        for seed in range(8)
    }
    assert texts == {'{"n": 3}', "no"}


def test_a_stream_comes_in_pieces_that_are_the_reply(service):
    chunks = stream(service, ask("sentence", stream_options={"include_usage": True}))
    pieces = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
    assert len([piece for piece in pieces if piece]) == len(SENTENCE)
    reply = complete(service, ask("sentence"))
    assert put_together(chunks)["message"] == reply["choices"][0]["message"]
    assert chunks[-1]["usage"] == reply["usage"]
    assert {chunk["id"] for chunk in chunks} == {reply["id"]}


def test_a_stop_string_ends_text_and_generation(service):
    reply = complete(service, ask("sentence", stop=["capital"]))
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == "Paris is the "
    assert choice["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == 3
    streamed = put_together(stream(service, ask("sentence", stop=["capital"])))
    assert streamed["message"] == choice["message"]


def test_a_reply_that_is_cut_off_says_so(service):
    (choice,) = complete(service, ask("sentence", max_tokens=2))["choices"]
    assert choice["message"]["content"] == "Paris is the "
    assert choice["finish_reason"] == "length"


def test_without_a_limit_the_reply_may_fill_the_window(service):
    usage = complete(service, ask("arguments", max_tokens=-1))["usage"]
    assert usage["total_tokens"] == 1024


def test_several_choices_come_at_once_and_streamed(service):
    body = ask("sometimes json", temperature=1.0, n=6, seed=1)
    reply = complete(service, body)
    assert [choice["index"] for choice in reply["choices"]] == list(range(6))
    chunks = stream(service, body)
    for choice in reply["choices"]:
        assert put_together(chunks, choice["index"])["message"] == choice["message"]


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"logprobs": True}, "logprobs", "logprobs is not supported"),
        ({"max_tokens": 1020}, "messages", "the window has 1024 tokens"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "messages", "1024"),
        ({"messages": [{"role": "user", "content": "x" * 100_000}]}, "messages", "1024"),
        ({"response_format": ANSWER_FORMAT, "tools": [WEATHER]}, "response_format", "together"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_it_cannot_do_is_refused_before_anything_is_sent(
    service, changes, param, message, is_streamed
):
    async def start() -> None:
        await service.start_completion(ask("sentence", stream=is_streamed) | changes)

    with pytest.raises(RequestRefused) as caught:
        asyncio.run(start())
    assert caught.value.param == param
    assert message in str(caught.value)


def test_a_completion_that_is_cancelled_ends_at_once(service):
    async def run() -> float:
        completion = await service.start_completion(ask("arguments", max_tokens=1000))
        waiting = asyncio.create_task(completion.complete())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        completion.cancel()
        with pytest.raises(RequestCancelled):
            await waiting
        return time.monotonic() - began

    assert asyncio.run(run()) < 1.0
    assert service.get_model("arguments").num_open == 0


def test_more_requests_than_may_wait_are_refused(service):
    model = FolderCompletionModel(service.get_model("sentence").model, max_queue_length=2)
    crowded = CompletionService([model])

    async def run() -> None:
        first = await crowded.start_completion(ask("sentence", n=2))
        with pytest.raises(QueueFull):
            await crowded.start_completion(ask("sentence"))
        await first.complete()
        assert await (await crowded.start_completion(ask("sentence"))).complete()

    asyncio.run(run())


# Tool calls ---------------------------------------------------------------------------------------


def test_a_call_in_the_template_s_format_is_a_tool_call(service):
    body = ask("caller", tools=[WEATHER])
    (choice,) = complete(service, body)["choices"]
    assert read_call(choice) == ("get_weather", {"city": "Rome"})
    assert choice["message"]["content"] == "Let me look."
    assert choice["finish_reason"] == "tool_calls"
    streamed = put_together(stream(service, body))
    assert streamed["message"] == choice["message"]


def test_without_tools_a_call_is_text(service):
    for changes in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        (choice,) = complete(service, ask("caller", **changes))["choices"]
        assert "<tool_call>" in choice["message"]["content"]
        assert "tool_calls" not in choice["message"]


def test_the_tool_s_result_is_read(service):
    body = ask("caller", tools=[WEATHER])
    message = complete(service, body)["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    result = {"role": "tool", "content": "rain", "tool_call_id": call_id}
    longer = complete(service, body | {"messages": [*body["messages"], message, result]})
    assert longer["usage"]["prompt_tokens"] > complete(service, body)["usage"]["prompt_tokens"]


@pytest.mark.parametrize("tool_choice", ["required", force("get_weather")])
def test_a_call_that_must_be_made_is_made(service, tool_choice):
    body = ask("arguments", tools=[WEATHER], tool_choice=tool_choice)
    reply = complete(service, body)
    (choice,) = reply["choices"]
    assert read_call(choice) == ("get_weather", {"city": "Oslo"})
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    # the model would go on with x for ever; the end of the JSON is the end
    assert reply["usage"]["completion_tokens"] < 60
    assert put_together(stream(service, body))["message"] == choice["message"]


def test_the_tool_that_is_named_is_called_among_several(service):
    body = ask("arguments", tools=[WEATHER, TIME], tool_choice=force("get_time"))
    (choice,) = complete(service, body)["choices"]
    assert read_call(choice)[0] == "get_time"


def test_a_required_call_is_of_one_of_several_tools(service):
    body = ask("arguments", tools=[WEATHER, TIME], tool_choice="required", temperature=1, n=8)
    names = {read_call(choice)[0] for choice in complete(service, body)["choices"]}
    assert names == {"get_weather", "get_time"}


def test_arguments_that_are_cut_off_end_with_length(service):
    body = ask("arguments", tools=[WEATHER], tool_choice="required")
    prefix = '<tool_call>\n{"name": "get_weather", "arguments":'
    reply = complete(service, body | {"max_tokens": len(prefix) + 1})
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"'
    error = refuse(service, body | {"max_tokens": 5})
    assert error.param == "max_tokens"


def test_arguments_that_are_no_json_are_an_error(service):
    body = ask("no arguments", tools=[WEATHER], tool_choice="required", temperature=1.0)
    error = refuse(service, body)
    assert (error.status, error.param) == (422, "tool_choice")
    assert f"in {MAX_ATTEMPTS} samples" in str(error)


def test_a_forced_call_in_an_unknown_format_is_refused(service):
    error = refuse(service, ask("plain", tools=[WEATHER], tool_choice="required"))
    assert error.param == "tool_choice"
    assert 'use tool_choice "auto"' in str(error)


# JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("response_format", [{"type": "json_object"}, ANSWER_FORMAT])
def test_json_is_taken_out_of_the_text(service, response_format):
    body = ask("json", response_format=response_format)
    (choice,) = complete(service, body)["choices"]
    assert choice["message"]["content"] == '{"n": 3}'
    assert put_together(stream(service, body))["message"] == choice["message"]


def test_the_model_reads_the_schema(service):
    plain = complete(service, ask("json"))["usage"]["prompt_tokens"]
    asked = complete(service, ask("json", response_format=ANSWER_FORMAT))["usage"]["prompt_tokens"]
    assert asked - plain > len(json.dumps(ANSWER_SCHEMA))


def test_json_that_does_not_fit_is_sampled_again(service):
    """One sample in two fits, so about one request in eight fails after three, and the others fit."""
    contents = []
    num_retried = 0
    num_failed = 0
    for seed in range(24):
        body = ask("sometimes json", temperature=1.0, seed=seed, response_format=ANSWER_FORMAT)
        try:
            reply = complete(service, body)
        except RequestRefused:
            num_failed += 1
            continue
        contents.append(reply["choices"][0]["message"]["content"])
        num_retried += reply["usage"]["completion_tokens"] > 2
    assert set(contents) == {'{"n": 3}'}
    assert num_retried > 3
    assert num_failed < 10


def test_json_that_never_fits_is_an_error_with_the_reason(service):
    for temperature, attempts in ((0, 1), (1, MAX_ATTEMPTS)):
        body = ask("wrong json", temperature=temperature, response_format=ANSWER_FORMAT)
        error = refuse(service, body)
        assert (error.status, error.param) == (422, "response_format")
        assert f"in {attempts} samples" in str(error)
        assert "reply.n: must be of type integer" in str(error)
    assert "no JSON" in str(refuse(service, ask("sentence", response_format=ANSWER_FORMAT)))
