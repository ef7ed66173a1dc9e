"""The server as its clients see it: a process of its own on loopback, asked by the official client and by curl.

And the same without a socket: what `LabTransport` answers are the same bytes.
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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.language_models.chat_template import conversation, token
from lib.language_models.generation import Prompt, generate
from lib.language_models.serving import server
from lib.language_models.serving.server import KEY_VARIABLE, MOST_BYTES, app
from lib.language_models.serving.transport import LabTransport
from lib.language_models.tokenizer import EOS, decode
from lib.llm.client import Client
from tests.language_models.serving.test_chat_completions import (
    ASKED,
    CALCULATOR,
    CALLER,
    WRONG,
    put_together,
)
from tests.llm import server as scripted
from tests.llm.server import certificate, key

__all__ = ["certificate", "key"]

ROOT = Path(__file__).parents[3]
KEY = "sk-planted-51c0ffee"
_PROCESS = """
import time
import torch
from lib.language_models.serving.server import app, serve
from tests.language_models.conftest import tiny
torch.set_num_threads(1)
served = app(tiny())
if {slow}:
    running = served.state.answering.batchers["lab-nano"]._running
    step, running.step = running.step, lambda: time.sleep({slow}) or step()
raise SystemExit(serve(served, port=0))
"""


class Served:
    """A server in a process of its own. slow: seconds that a step takes longer."""

    def __init__(self, slow: float = 0.0) -> None:
        code = _PROCESS.format(slow=slow)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = self.process.stderr.readline()
        self.url = self.said.split()[3].rstrip(":")
        self.port = int(self.url.split(":")[2].split("/")[0])

    def client(self, **changes) -> openai.OpenAI:
        return openai.OpenAI(
            **{"base_url": self.url, "api_key": "none", "max_retries": 0, "timeout": 30.0} | changes
        )

    def async_client(self, **changes) -> openai.AsyncOpenAI:
        about = {"base_url": self.url, "api_key": "none", "max_retries": 0, "timeout": 30.0}
        http = httpx2.AsyncClient(limits=httpx2.Limits(), timeout=30.0)
        return openai.AsyncOpenAI(**about | {"http_client": http} | changes)

    def post(
        self, path: str, content: bytes | str, kind: str = "application/json"
    ) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, content, {"content-type": kind})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and what it said on standard error."""
        self.process.send_signal(number)
        rest = self.process.stderr.read()
        return self.process.wait(20), rest


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
def in_thread(application):
    """The server in a thread, so that a test can look into it."""
    listening = socket.create_server(("127.0.0.1", 0))
    running = server._server(application)
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


def asked(number: int) -> dict:
    words = [
        "the",
        "red",
        "key",
        "is",
        "in",
        "the",
        "box",
        "and",
        "the",
        "blue",
        "key",
        "is",
        "not",
    ]
    content = " ".join(words[: 1 + number % len(words)])
    return ASKED | {
        "messages": [{"role": "user", "content": content}],
        "seed": number,
        "max_tokens": 5 + number % 40,
    }


def alone(models, body: dict) -> str:
    prompt = Prompt(tuple(conversation(body["messages"])), body["max_tokens"], 1.0, body["seed"])
    return decode(generate(models[body["model"]].forward, [prompt], token(EOS))[0].ids)


# The official client ------------------------------------------------------------------------------


def test_the_official_client_gets_a_reply(served, models):
    with served.client() as client:
        reply = client.chat.completions.create(**asked(3))
        assert reply.choices[0].message.content == alone(models, asked(3))
        assert (
            reply.usage.completion_tokens >= 1
            and reply.system_fingerprint == models["lab-nano"].fingerprint
        )
        names = [model.id for model in client.models.list()]
        assert names == list(models) and client.models.retrieve("lab-nano").card == {
            "parameters": 1000
        }


