"""An endpoint: every outcome is a reply, with a failure of its kind or none; what no retry mends ends the run."""

import gzip
import json
import resource
import socket
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.llm import safe_transport
from lib.llm.chat_model import Reply
from lib.llm.errors import ConfigurationError, InfrastructureError, RecordingMiss
from lib.llm.reply_store import Recording
from tests.llm.server import (
    BILL,
    KEY,
    KEY_VARIABLE,
    QUESTION,
    Answer,
    Asked,
    at_once,
    call,
    completion,
)

GOOD = Answer()


def failed(outcome, kind: str) -> Reply:
    """The only reply, after a look at its failure."""
    reply = outcome.only
    assert isinstance(reply, Reply) and reply.failure and reply.failure.kind == kind, repr(reply)
    return reply


# A server in trouble ------------------------------------------------------------------------------


def test_a_plain_reply_carries_text_tokens_dollars_energy_and_the_message_whole():
    message = {"role": "assistant", "content": "SO-d2", "signature": "abc"}
    reply = call(Answer(completion(message=message))).only
    assert (reply.text, reply.finish_reason, reply.failure) == ("SO-d2", "stop", None)
    assert (reply.tokens_in, reply.tokens_out) == (10, 5)
    assert reply.cost_usd == pytest.approx(BILL) and reply.kwh == pytest.approx(15e-6)
    assert (reply.model, reply.backend, reply.replayed) == ("mine", "endpoint", False)
    assert reply.message == message and reply.seconds > 0


@pytest.mark.parametrize(
    ("header", "seconds"), [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "120"}, 0.12)]
)
def test_a_busy_server_is_asked_again_when_it_says(header, seconds, waits):
    outcome = call(Answer({"error": {"message": "slow down"}}, 429, header), GOOD)
    assert outcome.only.text == "SO-d2" and waits == [seconds]
    assert len(outcome.server.asked) == 2


def test_a_server_that_asks_to_wait_for_minutes_has_failed_the_call(waits):
    outcome = call(Answer({}, 429, {"retry-after": "420"}))
    assert "420 s" in failed(outcome, "rate_limit").failure.detail
    assert waits == [] and len(outcome.server.asked) == 1


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 529])
def test_a_server_that_recovers_gives_its_reply(status, waits):
    outcome = call(Answer("<h1>no</h1>", status), Answer("", status), GOOD)
    assert outcome.only.text == "SO-d2" and len(outcome.server.asked) == 3
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate_limit"), (500, "server_error"), (503, "server_error")]
)
def test_a_server_that_stays_busy_or_down_is_a_failure_of_the_infrastructure(status, kind, waits):
    outcome = call(Answer({"error": {"message": "out of order"}}, status), retries=3)
    reply = failed(outcome, kind)
    assert "out of order" in reply.failure.detail and reply.failure.of_infrastructure
    assert len(outcome.server.asked) == 4 and len(waits) == 3 and reply.cost_usd == 0


def test_a_slow_server_is_left_after_the_timeout(waits):
    began = time.monotonic()
    outcome = call(Answer(delay=5.0), timeout=0.1, retries=1)
    assert "0.1 s" in failed(outcome, "timeout").failure.detail and time.monotonic() - began < 4
    assert len(outcome.server.asked) == 2


def test_a_server_that_drips_is_left_after_the_timeout_too(waits):
    began = time.monotonic()
    outcome = call(Answer(drip=0.15), Answer(drip=0.001), timeout=0.3)
    assert outcome.only.text == "SO-d2"
    assert 0.3 <= time.monotonic() - began < 3  # the first would take 6 s


@pytest.mark.parametrize(
    "cut", [Answer(cut=0), Answer(cut=40), Answer(status=0)], ids=["no body", "mid-body", "mute"]
)
def test_a_connection_that_breaks_off_is_tried_again(cut, waits):
    outcome = call(cut, GOOD)
    assert outcome.only.text == "SO-d2" and len(outcome.server.asked) == 2
    outcome = call(cut)
    failed(outcome, "connection")
    assert len(outcome.server.asked) == 3


