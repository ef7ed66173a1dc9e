"""Bad days: whatever a server or a model answers, no episode is lost, no policy invented, and it is counted."""

import json

import httpx2
import pytest

from lib.llm.client import Client
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError
from lib.orchestration import prompted_experiment
from lib.orchestration.variants import Method
from tests.llm.server import completion
from tests.orchestration.test_prompted_experiment import SCRIPTED, small, trained

__all__ = ["trained"]

GOOD = '{"reasoning": "it has worked so far", "policy": "SO-d3"}'


ODD = {
    "fences": completion(f"```json\n{GOOD}\n```"),
    "unknown name": completion('{"reasoning": "", "policy": "SO-d9"}'),
    "refusal": completion(
        None, message={"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    ),
    "refusal in words": completion("I am sorry, but I cannot choose."),
    "truncated": completion('{"reasoning": "because the', finish_reason="length"),
    "null": completion(None),
    "empty": completion(""),
    "no choices": {"id": "x", "object": "chat.completion", "model": "m", "choices": []},
    "error in the body": {"error": {"message": "overloaded", "code": 503}},
    "html": b"<html><body>Bad gateway</body></html>",
    "nothing at all": b"",
    "half a body": json.dumps(completion(GOOD)).encode()[:80],
}
MENDED = {"fences"}  # the choice is clear, so the reply counts


class Server(httpx2.AsyncBaseTransport):
    """Answers each request with the next of `replies`, over and over."""

    def __init__(self, *replies) -> None:
        self.replies, self.asked = replies, 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = self.replies[self.asked % len(self.replies)]
        self.asked += 1
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx2.Response):
            return httpx2.Response(reply.status_code, headers=reply.headers, content=reply.content)
        return (
            httpx2.Response(200, json=reply)
            if isinstance(reply, dict)
            else httpx2.Response(200, content=reply)
        )


def played(server: Server, kind: str, monkeypatch, tmp_path, trained, **changes):
    """The record of two short episodes in which `server` is the model."""
    model = {"retries": 2, **changes.pop("model", {})}
    settings = small(
        zoo={"seeds": 1}, education={"horizon": 8}, llm={"models": {SCRIPTED: model}}, **changes
    )
    monkeypatch.setattr(
        prompted_experiment, "make_client", lambda llm, *_: Client(llm, {"scripted": server})
    )
    return prompted_experiment.run(
        settings, "education", [Method(f"{kind} odd", kind, SCRIPTED)], tmp_path, trained
    )


@pytest.mark.parametrize(
    ("odd", "kind"),
    [(odd, "KO") for odd in sorted(ODD)]
    + [(odd, kind) for odd in ("fences", "html", "null") for kind in ("TO", "RO")],
)
def test_an_odd_reply_every_time_loses_no_episode(odd, kind, monkeypatch, tmp_path, trained):
    record = played(Server(ODD[odd]), kind, monkeypatch, tmp_path, trained)
    assert record["done"].sum() == 2
    if odd in MENDED:
        assert not record["fallback"].any() and set(record["choice"]) == {"SO-d3"}
    else:
        assert record["fallback"].all() and set(record["choice"]) == {
            "SO-d2"
        }  # the declared fallback
        assert (record["invalid"] >= 1).all() and (record["trouble"] != "").all()


@pytest.mark.parametrize("odd", ["truncated", "html", "refusal", "unknown name"])
def test_a_second_try_is_enough(odd, monkeypatch, tmp_path, trained):
    record = played(Server(ODD[odd], completion(GOOD)), "KO", monkeypatch, tmp_path, trained)
    assert not record["fallback"].any() and set(record["choice"]) == {"SO-d3"}


def answer(status: int, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status, headers={"retry-after-ms": "1", **headers}, json={"error": {"message": "busy"}}
    )


TROUBLE = {
    "429 with Retry-After": answer(429, **{"retry-after": "0.01"}),
    "500": answer(500),
    "503": answer(503),
    "a timeout": httpx2.ReadTimeout("slow"),
    "a cut stream": httpx2.RemoteProtocolError(
        "peer closed connection without sending complete message body"
    ),
    "a refused connection": httpx2.ConnectError("refused"),
}


@pytest.mark.parametrize("name", sorted(TROUBLE))
def test_a_server_in_trouble_is_asked_again_and_counted_once(name, monkeypatch, tmp_path, trained):
    patient(monkeypatch)
    server = Server(TROUBLE[name], completion(GOOD))
    record = played(server, "KO", monkeypatch, tmp_path, trained)
    assert not record["fallback"].any() and record["invalid"].sum() == 0
    assert server.asked == 2 * record["calls"].sum()
    assert (record["tokens_in"] == 10).all()  # of the reply that came, not of the attempts


@pytest.mark.parametrize("name", sorted(TROUBLE))
def test_a_server_that_stays_in_trouble_loses_no_episode(name, monkeypatch, tmp_path, trained):
    patient(monkeypatch)
    record = played(Server(TROUBLE[name]), "RO", monkeypatch, tmp_path, trained)
    assert record["done"].sum() == 2 and record["fallback"].all() and (record["calls"] == 1).all()
    assert record["tokens_in"].sum() == 0 and record["cost_usd"].sum() == 0


def patient(monkeypatch) -> None:
    """The client's waits between attempts, without the waiting."""
    from openai import _base_client

    async def at_once(_seconds: float) -> None:
        return None

    monkeypatch.setattr(_base_client.anyio, "sleep", at_once)


def test_a_wrong_key_stops_the_run_instead_of_playing_fallbacks(monkeypatch, tmp_path, trained):
    with pytest.raises(ConfigurationError, match="401"):
        played(Server(answer(401)), "KO", monkeypatch, tmp_path, trained)


class Broke(Client):
    """A client that hits llm.max_usd at its 30th call."""

    asked = 0

    async def chat(self, *arguments, **named):
        Broke.asked += 1
        if Broke.asked == 30:
            raise BudgetExceeded("the run", 1.0, 1.0, 0.1)
        return await super().chat(*arguments, **named)


def test_the_hard_stop_keeps_finished_episodes_and_a_rerun_pays_only_for_the_rest(
    monkeypatch, tmp_path, trained
):
    method = Method("KO odd", "KO", SCRIPTED)
    settings = small(zoo={"seeds": 2}, education={"horizon": 8}, orchestration={"episodes": 1})
    server = Server(completion(GOOD))
    monkeypatch.setattr(
        prompted_experiment, "make_client", lambda llm, *_: Broke(llm, {"scripted": server})
    )
    Broke.asked = 30 - 12  # the first job of about eight decisions ends, the second does not
    with pytest.raises(BudgetExceeded) as caught:
        prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert "1 jobs" in " ".join(caught.value.__notes__)
    before = server.asked
    record = prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert record["done"].sum() == 2
    assert server.asked - before <= 9  # one episode, not two
