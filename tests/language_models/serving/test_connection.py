"""Connections that cost the server something and bring nothing: idle ones, slow ones, foreign ones, halves of one."""

import asyncio
import http.client
import json
import logging
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from lib.language_models.serving import model_sources, server
from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.language_models.serving.chat_completions.service import CompletionService
from lib.language_models.serving.connection import MAX_CONNECTIONS, Connection, measure_room
from lib.language_models.serving.server import app
from tests.language_models.serving.requests import REQUEST, generate_alone, numbered_request
from tests.language_models.serving.test_server import serve_in_thread

BODY = json.dumps(numbered_request(3)).encode()
HEAD = (
    b"POST /v1/chat/completions HTTP/1.%d\r\nhost: %b\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)


def make_request(body: bytes = BODY, host: bytes = b"127.0.0.1", minor: int = 1) -> bytes:
    return HEAD % (minor, host, len(body)) + body


def connect(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx2.URL(url).port), timeout=10)


def read_reply(connection: socket.socket) -> tuple[int, dict]:
    """The next reply on a connection, read by the standard library."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


def send(url: str, sent: bytes) -> tuple[int, dict]:
    with connect(url) as connection:
        connection.sendall(sent)
        return read_reply(connection)


def list_open(connections: list[socket.socket]) -> list[bool]:
    """Which of them the server has not closed."""
    is_open = []
    for connection in connections:
        connection.setblocking(False)
        try:
            is_open.append(connection.recv(1, socket.MSG_PEEK) != b"")
        except BlockingIOError:
            is_open.append(True)
        except ConnectionError:
            is_open.append(False)
        connection.settimeout(10)
    return is_open


@pytest.fixture
def url(models, monkeypatch):
    monkeypatch.setattr(Connection, "patience", 0.5)
    with serve_in_thread(app(models)) as url:
        yield url


@pytest.mark.parametrize(
    "begun",
    [b"", b"POST /v1/chat", make_request()[:-1], b"GET /health HTTP/1.1\r\nhost: localhost\r\n"],
)
def test_a_client_that_does_not_ask_in_time_is_cut_off(url, begun, monkeypatch):
    monkeypatch.setattr(server, "BODY_SECONDS", 0.5)
    with connect(url) as connection:
        connection.sendall(begun)
        began = time.monotonic()
        try:
            while connection.recv(999):
                pass
        except ConnectionResetError:
            pass
        assert 0.3 < time.monotonic() - began < 3


def test_a_client_that_asks_letter_by_letter_is_cut_off_all_the_same(url):
    with connect(url) as connection, pytest.raises(ConnectionError):
        for letter in make_request().ljust(200):
            connection.sendall(bytes([letter]))
            time.sleep(0.03)
    with connect(url) as connection:  # also after a first reply
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_reply(connection)[0] == 200
        with pytest.raises(ConnectionError):
            for letter in make_request().ljust(200):
                connection.sendall(bytes([letter]))
                time.sleep(0.03)


def test_a_client_that_does_not_read_is_cut_off(url, monkeypatch):
    """Replies without end to a client that asks on one connection and takes none of them."""
    with connect(url) as connection, pytest.raises(ConnectionError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # the server's patience counts; on a busy machine its buffers fill slowly
        connection.settimeout(300)
        while True:
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500)


def test_where_there_is_no_room_the_oldest_that_asked_nothing_makes_it(url, models, monkeypatch):
    monkeypatch.setattr(Connection, "max_connections", 8)
    monkeypatch.setattr(Connection, "patience", 30)
    batcher_body = json.dumps(REQUEST | {"max_tokens": 200, "temperature": 0.0}).encode()
    with connect(url) as served, connect(url) as waiting, connect(url) as slow:
        served.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_reply(served)[0] == 200
        waiting.sendall(make_request(batcher_body))
        slow.sendall(make_request()[:-1])
        silent = [connect(url) for _ in range(5)]
        time.sleep(0.1)
        assert list_open([served, slow, *silent]) == [True] * 7
        more = [connect(url) for _ in range(3)]
        time.sleep(0.1)
        assert list_open([served, slow, *silent, *more]) == [
            True,
            True,
            False,
            False,
            False,
            True,
            True,
            *[True] * 3,
        ]
        assert read_reply(waiting)[0] == 200
        slow.sendall(BODY[-1:])
        assert read_reply(slow)[0] == 200
        for connection in [*silent, *more]:
            connection.close()


def test_a_flood_of_idle_connections_stops_nobody(url, models, monkeypatch):
    monkeypatch.setattr(Connection, "max_connections", 16)
    idle = [connect(url) for _ in range(100)]
    with ThreadPoolExecutor(8) as pool:
        texts = [
            body["choices"][0]["message"]["content"]
            for _, body in pool.map(
                lambda n: send(url, make_request(json.dumps(numbered_request(n)).encode())),
                range(24),
            )
        ]
    assert texts == [generate_alone(models, numbered_request(n)) for n in range(24)]
    assert sum(list_open(idle)) <= 16
    for connection in idle:
        connection.close()


def test_files_are_left_where_few_may_be_open(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    assert measure_room() == (MAX_CONNECTIONS, 64)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (120, 120))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    max_connections, backlog = measure_room()
    assert 1 <= backlog < 20
    assert 1 <= max_connections <= 120 - 2 * backlog


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_closes_its_half_gets_its_reply(url, models, minor, stream):
    with connect(url) as connection:
        connection.sendall(
            make_request(json.dumps(numbered_request(3) | {"stream": stream}).encode(), minor=minor)
        )
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        response.begin()
        text = response.read().decode()
        assert response.status == 200 and connection.recv(1) == b""  # nothing more, and the end
    if stream:
        assert text.endswith("data: [DONE]\n\n")
    else:
        assert json.loads(text)["choices"][0]["message"]["content"] == generate_alone(
            models, numbered_request(3)
        )


def test_two_questions_and_a_closed_half_get_two_replies(url):
    with connect(url) as connection:
        connection.sendall(make_request() + make_request())
        connection.shutdown(socket.SHUT_WR)
        raw = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert raw.count(b"HTTP/1.1 200 OK") == 2 and raw.count(b"chat.completion") == 2


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "192.0.2.1",
        "",
        "[::2]",
        "a b",
    ],
)
def test_foreign_hosts_and_origins_are_refused(url, host):
    status, body = send(url, make_request(host=host.encode()))
    assert (status, body["error"]["code"]) == (403, "foreign_host") or (
        host == "a b" and status in (400, 403)
    )
    origin = f"https://{host}"
    with httpx2.Client(base_url=url) as client:
        for path in ("/models", "/../health"):
            answered = client.get(path, headers={"origin": origin})
            assert (
                answered.status_code == 403 and answered.json()["error"]["code"] == "foreign_host"
            )
            assert client.get(path, headers={"origin": "null"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9", "127.0.0.1:80", "127.9.9.9", "[::1]:8000", "localhost."]
)
def test_this_machine_s_own_names_pass(url, host):
    assert send(url, make_request(host=host.encode()))[0] == 200
    with httpx2.Client(base_url=url) as client:
        assert client.get("/models", headers={"origin": f"http://{host}"}).status_code == 200


def test_the_option_names_what_is_allowed(models, monkeypatch):
    served_names = []
    monkeypatch.setattr(model_sources, "load_models", lambda *arguments: [])
    monkeypatch.setattr(server, "serve", lambda *options: served_names.append(options[-1]) or 0)
    assert server.main(["--allow-host", "lab.example", "--allow-host", "host.docker.internal"]) == 0
    assert served_names == [["lab.example", "host.docker.internal"]]


def test_nonsense_is_logged_once(url, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            with connect(url) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                assert b"400" in connection.recv(999)
    assert len(caplog.records) <= 1


MANY = {
    "messages": {"messages": [{"a": 1}] * 80_000},
    "numbers for messages": {"messages": [1] * 300_000},
    "unknown names": {f"a{number}": 1 for number in range(80_000)},
    "unknown names in a message": {"messages": [{f"a{number}": 1 for number in range(80_000)}]},
    "one long word": {"messages": [{"role": "user", "content": "a" * 1_000_000}]},
}


@pytest.mark.parametrize("name", MANY)
def test_a_body_of_many_mistakes_takes_no_time(models, name):
    """Each took .2 to .9 s, in which nobody else was answered."""
    service = CompletionService([LabCompletionModel(models["lab-nano"])])
    body = REQUEST | MANY[name]

    async def measure_seconds() -> float:
        began = time.process_time()
        with pytest.raises(RequestRefused):
            await service.start_completion(body)
        return time.process_time() - began

    assert asyncio.run(measure_seconds()) < 0.05


@pytest.mark.parametrize(
    "arguments", ['{"a": "\\ud800"}', '{"a": "x\\udfff y"}', '{"\\ud800": "\\ud800"}']
)
def test_half_a_character_in_the_arguments_of_a_call_is_refused_in_words(url, arguments):
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "calculator", "arguments": arguments},
    }
    messages = [*REQUEST["messages"], {"role": "assistant", "tool_calls": [call]}]
    status, body = send(url, make_request(json.dumps(REQUEST | {"messages": messages}).encode()))
    assert status == 400 and "arguments of a tool call" in body["error"]["message"]