def test_a_stream_of_the_official_client_is_the_whole_reply(served, models):
    async def play() -> str:
        async with served.async_client() as client:
            stream = await client.chat.completions.create(
                **asked(25), stream=True, stream_options={"include_usage": True}
            )
            parts = [part.model_dump() async for part in stream]
        assert parts[-1]["usage"]["completion_tokens"] >= 1
        return "".join(
            choice["delta"]["content"] or "" for part in parts for choice in part["choices"]
        )

    assert asyncio.run(play()) == alone(models, asked(25))


def test_a_tool_is_called_and_its_reply_read(served):
    body = CALLER | {"tools": [CALCULATOR]}
    with served.client() as client:
        message = client.chat.completions.create(**body).choices[0].message
        (call,) = message.tool_calls
        assert (
            json.loads(call.function.arguments) == {"expression": "4 * 8"}
            and message.content == "then"
        )
        more = [
            *CALLER["messages"],
            message,
            {"role": "tool", "content": "32", "tool_call_id": call.id},
        ]
        assert client.chat.completions.create(**body | {"messages": more}).choices[0].message
        with client.chat.completions.stream(**body) as stream:
            streamed = stream.get_final_completion().choices[0].message
    assert streamed.tool_calls[0].id == call.id and streamed.content == "then"
    assert streamed.tool_calls[0].function.arguments == call.function.arguments


def test_errors_are_those_of_the_official_client(served):
    with served.client() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(**ASKED | {"model": "gpt"})
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(**ASKED | {"max_tokens": 1000})
    assert missing.value.code == "model_not_found" and "lab-nano" in str(missing.value)
    assert long.value.code == "context_length_exceeded" and long.value.param == "messages"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_gets_replies_streams_and_errors(served, models):
    def curl(*arguments: str) -> str:
        return subprocess.run(
            ["curl", "-sS", *arguments], capture_output=True, text=True, check=True
        ).stdout

    url, header = f"{served.url}/chat/completions", ["-H", "content-type: application/json"]
    body = asked(9)
    assert json.loads(curl(url, *header, "-d", json.dumps(body)))["choices"][0]["message"][
        "content"
    ] == alone(models, body)
    lines = curl("-N", url, *header, "-d", json.dumps(body | {"stream": True})).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert put_together(parts)["message"]["content"] == alone(models, body)
    assert "application/json" in json.loads(curl(url, "-d", "{}"))["error"]["message"]
    assert json.loads(curl(f"http://127.0.0.1:{served.port}/health"))["status"] == "ok"


# Many at once -------------------------------------------------------------------------------------


def test_64_clients_at_once_each_get_their_own_reply(served, models):
    async def one(number: int) -> str:
        async with served.async_client() as client:
            if number % 3:
                return (
                    (await client.chat.completions.create(**asked(number)))
                    .choices[0]
                    .message.content
                )
            stream = await client.chat.completions.create(**asked(number), stream=True)
            return "".join([part.choices[0].delta.content or "" async for part in stream])

    async def play():
        return await asyncio.gather(*map(one, range(64)))

    assert asyncio.run(play()) == [alone(models, asked(number)) for number in range(64)]


def test_a_flooded_server_says_so_and_the_others_are_served(models):
    async def play(url: str):
        async with httpx2.AsyncClient(base_url=url, limits=httpx2.Limits(), timeout=30.0) as client:
            return await asyncio.gather(
                *(client.post("/chat/completions", json=asked(n)) for n in range(80))
            )

    with in_thread(app(models, waiting=4, at_once=1)) as url:
        check_flood(asyncio.run(play(url)), models)
        with openai.OpenAI(
            base_url=url, api_key="none", max_retries=5
        ) as client:  # it waits as it is told
            assert client.chat.completions.create(**asked(1)).choices[0].message.content == alone(
                models, asked(1)
            )


def check_flood(replies: list, models) -> None:
    busy = [reply for reply in replies if reply.status_code == 429]
    assert busy and all(int(reply.headers["retry-after"]) >= 1 for reply in busy)
    assert all(reply.json()["error"]["code"] == "rate_limit_exceeded" for reply in busy)
    good = [(number, reply) for number, reply in enumerate(replies) if reply.status_code == 200]
    assert len(good) >= 4 and len(good) + len(busy) == len(replies)
    for number, reply in good:
        assert reply.json()["choices"][0]["message"]["content"] == alone(models, asked(number))


