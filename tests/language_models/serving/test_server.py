"""The server as its clients see it: a process of its own on loopback, asked by the official client and by curl.

And the same without a socket: what the application answers in this process are the same bytes.
"""

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.serving import model_sources, server
from lib.language_models.serving.access import KEY_VARIABLE
from lib.language_models.serving.chat_completions.folder_completion import FolderCompletionModel
from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.language_models.serving.server import MAX_BODY_BYTES, app
from tests.language_models.serving.folders import follow, make_folder
from tests.language_models.serving.requests import (
    CALCULATOR,
    CALL_REQUEST,
    REQUEST,
    SEARCH,
    force,
    generate_alone,
    numbered_request,
    put_together,
)

ROOT = Path(__file__).parents[3]
KEY = "sk-planted-51c0ffee"
PROCESS = """
import time
import torch
from lib.language_models.serving.server import app, serve
from tests.language_models.conftest import tiny
torch.set_num_threads(1)
application = app(tiny())
if {slow}:
    batch = application.state.service.models["lab-nano"].batcher._batch
    step, batch.step = batch.step, lambda: time.sleep({slow}) or step()
raise SystemExit(serve(application, port=0))
"""


class Served:
    """A server in a process of its own. slow: seconds that a step takes longer."""

    def __init__(self, slow: float = 0.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS.format(slow=slow)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        greeting = self.process.stderr.readline()
        self.url = greeting.split()[3].rstrip(":")
        self.port = int(self.url.split(":")[2].split("/")[0])

    def client(self, **changes) -> openai.OpenAI:
        return make_client(self.url, **changes)

    def async_client(self, **changes) -> openai.AsyncOpenAI:
        options = {"base_url": self.url, "api_key": "none", "max_retries": 0, "timeout": 30.0}
        http = httpx2.AsyncClient(limits=httpx2.Limits(), timeout=30.0)
        return openai.AsyncOpenAI(**options | {"http_client": http} | changes)

    def post(
        self, path: str, content: bytes | str, content_type: str = "application/json"
    ) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, content, {"content-type": content_type})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and what it wrote to standard error after its greeting."""
        self.process.send_signal(number)
        errors = self.process.stderr.read()
        return self.process.wait(20), errors


def make_client(url: str, **changes) -> openai.OpenAI:
    options = {"base_url": url, "api_key": "none", "max_retries": 0, "timeout": 30.0}
    return openai.OpenAI(**options | changes)


@contextmanager
def serving(**changes):
    served = Served(**changes)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()
        served.process.stderr.close()


@contextmanager
def serve_in_thread(application):
    """The server in a thread, so that a test can look into it."""
    listening = socket.create_server(("127.0.0.1", 0))
    running = server.make_server(application)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        running.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def served():
    with serving() as served:
        yield served
        assert served.stop() == (0, "")  # no traceback, no warning in all of these tests


def read_text(reply) -> str:
    return reply.choices[0].message.content


# The official client ------------------------------------------------------------------------------


def test_the_official_client_gets_a_reply(served, models):
    with served.client() as client:
        reply = client.chat.completions.create(**numbered_request(3))
        assert read_text(reply) == generate_alone(models, numbered_request(3))
        assert reply.usage.completion_tokens >= 1
        assert reply.system_fingerprint == models["lab-nano"].fingerprint
        assert [model.id for model in client.models.list()] == list(models)
        described = client.models.retrieve("lab-nano")
        assert described.card == {"parameters": 1000}
        assert "key" in described.vocabulary


def test_a_stream_of_the_official_client_is_the_whole_reply(served, models):
    async def run() -> str:
        async with served.async_client() as client:
            stream = await client.chat.completions.create(
                **numbered_request(25), stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk.model_dump() async for chunk in stream]
        assert chunks[-1]["usage"]["completion_tokens"] >= 1
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        return "".join(delta["content"] or "" for delta in deltas)

    assert asyncio.run(run()) == generate_alone(models, numbered_request(25))


def test_a_stream_comes_while_the_reply_is_written():
    """A step takes 20 ms, a reply of 40 tokens .8 s; its first words come after a fraction of that."""
    body = REQUEST | {"max_tokens": 40, "temperature": 0.0}
    with serving(slow=0.02) as slow_server, slow_server.client() as client:
        began = time.monotonic()
        arrivals = []
        for chunk in client.chat.completions.create(**body, stream=True):
            if chunk.choices[0].delta.content:
                arrivals.append(time.monotonic() - began)
    assert len(arrivals) > 5
    assert arrivals[0] < arrivals[-1] / 2


def test_a_tool_is_called_and_its_result_read(served):
    body = CALL_REQUEST | {"tools": [CALCULATOR]}
    with served.client() as client:
        message = client.chat.completions.create(**body).choices[0].message
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == {"expression": "4 * 8"}
        assert message.content == "then"
        result = {"role": "tool", "content": "32", "tool_call_id": call.id}
        for said in (message, message.model_dump()):  # as an object, and with all its nulls
            messages = [*CALL_REQUEST["messages"], said, result]
            assert client.chat.completions.create(**body | {"messages": messages}).choices
        with client.chat.completions.stream(**body) as stream:
            streamed = stream.get_final_completion().choices[0].message
    assert streamed.tool_calls[0].id == call.id
    assert streamed.content == "then"
    assert streamed.tool_calls[0].function.arguments == call.function.arguments


@pytest.mark.parametrize("tool_choice", ["required", force("search")])
def test_a_tool_that_must_be_called_is_called(served, tool_choice):
    body = REQUEST | {"tools": [SEARCH], "tool_choice": tool_choice, "parallel_tool_calls": False}
    with served.client() as client:
        (call,) = client.chat.completions.create(**body).choices[0].message.tool_calls
        assert call.function.name == "search"
        assert list(json.loads(call.function.arguments)) == ["argument"]


def test_errors_are_those_of_the_official_client(served):
    with served.client() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(**REQUEST | {"model": "gpt"})
        with pytest.raises(openai.BadRequestError) as too_long:
            client.chat.completions.create(**REQUEST | {"max_tokens": 1000})
        with pytest.raises(openai.BadRequestError) as unknown:
            messages = [{"role": "user", "content": "two duck eggs"}]
            client.chat.completions.create(**REQUEST | {"messages": messages})
        with pytest.raises(openai.BadRequestError) as unsupported:
            client.chat.completions.create(**REQUEST, top_p=0.5)
    assert missing.value.code == "model_not_found"
    assert "lab-nano" in str(missing.value)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "messages")
    assert (unknown.value.code, unknown.value.param) == ("unknown_words", "messages")
    assert "does not know: two, duck;" in str(unknown.value)
    assert unsupported.value.param == "top_p"


# Folders ------------------------------------------------------------------------------------------

PRICE_TOOL = {
    "type": "function",
    "function": {
        "name": "get_price",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}


class Price(pydantic.BaseModel):
    item: str
    euros: float | None = None


@pytest.fixture(scope="module")
def folder_url(models, tmp_path_factory):
    """A server with a lab model and three folders."""
    root = tmp_path_factory.mktemp("folders")
    successors = {
        "talker": follow("It costs ", "three ", "euros."),
        "caller": follow("<tool_call>", '{"name": "get_price", ', '"arguments": {"item": "x"}}'),
        "writer": {":": [' {"item": "x"}']} | follow('{"item": "tea", ', '"euros": 3}'),
    }
    folders = [make_folder(root / name, successors[name]) for name in successors]
    served_models = [LabCompletionModel(models["lab-nano"])]
    served_models += [FolderCompletionModel(HuggingFaceModel(folder)) for folder in folders]
    with serve_in_thread(app(served_models)) as url:
        yield url


def ask_folder(model: str, **changes) -> dict:
    messages = [{"role": "user", "content": "What does it cost?"}]
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": 80} | changes


def test_lab_models_and_folders_are_asked_in_the_same_way(folder_url, models):
    with make_client(folder_url) as client:
        names = ["lab-nano", "talker", "caller", "writer"]
        assert [model.id for model in client.models.list()] == names
        reply = client.chat.completions.create(**ask_folder("talker"))
        assert read_text(reply) == "It costs three euros."
        reply = client.chat.completions.create(**numbered_request(3))
        assert read_text(reply) == generate_alone(models, numbered_request(3))


def test_a_folder_s_reply_is_streamed(folder_url):
    with make_client(folder_url) as client:
        stream = client.chat.completions.create(
            **ask_folder("talker"), stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [piece for piece in pieces if piece] == ["It costs ", "three ", "euros."]
    assert chunks[-1].usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("model", "tool_choice"),
    [("caller", "auto"), ("writer", "required"), ("writer", force("get_price"))],
)
def test_a_folder_s_tool_call_reaches_the_client(folder_url, model, tool_choice):
    body = ask_folder(model, tools=[PRICE_TOOL], tool_choice=tool_choice)
    with make_client(folder_url) as client:
        (choice,) = client.chat.completions.create(**body).choices
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert call.function.name == "get_price"
        assert json.loads(call.function.arguments) == {"item": "x"}
        with client.chat.completions.stream(**body) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
        assert (streamed.id, streamed.function.name) == (call.id, call.function.name)


def test_a_folder_s_reply_is_parsed_into_the_client_s_class(folder_url):
    """What the official client's `parse`, and LangChain's `with_structured_output`, send: a strict schema."""
    with make_client(folder_url) as client:
        reply = client.chat.completions.parse(**ask_folder("writer"), response_format=Price)
        assert reply.choices[0].message.parsed == Price(item="tea", euros=3)
        with pytest.raises(openai.UnprocessableEntityError, match="no whole JSON object"):
            client.chat.completions.parse(**ask_folder("talker"), response_format=Price)
        # once the stream has begun, the error is an event
        with pytest.raises(openai.APIError, match="no whole JSON object"):
            json_format = {"type": "json_object"}
            body = ask_folder("talker", response_format=json_format, stream=True)
            list(client.chat.completions.create(**body))


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_gets_replies_streams_and_errors(served, models):
    def curl(*arguments: str) -> str:
        command = ["curl", "-sS", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    url = f"{served.url}/chat/completions"
    header = ["-H", "content-type: application/json"]
    body = numbered_request(9)
    reply = json.loads(curl(url, *header, "-d", json.dumps(body)))
    assert reply["choices"][0]["message"]["content"] == generate_alone(models, body)

    lines = curl("-N", url, *header, "-d", json.dumps(body | {"stream": True})).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert put_together(chunks)["message"]["content"] == generate_alone(models, body)
    assert "application/json" in json.loads(curl(url, "-d", "{}"))["error"]["message"]
    assert json.loads(curl(f"http://127.0.0.1:{served.port}/health"))["status"] == "ok"


# Many at once -------------------------------------------------------------------------------------


def test_64_clients_at_once_each_get_their_own_reply(served, models):
    async def ask(number: int) -> str:
        async with served.async_client() as client:
            if number % 3:
                return read_text(await client.chat.completions.create(**numbered_request(number)))
            stream = await client.chat.completions.create(**numbered_request(number), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def run():
        return await asyncio.gather(*map(ask, range(64)))

    expected = [generate_alone(models, numbered_request(number)) for number in range(64)]
    assert asyncio.run(run()) == expected


def test_a_flooded_server_says_so_and_the_others_are_served(models):
    async def run(url: str):
        async with httpx2.AsyncClient(base_url=url, limits=httpx2.Limits(), timeout=30.0) as client:
            return await asyncio.gather(
                *(client.post("/chat/completions", json=numbered_request(n)) for n in range(80))
            )

    application = app(models, max_queue_length=4, max_batch_size=1)
    with serve_in_thread(application) as url:
        check_flood(asyncio.run(run(url)), models)
        # the official client waits as it is told
        with make_client(url, max_retries=5) as client:
            reply = client.chat.completions.create(**numbered_request(1))
            assert read_text(reply) == generate_alone(models, numbered_request(1))


def check_flood(replies: list, models) -> None:
    refused = [reply for reply in replies if reply.status_code == 429]
    assert refused
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert all(reply.json()["error"]["code"] == "rate_limit_exceeded" for reply in refused)
    good = [(number, reply) for number, reply in enumerate(replies) if reply.status_code == 200]
    assert len(good) >= 4
    assert len(good) + len(refused) == len(replies)
    for number, reply in good:
        text = reply.json()["choices"][0]["message"]["content"]
        assert text == generate_alone(models, numbered_request(number))


# Clients that go away, servers that end -------------------------------------------------------------


def slow_down(application, seconds: float):
    """Let every step of lab-nano take longer; returns what undoes it, and the batcher."""
    batcher = application.state.service.models["lab-nano"].batcher
    step = batcher._batch.step
    batcher._batch.step = lambda: time.sleep(seconds) or step()

    def undo() -> None:
        batcher._batch.step = step

    return undo, batcher


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_goes_away_frees_its_place(models, stream):
    application = app(models)
    undo, batcher = slow_down(application, 0.01)  # 240 tokens would take 2.4 s
    body = REQUEST | {"max_tokens": 240, "temperature": 0.0, "stream": stream}

    async def run(url: str) -> float:
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ReadTimeout):
                async with client.stream(
                    "POST", f"{url}/chat/completions", json=body, timeout=0.1
                ) as response:
                    async for _ in response.aiter_raw():
                        await asyncio.sleep(0.05)
                        raise httpx2.ReadTimeout("enough")
        began = time.monotonic()
        while batcher._active and time.monotonic() - began < 5:
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    with serve_in_thread(application) as url:
        assert asyncio.run(run(url)) < 1.0
        assert len(batcher._batch) == 0
        undo()
        with make_client(url) as client:
            reply = client.chat.completions.create(**numbered_request(4))
            assert read_text(reply) == generate_alone(models, numbered_request(4))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_finishes_what_is_under_way(models, number):
    body = numbered_request(2) | {"max_tokens": 240, "seed": 2}
    with serving(slow=0.004) as served, served.client() as client:
        stream = iter(client.chat.completions.create(**body, stream=True))
        chunks = [next(stream) for _ in range(3)]
        served.process.send_signal(number)
        time.sleep(0.1)
        # while the stream goes on
        with pytest.raises(openai.APIConnectionError), served.client() as other:
            other.models.list()
        chunks += list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == generate_alone(models, body)
        assert chunks[-1].choices[0].finish_reason
        assert served.process.wait(10) == 0
        assert served.process.stderr.read() == ""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_reply_that_takes_too_long_to_finish_is_said_to_break_off(models, monkeypatch, stream):
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.2)
    application = app(models)
    slow_down(application, 0.02)
    body = REQUEST | {"max_tokens": 240, "temperature": 0.0, "stream": stream}
    with ThreadPoolExecutor(1) as pool, serve_in_thread(application) as url:
        asking = pool.submit(httpx2.post, f"{url}/chat/completions", json=body, timeout=30.0)
        time.sleep(0.5)
    reply = asking.result()  # the server has ended
    if stream:
        assert reply.status_code == 200
        assert "[DONE]" not in reply.text
        assert "broke off" in reply.text.split("data: ")[-1]
    else:
        assert reply.status_code == 503
        assert "shutting down" in reply.text


# The command line ---------------------------------------------------------------------------------


@pytest.fixture
def commanded(models, monkeypatch):
    """The command line with tiny models, serving nothing; the applications that it built."""
    applications = []
    lab_models = [LabCompletionModel(model) for model in models.values()]
    monkeypatch.setattr(model_sources, "load_models", lambda *arguments: lab_models)
    monkeypatch.setattr(
        server, "serve", lambda application, *options: applications.append(application) or 0
    )
    return applications


def test_the_key_comes_from_the_environment_and_is_never_shown(commanded, monkeypatch, capsys):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert server.main(["--host", "0.0.0.0"]) == 0

    async def run() -> list[int]:
        transport = httpx2.ASGITransport(commanded[0])
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            statuses = []
            for key in ("none", KEY):
                headers = {"authorization": f"Bearer {key}"}
                statuses.append((await client.get("/v1/models", headers=headers)).status_code)
            return statuses

    assert asyncio.run(run()) == [401, 200]
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err
    assert "warning" not in shown.err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])
def test_a_server_that_others_can_reach_warns_without_a_key(commanded, monkeypatch, capsys, host):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert server.main(["--host", host]) == 0
    assert KEY_VARIABLE in capsys.readouterr().err
    assert server.main(["--host", "127.0.0.1"]) == 0
    assert server.main(["--host", "localhost"]) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_without_models_is_an_error_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(server, "serve", lambda *options: pytest.fail("served nothing"))
    assert server.main(["--models", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert str(tmp_path) in errors
    assert errors.count("\n") == 1
    assert server.main(["--no-lab", "--model", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert "no Hugging Face folder" in errors
    assert errors.count("\n") == 1


def test_no_lab_and_no_folder_leave_nothing_to_serve(capsys):
    with pytest.raises(SystemExit):
        server.main(["--no-lab"])
    assert "name a folder with --model" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error_in_words(models, monkeypatch, capsys):
    monkeypatch.setattr(model_sources, "load_models", lambda *arguments: [])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert server.main(["--port", str(taken.getsockname()[1])]) == 1
    assert "cannot be listened at" in capsys.readouterr().err


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit):
        server.main(["--help"])
    shown = capsys.readouterr().out
    assert "python -m lib models serve --no-lab --model" in shown
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in shown


# HTTP ---------------------------------------------------------------------------------------------

BODIES = {
    "broken": (b'{"model": ', 400),
    "not utf-8": (b"\xff\xfe\xff", 400),
    "nested": (b"[" * 100_000, 400),
    "a number of many digits": (b"9" * 10_000, 400),
    "empty": (b"", 400),
    "null": (b"null", 400),
    "too long": (b" " * (MAX_BODY_BYTES + 1), 413),
    "much too long": (b" " * (8 * MAX_BODY_BYTES), 413),
    "as long as may be": (json.dumps(REQUEST).encode().ljust(MAX_BODY_BYTES), 200),
    "infinite temperature": (json.dumps(REQUEST | {"temperature": float("inf")}).encode(), 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_body_is_answered_in_the_shape_of_the_api(served, name):
    content, expected = BODIES[name]
    status, headers, raw = served.post("/v1/chat/completions", content)
    assert headers["content-type"] == "application/json"
    assert status == expected
    if status != 200:
        error = json.loads(raw)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"


def test_a_body_that_is_not_declared_json_is_refused(served):
    status, _, raw = served.post("/v1/chat/completions", json.dumps(REQUEST), "text/plain")
    assert status == 400
    assert "text/plain" in json.loads(raw)["error"]["message"]


def test_unknown_paths_and_methods(served):
    with httpx2.Client(base_url=f"http://127.0.0.1:{served.port}") as client:
        for method, path, status in [
            ("GET", "/", 404),
            ("GET", "/v1/nothing", 404),
            ("GET", "/v1/models/nothing", 404),
            ("POST", "/v1/embeddings", 404),
            ("GET", "/v1/chat/completions", 405),
            ("DELETE", "/v1/models", 405),
            ("POST", "/health", 405),
            ("GET", "/v1/models/", 404),
            ("POST", "/v1/chat/completions/", 404),
        ]:
            reply = client.request(method, path)
            assert reply.status_code == status, (method, path)
            assert reply.json()["error"]["message"]
            assert (status == 405) == ("allow" in reply.headers)


# In process ---------------------------------------------------------------------------------------

EXCHANGES = {
    "a reply": ("/v1/chat/completions", REQUEST),
    "several": (
        "/v1/chat/completions",
        REQUEST | {"n": 4, "logprobs": True, "stop": ["key", "e t"]},
    ),
    "a stream": (
        "/v1/chat/completions",
        REQUEST | {"stream": True, "stream_options": {"include_usage": True}},
    ),
    "streams": (
        "/v1/chat/completions",
        REQUEST | {"stream": True, "n": 5, "logprobs": True, "max_tokens": 30},
    ),
    "a call": ("/v1/chat/completions", CALL_REQUEST | {"tools": [CALCULATOR]}),
    "a streamed call": (
        "/v1/chat/completions",
        CALL_REQUEST | {"tools": [CALCULATOR], "stream": True},
    ),
    "an unknown model": ("/v1/chat/completions", REQUEST | {"model": "gpt"}),
    "too long": ("/v1/chat/completions", REQUEST | {"max_tokens": 1000}),
    "elsewhere": ("/v1/completions", REQUEST),
    "an unknown field": ("/v1/chat/completions", REQUEST | {"functions": []}),
    "a hot one": ("/v1/chat/completions", REQUEST | {"temperature": 2.1}),
}


def test_in_process_are_the_same_bytes_as_over_http(served, models):
    application = app(models)
    transport = httpx2.ASGITransport(application, raise_app_exceptions=False)

    async def ask_in_process(path: str, content: bytes):
        async with httpx2.AsyncClient(transport=transport, base_url="http://in-process") as client:
            headers = {"content-type": "application/json"}
            reply = await client.post(path, content=content, headers=headers)
            return reply.status_code, reply.content

    for path, body in EXCHANGES.values():
        content = json.dumps(body).encode()
        status, _, raw = served.post(path, content)
        # an event loop each
        assert asyncio.run(ask_in_process(path, content)) == (status, raw)
    for model in application.state.service.models.values():
        model.batcher.close()


# Fuzz ---------------------------------------------------------------------------------------------

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_ANY = st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool", "boss"]) | _PLAIN,
        "content": st.sampled_from(["the key", ""]) | st.text(max_size=20) | _ANY,
    },
    optional={"tool_call_id": _PLAIN, "tool_calls": _ANY, "name": _PLAIN},
)
_FORMATS = [{"type": "text"}, {"type": "json_object"}]
_FIELDS = {
    "temperature": st.sampled_from([0, 0.5, 1, 2, 3]) | _PLAIN,
    "max_tokens": st.integers(-1, 300) | _PLAIN,
    "stop": st.lists(st.text(max_size=3), max_size=5) | _ANY,
    "tools": st.just([CALCULATOR]) | _ANY,
    "tool_choice": st.sampled_from(["auto", "none", "required", force("calculator")]) | _ANY,
    "response_format": st.sampled_from(_FORMATS) | _ANY,
    "stream": st.booleans() | _PLAIN,
    "n": st.integers(-1, 9),
    "logprobs": st.booleans(),
    **dict.fromkeys(("seed", "top_logprobs", "user", "top_p", "store"), _PLAIN),
    **dict.fromkeys(("stream_options", "metadata", "logit_bias", "other"), _ANY),
}
_BODY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["lab-nano", "caller", "gpt"]),
        "messages": st.lists(_MESSAGE, max_size=3) | _ANY,
    },
    optional=_FIELDS,
) | st.builds(
    lambda change: REQUEST | change,
    st.fixed_dictionaries({}, optional=_FIELDS | {"messages": st.lists(_MESSAGE, max_size=3)}),
)


@pytest.fixture(scope="module")
def asgi(models):
    """The application without a socket, as strict as over HTTP."""
    return httpx2.ASGITransport(app(models), raise_app_exceptions=False)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(_BODY | _ANY)
def test_no_body_breaks_the_server(asgi, body):
    async def run():
        async with httpx2.AsyncClient(transport=asgi, base_url="http://in-process/v1/") as client:
            return await client.post(
                "chat/completions",
                content=json.dumps(body),
                headers={"content-type": "application/json"},
            )

    reply = asyncio.run(run())
    assert reply.status_code in (200, 400, 404), reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["message"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_break_the_server(served, raw):
    assert served.post("/v1/chat/completions", raw)[0] == 400