def test_a_server_that_is_not_there_is_a_connection_failure(waits):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        outcome = call(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    failed(outcome, "connection")
    assert len(waits) == 2


# Failures that end a run --------------------------------------------------------------------------


NOT_THERE = {
    "a 400 every time": (Answer({"error": {"message": "odd"}}, 400), "bad_request"),
    "an error with status 200": (Answer({"error": "Unexpected endpoint"}), "provider_error"),
    "html every time": (Answer("<html></html>"), "not_a_reply"),
}


@pytest.mark.parametrize("kind", NOT_THERE)
def test_a_server_that_fails_five_calls_in_a_row_ends_the_run(kind, waits):
    answer, failure = NOT_THERE[kind]
    results = call(answer, times=5).results
    assert [reply.failure.kind for reply in results[:4]] == [failure] * 4
    assert isinstance(results[4], InfrastructureError)
    assert "mine: 5 of 5 calls failed" in str(results[4]) and failure in str(results[4])


def test_one_call_in_ten_that_fails_ends_the_run_at_the_fifth_failure(waits):
    def every_tenth(asked: Asked) -> Answer:
        return Answer({}, 400) if asked.body["seed"] % 10 == 0 else GOOD

    outcome = at_once(every_tenth, requests=[{"seed": n} for n in range(60)], concurrency=1)
    errors = [r for r in outcome.results if isinstance(r, InfrastructureError)]
    assert errors and "5 of 41 calls failed" in str(errors[0])


MODERATED = {
    "OpenRouter": {"error": {"code": 403, "message": "Your input was flagged", "metadata": {}}},
    "Azure": {"error": {"code": "content_filter", "message": "The response was filtered"}},
}


@pytest.mark.parametrize(("service", "status"), [("OpenRouter", 403), ("Azure", 400)])
def test_a_moderated_prompt_fails_alone_and_ends_no_run(service, status):
    def moderate(asked: Asked) -> Answer:
        return Answer(MODERATED[service], status) if asked.body["seed"] % 2 else GOOD

    results = at_once(moderate, requests=[{"seed": n} for n in range(30)], concurrency=1).results
    assert {reply.failure.kind for reply in results[1::2]} == {"moderation"}
    assert all(reply.usable for reply in results[::2])


def test_a_provider_error_with_status_403_is_no_matter_of_the_keys_rights():
    body = {"error": {"message": "Provider returned error", "metadata": {"provider_name": "X"}}}
    failed(call(Answer(body, 403)), "provider_error")


def test_a_prompt_over_the_window_is_the_requests_failure_and_ends_no_run():
    said = "This model's maximum context length is 512 tokens"
    results = call(Answer({"error": {"message": said}}, 400), times=8).results
    assert {reply.failure.kind for reply in results} == {"context_too_long"}


def test_a_reply_that_the_provider_broke_off_is_asked_for_again_and_not_recorded(tmp_path):
    broken = Answer(completion("a good reply, bro", finish_reason="error"))
    outcome = call(broken, GOOD, parts={"recording": Recording(tmp_path, "tape", "record")})
    assert outcome.only.text == "SO-d2" and len(outcome.server.asked) == 2
    recording = Recording(tmp_path / "other", "tape", "record")
    failed(call(broken, parts={"recording": recording}), "provider_error")
    assert not Recording(tmp_path / "other", "tape", "record").export().exists()


REFUSED = {"error": {"message": "not you"}}
HOPELESS = {
    f"check the key ({KEY_VARIABLE})": Answer(REFUSED, 401),
    f"check the key's rights ({KEY_VARIABLE})": Answer(REFUSED, 403),
    "check base_url and model": Answer(REFUSED, 404),
    "no credit left": Answer(REFUSED, 402),
    "credit": Answer(
        {"error": {"message": "not you, beyond your quota", "code": "insufficient_quota"}}, 429
    ),
    "has moved": Answer(REFUSED, 301, {"location": "https://elsewhere.example/v1"}),
    "check base_url": Answer(REFUSED, 405),
}


@pytest.mark.parametrize("hint", HOPELESS)
def test_what_no_second_try_mends_ends_the_run_and_says_where_to_look(hint, waits):
    outcome = call(HOPELESS[hint], retries=1)
    words = str(outcome.only)
    assert isinstance(outcome.only, ConfigurationError) and KEY not in words
    for part in (hint, "127.0.0.1", str(HOPELESS[hint].status), "not you"):
        assert part in words
    assert len(outcome.server.asked) == 1


@pytest.mark.parametrize("held", [None, "", "  \n", f"{KEY}\nsecond", f"{KEY[:9]}…{KEY[-4:]}"])
def test_a_key_that_cannot_be_sent_is_missed_without_a_word_of_it(held, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE)
    if held is not None:
        monkeypatch.setenv(KEY_VARIABLE, held)
    outcome = call(GOOD)
    assert isinstance(outcome.only, ConfigurationError) and KEY_VARIABLE in str(outcome.only)
    assert KEY[:9] not in everything_held_by(outcome.only) and outcome.server.asked == []


@pytest.mark.parametrize("blank", ["\n", " ", "\r\n"])
def test_a_line_end_after_the_key_does_no_harm(blank, monkeypatch):
    # As `export KEY=$(cat file)` in some shells leaves it.
    monkeypatch.setenv(KEY_VARIABLE, KEY + blank)
    outcome = call(GOOD)
    assert outcome.only.text == "SO-d2"
    assert outcome.server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_refused_parameter_comes_with_its_remedy_and_the_remedy_works():
    refusal = {"error": {"message": "Unsupported parameter: 'seed' is not supported."}}

    def picky(asked: Asked) -> Answer:
        return Answer(refusal, 400) if "seed" in asked.body else GOOD

    outcome = call(picky)
    assert isinstance(outcome.only, ConfigurationError) and "omit: [seed]" in str(outcome.only)
    outcome = call(picky, omit=["seed"])
    assert outcome.only.text == "SO-d2" and "seed" not in outcome.server.asked[0].body


def test_a_model_that_wants_max_completion_tokens_says_so_and_then_gets_them():
    refusal = {
        "error": {
            "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        }
    }

    def picky(asked: Asked) -> Answer:
        return Answer(refusal, 400) if "max_tokens" in asked.body else GOOD

    outcome = call(picky)
    assert "token_parameter: max_completion_tokens" in str(outcome.only)
    outcome = call(picky, token_parameter="max_completion_tokens")
    assert outcome.only.usable and outcome.server.asked[0].body["max_completion_tokens"] == 100


def test_another_400_is_one_bad_request_without_wrong_advice():
    outcome = call(Answer({"error": {"message": "the messages must alternate"}}, 400))
    detail = failed(outcome, "bad_request").failure.detail
    assert "must alternate" in detail and "omit" not in detail and len(outcome.server.asked) == 1


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["gzip", "br", "deflate, gzip", "x" * 99])
def test_a_body_that_is_not_compressed_as_it_says_is_a_connection_failure(packing, waits):
    failed(call(Answer(headers={"content-encoding": packing})), "connection")


def test_a_body_that_is_compressed_though_nobody_asked_is_read():
    outcome = call(Answer(gzip.compress(GOOD.raw()), headers={"content-encoding": "gzip"}))
    assert outcome.only.text == "SO-d2"
    assert outcome.server.asked[0].headers["accept-encoding"] == "identity"


def pack_vast_reply() -> bytes:
    """A reply of 100 MB in 100 kB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start, end = json.dumps(completion("|")).encode().split(b"|")
    chunks = [packer.compress(chunk) for chunk in (start, *[b" " * 2**20] * 100, end)]
    return b"".join([*chunks, packer.flush()])


@pytest.mark.parametrize("packed", [True, False])
def test_a_body_beyond_all_replies_is_left_unread_and_not_asked_for_again(packed):
    if packed:
        answer = Answer(pack_vast_reply(), headers={"content-encoding": "gzip"})
    else:
        answer = Answer("{" + " " * safe_transport.LARGEST_BODY)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = call(answer, retries=3)
    failed(outcome, "malformed")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    assert len(outcome.server.asked) == 1 and grown_mb < 80


def test_half_a_character_in_a_question_is_sent_as_a_mark():
    request = {"messages": [{"role": "user", "content": "a \ud800 b"}]}
    (asked,) = at_once(requests=[request]).server.asked
    assert asked.body["messages"] == [{"role": "user", "content": "a ? b"}]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def mostly(*usual):
    return st.sampled_from(usual) | ANY


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


CALL = some(
    id=mostly("1"), function=ANY | some(name=mostly("look"), arguments=mostly("{}", {"a": 1}))
)
MESSAGE = some(
    content=mostly("SO-d2", "lone \ud800", [{"type": "text", "text": "SO-d2"}]),
    refusal=mostly(None, "no"),
    reasoning_content=mostly(None, "so it is"),
    tool_calls=ANY | st.lists(CALL, max_size=2),
)
CHOICE = some(
    finish_reason=mostly("stop", "length", "content_filter", "tool_calls", "error"),
    message=ANY | MESSAGE,
)
COUNTED = some(prompt_tokens=ANY, completion_tokens=ANY, total_tokens=ANY, cost=ANY)
NEARLY = some(
    choices=ANY | st.lists(CHOICE | ANY, max_size=2),
    usage=ANY | COUNTED,
    error=mostly(None),
    model=ANY,
)


@settings(max_examples=40)
@given(st.lists(ANY | NEARLY, min_size=1, max_size=4), st.booleans())
def test_any_json_as_a_body_gives_a_reply_and_nothing_else(tmp_path_factory, bodies, is_recorded):
    parts = {}
    if is_recorded:
        parts["recording"] = Recording(tmp_path_factory.mktemp("any"), "any", "record")
    # Each seed has a body, also when it is asked once more.
    requests = [{"seed": seed} for seed in range(len(bodies))]
    outcome = at_once(
        lambda asked: Answer(bodies[asked.body["seed"]]), requests=requests, parts=parts
    )
    for reply in outcome.results:
        assert isinstance(reply, Reply), repr(reply)
        assert reply.failure or reply.finish_reason not in ("length", "content_filter", "error")
        assert reply.cost_usd >= 0
        reply.text.encode()  # goes into files and into the next request
        json.dumps(reply.message).encode()


# What is sent -------------------------------------------------------------------------------------

AMBIENT = {
    "OPENAI_API_KEY": "sk-of-somebody-else", "OPENAI_ADMIN_KEY": "sk-of-somebody-else",
    "OPENAI_ORG_ID": "org-of-somebody", "OPENAI_PROJECT_ID": "proj-of-somebody",
    "OPENAI_CUSTOM_HEADERS": "x-api-key: somebody\nauthorization: Bearer somebody\ncookie: somebody",
    "HTTP_PROXY": "http://somebody:somebody@127.0.0.1:9",
}  # fmt: skip
SENT = {
    "host",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "user-agent",
    "connection",
}


@pytest.mark.parametrize("needs_key", [False, True])
def test_another_programs_credentials_are_not_sent(needs_key, monkeypatch):
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    outcome = call(GOOD, api_key_env=KEY_VARIABLE if needs_key else None)
    headers = outcome.server.asked[0].headers
    assert outcome.only.text == "SO-d2" and "somebody" not in str(headers)
    assert set(headers) <= SENT | ({"authorization"} if needs_key else set())
    assert headers.get("authorization") == (f"Bearer {KEY}" if needs_key else None)


def test_what_was_asked_for_reaches_the_server():
    request = {
        "seed": 11,
        "temperature": 0.0,
        "max_tokens": 30,
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "tool_choice": "required",
        "response_format": {"type": "json_object"},
        "stop": ["END"],
    }
    (asked,) = call(GOOD, request=request).server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "served", "messages": QUESTION, **request}


def test_what_was_not_asked_for_comes_from_the_models_settings():
    (asked,) = call(
        GOOD, temperature=0.75, max_tokens=64, reasoning_effort="low", extra_body={"top_k": 5}
    ).server.asked
    assert asked.body == {
        "model": "served",
        "messages": QUESTION,
        "temperature": 0.75,
        "max_tokens": 64,
        "seed": 0,
        "reasoning_effort": "low",
        "top_k": 5,
    }


def test_azures_version_and_key_go_where_azure_looks_for_them():
    (asked,) = call(GOOD, query={"api-version": "2025-01-01"}).server.asked
    assert asked.path == "/v1/chat/completions?api-version=2025-01-01"
    assert asked.headers["api-key"] == KEY and "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("requested", "most", "sent"), [(30, 5_000, 30), (5_000, 30, 30), (30, 30, 30)]
)
def test_a_call_never_asks_for_more_tokens_than_its_model_may_give(requested, most, sent):
    (asked,) = call(GOOD, request={"max_tokens": requested}, max_tokens=most).server.asked
    assert asked.body["max_tokens"] == sent


def test_omitted_parameters_are_not_sent_though_asked_for():
    omit = ["seed", "temperature", "max_tokens"]
    request = {"seed": 1, "temperature": 0.1, "max_tokens": 5}
    (asked,) = call(GOOD, omit=omit, request=request).server.asked
    assert asked.body == {"model": "served", "messages": QUESTION}


def test_a_servers_message_goes_back_verbatim():
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "it must be looked up",
        "tool_calls": [
            {"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    }
    reply = call(Answer(completion(message=message, finish_reason="tool_calls"))).only
    history = [
        *QUESTION,
        reply.message,
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "7"},
    ]
    (asked,) = call(GOOD, request={"messages": history}).server.asked
    assert asked.body["messages"][2] == message


# Limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "processes", "expected"),
    [(5, 1, 5), (1, 1, 1), (6, 2, 3), (5, 2, 2), (4, 9, 1)],
)
def test_no_more_calls_are_under_way_than_the_processes_share_allows(
    concurrency, processes, expected
):
    requests = [{"seed": seed} for seed in range(20)]
    outcome = at_once(
        Answer(delay=0.01),
        requests=requests,
        parts={"processes": processes},
        concurrency=concurrency,
    )
    assert len(outcome.server.asked) == 20
    assert outcome.server.most_in_flight == expected


def test_many_more_calls_than_a_connection_pool_usually_holds_are_under_way_at_once():
    outcome = at_once(Answer(delay=0.05), requests=[{}] * 130, concurrency=130)
    assert outcome.server.most_in_flight > 100


def test_one_call_that_fails_does_not_disturb_the_others(waits):
    def script(asked: Asked) -> Answer:
        seed = asked.body["seed"]
        return Answer(status=0) if seed == 3 else Answer(completion(f"reply {seed}"))

    results = at_once(script, requests=[{"seed": seed} for seed in range(6)]).results
    assert results.pop(3).failure.kind == "connection"
    assert [reply.text for reply in results] == [f"reply {seed}" for seed in (0, 1, 2, 4, 5)]


# The planted key ----------------------------------------------------------------------------------

ECHOES = {
    "a reply": lambda key: Answer(completion(f"You sent {key}, so SO-d2")),
    "a field of a reply": lambda key: Answer(completion() | {"model": key}),
    "a finish reason": lambda key: Answer(completion(finish_reason=key)),
    "a truncated reply": lambda key: Answer(completion(key, finish_reason="length")),
    "a refusal": lambda key: Answer(completion(message={"content": key, "refusal": key})),
    "reasoning": lambda key: Answer(completion(message={"content": "x", "reasoning": key})),
    "an error with status 200": lambda key: Answer({"error": {"message": f"who is {key}?"}}),
    "html with status 200": lambda key: Answer(f"<p>{key}</p>"),
    "html where the excerpt ends": lambda key: Answer("x" * (80 - len(key) // 2) + key),
    "broken JSON": lambda key: Answer('{"choices": "' + key),
    "a 400": lambda key: Answer({"error": {"message": f"odd header {key}"}}, 400),
    "a 400 about a parameter": lambda key: Answer({"error": {"message": f"no seed {key}"}}, 400),
    "a 400 where the excerpt ends": lambda key: Answer("y" * (300 - len(key) // 2) + key, 400),
    "a 401": lambda key: Answer({"error": {"message": f"Incorrect API key: {key}"}}, 401),
    "a 403 in html": lambda key: Answer(f"<p>{key}</p>", 403),
    "a 404": lambda key: Answer({"detail": key}, 404),
    "a 429": lambda key: Answer({"error": {"message": key}}, 429),
    "a 500 in html": lambda key: Answer(f"<pre>{key}</pre>", 500),
    "headers": lambda key: Answer(headers={"x-request-id": key, "set-cookie": key}),
    "a body that breaks off": lambda key: Answer(completion(key), cut=150),
}


def everything_held_by(error: BaseException | None) -> str:
    """All that an exception and those behind it hold, whether a traceback would show it or not."""
    if error is None:
        return ""
    texts = [str(error), repr(error), repr(error.args), *map(repr, vars(error).values())]
    behind = everything_held_by(error.__cause__) + everything_held_by(error.__context__)
    return "\n".join(texts) + behind


@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_that_a_server_echoes_stands_in_no_reply_error_or_file(echo, tmp_path, waits):
    recording = Recording(tmp_path, "tape", "record")
    outcome = call(ECHOES[echo](KEY), parts={"recording": recording})
    result = outcome.only
    text = repr(result) if isinstance(result, Reply) else everything_held_by(result)
    exported = Recording(tmp_path, "tape", "record").export()
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert KEY not in text and KEY.encode() not in files
    assert exported.suffix == ".jsonl"


def test_a_short_placeholder_for_a_key_changes_no_reply(monkeypatch, tmp_path):
    # What local servers take; also a word of replies and files.
    monkeypatch.setenv(KEY_VARIABLE, "key")
    recording = Recording(tmp_path, "short", "record")
    outcome = call(Answer(completion("the key is SO-d2")), times=2, parts={"recording": recording})
    assert [reply.text for reply in outcome.results] == ["the key is SO-d2"] * 2
    assert len(outcome.server.asked) == 1


# Recording ----------------------------------------------------------------------------------------


def without_replay_mark(replies: list[Reply]) -> list[dict]:
    return [vars(reply) | {"replayed": None} for reply in replies]


def count_tokens_by_request(asked: Asked) -> Answer:
    """A reply that depends on all that was asked, in length too."""
    text = f"{asked.body['messages'][-1]['content']} with {asked.body['seed']}"
    return Answer(completion(text, tokens_in=100 + asked.body["seed"], tokens_out=len(text)))


def ask_about(text: str, seed: int, sample: int = 0) -> dict:
    return {"messages": [{"role": "user", "content": text}], "seed": seed, "sample": sample}


REQUESTS = [
    ask_about(text, seed, sample)
    for text in ("where", "who", "ünï \u2028 code")
    for seed in (0, 7)
    for sample in (0, 1)
]


def record(folder, script, requests, mode="record", **changes):
    return at_once(
        script, requests=requests, parts={"recording": Recording(folder, "tape", mode)}, **changes
    )


def test_a_replay_without_a_key_gives_equal_replies_at_equal_prices_and_sends_nothing(
    tmp_path, monkeypatch
):
    address = {"base_url": "http://127.0.0.1:9/v1"}
    first = record(tmp_path, count_tokens_by_request, REQUESTS)
    address = {"base_url": first.server.url}
    Recording(tmp_path, "tape", "record").export()
    (tmp_path / "tape.sqlite").unlink()
    for companion in tmp_path.glob("tape.sqlite-*"):
        companion.unlink()
    monkeypatch.delenv(KEY_VARIABLE)
    again = record(tmp_path, count_tokens_by_request, REQUESTS, "replay", **address)
    assert without_replay_mark(again.results) == without_replay_mark(first.results)
    assert len({reply.cost_usd for reply in first.results}) > 2
    assert not any(reply.replayed for reply in first.results)
    assert all(reply.replayed for reply in again.results)
    assert again.server.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["tape.jsonl"]


def test_a_miss_in_replay_names_the_request_and_sends_nothing(tmp_path, waits):
    recording = Recording(tmp_path / "tapes", "tape", "replay")
    outcome = call(parts={"recording": recording}, retries=5)
    assert isinstance(outcome.only, RecordingMiss)
    for part in ("mine", "Which policy acts next?", "tape.jsonl", "llm.cassette: record"):
        assert part in str(outcome.only)
    assert outcome.server.asked == [] and waits == [] and not (tmp_path / "tapes").exists()


def test_another_sample_of_an_equal_request_is_another_reply(tmp_path):
    texts = iter(["SO-d1", "SO-d2", "SO-d3"])
    requests = [ask_about("who", 0, sample) for sample in range(3)]
    first = record(tmp_path, lambda asked: Answer(completion(next(texts))), requests, concurrency=1)
    assert [reply.text for reply in first.results] == ["SO-d1", "SO-d2", "SO-d3"]
    again = record(tmp_path, GOOD, requests[::-1], base_url=first.server.url)
    assert [reply.text for reply in again.results] == ["SO-d3", "SO-d2", "SO-d1"]
    assert again.server.asked == []


def test_two_servers_with_one_model_name_are_two_models(tmp_path):
    one = record(tmp_path, Answer(completion("one")), [ask_about("who", 0)])
    two = record(tmp_path, Answer(completion("two")), [ask_about("who", 0)])
    assert [one.only.text, two.only.text] == ["one", "two"]
    assert len(two.server.asked) == 1


def test_key_timeout_and_the_name_of_max_tokens_are_no_part_of_a_request(tmp_path, monkeypatch):
    first = record(tmp_path, count_tokens_by_request, REQUESTS)
    monkeypatch.setenv(KEY_VARIABLE, "sk-another-key")
    again = record(
        tmp_path,
        count_tokens_by_request,
        REQUESTS,
        timeout=9.0,
        retries=7,
        token_parameter="max_completion_tokens",
        base_url=first.server.url,
    )
    assert again.server.asked == []
    assert without_replay_mark(again.results) == without_replay_mark(first.results)


CHANGES = {
    "model": {"model": "other"},
    "temperature": {"temperature": 0.9},
    "max_tokens": {"max_tokens": 7},
    "effort": {"reasoning_effort": "high"},
    "extra": {"extra_body": {"top_p": 0.5}},
    "query": {"query": {"api-version": "1"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_a_reply_is_part_of_the_request(change, tmp_path):
    first = record(tmp_path, GOOD, [ask_about("who", 0)])
    again = record(
        tmp_path, GOOD, [ask_about("who", 0)], base_url=first.server.url, **CHANGES[change]
    )
    # The second server is at another address, so a call to it shows as a failure at the first's.
    assert not again.only.replayed


USELESS = {
    "truncated": completion("half", finish_reason="length"),
    "empty": completion(" \n"),
    "refusal": completion(message={"role": "assistant", "content": "no", "refusal": "no"}),
}


@pytest.mark.parametrize("kind", USELESS)
def test_a_reply_that_was_paid_for_and_is_of_no_use_is_replayed_as_what_it_was(kind, tmp_path):
    first = call(Answer(USELESS[kind]), parts={"recording": Recording(tmp_path, "tape", "record")})
    Recording(tmp_path, "tape", "record").export()
    again = call(
        parts={"recording": Recording(tmp_path, "tape", "replay")}, base_url=first.server.url
    )
    assert first.only.failure.kind == kind
    assert without_replay_mark([again.only]) == without_replay_mark([first.only])


def test_a_replay_bills_as_the_server_billed(tmp_path):
    body = completion() | {
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "cost": 0.0056,
            "prompt_tokens_details": {"cached_tokens": 8},
        }
    }
    first = call(Answer(body), parts={"recording": Recording(tmp_path, "tape", "record")})
    again = call(
        parts={"recording": Recording(tmp_path, "tape", "record")}, base_url=first.server.url
    )
    assert first.only.cost_usd == again.only.cost_usd == 0.0056
    assert first.only.tokens_cached == again.only.tokens_cached == 8