# Clients that go away, servers that end --------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_goes_away_frees_its_place(models, stream):
    application = app(models)
    batcher = application.state.answering.batchers["lab-nano"]
    step = batcher._running.step
    batcher._running.step = lambda: time.sleep(0.01) or step()  # 240 tokens would take 2.4 s
    body = ASKED | {"max_tokens": 240, "temperature": 0.0, "stream": stream}

    async def play(url: str) -> float:
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ReadTimeout):
                async with client.stream(
                    "POST", f"{url}/chat/completions", json=body, timeout=0.1
                ) as response:
                    async for _ in response.aiter_raw():
                        await asyncio.sleep(0.05)
                        raise httpx2.ReadTimeout("enough")
        began = time.monotonic()
        while batcher._under_way and time.monotonic() - began < 5:
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    with in_thread(application) as url:
        assert asyncio.run(play(url)) < 1.0 and len(batcher._running) == 0
        batcher._running.step = step
        with openai.OpenAI(base_url=url, api_key="none") as client:
            assert client.chat.completions.create(**asked(4)).choices[0].message.content == alone(
                models, asked(4)
            )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_finishes_what_is_under_way(models, number):
    body = asked(2) | {"max_tokens": 240, "seed": 2}
    with serving(slow=0.004) as served, served.client() as client:
        stream = iter(client.chat.completions.create(**body, stream=True))
        parts = [next(stream) for _ in range(3)]
        served.process.send_signal(number)
        time.sleep(0.1)
        with (
            pytest.raises(openai.APIConnectionError),
            served.client() as other,
        ):  # while the stream goes on
            other.models.list()
        parts += list(stream)
        assert "".join(part.choices[0].delta.content or "" for part in parts) == alone(models, body)
        assert parts[-1].choices[0].finish_reason
        assert served.process.wait(10) == 0 and served.process.stderr.read() == ""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_reply_that_takes_too_long_to_finish_is_said_to_break_off(models, monkeypatch, stream):
    monkeypatch.setattr(server, "_GRACE_SECONDS", 0.2)
    application = app(models)
    running = application.state.answering.batchers["lab-nano"]._running
    step = running.step
    monkeypatch.setattr(running, "step", lambda: time.sleep(0.02) or step())
    body = ASKED | {"max_tokens": 240, "temperature": 0.0, "stream": stream}
    with ThreadPoolExecutor(1) as pool, in_thread(application) as url:
        asking = pool.submit(httpx2.post, f"{url}/chat/completions", json=body, timeout=30.0)
        time.sleep(0.5)
    reply = asking.result()  # the server has ended
    if stream:
        assert reply.status_code == 200 and "[DONE]" not in reply.text
        assert "broke off" in reply.text.split("data: ")[-1]
    else:
        assert reply.status_code == 503 and "shutting down" in reply.text


# The key ------------------------------------------------------------------------------------------


def test_without_the_key_nothing_is_answered_but_health(models):
    wrong = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": KEY},
        {"authorization": f"Bearer {KEY}x"},
    ]
    wrong += [
        {"authorization": "Bearer \xe4"},
        {"authorization": f"bearer  {KEY}"},
        {"authorization": ""},
    ]

    async def play():
        transport = httpx2.ASGITransport(app(models, KEY))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            for headers in wrong:
                raw = {name: value.encode("latin-1") for name, value in headers.items()}
                for path in ("/v1/models", "/v1/elsewhere", "/v1/chat/completions"):
                    reply = await client.get(path, headers=raw)
                    assert (
                        reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
                    )
                    assert (
                        reply.json()["error"]["code"] == "invalid_api_key" and KEY not in reply.text
                    )
            assert (await client.get("/health")).status_code == 200
            correct = await client.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})
            assert correct.status_code == 200

    asyncio.run(play())


def test_the_key_comes_from_the_environment_and_is_never_shown(models, monkeypatch, capsys):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    started = {}
    load(monkeypatch, models)
    monkeypatch.setattr(
        server, "serve", lambda application, *a: started.update(app=application) or 0
    )
    assert server.main(["--host", "0.0.0.0"]) == 0

    async def play() -> list[int]:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(started["app"]), base_url="http://x"
        ) as client:
            given = ["none", KEY]
            return [
                (
                    await client.get("/v1/models", headers={"authorization": f"Bearer {k}"})
                ).status_code
                for k in given
            ]

    assert asyncio.run(play()) == [401, 200]
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err and "warning" not in shown.err


def load(monkeypatch, models) -> None:
    monkeypatch.setattr(server.checkpoints, "load_all", lambda folder: models)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])
def test_a_server_that_others_can_reach_warns_without_a_key(models, monkeypatch, capsys, host):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    load(monkeypatch, models)
    monkeypatch.setattr(server, "serve", lambda *a: 0)
    assert server.main(["--host", host]) == 0 and KEY_VARIABLE in capsys.readouterr().err
    assert server.main(["--host", "127.0.0.1"]) == 0 == server.main(["--host", "localhost"])
    assert capsys.readouterr().err == ""


def test_without_models_it_says_what_to_do(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(server, "serve", lambda *a: pytest.fail("served nothing"))
    assert server.main(["--models", str(tmp_path)]) == 1
    assert "make repro" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error_in_words(models, monkeypatch, capsys):
    load(monkeypatch, models)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert server.main(["--port", str(taken.getsockname()[1])]) == 1
    assert "cannot be listened at" in capsys.readouterr().err


# HTTP ---------------------------------------------------------------------------------------------

BODIES = {
    "broken": (b'{"model": ', 400),
    "not utf-8": (b"\xff\xfe\xff", 400),
    "nested": (b"[" * 100_000, 400),
    "a number of many digits": (b"9" * 10_000, 400),
    "empty": (b"", 400),
    "null": (b"null", 400),
    "too long": (b" " * (MOST_BYTES + 1), 413),
    "much too long": (b" " * (8 * MOST_BYTES), 413),
    "as long as may be": (json.dumps(ASKED).encode().ljust(MOST_BYTES), 200),
    "infinite heat": (json.dumps(ASKED | {"temperature": float("inf")}).encode(), 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_body_is_answered_in_the_shape_of_the_api(served, name):
    content, expected = BODIES[name]
    status, headers, raw = served.post("/v1/chat/completions", content)
    assert headers["content-type"] == "application/json" and status == expected
    if status != 200:
        error = json.loads(raw)["error"]
        assert (
            error.keys() == {"message", "type", "param", "code"}
            and error["type"] == "invalid_request_error"
        )


def test_a_body_that_is_not_declared_json_is_refused(served):
    status, _, raw = served.post("/v1/chat/completions", json.dumps(ASKED), "text/plain")
    assert status == 400 and "text/plain" in json.loads(raw)["error"]["message"]


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
            assert reply.status_code == status and reply.json()["error"]["message"], (method, path)
            assert (status == 405) == ("allow" in reply.headers)


# In process ---------------------------------------------------------------------------------------

PLACES = {
    "a reply": ("/v1/chat/completions", ASKED),
    "several": ("/v1/chat/completions", ASKED | {"n": 4, "logprobs": True, "stop": ["key", "e t"]}),
    "a stream": (
        "/v1/chat/completions",
        ASKED | {"stream": True, "stream_options": {"include_usage": True}},
    ),
    "streams": (
        "/v1/chat/completions",
        ASKED | {"stream": True, "n": 5, "logprobs": True, "max_tokens": 30},
    ),
    "a call": ("/v1/chat/completions", CALLER | {"tools": [CALCULATOR]}),
    "a streamed call": ("/v1/chat/completions", CALLER | {"tools": [CALCULATOR], "stream": True}),
    "an unknown model": ("/v1/chat/completions", ASKED | {"model": "gpt"}),
    "too long": ("/v1/chat/completions", ASKED | {"max_tokens": 1000}),
    "elsewhere": ("/v1/completions", ASKED),
    **{
        wrong: ("/v1/chat/completions", ASKED | WRONG[wrong][0])
        for wrong in ("functions", "temperature", "twins")
    },
}


def test_in_process_are_the_same_bytes_as_over_http(served, models):
    transport = LabTransport(models)

    async def inside(path: str, content: bytes):
        async with httpx2.AsyncClient(transport=transport, base_url="http://in-process") as client:
            reply = await client.post(
                path, content=content, headers={"content-type": "application/json"}
            )
            return reply.status_code, reply.content

    for path, body in PLACES.values():
        content = json.dumps(body).encode()
        status, _, raw = served.post(path, content)
        assert asyncio.run(inside(path, content)) == (status, raw)  # an event loop each
    transport.close()


def test_our_client_asks_in_process_from_one_event_loop_after_another(models):
    transport = LabTransport(models)
    about = {
        "backend": "lab",
        "model": "lab-nano",
        "temperature": 1.0,
        "max_tokens": 100,
        "concurrency": 64,
    }
    given = scripted.settings(
        models={"own": scripted.settings().models["mine"].model_dump() | about}
    )

    async def play(numbers: range) -> list[str]:
        async with Client(given, {"lab": transport}) as client:
            bodies = [asked(n) | {"max_tokens": 100} for n in numbers]
            calls = (client.chat("own", b["messages"], seed=b["seed"]) for b in bodies)
            replies = await asyncio.gather(*calls, return_exceptions=True)
        return [
            getattr(reply, "text", None) for reply in replies
        ]  # a truncated reply is an error with its text

    expected = [alone(models, asked(n) | {"max_tokens": 100}) for n in range(20)]
    assert asyncio.run(play(range(10))) + asyncio.run(play(range(10, 20))) == expected
    transport.close()


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
        "content": st.text(max_size=20) | _ANY,
    },
    optional={"tool_call_id": _PLAIN, "tool_calls": _ANY, "name": _PLAIN},
)
_FIELDS = {
    "temperature": st.sampled_from([0, 0.5, 1, 2, 3]) | _PLAIN,
    "max_tokens": st.integers(-1, 300) | _PLAIN,
    "stop": st.lists(st.text(max_size=3), max_size=5) | _ANY,
    "tools": st.just([CALCULATOR]) | _ANY,
    "tool_choice": st.sampled_from(["auto", "none"]) | _ANY,
    "stream": st.booleans() | _PLAIN,
    "n": st.integers(-1, 9),
    "logprobs": st.booleans(),
    **dict.fromkeys(("seed", "top_logprobs", "user"), _PLAIN),
    **dict.fromkeys(("stream_options", "response_format", "other"), _ANY),
}
_BODY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["lab-nano", "caller", "gpt"]),
        "messages": st.lists(_MESSAGE, max_size=3) | _ANY,
    },
    optional=_FIELDS,
) | st.builds(
    lambda change: ASKED | change,
    st.fixed_dictionaries({}, optional=_FIELDS | {"messages": st.lists(_MESSAGE, max_size=3)}),
)


@pytest.fixture(scope="module")
def transport(models):
    transport = LabTransport(models)
    yield transport
    transport.close()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(_BODY | _ANY)
def test_no_body_breaks_the_server(transport, body):
    async def play():
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://in-process/v1/"
        ) as client:
            return await client.post(
                "chat/completions",
                content=json.dumps(body),
                headers={"content-type": "application/json"},
            )

    reply = asyncio.run(play())
    assert reply.status_code in (200, 400, 404), reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["message"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_break_the_server(served, raw):
    assert served.post("/v1/chat/completions", raw)[0] == 400
